"""Acquisitions: which candidate deserves the next expensive calculation.

Each is one class in one file of this package, marked with `@registered("acquisition")`, or an entry
point `nugget.acquisitions` of another package; see `base` for what it must do.
"""

from __future__ import annotations

import inspect

from nugget import registry
from nugget.errors import NuggetError
from nugget.search.acquisition.base import Acquisition
from nugget.search.config import SearchConfig

__all__ = ["Acquisition", "choose_acquisition", "make_acquisition"]


def make_acquisition(search: SearchConfig, name: str) -> Acquisition:
    """An acquisition by name, with kappa if it takes that, and the options of the settings."""
    takes = inspect.signature(registry.find("acquisition", name)).parameters
    kappa = {"kappa": search.kappa} if "kappa" in takes else {}
    made: Acquisition = registry.make("acquisition", name, **kappa, **search.acquisition_options)
    return made


def choose_acquisition(search: SearchConfig, has_members: bool) -> Acquisition:
    """The acquisition of the settings, for an uncertainty with or without committee members.

    "auto" is Thompson sampling with several in flight and a committee, else the lower confidence
    bound. Several minima of one bound are much alike; members of a committee differ among
    themselves. On Au13 (EMT, 4 in flight, 20 seeds) that was a median of 15.5 evaluations
    instead of 22.
    """
    name = search.acquisition
    if name == "auto":
        name = "thompson" if search.in_flight > 1 and has_members else "lcb"
    made = make_acquisition(search, name)
    if made.requires_members and not has_members:
        raise NuggetError(
            f"The acquisition {name!r} needs a committee: model.uncertainty = 'label-noise'."
        )
    return made
