// News from `nugget watch`: rows and structures that are new, sections that have changed.

const PAUSE = 2000; // ms between two questions
const live = { session: "", revision: 0, polls: 0, bytes: 0, wait: PAUSE, ...spec.live };

function takeNews(news) {
  Object.assign(live, { session: news.session, revision: news.revision });
  if (news.whole) {
    store.data = {};
    store.selected = null;
  }
  takeStructures(news.structures);
  takeData(news.data);
  showBadge(news.badge);
  document.getElementById("subtitle").textContent = news.subtitle;
  for (const action of refreshers) action();
  for (const [place, part] of Object.entries(news.sections)) replaceSection(Number(place), part);
  if (store.selected === null) select(firstStructure());
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
    if (news.whole || news.revision !== live.revision) takeNews(news);
    clock.textContent = news.clock;
  } catch {
    live.wait = Math.min(live.wait * 1.5, 10 * PAUSE);
    clock.textContent = "nugget watch does not answer";
  }
  setTimeout(poll, document.hidden ? 5 * live.wait : live.wait);
}
