"""Engines: `nugget.evaluation.engines` under its public name."""

from nugget.evaluation.engines import (
    DEFAULT,
    Engine,
    EngineInfo,
    describe_engines,
    engines,
    get_engine,
    make_calculator,
)

__all__ = [
    "DEFAULT",
    "Engine",
    "EngineInfo",
    "describe_engines",
    "engines",
    "get_engine",
    "make_calculator",
]
