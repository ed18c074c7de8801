// Elements, numbers as text, and things that happen once per frame. Text is never parsed as HTML.

function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    const aria = key.startsWith("aria-");
    if (value === undefined || value === null || (value === false && !aria)) continue;
    if (key === "text") node.textContent = String(value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true && !aria ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null) node.append(child);
  }
  return node;
}

const MINUS = "\u2212";

function formatNumber(value, digits) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  let text;
  if (digits !== null && digits !== undefined) text = value.toFixed(digits);
  else if (value === 0 || Number.isInteger(value)) text = String(value);
  else if (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3) text = value.toExponential(2);
  else text = String(Number(value.toPrecision(4)));
  return typeset(Number(text) === 0 ? text.replace("-", "") : text);
}

// Minus signs and powers of ten as they are printed.
function typeset(text) {
  const raised = (_, power) => `×10${[...power].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻").join("")}`;
  return text.replace(/e\+?(-?\d+)$/, raised).replaceAll("-", MINUS);
}

function formatCell(value, digits) {
  return typeof value === "number" ? formatNumber(value, digits) : String(value ?? "–");
}

// Formulas with their numbers as indices: Au20 as Au₂₀.
function formulaText(text) {
  return String(text).replaceAll(/(?<![\w\-./=])(?:[A-Z][a-z]?\d*)+(?![\w\-/=]|\.\w)/g, (word) =>
    word.replaceAll(/(?<=[A-Za-z])\d+/g, (n) => [...n].map((c) => "₀₁₂₃₄₅₆₇₈₉"[c]).join("")));
}

// Space groups as they are printed: a bar over the number that follows a minus sign, as in Fm3̅m.
function spaceGroup(text) {
  return text.replaceAll(/-([1346])/g, "$1\u0305").replaceAll(/_(\d)/g, (_, n) => "₀₁₂₃₄₅₆₇₈₉"[n]);
}

// Facts; the letters and numbers of point groups are indices.
function factLine([label, value]) {
  const dd = label === "point group" && value.length > 1
    ? el("dd", {}, value[0], el("sub", { text: value.slice(1) }))
    : el("dd", { class: value.length < 16 ? "short" : null, text: label === "space group" ? spaceGroup(value) : formulaText(value) });
  return el("div", {}, el("dt", { text: label }), dd);
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

// Many causes within one frame lead to one drawing.
function oncePerFrame(action) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      action();
    });
  };
}

// A canvas with as many pixels as the screen has; null while it has no size.
function sharpCanvas(canvas) {
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (!width || !height) return null;
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

function localPoint(event, canvas) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

const watchSize = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.onresized?.();
});

// Say something to those who cannot see the page.
const speaker = el("div", { class: "unseen", "aria-live": "polite" });
function say(text) {
  speaker.textContent = text;
}

// What a section has registered is taken back when another takes its place.
let disposers = [];
function listen(set, action) {
  set.add(action);
  disposers.push(() => set.delete(action));
}
