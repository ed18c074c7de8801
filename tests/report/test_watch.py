"""`nugget watch`: what is new, and what is refused."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from page_spec import spec_of
from report_runs import HOSTILE, a_record, make_run
from test_directories import campaign  # noqa: F401  a fixture
from test_onthefly_pages import dynamics  # noqa: F401

from nugget.report import watch
from nugget.report.watch import Feed, Server
from nugget.search.record import End
from nugget.search.store import DATABASE, Reader, Store


@contextmanager
def serving(directory: Path, port: int = 0) -> Iterator[Server]:
    server = Server(Feed(directory), port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(
    server: Server, path: str, method: str = "GET", host: str = "127.0.0.1", raw: bool = False
) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    if host:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, {k.lower(): v for k, v in answer.getheaders()}


def news(server: Server, session: str, revision: int) -> dict[str, Any]:
    query = f"session={session}&revision={revision}"
    status, text, _ = ask(server, f"/{server.token}/news?{query}")
    assert status == 200
    return dict(json.loads(text))


@pytest.fixture(autouse=True)
def without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_PAUSE", 0.0)


def test_only_this_page_of_this_machine(tmp_path):
    make_run(tmp_path / "run")
    with serving(tmp_path / "run") as server:
        place = f"/{server.token}/"
        assert server.server_address[0] == "127.0.0.1"
        status, text, headers = ask(server, place)
        assert status == 200
        assert text.startswith("<!doctype html>")
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        for host in ("localhost", f"localhost:{server.port}", "127.0.0.1:9", "[::1]:80"):
            assert ask(server, place, host=host)[0] == 200
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil:80", "", "0.0.0.0"):
            assert ask(server, place, host=host)[0] == 403
        wrong = ["/", "/news", "/favicon.ico", "//", f"{place}..", f"{place}../search.db",
                 f"{place}%2e%2e/search.db", f"{place}search.db", "/../../../etc/passwd",
                 f"/{server.token}", f"{place}?x=1", "/wrong/", f"{place}news/"]  # fmt: skip
        for path in wrong:
            status, text, _ = ask(server, path)
            assert status == 404, path
            assert "Au6" not in text
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"):
            assert ask(server, place, method)[0] == 405
        assert ask(server, place, "BREW")[0] == 501


def test_another_port_if_it_is_taken(tmp_path):
    make_run(tmp_path / "run", 2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serving(tmp_path / "run", port) as server:
            assert server.port != port
            assert ask(server, f"/{server.token}/")[0] == 200


def test_the_page_is_sent_again_when_it_has_changed(tmp_path):
    store = make_run(tmp_path / "run", 8, polish=False)
    with serving(tmp_path / "run") as server, store.locked():
        first = news(server, "", 0)
        assert first["badge"] == ["running", "busy"]
        assert len(first["data"]["evaluations"]["columns"]["value"]["values"]) == 8
        session, revision = first["live"]["session"], first["live"]["revision"]
        assert set(news(server, session, revision)) == {"live", "clock"}
        store.append(a_record(8, np.random.default_rng(8)))
        more = news(server, session, revision)
        assert more["live"] == {**first["live"], "revision": revision + 1}
        columns = more["data"]["evaluations"]["columns"]
        assert columns["number"]["values"] == list(range(1, 10))
        # Structures are appended, and the sections that hold plots stay the same.
        assert more["structures"]["frames"][:8] == first["structures"]["frames"][:8]
        assert more["sections"][4] == first["sections"][4]
        assert more["sections"][0] != first["sections"][0]
        assert "sections" in news(server, session, 77)
        assert "sections" in news(server, "other", revision)


def test_end_kill_and_continuation(tmp_path):
    store = make_run(tmp_path / "run", 7, polish=False)
    feed = Feed(tmp_path / "run")
    now = feed.news("", 0)
    assert now["badge"][0] == "stopped"

    def after() -> dict[str, Any]:
        nonlocal now
        now = {**now, **feed.news(now["live"]["session"], now["live"]["revision"])}
        return now

    with store.locked():
        assert after()["badge"][0] == "running"
        store.append(a_record(7, np.random.default_rng(4)))
        assert "8 of" in after()["subtitle"]
    store.keep_end(End("interrupted", HOSTILE, 8, 9))
    assert after()["badge"][0] == "interrupted"
    assert HOSTILE in now["subtitle"]
    # Energies of atoms come with the end.
    frames = [frame for frame in now["structures"]["frames"] if "values" in frame]
    assert any("std" in frame["values"] for frame in frames)
    store.keep_end(None)
    with store.locked():
        assert after()["badge"][0] == "running"
    store.keep_end(End("finished", "", 8, 8))
    assert after()["badge"][0] == "finished"


def test_damage_is_told_and_a_new_search_is_followed(tmp_path):
    make_run(tmp_path / "run", 5)
    feed = Feed(tmp_path / "run")
    first = feed.news("", 0)
    path = tmp_path / "run" / DATABASE
    whole = path.read_bytes()
    path.write_bytes(whole[:-3000] + b"\0" * 3000)
    had = first["live"]["session"], first["live"]["revision"]
    told = feed.news(*had)
    if told["clock"]:  # unless what is read lies elsewhere
        assert "damaged" in told["clock"]
    path.write_bytes(whole)
    assert feed.news(*had)["clock"] == ""
    make_run(tmp_path / "other", 3)
    os.replace(tmp_path / "other" / DATABASE, path)
    again = feed.news(*had)
    assert again["live"]["session"] != had[0]
    assert len(again["data"]["evaluations"]["columns"]["number"]["values"]) == 3


def test_the_page_in_a_browser_follows(tmp_path):
    """New evaluations appear without loading again; one that was chosen stays chosen."""
    store = make_run(tmp_path / "run", 0, polish=False)
    browser = Browser(tmp_path)
    try:
        with serving(tmp_path / "run") as server, store.locked():
            browser.open(server.address)
            browser.js("window.kept = 1")
            assert browser.js("nugget.plots[0].points.length") == 0
            for k in range(6):
                store.append(a_record(k, np.random.default_rng(k)))
            browser.wait("nugget.plots[0].points.length === 5")
            assert browser.js("nugget.store.selected") is not None  # something is shown
            browser.js("nugget.select(2, 1)")
            for k in range(6, 9):
                store.append(a_record(k, np.random.default_rng(k)))
            browser.wait("nugget.plots[0].points.length === 8")
            assert browser.js("nugget.store.selected") == 2
            assert browser.js("window.kept") == 1
            assert "9 of" in browser.js("document.getElementById('subtitle').textContent")
            store.keep_end(End("finished", HOSTILE, 9, 9))
            browser.wait("document.querySelector('.badge').textContent === 'finished'")
            assert browser.js("window.hacked") is None
            x = browser.js("[...document.querySelectorAll('.of-gallery .switch button')].length")
            assert x == 5
            address = server.address
        browser.wait("document.getElementById('clock').textContent.includes('not answer')")
        assert all(one.startswith((address, "about:")) for one in browser.requests)
        errors = [m for m in browser.messages if "ERR_CONNECTION_REFUSED" not in m]
        assert errors == []
    finally:
        browser.close()


@pytest.mark.slow
def test_a_real_search_that_is_killed_and_continued(tmp_path):
    """Four in flight, killed with -9 in the middle, continued to its end."""
    run = tmp_path / "run"
    nugget = [str(Path(sys.executable).with_name("nugget"))]
    command = [*nugget, "search", "Au8", "--engine", "emt", "--budget", "24", "--in-flight", "4",
               "--out", str(run), "--no-live"]  # fmt: skip
    search = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not (run / DATABASE).exists():
        time.sleep(0.1)
    feed = Feed(run)
    flying: set[int] = set()
    while len(Reader(run).news()[0]) < 9:
        feed.news("", 0)
        flying.add(feed.page.state.in_flight)
        time.sleep(0.05)
    assert feed.page.state.doing == "running"
    assert max(flying) == 4
    search.send_signal(signal.SIGKILL)
    search.wait()
    feed.news("", 0)
    assert feed.page.state.doing == "stopped"
    subprocess.run([*nugget, "search", "--resume", str(run), "--no-live"], check=True)
    now = feed.news("", 0)
    assert now["badge"][0] == "finished"
    assert len(now["data"]["evaluations"]["columns"]["number"]["values"]) == 24


def test_a_campaign_is_watched(campaign):  # noqa: F811
    """The page is made anew when a search of the campaign has written something."""
    with serving(campaign) as server:
        status, text, _ = ask(server, f"/{server.token}/")
        assert status == 200
        before = spec_of(text)
        assert before["live"]["grows"] is False
        assert before["title"] == "Campaign for Au6"
        session, revision = before["live"]["session"], before["live"]["revision"]
        assert "sections" not in news(server, session, revision)  # nothing has changed
        assert news(server, session, revision)["clock"].startswith("last evaluation")
        member = sorted(campaign.glob("runs/*/*"))[0]
        store = Store(member)
        store.append(a_record(len(store.records()), np.random.default_rng(5)))
        after = news(server, session, revision)
        assert after["live"]["revision"] > revision
        counts = [part["data"]["searches"]["columns"]["evaluations"] for part in (before, after)]
        assert sum(counts[1]["values"]) == sum(counts[0]["values"]) + 1


def test_dynamics_are_watched(dynamics):  # noqa: F811
    with serving(dynamics) as server:
        page = spec_of(ask(server, f"/{server.token}/")[1])
        assert page["badge"] == ["finished", "good"]
        assert news(server, page["live"]["session"], page["live"]["revision"])["clock"] == ""
