"""`nugget watch`: the page of a search on this machine's own address, with what is new.

Only this machine can reach it, only those who know the address (a secret is part of it), and only
two paths are answered, both with GET. The search's directory is read, never written. Nothing is
done while nobody looks.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nugget.errors import NuggetError
from nugget.report.digest import duration
from nugget.report.page.data import plain, written
from nugget.report.search_page import SearchPage
from nugget.search.store import DATABASE

_PAUSE = 1.0  # seconds between two looks at the files, however many ask
_NAMES = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_MOVING = ("map_x", "map_y")  # columns that may change as a whole


class Feed:
    """A search's page, and what has changed since a revision that a reader has."""

    def __init__(self, directory: Path, trust: bool = False) -> None:
        self.directory, self.trust = directory, trust
        self._lock = threading.Lock()
        self._looked = 0.0
        self._trouble = ""
        self._begin()

    def _begin(self) -> None:
        self.page = SearchPage(self.directory, self.trust, live=True)
        self.session = secrets.token_hex(4)
        self.revision = 0
        # What a reader has at each revision: rows, structures, turns of the map, section hashes.
        self._marks: dict[int, tuple[int, int, int, list[str]]] = {}

    def html(self) -> str:
        """The whole page, as it is now."""
        with self._lock:
            self._look()
            return self.page.html(
                {"address": "news", "session": self.session, "revision": self.revision}
            )

    def news(self, session: str, revision: int) -> dict[str, Any]:
        """What is new since a revision; all of it for readers of another session."""
        with self._lock:
            self._look()
            made = self.page
            rows, structures, turns, before = self._marks.get(revision, (0, 0, 0, []))
            whole = session != self.session or revision not in self._marks
            if whole:
                rows, structures, turns, before = 0, 0, 0, []
            head = {"session": self.session, "revision": self.revision, "whole": whole}
            head["clock"] = self._trouble or self._clock()
            if not whole and revision == self.revision:
                return head
            badge, subtitle = made.words()
            data = made.data()
            news = data.spec(rows)
            if turns != made.map.turns:
                for name in _MOVING:
                    news["columns"][name] = data.columns[name].spec() | {"from": 0}
            parts = zip(made.sections(), self._marks[self.revision][3], strict=True)
            changed = {k: p for k, (p, h) in enumerate(parts) if before[k : k + 1] != [h]}
            return {
                **head,
                "badge": badge,
                "subtitle": subtitle,
                "data": {data.name: news},
                "structures": made.structures.spec(structures),
                "sections": changed,
            }

    def _look(self) -> None:
        """Read what is new, at most once a second; trouble is told, and tried again."""
        now = time.monotonic()
        if self._marks and now - self._looked < _PAUSE:
            return
        self._looked = now
        try:
            if self.page.reader.replaced():
                self._begin()
            changed = self.page.read()
            self._trouble = ""
        except NuggetError as error:
            if not self._marks:
                raise
            self._trouble = str(error)
            return
        if changed or not self._marks:
            self.revision += 1
            hashes = [_hash(part) for part in self.page.sections()]
            made = self.page
            mark = (len(made.records), len(made.structures), made.map.turns, hashes)
            self._marks[self.revision] = mark

    def _clock(self) -> str:
        if self.page.state.doing != "running":
            return ""
        try:
            since = time.time() - (self.directory / DATABASE).stat().st_mtime
        except OSError:
            return "nothing evaluated yet"
        return f"last evaluation {duration(max(round(since), 0))} ago"


def _hash(part: Any) -> str:
    return hashlib.sha256(json.dumps(plain(part), sort_keys=True).encode()).hexdigest()


class Server(ThreadingHTTPServer):
    """Listens on 127.0.0.1 only; on any free port if the wanted one is taken."""

    daemon_threads = True

    def __init__(self, feed: Feed, port: int) -> None:
        self.feed = feed
        self.token = secrets.token_urlsafe(12)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError:
            super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "nugget"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        if not _NAMES.fullmatch(self.headers.get("Host", "")):
            self._refuse(403, "This page is for its own machine only.")
            return
        asked = urlsplit(self.path)
        place = f"/{self.server.token}/"
        if _same(asked.path, place) and not asked.query:
            self._answer("text/html", self.server.feed.html)
        elif _same(asked.path, f"{place}news"):
            query = parse_qs(asked.query)
            session = query.get("session", [""])[0]
            revision = query.get("revision", ["0"])[0]
            number = int(revision) if re.fullmatch(r"[0-9]{1,9}", revision) else -1
            self._answer("application/json", lambda: self._news(session, number))
        else:
            self._refuse(404, "There is nothing here; open the address that was printed.")

    def _news(self, session: str, revision: int) -> str:
        return json.dumps(plain(self.server.feed.news(session, revision)), allow_nan=False)

    def _answer(self, kind: str, make: Any) -> None:
        try:
            body = written(make()).encode("utf-8")
        except NuggetError as error:
            self._refuse(503, str(error))
            return
        self._send(200, kind, body)

    def _refuse(self, status: int, text: str) -> None:
        self._send(status, "text/plain", f"{text}\n".encode("utf-8", "replace"))

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(body)

    def _wrong_method(self) -> None:
        self._refuse(405, "This page can be read, and nothing else.")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = do_TRACE = _wrong_method

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the address holds a secret."""


def _same(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode("utf-8", "replace"), b.encode())
