"""Many searches: a grid of settings and seeds, run anywhere, and how often they succeed."""

from __future__ import annotations

from nugget import lazy_names

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "nugget.campaign.campaign": "Campaign",
        "nugget.campaign.statistics": "KaplanMeier fisher holm logrank summarise wilson",
        "nugget.campaign.results": "read_csv",
    },
)
