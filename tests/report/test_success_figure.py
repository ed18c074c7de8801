from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from nugget.campaign import Campaign, KaplanMeier, wilson
from nugget.campaign.results import Outcome, Row
from nugget.campaign.statistics import compare, describe, grouped, summarise
from nugget.errors import NuggetError
from nugget.report.figures import arrange, success_figure
from nugget.report.terminal import LiveCampaignView, PlainView, line_of
from nugget.search import make_config


def rows(cell: dict[str, str], times: list[int], budget: int = 100) -> list[Row]:
    return [
        Row(
            cell,
            seed,
            Outcome(t <= budget, t if t <= budget else None, min(t, budget), -1.0, 0.5),
        )
        for seed, t in enumerate(times)
    ]


GRID = [
    row
    for kappa, shift in (("10", 0), ("0", 60), ("2", 30))
    for name in ("label-noise", "projected-process")
    for row in rows({"kappa": kappa, "uncertainty": name}, [20 + shift, 50 + shift, 70 + shift])
]


def test_the_first_setting_with_numbers_is_the_axis():
    axis, series = arrange(grouped(GRID))
    assert axis == "kappa"
    assert list(series) == ["label noise", "projected process"]
    assert [group.setting["kappa"] for group in series["label noise"]] == ["0", "2", "10"]
    words = [Row({"acquisition": a}, 0, Outcome(True, 3, 3)) for a in ("lcb", "ei")]
    assert arrange(grouped(words))[0] is None


def test_the_figure_shows_the_numbers():
    figure = success_figure(grouped(GRID), "title")
    left, *curves = figure.axes
    assert len(curves) == 2
    lines = [line for line in left.lines if line.get_linestyle() == "-" and len(line.get_xdata())]
    np.testing.assert_allclose(lines[0].get_ydata(), [1 / 3, 1.0, 1.0])
    bars = left.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose(bars[0][:, 1], wilson(1, 3))
    step = curves[0].lines[0]  # κ = 0: solved at 80, two censored at 100
    assert step.get_xdata().tolist() == [0, 80, 100]
    np.testing.assert_allclose(step.get_ydata(), [0, 1 / 3, 1 / 3])
    assert curves[0].get_legend().texts[0].get_text() == "κ = 0"
    figure.savefig(io.BytesIO(), format="png")


@pytest.mark.parametrize("count", [1, 3])
def test_cells_without_an_order_and_without_hits(count):
    found = [
        row
        for k in range(count)
        for row in rows({"parents": "abc"[k]}, [150, 60, 200], 50 + 50 * k)
    ]
    figure = success_figure(grouped(found))
    assert len(figure.axes) == 2
    figure.savefig(io.BytesIO(), format="png")
    success_figure(grouped(rows({}, [5, 7]))).savefig(io.BytesIO(), format="png")
    with pytest.raises(NuggetError, match="nothing to draw"):
        success_figure([])


def test_a_summary_is_made_of_the_statistics():
    a = rows({"kappa": "0"}, [10, 20, 300, 400])
    b = [*rows({"kappa": "1"}, [5, 6, 7]), Row({"kappa": "1"}, 3, Outcome(False, error="died"))]
    summary = summarise([*a, *b])
    first, second = summary["cells"]
    assert (first["found"], first["success"], first["searches"]) == (2, 0.5, 4)
    assert tuple(first["success_interval"]) == wilson(2, 4)
    assert first["median_evaluations"] == 20
    curve = KaplanMeier.of([10, 20, 100, 100], [True, True, False, False])
    assert first["curve"]["evaluations"] == [10, 20]
    np.testing.assert_allclose(first["curve"]["low"], 1 - curve.high)
    assert (second["found"], second["errors"], second["searches"]) == (3, 1, 4)
    [test] = summary["tests"]
    assert (test["a"], test["b"], test["success_difference"]) == ("kappa=0", "kappa=1", -0.25)
    assert compare([]) == []
    assert "found" not in describe(grouped([Row({}, 0, Outcome(best_energy=1.0))])[0])


def test_a_search_in_one_line():
    cell = {"kappa": "2"}
    assert line_of(Row(cell, 3, Outcome(True, 7, 7)), 4, 20) == (
        " 4/20  kappa=2  seed 3  found at evaluation 7"
    )
    missed = Outcome(False, None, 150, -5.0, 0.25)
    assert line_of(Row(cell, 3, missed), 4, 20).endswith(
        "not found in 150 evaluations, best -5.0000 eV (+0.250 eV)"
    )
    assert line_of(Row(cell, 3, Outcome(error="no engine")), 4, 20).endswith("failed: no engine")


def test_the_live_table(tmp_path, capsys):
    campaign = Campaign.create(
        make_config({"engine": {"name": "emt"}}), {"kappa": ("0", "2")}, 3, tmp_path
    )
    member = campaign.members[1]
    campaign._outcomes[member.directory] = Outcome(True, 17, 17)
    console = Console(file=io.StringIO(), width=80, height=24)
    view = LiveCampaignView("Au20 · emt", campaign, console)
    view.watch(Row(member.setting.values, member.seed, Outcome(True, 17, 17)), 1, 6)
    view.note("Stopping")
    console.print(view)
    text = console.file.getvalue()
    assert "1 of 6 searches" in text
    assert [line.split()[1:6] for line in text.splitlines() if "kappa=" in line][:2] == [
        ["kappa=0", "0/3", "–", "–", "–"],
        ["kappa=2", "1/3", "–", "1", "(100%)"],
    ]
    assert "found at evaluation 17" in text
    assert "Stopping" in text
    with PlainView("title", line_of) as plain:
        plain.note("note")
    assert capsys.readouterr().out == "title\nnote\n"
