"""Relaxation: of many structures at once on a model, and of few with an expensive engine."""

from nugget.relax.learning import EngineRelaxed, LearningRelaxation, relax_with_engine
from nugget.relax.run import Relaxed, relax
from nugget.relax.surfaces import on_calculator

__all__ = [
    "EngineRelaxed",
    "LearningRelaxation",
    "Relaxed",
    "on_calculator",
    "relax",
    "relax_with_engine",
]
