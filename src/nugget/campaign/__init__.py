"""Many searches: a grid of settings and seeds, run anywhere, and how often they succeed."""

from nugget import lazy_names

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "nugget.campaign.run": "Campaign",
        "nugget.campaign.survival": "KaplanMeier fisher holm logrank wilson",
        "nugget.campaign.results": "read_csv",
        "nugget.campaign.summary": "summarise",
    },
)
