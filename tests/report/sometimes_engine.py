"""Engines of this folder: EMT that fails for a part of all structures, or always."""

from __future__ import annotations

from typing import Any

from ase.calculators.calculator import all_changes
from ase.calculators.emt import EMT


class Sometimes(EMT):
    """Fails if the number made of the positions is divisible by `every`."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every

    def calculate(
        self, atoms: Any = None, properties: Any = None, system_changes: Any = all_changes
    ) -> None:
        if int(1e4 * abs(atoms.positions).sum()) % self.every == 0:
            raise RuntimeError("SCF not converged in 250 cycles")
        super().calculate(atoms, properties or ["energy"], system_changes)


def third(**options: Any) -> Sometimes:
    return Sometimes(3)


def always(**options: Any) -> Sometimes:
    return Sometimes(1)
