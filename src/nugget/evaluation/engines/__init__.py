"""Expensive calculators by name: what there is, what is installed, how to get the rest.

An engine is a factory of ASE calculators. Each file of this package defines one family of them in
a tuple `ENGINES`; a new engine is one new file. Other packages add names through the entry-point
group `nugget.engines` (each entry an `Engine`, or a factory), and `module:factory` names any
function that returns a calculator.
"""

from nugget.evaluation.engines._base import Electrons, Engine
from nugget.evaluation.engines._box import Boxed
from nugget.evaluation.engines._lookup import (
    DEFAULT,
    EngineInfo,
    describe_engines,
    engines,
    get_engine,
    make_calculator,
    start_directory,
)

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
