// Sections with structures: side by side, and one after the other.

makers.gallery = (part) => {
  if (!part.items.length) return el("p", { class: "quiet", text: part.empty ?? "None yet." });
  Object.assign(valueNames, part.values ?? {});
  const cards = part.items.map((item) => galleryCard(item));
  const frames = part.items.map((item) => store.frames[item.structure]);
  const list = cards.map((card) => card.viewer);
  for (const viewer of list) viewer.group = list; // they turn together
  for (const viewer of list) viewer.orient(alignedTo(frames[0], viewer.frame));
  return el("div", {}, colorTools(list, frames, (mode) => rangeOf(list, mode)), el("div", { class: `gallery${cards.length < 4 ? " few" : ""}` }, cards.map((card) => card.node)));
};

// The choice of colours, their key, and buttons, for viewers of these frames.
function colorTools(list, frames, rangeFor) {
  const own = ["coordination", ...(frames.some((frame) => frame.kinds) ? ["kind"] : [])];
  const modes = ["element", ...own, ...new Set(frames.flatMap((frame) => frame.names))];
  const key = el("div", {});
  const color = (mode) => {
    const range = mode === "element" ? null : rangeFor(mode);
    for (const viewer of list) Object.assign(viewer, { mode, range }).redraw();
    key.replaceChildren(mode === "element" ? elementKey(...frames) : ramp(range, mode));
  };
  color("element");
  return el("div", { class: "tools" }, modeSwitch(modes, color), key, viewTools(list, frames[0].pbc.some(Boolean)));
}

function galleryCard(item) {
  const viewer = new Viewer({ class: "small" });
  viewer.show(item.structure);
  const facts = el("dl", { class: "facts" }, item.facts.map(factLine));
  const open = el("button", { type: "button", class: "link", text: formulaText(item.title), onclick: () => select(item.structure, viewer) });
  const node = el("article", { class: "structure-card" }, viewer.node, el("h3", {}, open), facts, spec.inspector === false ? downloads(() => item.structure) : null);
  node.classList.toggle("chosen", store.selected === item.structure);
  listen(selectListeners, (structure) => node.classList.toggle("chosen", structure === item.structure));
  itemFacts.set(item.structure, item.facts);
  return { viewer, node };
}

// A viewer with a slider; the whole page follows, so that plots show where one is.
makers.film = (part) => {
  const viewer = new Viewer({ class: "large" });
  const list = part.structures;
  const slider = el("input", { type: "range", min: 0, max: Math.max(list.length - 1, 0), value: 0, "aria-label": "Frame" });
  const label = el("span", { class: "quiet" });
  let playing = null;
  const show = (k) => {
    slider.value = k;
    viewer.show(list[k], true);
    label.textContent = formulaText(titleOf(list[k])) + (list.length > 1 ? ` (${k + 1} of ${list.length})` : "");
  };
  slider.addEventListener("input", () => {
    show(Number(slider.value));
    select(list[Number(slider.value)]);
  });
  const play = el("button", { type: "button", text: "play", onclick: () => {
    if (playing) {
      clearInterval(playing);
      playing = null;
    } else playing = setInterval(() => {
      const k = (Number(slider.value) + 1) % list.length;
      show(k);
      select(list[k]); // plots follow
    }, 80);
    play.textContent = playing ? "pause" : "play";
  } });
  listen(selectListeners, (structure) => {
    const k = list.indexOf(structure);
    if (k >= 0 && k !== Number(slider.value)) show(k);
    else if (k < 0 && spec.inspector === false) { // there is no other place to show it
      viewer.show(structure, true);
      label.textContent = formulaText(titleOf(structure));
    }
  });
  disposers.push(() => clearInterval(playing));
  Object.assign(valueNames, part.values ?? {});
  const frames = list.map((structure) => store.frames[structure]);
  const range = (mode) => (mode === "coordination" ? [0, 12] : extent(frames.flatMap((frame) => [...(frame.values(mode) ?? [])]), true));
  if (list.length) show(0);
  const several = list.length > 1;
  return el("div", { class: "film" },
    frames.length ? colorTools([viewer], frames, range) : null, viewer.node,
    el("div", { class: "tools" }, several ? [play, slider] : [], label, downloads(() => viewer.structure)));
};
