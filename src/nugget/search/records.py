"""From proposals to records: before an evaluation, and after it."""

from __future__ import annotations

from dataclasses import replace

from nugget.evaluation.outcome import Outcome
from nugget.search.learner import Proposal
from nugget.search.store import UNFINISHED, Record


def make_pending(
    ordinal: int, learnt: int, proposal: Proposal, kappa: float, seconds: float = 0.0
) -> Record:
    """What is written down of an evaluation before it is done."""
    return Record(
        iteration=UNFINISHED,
        atoms=proposal.atoms,
        generator=proposal.generator,
        predicted=proposal.predicted,
        sigma=proposal.sigma,
        scale=proposal.scale,
        kappa=kappa,
        acquisition=proposal.acquisition,
        surrogate_seconds=seconds,
        proposal=ordinal,
        learnt=learnt,
    )


def complete(pending: Record, iteration: int, outcome: Outcome, relaxed: bool = False) -> Record:
    """What is written down afterwards; `relaxed` if the engine may have moved the atoms."""
    return replace(
        pending,
        iteration=iteration,
        atoms=outcome.atoms,
        failure=outcome.failure or "",
        reason=outcome.reason,
        engine_seconds=outcome.seconds,
        asked=pending.atoms.positions.copy() if relaxed and outcome.ok else None,
    )
