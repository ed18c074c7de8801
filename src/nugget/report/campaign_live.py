"""A running campaign on the terminal: a table that is kept up to date, or plain lines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nugget.campaign.grid import cell_name
from nugget.report.digest import duration
from nugget.report.terminal import Drawn, Plain, can_draw, headline, spinner
from nugget.search.goal import make_goal

if TYPE_CHECKING:
    from nugget.campaign.results import Row
    from nugget.campaign.run import Campaign, Progress


def line_of(row: Row, done: int, total: int, unit: str = "eV") -> str:
    """One search in one line."""
    outcome = row.outcome
    width = len(str(total))
    head = f"{done:{width}d}/{total}  {cell_name(row.cell)}  seed {row.seed}"
    if outcome.error:
        return f"{head}  failed: {outcome.error}"
    if outcome.found:
        return f"{head}  found at evaluation {outcome.evaluations_to_solution}"
    best = "" if outcome.best_energy is None else f", best {outcome.best_energy:.4f} {unit}"
    if outcome.best_above_reference is not None:
        best += f" ({outcome.best_above_reference:+.3f} {unit})"
    what = "" if outcome.found is None else "not found in "
    return f"{head}  {what}{outcome.evaluations} evaluations{best}"


class PlainCampaignView(Plain):
    """A line per search that has ended."""

    def __init__(self, title: str, unit: str = "eV") -> None:
        super().__init__(title)
        self.unit = unit

    def watch(self, row: Row, done: int, total: int) -> None:
        print(line_of(row, done, total, self.unit), flush=True)


class LiveCampaignView(Drawn):
    """Cells and how they stand."""

    def __init__(self, title: str, campaign: Campaign, console: Console | None = None) -> None:
        super().__init__(title, console)
        self.campaign, self.unit = campaign, make_goal(campaign.base.system).unit
        self._last = ""
        self._looked = self._begun
        self._progress = campaign.progress()
        self._before = sum(cell.done for cell in self._progress)

    def watch(self, row: Row, done: int, total: int) -> None:
        self._last = line_of(row, done, total, self.unit)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        now = time.monotonic()
        if now - self._looked > 1.0 or self._done:
            self._progress, self._looked = self.campaign.progress(), now
        # 9 lines are taken by all the rest, and one must stay free below.
        room = max(console.height - 10, 1)
        parts: list[RenderableType] = [self._headline(now), progress_table(self._progress, room)]
        if self._last:
            parts.append(Text(self._last, style="dim", overflow="ellipsis", no_wrap=True))
        if self._note:
            parts.append(Text(self._note, style="bold yellow"))
        yield Panel(Group(*parts), title=Text(self.title, style="bold"), title_align="left")

    def _headline(self, now: float) -> RenderableType:
        done = sum(cell.done for cell in self._progress)
        total = sum(cell.total for cell in self._progress)
        turn = "" if self._done else spinner(now) + " "
        clock = f"{duration(now - self._begun)} so far"
        new = done - self._before
        if new and not self._done:
            clock += f", {duration((now - self._begun) / new * (total - done))} left"
        return headline(Text(f"{turn}{done} of {total} searches"), done, total, clock)


def progress_table(cells: list[Progress], room: int) -> Table:
    """Cells × done, running, found, median evaluations to the solution."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("cell", overflow="ellipsis", no_wrap=True)
    for name in ("done", "running", "found", "median", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    # What moves comes first when not all cells fit.
    shown = sorted(cells, key=lambda c: not c.running) if len(cells) > room else cells
    for cell in shown[:room]:
        share = f"{cell.found} ({cell.found / cell.done:.0%})" if cell.done else "–"
        table.add_row(
            Text(cell.cell.name),
            f"{cell.done}/{cell.total}",
            Text(str(cell.running or "–"), style="yellow" if cell.running else "dim"),
            Text(share, style="green" if cell.found else ""),
            str(cell.median or "–"),
            Text(str(cell.errors or "–"), style="red" if cell.errors else "dim"),
        )
    if len(cells) > room:
        table.add_row(Text(f"… and {len(cells) - room} more", style="dim"))
    return table


def make_campaign_view(
    title: str, campaign: Campaign, live: bool
) -> LiveCampaignView | PlainCampaignView:
    """The table on a terminal that can show it, lines anywhere else."""
    console = Console()
    if live and can_draw(console):
        return LiveCampaignView(title, campaign, console)
    return PlainCampaignView(title, make_goal(campaign.base.system).unit)
