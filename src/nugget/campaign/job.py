"""One search of a campaign, as a function that any worker can run, any number of times.

The directory of a search holds its state: when a worker is lost, another one continues from there.
A search that has ended is only read.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nugget.campaign.results import Outcome, examine, has_ended, keep, read_outcome
from nugget.errors import NuggetError
from nugget.search.config import Config, make_config, read_config
from nugget.search.loop import Search
from nugget.search.prepare import code_of
from nugget.search.run import Status
from nugget.search.store import SETTINGS, Store

#: Seconds to wait for a search that another worker holds. A scheduler may give up a worker that is
#: still alive; its search is then finished by one of the two, never by both.
PATIENCE = 600.0


@dataclass(frozen=True)
class Job:
    """What a worker needs to know; plain data."""

    directory: str
    settings: dict[str, Any]
    base: str  # the directory that the file names in the settings are relative to
    stop: str  # when this file is there, searches stop after the evaluation in flight


def run_search(job: Job) -> Outcome | None:
    """Run a search to its end, from where it stands; None if it was stopped before that.

    An exception becomes the outcome's `error`, so that the campaign goes on.
    """
    directory = Path(job.directory)
    if Path(job.stop).exists():
        return None
    known = read_outcome(directory)
    if known is not None and not known.error:
        return known
    try:
        outcome = _to_the_end(directory, job)
    except Exception as error:
        reason = (
            str(error) if isinstance(error, NuggetError) else f"{type(error).__name__}: {error}"
        )
        outcome = given_up(directory, reason)
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
    outcome = examine(search.store)
    return None if result.interrupted and not has_ended(outcome, search.store) else outcome


def _open(directory: Path, job: Job) -> Search:
    if (directory / SETTINGS).exists():
        # The campaign's own settings were trusted when it was begun; nothing else is.
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
    """The outcome of a search that ended with an error, with what it had done by then."""
    done = Outcome()
    if (directory / SETTINGS).exists():
        with contextlib.suppress(NuggetError):  # what is damaged cannot be counted
            done = examine(Store.open(directory))
    else:
        directory.mkdir(parents=True, exist_ok=True)
    return replace(done, error=" ".join(reason.split()))


def check_settings(directory: Path, ours: Config) -> None:
    """A search that is there already must be the one that the grid asks for."""
    if not (directory / SETTINGS).exists():
        return
    theirs = read_config(directory / SETTINGS)
    a, b = (config.model_dump(exclude={"execution"}) for config in (theirs, ours))
    wrong = [
        f"{section}.{key} is {a[section][key]!r} there and {value!r} here"
        for section, values in b.items()
        for key, value in values.items()
        if a[section][key] != value
    ]
    if wrong:
        raise NuggetError(
            f"{directory} holds another search: {'; '.join(wrong[:3])}. Move it away, or give the "
            "campaign the same settings."
        )
