"""Active-learning search for the structure of lowest energy."""

from nugget import lazy_names

_HOME = {
    "Search": "nugget.search.loop",
    "Result": "nugget.search.loop",
    "Config": "nugget.search.config",
    "make_config": "nugget.search.config",
    "read_config": "nugget.search.config",
}

__all__ = sorted(_HOME)
__getattr__ = lazy_names(__name__, _HOME)
