"""3D structures in a notebook: `nugget.report.view(atoms)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from ase import Atoms
from numpy.typing import ArrayLike

from nugget.display import counted
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.report.digest import fixed
from nugget.report.page import Structures, page, sections

_MAX_FRAMES = 500
_NAMES = {
    "force": "force, eV/Å",
    "force σ": "σ of the force, eV/Å",
    "energy σ": "σ of the atom's energy, eV",
}


@dataclass(frozen=True, repr=False)
class View:
    """3D structures for a notebook; `html` is a complete page."""

    html: str
    title: str
    height: int

    def __repr__(self) -> str:
        return f"<View: {self.title}>"

    def _repr_html_(self) -> str:
        """A sandboxed frame that may only run its own script and download files."""
        return (
            f'<iframe title="{escape(self.title)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{self.height}px;border:0" '
            f'srcdoc="{escape(self.html)}"></iframe>'
        )


def view(
    atoms: Atoms | Sequence[Atoms], values: Mapping[str, ArrayLike] | None = None, height: int = 460
) -> View:
    """Show one structure in 3D, or several in sequence.

    Atoms can be coloured by element, by forces and uncertainties if the structures have them
    (`nugget predict` writes them), and by `values`, arrays per atom by name for a single structure.
    The structure can be rotated and downloaded as xyz and CIF.
    """
    images = [atoms] if isinstance(atoms, Atoms) else list(atoms)
    if not images:
        raise NuggetError("There is nothing to view; give at least one structure.")
    if len(images) > _MAX_FRAMES:
        raise NuggetError(f"{len(images)} structures are too many; give at most {_MAX_FRAMES}.")
    if values is not None and len(images) > 1:
        raise NuggetError("values belong to a single structure; view one at a time with them.")
    structures = Structures()
    numbers = [
        structures.add(one, _label(one), _values(one, values), _energy(one)) for one in images
    ]
    names = dict.fromkeys(name for one in images for name in _values(one, values))
    film = sections.film(numbers, values={name: _NAMES.get(name, name) for name in names})
    title = images[0].get_chemical_formula()
    if len(images) > 1:
        title = f"{counted(len(images), 'structure')}, {title}"
    return View(page(title, [film], structures=structures, bare=True), title, int(height))


def _values(atoms: Atoms, given: Mapping[str, ArrayLike] | None) -> dict[str, Floats]:
    arrays: dict[str, Any] = {}
    results = {} if atoms.calc is None else atoms.calc.results
    if results.get("forces") is not None:
        arrays["force"] = np.linalg.norm(results["forces"], axis=1)
    for name, key in (("force σ", "forces_uncertainty"), ("energy σ", "energies_uncertainty")):
        values = results.get(key, atoms.arrays.get(key))
        if values is not None:
            values = np.asarray(values, float)
            arrays[name] = np.linalg.norm(values, axis=1) if values.ndim == 2 else values
    for name, numbers in (given or {}).items():
        if np.shape(numbers) != (len(atoms),):
            raise NuggetError(
                f"values[{name!r}] has shape {np.shape(numbers)}; give one number per atom, "
                f"{len(atoms)}."
            )
        arrays[name] = np.asarray(numbers, float)
    return arrays


def _energy(atoms: Atoms) -> float | None:
    energy = None if atoms.calc is None else atoms.calc.results.get("energy")
    return None if energy is None else float(energy)


def _label(atoms: Atoms) -> str:
    words = [atoms.get_chemical_formula()]
    if (energy := _energy(atoms)) is not None:
        words.append(fixed(energy))
        std = atoms.info.get("energy_uncertainty")
        words += [f"± {std:.4f} eV" if isinstance(std, float) else "eV"]
    return " ".join(words)
