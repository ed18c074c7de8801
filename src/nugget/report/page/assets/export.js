// Plots as PNG, SVG and CSV, structures as PNG.

// The calls of a canvas context that plots make, written as SVG.
class SvgContext {
  constructor(width, height) {
    this.size = [width, height];
    this.parts = [];
    this.state = { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "12px sans-serif", textAlign: "left", textBaseline: "alphabetic", dash: "", transform: "", clip: "" };
    this.stack = [];
    this.clips = 0;
    this.d = "";
    this.measurer = document.createElement("canvas").getContext("2d");
    for (const name of Object.keys(this.state)) {
      Object.defineProperty(this, name, { get: () => this.state[name], set: (v) => (this.state[name] = v) });
    }
  }
  save() { this.stack.push({ ...this.state }); }
  restore() { this.state = this.stack.pop(); }
  setLineDash(list) { this.state.dash = list.join(" "); }
  translate(x, y) { this.state.transform += ` translate(${x} ${y})`; }
  rotate(angle) { this.state.transform += ` rotate(${angle * DEGREES})`; }
  beginPath() { this.d = ""; }
  moveTo(x, y) { this.d += `M${short(x)} ${short(y)}`; }
  lineTo(x, y) { this.d += `L${short(x)} ${short(y)}`; }
  closePath() { this.d += "Z"; }
  rect(x, y, w, h) { this.d += `M${short(x)} ${short(y)}h${short(w)}v${short(h)}h${short(-w)}Z`; }
  arc(x, y, r) { this.d += `M${short(x + r)} ${short(y)}A${short(r)} ${short(r)} 0 1 1 ${short(x - r)} ${short(y)}A${short(r)} ${short(r)} 0 1 1 ${short(x + r)} ${short(y)}Z`; }
  measureText(text) { this.measurer.font = this.font; return this.measurer.measureText(text); }
  clip() {
    this.clips += 1;
    this.parts.push(`<clipPath id="clip${this.clips}"><path d="${this.d}"/></clipPath>`);
    this.state.clip = ` clip-path="url(#clip${this.clips})"`;
  }
  around(kind) {
    const { transform, clip, globalAlpha } = this.state;
    return `${transform ? ` transform="${transform.trim()}"` : ""}${clip}${globalAlpha < 1 ? ` ${kind}opacity="${globalAlpha}"` : ""}`;
  }
  fill() { this.parts.push(`<path d="${this.d}" fill="${this.fillStyle}"${this.around("")}/>`); }
  stroke() {
    const dash = this.state.dash ? ` stroke-dasharray="${this.state.dash}"` : "";
    this.parts.push(`<path d="${this.d}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${dash}${this.around("")}/>`);
  }
  fillRect(x, y, w, h) { this.parts.push(`<path d="M${short(x)} ${short(y)}h${short(w)}v${short(h)}h${short(-w)}Z" fill="${this.fillStyle}"${this.around("")}/>`); }
  fillText(text, x, y) {
    const anchor = { center: "middle", right: "end" }[this.textAlign] ?? "start";
    const base = this.textBaseline === "middle" ? ' dominant-baseline="central"' : "";
    const safe = String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" text-anchor="${anchor}"${base} font-family="sans-serif" font-size="12" fill="${this.fillStyle}"${this.around("")}>${safe}</text>`);
  }
  text() {
    const [w, h] = this.size;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}"><rect width="${w}" height="${h}" fill="${theme.panel}"/>${this.parts.join("")}</svg>\n`;
  }
}

function short(value) {
  return Number.isFinite(value) ? Number(value.toFixed(2)) : 0;
}

function asSvg(plot) {
  const context = new SvgContext(plot.canvas.clientWidth, plot.canvas.clientHeight);
  plot.drawBase(context, ...context.size);
  return context.text();
}

// All columns of the rows, or the curves one below the other.
function asCsv(plot) {
  const quoted = (value) => {
    const text = String(value ?? "");
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const columns = Object.entries(plot.table.columns);
  const lines = [];
  if (columns.length) {
    lines.push(columns.map(([name, c]) => quoted((c.label || name) + (c.unit ? ` (${c.unit})` : ""))).join(","));
    for (let row = 0; row < plot.table.length; row++) lines.push(columns.map(([, c]) => quoted(c.values[row])).join(","));
  }
  const curves = plot.part.layers.filter((layer) => layer.kind === "curve");
  if (curves.length && !columns.length) {
    lines.push(["curve", plot.xAxis.label ?? "x", plot.yAxis.label ?? "y"].map(quoted).join(","));
    for (const one of curves) one.x.forEach((x, k) => lines.push([one.name ?? "", x, one.y[k]].map(quoted).join(",")));
  }
  return `${lines.join("\n")}\n`;
}

// The canvas on the page's ground, as a file.
function savePng(canvas, name) {
  const copy = el("canvas", { width: canvas.width, height: canvas.height }), context = copy.getContext("2d");
  context.fillStyle = theme.panel;
  context.fillRect(0, 0, copy.width, copy.height);
  context.drawImage(canvas, 0, 0);
  copy.toBlob((blob) => saveBlob(`${name}.png`, blob));
}

function exportButtons(plot) {
  const name = plot.part.title || "plot";
  const button = (text, action) => el("button", { type: "button", text, title: `Save as ${text}`, "aria-label": `Save ${name} as ${text}`, onclick: action });
  return el("div", { class: "downloads" },
    button("PNG", () => savePng(plot.canvas, name)),
    button("SVG", () => save(`${name}.svg`, asSvg(plot), "image/svg+xml")),
    button("CSV", () => save(`${name}.csv`, asCsv(plot), "text/csv")));
}
