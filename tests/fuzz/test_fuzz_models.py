"""Damaged and forged model files."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster
from mutations import damaged_array, damaged_bytes, damaged_text
from outcomes import READ, REFUSED, SAME, attempt, in_children, judge

from nugget import CUR, SOAP, LabelNoise, Potential, ProjectedProcess
from nugget.potential import model_archive as _archive
from nugget.potential.mean_functions.base import SpeciesEnergies
from nugget.potential.mean_functions.pair_terms import Repulsion

TEST = [gold_cluster(8, 99), gold_cluster(5, 98)]


def labelled(n: int, seed: int):
    atoms = gold_cluster(n, seed)
    work = atoms.copy()
    work.calc = EMT()
    results = {"energy": work.get_potential_energy(), "forces": work.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


MORE = [labelled(6, 77)]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("models")
    train = [labelled(7, s) for s in range(4)]
    found = []
    for k, uncertainty in enumerate([LabelNoise(), LabelNoise(members=5), ProjectedProcess()]):
        prior = [SpeciesEnergies(), Repulsion(reach=1.1)]
        pot = Potential(SOAP(["Au"], 5.0), None, CUR(20), uncertainty=uncertainty, prior=prior)
        pot.fit(train).save(folder / f"{k}.model")
        numbers(folder / f"{k}.model", learn=True)  # all loops are compiled before children start
        found.append((folder / f"{k}.model").read_bytes())
    pot.save(folder / "lean.model", lean=True)
    return [*found, (folder / "lean.model").read_bytes()]


def numbers(path: Path, learn: bool = False) -> list:
    """Everything that a user would see of a model."""
    pot = Potential.load(path)
    found = pot.predict(TEST, uncertainty_gradient=True, energies_uncertainty=True)
    out = [found.energy, found.energy_uncertainty, *found.forces, *found.uncertainty_gradient]
    if learn:
        out.append(pot.update(MORE).predict(TEST).energy)
    return [value.tolist() for value in out]


def members(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content)) as archive:
        return {name: archive[name] for name in archive.files if name != "checksum"}


def tampered(content: bytes, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The arrays of a model, of which one was changed, exchanged, removed or added."""
    arrays = members(content)
    names = [name for name in arrays if name != "header"]
    one, other = (str(name) for name in rng.choice(names, 2, replace=False))
    kind = rng.choice(["array", "swap", "drop", "more", "header"], p=[0.55, 0.1, 0.1, 0.05, 0.2])
    if kind == "array":
        arrays[one] = damaged_array(arrays[one], rng)
    elif kind == "swap":
        arrays[one], arrays[other] = arrays[other], arrays[one]
    elif kind == "drop":
        del arrays[one]
    elif kind == "more":
        arrays["uncertainty/more"] = np.ones(3)
    else:
        text = json.dumps(json.loads(arrays["header"].tobytes()), indent=1)
        arrays["header"] = np.frombuffer(damaged_text(text, rng), np.uint8)
    return arrays


def damaged(models: list[bytes], folder: Path, case: int) -> tuple[str, str]:
    """Damage that leaves the checksum as it was: refused, or the same numbers."""
    rng = np.random.default_rng([1, case])
    content, path = models[case % len(models)], folder / "damaged.model"
    path.write_bytes(content)
    expected = numbers(path)
    if rng.random() < 0.6:
        path.write_bytes(damaged_bytes(content, rng))
    else:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            seal = archive.read("checksum.npy")
        with open(path, "wb") as file:
            np.savez(file, **tampered(content, rng))
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("checksum.npy", seal)
    return attempt(lambda: numbers(path), expected)


def forged(models: list[bytes], folder: Path, case: int) -> tuple[str, str]:
    """Damage with a right checksum: no crash and no traceback, whatever the numbers are."""
    rng = np.random.default_rng([2, case])
    path = folder / "forged.model"
    _archive.write(path, tampered(models[case % len(models)], rng))
    with np.errstate(all="ignore"):
        return attempt(lambda: numbers(path, learn=True))


def run(work, models, folder, n, allowed):
    outcomes = in_children(lambda case: work(models, folder, case), range(n), folder / "out")
    return judge(outcomes, allowed)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("n_damaged", "n_forged"), [(40, 40), pytest.param(700, 500, marks=pytest.mark.slow)]
)
def test_models(models, tmp_path, n_damaged, n_forged):
    counts = run(damaged, models, tmp_path, n_damaged, {REFUSED, SAME})
    assert counts[REFUSED] > 0.8 * n_damaged
    counts = run(forged, models, tmp_path, n_forged, {REFUSED, SAME, READ})
    assert counts[REFUSED] > 0.5 * n_forged
