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

function makeLegend(plot) {
  plot.legend.replaceChildren();
  const { coloring } = plot;
  if (coloring.isNumber) {
    const bar = el("span", { class: "ramp" });
    gradientBar(bar);
    const { label, unit, digits } = coloring.column;
    const [low, high] = coloring.range.map((v) => formatNumber(v, Math.min(digits ?? 2, 2)));
    plot.legend.append(el("span", { class: "quiet", text: `${label || coloring.name}${unit ? `, ${unit}` : ""}` }),
      el("span", { class: "quiet", text: low }), bar, el("span", { class: "quiet", text: high }));
  } else if (coloring.column) {
    for (const word of coloring.words) plot.legend.append(wordButton(plot, word));
  }
  for (const layer of plot.part.layers) {
    if (!layer.name) continue;
    const swatch = el("span", { class: layer.kind === "zone" ? "swatch zone" : layer.kind === "level" ? "swatch dashed" : "swatch" });
    if (layer.kind === "curve") swatch.style.background = plot.curveColor(layer);
    plot.legend.append(el("span", { class: "entry" }, swatch, layer.name));
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
  }, mark, String(word || "–"));
}
