"""Older formats of model files, brought to the present one step by step.

2: priors were called by their "kind"; a fitted uncertainty kept its settings once more, as numbers.
3: priors are called by their registered name; a fitted uncertainty keeps its scale and its arrays;
   the last member is a checksum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

Header = dict[str, Any]
Arrays = dict[str, NDArray[Any]]

OLDEST, CURRENT = 2, 3
CHECKED = 3  # formats from this one on have a checksum


def upgraded(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Header and arrays as the present format has them."""
    for step in range(header["version"], CURRENT):
        header, arrays = _STEPS[step](header, arrays)
    return header, arrays


def _from_2(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    header, arrays = dict(header), dict(arrays)
    for name in ("prior", "fitted_prior"):
        header[name] = _named_prior(header[name])
    if "uncertainty/settings" in arrays:
        arrays["uncertainty/scale"] = arrays.pop("uncertainty/settings")[-1]
    return header, arrays


def _named_prior(settings: dict[str, Any]) -> dict[str, Any]:
    plain = dict(settings)
    kind = plain.pop("kind")
    plain["name"] = "pair-well" if kind == "well" else kind
    if kind == "sum":
        plain["parts"] = [_named_prior(part) for part in plain["parts"]]
    if kind == "calculator":
        plain["options"] = list(plain["options"].items())
    return plain


_STEPS: dict[int, Callable[[Header, Arrays], tuple[Header, Arrays]]] = {2: _from_2}
