"""Systems that a search can look for: clusters, surfaces, bulk cells, crystals, compositions.

`base.System` is the contract; `system_settings` connects kinds of systems to settings. A new kind
is one new file of this package, or an entry point of the group `nugget.systems`.
"""

from __future__ import annotations

from nugget.systems.base import Failure, System
from nugget.systems.compositions import Compositions
from nugget.systems.crystal import Crystal
from nugget.systems.grand_canonical import VariedAtoms
from nugget.systems.placed_atoms import PlacedAtoms

__all__ = ["Compositions", "Crystal", "Failure", "PlacedAtoms", "System", "VariedAtoms"]
