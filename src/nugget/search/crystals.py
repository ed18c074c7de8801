"""Candidates of crystals: relaxed with their cells on a surface of the model."""

from __future__ import annotations

from collections.abc import Sequence

from ase import Atoms

from nugget.generators.crystal import Crystal
from nugget.potential._pair_loops import REACH, WELL
from nugget.potential.priors import FixedPrior
from nugget.potential.surface import Surface
from nugget.relax.cells import relax_cells
from nugget.search.config import SearchConfig
from nugget.structures.bonds import radii_of
from nugget.structures.cells import reduced


def relax_crystals(
    problem: Crystal, images: Sequence[Atoms], surface: Surface | FixedPrior, search: SearchConfig
) -> list[Atoms]:
    """Relaxed crystals that are still sensible, with reduced cells.

    A pair well knows nothing of volumes (it would crush silicon to half of its own), so cells stay
    as they are on it.
    """
    learned, cutoff = isinstance(surface, Surface), None
    if isinstance(surface, Surface):  # lists that serve the descriptor and the well
        well = 2 * REACH[WELL] * float(radii_of(problem.numbers).max())
        cutoff = max(surface.potential.descriptor.cutoff, well)
    done = relax_cells(
        images,
        surface.on_cells,
        search.fmax,
        search.relax_steps,
        pressure=problem.pressure,
        limits=problem.limits,
        cell=learned,
        cutoff=cutoff,
    )
    valid = []
    for before, after in zip(images, done, strict=True):
        if not after.ok:
            continue
        atoms = reduced(after.atoms)
        if problem.fault(atoms) is None:
            atoms.info["generator"] = before.info["generator"]
            valid.append(atoms)
    return valid
