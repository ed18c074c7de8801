"""Older formats of model files, brought to the present one step by step.

1: the regression kept its scaled label rows Σ^{-1/2}A and R with RᵀR = K_mm + AᵀΣ⁻¹A.
2: it keeps B = Σ^{-1/2}AU⁻¹ and R with RᵀR = I + BᵀB, the latter only where p >= m.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nugget.gp.linalg import right_solve

Arrays = dict[str, NDArray[Any]]

CURRENT = 2


def upgraded(version: int, arrays: Arrays) -> Arrays:
    """The arrays as the present format names them."""
    for step in range(version, CURRENT):
        arrays = _STEPS[step](arrays)
    return arrays


def _from_1(arrays: Arrays) -> Arrays:
    """[Σ^{-1/2}A; U] = QR, so [B; I] = Q(RU⁻¹): the same Q, hence the same Qᵀy."""
    new = dict(arrays)
    upper = np.asfortranarray(arrays["regression/upper"])
    new["regression/whitened"] = right_solve(new.pop("regression/scaled_rows"), upper)
    r, z = new.pop("regression/r"), new.pop("regression/z")
    if len(arrays["regression/y"]) >= len(upper):
        new["regression/r"] = np.asfortranarray(np.triu(right_solve(r, upper)))
        new["regression/z"] = z
    return new


_STEPS: dict[int, Callable[[Arrays], Arrays]] = {1: _from_1}
