// Sections of a page, by kind. Each gives an element; refreshing ones have `refresh`.

const makers = {};
const refreshers = new Set();

function makeSection(part) {
  const node = el("section", { class: `part of-${part.kind} ${part.span ?? ""}`, "data-title": part.title || null });
  const make = makers[part.kind] ?? (() => el("p", { text: `unknown section ${part.kind}` }));
  if (part.folded) node.append(foldedBody(part, make));
  else {
    if (part.title) node.append(el("h2", { text: part.title }));
    node.append(make(part));
  }
  if (part.caption) node.append(el("p", { class: "caption", text: part.caption }));
  return node;
}

// Made when it is opened for the first time.
function foldedBody(part, make) {
  const details = el("details", {}, el("summary", {}, el("h2", { text: part.title })));
  details.addEventListener("toggle", () => details.open && details.append(make(part)), { once: true });
  return details;
}

makers.remark = (part) => el("p", { text: part.text });

makers.text = (part) => el("div", {}, part.paragraphs.map((text) => el("p", { text })));

// The unit after a number is written small.
function withUnit(value) {
  const [, number, unit] = /^([+\-\u2212]?[\d.]+)\s+(\D+)$/.exec(value) ?? [];
  return number ? el("dd", {}, number, " ", el("small", { text: unit })) : el("dd", { text: value });
}

makers.figures = (part) => el("dl", { class: "cards" }, part.items.map(([label, value, note]) =>
  el("div", { class: "card" }, el("dt", { text: label }), withUnit(value), note ? el("dd", { class: "quiet", text: note }) : null)));

makers.plot = (part) => {
  const plot = new Plot(part);
  listen(refreshers, () => plot.refresh());
  return plot.node;
};

makers.row = (part) => el("div", { class: "columns" }, part.sections.map(makeSection));

makers.bars = (part) => {
  const most = Math.max(1e-12, ...part.items.map((item) => item[1]));
  return el("div", { class: "bars" }, part.items.map(([label, value, text]) => {
    const bar = el("span", { class: "bar" });
    bar.style.width = `${(100 * value) / most}%`;
    return el("div", { class: "bar-line" }, el("span", { class: "bar-label", text: label }), el("span", { class: "bar-track" }, bar), el("span", { class: "bar-text", text }));
  }));
};

// Copies a text that `node` shows; where there is no clipboard, it is marked instead.
function copyButton(text, node, label = null) {
  const button = el("button", { type: "button", text: "copy", "aria-label": label, onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(node);
      button.textContent = "marked";
    }
    setTimeout(() => (button.textContent = "copy"), 1500);
  } });
  return button;
}

makers.code = (part) => {
  const block = el("pre", { tabindex: 0 }, el("code", { text: part.text }));
  const tools = el("div", { class: "tools" }, copyButton(part.text, block),
    part.filename ? el("button", { type: "button", text: "download", onclick: () => save(part.filename, part.text) }) : null);
  return el("div", { class: "code-box" }, tools, block);
};

makers.table = (part) => {
  if (!part.rows.length) return el("p", { class: "quiet", text: part.empty ?? "None." });
  const order = part.rows.map((_, k) => k);
  const numeric = part.columns.map((_, c) => part.rows.some((row) => typeof row[c] === "number"));
  const body = el("tbody");
  const pictures = part.thumbnails?.map((structure) => el("td", { class: "thumbnail" }, thumbnail(structure)));
  const fill = () => body.replaceChildren(...order.map((k) => tableRow(part, k, numeric, pictures?.[k])));
  const heads = part.columns.map((name, c) => {
    const head = el("th", { scope: "col", class: numeric[c] ? "number" : "" });
    head.append(el("button", { type: "button", text: name, title: "Sort", onclick: () => {
      const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down > 0 ? "ascending" : "descending");
      order.sort((a, b) => down * compared(part.rows[a][c], part.rows[b][c]));
      fill();
    } }));
    return head;
  });
  fill();
  return el("div", { class: `table-box${part.whole ? " whole" : ""}`, tabindex: 0, role: "region", "aria-label": part.title || "Table" },
    el("table", {}, el("thead", {}, el("tr", {}, pictures ? el("td", {}) : null, heads)), body));
};

// A small picture of a structure that does not turn.
function thumbnail(structure) {
  if (structure === null || structure === undefined) return null;
  const viewer = new Viewer({ class: "tiny" });
  viewer.show(structure);
  viewer.canvas.removeAttribute("tabindex");
  viewer.canvas.setAttribute("aria-label", titleOf(structure));
  return viewer.node;
}

// All rows of a table of data, for those who would rather read.
makers.rows = (part) => {
  const host = el("div", {});
  const fill = () => {
    const table = tableOf(part.data);
    const columns = Object.values(table.columns).filter((column) => column.shown !== false);
    const rows = [];
    for (let k = 0; k < table.length; k++) rows.push(columns.map((column) => column.values[k] ?? ""));
    const names = columns.map((column) => column.label + (column.unit ? `, ${column.unit}` : ""));
    const digits = columns.map((column) => column.digits);
    host.replaceChildren(makers.table({ ...part, columns: names, rows, digits, structures: table.structures }));
  };
  fill();
  listen(refreshers, fill);
  return host;
};

function compared(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a ?? "").localeCompare(String(b ?? ""));
}

function tableRow(part, k, numeric, picture) {
  const structure = part.structures?.[k] ?? null, link = part.links?.[k];
  const cells = part.rows[k].map((value, c) => {
    const cell = el("td", { class: numeric[c] ? "number" : "" });
    const typed = part.columns[c] === "space group" ? spaceGroup : formulaText;
    const text = typed(formatCell(value, part.digits?.[c]));
    if (c === 0 && isRelative(link)) cell.append(el("a", { href: link, text }));
    else if (c === 0 && structure !== null) cell.append(el("button", { type: "button", class: "link", text, onclick: () => select(structure, part) }));
    else cell.textContent = text;
    return cell;
  });
  const row = el("tr", {}, picture, cells);
  if (structure !== null) {
    row.classList.add("clickable");
    row.addEventListener("click", (event) => {
      if (!["BUTTON", "A"].includes(event.target.tagName)) select(structure, part);
    });
  }
  return row;
}

// Only files below the page: no scheme, no other host.
function isRelative(link) {
  return typeof link === "string" && /^[\w%+-][\w%./+-]*(#[\w-]*)?$/.test(link) && !link.includes("..");
}
