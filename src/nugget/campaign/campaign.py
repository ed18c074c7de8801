"""A campaign: a grid of searches in one directory, run by any executor and resumable at any time.

`run_search` is the job of a worker. The directory of a search holds its state, so when a worker is
lost, another one continues from there; a search that has ended is only read. `Campaign` makes the
grid, distributes the jobs and collects their outcomes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nugget.campaign.grid import Setting, make_settings
from nugget.campaign.results import Outcome, Row, examine, keep, read_outcome
from nugget.campaign.statistics import KaplanMeier
from nugget.engines.engine_settings import ExecutionConfig, require_trust
from nugget.engines.execution import require_alive
from nugget.errors import NuggetError
from nugget.search.loop import Status
from nugget.search.prepare import check, code_of, copied_names, copy_files, locate, with_files
from nugget.search.search import Search
from nugget.search.search_settings import Config, differs, make_config, read_config, write_config
from nugget.search.store import LOG, SETTINGS, STATUS, Store
from nugget.storage.files import LOCK, locked, open_file, refuse_link, write_atomically

#: Seconds to wait for a search that another worker holds. A scheduler may give up a worker that is
#: still alive; its search is then finished by one of the two, never by both.
PATIENCE = 600.0


@dataclass(frozen=True)
class Job:
    """The arguments of a worker, as plain data."""

    directory: str
    settings: dict[str, Any]
    base: str  # the directory that the file names in the settings are relative to
    stop: str  # if this file exists, searches stop after the evaluations in flight


def run_search(job: Job) -> Outcome | None:
    """Run a search to its end, or resume it; None if it was stopped before its end.

    An exception becomes the outcome's `error`, so that the campaign continues.
    """
    directory = Path(job.directory)
    if Path(job.stop).exists():
        return None
    earlier = read_outcome(directory)
    if earlier is not None and not earlier.error:
        return earlier
    try:
        outcome = _to_the_end(directory, job)
    except Exception as error:
        kind = "" if isinstance(error, NuggetError) else f"{type(error).__name__}: "
        outcome = given_up(directory, f"{kind}{error}")
    if outcome is not None:
        keep(directory, outcome)
    return outcome


def _to_the_end(directory: Path, job: Job) -> Outcome | None:
    search = _open(directory, job)
    _wait_for_others(search.store)

    def watch(status: Status) -> None:
        if os.path.exists(job.stop):
            search.stop()

    result = search.run(watch)
    return None if result.interrupted else examine(search.store)


def _open(directory: Path, job: Job) -> Search:
    if (directory / SETTINGS).exists():
        # The campaign's own settings were trusted when it began; nothing else is.
        return Search.resume(directory, trusted=code_of(make_config(job.settings), Path(job.base)))
    return Search.create(make_config(job.settings), directory, Path(job.base))


def _wait_for_others(store: Store) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with store.locked():
                return
        except NuggetError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)


def given_up(directory: Path, reason: str) -> Outcome:
    """The outcome of a search that ended with an error, with the evaluations until then."""
    outcome = Outcome()
    if (directory / SETTINGS).exists():
        with contextlib.suppress(NuggetError):  # a damaged database cannot be counted
            outcome = examine(Store.open(directory))
    else:
        directory.mkdir(parents=True, exist_ok=True)
    return replace(outcome, error=" ".join(reason.split()))


def check_settings(directory: Path, ours: Config) -> None:
    """Refuse a search that exists already and has other settings than the grid."""
    if not (directory / SETTINGS).exists():
        return
    theirs = read_config(directory / SETTINGS)
    a, b = (config.model_dump(exclude={"execution"}) for config in (theirs, ours))
    wrong = [
        f"{section}.{key} is {a[section][key]!r} there and {value!r} here"
        for section, values in b.items()
        for key, value in values.items()
        if differs(section, key, value, a[section][key])
    ]
    if wrong:
        raise NuggetError(
            f"{directory} holds another search: {'; '.join(wrong[:3])}. Move it away, or give the "
            "campaign the same settings."
        )


CAMPAIGN, RUNS, STOP = "campaign.toml", "runs", "stop"


@dataclass(frozen=True)
class Member:
    """One search of the grid."""

    setting: Setting
    seed: int
    directory: Path


@dataclass(frozen=True)
class Progress:
    """The progress of the searches with one setting."""

    setting: Setting
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
        self.settings = make_settings(base, vary)
        first = base.search.seed
        # Seeds are the outer loop, so that interim results of all settings can be compared.
        self.members = [
            Member(setting, seed, directory / RUNS / setting.name / f"seed-{seed:04d}")
            for seed in range(first, first + repeats)
            for setting in self.settings
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
        """A new campaign; searches that exist in its directories already become part of it.

        File names in the settings are relative to `base`, or to the current directory. All settings
        are checked before anything is written.
        """
        directory = Path(directory)
        if repeats < 1:
            raise NuggetError(f"--repeats is {repeats}; give 1 or more.")
        files = locate(config, base)
        config = with_files(config, copied_names(files))
        campaign = cls(directory, config, dict(vary), repeats)
        if not (directory / CAMPAIGN).exists():
            for setting in campaign.settings:
                check(setting.config, files)
            for member in campaign.members:
                check_settings(member.directory, campaign._config(member))
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory):  # another process may create a campaign there at the same time
            there = (directory / CAMPAIGN).exists()
            if there and _identity(cls._read(directory)[0]) != _identity(campaign):
                raise NuggetError(
                    f"{directory} holds another campaign: continue it with `nugget campaign "
                    f"--resume {directory}`, or choose another directory with --out."
                )
            copy_files(files, directory, config)
            campaign._write()
        return campaign

    @classmethod
    def resume(
        cls, directory: str | Path, repeats: int | None = None, trust: bool = False
    ) -> Campaign:
        """The campaign in this directory; `repeats` may add seeds.

        Settings that name code are refused unless `trust` is set.
        """
        campaign, former = cls._read(Path(directory), repeats)
        configs = [campaign.base, *(setting.config for setting in campaign.settings)]
        code = dict.fromkeys(c for config in configs for c in code_of(config, campaign.directory))
        require_trust(code, str(directory), trust)
        if campaign.repeats != former:
            with locked(campaign.directory):
                campaign._write()
        return campaign

    @classmethod
    def _read(cls, directory: Path, repeats: int | None = None) -> tuple[Campaign, int]:
        """The campaign in this directory and its number of repeats; nothing is run or written."""
        file = directory / CAMPAIGN
        try:
            settings = tomllib.loads(file.read_text(encoding="utf-8"))
            vary = {key: [str(v) for v in values] for key, values in settings["vary"].items()}
            base, former = make_config(settings["base"], str(file)), int(settings["repeats"])
        except OSError:
            raise NuggetError(f"{directory} holds no campaign ({CAMPAIGN} is missing).") from None
        except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise NuggetError(
                f"{file} is not a campaign's: it must have base, vary and repeats ({error})."
            ) from None
        if repeats is not None and repeats < former:
            raise NuggetError(f"{directory} has {former} repeats; --repeats can only raise that.")
        return cls(directory, base, vary, repeats or former), former

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
        """The outcomes so far, setting by setting."""
        order = {setting.name: k for k, setting in enumerate(self.settings)}
        members = sorted(self.members, key=lambda m: (order[m.setting.name], m.seed))
        done = self._outcomes
        return [
            Row(m.setting.values, m.seed, done[m.directory]) for m in members if m.directory in done
        ]

    def run(self, executor: Executor, watch: Watcher | None = None) -> list[Row]:
        """Run all searches that have not ended; failed ones are tried again."""
        with locked(self.directory):
            for member in self.members:
                for place in (member.directory, *member.directory.parents[:2]):
                    refuse_link(place)
            # The time by the clock of the file system, which may belong to another machine.
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
        # Jobs are not cancelled on a stop, because a Dask future does not know whether it has
        # begun. Jobs that have not begun see the stop file and return at once.
        while futures:
            self._take(futures, watch, timeout=0.5)
            require_alive(executor)
        return self.rows()

    def _take(
        self, futures: dict[Future[Any], Member], watch: Watcher | None, timeout: float
    ) -> None:
        """Collect the results of the searches that have ended."""
        done, _ = wait(futures, timeout, FIRST_COMPLETED)
        for future in done:
            member = futures.pop(future)
            try:
                outcome = future.result()
            except Exception as error:  # the worker was lost too often, or cannot start
                outcome = given_up(member.directory, str(error) or type(error).__name__)
                keep(member.directory, outcome)
            if outcome is None:
                continue
            self._outcomes[member.directory] = outcome
            if watch is not None:
                row = Row(member.setting.values, member.seed, outcome)
                watch(row, len(self._outcomes), len(self.members))

    def stop(self) -> None:
        """Start no more searches; running ones stop after the evaluations in flight."""
        self._stopping = True
        open_file(self.directory / STOP).close()

    @property
    def stopped(self) -> bool:
        """Was it stopped before all searches had ended?"""
        return self._stopping and len(self._outcomes) < len(self.members)

    def progress(self) -> list[Progress]:
        """The progress of each setting; fast enough to be called every second."""
        return [self._progress(setting) for setting in self.settings]

    def _progress(self, setting: Setting) -> Progress:
        members = [member for member in self.members if member.setting is setting]
        done = dict(self._outcomes)  # a copy: the display calls this from another thread
        ended = [done[m.directory] for m in members if m.directory in done]
        running = [m for m in members if m.directory not in done and self._runs(m.directory)]
        times = [o.evaluations_to_solution or o.evaluations for o in ended]
        solved = [bool(o.found) for o in ended]
        errors = sum(bool(o.error) for o in ended)
        median = KaplanMeier.of(times, solved).median if ended else None
        counts = (len(members), len(ended), len(running), sum(solved), errors)
        return Progress(setting, *counts, median)

    def _runs(self, directory: Path) -> bool:
        """Has the search written anything in this run of the campaign, and not ended since?"""
        if (directory / STATUS).exists():
            return False
        for name in (LOG, SETTINGS):
            with contextlib.suppress(OSError):
                if (directory / name).stat().st_mtime >= self._begun > 0:
                    return True
        return False

    def _config(self, member: Member) -> Config:
        search = member.setting.config.search.model_copy(update={"seed": member.seed})
        # The campaign decides where searches run.
        return member.setting.config.model_copy(
            update={"search": search, "execution": ExecutionConfig()}
        )

    def _job(self, member: Member) -> Job:
        here, settings = self.directory.absolute(), self._config(member).model_dump()
        return Job(str(member.directory.absolute()), settings, str(here), str(here / STOP))


def _identity(campaign: Campaign) -> tuple[Any, ...]:
    """What distinguishes campaigns: all settings except those of execution."""
    base = campaign.base.model_dump(exclude={"execution"})
    return base, {key: list(values) for key, values in campaign.vary.items()}, campaign.repeats


def with_execution(campaign: Campaign, changed: Mapping[str, Any]) -> ExecutionConfig:
    """Where a campaign runs: its own settings, overridden by `changed`."""
    settings = campaign.base.execution.model_dump()
    if changed.get("kind", "dask") != "dask":  # only Dask uses the others
        settings = {"workers": settings["workers"]}
    settings |= changed
    execution = make_config({"execution": settings}, "execution").execution
    if execution.kind == "jobs":
        raise NuggetError(
            'execution.kind = "jobs" submits evaluations of one search, not the searches of a '
            'campaign; use kind = "dask", or run the campaign inside one job.'
        )
    return execution
