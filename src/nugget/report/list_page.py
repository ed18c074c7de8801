"""The page of `nugget list --html`: all runs below a directory, with pictures, in one table."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from ase import Atoms

from nugget import __version__
from nugget.display import counted, duration
from nugget.report.page import Data, Structures, column, page, sections
from nugget.report.page.sections import Section
from nugget.report.runs import Run
from nugget.structures.identity import conventional

_PAGE = "report.html"  # what `nugget report` writes into a run directory
_HEADS = (
    "run", "kind", "state", "system", "engine", "evaluations", "lowest, eV", "eV/atom",
    "last change",
)  # fmt: skip
_DIGITS = (None, None, None, None, None, 0, 4, 4, None)


def list_page(runs: Sequence[Run], directory: Path, file: Path) -> str:
    """The page as HTML; `file` is where it will be, which the links start from."""
    structures = Structures()
    numbers = [
        None if run.best is None else structures.add(_shown(run.best), run.path) for run in runs
    ]
    links = [_link(directory, run, file) for run in runs]
    parts = [_figures(runs), _table(runs, numbers, links)]
    if troubles := [run for run in runs if run.reason and run.state in ("failed", "unreadable")]:
        rows = [[run.path, run.state, run.reason] for run in troubles]
        parts.append(sections.table(["run", "state", "reason"], rows, title="Failed runs"))
    return page(
        f"Runs in {directory.resolve().name}", parts, structures=structures,
        data=[_data(runs, numbers)], subtitle=str(directory.resolve()),
        footer=f"Made by nugget {__version__}, {time.strftime('%Y-%m-%d %H:%M')}.",
    )  # fmt: skip


def _shown(atoms: Atoms) -> Atoms:
    return conventional(atoms) if atoms.pbc.all() else atoms


def _when(seconds: float) -> str:
    """Date and time that sort as text; the date is not broken."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)).replace("-", "\u2011")


def _link(directory: Path, run: Run, file: Path) -> str | None:
    """The address of the run's page from the place of the list; None if it has no page there."""
    target = directory / run.path / _PAGE
    if not target.exists():
        return None
    relative = Path(os.path.relpath(target, file.absolute().parent)).as_posix()
    return None if relative.startswith("..") else quote(relative)


def _figures(runs: Sequence[Run]) -> Section:
    kinds = Counter(run.kind for run in runs)
    states = Counter(run.state for run in runs)
    evaluations = sum(run.evaluations for run in runs)
    failures = sum(run.failures for run in runs)
    seconds = sum(run.engine_seconds for run in runs)
    items = [
        ("runs", str(len(runs)), ", ".join(f"{kind} {n}" for kind, n in kinds.most_common())),
        ("running", str(states["running"]), "at this moment"),
        ("failed", str(states["failed"] + states["unreadable"]), "or unreadable"),
        ("evaluations", str(evaluations), f"{failures} failed"),
        ("engine time", duration(seconds), "of all runs"),
    ]
    return sections.figures(items)


def _table(
    runs: Sequence[Run], numbers: Sequence[int | None], links: Sequence[str | None]
) -> Section:
    rows = [
        [
            run.path, run.kind, run.state, run.formula or None, run.engine or None,
            None if run.kind == "campaign" else run.evaluations, run.best_energy,
            run.best_per_atom, _when(run.modified),
        ]
        for run in runs
    ]  # fmt: skip
    caption = (
        "Click a heading to sort, a row to see its lowest structure. Evaluations include those of "
        "final relaxations."
    )
    if any(links):
        caption += f" Underlined names lead to pages written by nugget report ({_PAGE})."
    return sections.table(
        _HEADS, rows, title=counted(len(runs), "run"), structures=numbers, thumbnails=numbers,
        links=links, digits=_DIGITS, caption=caption, empty="There is no run here.", whole=True,
    )  # fmt: skip


def _data(runs: Sequence[Run], numbers: Sequence[int | None]) -> Data:
    """What the inspector shows beside the structure."""
    columns = {
        "run": column([run.path for run in runs], "run"),
        "kind": column([run.kind for run in runs], "kind"),
        "formula": column([run.formula for run in runs], "system"),
        "engine": column([run.engine for run in runs], "engine"),
        "evaluations": column([run.evaluations for run in runs], "evaluations"),
        "final": column([r.final_evaluations for r in runs], "of them in final relaxations"),
        "failed": column([run.failures for run in runs], "failed evaluations"),
        "seconds": column([run.engine_seconds for run in runs], "engine time", "s", 0),
        "quantity": column([run.quantity for run in runs], "quantity"),
        "best": column([run.best_energy for run in runs], "lowest", "eV", 4),
        "per_atom": column([run.best_per_atom for run in runs], "per atom", "eV", 4),
    }
    return Data("runs", columns, numbers)
