"""A checkpoint of the surrogate, so that a long search resumes without training it again.

The surrogate is restored bit for bit, and everything else of the state is rebuilt from the records.
A checkpoint that does not belong to the records is ignored, and so is one whose mean function runs
code, because it would be loaded before the user is asked. A replay never uses one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from nugget.errors import NuggetError
from nugget.potential.potential import Potential
from nugget.search.learner import Learner
from nugget.storage.files import read_sealed, replacing, write_sealed

MODEL, ROWS, STATE = "checkpoint.model", "checkpoint.npz", "checkpoint.json"

#: Evaluations between two checkpoints.
EVERY = 50


def write_checkpoint(directory: Path, learner: Learner) -> None:
    """Write the surrogate of all evaluations so far."""
    if not learner.potential.is_fitted:
        return
    (directory / STATE).unlink(missing_ok=True)  # a kill leaves no pair of different age
    learner.potential.save(directory / MODEL)
    with replacing(directory / ROWS) as partial, open(partial, "wb") as file:
        arrays: dict[str, Any] = learner.potential.fitted.regression.update_state()
        np.savez(file, **arrays)
    state = {
        "records": len(learner.records),
        "verdicts": learner.verdicts,
        "start": learner.bars.online.start,
        "training": learner.training_up_to(len(learner.records)).digest(),
    }
    write_sealed(directory / STATE, state)


def restore_checkpoint(directory: Path, learner: Learner) -> int:
    """Restore the surrogate; the number of evaluations that it knows, 0 if there is none."""
    try:
        state = read_sealed(directory / STATE, "remove it")
        count, start = int(state["records"]), float(state["start"])
        if count > len(learner.records) or state["verdicts"] != learner.verdicts:
            return 0
        if state["training"] != learner.training_up_to(count).digest():
            return 0
        potential = Potential.load(directory / MODEL)
        with np.load(directory / ROWS, allow_pickle=False) as rows:
            arrays = {name: rows[name] for name in rows.files}
        potential.set_regression(potential.fitted.regression.with_update_state(arrays))
    except (OSError, NuggetError, KeyError, TypeError, ValueError, BadZipFile):
        return 0
    if potential.fitted.lean:
        return 0
    learner.restore(potential, count, start)
    return count
