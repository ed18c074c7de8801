"""Active-learning search for the structure of lowest energy."""

from importlib import import_module
from typing import Any

_HOME = {
    "Search": "nugget.search.loop",
    "Result": "nugget.search.loop",
    "Config": "nugget.search.config",
    "make_config": "nugget.search.config",
    "read_config": "nugget.search.config",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'nugget.search' has no attribute {name!r}")
