"""Success statistics against textbook examples and SciPy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nugget.campaign.statistics import KaplanMeier, fisher, holm, logrank, wilson

# Freireich et al., Blood 21, 699 (1963): weeks of remission of leukaemia, 6-MP against placebo.
# A + stands for a patient who was still in remission.
MERCAPTOPURINE = "6 6 6 6+ 7 9+ 10 10+ 11+ 13 16 17+ 19+ 20+ 22 23 25+ 32+ 32+ 34+ 35+"
PLACEBO = "1 1 2 2 3 4 4 5 5 8 8 8 8 11 11 12 12 15 17 22 23"


def patients(text: str) -> tuple[list[int], list[bool]]:
    words = text.split()
    return [int(word.rstrip("+")) for word in words], [not word.endswith("+") for word in words]


def test_kaplan_meier_of_the_textbook():
    curve = KaplanMeier.of(*patients(MERCAPTOPURINE))
    assert curve.times.tolist() == [6, 7, 10, 13, 16, 22, 23]
    expected = [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448]
    np.testing.assert_allclose(curve.survival, expected, atol=5e-4)
    assert curve.median == 23
    assert curve.last == 35
    assert (curve.at(5), curve.at(6)) == (1.0, pytest.approx(18 / 21))
    assert KaplanMeier.of(*patients(PLACEBO)).median == 8


def test_the_first_interval_by_hand():
    """S = 18/21, Greenwood's sum 3/(21·18), interval S^exp(±1.96·√sum/|log S|)."""
    curve = KaplanMeier.of(*patients(MERCAPTOPURINE))
    width = 1.959964 * np.sqrt(3 / (21 * 18)) / abs(np.log(18 / 21))
    assert curve.low[0] == pytest.approx((18 / 21) ** np.exp(width), rel=1e-6)
    assert curve.high[0] == pytest.approx((18 / 21) ** np.exp(-width), rel=1e-6)
    # As R's survfit(conf.type="log-log") prints them.
    assert (curve.low[0], curve.high[0]) == (
        pytest.approx(0.620, abs=5e-4),
        pytest.approx(0.952, abs=5e-4),
    )


def censored(times: list[int], solved: list[bool]) -> stats.CensoredData:
    t, d = np.array(times), np.array(solved)
    return stats.CensoredData(uncensored=t[d], right=t[~d])


SEARCHES = st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=2, max_size=40)


@given(SEARCHES.filter(lambda rows: any(solved for _, solved in rows)))
def test_kaplan_meier_agrees_with_scipy(rows):
    times, solved = [t for t, _ in rows], [d for _, d in rows]
    ours = KaplanMeier.of(times, solved)
    theirs = stats.ecdf(censored(times, solved)).sf
    np.testing.assert_allclose(ours.survival, theirs.evaluate(ours.times), rtol=1e-12, atol=1e-12)
    with warnings.catch_warnings(action="ignore"):
        band = theirs.confidence_interval(method="log-log")
    inside = ours.survival > 1e-9  # at 0 the interval is not defined
    for mine, other in ((ours.low, band.low), (ours.high, band.high)):
        np.testing.assert_allclose(mine[inside], other.evaluate(ours.times)[inside], rtol=1e-9)
    assert np.isnan(ours.low[~inside]).all()


def test_logrank_of_the_textbook():
    found = logrank(*patients(MERCAPTOPURINE), *patients(PLACEBO))
    assert found.chi2 == pytest.approx(16.79, abs=0.005)
    assert found.p == pytest.approx(4.17e-5, rel=0.01)


@given(SEARCHES, SEARCHES)
def test_logrank_agrees_with_scipy(a, b):
    groups = [([t for t, _ in rows], [d for _, d in rows]) for rows in (a, b)]
    ours = logrank(*groups[0], *groups[1])
    with np.errstate(all="ignore"):
        theirs = stats.logrank(*(censored(*group) for group in groups))
    if np.isnan(theirs.statistic):  # nothing ever happened while both groups were there
        assert (ours.chi2, ours.p) == (0.0, 1.0)
    else:
        assert ours.chi2 == pytest.approx(theirs.statistic**2, rel=1e-9, abs=1e-12)
        assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9, abs=1e-12)


def test_median_and_its_interval():
    times = list(range(5, 105, 5))
    curve = KaplanMeier.of(times, [True] * 20)
    assert curve.median == 50
    low, high = curve.median_interval
    assert low is not None
    assert high is not None
    assert low < 50 < high
    k = list(curve.times).index(low)
    assert curve.low[k] <= 0.5 < curve.low[k - 1]
    few = KaplanMeier.of(times, [True, True, *[False] * 18])
    assert few.median is None
    assert few.median_interval[1] is None
    none = KaplanMeier.of([5, 5], [False, False])
    assert (none.median, none.median_interval, none.last, none.at(5)) == (None, (None, None), 5, 1)


@pytest.mark.parametrize(
    ("hits", "trials", "interval"),
    [
        # Newcombe, Statistics in Medicine 17, 857 (1998), table I, method 3.
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_wilson_of_newcombes_table(hits, trials, interval):
    assert wilson(hits, trials) == pytest.approx(interval, abs=5e-5)


@given(st.integers(0, 60), st.integers(0, 60))
def test_wilson_agrees_with_scipy_and_mirrors(hits, misses):
    low, high = wilson(hits, hits + misses)
    if hits + misses == 0:
        assert (low, high) == (0, 1)
        return
    theirs = stats.binomtest(hits, hits + misses).proportion_ci(method="wilson")
    assert (low, high) == (pytest.approx(theirs.low, abs=1e-12), pytest.approx(theirs.high))
    mirrored = wilson(misses, hits + misses)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high), abs=1e-12)


def test_fisher_of_the_lady_tasting_tea():
    assert fisher(3, 4, 1, 4) == pytest.approx(34 / 70)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
