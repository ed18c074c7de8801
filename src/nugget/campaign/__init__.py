"""Many searches: a grid of settings and seeds, run anywhere, and how often they succeed."""

from importlib import import_module
from typing import Any

_HOME = {
    "Campaign": "nugget.campaign.run",
    "KaplanMeier": "nugget.campaign.survival",
    "fisher": "nugget.campaign.survival",
    "holm": "nugget.campaign.survival",
    "logrank": "nugget.campaign.survival",
    "wilson": "nugget.campaign.survival",
    "read_csv": "nugget.campaign.results",
    "summarise": "nugget.campaign.summary",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'nugget.campaign' has no attribute {name!r}")
