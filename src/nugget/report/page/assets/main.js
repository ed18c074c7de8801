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
let places = [];

// Another section in the same place; where the reader is stays where it is.
function replaceSection(place, part) {
  const made = makeSection(part);
  if (places[place]) places[place].replaceWith(made);
  else main.append(made);
  places[place] = made;
}

function build() {
  if (spec.badge) showBadge(spec.badge);
  document.body.append(
    el("header", { class: "top" },
      el("div", {}, el("h1", {}, spec.title, " ", spec.badge ? badge : null),
        el("p", { class: "quiet", id: "subtitle", text: spec.subtitle ?? "" })),
      el("span", { class: "quiet", id: "clock" }), themeButton),
  );
  readTheme();
  const layout = el("div", { class: "layout" }, main);
  document.body.append(layout, speaker);
  spec.sections.forEach((part, place) => replaceSection(place, part));
  if (store.frames.length || spec.live) {
    const inspector = new Inspector();
    layout.classList.add("with-inspector");
    layout.append(inspector.node);
    const first = spec.first ?? spec.sections.find((part) => part.kind === "gallery")?.items[0]?.structure ?? 0;
    if (store.frames.length) select(first);
    else dataListeners.add(() => store.selected === null && select(0));
  }
  if (spec.footer) document.body.append(el("footer", { class: "quiet", text: spec.footer }));
  if (spec.live) setTimeout(poll, 1000);
  document.documentElement.dataset.ready = "yes";
}

build();

// For tests, and for whoever opens the console.
window.nugget = { store, plots, viewers, select, live, asXyz, asCif };
