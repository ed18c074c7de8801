"""Ranges of atoms and chemical potentials, as settings write them."""

from __future__ import annotations

import numpy as np
import pytest

from nugget.errors import NuggetError
from nugget.systems.reservoirs import (
    UNLIMITED,
    Conditions,
    Reservoir,
    delta_function,
    largest_formula,
    make_reservoirs,
    parse_vary,
)
from nugget.systems.thermochemistry import gas_potential


def test_vary() -> None:
    assert parse_vary("O:0-6, H:2") == {"O": (0, 6), "H": (2, 2)}
    assert largest_formula("Pd:0-4,Au:1-3,total:1-5") == "Pd4Au3"


@pytest.mark.parametrize(
    ("text", "match"),
    [("O", "write O:0-6"), ("Oo:0-2", "not an element"), ("O:3-1", "rise"), ("O:0", "rise"),
     ("O:1-2,O:2-3", "twice"), ("O:a-b", "no range"), ("O:3,H:1", "one composition"),
     ("O:0-40,H:0-40", "more than 500"), ("total:1-3", "names no element")],
)  # fmt: skip
def test_bad_vary(text: str, match: str) -> None:
    with pytest.raises(NuggetError, match=match):
        parse_vary(text)


def test_reservoirs_balance() -> None:
    energies = {"O2": -10.0, "H2O": -14.0, "H2": -7.0}
    assert Reservoir.parse("O", "1/2 O2").energy(energies) == -5.0
    assert Reservoir.parse("O", "H2O - H2").energy(energies) == -7.0
    assert Reservoir.parse("H", "1/2 H2O - 1/4 O2").energy(energies) == -4.5
    assert Reservoir.default("O") == Reservoir.parse("O", "1/2 O2")
    assert Reservoir.default("Pt").terms == (("Pt(atom)", 1.0),)
    assert str(Reservoir.parse("O", "H2O - H2")) == "H2O - H2"
    assert str(Reservoir.parse("O", "1/2 O2")) == "0.5 O2"
    assert str(Reservoir.parse("Pt", "Pt(bulk)")) == "Pt(bulk)"


@pytest.mark.parametrize("text", ["O2", "H2O", "1/2 O2 + H2", "", "1/2 O2 !", "O(liquid)"])
def test_unbalanced_reservoirs(text: str) -> None:
    with pytest.raises(NuggetError, match="reservoirs"):
        Reservoir.parse("O", text)


def test_ranges_and_what_is_needed() -> None:
    made = make_reservoirs("Pt:4-6,O:0-3,C:2", "O=-0.5:-3.0")
    assert made.elements == ("Pt", "O")  # the number of C atoms does not vary
    assert made.ranges == (UNLIMITED, (-3.0, -0.5))
    assert made.needed == ["Pt(atom)", "O2"]
    assert make_reservoirs("O:0-3", "O=-3:0", energies={"O2": 1.0}).needed == []


@pytest.mark.parametrize(
    ("options", "match"),
    [({"chemical_potential": "H=0:1"}, "does not vary"), ({"reservoirs": "H=1/2 H2"}, "not vary"),
     ({"chemical_potential": "O=a:b"}, "range of numbers"), ({"temperature": "300"}, "need both"),
     ({"temperature": "300:600", "partial_pressures": "H2=1"}, "no partial pressure"),
     ({"temperature": "300:600", "partial_pressures": "O2=0:1"}, "above 0"),
     ({"temperature": "20:600", "partial_pressures": "O2=1"}, "tabulated values from 100")],
)  # fmt: skip
def test_bad_potentials(options: dict[str, str], match: str) -> None:
    with pytest.raises(NuggetError, match=match):
        make_reservoirs("O:0-3", **options)


def test_range_from_temperature_and_pressure() -> None:
    conditions = Conditions((300.0, 1200.0), {"O2": (1e-10, 1.0)})
    low, high = conditions.range(Reservoir.parse("O", "1/2 O2"))
    assert low == gas_potential("O2", 1200.0, 1e-10) / 2
    assert high == gas_potential("O2", 300.0, 1.0) / 2


def test_extremes_of_a_difference_against_a_grid() -> None:
    pressures = {"H2O": (1e-6, 1.0), "H2": (1e-3, 10.0)}
    made = make_reservoirs(
        "O:0-3", reservoirs="O=H2O - H2", temperature="300:900",
        partial_pressures="H2O=1e-6:1,H2=1e-3:10",
    )  # fmt: skip
    delta = delta_function(made)
    assert delta is not None
    rng = np.random.default_rng(0)
    values = [
        float(
            delta(
                rng.uniform(300, 900),
                {name: 10 ** rng.uniform(*np.log10(ends)) for name, ends in pressures.items()},
            )[0]
        )
        for _ in range(300)
    ]
    low, high = made.ranges[0]
    assert low <= min(values) < low + 0.5
    assert high - 0.5 < max(values) <= high
