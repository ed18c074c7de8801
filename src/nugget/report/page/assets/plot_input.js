// Plots answer to mouse, touch and keyboard: hover, click, a rectangle to zoom in, arrow keys.

function addPlotInput(plot) {
  const { canvas, tip } = plot;
  let start = null;

  const nearest = (x, y, reach) => {
    let best = null, least = reach * reach;
    for (const p of plot.shown()) {
      const [px, py] = plot.pixelOf(p);
      const d = (px - x) ** 2 + (py - y) ** 2;
      if (d < least) [best, least] = [p, d];
    }
    return best;
  };

  const describe = (p) => {
    plot.hover = p;
    tip.hidden = !p;
    plot.remark();
    if (!p) return;
    tip.replaceChildren(...describeRow(plot.table, p.row));
    const [x, y] = plot.pixelOf(p);
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = `${clamp(x + 14 + w > canvas.clientWidth ? x - w - 14 : x + 14, 0, Math.max(canvas.clientWidth - w, 0))}px`;
    tip.style.top = `${Math.max(y - h - 10, 0)}px`;
  };

  const choose = (p) => {
    if (p) select(plot.table.structures[p.row], plot);
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = { at: localPoint(event, canvas), touch: event.pointerType === "touch" };
    if (!start.touch) canvas.setPointerCapture(event.pointerId);
  });

  canvas.addEventListener("pointermove", (event) => {
    const at = localPoint(event, canvas);
    if (start && !start.touch && Math.hypot(at[0] - start.at[0], at[1] - start.at[1]) > 6) {
      plot.drag = [start.at, at];
      describe(null);
    } else if (!start) {
      const p = nearest(...at, 16);
      if (p !== plot.hover) describe(p);
      canvas.style.cursor = p && plot.table.structures[p.row] != null ? "pointer" : "crosshair";
    }
  });

  canvas.addEventListener("pointerup", (event) => {
    if (plot.drag) zoomTo(plot, ...plot.drag);
    else if (start) {
      const p = nearest(...localPoint(event, canvas), start.touch ? 28 : 16);
      describe(p);
      choose(p);
    }
    plot.drag = start = null;
    plot.remark();
  });

  canvas.addEventListener("pointercancel", () => {
    plot.drag = start = null;
    plot.remark();
  });
  canvas.addEventListener("pointerleave", () => describe(null));
  canvas.addEventListener("blur", () => describe(null));
  canvas.addEventListener("dblclick", () => resetZoom(plot));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    zoomBy(plot, Math.exp(0.003 * event.deltaY), localPoint(event, canvas));
  }, { passive: false });

  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const list = plot.shown();
    if (step && list.length) {
      const now = list.findIndex((p) => plot.table.structures[p.row] === store.selected && store.selected !== null);
      const next = list[now < 0 ? (step > 0 ? 0 : list.length - 1) : clamp(now + step, 0, list.length - 1)];
      choose(next);
      describe(next);
      say(tip.textContent);
    } else if (event.key === "+" || event.key === "=") zoomBy(plot, 0.7);
    else if (event.key === "-") zoomBy(plot, 1 / 0.7);
    else if (event.key === "0" || event.key === "Escape") resetZoom(plot);
    else return;
    event.preventDefault();
  });
}

// The facts of a row, a line each.
function describeRow(table, row) {
  const lines = [];
  const structure = table.structures[row];
  if (structure !== null && structure !== undefined) lines.push(el("b", { text: titleOf(structure) }));
  for (const column of Object.values(table.columns)) {
    const value = column.values[row];
    if (column.shown === false || value === null || value === undefined || value === "") continue;
    lines.push(el("span", {}, el("i", { text: column.label }), ` ${formatCell(value, column.digits)}${column.unit ? ` ${column.unit}` : ""}`));
  }
  return lines;
}

function zoomTo(plot, [ax, ay], [bx, by]) {
  if (Math.abs(bx - ax) < 8 || Math.abs(by - ay) < 8) return;
  const x = [ax, bx].map((v) => plot.sx.value(v)).sort((a, b) => a - b);
  const y = [ay, by].map((v) => plot.sy.value(v)).sort((a, b) => a - b);
  plot.view = { x, y };
  plot.redraw();
}

function zoomBy(plot, factor, at) {
  const { left, right, top, bottom } = plot.box;
  const [cx, cy] = at ?? [(left + right) / 2, (top + bottom) / 2];
  const x = [left, right].map((v) => plot.sx.value(cx + (v - cx) * factor));
  const y = [bottom, top].map((v) => plot.sy.value(cy + (v - cy) * factor));
  plot.view = { x, y };
  plot.redraw();
}

function resetZoom(plot) {
  plot.view = null;
  plot.redraw();
}
