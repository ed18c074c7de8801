from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from rich.console import Console

from nugget.display import duration
from nugget.report.digest import (
    failure_counts,
    failures,
    quality,
    seconds_left,
    shares,
)
from nugget.report.terminal import (
    LiveView,
    PlainView,
    energy_bars,
    energy_plot,
    line_of_search,
    make_view,
)
from nugget.search.loop import plain_line
from nugget.search.record import Record
from nugget.search.stop import Confidence
from nugget.systems.goal import LowestEnergy


def record(k: int, energy: float | None, generator: str = "rattle", **more: object) -> Record:
    atoms = Atoms("Au2", positions=[[0, 0, 0], [0, 0, 2.5]])
    if energy is None:
        more = {"failure": "timeout", "reason": "no answer\nwithin 600 s", **more}
    else:
        atoms.calc = SinglePointCalculator(atoms, energy=energy)
    return Record(k, atoms, generator, **more)  # type: ignore[arg-type]


def improved(records: list[Record]) -> list[bool]:
    before = [[r.energy for r in records[:k] if r.ok] for k in range(len(records))]
    return [
        r.ok and r.energy < min(b, default=np.inf) for r, b in zip(records, before, strict=True)
    ]


def status(
    records: list[Record], budget: int = 20, scale: float = 0.8, in_flight: int = 1
) -> SimpleNamespace:
    good = [r for r in records if r.ok]
    best = min(good, key=lambda r: r.energy, default=None)
    rediscoveries = SimpleNamespace(confidence=lambda: Confidence(4, 0))
    learner = SimpleNamespace(
        records=records, best=best, bars=SimpleNamespace(scale=scale), last_scale=scale,
        rediscoveries=rediscoveries,
        improved=improved(records), goal=LowestEnergy(), value=lambda record: record.energy,
    )  # fmt: skip
    return SimpleNamespace(
        learner=learner,
        record=records[-1] if records else None,
        budget=budget,
        evaluations=len(records),
        found=False,
        engine_seconds=30.0,
        surrogate_seconds=10.0,
        in_flight=in_flight,
        polishing=False,
    )


RECORDS = [
    record(0, -1.0, "symmetric", engine_seconds=2.0, surrogate_seconds=1.0),
    record(1, None, "melt", engine_seconds=4.0, surrogate_seconds=1.0),
    record(2, -1.5, predicted=-1.4, std=0.1, scale=2.0, engine_seconds=1.0),
    record(3, -1.2, predicted=-1.8, std=0.2, scale=1.5, engine_seconds=1.0),
    record(4, -1.7, "symmetric", predicted=-1.7, std=0.2, engine_seconds=1.0),
]


def test_quality_of_the_last_predictions():
    found = quality(RECORDS)
    assert found is not None
    assert found.count == 3
    assert found.error == pytest.approx((0.1 + 0.6 + 0.0) / 3 / 2)  # two atoms
    assert found.z == pytest.approx(np.sqrt((0.5**2 + 2.0**2 + 0.0) / 3))
    last = quality(RECORDS, last=1)
    assert last is not None
    assert last.z == 0.0
    assert quality(RECORDS[:2]) is None


def test_shares_of_the_generators():
    found = {share.name: share for share in shares(RECORDS, improved(RECORDS), RECORDS[4])}
    assert (found["symmetric"].chosen, found["symmetric"].best) == (2, 2)
    assert (found["rattle"].chosen, found["rattle"].best) == (2, 1)
    assert (found["melt"].chosen, found["melt"].best) == (1, 0)
    assert [name for name, share in found.items() if share.last] == ["symmetric"]
    assert shares([], [], None) == []


def test_failures_and_times():
    assert failures(RECORDS) == {"timeout": 1}
    assert failure_counts({"timeout": 2, "nan": 1}) == "3 (timeout 2, nan 1)"
    assert failure_counts({}) == "none"
    assert seconds_left([], 10) is None
    assert seconds_left(RECORDS, 10) == pytest.approx(11.0 / 5 * 5)
    assert seconds_left(RECORDS, 10, last=2) == pytest.approx(5.0)
    assert seconds_left(RECORDS, 3) == 0.0
    for seconds, text in ((0.42, "0.42 s"), (17.4, "17 s"), (59.7, "1 min 00 s"),
                          (185, "3 min 05 s"), (7800, "2 h 10 min")):  # fmt: skip
        assert duration(seconds) == text


def test_lines_for_files(capsys):
    with PlainView("Au2 · emt · here", line_of_search) as view:
        for n in range(1, len(RECORDS) + 1):
            view.watch(status(RECORDS[:n]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Au2 · emt · here"
    texts, left = zip(*(line.rsplit("  ", 1) for line in lines[1:]), strict=True)
    assert left[0] == "57 s left"
    assert left[-1] == "33 s left"
    assert texts[0] == "   1/20 * -1.0000 eV  best -1.0000 eV  symmetric"
    assert texts[1] == "   2/20  timeout: no answer within 600 s  melt"
    assert texts[2] == "   3/20 * -1.5000 eV  best -1.5000 eV  expected -1.400 ± 0.200  rattle"
    assert " * " not in texts[3]
    assert texts[4] == plain_line(status(RECORDS))


def test_bars_show_the_lowest_energies_and_mark_a_new_best():
    bars = energy_bars([4.0, None, 2.0, 3.0, 0.0, 100.0], 12, 12)
    assert bars.plain == "█ ▅▆▁█  up to +4.00 eV"  # the outlier does not flatten the rest
    styles = {bars.plain[span.start]: span.style for span in bars.spans}
    assert styles["▅"] == styles["▁"] == "green"
    assert styles["▆"] == "cyan"
    assert energy_bars([3.0, 1.0, 2.0, 0.0], 4, 2).plain[:2] == "▅▁"  # two evaluations per bar


@pytest.mark.parametrize("energies", [[], [None], [None, 1.0], [1.0, 1.0], [3.0] * 50])
def test_bars_of_little(energies):
    bars = energy_bars(energies, 20, 12)
    assert bool(bars) == any(e is not None for e in energies)
    assert len(bars.plain) <= 12 + len("  up to +0.00 eV")


def test_plot_of_a_tall_terminal():
    plot = energy_plot([3.0, None, 1.0, 2.0, 0.0], "eV", 39, 5)
    assert plot.plain.splitlines()[0] == "E − lowest, eV"
    lines = [line[9:] for line in plot.plain.splitlines()[1:6]]
    assert [sum(line.count("•") for line in lines)] == [4]  # the failure has none
    assert lines[0].index("•") == 3  # the highest, first
    assert lines[-1].index("•") == 27  # the lowest, last, on the lowest line
    assert lines[-1][27:] == "•━━"
    assert not energy_plot([None], "eV", 40, 5)


def drawn(
    width: int, height: int, records: list[Record], note: str = "", in_flight: int = 1
) -> list[str]:
    console = Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None
    )
    view = LiveView("Au2 · emt · runs/x", 20, console)
    view.watch(status(records, in_flight=in_flight))  # type: ignore[arg-type]
    if note:
        view.note(note)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(60, 20), (80, 24), (120, 30), (200, 60)])
def test_picture_fits(width, height):
    many = [
        record(k, np.sin(k), name, predicted=0.0, std=0.1) for k, name in enumerate("abcdefghijkl")
    ]
    lines = drawn(width, height, [*RECORDS, *many], "Stopping after this evaluation. Ctrl-C again.")
    assert len(lines) < height
    assert {len(line) for line in lines} == {width}


def test_picture_tells():
    lines = drawn(80, 24, RECORDS, note="Stopping.")
    text = "\n".join(lines)
    for part in (
        "Au2 · emt · runs/x", "evaluation 6 of 20", "33 s left", "-1.7000 eV",
        "evaluation 5, symmetric", "116.7 meV/atom (last 3)", "rms z 1.19", "σ × 0.80",
        "1 (timeout 1)", "10 s (25%)", "30 s (75%)", "Stopping.", "83% likely the lowest",
    ):  # fmt: skip
        assert part in text, part
    assert any("symmetric" in line and line.split()[-3:-1] == ["2", "2"] for line in lines)
    assert "up to +0.50 eV" in text


def test_picture_tells_how_many_are_in_flight():
    """Engine seconds 2+4+1+1+1, surrogate 2: 15 more take 15 (9/4 + 2)/5 s, four at a time."""
    text = "\n".join(drawn(80, 24, RECORDS, in_flight=4))
    assert "5 of 20 evaluations, 4 in flight" in text
    assert "13 s left" in text


def test_picture_of_failures_only():
    text = "\n".join(drawn(80, 24, [RECORDS[1]]))
    assert "evaluation 2 of 20" in text


def test_no_picture_without_a_terminal(capsys):
    assert isinstance(make_view("x", 10, live=True), PlainView)


def test_live_view_starts_and_ends(tmp_path: Path):
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    with LiveView("x", 20, console) as view:
        view.watch(status(RECORDS))  # type: ignore[arg-type]
        view.note("soon")
    assert isinstance(console.file, io.StringIO)
    assert "5 of 20 evaluations" in console.file.getvalue()


def test_refreshes_are_few_and_small():
    """At two pictures a second a slow connection keeps up, whatever the search does."""
    console = Console(file=io.StringIO(), width=100, height=30, force_terminal=True)
    view = LiveView("x", 20, console)
    assert view._live.refresh_per_second <= 2
    with view:
        view.watch(status(RECORDS))  # type: ignore[arg-type]
        view._live.refresh()
        assert isinstance(console.file, io.StringIO)
        before = len(console.file.getvalue())
        view._live.refresh()
        assert len(console.file.getvalue()) - before < 8000
