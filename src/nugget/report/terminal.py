"""What live views share: a picture on a terminal, or plain lines for files and pipes."""

from __future__ import annotations

import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self, cast

from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nugget.report.screen import Screen

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Plain:
    """Prints its title and notes as lines."""

    def __init__(self, title: str) -> None:
        self.title = title

    def note(self, text: str) -> None:
        print(text, flush=True)

    def __enter__(self) -> Self:
        self.note(self.title)
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Drawn:
    """A picture that is drawn four times a second; subclasses write `__rich_console__`."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self.title = title
        self.console = console or Console()
        self._note = ""
        self._begun = time.monotonic()
        self._done = False
        self._quiet = _without_echoed_controls()
        self._live = Screen(cast(RenderableType, self), self.console)

    def note(self, text: str) -> None:
        # Only an assignment: this is called by signal handlers, at any moment.
        self._note = text

    def __enter__(self) -> Self:
        self._quiet.__enter__()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done, self._note = True, ""
        self._live.stop()
        self._quiet.__exit__(None, None, None)


def can_draw(console: Console) -> bool:
    """Can the terminal show a picture?"""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    return console.is_terminal and not console.is_dumb_terminal and encoding == "utf8"


def headline(text: Text, done: int, total: int, clock: str) -> Table:
    """A line with a progress bar between text and clock."""
    line = Table.grid(expand=True, padding=(0, 1))
    line.add_column(no_wrap=True)
    line.add_column(ratio=1)
    line.add_column(no_wrap=True, justify="right")
    bar = ProgressBar(total=max(total, 1), completed=min(done, total))
    line.add_row(text, bar, Text(clock))
    return line


def spinner(now: float) -> str:
    return _SPINNER[int(now * 4) % len(_SPINNER)]


@contextmanager
def _without_echoed_controls() -> Iterator[None]:
    """Keep the terminal from writing ^C into the picture, which would break its last line."""
    try:
        former = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError):  # no terminal to type on
        yield
        return
    silent = list(former)
    silent[3] &= ~termios.ECHOCTL  # the local modes
    termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, former)
