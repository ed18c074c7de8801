"""Active-learning search for the structure of lowest energy."""

from __future__ import annotations

from nugget import lazy_names

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "nugget.search.search": "Search Result",
        "nugget.search.search_settings": "Config make_config read_config",
    },
)
