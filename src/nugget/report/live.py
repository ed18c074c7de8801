"""A running search on the terminal: one picture that is kept up to date, or plain lines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nugget.report.braille import energy_plot
from nugget.report.digest import (
    counted,
    duration,
    failures,
    plain_line,
    polish_line,
    quality,
    seconds_left,
    shares,
)
from nugget.report.terminal import Drawn, Plain, can_draw, headline, spinner
from nugget.search.stop import Confidence

if TYPE_CHECKING:
    from nugget.search.run import Status
    from nugget.search.store import Record


class PlainView(Plain):
    """A line per evaluation."""

    def watch(self, status: Status) -> None:
        if status.record is not None:
            print(plain_line(status), flush=True)
        elif status.polishing:
            print(polish_line(status), flush=True)


class LiveView(Drawn):
    """One search: energies, expectations, where structures come from and where the time goes."""

    def __init__(self, title: str, budget: int, console: Console | None = None) -> None:
        super().__init__(title, console)
        self.budget = budget
        self._status: Status | None = None
        self._since = self._begun
        self._sure = Confidence(0, 0)

    def watch(self, status: Status) -> None:
        self._status, self._since = status, time.monotonic()
        self._sure = status.learner.meetings.confidence()  # too slow for every picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width - 4
        status = self._status
        records = list(status.learner.records) if status is not None else []
        parts: list[RenderableType] = [self._headline(records)]
        if status is not None and any(record.ok for record in records):
            # 17 lines are taken by all the rest, and one must stay free below.
            height = min(max(console.height - 18, 2), 12)
            parts += _plot(status, records, self.budget, width, height)
            parts.append(_tables(status, records, self._sure, wide=width >= 72))
        if status is not None and status.polishing and not self._done:
            parts.append(Text(polish_line(status), style="magenta"))
        if self._note:
            parts.append(Text(self._note, style="bold yellow"))
        yield Panel(Group(*parts), title=Text(self.title, style="bold"), title_align="left")

    def _headline(self, records: Sequence[Record]) -> RenderableType:
        done, now = len(records), time.monotonic()
        if self._done:
            where = Text(f"{done} of {self.budget} evaluations", style="bold")
            clock = f"in {duration(now - self._begun)}"
        else:
            flying = 1 if self._status is None else self._status.in_flight
            what = f"evaluation {min(done + 1, self.budget)} of {self.budget}"
            if flying > 1:
                what = f"{done} of {self.budget} evaluations, {flying} in flight"
            where = Text(f"{spinner(now)} {'starting' if self._status is None else what}")
            left = seconds_left(records, self.budget, in_flight=flying)
            clock = f"{duration(now - self._since)} so far"
            clock += "" if left is None else f", {duration(left)} left"
        return headline(where, done, self.budget, clock)


def _plot(
    status: Status, records: Sequence[Record], budget: int, width: int, height: int
) -> list[RenderableType]:
    margin = 11
    energies = [status.learner.value(record) if record.ok else None for record in records]
    canvas, low, high = energy_plot(energies, budget, max(width - margin, 10), height)
    lines: list[RenderableType] = []
    for k, (row, on_line) in enumerate(zip(canvas.text(), canvas.line, strict=True)):
        label = f"{high - low:+.2f} eV" if k == 0 else "best" if k == height - 1 else ""
        text = Text(f"{label:>{margin - 1}} ", style="dim")
        for char, line in zip(row, on_line, strict=True):
            text.append(char, style="green" if line else "cyan")
        lines.append(text)
    return lines


def _tables(
    status: Status, records: Sequence[Record], sure: Confidence, wide: bool
) -> RenderableType:
    left, right = _facts(status, records, sure), _generators(status, records)
    if not wide:
        return left
    both = Table.grid(expand=True, padding=(0, 1))
    both.add_column(ratio=1)
    both.add_column()
    both.add_row(left, right)
    return both


def _facts(status: Status, records: Sequence[Record], sure: Confidence) -> Table:
    learner, last = status.learner, records[-1]
    best, unit = learner.best, learner.goal.unit
    assert best is not None
    found = quality(records)
    rows = [
        ("best", Text(f"{learner.value(best):.4f} {unit}", style="bold green")),
        ("", Text(f"evaluation {best.iteration + 1}, {best.generator}")),
        ("found", Text(_found(sure))),
        ("last", _last(status, last, best)),
        ("model error", Text("no model yet")),
        ("calibration", Text("–")),
        ("failures", Text(counted(failures(records)))),
        ("surrogate", Text(_part(status.surrogate_seconds, status))),
        ("engine", Text(_part(status.engine_seconds, status))),
    ]
    if found is not None:
        rows[4] = ("model error", Text(f"{1e3 * found.error:.1f} meV/atom (last {found.count})"))
        scale = status.learner.bars.scale
        rows[5] = ("calibration", Text(f"rms z {found.z:.2f}, next σ × {scale:.2f}"))
    table = Table.grid(padding=(0, 1))
    table.add_column(style="cyan", no_wrap=True, min_width=max(len(name) for name, _ in rows))
    table.add_column(overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _found(sure: Confidence) -> str:
    if sure.probability is None:
        return "not met again yet"
    return f"{sure.probability:.0%} likely the lowest, met again {sure.met} ×"


def _last(status: Status, record: Record, best: Record) -> Text:
    if not record.ok:
        return Text(f"{record.failure}: {' '.join(record.reason.split())}", style="red")
    if record is best:
        return Text("the best so far", style="green")
    learner = status.learner
    apart = learner.value(record) - learner.value(best)
    return Text(f"{apart:+.3f} {learner.goal.unit}, {record.generator}")


def _part(seconds: float, status: Status) -> str:
    total = status.engine_seconds + status.surrogate_seconds
    return f"{duration(seconds)} ({seconds / total:.0%})" if total > 0 else duration(seconds)


def _generators(status: Status, records: Sequence[Record]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("generator", no_wrap=True)
    table.add_column("chosen", justify="right")
    table.add_column("best", justify="right")
    learner = status.learner
    for share in shares(records, learner.improved[: len(records)], learner.best)[:9]:
        style = "green" if share.last else ""
        table.add_row(share.name, str(share.chosen), str(share.best or "–"), style=style)
    return table


def make_view(title: str, budget: int, live: bool) -> LiveView | PlainView:
    """The picture on a terminal that can show it, lines anywhere else."""
    console = Console()
    return LiveView(title, budget, console) if live and can_draw(console) else PlainView(title)
