// Structures are turned by mouse, touch and keyboard.

function addViewerInput(viewer) {
  const { canvas, tip } = viewer;
  const fingers = new Map();
  let gap = null;

  const rotate = (dx, dy) => {
    const by = times(turn("x", dy), turn("y", dx));
    for (const one of viewer.group ?? [viewer]) one.orient(times(by, one.rotation));
  };
  const scale = (factor) => {
    viewer.zoom = clamp(viewer.zoom * factor, 0.3, 8);
    viewer.redraw();
  };

  let pressed = null;
  canvas.addEventListener("pointerdown", (event) => {
    pressed = [event.clientX, event.clientY];
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    canvas.setPointerCapture(event.pointerId);
    tip.hidden = true;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return describe(event);
    const now = [event.clientX, event.clientY];
    fingers.set(event.pointerId, now);
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()], apart = Math.hypot(a[0] - b[0], a[1] - b[1]);
      if (gap) scale(apart / gap);
      gap = apart;
    }
    rotate(0.01 * (now[0] - before[0]), 0.01 * (now[1] - before[1]));
  });
  const release = (event) => {
    const still = pressed && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) < 4;
    if (still && event.type === "pointerup" && fingers.size === 1) viewer.pick(spotAt(event));
    pressed = null;
    fingers.delete(event.pointerId);
    gap = null;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => (tip.hidden = true));
  canvas.addEventListener("dblclick", () => viewer.reset());
  canvas.addEventListener("wheel", (event) => {
    // The page scrolls, unless the structure was clicked before.
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    scale(Math.exp(-0.0015 * event.deltaY));
  }, { passive: false });

  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[event.key];
    if (step) rotate(...step);
    else if (event.key === "+" || event.key === "=") scale(1.2);
    else if (event.key === "-") scale(1 / 1.2);
    else if (event.key === "0") viewer.reset();
    else if ("xyz".includes(event.key)) viewer.along("xyz".indexOf(event.key));
    else if (event.key === "Escape") viewer.pick(null);
    else return;
    event.preventDefault();
  });

  // The atom under the mouse, and its value.
  function spotAt(event) {
    const [x, y] = localPoint(event, canvas);
    let best = null;
    for (const spot of viewer.spots ?? []) {
      if (Math.hypot(spot.x - x, spot.y - y) < spot.r && (!best || spot.z > best.z)) best = spot;
    }
    return best;
  }

  function describe(event) {
    const [x, y] = localPoint(event, canvas), best = spotAt(event);
    tip.hidden = !best;
    if (!best) return;
    const { atom } = best, values = viewer.valuesOf(viewer.mode);
    tip.textContent = `${store.elements[atom.z].symbol} ${atom.k + 1}`;
    if (viewer.frame.kinds[atom.k] === "1") tip.textContent += ", fixed";
    if (atom.image) tip.textContent += ", neighbouring cell";
    if (values && viewer.mode !== "kind") tip.textContent += `: ${formatNumber(values[atom.k], 3)}`;
    tip.style.left = `${clamp(x + 12, 0, canvas.clientWidth - tip.offsetWidth)}px`;
    tip.style.top = `${Math.max(y - 30, 0)}px`;
  }
}
