"""Expensive calculators by name, and the machinery that runs them.

An engine is a factory of ASE calculators. Each file of `nugget.engines.programs` defines one family
of them in a tuple `ENGINES`; a new engine is one new file. Other packages add engines through the
entry-point group `nugget.engines` (an `Engine` or a factory), and `module:factory` refers to any
function that returns a calculator.
"""

from __future__ import annotations

from nugget.engines.engine import (
    DEFAULT,
    Electrons,
    Engine,
    EngineInfo,
    describe_engines,
    engines,
    get_engine,
    make_calculator,
    start_directory,
)
from nugget.engines.wrappers import Boxed

__all__ = [
    "DEFAULT",
    "Boxed",
    "Electrons",
    "Engine",
    "EngineInfo",
    "describe_engines",
    "engines",
    "get_engine",
    "make_calculator",
    "start_directory",
]
