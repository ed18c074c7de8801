// Updates from `nugget watch`: the data of the page again whenever they have changed.

const PAUSE = 2000; // ms between two requests
const live = { session: "", revision: 0, polls: 0, bytes: 0, wait: PAUSE, ...spec.live };

function takeNews(news) {
  const label = store.frames[store.selected]?.label;
  const replaced = news.live.session !== live.session; // another search in this directory
  Object.assign(live, news.live);
  takeStructures(news.structures, replaced);
  takeData(news.data);
  showBadge(news.badge);
  document.getElementById("subtitle").textContent = news.subtitle;
  if (replaced) store.selected = null;
  for (const action of refreshers) action();
  news.sections.forEach((part, place) => {
    if (JSON.stringify(part) !== JSON.stringify(spec.sections[place])) replaceSection(place, part);
  });
  if (store.selected === null || store.frames[store.selected]?.label !== label) select(firstStructure());
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
