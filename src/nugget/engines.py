"""Engines: `nugget.evaluation.engines` under its public name."""

from nugget.evaluation import engines as _engines
from nugget.evaluation.engines import *  # noqa: F403

__all__: list[str] = []
__all__ += _engines.__all__
