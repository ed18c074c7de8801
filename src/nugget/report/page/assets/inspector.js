// The structure that is looked at, with its facts: beside the page, or at the foot of a phone.

const itemFacts = new Map(); // facts of structures that stand in galleries
const valueNames = { element: "element", coordination: "coordination", kind: "fixed, free" }; // how numbers per atom are called

function modesOf(frame) {
  return ["element", "coordination", ...(frame?.kinds ? ["kind"] : []), ...(frame?.names ?? [])];
}

function rangeOf(list, mode) {
  const all = list.flatMap((viewer) => [...(viewer.valuesOf(mode) ?? [])]);
  return extent(all, mode !== "coordination");
}

function modeSwitch(modes, change) {
  const buttons = modes.map((mode, k) =>
    el("button", {
      type: "button", text: valueNames[mode] ?? mode, "aria-pressed": k === 0,
      onclick: (event) => {
        for (const other of buttons) other.setAttribute("aria-pressed", other === event.currentTarget);
        change(mode);
      },
    }));
  return el("div", { class: "switch", role: "group", "aria-label": "Colour atoms by" }, buttons);
}

function ramp(range, mode) {
  if (mode === "kind") return kindKey();
  if (!range || mode === "element") return el("div", { class: "ramp-line" });
  const bar = el("span", { class: "ramp" });
  gradientBar(bar);
  return el("div", { class: "ramp-line quiet" }, el("span", { text: formatNumber(range[0], 3) }), bar, el("span", { text: formatNumber(range[1], 3) }));
}

// The symbols and colours of the elements of structures.
function elementKey(...frames) {
  const key = el("div", { class: "ramp-line quiet" });
  for (const z of new Set(frames.flatMap((frame) => [...frame.numbers]))) {
    const dot = el("span", { class: "dot" });
    dot.style.background = store.elements[z].color;
    key.append(el("span", { class: "entry" }, dot, store.elements[z].symbol));
  }
  return key;
}

const KINDS = [["free", [86, 152, 208]], ["fixed", [150, 150, 150]], ["adsorbed", [226, 128, 48]]];

function kindKey() {
  return el("div", { class: "ramp-line quiet" }, KINDS.map(([name, rgb]) => {
    const dot = el("span", { class: "dot" });
    dot.style.background = css(rgb);
    return el("span", { class: "entry" }, dot, name);
  }));
}

// Views along axes, without perspective, with images of neighbouring cells; for one or several viewers.
function viewTools(list, periodic) {
  const button = (text, title, action) => el("button", { type: "button", text, title, "aria-label": `${text}: ${title}`, onclick: action });
  const axes = ["a", "b", "c"].map((name, k) => button(periodic ? name : "xyz"[k], `View along ${periodic ? name : "xyz"[k]}`, () => {
    for (const viewer of list) viewer.along(k);
  }));
  const all = (change) => () => {
    for (const viewer of list) {
      change(viewer);
      viewer.build();
    }
  };
  return el("div", { class: "view-tools" }, axes,
    button("flat", "With or without perspective", all((viewer) => (viewer.flat = !viewer.flat))),
    periodic ? button("images", "Show or hide atoms of neighbouring cells", all((viewer) => (viewer.images = !viewer.images))) : null,
    periodic ? button("repeat", "Show more cells", all((viewer) => (viewer.repeat = (viewer.repeat % 3) + 1))) : null,
    list.length === 1 ? button("PNG", "Save the picture as PNG", () => savePng(list[0].canvas, titleOf(list[0].structure))) : null);
}

class Inspector {
  constructor() {
    this.viewer = new Viewer({ class: "large" });
    this.title = el("h2", { text: "Structure" });
    this.facts = el("dl", { class: "facts" });
    this.tools = el("div", { class: "tools" });
    this.key = el("div", {});
    this.mode = "element";
    const step = (by, label, text) => el("button", { type: "button", text, "aria-label": label, title: label, onclick: () => this.step(by) });
    this.node = el("aside", { class: "inspector", "aria-label": "The chosen structure" },
      el("header", {}, this.title, step(-1, "Previous structure", "‹"), step(1, "Next structure", "›"),
        el("button", { type: "button", class: "close", text: "×", "aria-label": "Close", onclick: () => this.node.classList.remove("open") })),
      this.viewer.node, this.key, this.tools, this.facts);
    selectListeners.add((structure, by) => this.show(structure, by));
    themed.add(() => this.showKey());
  }

  show(structure, by) {
    const frame = store.frames[structure];
    this.viewer.show(structure, true);
    this.title.textContent = formulaText(titleOf(structure));
    const found = rowOf(structure);
    this.facts.replaceChildren();
    if (found) {
      for (const column of Object.values(found.table.columns)) {
        const value = column.values[found.row];
        if (column.shown === false || value === null || value === undefined || value === "") continue;
        this.facts.append(factLine([column.label, `${formatCell(value, column.digits)}${column.unit ? ` ${column.unit}` : ""}`]));
      }
    }
    for (const [label, value] of found ? [] : itemFacts.get(structure) ?? []) {
      this.facts.append(factLine([label, value]));
    }
    const modes = modesOf(frame);
    const look = `${modes.join()}|${frame.pbc.join()}`;
    if (look !== this.look) {
      this.look = look;
      this.mode = "element";
      const periodic = frame.pbc.some(Boolean);
      this.tools.replaceChildren(...[
        modes.length > 1 ? modeSwitch(modes, (mode) => this.color(mode)) : null,
        viewTools([this.viewer], periodic),
        downloads(() => this.viewer.structure),
      ].filter(Boolean));
    }
    this.color(this.mode);
    if (by) this.node.classList.add("open");
    // On a phone the plot that was tapped stays above the sheet.
    if (by?.canvas && by.part && window.innerWidth < 1020) by.canvas.scrollIntoView({ block: "start" });
  }

  color(mode) {
    this.mode = this.viewer.mode = mode;
    this.viewer.range = mode === "element" ? null : rangeOf([this.viewer], mode);
    this.viewer.redraw();
    this.showKey();
  }

  showKey() {
    if (!this.viewer.frame) return;
    this.key.replaceChildren(this.mode === "element" ? elementKey(this.viewer.frame) : ramp(this.viewer.range, this.mode));
  }

  step(by) {
    const found = rowOf(store.selected);
    if (!found) return select(store.selected + by, this);
    for (let row = found.row + by; row >= 0 && row < found.table.length; row += by) {
      const structure = found.table.structures[row];
      if (structure !== null && structure !== undefined) return select(structure, this);
    }
  }
}
