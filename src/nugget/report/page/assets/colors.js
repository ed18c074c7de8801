// Colours: Okabe and Ito's for words, viridis for numbers, the page's own for lines and text.

const WORDS_LIGHT = ["#0072b2", "#d55e00", "#009e73", "#b0578d", "#b07d00", "#5b5b5b", "#7a4fbf", "#00939b", "#8c2d04", "#6a8a00"];
const WORDS_DARK = ["#56a8e0", "#f0803c", "#2fc59a", "#e08fbd", "#e6b035", "#b5b5b5", "#b99af0", "#5fd7dc", "#d98a6a", "#b6d14a"];
const SHAPES = ["circle", "square", "diamond", "up", "down"];
const VIRIDIS = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141],
  [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37],
];

const darkQuery = window.matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
let theme = {};
const themed = new Set(); // called when colours have changed

function isDark() {
  return chosenTheme ? chosenTheme === "dark" : darkQuery.matches;
}

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  theme = {
    dark: isDark(),
    text: read("text"), muted: read("muted"), grid: read("grid"), axis: read("axis"),
    accent: read("accent"), panel: read("panel"), zone: read("zone"), best: read("best"),
    words: isDark() ? WORDS_DARK : WORDS_LIGHT,
    font: read("font"),
  };
}

function chooseTheme(name) {
  chosenTheme = name;
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  readTheme();
  for (const action of themed) action();
}

darkQuery.addEventListener("change", () => chooseTheme(chosenTheme));

// From 0 (lowest) to 1; the ends that vanish on the page's ground are cut off.
function viridis(share) {
  const low = theme.dark ? 0.12 : 0, high = theme.dark ? 1 : 0.92;
  const at = (low + clamp(share, 0, 1) * (high - low)) * (VIRIDIS.length - 1);
  const k = Math.min(Math.floor(at), VIRIDIS.length - 2), rest = at - k;
  return VIRIDIS[k].map((a, i) => Math.round(a + rest * (VIRIDIS[k + 1][i] - a)));
}

function css([r, g, b], alpha = 1) {
  return alpha === 1 ? `rgb(${r},${g},${b})` : `rgba(${r},${g},${b},${alpha})`;
}

function rgbOf(hex) {
  return [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
}

function mixed(a, b, share) {
  return a.map((value, k) => Math.round(value + share * (b[k] - value)));
}

function gradientBar(host) {
  const stops = [];
  for (let k = 0; k <= 8; k++) stops.push(css(viridis(k / 8)));
  host.style.background = `linear-gradient(to right, ${stops.join(",")})`;
}
