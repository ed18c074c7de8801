// Updates from `nugget watch`: the data of the page again whenever they have changed.

const PAUSE = 2000; // ms between two requests
const live = { session: "", revision: 0, polls: 0, bytes: 0, wait: PAUSE, ...spec.live };

function takeNews(news) {
  const label = store.frames[store.selected]?.label;
  // Another search in this directory, or a page whose structures are numbered anew.
  const replaced = news.live.session !== live.session || !news.live.grows;
  Object.assign(live, news.live);
  takeStructures(news.structures, replaced);
  takeData(news.data);
  showBadge(news.badge);
  document.getElementById("subtitle").textContent = news.subtitle;
  if (replaced) {
    const same = store.frames.findIndex((frame) => frame.label === label);
    store.selected = same < 0 ? null : same;
  }
  for (const action of refreshers) action();
  news.sections.forEach((part, place) => {
    const changed = JSON.stringify(part) !== JSON.stringify(spec.sections[place]);
    if (changed || (replaced && showsStructures(part))) replaceSection(place, part);
  });
  removeSections(news.sections.length);
  if (store.selected === null || store.frames[store.selected]?.label !== label) select(firstStructure());
  else if (replaced) select(store.selected);
}

function showsStructures(part) {
  return ["gallery", "film", "table"].includes(part.kind) || (part.sections ?? []).some(showsStructures);
}

async function poll() {
  live.polls++;
  const clock = document.getElementById("clock");
  try {
    const query = new URLSearchParams({ session: live.session, revision: live.revision });
    const answer = await fetch(`${live.address}?${query}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    const text = await answer.text(), news = JSON.parse(text);
    live.wait = PAUSE;
    live.bytes += text.length;
    if (news.sections) takeNews(news);
    clock.textContent = news.clock;
  } catch {
    live.wait = Math.min(live.wait * 1.5, 10 * PAUSE);
    clock.textContent = "nugget watch does not answer";
  }
  setTimeout(poll, document.hidden ? 5 * live.wait : live.wait);
}
