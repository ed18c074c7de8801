"""A running search on the terminal: one picture that is kept up to date, or plain lines."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nugget.report.braille import energy_plot

if TYPE_CHECKING:
    from nugget.search.loop import Status
    from nugget.search.store import Record

#: How many of the last evaluations errors and times are taken from.
LAST = 20
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@dataclass(frozen=True)
class Quality:
    """How good the last predictions were."""

    count: int
    error: float  # mean |E − predicted E|, eV/atom
    z: float  # root mean square of (E − predicted E)/σ with σ as it was rescaled; 1 is calibrated


def quality(records: Sequence[Record], last: int = LAST) -> Quality | None:
    """Of the last predictions that met their outcome; None before there are any."""
    met = [r for r in records if r.ok and r.predicted is not None and r.sigma][-last:]
    if not met:
        return None
    errors = [record.energy - float(record.predicted or 0.0) for record in met]
    bars = [record.scale * float(record.sigma or 0.0) for record in met]
    return Quality(
        len(met),
        sum(abs(e) / len(r.atoms) for e, r in zip(errors, met, strict=True)) / len(met),
        sqrt(sum((e / s) ** 2 for e, s in zip(errors, bars, strict=True)) / len(met)),
    )


@dataclass(frozen=True)
class Share:
    """What one generator has contributed."""

    name: str
    chosen: int  # structures that were evaluated
    best: int  # of those, lower than all before
    last: bool  # it made the lowest one of all


def shares(records: Sequence[Record]) -> list[Share]:
    """Of all generators that were evaluated, the most frequent first."""
    chosen: Counter[str] = Counter()
    best: Counter[str] = Counter()
    lowest: Record | None = None
    for record in records:
        chosen[record.generator] += 1
        if record.ok and (lowest is None or record.energy < lowest.energy):
            lowest = record
            best[record.generator] += 1
    holder = lowest.generator if lowest is not None else None
    return [Share(name, n, best[name], name == holder) for name, n in chosen.most_common()]


def failures(records: Sequence[Record]) -> dict[str, int]:
    """How many evaluations failed, by kind."""
    return dict(Counter(record.failure for record in records if not record.ok).most_common())


def seconds_left(records: Sequence[Record], budget: int, last: int = LAST) -> float | None:
    """From the mean of the last evaluations; None before the first."""
    recent = records[-last:]
    if not recent:
        return None
    mean = sum(r.engine_seconds + r.surrogate_seconds for r in recent) / len(recent)
    return mean * max(budget - len(records), 0)


def duration(seconds: float) -> str:
    """A time for people: 0.42 s, 17 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def counted(kinds: dict[str, int]) -> str:
    """Failures in words: 3 (timeout 2, nan 1)."""
    if not kinds:
        return "none"
    parts = ", ".join(f"{kind} {n}" for kind, n in kinds.items())
    return f"{sum(kinds.values())} ({parts})"


def plain_line(status: Status) -> str:
    """One evaluation in one line."""
    record, best = status.record, status.learner.best
    assert record is not None
    head = f"{status.evaluations:4d}/{status.budget}"
    if not record.ok:
        return f"{head}  {record.failure}: {' '.join(record.reason.split())}  {record.generator}"
    assert best is not None
    mark = "*" if best is record else " "
    expected = ""
    if record.predicted is not None and record.sigma:
        bar = record.scale * record.sigma
        expected = f"  expected {record.predicted:.3f} ± {bar:.3f}"
    return (
        f"{head} {mark} {record.energy:.4f} eV  best {best.energy:.4f} eV{expected}  "
        f"{record.generator}"
    )


class View(Protocol):
    """Shows a search: `watch` is given to `Search.run`, `note` says something in between."""

    def watch(self, status: Status) -> None: ...
    def note(self, text: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class PlainView:
    """A line per evaluation, for files and pipes."""

    def __init__(self, title: str) -> None:
        self.title = title

    def watch(self, status: Status) -> None:
        if status.record is not None:
            print(plain_line(status), flush=True)

    def note(self, text: str) -> None:
        print(text, flush=True)

    def __enter__(self) -> Self:
        self.note(self.title)
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LiveView:
    """A picture that is drawn again four times a second."""

    def __init__(self, title: str, budget: int, console: Console | None = None) -> None:
        self.title, self.budget = title, budget
        self.console = console or Console()
        self._status: Status | None = None
        self._note = ""
        self._begun = self._since = time.monotonic()
        self._done = False
        self._live = Live(self, console=self.console, refresh_per_second=4)

    def watch(self, status: Status) -> None:
        self._status, self._since = status, time.monotonic()

    def note(self, text: str) -> None:
        # Only an assignment: this is called by signal handlers, at any moment.
        self._note = text

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done, self._note = True, ""
        self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width - 4
        status = self._status
        records = list(status.learner.records) if status is not None else []
        parts: list[RenderableType] = [self._headline(records)]
        if status is not None and any(record.ok for record in records):
            # 16 lines are taken by all the rest, and one must stay free below.
            parts += _plot(records, self.budget, width, min(max(console.height - 17, 3), 12))
            parts.append(_tables(status, records, wide=width >= 72))
        if self._note:
            parts.append(Text(self._note, style="bold yellow"))
        yield Panel(Group(*parts), title=Text(self.title, style="bold"), title_align="left")

    def _headline(self, records: Sequence[Record]) -> RenderableType:
        done, now = len(records), time.monotonic()
        line = Table.grid(expand=True, padding=(0, 1))
        line.add_column(no_wrap=True)
        line.add_column(ratio=1)
        line.add_column(no_wrap=True, justify="right")
        if self._done:
            where = Text(f"{done} of {self.budget} evaluations", style="bold")
            clock = f"in {duration(now - self._begun)}"
        else:
            turn = _SPINNER[int(now * 4) % len(_SPINNER)]
            where = Text(f"{turn} evaluation {min(done + 1, self.budget)} of {self.budget}")
            left = seconds_left(records, self.budget)
            clock = f"{duration(now - self._since)} so far"
            clock += "" if left is None else f", {duration(left)} left"
        bar = ProgressBar(total=max(self.budget, 1), completed=min(done, self.budget))
        line.add_row(where, bar, Text(clock))
        return line


def _plot(records: Sequence[Record], budget: int, width: int, height: int) -> list[RenderableType]:
    margin = 11
    energies = [record.energy if record.ok else None for record in records]
    canvas, low, high = energy_plot(energies, budget, max(width - margin, 10), height)
    lines: list[RenderableType] = []
    for k, (row, on_line) in enumerate(zip(canvas.text(), canvas.line, strict=True)):
        label = f"{high - low:+.2f} eV" if k == 0 else "best" if k == height - 1 else ""
        text = Text(f"{label:>{margin - 1}} ", style="dim")
        for char, line in zip(row, on_line, strict=True):
            text.append(char, style="green" if line else "cyan")
        lines.append(text)
    return lines


def _tables(status: Status, records: Sequence[Record], wide: bool) -> RenderableType:
    left, right = _facts(status, records), _generators(records)
    if not wide:
        return left
    both = Table.grid(expand=True, padding=(0, 1))
    both.add_column(ratio=1)
    both.add_column()
    both.add_row(left, right)
    return both


def _facts(status: Status, records: Sequence[Record]) -> Table:
    best, last = status.learner.best, records[-1]
    assert best is not None
    found = quality(records)
    rows = [
        ("best", Text(f"{best.energy:.4f} eV", style="bold green")),
        ("", Text(f"evaluation {best.iteration + 1}, {best.generator}")),
        ("last", _last(last, best)),
        ("model error", Text("no model yet")),
        ("calibration", Text("–")),
        ("failures", Text(counted(failures(records)))),
        ("surrogate", Text(_part(status.surrogate_seconds, status))),
        ("engine", Text(_part(status.engine_seconds, status))),
    ]
    if found is not None:
        rows[3] = ("model error", Text(f"{1e3 * found.error:.1f} meV/atom (last {found.count})"))
        scale = status.learner.scale
        rows[4] = ("calibration", Text(f"rms z {found.z:.2f}, next σ × {scale:.2f}"))
    table = Table.grid(padding=(0, 1))
    table.add_column(style="cyan", no_wrap=True, min_width=max(len(name) for name, _ in rows))
    table.add_column(overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _last(record: Record, best: Record) -> Text:
    if not record.ok:
        return Text(f"{record.failure}: {' '.join(record.reason.split())}", style="red")
    if record is best:
        return Text("the best so far", style="green")
    return Text(f"{record.energy - best.energy:+.3f} eV, {record.generator}")


def _part(seconds: float, status: Status) -> str:
    total = status.engine_seconds + status.surrogate_seconds
    return f"{duration(seconds)} ({seconds / total:.0%})" if total > 0 else duration(seconds)


def _generators(records: Sequence[Record]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("generator", no_wrap=True)
    table.add_column("chosen", justify="right")
    table.add_column("best", justify="right")
    for share in shares(records)[:9]:
        style = "green" if share.last else ""
        table.add_row(share.name, str(share.chosen), str(share.best or "–"), style=style)
    return table


def make_view(title: str, budget: int, live: bool) -> View:
    """The picture on a terminal that can show it, lines anywhere else."""
    console = Console()
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    if live and console.is_terminal and not console.is_dumb_terminal and encoding == "utf8":
        return LiveView(title, budget, console)
    return PlainView(title)
