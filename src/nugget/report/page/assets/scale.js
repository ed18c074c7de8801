// Axes: limits, ticks, and from values to pixels.

function quantile(sorted, share) {
  if (!sorted.length) return NaN;
  const at = share * (sorted.length - 1), k = Math.floor(at);
  const next = sorted[Math.min(k + 1, sorted.length - 1)];
  return sorted[k] + (at - k) * (next - sorted[k]);
}

function finite(values) {
  return values.filter((v) => typeof v === "number" && Number.isFinite(v));
}

// Lowest and highest; with `robust`, a few values far away do not count.
function extent(values, robust) {
  const sorted = finite(values).sort((a, b) => a - b);
  if (!sorted.length) return null;
  let low = sorted[0], high = sorted[sorted.length - 1];
  if (robust && sorted.length > 4) {
    const q = [0.1, 0.5, 0.9].map((share) => quantile(sorted, share));
    const reach = 1.6 * Math.max(q[2] - q[0], 1e-12);
    high = Math.min(high, q[2] + reach);
    low = Math.max(low, q[0] - reach);
  }
  return [low, high];
}

function padded([low, high], log) {
  if (log) return [low / 1.25, high * 1.25];
  const pad = high > low ? 0.05 * (high - low) : Math.max(0.5, 0.05 * Math.abs(low));
  return [low - pad, high + pad];
}

// Round numbers within the limits, about `count` of them.
function ticks([low, high], count, log) {
  if (log) {
    const found = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++) {
      for (const m of high / low > 300 ? [1] : [1, 2, 5]) found.push(m * 10 ** k);
    }
    return found.filter((v) => v >= low && v <= high);
  }
  const raw = (high - low) / Math.max(count, 1);
  if (!(raw > 0) || !Number.isFinite(raw)) return [];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}

function tickText(value, all, log = false) {
  if (!value) return "0";
  if (log) return formatNumber(value);
  const gap = all.length > 1 ? Math.abs(all[1] - all[0]) : Math.abs(value);
  const size = Math.max(Math.abs(all[0]), Math.abs(all[all.length - 1]));
  if (size >= 1e6 || size < 1e-4) return typeset(value.toExponential(1));
  const digits = clamp(Math.ceil(-Math.log10(Math.min(gap, Math.abs(value))) - 1e-9), 0, 6);
  return typeset(value.toFixed(digits));
}

class Scale {
  constructor(limits, pixels, log) {
    this.limits = limits;
    this.pixels = pixels;
    this.log = log;
    const [a, b] = limits.map((v) => this.forward(v));
    this.slope = (pixels[1] - pixels[0]) / (b - a || 1);
    this.origin = a;
  }
  forward(value) {
    return this.log ? Math.log10(value) : value;
  }
  pixel(value) {
    return this.pixels[0] + (this.forward(value) - this.origin) * this.slope;
  }
  value(pixel) {
    const v = this.origin + (pixel - this.pixels[0]) / this.slope;
    return this.log ? 10 ** v : v;
  }
  // Where a value is drawn that may lie outside: at the edge, and whether it is there.
  held(value) {
    const [a, b] = this.pixels, at = this.pixel(value);
    const low = Math.min(a, b), high = Math.max(a, b);
    return [clamp(at, low, high), at < low - 0.5 || at > high + 0.5];
  }
}
