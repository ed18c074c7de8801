"""matcalc with the calculator of a model file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from example_structures import emt_labelled

from nugget import RBF, SOAP, Potential, load_calculator


@pytest.mark.slow
def test_gold_like_emt(tmp_path: Path):
    """Equation of state, elastic constants and phonons of the potential that was learned."""
    matcalc = pytest.importorskip("matcalc")
    adaptor = pytest.importorskip("pymatgen.io.ase").AseAtomsAdaptor
    rng, images = np.random.default_rng(0), []
    for _ in range(25):
        atoms = bulk("Au", cubic=True).repeat((2, 2, 1))
        strain = rng.normal(0, 0.02, (3, 3)) + rng.uniform(-0.12, 0.12) * np.eye(3)
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + strain), True)
        atoms.positions += rng.normal(0, rng.uniform(0.01, 0.1), atoms.positions.shape)
        images.append(emt_labelled(atoms, "stress"))
    potential = Potential(SOAP(("Au",), 5.0, 6, 4), RBF(15.0)).fit(images, use_stress=True)
    potential.save(tmp_path / "au.model")
    gold, cells = adaptor.get_structure(bulk("Au")), ((3, 0, 0), (0, 3, 0), (0, 0, 3))

    def properties(calculator: object) -> tuple[np.ndarray, float]:
        state = matcalc.EOSCalc(calculator, fmax=0.01).calc(gold)
        elastic = matcalc.ElasticityCalc(calculator, fmax=0.01).calc(gold)
        phonons = matcalc.PhononCalc(calculator, fmax=0.01, supercell_matrix=cells).calc(gold)
        tensor = elastic["elastic_tensor"].voigt
        thermal = phonons["thermal_properties"]
        place = list(thermal["temperatures"]).index(300)
        return (
            np.array([state["bulk_modulus_bm"], 160.2 * tensor[0, 0], 160.2 * tensor[3, 3]]),
            float(thermal["heat_capacity"][place]),
        )

    learned, capacity = properties(load_calculator(tmp_path / "au.model"))
    exact, exact_capacity = properties(EMT())
    assert np.allclose(learned, exact, rtol=0.05)
    assert capacity == pytest.approx(exact_capacity, abs=0.1)
