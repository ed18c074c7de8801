"""Training structures as label rows: energies, forces and stresses in one linear system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from numpy.typing import NDArray

from nugget._compiled.jit import FAST, njit
from nugget.descriptors.soap import Environments
from nugget.errors import NuggetError
from nugget.gp.kernels.rbf import KernelRows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# What a change of makes results void as well, though few structures carry it.
_ELECTRONIC = ("initial_charges", "initial_magmoms")
# Pairs of Cartesian axes in the order of Voigt's six components.
VOIGT = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))


@dataclass(frozen=True, eq=False)
class Known:
    """What a calculator said of one structure."""

    energy: float
    forces: Floats | None
    stress: Floats | None  # (6,)


def read_labels(images: Sequence[Atoms], use_forces: bool | None, use_stress: bool) -> list[Known]:
    """Energies, and forces and stress where wanted; what is missing or not finite is named."""
    return [_read(s, atoms, use_forces, use_stress) for s, atoms in enumerate(images)]


def _read(s: int, atoms: Atoms, use_forces: bool | None, use_stress: bool) -> Known:
    energy = _result(atoms, "energy")
    if energy is None:
        raise NuggetError(
            f"Structure {s} ({atoms.get_chemical_formula()}) has no energy: attach a calculator "
            "and call get_potential_energy(), or read a file that holds energies."
        )
    forces = None if use_forces is False else _result(atoms, "forces")
    if forces is None and use_forces:
        raise NuggetError(
            f"Structure {s} has no forces: compute them, or fit with use_forces=False."
        )
    stress = _result(atoms, "stress") if use_stress else None
    if stress is None and use_stress:
        raise NuggetError(f"Structure {s} has no stress: compute it, or fit with use_stress=False.")
    for name, value in (("energy", energy), ("forces", forces), ("stress", stress)):
        if value is not None and not np.isfinite(value).all():
            raise NuggetError(
                f"Structure {s}: the {name} label is not finite; repair or remove the structure."
            )
    if forces is not None and np.shape(forces) != (len(atoms), 3):
        raise NuggetError(
            f"Structure {s}: forces of shape {np.shape(forces)} for {len(atoms)} atoms."
        )
    return Known(float(energy), forces, stress)  # type: ignore[arg-type]


def _result(atoms: Atoms, name: str) -> float | Floats | None:
    """A stored result; nothing is ever computed here."""
    calc = atoms.calc
    if calc is None:
        return None
    if isinstance(calc, SinglePointCalculator) and name in calc.results and _same(atoms, calc):
        value: float | Floats = calc.results[name]
        return value.copy() if isinstance(value, np.ndarray) else value
    try:
        return calc.get_property(name, atoms, allow_calculation=False)
    except (NotImplementedError, RuntimeError):
        return None


def _same(atoms: Atoms, calc: SinglePointCalculator) -> bool:
    """True when the results surely belong to these atoms, to the last bit.

    ASE's own comparison, which is asked otherwise, takes longer than fitting does.
    """
    old: Atoms | None = calc.atoms
    if old is None:
        return False
    now, then = atoms.arrays, old.arrays
    if any(name in arrays for name in _ELECTRONIC for arrays in (now, then)):
        return False
    return (
        len(atoms) == len(old)
        and bool((now["positions"] == then["positions"]).all())
        and bool((now["numbers"] == then["numbers"]).all())
        and bool((atoms.cell.array == old.cell.array).all())
        and bool((atoms.pbc == old.pbc).all())
    )


def gradient_rows(
    env: Environments, rows: KernelRows, *, strain: bool = False
) -> tuple[Floats, Floats | None]:
    """∂κ_s/∂r of every atom (N, 3, m), and ∂κ_s/∂strain (B, 3, 3, m) if asked for.

    Built only for fitting and for the uncertainty of force components. With J = ∂x_i/∂d of a
    pair, ∂k_ij/∂d = k_ij (z_j − x_i)·J / l²: one GEMM of all J with the inducing points.
    """
    jacobian = env.jacobian()
    m = rows.n_inducing
    out = np.zeros((len(env.values), 3, m))
    sheared = np.zeros((len(env.batch), 3, 3, m)) if strain else np.zeros((0, 3, 3, m))
    owner = env.owner
    for part in rows.parts:
        block = part.block
        if part.rows is None:
            chosen = np.arange(len(jacobian.centre))
            local = jacobian.centre
        else:
            position = np.full(len(env.values), -1, dtype=np.int64)
            position[part.rows] = np.arange(len(part.rows))
            chosen = np.flatnonzero(position[jacobian.centre] >= 0)
            local = position[jacobian.centre[chosen]]
        tangent = jacobian.values[chosen].reshape(3 * len(chosen), env.values.shape[1])
        own = np.einsum("pcf,pf->pc", jacobian.values[chosen], part.xs[local])
        _scatter(
            (tangent @ block.zt).reshape(len(chosen), 3, len(block.columns)),
            own, part.k, block.scale, local,
            jacobian.centre[chosen], jacobian.neighbour[chosen], jacobian.vector[chosen],
            owner, block.columns, out, sheared,
        )  # fmt: skip
    return out, sheared if strain else None


@njit(fastmath=FAST)
def _scatter(
    product: Floats,
    own: Floats,
    k: Floats,
    scale: float,
    local: Ints,
    centre: Ints,
    neighbour: Ints,
    vector: Floats,
    owner: Ints,
    columns: Ints,
    out: Floats,
    sheared: Floats,
) -> None:
    n_columns = len(columns)
    whole = n_columns == out.shape[2]
    line = np.empty(n_columns)
    for p in range(len(centre)):
        a, b = centre[p], neighbour[p]
        kernel = k[local[p]]
        for axis in range(3):
            source = product[p, axis]
            offset = own[p, axis]
            for q in range(n_columns):
                line[q] = (source[q] - offset) * kernel[q] * scale
            if whole:
                to_b = out[b, axis]
                to_a = out[a, axis]
                for q in range(n_columns):
                    to_b[q] += line[q]
                    to_a[q] -= line[q]
            else:
                for q in range(n_columns):
                    out[b, axis, columns[q]] += line[q]
                    out[a, axis, columns[q]] -= line[q]
            if len(sheared) > 0:
                for other in range(3):
                    d = vector[p, other]
                    for q in range(n_columns):
                        sheared[owner[a], axis, other, columns[q]] += line[q] * d
