"""From proposals to records: before an evaluation, and after it."""

from __future__ import annotations

from dataclasses import replace

from nugget.evaluation.outcome import Outcome
from nugget.search.learner import Proposal
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
        surrogate_seconds=seconds,
        proposal=ordinal,
        n_observed=n_observed,
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
