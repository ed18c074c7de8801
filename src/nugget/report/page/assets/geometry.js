// Rotations, bonds, and the atoms that are drawn of a periodic structure.

const BOND = 1.2; // times the sum of covalent radii

function times(a, b) {
  return a.map((row) => [0, 1, 2].map((k) => row[0] * b[0][k] + row[1] * b[1][k] + row[2] * b[2][k]));
}

function turn(axis, angle) {
  const c = Math.cos(angle), s = Math.sin(angle);
  if (axis === "x") return [[1, 0, 0], [0, c, -s], [0, s, c]];
  if (axis === "y") return [[c, 0, s], [0, 1, 0], [-s, 0, c]];
  return [[c, -s, 0], [s, c, 0], [0, 0, 1]];
}

// Clusters turn their broad side to the reader, slabs are seen from the side and a little above.
function firstView(frame) {
  if (frame.pbc.some(Boolean)) return times(turn("x", frame.pbc.every(Boolean) ? -1.32 : -1.1), turn("z", -0.32));
  return times(times(turn("x", 0.42), turn("y", 0.3)), principalAxes(frame));
}

// Rows: the directions of largest, middle and least extent, a right-handed frame.
function principalAxes({ numbers, positions }) {
  const n = numbers.length, at = (k, i) => positions[3 * k + i];
  const sum = (f) => [...Array(n).keys()].reduce((total, k) => total + f(k), 0);
  const mean = [0, 1, 2].map((i) => sum((k) => at(k, i)) / n);
  let moments = [0, 1, 2].map((i) => [0, 1, 2].map((j) => sum((k) => (at(k, i) - mean[i]) * (at(k, j) - mean[j]))));
  let rows = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
  for (let sweep = 0; sweep < 8; sweep++) { // Jacobi's rotations make the moments diagonal
    for (const [axis, i, j] of [["z", 0, 1], ["y", 2, 0], ["x", 1, 2]]) {
      const apart = moments[i][i] - moments[j][j] || 1e-12;
      const angle = 0.5 * Math.atan((2 * moments[i][j]) / apart); // the smaller of two, or they go round
      const back = turn(axis, -angle), there = turn(axis, angle);
      moments = times(times(back, moments), there);
      rows = times(back, rows);
    }
  }
  const order = [0, 1, 2].sort((i, j) => moments[j][j] - moments[i][i]);
  const [a, b] = [rows[order[0]], rows[order[1]]];
  return [a, b, crossed(a, b)];
}

function crossed(a, b) {
  return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
}

// Atoms to draw: those of the cell, `repeat` times along periodic directions. A crystal gets those on
// its far faces, too.
function drawnAtoms(frame, repeat, faces = true) {
  const { numbers, positions, cell, pbc } = frame;
  const atoms = [];
  const whole = pbc.every(Boolean), inverse = cell && pbc.some(Boolean) ? inverted(cell) : null;
  const counts = pbc.map((p) => (p && inverse ? repeat : 1));
  for (let k = 0; k < numbers.length; k++) {
    const f = inverse ? fractions(inverse, positions, k) : [0, 0, 0];
    const base = f.map((v, a) => (inverse && pbc[a] ? -Math.floor(v + 0.02) : 0));
    const ends = counts.map((n, a) => (faces && whole && inverse && f[a] + base[a] < 0.02 ? n + 1 : n));
    for (let a = 0; a < ends[0]; a++) for (let b = 0; b < ends[1]; b++) for (let c = 0; c < ends[2]; c++) {
      const move = shifted(cell, [a + base[0], b + base[1], c + base[2]]);
      const [x, y, w] = [0, 1, 2].map((i) => positions[3 * k + i] + move[i]);
      atoms.push({ k, z: numbers[k], x, y, w });
    }
  }
  return atoms;
}

function shifted(cell, n) {
  if (!cell) return [0, 0, 0];
  return [0, 1, 2].map((i) => n[0] * cell[0][i] + n[1] * cell[1][i] + n[2] * cell[2][i]);
}

function inverted(m) {
  const columns = [crossed(m[1], m[2]), crossed(m[2], m[0]), crossed(m[0], m[1])];
  const volume = m[0].reduce((sum, v, i) => sum + v * columns[0][i], 0);
  return Math.abs(volume) < 1e-9 ? null : columns.map((c) => c.map((v) => v / volume));
}

// Fractional coordinates of an atom; rows of `inverse` are the reciprocal vectors.
function fractions(inverse, positions, k) {
  return inverse.map((row) => row[0] * positions[3 * k] + row[1] * positions[3 * k + 1] + row[2] * positions[3 * k + 2]);
}

// Pairs of drawn atoms that are bonded, found in boxes as wide as the longest bond.
function bondsOf(atoms) {
  const radius = (atom) => store.elements[atom.z]?.radius ?? 1;
  const longest = BOND * 2 * Math.max(0.3, ...new Set(atoms.map(radius)));
  const boxes = new Map();
  const key = (a, b, c) => `${a},${b},${c}`;
  const place = (atom) => [atom.x, atom.y, atom.w].map((v) => Math.floor(v / longest));
  atoms.forEach((atom, i) => {
    const name = key(...place(atom));
    boxes.set(name, [...(boxes.get(name) ?? []), i]);
  });
  const bonds = [];
  atoms.forEach((atom, i) => {
    const [a, b, c] = place(atom);
    for (let da = -1; da <= 1; da++) for (let db = -1; db <= 1; db++) for (let dc = -1; dc <= 1; dc++) {
      for (const j of boxes.get(key(a + da, b + db, c + dc)) ?? []) {
        if (j <= i) continue;
        const other = atoms[j];
        const d = Math.hypot(atom.x - other.x, atom.y - other.y, atom.w - other.w);
        if (d > 0.4 && d < BOND * (radius(atom) + radius(other))) bonds.push([i, j]);
      }
    }
  });
  return bonds;
}

// Atoms of neighbouring cells that are bonded to atoms of the cell, and the number of bonds of each atom.
function neighbouring(frame) {
  const base = drawnAtoms(frame, 1, false), { cell, pbc, numbers } = frame;
  const coordination = new Float32Array(numbers.length);
  const inverse = cell && pbc.some(Boolean) ? inverted(cell) : null;
  const all = [...base];
  if (inverse && numbers.length <= 600) {
    const reach = pbc.map((p) => (p ? [-1, 0, 1] : [0]));
    for (const a of reach[0]) for (const b of reach[1]) for (const c of reach[2]) {
      if (!a && !b && !c) continue;
      const move = shifted(cell, [a, b, c]);
      for (const atom of base) all.push({ ...atom, x: atom.x + move[0], y: atom.y + move[1], w: atom.w + move[2], image: true });
    }
  }
  const near = new Set();
  for (const [i, j] of bondsOf(all)) {
    for (const [one, other] of [[i, j], [j, i]]) {
      if (all[one].image) continue;
      coordination[all[one].k] += 1;
      if (all[other].image) near.add(other);
    }
  }
  return { coordination, images: [...near].map((k) => all[k]) };
}

// Edges of the cell; where it is not periodic they reach from the lowest to the highest atom.
function cellEdges(frame) {
  const { cell, pbc, positions, numbers } = frame;
  const inverse = cell && pbc.some(Boolean) ? inverted(cell) : null;
  if (!inverse || !numbers.length) return [];
  const low = [0, 0, 0], high = [1, 1, 1];
  pbc.forEach((periodic, axis) => {
    if (periodic) return;
    const heights = [...numbers.keys()].map((k) => fractions(inverse, positions, k)[axis]);
    low[axis] = Math.min(...heights);
    high[axis] = Math.max(...heights);
  });
  const corner = (n) => shifted(cell, low.map((v, axis) => ((n >> axis) & 1 ? high[axis] : v)));
  const edges = [];
  for (let n = 0; n < 8; n++) for (const bit of [1, 2, 4]) if (!(n & bit)) edges.push([corner(n), corner(n | bit)]);
  return edges;
}

// The centre of the smallest ball around points, nearly: steps towards the farthest one.
function enclosing(points) {
  const center = [0, 1, 2].map((i) => points.reduce((sum, p) => sum + p[i], 0) / points.length);
  for (let n = 2; n < 60; n++) {
    let far = center, most = -1;
    for (const p of points) {
      const d = (p[0] - center[0]) ** 2 + (p[1] - center[1]) ** 2 + (p[2] - center[2]) ** 2;
      if (d > most) [far, most] = [p, d];
    }
    for (let i = 0; i < 3; i++) center[i] += (far[i] - center[i]) / n;
  }
  return center;
}
