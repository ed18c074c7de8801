"""A campaign: a grid of searches in one directory, run by any executor, resumable at any moment."""

from __future__ import annotations

import fcntl
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nugget.campaign.grid import Cell, make_cells
from nugget.campaign.job import Job, given_up, run_search
from nugget.campaign.prepare import check, check_settings, copy, located, with_files
from nugget.campaign.results import Outcome, Row, keep, read_outcome
from nugget.campaign.survival import KaplanMeier
from nugget.errors import NuggetError
from nugget.evaluation.config import ExecutionConfig
from nugget.search.config import Config, make_config, write_config
from nugget.search.store import LOG, SETTINGS, write_atomically

CAMPAIGN, RUNS, STOP, LOCK = "campaign.toml", "runs", "stop", "lock"


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
        # Seeds outside: all cells grow alike, and a look in between compares like with like.
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

        File names in the settings count from `base`, then from here. All mistakes are found before
        anything is written.
        """
        directory = Path(directory)
        if repeats < 1:
            raise NuggetError(f"{repeats} repeats of a search are none; give 1 or more.")
        files = located(config, base)
        config = with_files(config, files)
        campaign = cls(directory, config, dict(vary), repeats)
        if (directory / CAMPAIGN).exists():
            if _told(cls.resume(directory)) != _told(campaign):
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
        for name, file in files.items():
            copy(file, directory / name)
        campaign._write()
        return campaign

    @classmethod
    def resume(cls, directory: str | Path, repeats: int | None = None) -> Campaign:
        """The campaign in this directory; `repeats` may add seeds."""
        directory = Path(directory)
        file = directory / CAMPAIGN
        try:
            told = tomllib.loads(file.read_text(encoding="utf-8"))
            vary = {key: [str(v) for v in values] for key, values in told["vary"].items()}
            base, known = make_config(told["base"], str(file)), int(told["repeats"])
        except OSError:
            raise NuggetError(f"{directory} holds no campaign ({CAMPAIGN} is missing).") from None
        except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise NuggetError(
                f"{file} is not a campaign's: it must have base, vary and repeats ({error})."
            ) from None
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
        """What is known so far, cell by cell."""
        order = {cell.name: k for k, cell in enumerate(self.cells)}
        members = sorted(self.members, key=lambda m: (order[m.cell.name], m.seed))
        known = self._outcomes
        return [
            Row(m.cell.values, m.seed, known[m.directory]) for m in members if m.directory in known
        ]

    def run(self, executor: Executor, watch: Watcher | None = None) -> list[Row]:
        """Run all searches that have not ended; those that had failed are tried again."""
        with self._locked():
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
        # Nothing is cancelled when it is stopped: jobs that have not begun see that and return at
        # once, and a Dask future cannot tell whether it has begun.
        while futures:
            self._take(futures, watch, timeout=0.5)
        return self.rows()

    def _take(
        self, futures: dict[Future[Any], Member], watch: Watcher | None, timeout: float
    ) -> None:
        """Write down the searches that have ended."""
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
        running = [m for m in members if m.directory not in known and self._moves(m.directory)]
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

    def _moves(self, directory: Path) -> bool:
        """Has the search written anything since this run of the campaign began?"""
        for name in (LOG, SETTINGS):
            try:
                if (directory / name).stat().st_mtime >= self._begun > 0:
                    return True
            except OSError:
                continue
        return False

    def _config(self, member: Member) -> Config:
        search = member.cell.config.search.model_copy(update={"seed": member.seed})
        # Where it runs is the campaign's business, not the search's.
        return member.cell.config.model_copy(
            update={"search": search, "execution": ExecutionConfig()}
        )

    def _job(self, member: Member) -> Job:
        config = self._config(member)
        here = self.directory.absolute()
        names = [name for name in (config.search.reference, config.system.template) if name]
        return Job(
            directory=str(member.directory.absolute()),
            settings=config.model_dump(),
            files={name: str(here / name) for name in names},
            stop=str(here / STOP),
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self.directory / LOCK, "w", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise NuggetError(f"{self.directory}: this campaign runs already.") from None
            file.write("\n")
            file.flush()
            # The clock of the file system, which may be another machine's.
            self._begun = (self.directory / LOCK).stat().st_mtime
            yield


def _told(campaign: Campaign) -> tuple[Any, ...]:
    """What a campaign is, whatever runs it."""
    base = campaign.base.model_dump(exclude={"execution"})
    return base, {key: list(values) for key, values in campaign.vary.items()}, campaign.repeats


def with_execution(campaign: Campaign, changed: Mapping[str, Any]) -> ExecutionConfig:
    """Where it runs: as its settings say, but for what is given now."""
    told = campaign.base.execution.model_dump()
    if changed.get("kind", "dask") != "dask":  # what was told for Dask means nothing elsewhere
        told = {key: told[key] for key in ("workers", "max_losses", "heartbeat")}
    told |= changed
    return make_config({"execution": told}, "execution").execution
