// News from `nugget watch`: rows and structures that are new, sections that have changed.

const live = { session: spec.session ?? "", revision: spec.revision ?? 0, polls: 0, wait: 2000 };

function takeNews(news) {
  Object.assign(live, { session: news.session, revision: news.revision });
  if (news.whole) {
    for (const table of Object.values(store.data)) Object.assign(table, { columns: {}, structures: [], length: 0 });
  }
  takeStructures(news.structures);
  takeData(news.data);
  if (news.badge) showBadge(news.badge);
  if (news.subtitle !== undefined) document.getElementById("subtitle").textContent = news.subtitle;
  for (const [place, part] of Object.entries(news.sections ?? {})) replaceSection(Number(place), part);
  for (const action of refreshers) action();
}

async function poll() {
  live.polls++;
  try {
    const query = new URLSearchParams({ session: live.session, revision: live.revision });
    const answer = await fetch(`${spec.live}?${query}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    const news = await answer.json();
    live.wait = 2000;
    if (news.whole || news.revision !== live.revision) takeNews(news);
    if (news.clock) document.getElementById("clock").textContent = news.clock;
  } catch {
    live.wait = Math.min(live.wait * 1.5, 20000);
    document.getElementById("clock").textContent = "no answer from nugget watch; trying again";
  }
  setTimeout(poll, document.hidden ? 5 * live.wait : live.wait);
}
