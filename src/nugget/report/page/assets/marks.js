// Marks on a canvas: points of several shapes, lines, bands.

function trace(context, shape, x, y, r) {
  context.beginPath();
  if (shape === "square") {
    context.rect(x - 0.88 * r, y - 0.88 * r, 1.76 * r, 1.76 * r);
  } else if (shape === "diamond") {
    polygon(context, [[x, y - 1.25 * r], [x + 1.25 * r, y], [x, y + 1.25 * r], [x - 1.25 * r, y]]);
  } else if (shape === "up" || shape === "down") {
    const s = shape === "up" ? 1 : -1;
    polygon(context, [[x, y - 1.2 * r * s], [x + 1.1 * r, y + 0.8 * r * s], [x - 1.1 * r, y + 0.8 * r * s]]);
  } else {
    context.arc(x, y, r, 0, 2 * Math.PI);
  }
}

// A short horizontal line, as long as four fifths of a unit of the axis.
function drawStep(context, x, y, unit) {
  context.fillStyle = theme.best;
  context.fillRect(x - 0.4 * unit, y - 1, 0.8 * unit, 2);
}

function polygon(context, corners) {
  corners.forEach(([x, y], k) => (k ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.closePath();
}

// A path through points; missing ones break it.
function path(context, points, steps) {
  let before = null;
  context.beginPath();
  for (const point of points) {
    if (!point) before = null;
    else {
      if (!before) context.moveTo(point[0], point[1]);
      else {
        if (steps) context.lineTo(point[0], before[1]);
        context.lineTo(point[0], point[1]);
      }
      before = point;
    }
  }
}

function reduced(values, how) {
  if (how === "min") {
    let low = Infinity;
    return values.map((v) => {
      if (typeof v === "number") low = Math.min(low, v);
      return low === Infinity ? null : low;
    });
  }
  if (how === "rms") {
    const last = [];
    return values.map((v) => {
      if (typeof v === "number") last.push(v * v);
      if (last.length > 20) last.shift();
      return last.length > 2 ? Math.sqrt(last.reduce((a, b) => a + b, 0) / last.length) : null;
    });
  }
  return values;
}

// Au14 before Au18, and words without numbers by the alphabet.
function natural(a, b) {
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

// Colour and shape of every row by the words of a column, or colour by its numbers.
class Coloring {
  constructor(table, name) {
    this.name = name;
    const column = name ? table.columns[name] : null;
    this.column = column;
    this.values = column?.values ?? [];
    this.isNumber = Boolean(column) && this.values.some((v) => typeof v === "number");
    if (this.isNumber) this.range = this.lowEnd(extent(this.values, true) ?? [0, 1]);
    else this.words = [...new Set(this.values)].filter((word) => word !== null).sort(natural);
    this.order = new Map((this.words ?? []).map((word, k) => [word, k]));
  }
  // A few high values do not make all low ones alike: the upper half of a skewed range has one colour.
  lowEnd([low, high]) {
    const middle = quantile(finite(this.values).sort((a, b) => a - b), 0.5);
    const end = middle + (middle - low);
    this.cut = high > low && end > low && high - middle > 2 * (middle - low);
    return this.cut ? [low, end] : [low, high];
  }
  share(row) {
    const [low, high] = this.range, value = this.values[row];
    return typeof value === "number" ? (value - low) / (high - low || 1) : null;
  }
  style(row) {
    if (!this.column) return { color: theme.words[0], shape: "circle" };
    if (this.isNumber) {
      const share = this.share(row);
      return { color: share === null ? theme.muted : css(viridis(share)), shape: "circle" };
    }
    return this.wordStyle(this.values[row]);
  }
  wordStyle(word) {
    const k = this.order.get(word) ?? 0;
    return { color: theme.words[k % theme.words.length], shape: SHAPES[k % SHAPES.length] };
  }
}
