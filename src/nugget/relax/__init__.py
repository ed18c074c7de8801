"""Relaxation of many structures together on a model, and of few with an expensive engine."""

from __future__ import annotations

from nugget.relax.engine_relaxation import LearningRelaxation, relax_with_engine
from nugget.relax.lockstep import RelaxationEnd
from nugget.relax.relaxation import Relaxed, on_calculator, relax

__all__ = [
    "LearningRelaxation",
    "RelaxationEnd",
    "Relaxed",
    "on_calculator",
    "relax",
    "relax_with_engine",
]
