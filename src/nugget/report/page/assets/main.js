// Put the page together.

const badge = el("span", { class: "badge" });

function showBadge([word, kind]) {
  badge.textContent = word;
  badge.dataset.kind = kind;
}

const themeButton = el("button", {
  type: "button", class: "theme", "aria-label": "Light or dark", title: "Light or dark", text: "◐",
  onclick: () => chooseTheme(isDark() ? "light" : "dark"),
});

const main = el("main", {});
const places = [];

// Another section in the same place; where the reader is stays where it is.
function replaceSection(place, part) {
  const before = places[place];
  spec.sections[place] = part;
  for (const dispose of before?.disposers ?? []) dispose();
  disposers = [];
  const node = makeSection(part);
  if (before) before.node.replaceWith(node);
  else main.append(node);
  places[place] = { node, disposers };
  disposers = [];
}

// A later page may have fewer sections.
function removeSections(count) {
  for (const { node, disposers: own } of places.splice(count)) {
    for (const dispose of own) dispose();
    node.remove();
  }
  spec.sections.length = Math.min(spec.sections.length, count);
}

// What is shown before anything was clicked: the first of a gallery, or the first of all.
function firstStructure() {
  return spec.sections.find((part) => part.kind === "gallery")?.items[0]?.structure ?? 0;
}

function build() {
  if (spec.badge) showBadge(spec.badge);
  if (!spec.bare) document.body.append(
    el("header", { class: "top" },
      el("div", {}, el("h1", {}, formulaText(spec.title), " ", spec.badge ? badge : null),
        el("p", { class: "quiet", id: "subtitle", text: spec.subtitle ?? "" })),
      el("span", { class: "quiet", id: "clock" }), themeButton),
  );
  document.body.classList.toggle("bare", Boolean(spec.bare));
  readTheme();
  const nav = spec.bare ? null : navigation();
  if (nav) document.body.append(nav);
  const layout = el("div", { class: "layout" }, main);
  document.body.append(layout, speaker);
  spec.sections.forEach((part, place) => replaceSection(place, part));
  if (!spec.bare && spec.inspector !== false && (store.frames.length || spec.live)) {
    const inspector = new Inspector();
    layout.classList.add("with-inspector");
    layout.append(inspector.node);
    select(firstStructure());
  }
  if (spec.footer) document.body.append(el("footer", { class: "quiet", text: spec.footer }));
  if (spec.live) setTimeout(poll, PAUSE / 2);
  document.documentElement.dataset.ready = "yes";
}

// Paper is light, whatever the screen shows, and as wide as .printing; nothing on it can be opened.
let themeBefore = null, opened = [];
window.addEventListener("beforeprint", () => {
  themeBefore = chosenTheme;
  chooseTheme("light");
  document.body.classList.add("printing");
  opened = [...document.querySelectorAll(".verdict-more details:not([open])")];
  for (const one of opened) one.open = true;
  for (const one of [...plots, ...viewers]) {
    one.base = null;
    one.draw();
  }
});
window.addEventListener("afterprint", () => {
  document.body.classList.remove("printing");
  for (const one of opened) one.open = false;
  chooseTheme(themeBefore);
});

build();

// For tests, and for whoever opens the console.
window.nugget = { store, plots, viewers, select, live, asXyz, asCif, asPoscar, asSvg, asCsv, measured, goTo };
