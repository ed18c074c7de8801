// The verdict at the top of a page, and headings that the navigation leads to.

const MARKS = { good: "✓", warning: "!", bad: "✕" };

// The section with this title; folded ones are opened.
function goTo(title) {
  const node = [...document.querySelectorAll("section.part")].find((one) => one.dataset.title === title);
  if (!node) return;
  node.querySelector("details")?.setAttribute("open", "");
  node.setAttribute("tabindex", "-1");
  node.focus({ preventScroll: true });
  node.scrollIntoView({ block: "start" });
}

// A badge without a section to lead to is no button.
function badgeItem({ label, value, level, limits, evidence }) {
  const inside = [
    el("span", { class: "verdict-mark", "aria-hidden": "true", text: MARKS[level] }),
    el("span", { class: "verdict-label", text: label }), " ", el("b", { text: value }),
    el("span", { class: "unseen", text: ` (${level}; ${limits})` }),
  ];
  return el("li", { class: "verdict-badge", "data-level": level }, evidence
    ? el("button", { type: "button", title: limits, onclick: () => goTo(evidence) }, inside)
    : el("span", { title: limits }, inside));
}

// A sentence with formulas and point groups as they are printed: Au₁₃, (I with the index h).
function sentence(text) {
  const typed = formulaText(text).replace(/\(([PABCFIR][^(),]*), no\. /, (_, group) => `(${spaceGroup(group)}, no. `);
  const parts = typed.split(/\((C|D|S|T|O|I)(\d*[a-z]+|\d+[a-z]*|∞[vh])\)/);
  return parts.flatMap((part, k) => (k % 3 === 0 ? [part] : k % 3 === 1 ? [`(${part}`] : [el("sub", { text: part }), ")"]));
}

function useLine({ purpose, command }) {
  const code = el("code", { text: command });
  return el("div", { class: "use-line" }, el("span", { class: "quiet", text: purpose }), code, copyButton(command, code, `Copy: ${purpose}`));
}

makers.verdict = (part) => {
  const [first, ...rest] = part.sentences;
  const limits = el("details", {}, el("summary", { text: "Limits of the badges" }),
    el("ul", { class: "limits" }, part.badges.map((one) => el("li", {}, el("b", { text: one.label }), ` ${one.limits}`))));
  const use = el("details", { class: "use" }, el("summary", { text: "Use it" }), part.uses.map(useLine));
  const methods = el("details", {}, el("summary", { text: "Methods" }), el("p", { text: formulaText(part.methods) }),
    el("ol", { class: "references" }, part.references.map((text) => el("li", { text }))));
  return el("div", { class: "verdict", "data-level": part.level },
    el("p", { class: "verdict-text" }, el("strong", {}, sentence(first)), " ", sentence(rest.join(" "))),
    el("ul", { class: "verdict-badges", "aria-label": "Badges" }, part.badges.map(badgeItem)),
    el("div", { class: "verdict-more" }, part.uses.length ? use : null, part.methods ? methods : null, part.badges.length ? limits : null));
};

makers.heading = (part) => el("h2", { class: "group", id: `group-${part.name}`, text: part.name });

// Links to the groups of sections; empty for pages without them.
function navigation() {
  const names = spec.sections.filter((part) => part.kind === "heading").map((part) => part.name);
  if (!names.length) return null;
  return el("nav", { class: "groups", "aria-label": "Parts of the page" },
    ["Verdict", ...names].map((name) => el("button", { type: "button", text: name, onclick: () => {
      if (name === "Verdict") return window.scrollTo({ top: 0 });
      document.getElementById(`group-${name}`)?.scrollIntoView({ block: "start" });
    } })));
}
