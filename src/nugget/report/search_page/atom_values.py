"""Numbers per atom: forces of the engine, and energies and σ of a model of the search.

The model is fitted again to the search's own evaluations, with the search's settings. Energies of
atoms are shown against the mean of their element: what one atom of an element costs is arbitrary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.calibration import OnlineScale
from nugget.errors import NuggetError
from nugget.evaluation.trust import require_trust
from nugget.potential.potential import Potential
from nugget.search.baseline import baseline_code
from nugget.search.config import Config
from nugget.search.model import make_potential, measure_length
from nugget.search.prepare import make_problem
from nugget.search.store import Record

#: Names of the numbers per atom, and how readers know them.
NAMES = {"force": "force (eV/Å)", "energy": "energy (eV)", "std": "σ (eV)"}
#: A model of more structures would take minutes and look the same.
AT_MOST = 300


def forces_of(atoms: Atoms) -> Floats | None:
    """Lengths of the engine's forces; None where it gave none."""
    found = {} if atoms.calc is None else atoms.calc.results
    if found.get("forces") is None:
        return None
    return np.asarray(np.linalg.norm(found["forces"], axis=1))


class AtomModel:
    """A model of a search that gives numbers per atom."""

    def __init__(
        self, potential: Potential, scale: float, means: dict[int, float], count: int
    ) -> None:
        self._potential, self._scale, self._means = potential, scale, means
        self.count = count  # evaluations that were known

    @classmethod
    def of(
        cls, config: Config, directory: Path, records: Sequence[Record], trust: bool = False
    ) -> AtomModel | None:
        """Fitted to evaluations; None before there are enough of them.

        An engine as baseline would have to run for every structure: such a search has none.
        """
        good = [record for record in records if record.ok]
        if len(good) < config.search.initial or config.model.baseline.startswith("engine:"):
            return None
        require_trust(baseline_code(config, directory), str(directory), trust)
        problem = make_problem(config.system, directory)
        potential = make_potential(config.model, problem, config.search.seed, directory)
        images = [record.atoms for record in _chosen(good)]
        measure_length(potential, config.model, images)
        potential.fit(images, None if config.model.use_forces else False, False)
        energies = potential.predict(images, forces=False, uncertainty=False, energies=True)
        assert energies.energies is not None
        flat = np.concatenate(energies.energies)
        numbers = np.concatenate([atoms.numbers for atoms in images])
        means = {int(z): float(flat[numbers == z].mean()) for z in np.unique(numbers)}
        return cls(potential, _scale(config, good), means, len(good))

    def values(self, images: Sequence[Atoms]) -> list[dict[str, Floats]]:
        """Energies and σ of the atoms of each structure."""
        if not images:
            return []
        found = self._potential.predict(
            list(images), forces=False, uncertainty=False, energies=True, energies_uncertainty=True
        )
        assert found.energies is not None
        assert found.energies_uncertainty is not None
        made = []
        for atoms, e, std in zip(images, found.energies, found.energies_uncertainty, strict=True):
            usual = np.array([self._means.get(int(z), 0.0) for z in atoms.numbers])
            made.append({"energy": e - usual, "std": self._scale * std})
        return made


def try_model(
    config: Config, directory: Path, records: Sequence[Record], trust: bool = False
) -> tuple[AtomModel | None, str]:
    """The model, or why there is none: a page is worth making without it."""
    try:
        return AtomModel.of(config, directory, records, trust), ""
    except NuggetError as error:
        return None, str(error)


def _chosen(records: Sequence[Record]) -> list[Record]:
    """At most so many: the lowest, and others from beginning to end."""
    if len(records) <= AT_MOST:
        return list(records)
    by_atom = sorted(range(len(records)), key=lambda k: records[k].energy / len(records[k].atoms))
    spread = np.linspace(0, len(records) - 1, AT_MOST // 2).astype(int)
    kept = {*by_atom[: AT_MOST // 2], *(int(k) for k in spread)}
    return [records[k] for k in sorted(kept)]


def _scale(config: Config, records: Sequence[Record]) -> float:
    """The factor on σ that the search had learned in the end."""
    online = OnlineScale()
    for record in records:
        if record.predicted is not None and record.std:
            online = online.update(record.predicted, record.std, record.energy)
    return online.scale if config.search.calibrate else 1.0
