// Files to download: extended xyz and CIF, made from what the page holds.

function save(name, text, type = "text/plain") {
  saveBlob(name, new Blob([text], { type: `${type};charset=utf-8` }));
}

function saveBlob(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = el("a", { href: address, download: name.replaceAll(/[^\w.+-]+/g, "_") });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function asXyz(frame) {
  const { numbers, positions, cell, pbc } = frame;
  const names = frame.names.map((name) => name.replaceAll(/\W+/g, "_"));
  const head = ["species:S:1", "pos:R:3", ...names.map((name) => `${name}:R:1`)].join(":");
  const info = [];
  if (cell) info.push(`Lattice="${cell.flat().join(" ")}"`);
  info.push(`Properties=${head}`);
  if (typeof frame.energy === "number") info.push(`energy=${frame.energy}`);
  info.push(`pbc="${pbc.map((p) => (p ? "T" : "F")).join(" ")}"`);
  const lines = [String(numbers.length), info.join(" ")];
  const columns = frame.names.map((name) => frame.values(name));
  numbers.forEach((z, k) => {
    const place = [0, 1, 2].map((i) => positions[3 * k + i].toFixed(4));
    lines.push([store.elements[z].symbol, ...place, ...columns.map((c) => c[k].toPrecision(6))].join(" "));
  });
  return `${lines.join("\n")}\n`;
}

// The cell and the positions in it; what has no cell is put into a box with 6 Å of vacuum.
function boxed(frame) {
  const { numbers, positions } = frame;
  let cell = frame.cell, shift = [0, 0, 0];
  const whole = cell && inverted(cell);
  if (!whole) {
    const side = [0, 1, 2].map((i) => {
      const values = [...numbers.keys()].map((k) => positions[3 * k + i]);
      shift[i] = 6 - Math.min(...values);
      return Math.max(...values) - Math.min(...values) + 12;
    });
    cell = side.map((s, i) => [0, 1, 2].map((k) => (k === i ? s : 0)));
  }
  return { cell, numbers, moved: positions.map((v, k) => v + shift[k % 3]) };
}

// Without symmetry (P1).
function asCif(frame, title) {
  const { cell, numbers, moved } = boxed(frame);
  const inverse = inverted(cell);
  const length = cell.map((v) => Math.hypot(...v));
  const angle = (a, b) => (Math.acos(cell[a].reduce((sum, v, i) => sum + v * cell[b][i], 0) / length[a] / length[b]) * 180) / Math.PI;
  const lines = [
    "data_structure", `# ${title.replaceAll(/\s+/g, " ")}`,
    ...["a", "b", "c"].map((name, i) => `_cell_length_${name} ${length[i].toFixed(6)}`),
    `_cell_angle_alpha ${angle(1, 2).toFixed(5)}`, `_cell_angle_beta ${angle(0, 2).toFixed(5)}`, `_cell_angle_gamma ${angle(0, 1).toFixed(5)}`,
    "_symmetry_space_group_name_H-M 'P 1'", "_symmetry_Int_Tables_number 1",
    "loop_", "_symmetry_equiv_pos_as_xyz", "'x, y, z'",
    "loop_", "_atom_site_label", "_atom_site_type_symbol", "_atom_site_fract_x", "_atom_site_fract_y", "_atom_site_fract_z", "_atom_site_occupancy",
  ];
  numbers.forEach((z, k) => {
    const { symbol } = store.elements[z];
    lines.push(`${symbol}${k + 1} ${symbol} ${fractions(inverse, moved, k).map((v) => v.toFixed(6)).join(" ")} 1.0`);
  });
  return `${lines.join("\n")}\n`;
}

function downloads(structureOf) {
  const make = (kind) => () => {
    const structure = structureOf(), frame = store.frames[structure], title = titleOf(structure);
    if (!frame) return;
    if (kind === "xyz") save(`${title}.xyz`, asXyz(frame), "chemical/x-xyz");
    else if (kind === "vasp") save(`${title}.vasp`, asPoscar(frame, title));
    else save(`${title}.cif`, asCif(frame, title), "chemical/x-cif");
  };
  return el("div", { class: "downloads" },
    el("button", { type: "button", text: "xyz", title: "Download as extended xyz", "aria-label": "Download as extended xyz", onclick: make("xyz") }),
    el("button", { type: "button", text: "CIF", title: "Download as CIF", "aria-label": "Download as CIF", onclick: make("cif") }),
    el("button", { type: "button", text: "POSCAR", title: "Download as POSCAR", "aria-label": "Download as POSCAR", onclick: make("vasp") }));
}

// In the order of elements; fixed atoms are marked by selective dynamics.
function asPoscar(frame, title) {
  const { cell, numbers, moved } = boxed(frame);
  const order = [...numbers.keys()].sort((i, j) => numbers[i] - numbers[j] || i - j);
  const kinds = [...new Set(order.map((k) => numbers[k]))];
  const lines = [title.replaceAll(/\s+/g, " "), "1.0", ...cell.map((v) => v.map((x) => x.toFixed(8)).join(" ")),
    kinds.map((z) => store.elements[z].symbol).join(" "),
    kinds.map((z) => order.filter((k) => numbers[k] === z).length).join(" ")];
  if (frame.kinds) lines.push("Selective dynamics");
  lines.push("Cartesian");
  for (const k of order) {
    const place = [0, 1, 2].map((i) => moved[3 * k + i].toFixed(6)).join(" ");
    lines.push(frame.kinds ? `${place} ${frame.kinds[k] === "1" ? "F F F" : "T T T"}` : place);
  }
  return `${lines.join("\n")}\n`;
}
