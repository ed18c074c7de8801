"""The comparison of shown and printed output: what counts as equal, and what does not."""

from __future__ import annotations

import pytest
from doc_output import Comparison, Tolerance

PRINTED = """
Search finished: Au13 with emt
┌──────────────┬──────────────────────────────┐
│ evaluations  │ 25                           │
│ best energy  │ 6.5970 eV, fmax 0.024 eV/Å   │
│ rediscovered │ 100 times                    │
└──────────────┴──────────────────────────────┘
The barrier is −0.375 ± 0.004 eV at 1e-05.
"""
CLOSE = Comparison(Tolerance(0.01, relative=False), Tolerance(50.0, relative=True))


@pytest.mark.parametrize(
    "shown",
    [
        "│ best energy │ 6.5970 eV, fmax 0.024 eV/Å │",
        "best energy 6.6060 eV, fmax 0.02 eV/Å",
        "rediscovered 130 times",
        "evaluations 25\nrediscovered 51 times",
        "evaluations 25\n…\nThe barrier is -0.374 ± 0.001 eV at 0.0001.",
    ],
)
def test_close_numbers_in_order_agree(shown: str) -> None:
    assert CLOSE.missing_line(shown, PRINTED) is None


@pytest.mark.parametrize(
    "shown",
    [
        "best energy 6.6180 eV, fmax 0.024 eV/Å",
        "best energy 6.5970 eV/atom, fmax 0.024 eV/Å",
        "lowest energy 6.5970 eV, fmax 0.024 eV/Å",
        "rediscovered 160 times",
        "rediscovered 100 times\nevaluations 25",
        "best energy 6.5970 eV",
        "The barrier is 0.375 ± 0.004 eV at 1e-05.",
    ],
)
def test_other_numbers_words_and_orders_do_not(shown: str) -> None:
    assert CLOSE.missing_line(shown, PRINTED) is not None


def test_the_mark_gives_the_tolerances() -> None:
    both = Comparison.from_mark("Text.\n\n<!-- output: within 0.01, counts within 50 % -->")
    assert both == CLOSE
    one = Comparison.from_mark("<!-- output: within 5 % -->")
    assert one == Comparison(Tolerance(5.0, True), Tolerance(5.0, True))
    assert Comparison.from_mark("<!-- sample: needs VASP -->") is None


def test_a_tolerance_of_zero_asks_for_equal_numbers() -> None:
    exact = Comparison.from_mark("<!-- output: within 0 -->")
    assert exact is not None
    assert exact.missing_line("30 proposals", "30 proposals") is None
    assert exact.missing_line("30 proposals", "31 proposals") == "30 proposals"
