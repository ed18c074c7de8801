// Around a plot: what colours mean, and by what points are coloured.

// Buttons, where the reader may choose.
function colorChooser(plot) {
  const names = plot.part.colors ?? [];
  if (names.length < 2) return null;
  const columns = tableOf(plot.part.data).columns;
  const buttons = names.map((name) =>
    el("button", {
      type: "button", text: columns[name]?.label || name, "aria-pressed": name === plot.colorBy,
      onclick: (event) => {
        plot.colorBy = name;
        plot.hidden.clear();
        for (const other of buttons) other.setAttribute("aria-pressed", other === event.currentTarget);
        plot.refresh();
      },
    }));
  return el("div", { class: "switch", role: "group", "aria-label": "Colour by" },
    el("span", { class: "quiet", text: "colour by" }), buttons);
}

// Logarithmic or linear, columns of the axes, and files.
function plotTools(plot) {
  const tools = el("div", { class: "tools plot-tools" });
  if (plot.yAxis.scale === "log" && plot.yAxis.floor) {
    const button = el("button", { type: "button", text: "log", "aria-pressed": true, title: "Logarithmic or linear", onclick: () => {
      plot.yAxis = { ...plot.yAxis, scale: plot.yAxis.scale === "log" ? "linear" : "log" };
      button.setAttribute("aria-pressed", plot.yAxis.scale === "log");
      plot.view = null;
      plot.refresh();
    } });
    tools.append(button);
  }
  const columns = tableOf(plot.part.data).columns;
  for (const side of plot.part.axes ? ["x", "y"] : []) {
    const now = plot.part.layers.find((one) => one.kind === "points")[side];
    const choice = el("select", { "aria-label": `${side} axis`, onchange: () => plot.chooseAxis(side, choice.value) },
      plot.part.axes.filter((name) => columns[name]).map((name) => el("option", { value: name, selected: name === now, text: axisName(columns[name], name, plot, side) })));
    tools.append(el("label", { class: "quiet" }, `${side} `, choice));
  }
  tools.append(exportButtons(plot));
  return tools;
}

function axisName(column, name, plot, side) {
  if (column.label) return column.label + (column.unit ? `, ${column.unit}` : "");
  return { map_x: "principal component 1", map_y: "principal component 2" }[name] ?? name;
}

function makeLegend(plot) {
  plot.legend.replaceChildren();
  const { coloring } = plot;
  if (coloring.isNumber) {
    const bar = el("span", { class: "ramp" });
    gradientBar(bar);
    const { label, unit, digits } = coloring.column;
    const whole = coloring.range.every(Number.isInteger);
    const fine = whole ? 0 : Math.abs(coloring.range[1] - coloring.range[0]) < 0.05 ? 4 : 2;
    const [low, high] = coloring.range.map((v) => formatNumber(v, Math.min(digits ?? fine, fine)));
    plot.legend.append(el("span", { class: "quiet", text: `${label || coloring.name}${unit ? `, ${unit}` : ""}` }),
      el("span", { class: "quiet", text: low }), bar, el("span", { class: "quiet", text: coloring.cut ? `≥ ${high}` : high }));
  } else if (coloring.column) {
    for (const word of coloring.words) plot.legend.append(wordButton(plot, word));
  }
  for (const layer of plot.part.layers) {
    if (!layer.name) continue;
    const swatch = el("span", { class: layer.kind === "zone" ? "swatch zone" : layer.kind === "level" ? "swatch dashed" : "swatch" });
    if (layer.kind === "curve") swatch.style.background = plot.curveColor(layer);
    plot.legend.append(el("span", { class: "entry" }, swatch, formulaText(layer.name)));
  }
}

// A word with its mark; a click shows or hides its points.
function wordButton(plot, word) {
  const { color, shape } = plot.coloring.wordStyle(word);
  const mark = el("canvas", { class: "mark", width: 28, height: 28, "aria-hidden": true });
  const context = mark.getContext("2d");
  trace(context, shape, 14, 14, 9);
  context.fillStyle = color;
  context.fill();
  return el("button", {
    type: "button", class: "entry", "aria-pressed": !plot.hidden.has(word), title: "Show or hide",
    onclick: (event) => {
      if (!plot.hidden.delete(word)) plot.hidden.add(word);
      event.currentTarget.setAttribute("aria-pressed", !plot.hidden.has(word));
      plot.redraw();
    },
  }, mark, formulaText(word || "–"));
}
