// Distances, angles and dihedrals of atoms that were picked.

function minus(a, b) {
  return [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
}

function dotted(a, b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

const DEGREES = 180 / Math.PI;

function angleOf(a, b) {
  return Math.acos(clamp(dotted(a, b) / (Math.hypot(...a) * Math.hypot(...b) || 1), -1, 1)) * DEGREES;
}

// Two points give a distance, three an angle at the second, four a dihedral; as text.
function measured(points) {
  if (points.length === 2) return `${Math.hypot(...minus(points[1], points[0])).toFixed(3)} Å`;
  if (points.length === 3) return `${angleOf(minus(points[0], points[1]), minus(points[2], points[1])).toFixed(1)}°`;
  if (points.length !== 4) return "";
  const [a, b, c] = [0, 1, 2].map((k) => minus(points[k + 1], points[k]));
  const p = crossed(a, b), q = crossed(b, c);
  const sign = Math.sign(dotted(crossed(p, q), b)) || 1;
  return `${formatNumber(sign * angleOf(p, q), 1)}°`;
}

// Of all turns that keep the principal axes, the one in which two structures resemble each other most.
function alignedTo(reference, frame) {
  const ground = firstView(reference);
  if (frame === reference || frame.pbc.some(Boolean) || frame.numbers.length > 200) return firstView(frame);
  const view = times(times(turn("x", 0.42), turn("y", 0.3)), [[1, 0, 0], [0, 1, 0], [0, 0, 1]]);
  const target = placed(reference, ground), axes = principalAxes(frame);
  let best = firstView(frame), least = Infinity;
  for (const [i, j] of [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]) for (const s of [1, -1]) for (const t of [1, -1]) {
    const x = axes[i].map((v) => s * v), y = axes[j].map((v) => t * v);
    const rotation = times(view, [x, y, crossed(x, y)]);
    const cost = mismatch(placed(frame, rotation), target);
    if (cost < least) [best, least] = [rotation, cost];
  }
  return best;
}

function placed({ numbers, positions }, rotation) {
  const n = numbers.length, center = [0, 1, 2].map((i) => {
    let sum = 0;
    for (let k = 0; k < n; k++) sum += positions[3 * k + i];
    return sum / n;
  });
  return [...numbers].map((z, k) => {
    const d = [0, 1, 2].map((i) => positions[3 * k + i] - center[i]);
    return { z, p: rotation.map((row) => dotted(row, d)) };
  });
}

// The sum of squared distances to the nearest atom of the same element.
function mismatch(atoms, others) {
  let sum = 0;
  for (const a of atoms) {
    let least = 25;
    for (const b of others) {
      if (a.z !== b.z) continue;
      least = Math.min(least, (a.p[0] - b.p[0]) ** 2 + (a.p[1] - b.p[1]) ** 2 + (a.p[2] - b.p[2]) ** 2);
    }
    sum += least;
  }
  return sum;
}
