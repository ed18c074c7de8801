// A plot on a canvas: axes and layers. legend.js makes what stands around it, plot_input.js adds mouse,
// touch and keyboard.

const plots = [];

class Plot {
  constructor(part) {
    this.part = part;
    this.xAxis = part.x ?? {};
    this.yAxis = part.y ?? {};
    this.view = null; // limits that the reader has chosen
    this.hidden = new Set(); // words whose points are not shown
    this.colorBy = part.colors?.[0] ?? null;
    this.hover = null;
    this.canvas = el("canvas", {
      class: part.square ? "plot square" : "plot", tabindex: 0, role: "img",
      "aria-label": `${part.title || "Plot"}. Arrow keys go from point to point, plus and minus zoom, 0 shows all.`,
    });
    this.tip = el("div", { class: "tip", hidden: true });
    this.legend = el("div", { class: "legend" });
    this.node = el("div", { class: "plot-box" }, el("div", { class: "plot-head" }, colorChooser(this), plotTools(this)), el("div", { class: "plot-frame" }, this.canvas, this.tip), this.legend);
    this.remark = oncePerFrame(() => this.draw()); // what is chosen, on a picture that stays
    this.redraw = () => {
      this.base = null;
      this.remark();
    };
    this.canvas.onresized = this.redraw;
    watchSize.observe(this.canvas);
    listen(themed, () => { makeLegend(this); this.redraw(); });
    listen(selectListeners, () => this.remark());
    addPlotInput(this);
    this.refresh();
    plots.push(this);
    disposers.push(() => plots.splice(plots.indexOf(this), 1));
  }

  // Take in what is new, keeping what the reader has chosen.
  refresh() {
    this.table = tableOf(this.part.data);
    this.coloring = new Coloring(this.table, this.colorBy);
    const layer = this.part.layers.find((one) => one.kind === "points");
    const main = layer ?? this.part.layers.find((one) => one.kind === "line");
    this.offset = this.lowestOf(this.yAxis.relative, main?.y);
    this.xOffset = this.lowestOf(this.xAxis.relative, main?.x);
    [this.points, this.mark] = [[], layer?.mark];
    if (layer) {
      const x = this.column(layer.x), y = this.column(layer.y), bar = layer.error ? this.column(layer.error) : [];
      for (let row = 0; row < x.length; row++) {
        if (typeof x[row] !== "number" || typeof y[row] !== "number") continue;
        this.points.push({ row, x: x[row] - this.xOffset, y: this.raised(y[row] - this.offset), error: bar[row] ?? null });
      }
    }
    this.auto = this.limits();
    makeLegend(this);
    this.redraw();
  }

  // Differences that a logarithmic axis cannot show stand at its foot.
  raised(value) {
    const { scale, floor } = this.yAxis;
    return scale === "log" && floor ? Math.max(value, floor) : value;
  }

  // Another column on an axis.
  chooseAxis(side, name) {
    const column = this.table.columns[name];
    this.part.layers.find((one) => one.kind === "points")[side] = name;
    this[`${side}Axis`] = { label: axisName(column, name, this, side), robust: true };
    this.view = null;
    this.refresh();
  }

  // What is subtracted: the lowest value of a column, if an axis asks for it.
  lowestOf(relative, own) {
    if (!relative) return 0;
    let low = Infinity;
    for (const v of this.column(relative === true ? own : relative)) if (typeof v === "number" && v < low) low = v;
    return Number.isFinite(low) ? low : 0;
  }

  column(name) {
    return this.table.columns[name]?.values ?? [];
  }

  limits() {
    let xs = this.points.map((p) => p.x), ys = this.points.map((p) => p.y);
    for (const layer of this.part.layers) {
      if (layer.kind === "line") {
        if (this.points.length) continue; // they run through the points
        xs = xs.concat(finite(this.column(layer.x)).map((v) => v - this.xOffset));
        ys = ys.concat(finite(this.column(layer.y)).map((v) => this.raised(v - this.offset)));
      } else if (layer.kind === "curve") {
        xs = xs.concat(layer.x);
        ys = ys.concat(layer.y, layer.low ?? [], layer.high ?? []);
      } else if (layer.kind === "level") ys.push(layer.y);
    }
    let x = this.axisLimits(xs, this.xAxis), y = this.axisLimits(ys, this.yAxis);
    for (const { low, high } of this.part.layers.filter((layer) => layer.kind === "zone")) y = [Math.min(y[0], low), Math.max(y[1], high)];
    if (this.part.square) x = y = [Math.min(x[0], y[0]), Math.max(x[1], y[1])];
    return { x, y };
  }

  axisLimits(values, axis) {
    const log = axis.scale === "log";
    const found = extent(log ? values.filter((v) => v > 0) : values, axis.robust) ?? (log ? [0.1, 1] : [0, 1]);
    const [low, high] = axis.limits ?? [];
    const limits = padded(found, log);
    return [low ?? limits[0], high ?? limits[1]];
  }

  shown() {
    if (this.coloring.isNumber || !this.hidden.size) return this.points;
    return this.points.filter((p) => !this.hidden.has(this.coloring.values[p.row]));
  }

  draw() {
    const sheet = sharpCanvas(this.canvas);
    if (!sheet) return;
    const { context, width, height } = sheet;
    const { base, canvas } = this;
    if (base && base.width === canvas.width && base.height === canvas.height) {
      context.drawImage(base, 0, 0, width, height);
    } else {
      this.drawBase(context, width, height);
      this.base = el("canvas", { width: canvas.width, height: canvas.height });
      this.base.getContext("2d").drawImage(canvas, 0, 0);
    }
    context.save();
    this.clip(context);
    this.drawMarked(context);
    if (this.drag) {
      context.fillStyle = theme.zone;
      context.strokeStyle = theme.accent;
      const [[a, b], [c, d]] = this.drag;
      context.fillRect(a, b, c - a, d - b);
      context.strokeRect(a, b, c - a, d - b);
    }
    context.restore();
  }

  drawBase(context, width, height) {
    const view = this.view ?? this.auto;
    context.font = `12px ${theme.font}`;
    const whole = (axis, list) => (axis.integer ? list.filter(Number.isInteger) : list);
    const yTicks = whole(this.yAxis, ticks(view.y, height / 46, this.yAxis.scale === "log"));
    const xTicks = whole(this.xAxis, ticks(view.x, width / (this.xAxis.integer ? 36 : 90), this.xAxis.scale === "log"));
    const margin = Math.max(24, ...yTicks.map((v) => context.measureText(tickText(v, yTicks, this.yAxis.scale === "log")).width)) + 26;
    this.box = { left: margin, right: width - 10, top: 10, bottom: height - 40 };
    const { left, right, top, bottom } = this.box;
    this.sx = new Scale(view.x, [left, right], this.xAxis.scale === "log");
    this.sy = new Scale(view.y, [bottom, top], this.yAxis.scale === "log");
    this.drawAxes(context, xTicks, yTicks, height);
    context.save();
    this.clip(context);
    for (const layer of this.part.layers) this.drawBehind(context, layer);
    this.drawPoints(context);
    for (const layer of this.part.layers) this.drawLine(context, layer);
    context.restore();
  }

  clip(context) {
    const { left, right, top, bottom } = this.box;
    context.beginPath();
    context.rect(left - 6, top - 6, right - left + 12, bottom - top + 12);
    context.clip();
  }

  drawAxes(context, xTicks, yTicks, height) {
    const { left, right, top, bottom } = this.box;
    context.lineWidth = 1;
    context.strokeStyle = theme.grid;
    context.fillStyle = theme.muted;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const value of yTicks) {
      const y = Math.round(this.sy.pixel(value)) + 0.5;
      path(context, [[left, y], [right, y]]);
      context.stroke();
      context.fillText(tickText(value, yTicks, this.yAxis.scale === "log"), left - 7, y);
    }
    context.textAlign = "center";
    for (const value of xTicks) {
      const x = Math.round(this.sx.pixel(value)) + 0.5;
      context.fillText(tickText(value, xTicks, this.xAxis.scale === "log"), x, bottom + 13);
      path(context, [[x, bottom], [x, bottom + 4]]);
      context.stroke();
    }
    context.strokeStyle = theme.axis;
    path(context, [[left, bottom + 0.5], [right, bottom + 0.5]]);
    context.stroke();
    context.fillStyle = theme.text;
    context.fillText(this.xAxis.label ?? "", (left + right) / 2, height - 9);
    context.save();
    context.translate(9, (top + bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(this.yAxis.label ?? "", 0, 0);
    context.restore();
  }

  drawBehind(context, layer) {
    const { left, right } = this.box;
    if (layer.kind === "zone") {
      const a = this.sy.pixel(layer.low), b = this.sy.pixel(layer.high);
      context.fillStyle = theme.zone;
      context.fillRect(left, b, right - left, a - b);
    } else if (layer.kind === "curve" && layer.low) {
      const color = this.curveColor(layer);
      const there = layer.x.map((x, k) => k).filter((k) => layer.low[k] !== null && layer.high[k] !== null);
      const at = (k, side) => [this.sx.pixel(layer.x[k]), this.sy.pixel(this.raised(side[k]))];
      const side = (values) => {
        const points = there.map((k) => at(k, values));
        return layer.steps ? points.flatMap((p, k) => (k ? [[p[0], points[k - 1][1]], p] : [p])) : points;
      };
      path(context, side(layer.high).concat(side(layer.low).toReversed()));
      context.globalAlpha = 0.18;
      context.fillStyle = color;
      context.fill();
      context.globalAlpha = 1;
    } else if (layer.kind === "level" || layer.kind === "diagonal") {
      const ends = layer.kind === "level" ? [layer.y, layer.y] : this.sx.limits;
      context.strokeStyle = theme.axis;
      context.setLineDash([5, 4]);
      path(context, [[left, this.sy.pixel(ends[0])], [right, this.sy.pixel(ends[1])]]);
      context.stroke();
      context.setLineDash([]);
    }
  }

  curveColor(layer) {
    if (layer.plain) return theme.best;
    const curves = this.part.layers.filter((one) => one.kind === "curve");
    return theme.words[curves.indexOf(layer) % theme.words.length];
  }

  drawLine(context, layer) {
    let points = null;
    if (layer.kind === "line") {
      const x = this.column(layer.x), y = reduced(this.column(layer.y), layer.reduce);
      points = x.map((v, k) => (typeof v === "number" && typeof y[k] === "number"
        ? [this.sx.pixel(v - this.xOffset), this.sy.pixel(this.raised(y[k] - this.offset))] : null));
      if (layer.reduce) points = points.filter(Boolean);
      context.strokeStyle = theme.best;
    } else if (layer.kind === "curve") {
      points = layer.x.map((v, k) => (layer.y[k] === null ? null : [this.sx.pixel(v), this.sy.pixel(this.raised(layer.y[k]))]));
      context.strokeStyle = this.curveColor(layer);
    }
    if (!points) return;
    context.lineWidth = 2;
    context.lineJoin = "round";
    path(context, points, layer.steps);
    context.stroke();
  }

  drawPoints(context) {
    const shown = [...this.shown()], crowd = shown.length > 600;
    // Low values lie on top: they are what one looks for.
    const { isNumber, values } = this.coloring;
    if (isNumber) shown.sort((a, b) => values[b.row] - values[a.row]);
    const r = crowd ? 2.6 : shown.length > 200 ? 3.4 : 4.3;
    for (const p of shown) {
      const { color, shape } = this.coloring.style(p.row);
      const [x, offX] = this.sx.held(p.x), [y, offY] = this.sy.held(p.y);
      const off = offX || offY;
      if (off && this.view) continue;
      if (p.error !== null && !off) {
        context.globalAlpha = crowd ? 0.2 : 0.45;
        context.strokeStyle = color;
        context.lineWidth = 1.2;
        path(context, [[x, this.sy.held(this.raised(p.y - p.error))[0]], [x, this.sy.held(p.y + p.error)[0]]]);
        context.stroke();
      }
      if (this.mark === "step") {
        drawStep(context, x, y, Math.abs(this.sx.pixel(1) - this.sx.pixel(0)));
        continue;
      }
      trace(context, off ? (offY && y > this.box.top + 1 ? "down" : offY ? "up" : "diamond") : shape, x, y, r);
      context.globalAlpha = off ? 0.35 : crowd ? 0.62 : 0.85;
      context.fillStyle = color;
      context.fill();
      context.globalAlpha = 1;
    }
  }

  drawMarked(context) {
    for (const p of this.points) {
      const structure = this.table.structures[p.row];
      const chosen = structure !== null && structure !== undefined && structure === store.selected;
      if (!chosen && this.hover !== p) continue;
      const [x, y] = this.pixelOf(p);
      trace(context, "circle", x, y, 8);
      context.lineWidth = chosen ? 2.4 : 1.4;
      context.strokeStyle = chosen ? theme.accent : theme.text;
      context.stroke();
    }
  }

  pixelOf(p) {
    return [this.sx.held(p.x)[0], this.sy.held(p.y)[0]];
  }
}
