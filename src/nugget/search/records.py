"""From proposals to records, before and after an evaluation; which results are believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from nugget.evaluation.outcome import Outcome
from nugget.evaluation.plausibility import Judge, doubt
from nugget.search.learner import Learner
from nugget.search.proposal import Proposal
from nugget.search.store import UNFINISHED, Record


def make_pending(
    ordinal: int, n_observed: int, proposal: Proposal, kappa: float, seconds: float = 0.0
) -> Record:
    """The record of an evaluation that is about to start."""
    return Record(
        iteration=UNFINISHED,
        atoms=proposal.atoms,
        generator=proposal.generator,
        predicted=proposal.predicted,
        std=proposal.std,
        scale=proposal.scale,
        kappa=kappa,
        acquisition=proposal.acquisition,
        purpose=proposal.purpose,
        surrogate_seconds=seconds,
        proposal=ordinal,
        n_observed=n_observed,
        draws=proposal.draws,
        walkers=proposal.walkers,
    )


def complete(pending: Record, iteration: int, outcome: Outcome, relaxed: bool = False) -> Record:
    """The record of a completed evaluation; `relaxed` if the engine may have moved the atoms."""
    return replace(
        pending,
        iteration=iteration,
        atoms=outcome.atoms,
        failure=outcome.failure or "",
        reason=outcome.reason,
        engine_seconds=outcome.seconds,
        proposed_positions=pending.atoms.positions.copy() if relaxed and outcome.ok else None,
    )


def make_judge(learner: Learner) -> Judge:
    """Judges results by what the search knows at the time."""

    def judge(atoms: Atoms) -> str | None:
        known = [*learner.learned, *learner.good]
        good = [
            record
            for record in known
            if "forces" in record.atoms.calc.results
            and learner.goal.comparable(atoms, record.atoms)
        ]
        energies = [record.energy / len(record.atoms) for record in good]
        forces = [float(_norms(record.atoms).max()) for record in good]
        reason = doubt(atoms, energies, forces)
        if reason is None or not learner.potential.is_fitted:
            return reason
        found = learner.potential.predict([atoms], forces=False)
        assert found.energy_uncertainty is not None
        expected = (float(found.energy[0]), learner.bars.bold * float(found.energy_uncertainty[0]))
        return doubt(atoms, energies, forces, expected)

    return judge


def _norms(atoms: Atoms) -> NDArray[np.float64]:
    return np.linalg.norm(atoms.calc.results["forces"], axis=1)
