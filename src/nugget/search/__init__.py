"""Active-learning search for the structure of lowest energy."""

from nugget import lazy_names

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "nugget.search.loop": "Search Result",
        "nugget.search.config": "Config make_config read_config",
    },
)
