"""What is looked at before a fit is begun: labels, places, memory and time."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import typer

from nugget.cli import _estimate
from nugget.cli._labels import known
from nugget.errors import NuggetError

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.potential import Potential

# A fit that needs more than this is announced before it begins.
_LONG, _LARGE = 20.0, 1e9
_FEW = 5  # different structures; a smaller training set is worth a word


def check_energies(images: list[Atoms]) -> None:
    """Files that call their energy by another name are common: say which names there are."""
    for s, atoms in enumerate(images):
        names = [key for key in atoms.info if "energy" in key.lower()]
        if known(atoms, "energy") is None and names:
            raise NuggetError(
                f"Structure {s} ({atoms.get_chemical_formula()}) has no energy, but it has "
                f"{', '.join(names)}: try --energy-key {names[0]} (and --forces-key)."
            )


def check_structures(
    images: list[Atoms], elements: list[str], forces: bool | None, stress: bool
) -> None:
    """Whatever is wrong with a structure is said of its number in DATA, not in a sample."""
    from nugget.descriptors.soap import SOAP
    from nugget.potential.training import Training

    training = Training.read(images, forces, stress)
    SOAP(tuple(elements), 3.0, 1, 0).compute(training.batch)


def warn_if_few(images: list[Atoms]) -> None:
    different = {(atoms.numbers.tobytes(), atoms.positions.tobytes()) for atoms in images}
    if len(different) < _FEW:
        warnings.warn(
            f"the training set holds only {len(different)} different structure(s); "
            "error bars are as good as the variety of the data.",
            stacklevel=2,
        )


def announce(
    potential: Potential,
    images: list[Atoms],
    forces: bool | None,
    anyway: bool,
    stream: bool = False,
) -> None:
    """Say what a large fit will take; refuse one that the memory cannot hold."""
    with_forces = forces is not False and any(
        atoms.calc is not None and "forces" in atoms.calc.results for atoms in images
    )
    try:
        size = _estimate.measure(potential, images, with_forces, stream)
    except NuggetError:
        return  # bad structures: the fit names them by their numbers in DATA, not in a sample
    found, memory = _estimate.estimate_fit(size, _estimate.speed()), _estimate.available_memory()
    what = (
        f"{size.labels} labels with about {size.points} inducing points need about "
        f"{found.bytes / 1e9:.2g} GB and {duration(found.seconds)}"
    )
    if found.bytes > memory and not anyway:
        few = _estimate.points_that_fit(size, 0.9 * memory)
        hint = f"--points {few}" if few >= 10 else "fewer structures"
        also = ", --no-forces" if with_forces else ""
        also += "" if stream else ", --stream"
        raise NuggetError(
            f"{what}, but only {memory / 1e9:.2g} GB are free: try {hint}{also}, or --anyway."
        )
    if found.seconds > _LONG or found.bytes > _LARGE:
        typer.echo(f"{what}.", err=True)


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
