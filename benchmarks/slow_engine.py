"""EMT that takes its time, as an engine for `in_flight.py`: slow_engine:emt."""

from __future__ import annotations

import time
from typing import Any

from ase.calculators.calculator import all_changes
from ase.calculators.emt import EMT


class Slow(EMT):
    """Sleeps before each calculation; costs no processor time."""

    delay = 0.0

    def calculate(
        self, atoms: Any = None, properties: Any = None, system_changes: Any = all_changes
    ) -> None:
        time.sleep(self.delay)
        super().calculate(atoms, properties or ["energy"], system_changes)


def emt(delay: float = 2.0) -> Slow:
    calculator = Slow()
    calculator.delay = delay
    return calculator
