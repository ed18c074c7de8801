"""A campaign: a grid of searches in one directory, run by any executor, resumable at any moment."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nugget.campaign.grid import Cell, make_cells
from nugget.campaign.job import Job, check_settings, given_up, run_search
from nugget.campaign.results import Outcome, Row, keep, read_outcome
from nugget.campaign.survival import KaplanMeier
from nugget.errors import NuggetError
from nugget.evaluation.config import ExecutionConfig
from nugget.evaluation.trust import require_trust
from nugget.search.config import Config, make_config, write_config
from nugget.search.prepare import check, code_of, copied_names, copy_files, locate, with_files
from nugget.search.store import LOG, SETTINGS, STATUS
from nugget.structures.files import LOCK, locked, write_atomically

CAMPAIGN, RUNS, STOP = "campaign.toml", "runs", "stop"


@dataclass(frozen=True)
class Member:
    """One search of the grid."""

    cell: Cell
    seed: int
    directory: Path


@dataclass(frozen=True)
class Progress:
    """How one cell stands."""

    cell: Cell
    total: int
    done: int
    running: int
    found: int
    errors: int
    median: int | None  # evaluations to the solution, of the searches that have ended


Watcher = Callable[[Row, int, int], None]  # a search that has ended; how many of how many


class Campaign:
    """A grid of searches. `Campaign.create` starts one, `Campaign.resume` continues one."""

    def __init__(
        self, directory: Path, base: Config, vary: Mapping[str, Sequence[str]], repeats: int
    ) -> None:
        self.directory, self.base, self.vary, self.repeats = directory, base, vary, repeats
        self.cells = make_cells(base, vary)
        first = base.search.seed
        # Seeds in the outer loop: all cells grow alike, so that interim results can be compared.
        self.members = [
            Member(cell, seed, directory / RUNS / cell.name / f"seed-{seed:04d}")
            for seed in range(first, first + repeats)
            for cell in self.cells
        ]
        self._outcomes: dict[Path, Outcome] = {}
        self._stopping = False
        self._begun = 0.0

    @classmethod
    def create(
        cls,
        config: Config,
        vary: Mapping[str, Sequence[str]],
        repeats: int,
        directory: str | Path,
        base: Path = Path(),
    ) -> Campaign:
        """A new campaign, or one around searches that are in their places already.

        File names in the settings are relative to `base`, or to the present directory. All mistakes
        are found before anything is written.
        """
        directory = Path(directory)
        if repeats < 1:
            raise NuggetError(f"--repeats is {repeats}; give 1 or more.")
        files = locate(config, base)
        config = with_files(config, copied_names(files))
        campaign = cls(directory, config, dict(vary), repeats)
        if (directory / CAMPAIGN).exists():
            if _identity(cls.resume(directory)) != _identity(campaign):
                raise NuggetError(
                    f"{directory} holds another campaign: continue it with `nugget campaign "
                    f"--resume {directory}`, or choose another directory with --out."
                )
        else:
            for cell in campaign.cells:
                check(cell.config, files)
            for member in campaign.members:  # searches that are in their places already
                check_settings(member.directory, campaign._config(member))
        directory.mkdir(parents=True, exist_ok=True)
        copy_files(files, directory, config)
        campaign._write()
        return campaign

    @classmethod
    def resume(
        cls, directory: str | Path, repeats: int | None = None, trust: bool = False
    ) -> Campaign:
        """The campaign in this directory; `repeats` may add seeds.

        Settings that name code are refused unless `trust` says otherwise.
        """
        directory = Path(directory)
        file = directory / CAMPAIGN
        try:
            settings = tomllib.loads(file.read_text(encoding="utf-8"))
            vary = {key: [str(v) for v in values] for key, values in settings["vary"].items()}
            base, known = make_config(settings["base"], str(file)), int(settings["repeats"])
        except OSError:
            raise NuggetError(f"{directory} holds no campaign ({CAMPAIGN} is missing).") from None
        except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise NuggetError(
                f"{file} is not a campaign's: it must have base, vary and repeats ({error})."
            ) from None
        require_trust(code_of(base, directory), str(directory), trust)
        if repeats is not None and repeats < known:
            raise NuggetError(f"{directory} has {known} repeats; --repeats can only raise that.")
        campaign = cls(directory, base, vary, repeats or known)
        if campaign.repeats != known:
            campaign._write()
        return campaign

    def _write(self) -> None:
        base = re.sub(r"^\[", "[base.", write_config(self.base, comments=False), flags=re.M)
        vary = [f"{json.dumps(key)} = {json.dumps(list(v))}" for key, v in self.vary.items()]
        lines = [f"repeats = {self.repeats}", "", "[vary]", *vary, "", base]
        write_atomically(self.directory / CAMPAIGN, "\n".join(lines))

    def collect(self, progress: Callable[[int, int], None] | None = None) -> list[Row]:
        """The searches that have ended, in the order of the grid; nothing is run."""
        for k, member in enumerate(self.members):
            if member.directory not in self._outcomes:
                outcome = read_outcome(member.directory)
                if outcome is not None:
                    self._outcomes[member.directory] = outcome
            if progress is not None:
                progress(k + 1, len(self.members))
        return self.rows()

    def rows(self) -> list[Row]:
        """All known outcomes, cell by cell."""
        order = {cell.name: k for k, cell in enumerate(self.cells)}
        members = sorted(self.members, key=lambda m: (order[m.cell.name], m.seed))
        known = self._outcomes
        return [
            Row(m.cell.values, m.seed, known[m.directory]) for m in members if m.directory in known
        ]

    def run(self, executor: Executor, watch: Watcher | None = None) -> list[Row]:
        """Run all searches that have not ended; those that had failed are tried again."""
        with locked(self.directory):
            # The clock of the file system, which may be another machine's.
            self._begun = (self.directory / LOCK).stat().st_mtime
            (self.directory / STOP).unlink(missing_ok=True)
            try:
                return self._run(executor, watch)
            finally:
                (self.directory / STOP).unlink(missing_ok=True)

    def _run(self, executor: Executor, watch: Watcher | None) -> list[Row]:
        self.collect()
        pending = []
        for member in self.members:
            outcome = self._outcomes.get(member.directory)
            if outcome is not None and outcome.error:
                del self._outcomes[member.directory]
            if outcome is None or outcome.error:
                check_settings(member.directory, self._config(member))
                pending.append(member)
        futures: dict[Future[Any], Member] = {}
        for member in pending:
            if self._stopping:
                break
            futures[executor.submit(run_search, self._job(member))] = member
            self._take(futures, watch, timeout=0.0)
        # Nothing is cancelled on a stop: jobs that have not begun see it and return at once, and a
        # Dask future cannot tell whether it has begun.
        while futures:
            self._take(futures, watch, timeout=0.5)
        return self.rows()

    def _take(
        self, futures: dict[Future[Any], Member], watch: Watcher | None, timeout: float
    ) -> None:
        """Take the results of the searches that have ended."""
        done, _ = wait(futures, timeout, FIRST_COMPLETED)
        for future in done:
            member = futures.pop(future)
            try:
                outcome = future.result()
            except Exception as error:  # the worker was lost too often, or cannot work at all
                outcome = given_up(member.directory, str(error) or type(error).__name__)
                keep(member.directory, outcome)
            if outcome is None:
                continue
            self._outcomes[member.directory] = outcome
            if watch is not None:
                row = Row(member.cell.values, member.seed, outcome)
                watch(row, len(self._outcomes), len(self.members))

    def stop(self) -> None:
        """Begin no more searches; those that run stop after the evaluation in flight."""
        self._stopping = True
        (self.directory / STOP).touch()

    @property
    def stopped(self) -> bool:
        """Was it stopped before all searches had ended?"""
        return self._stopping and len(self._outcomes) < len(self.members)

    def progress(self) -> list[Progress]:
        """How each cell stands; quick enough to ask every second."""
        return [self._progress(cell) for cell in self.cells]

    def _progress(self, cell: Cell) -> Progress:
        members = [member for member in self.members if member.cell is cell]
        known = dict(self._outcomes)  # another thread may draw while this one runs
        ended = [known[m.directory] for m in members if m.directory in known]
        running = [m for m in members if m.directory not in known and self._runs(m.directory)]
        times = [o.evaluations_to_solution or o.evaluations for o in ended]
        solved = [bool(o.found) for o in ended]
        return Progress(
            cell,
            len(members),
            len(ended),
            len(running),
            sum(solved),
            sum(bool(o.error) for o in ended),
            KaplanMeier.of(times, solved).median if ended else None,
        )

    def _runs(self, directory: Path) -> bool:
        """Has the search written anything in this run of the campaign, and not ended since?"""
        if (directory / STATUS).exists():
            return False
        for name in (LOG, SETTINGS):
            try:
                if (directory / name).stat().st_mtime >= self._begun > 0:
                    return True
            except OSError:
                continue
        return False

    def _config(self, member: Member) -> Config:
        search = member.cell.config.search.model_copy(update={"seed": member.seed})
        # The campaign decides where searches run.
        return member.cell.config.model_copy(
            update={"search": search, "execution": ExecutionConfig()}
        )

    def _job(self, member: Member) -> Job:
        config = self._config(member)
        here = self.directory.absolute()
        return Job(
            directory=str(member.directory.absolute()),
            settings=config.model_dump(),
            base=str(here),
            stop=str(here / STOP),
        )


def _identity(campaign: Campaign) -> tuple[Any, ...]:
    """What distinguishes campaigns: all settings but those of execution."""
    base = campaign.base.model_dump(exclude={"execution"})
    return base, {key: list(values) for key, values in campaign.vary.items()}, campaign.repeats


def with_execution(campaign: Campaign, changed: Mapping[str, Any]) -> ExecutionConfig:
    """Where a campaign runs: its own settings, overridden by `changed`."""
    settings = campaign.base.execution.model_dump()
    if changed.get("kind", "dask") != "dask":  # settings of Dask mean nothing elsewhere
        settings = {key: settings[key] for key in ("workers", "max_losses", "heartbeat")}
    settings |= changed
    return make_config({"execution": settings}, "execution").execution
