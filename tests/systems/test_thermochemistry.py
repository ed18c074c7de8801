"""Chemical potentials of gases against statistical mechanics and published values."""

from __future__ import annotations

import numpy as np
import pytest
from ase.build import molecule
from ase.thermochemistry import IdealGasThermo
from ase.units import invcm, kB

from nugget.errors import NuggetError
from nugget.systems.thermochemistry import GASES, STANDARD, gas_potential

#: Harmonic wave numbers (1/cm), shape, symmetry number and spin of the molecules.
MOLECULES = {
    "O2": ([1580], "linear", 2, 1),
    "H2": ([4401], "linear", 2, 0),
    "N2": ([2359], "linear", 2, 0),
    "CO": ([2170], "linear", 1, 0),
    "CO2": ([667, 667, 1333, 2349], "linear", 2, 0),
    "H2O": ([1595, 3657, 3756], "nonlinear", 2, 0),
}


@pytest.mark.parametrize("name", list(GASES))
@pytest.mark.parametrize("temperature", [300.0, 600.0, 1000.0, 1200.0])
@pytest.mark.parametrize("pressure", [1.0, 1e-9])
def test_against_an_ideal_gas(name: str, temperature: float, pressure: float) -> None:
    """Rigid rotor and harmonic oscillator; the tables contain more, a few meV at 1200 K."""
    waves, shape, symmetry, spin = MOLECULES[name]
    energies = np.array(waves) * invcm
    gas = IdealGasThermo(
        vib_energies=energies, geometry=shape, atoms=molecule(name), symmetrynumber=symmetry,
        spin=spin,
    )  # fmt: skip
    expected = gas.get_gibbs_energy(temperature, 1e5 * pressure, verbose=False) - energies.sum() / 2
    # At low temperature hydrogen's rotation is not classical.
    assert gas_potential(name, temperature, pressure) == pytest.approx(expected, abs=0.009)


def test_entropies_of_the_tables() -> None:
    """J/(mol K) at 298.15 K and 1 bar (NIST-JANAF)."""
    tabulated = {"O2": 205.147, "H2": 130.680, "N2": 191.609, "CO": 197.653, "CO2": 213.795,
                 "H2O": 188.834}  # fmt: skip
    for name, entropy in tabulated.items():
        fit = next(one for one in GASES[name].ranges if one.high >= STANDARD)
        assert fit.entropy(STANDARD) == pytest.approx(entropy, abs=0.02)
        assert fit.enthalpy(STANDARD) == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [(300, -0.27), (400, -0.38), (500, -0.50), (600, -0.61), (700, -0.73), (800, -0.85),
     (900, -0.98), (1000, -1.10)],
)  # fmt: skip
def test_oxygen_of_reuter_and_scheffler(temperature: float, expected: float) -> None:
    """Phys. Rev. B 65, 035406, at 1 atm, rounded to two decimals."""
    assert gas_potential("O2", temperature, 1.01325) / 2 == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("name", list(GASES))
def test_ranges_join(name: str) -> None:
    for one, other in zip(GASES[name].ranges, GASES[name].ranges[1:], strict=False):
        assert one.high == other.low
        assert one.enthalpy(one.high) == pytest.approx(other.enthalpy(one.high), abs=0.03)
        assert one.entropy(one.high) == pytest.approx(other.entropy(one.high), abs=0.03)


def test_pressure_adds_a_logarithm() -> None:
    change = gas_potential("N2", 700.0, 1e-6) - gas_potential("N2", 700.0, 1.0)
    assert change == pytest.approx(kB * 700.0 * np.log(1e-6), abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [(("Xe", 300.0, 1.0), "not a tabulated gas"), (("O2", 50.0, 1.0), "100 to 2000 K"),
     (("CO2", 1500.0, 1.0), "1200 K"), (("O2", 300.0, 0.0), "above 0")],
)  # fmt: skip
def test_out_of_range(arguments: tuple[str, float, float], match: str) -> None:
    with pytest.raises(NuggetError, match=match):
        gas_potential(*arguments)
