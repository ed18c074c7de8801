"""The slab of adsorbate.toml: two fixed layers of Cu(111), nine atoms each, written beside it."""

from __future__ import annotations

from pathlib import Path

from ase.build import fcc111
from ase.constraints import FixAtoms

FILE = Path(__file__).with_name("slab.traj")


def main() -> None:
    slab = fcc111("Cu", (3, 3, 2), vacuum=7.0)
    # Periodic along the surface only. Leave out the constraint and the whole slab is fixed too;
    # with a constraint on the lower layer alone, the upper one takes part in the relaxations.
    slab.set_constraint(FixAtoms(indices=range(len(slab))))
    slab.write(FILE)
    print(f"Written: {FILE}")


if __name__ == "__main__":
    main()
