"""Relaxation of candidates on a surface, of clusters and of crystals."""

from __future__ import annotations

from ase import Atoms

from nugget.generators import Crystal, Problem
from nugget.potential.priors import FixedPrior
from nugget.potential.surface import Surface
from nugget.relax import relax
from nugget.relax.springs import Springs
from nugget.search.config import SearchConfig
from nugget.search.crystals import relax_crystals


def relax_candidates(
    problem: Problem | Crystal,
    images: list[Atoms],
    surface: Surface | FixedPrior,
    search: SearchConfig,
) -> list[Atoms]:
    """Relaxed structures that are still sensible; molecules are held nearly rigid by springs."""
    if not images:
        return []
    if isinstance(problem, Crystal):
        return relax_crystals(problem, images, surface, search)
    held: Surface | FixedPrior | Springs = surface
    if problem.units and search.molecule_stiffness:
        rules = problem.rules
        held = Springs(surface, rules.held, rules.lengths, search.molecule_stiffness)
    done = relax(images, held, search.fmax, search.relax_steps, problem.region, runaway=10.0)
    valid = []
    for before, after in zip(images, done, strict=True):
        if after.ok and problem.fault(after.atoms.positions) is None:
            after.atoms.info["generator"] = before.info["generator"]
            valid.append(after.atoms)
    return valid
