// The data of the page: structures, columns, and the selected structure.

const spec = JSON.parse(document.getElementById("page-data").textContent);
const store = { frames: [], elements: {}, data: {}, selected: null };
const selectListeners = new Set();

function unpack(text, kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new kind(bytes.buffer); // little-endian, as all that run browsers are
}

class Frame {
  constructor(packed) {
    this.packed = packed;
    this.label = packed.label ?? "";
    this.energy = packed.energy;
    this.pbc = (packed.pbc ?? [0, 0, 0]).map(Boolean);
    this.cell = packed.cell ? [0, 3, 6].map((k) => packed.cell.slice(k, k + 3)) : null;
    this.kinds = packed.kinds ?? ""; // per atom: 0 free, 1 fixed, 2 adsorbed
    this.names = Object.keys(packed.values ?? {});
    this.known = {};
  }
  get numbers() {
    return (this._numbers ??= unpack(this.packed.z, Uint8Array));
  }
  // Å, three per atom.
  get positions() {
    return (this._positions ??= Float64Array.from(unpack(this.packed.r, Int32Array), (v) => v / 1e4));
  }
  values(name) {
    if (!this.packed.values?.[name]) return null;
    return (this.known[name] ??= unpack(this.packed.values[name], Float32Array));
  }
}

// Structures are only appended, unless all are replaced.
function takeStructures(part, replace = false) {
  Object.assign(store.elements, part.elements);
  if (replace) store.frames.length = 0;
  for (const packed of part.frames.slice(store.frames.length)) store.frames.push(new Frame(packed));
}

function takeData(parts) {
  store.data = {};
  for (const [name, { columns, structures }] of Object.entries(parts)) {
    const rows = new Map();
    structures.forEach((structure, row) => {
      if (structure !== null && !rows.has(structure)) rows.set(structure, row);
    });
    const length = Math.max(0, ...Object.values(columns).map((c) => c.values.length));
    store.data[name] = { columns, structures, length, rows };
  }
}

takeStructures(spec.structures);
takeData(spec.data);

function select(structure, by) {
  if (structure === null || structure === undefined || !store.frames[structure]) return;
  store.selected = structure;
  for (const action of selectListeners) action(structure, by);
}

function tableOf(name) {
  return store.data[name] ?? { columns: {}, structures: [], length: 0, rows: new Map() };
}

// The table and row that tell about a structure.
function rowOf(structure) {
  for (const [name, table] of Object.entries(store.data)) {
    const told = Object.values(table.columns).some((column) => column.shown !== false);
    if (told && table.rows.has(structure)) return { name, table, row: table.rows.get(structure) };
  }
  return null;
}

function titleOf(structure) {
  return store.frames[structure]?.label || `structure ${structure + 1}`;
}
