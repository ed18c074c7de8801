"""`nugget watch`: serves the page of a run in progress to this machine only.

The server listens on 127.0.0.1, its address contains a secret, and it answers GET requests for two
paths only: the page, and the data of the page as JSON. The page asks for the data every two seconds
and receives them when they have changed. The run directory is only read, and only on a request.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from nugget.display import duration
from nugget.errors import NuggetError
from nugget.report.directories import SPECS, kind_of
from nugget.report.page.document import as_html, plain, written
from nugget.report.search_page import SearchPage

_PAUSE = 1.0  # seconds between two readings of the files, for any number of requests
_HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)


class Source(Protocol):
    """A page that is read again and again while its run goes on."""

    #: Whether structures keep their numbers from one reading to the next.
    grows: bool

    def replaced(self) -> bool:
        """Whether the directory holds another run now."""

    def read(self) -> bool:
        """Read what is new; True if the page has changed."""

    def spec(self, live: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The page as plain data."""

    def last_change(self) -> float | None:
        """When the run last wrote something, in seconds since 1970; None if it has ended."""


class WholePage:
    """A page that is made anew whenever a file of the run has changed."""

    grows = False

    def __init__(self, directory: Path, make: Callable[[Path], dict[str, Any]]) -> None:
        self.directory, self._make = directory, make
        self._files: dict[str, tuple[int, int]] = {}
        self._spec: dict[str, Any] = {}

    def replaced(self) -> bool:
        return False  # every reading is complete

    def read(self) -> bool:
        files = _stamps(self.directory)
        if self._spec and files == self._files:
            return False
        for _ in range(2):  # the first reading of a campaign notes the outcomes of its searches
            self._spec, self._files = self._make(self.directory), files
            if (files := _stamps(self.directory)) == self._files:
                break
        return True

    def spec(self, live: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return {**self._spec, "live": live}

    def last_change(self) -> float | None:
        if self._spec["badge"][1] in ("good", "bad"):  # it has ended
            return None
        return max((1e-9 * time_ns for time_ns, _ in self._files.values()), default=None)


def _stamps(directory: Path) -> dict[str, tuple[int, int]]:
    """Time and size of every file of a run, except for scratch files and pages."""
    stamps = {}
    for folder, inner, files in os.walk(directory):
        inner[:] = [name for name in inner if name != "scratch"]
        for name in files:
            if not name.endswith(".html"):
                with contextlib.suppress(OSError):  # it has been removed meanwhile
                    found = os.stat(os.path.join(folder, name))
                    stamps[os.path.join(folder, name)] = (found.st_mtime_ns, found.st_size)
    return stamps


def make_source(directory: Path, trust: bool = False) -> Source:
    """The source of the page that belongs to a run directory."""
    kind = kind_of(directory)
    if kind == "search":
        return SearchPage(directory, trust, live=True)
    return WholePage(directory, SPECS[kind])


class Feed:
    """The current page of a run, with a revision that counts its changes."""

    def __init__(self, directory: Path, trust: bool = False) -> None:
        self.directory, self.trust = directory, trust
        self._lock = threading.Lock()
        self._last_read: float | None = None
        self._problem = ""
        self._start_session()

    def _start_session(self) -> None:
        self.page = make_source(self.directory, self.trust)
        self.session = secrets.token_hex(4)
        self.revision = 0

    def html(self) -> str:
        """The current page."""
        with self._lock:
            self._read()
            return as_html(self.page.spec(self._live()))

    def news(self, session: str, revision: int) -> dict[str, Any]:
        """The current page as plain data, or only the clock if the reader has this revision."""
        with self._lock:
            self._read()
            clock = {"live": self._live(), "clock": self._problem or self._clock()}
            if (session, revision) == (self.session, self.revision):
                return clock
            return {**self.page.spec(self._live()), **clock}

    def _live(self) -> dict[str, Any]:
        state = {"session": self.session, "revision": self.revision, "grows": self.page.grows}
        return {"address": "news", **state}

    def _read(self) -> None:
        """Read new evaluations at most once a second; a problem is reported and retried."""
        now, first = time.monotonic(), self._last_read is None
        if self._last_read is not None and now - self._last_read < _PAUSE:
            return
        try:
            if self.page.replaced():
                self._start_session()
            self.revision += self.page.read()
            self._problem = ""
        except NuggetError as error:
            if first:
                raise
            self._problem = str(error)
        self._last_read = now

    def _clock(self) -> str:
        if (last := self.page.last_change()) is None:
            return ""
        if last == 0.0:
            return "nothing evaluated yet"
        return f"last evaluation {duration(max(round(time.time() - last), 0))} ago"


class Server(ThreadingHTTPServer):
    """Listens on 127.0.0.1 only; on any free port if the requested one is taken."""

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
        if not _HOSTS.fullmatch(self.headers.get("Host", "")):
            self._refuse(403, "Only this machine may read the page.")
            return
        request = urlsplit(self.path)
        root = f"/{self.server.token}/"
        if _same(request.path, root) and not request.query:
            self._answer("text/html", self.server.feed.html)
        elif _same(request.path, f"{root}news"):
            query = parse_qs(request.query)
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
        self._refuse(405, "The page can only be read.")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = do_TRACE = _wrong_method

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log, because the address contains a secret."""


def _same(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode("utf-8", "replace"), b.encode())
