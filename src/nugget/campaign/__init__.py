"""Many searches: a grid of settings and seeds, run anywhere, and how often they succeed."""

from nugget import lazy_names

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
__getattr__ = lazy_names(__name__, _HOME)
