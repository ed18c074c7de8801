"""What potentials and predictions tell about themselves is true."""

import numpy as np
from ase.build import bulk
from ase.calculators.emt import EMT

from nugget import RBF, SOAP, Potential
from nugget.potential import Prediction


def images(number):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(number):
        atoms = bulk("Cu", cubic=True)
        atoms.positions += rng.normal(0, 0.1, (4, 3))
        atoms.calc = EMT()
        atoms.get_forces()
        found.append(atoms)
    return found


def test_potential(tmp_path):
    potential = Potential(SOAP(("Cu",), 4.0), RBF(20.0), seed=7)
    assert repr(potential) == "<Potential: Cu, SOAP, Posterior, not fitted>"
    assert "SOAP(species=(&#x27;Cu&#x27;,), cutoff=4.0" in potential._repr_html_()
    potential.fit(images(5), calibrate="loo")
    points = len(potential.fitted.inducing)
    line = (
        f"<Potential: Cu, SOAP, Posterior, fitted to 5 structures (energies, forces), "
        f"{points} inducing points, calibrated>"
    )
    assert repr(potential) == line
    assert "leave-one-out" in potential._repr_html_()
    potential.save(tmp_path / "lean.model", lean=True)
    lean = repr(Potential.load(tmp_path / "lean.model"))
    assert "fitted to 5 structures" in lean
    assert lean.endswith("calibrated, lean>")
    energies = Potential(SOAP(("Cu",), 4.0)).fit(images(3), use_forces=False)
    assert "(energies), " in repr(energies)
    assert repr(energies).endswith("not calibrated>")


def test_prediction():
    potential = Potential(SOAP(("Cu",), 4.0)).fit(images(5))
    found = potential.predict(images(3))
    assert repr(found).startswith("<Prediction: 3 structures, energy ")
    assert repr(found).endswith(" eV, forces>")
    html = found._repr_html_()
    for energy, std in zip(found.energy, found.energy_uncertainty, strict=True):
        assert f">{energy:.4f}<" in html
        assert f">{std:.4f}<" in html
    largest = np.linalg.norm(found.forces[2], axis=1).max()
    assert f">{largest:.3f}<" in html
    bare = potential.predict(images(1), forces=False, uncertainty=False)
    assert repr(bare) == f"<Prediction: 1 structure, energy {bare.energy[0]:.3f} eV>"
    assert repr(Prediction(np.zeros(0))) == "<Prediction: 0 structures>"
