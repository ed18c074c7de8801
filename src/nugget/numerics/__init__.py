"""The compiled floor: Numba and vectors, as this package uses them."""

from __future__ import annotations
