"""Running searches and campaigns on a terminal: a live view, or plain lines for files and pipes."""

from __future__ import annotations

import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, Self, cast

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nugget.campaign.grid import setting_name
from nugget.display import duration
from nugget.report.digest import failure_counts, failures, quality, seconds_left, shares
from nugget.search.loop import plain_line, polish_line
from nugget.search.stop import Confidence
from nugget.systems.system_settings import make_goal

if TYPE_CHECKING:
    from nugget.campaign.campaign import Campaign, Progress
    from nugget.campaign.results import Row
    from nugget.search.loop import Status
    from nugget.search.record import Record

_BARS = "▁▂▃▄▅▆▇█"
_LEAST = 1e-3  # smallest difference on a logarithmic axis, in the unit of the energies
_TALL = 32  # lines of a terminal that has room for a plot
_REFRESH = 2  # pictures per second
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def energy_bars(energies: Sequence[float | None], total: int, width: int) -> Text:
    """The lowest energy (None for failures) in each part of the budget; a new best is green.

    The highest fifth of the energies have the same full height, so that high early energies do not
    flatten the others.
    """
    finished = sorted(energy for energy in energies if energy is not None)
    if not finished:
        return Text()
    low, best = finished[0], float("inf")
    high = max(finished[int(0.8 * (len(finished) - 1))], low + 1e-3)
    columns: list[list[float]] = [[] for _ in range(width)]
    for k, energy in enumerate(energies):
        columns[k * width // max(total, len(energies))] += [] if energy is None else [energy]
    bars = Text()
    for column in columns:
        lowest = min(column, default=None)
        if lowest is None:
            bars.append(" ")
        else:
            bar = _BARS[round(min((lowest - low) / (high - low), 1.0) * (len(_BARS) - 1))]
            bars.append(bar, style="green" if lowest < best else "cyan")
            best = min(best, lowest)
    bars.rstrip()
    return bars.append(f"  up to {high - low:+.2f} eV", style="dim")


def energy_plot(energies: Sequence[float | None], unit: str, width: int, height: int) -> Text:
    """Every energy (None for failures) above the lowest on a logarithmic axis.

    A line shows the lowest so far. Differences below 1 meV stand on the lowest line of the plot.
    """
    finished = [energy for energy in energies if energy is not None]
    if not finished:
        return Text()
    margin, number = 9, len(energies)
    columns, bottom = max(width - margin, 10), log10(_LEAST)
    heights = [None if e is None else log10(max(e - min(finished), _LEAST)) for e in energies]
    top = max(max(h for h in heights if h is not None), bottom + 1.0)
    places = [int((k + 0.5) * columns / number) for k in range(number)]

    def row(value: float) -> int:
        return round((top - value) / (top - bottom) * (height - 1))

    grid = [[(" ", "")] * columns for _ in range(height)]
    best = top
    for column in range(places[0], columns):
        there = [h for place, h in zip(places, heights, strict=True) if place == column]
        best = min([best, *(h for h in there if h is not None)])
        grid[row(best)][column] = ("━", "green")
    for column, value in zip(places, heights, strict=True):
        if value is not None:
            grid[row(value)][column] = ("•", "bold green" if value == bottom else "cyan")
    labels = {row(power): f"{10.0**power:g}" for power in range(ceil(bottom), floor(top) + 1)}
    text = Text(f"E − lowest, {unit}\n", style="dim")
    for k, line in enumerate(grid):
        text.append(f"{labels.get(k, ''):>{margin - 2}} ┤", style="dim")
        for letter, style in line:
            text.append(letter, style=style)
        text.append("\n")
    return text.append(f"{'1':>{margin + 1}}{number:>{columns - 1}}", style="dim")


# ------------------------------------------------------------------ live views and plain lines


class PlainView:
    """Prints its title, messages and one line per result; `line` gets the arguments of `watch`."""

    def __init__(self, title: str, line: Callable[..., str]) -> None:
        self.title, self.line = title, line

    def note(self, text: str) -> None:
        print(text, flush=True)

    def watch(self, *progress: Any) -> None:
        if line := self.line(*progress):
            self.note(line)

    def __enter__(self) -> Self:
        self.note(self.title)
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Drawn:
    """A view that is redrawn twice a second; subclasses define `__rich_console__`."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self.title = title
        self.console = console or Console()
        self._note = ""
        self._started = time.monotonic()
        self._done = False
        self._quiet = _without_echoed_controls()
        view = cast(RenderableType, self)
        self._live = Live(view, console=self.console, refresh_per_second=_REFRESH)

    def note(self, text: str) -> None:
        # Signal handlers call this at any time, so it only assigns.
        self._note = text

    def panel(self, *parts: RenderableType) -> Panel:
        """The parts of the view below each other, and the note."""
        note = [Text(self._note, style="bold yellow")] if self._note else []
        title = Text(self.title, style="bold")
        return Panel(Group(*parts, *note), title=title, title_align="left")

    def __enter__(self) -> Self:
        self._quiet.__enter__()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done, self._note = True, ""
        self._live.stop()
        self._quiet.__exit__(None, None, None)


def can_draw(console: Console) -> bool:
    """Can the terminal show a live view?"""
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
    return _SPINNER[int(now * _REFRESH) % len(_SPINNER)]


@contextmanager
def _without_echoed_controls() -> Iterator[None]:
    """Keep the terminal from echoing ^C into the view, which would break its last line."""
    try:
        former = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError):  # stdin is not a terminal
        yield
        return
    silent = list(former)
    silent[3] &= ~termios.ECHOCTL  # the local modes
    termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, former)


# ------------------------------------------------------------------ one search


def line_of_search(status: Status) -> str:
    """The last evaluation and the time left, or the progress of the final relaxation."""
    if status.record is not None:
        left = seconds_left(status.learner.records, status.budget, in_flight=status.in_flight)
        return plain_line(status) + (f"  {duration(left)} left" if left else "")
    return polish_line(status) if status.polishing else ""


class LiveView(Drawn):
    """Energies, prediction errors, generators and times of one search."""

    def __init__(self, title: str, budget: int, console: Console | None = None) -> None:
        super().__init__(title, console)
        self.budget = budget
        self._status: Status | None = None
        self._since = self._started
        self._sure = Confidence(0, 0)

    def watch(self, status: Status) -> None:
        self._status, self._since = status, time.monotonic()
        self._sure = status.learner.rediscoveries.confidence()  # too slow for every refresh

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        status = self._status
        records = list(status.learner.records) if status is not None else []
        parts = [self._headline(records)]
        if status is not None and any(record.ok for record in records):
            energies = [status.learner.value(r) if r.ok else None for r in records]
            if console.height >= _TALL:
                unit, room = status.learner.goal.unit, min(console.height - 22, 16)
                parts.append(energy_plot(energies, unit, options.max_width - 6, room))
            else:
                parts.append(energy_bars(energies, self.budget, options.max_width - 24))
            tables = Table.grid(expand=True, padding=(0, 1))
            tables.add_column(ratio=1)
            facts, generators = _facts(status, records, self._sure), _generators(status, records)
            tables.add_row(facts, *([generators] if options.max_width >= 76 else []))
            parts.append(tables)
        if status is not None and status.polishing and not self._done:
            parts.append(Text(polish_line(status), style="magenta"))
        yield self.panel(*parts)

    def _headline(self, records: Sequence[Record]) -> RenderableType:
        done, now = len(records), time.monotonic()
        if self._done:
            where = Text(f"{done} of {self.budget} evaluations", style="bold")
            clock = f"in {duration(now - self._started)}"
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


def _facts(status: Status, records: Sequence[Record], sure: Confidence) -> Table:
    learner, last = status.learner, records[-1]
    best, unit = learner.best, learner.goal.unit
    assert best is not None
    error, calibration = "no model yet", "–"
    if (recent := quality(records)) is not None:
        error = f"{1e3 * recent.error:.1f} meV/atom (last {recent.count})"
        calibration = f"rms z {recent.z:.2f}, next σ × {learner.last_scale:.2f}"
    confidence = f"no estimate, because {sure.no_estimate}"
    if sure.probability is not None:
        confidence = f"{sure.probability:.0%} likely the lowest, rediscovered {sure.met} ×"
    above = f"{learner.value(last) - learner.value(best):+.3f} {unit}" if last.ok else ""
    newest = Text(f"{above}, {last.generator}")
    if not last.ok:
        newest = Text(f"{last.failure}: {' '.join(last.reason.split())}", style="red")
    elif last is best:
        newest = Text("new best", style="green")
    rows: dict[str, str | Text] = {
        "best": Text(f"{learner.value(best):.4f} {unit}", style="bold green"),
        "": f"evaluation {best.iteration + 1}, {best.generator}",
        "confidence": confidence,
        "last": newest,
        "model error": error,
        "calibration": calibration,
        "failures": failure_counts(failures(records)),
        "surrogate": _share_of_time(status.surrogate_seconds, status),
        "engine": _share_of_time(status.engine_seconds, status),
    }
    table = Table.grid(padding=(0, 1))
    table.add_column(style="cyan", no_wrap=True, min_width=max(map(len, rows)))
    table.add_column(overflow="ellipsis", no_wrap=True)
    for name, value in rows.items():
        table.add_row(name, Text(value) if isinstance(value, str) else value)
    return table


def _share_of_time(seconds: float, status: Status) -> str:
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
    """A live view on a terminal that can show it, plain lines anywhere else."""
    console = Console()
    if live and can_draw(console):
        return LiveView(title, budget, console)
    return PlainView(title, line_of_search)


# ------------------------------------------------------------------ campaigns


def line_of(row: Row, done: int, total: int, unit: str = "eV") -> str:
    """One search in one line."""
    outcome = row.outcome
    width = len(str(total))
    head = f"{done:{width}d}/{total}  {setting_name(row.setting)}  seed {row.seed}"
    if outcome.error:
        return f"{head}  failed: {outcome.error}"
    if outcome.found:
        return f"{head}  found at evaluation {outcome.evaluations_to_solution}"
    best = "" if outcome.best_energy is None else f", best {outcome.best_energy:.4f} {unit}"
    if outcome.best_above_reference is not None:
        best += f" ({outcome.best_above_reference:+.3f} {unit})"
    what = "" if outcome.found is None else "not found in "
    return f"{head}  {what}{outcome.evaluations} evaluations{best}"


class LiveCampaignView(Drawn):
    """The progress of every setting of a campaign."""

    def __init__(self, title: str, campaign: Campaign, console: Console | None = None) -> None:
        super().__init__(title, console)
        self.campaign, self.unit = campaign, make_goal(campaign.base.system).unit
        self._last = ""
        self._last_look = self._started
        self._progress = campaign.progress()
        self._before = sum(cell.done for cell in self._progress)

    def watch(self, row: Row, done: int, total: int) -> None:
        self._last = line_of(row, done, total, self.unit)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        now = time.monotonic()
        if now - self._last_look > 1.0 or self._done:
            self._progress, self._last_look = self.campaign.progress(), now
        # Everything else takes 9 lines, and one must stay free below.
        room = max(console.height - 10, 1)
        last = [Text(self._last, style="dim", overflow="ellipsis", no_wrap=True)]
        table = progress_table(self._progress, room)
        yield self.panel(self._headline(now), table, *(last if self._last else []))

    def _headline(self, now: float) -> RenderableType:
        done = sum(cell.done for cell in self._progress)
        total = sum(cell.total for cell in self._progress)
        turn = "" if self._done else spinner(now) + " "
        clock = f"{duration(now - self._started)} so far"
        new = done - self._before
        if new and not self._done:
            clock += f", {duration((now - self._started) / new * (total - done))} left"
        return headline(Text(f"{turn}{done} of {total} searches"), done, total, clock)


def progress_table(cells: list[Progress], room: int) -> Table:
    """For each setting: done, running, found, median evaluations to the solution."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("setting", overflow="ellipsis", no_wrap=True)
    for name in ("done", "running", "found", "median", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    # Running settings come first if not all fit.
    shown = sorted(cells, key=lambda c: not c.running) if len(cells) > room else cells
    for cell in shown[:room]:
        share = f"{cell.found} ({cell.found / cell.done:.0%})" if cell.done else "–"
        table.add_row(
            Text(cell.setting.name),
            f"{cell.done}/{cell.total}",
            Text(str(cell.running or "–"), style="yellow" if cell.running else "dim"),
            Text(share, style="green" if cell.found else ""),
            str(cell.median or "–"),
            Text(str(cell.errors or "–"), style="red" if cell.errors else "dim"),
        )
    if len(cells) > room:
        table.add_row(Text(f"… and {len(cells) - room} more", style="dim"))
    return table


def make_campaign_view(title: str, campaign: Campaign, live: bool) -> LiveCampaignView | PlainView:
    """A live table on a terminal that can show it, plain lines anywhere else."""
    console = Console()
    if live and can_draw(console):
        return LiveCampaignView(title, campaign, console)
    return PlainView(title, partial(line_of, unit=make_goal(campaign.base.system).unit))
