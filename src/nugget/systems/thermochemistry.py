"""Chemical potentials of ideal gases from temperature and pressure.

μ(T, p) − E = H(T) − H(0) − T S(T, p°) + k_B T ln(p/p°) per molecule, with p° = 1 bar. Enthalpies
and entropies are those of the NIST-JANAF tables (M. W. Chase, J. Phys. Chem. Ref. Data, Monograph
9, 1998) in the form of Shomate's equation, with the coefficients of the NIST Chemistry WebBook (SRD
69). E is the electronic energy of the molecule, so zero-point energies are neglected, as in K.
Reuter and M. Scheffler, Phys. Rev. B 65, 035406 (2001).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ase.units import kB, kJ, mol

from nugget.errors import NuggetError

#: Temperature at which Shomate's enthalpies are zero after subtraction of H, K.
STANDARD = 298.15


@dataclass(frozen=True)
class Shomate:
    """Coefficients between two temperatures in K; enthalpies in kJ/mol, entropies in J/(mol K)."""

    low: float
    high: float
    a: float
    b: float
    c: float
    d: float
    e: float
    f: float
    g: float
    h: float = 0.0

    def enthalpy(self, temperature: float) -> float:
        """H(T) − H(298.15 K), kJ/mol."""
        t = temperature / 1000.0
        powers = self.a * t + self.b * t**2 / 2 + self.c * t**3 / 3 + self.d * t**4 / 4
        return float(powers - self.e / t + self.f - self.h)

    def entropy(self, temperature: float) -> float:
        """S(T) at 1 bar, J/(mol K)."""
        t = temperature / 1000.0
        powers = self.a * np.log(t) + self.b * t + self.c * t**2 / 2 + self.d * t**3 / 3
        return float(powers - self.e / (2 * t**2) + self.g)


@dataclass(frozen=True)
class Gas:
    """One species: H(298.15 K) − H(0) in kJ/mol, and coefficients by temperature."""

    thermal: float
    ranges: tuple[Shomate, ...]


#: Water's coefficients are given from 500 K on. At 298.15 K they reproduce the tabulated entropy
#: within 0.01 J/(mol K), so they are used from there.
GASES: dict[str, Gas] = {
    "O2": Gas(8.683, (
        Shomate(100, 700, 31.32234, -20.23531, 57.86644, -36.50624, -0.007374, -8.903471, 246.7945),
        Shomate(700, 2000, 30.03235, 8.772972, -3.988133, 0.788313, -0.741599, -11.32468, 236.1663),
    )),
    "H2": Gas(8.467, (
        Shomate(298, 1000, 33.066178, -11.363417, 11.432816, -2.772874, -0.158558, -9.980797,
                172.707974),
        Shomate(1000, 2500, 18.563083, 12.257357, -2.859786, 0.268238, 1.977990, -1.147438,
                156.288133),
    )),
    "N2": Gas(8.670, (
        Shomate(100, 500, 28.98641, 1.853978, -9.647459, 16.63537, 0.000117, -8.671914, 226.4168),
        Shomate(500, 2000, 19.50583, 19.88705, -8.598535, 1.369784, 0.527601, -4.935202, 212.3900),
    )),
    "CO": Gas(8.671, (
        Shomate(298, 1300, 25.56759, 6.096130, 4.054656, -2.671301, 0.131021, -118.0089, 227.3665,
                -110.5271),
    )),
    "CO2": Gas(9.364, (
        Shomate(298, 1200, 24.99735, 55.18696, -33.69137, 7.948387, -0.136638, -403.6075, 228.2431,
                -393.5224),
    )),
    "H2O": Gas(9.904, (
        Shomate(298, 1700, 30.09200, 6.832514, 6.793435, -2.534480, 0.082139, -250.8810, 223.3967,
                -241.8264),
    )),
}  # fmt: skip


def gas_potential(name: str, temperature: float, pressure: float) -> float:
    """μ(T, p) − E of a gas in eV per molecule, with T in K and p in bar."""
    gas = find_gas(name)
    low, high = gas.ranges[0].low, gas.ranges[-1].high
    if not low <= temperature <= high:
        raise NuggetError(
            f"{name} has tabulated values from {low:g} to {high:g} K, not at {temperature:g} K."
        )
    if not pressure > 0:
        raise NuggetError(f"The pressure of {name} is {pressure:g} bar; it must be above 0.")
    fit = next(one for one in gas.ranges if temperature <= one.high)
    enthalpy = (fit.enthalpy(temperature) + gas.thermal) * kJ / mol
    entropy = fit.entropy(temperature) * 1e-3 * kJ / mol
    return float(enthalpy - temperature * entropy + kB * temperature * np.log(pressure))


def find_gas(name: str) -> Gas:
    """The tabulated gas of this formula."""
    if name not in GASES:
        raise NuggetError(f"{name} is not a tabulated gas; these are: {', '.join(GASES)}.")
    return GASES[name]
