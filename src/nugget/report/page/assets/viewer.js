// Structures in 3D on a plain canvas: shaded balls, bonds, cell edges, far things paler.

const viewers = [];
const sprites = new Map();
const SPRITE = 96;
const BALL = 0.68; // size of atoms
const MANY = 400; // bonds, beyond which they are drawn without shading

// A shaded ball, drawn once for each colour.
function ballSprite(rgb) {
  const name = `${rgb}|${theme.dark}`;
  if (sprites.has(name)) return sprites.get(name);
  if (sprites.size > 3000) sprites.clear();
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SPRITE;
  const context = canvas.getContext("2d"), c = SPRITE / 2, r = c - 2;
  const shade = context.createRadialGradient(c - 0.32 * r, c - 0.38 * r, 0.04 * r, c, c, r);
  shade.addColorStop(0, css(mixed(rgb, [255, 255, 255], 0.78)));
  shade.addColorStop(0.22, css(mixed(rgb, [255, 255, 255], 0.3)));
  shade.addColorStop(0.6, css(rgb));
  shade.addColorStop(0.94, css(mixed(rgb, [12, 14, 24], 0.46)));
  shade.addColorStop(1, css(mixed(rgb, [12, 14, 24], 0.6)));
  context.beginPath();
  context.arc(c, c, r, 0, 2 * Math.PI);
  context.fillStyle = shade;
  context.fill();
  sprites.set(name, canvas);
  return canvas;
}

function placeKey(atom) {
  return [atom.x, atom.y, atom.w].map((v) => Math.round(20 * v)).join();
}

class Viewer {
  constructor(options = {}) {
    this.mode = "element";
    this.range = null; // of the values that atoms are coloured by
    this.zoom = 1;
    this.repeat = 1;
    this.flat = false; // without perspective
    this.images = null; // show atoms of neighbouring cells that are bonded to those of the cell?
    this.picked = []; // atoms that are measured, at most four
    this.canvas = el("canvas", { class: "viewer", tabindex: 0, role: "img" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.node = el("div", { class: `viewer-frame ${options.class ?? ""}` }, this.canvas, this.tip);
    this.redraw = oncePerFrame(() => this.draw());
    this.canvas.onresized = this.redraw;
    watchSize.observe(this.canvas);
    listen(themed, this.redraw);
    addViewerInput(this);
    viewers.push(this);
    disposers.push(() => viewers.splice(viewers.indexOf(this), 1));
  }

  show(structure, keepView = false) {
    const frame = store.frames[structure];
    if (!frame) return;
    const like = keepView && this.frame && this.frame.pbc.join() === frame.pbc.join();
    this.structure = structure;
    this.frame = frame;
    if (like) this.build();
    else this.reset();
    const count = {};
    for (const z of frame.numbers) count[store.elements[z].symbol] = (count[store.elements[z].symbol] ?? 0) + 1;
    const formula = Object.entries(count).map(([symbol, n]) => symbol + (n > 1 ? n : "")).join("");
    this.canvas.setAttribute("aria-label",
      `${titleOf(structure)}, ${formula}, in 3D. Arrow keys turn it, x, y and z look along axes, plus and minus zoom, 0 resets.`);
  }

  orient(rotation) {
    this.rotation = rotation;
    this.redraw();
  }

  // Look along a vector of the cell, or along x, y or z.
  along(axis) {
    const vectors = this.frame.cell && this.frame.pbc.some(Boolean) && inverted(this.frame.cell) ? this.frame.cell : [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    const unit = (v) => v.map((x) => x / Math.hypot(...v));
    const z = unit(vectors[axis]), up = vectors[axis === 2 ? 1 : 2];
    const y = unit(up.map((v, i) => v - dotted(up, z) * z[i]));
    for (const one of this.group ?? [this]) one.orient([crossed(y, z), y, z]);
  }

  // Add an atom to the measured ones, or remove it; none clears them.
  pick(spot) {
    const at = spot ? this.picked.indexOf(spot.atom) : -1;
    if (!spot || (at < 0 && this.picked.length === 4)) this.picked = [];
    else if (at >= 0) this.picked.splice(at, 1);
    if (spot && at < 0) this.picked.push(spot.atom);
    const text = measured(this.picked.map((a) => [a.x, a.y, a.w]));
    if (text) say(text);
    this.redraw();
  }

  // Numbers per atom by name.
  valuesOf(mode) {
    if (mode === "coordination") return this.coordination;
    if (mode === "kind") return this.frame?.kinds ? [...this.frame.kinds].map(Number) : null;
    return this.frame?.values(mode) ?? null;
  }

  reset() {
    this.rotation = firstView(this.frame);
    this.zoom = 1;
    const periodic = this.frame.pbc.every(Boolean);
    this.repeat = periodic && this.frame.numbers.length <= 2 ? 2 : 1;
    this.build();
    this.zoom = this.fitting();
  }

  // Flat things may come nearer: how much larger than their ball they can be drawn.
  fitting() {
    let most = 0;
    for (const atom of this.atoms) {
      const d = [atom.x - this.center[0], atom.y - this.center[1], atom.w - this.center[2]];
      for (const row of this.rotation.slice(0, 2)) {
        most = Math.max(most, Math.abs(row[0] * d[0] + row[1] * d[1] + row[2] * d[2]));
      }
    }
    return clamp(this.size / (most + 1.6), 1, 1.25);
  }

  build() {
    this.atoms = drawnAtoms(this.frame, this.repeat);
    const shell = neighbouring(this.frame);
    this.coordination = shell.coordination;
    this.images ??= !this.frame.pbc.every(Boolean); // crystals have the atoms on their faces
    if (this.images && this.repeat === 1) {
      const there = new Set(this.atoms.map(placeKey));
      this.atoms.push(...shell.images.filter((atom) => !there.has(placeKey(atom))));
    }
    this.picked = [];
    this.bonds = bondsOf(this.atoms).filter(([i, j]) => !this.atoms[i].image || !this.atoms[j].image);
    this.edges = cellEdges(this.frame);
    const all = this.atoms.map((a) => [a.x, a.y, a.w]);
    for (const edge of this.edges) all.push(...edge);
    this.center = enclosing(all);
    this.size = 1.3 + Math.max(...all.map((p) => Math.hypot(...p.map((v, i) => v - this.center[i]))));
    this.redraw();
  }

  colorOf(atom) {
    if (this.mode === "kind" && this.frame.kinds) return KINDS[Number(this.frame.kinds[atom.k])][1];
    const values = this.mode === "element" ? null : this.valuesOf(this.mode);
    if (!values || !this.range) return rgbOf(store.elements[atom.z]?.color ?? "#999999");
    const [low, high] = this.range;
    const share = Math.round(40 * clamp((values[atom.k] - low) / (high - low || 1), 0, 1)) / 40;
    return viridis(share);
  }

  // Screen x, y and depth (towards the reader) with a little perspective.
  project(p) {
    const d = [p[0] - this.center[0], p[1] - this.center[1], p[2] - this.center[2]];
    const [x, y, z] = this.rotation.map((row) => row[0] * d[0] + row[1] * d[1] + row[2] * d[2]);
    const near = this.flat ? 1 : 1 / (1 - (0.16 * z) / this.size);
    return [this.middle[0] + x * this.unit * near, this.middle[1] - y * this.unit * near, z, near];
  }

  draw() {
    const sheet = this.frame && sharpCanvas(this.canvas);
    if (!sheet) return;
    const { context, width, height } = sheet;
    this.middle = [width / 2, height / 2];
    this.unit = (this.zoom * 0.94 * Math.min(width, height)) / 2 / this.size;
    const ground = rgbOf(theme.panel);
    const paled = (rgb, z) => mixed(rgb, ground, clamp(0.24 - (0.34 * z) / this.size, 0, 0.55));
    const things = [];
    this.spots = this.atoms.map((atom) => {
      const [x, y, z, near] = this.project([atom.x, atom.y, atom.w]);
      const r = BALL * (store.elements[atom.z]?.radius ?? 1) ** 0.75 * this.unit * near;
      return { atom, x, y, z, r };
    });
    for (const spot of this.spots) {
      things.push({ z: spot.z, draw: () => {
        const rgb = paled(this.colorOf(spot.atom), spot.z).map((v) => Math.round(v / 4) * 4);
        context.globalAlpha = spot.atom.image ? 0.4 : 1;
        context.drawImage(ballSprite(rgb), spot.x - spot.r, spot.y - spot.r, 2 * spot.r, 2 * spot.r);
        context.globalAlpha = 1;
        this.markKind(context, spot);
      } });
    }
    for (const [i, j] of this.bonds) this.addBond(context, things, i, j, paled);
    for (const [a, b] of this.edges) this.addEdge(context, things, a, b);
    things.sort((a, b) => a.z - b.z);
    for (const thing of things) thing.draw();
    this.drawPicked(context);
  }

  // Fixed atoms carry a cross, adsorbed ones a ring.
  markKind(context, { atom, x, y, r }) {
    const kind = this.frame.kinds[atom.k];
    if (!kind || kind === "0" || r < 4) return;
    context.lineWidth = Math.max(1, 0.09 * r);
    context.globalAlpha = atom.image ? 0.3 : 0.75;
    context.strokeStyle = kind === "1" ? "#1d2129" : "#ffffff";
    const d = 0.34 * r;
    if (kind === "1") path(context, [[x - d, y - d], [x + d, y + d], null, [x - d, y + d], [x + d, y - d]]);
    else trace(context, "circle", x, y, 0.62 * r);
    context.stroke();
    context.globalAlpha = 1;
  }

  drawPicked(context) {
    if (!this.picked.length) return;
    const points = this.picked.map((a) => this.project([a.x, a.y, a.w]));
    context.strokeStyle = context.fillStyle = theme.accent;
    context.lineWidth = 2;
    context.setLineDash([5, 3]);
    path(context, points);
    context.stroke();
    context.setLineDash([]);
    for (const atom of this.picked) {
      const spot = this.spots.find((one) => one.atom === atom);
      trace(context, "circle", spot.x, spot.y, spot.r + 2);
      context.stroke();
    }
    const names = this.picked.map((a) => `${store.elements[a.z].symbol}${a.k + 1}`).join(" – ");
    const text = measured(this.picked.map((a) => [a.x, a.y, a.w]));
    context.font = `13px ${theme.font}`;
    context.textAlign = "left";
    context.textBaseline = "top";
    context.fillText(text ? `${names}: ${text}` : names, 8, 8);
  }

  // Two halves, each with its atom's colour, from the surface of the ball to the middle. Of many
  // bonds only the main line is drawn, so that large structures turn smoothly.
  addBond(context, things, i, j, paled) {
    const strokes = this.bonds.length > MANY ? [[0.3, 0.9]] : [[0.5, 1], [0.22, 0.68], [-0.2, 0.26]];
    for (const [from, to] of [[this.atoms[i], this.atoms[j]], [this.atoms[j], this.atoms[i]]]) {
      const d = [to.x - from.x, to.y - from.y, to.w - from.w], length = Math.hypot(...d);
      const r = BALL * (store.elements[from.z]?.radius ?? 1) ** 0.75;
      const at = (share) => this.project([from.x + d[0] * share, from.y + d[1] * share, from.w + d[2] * share]);
      const a = at(Math.min((0.93 * r) / length, 0.5)), b = at(0.5);
      const z = 0.5 * (a[2] + b[2]);
      things.push({ z, draw: () => {
        const rgb = paled(this.colorOf(from), z), w = Math.max(0.17 * this.unit * a[3], 1);
        context.lineCap = "butt";
        for (const [share, width] of strokes) {
          context.strokeStyle = css(share > 0 ? mixed(rgb, [12, 14, 24], share) : mixed(rgb, [255, 255, 255], -share));
          context.lineWidth = 2 * w * width;
          path(context, [a, b]);
          context.stroke();
        }
      } });
    }
  }

  addEdge(context, things, a, b) {
    const pieces = 8;
    for (let k = 0; k < pieces; k++) {
      const at = (n) => this.project(a.map((v, i) => v + ((b[i] - v) * n) / pieces));
      const p = at(k), q = at(k + 1);
      things.push({ z: (p[2] + q[2]) / 2, draw: () => {
        context.strokeStyle = theme.axis;
        context.lineWidth = 1;
        path(context, [p, q]);
        context.stroke();
      } });
    }
  }
}
