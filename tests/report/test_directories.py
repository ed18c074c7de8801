"""One command recognises what a directory is; campaigns show what their searches found."""

from __future__ import annotations

import json
import shutil
from urllib.parse import unquote

import numpy as np
import pytest
from page_spec import contents, parts_of, spec_of, titled, values_of
from report_runs import make_run, relaxed
from test_courses import a_search
from typer.testing import CliRunner

from nugget.campaign.campaign import Campaign
from nugget.campaign.results import read_outcome
from nugget.cli.main import app
from nugget.errors import NuggetError
from nugget.report.directories import kind_of, make_pages
from nugget.report.page import as_html
from nugget.report.searches_page import campaign_spec, read_searches
from nugget.search.record import End
from nugget.search.search_settings import make_config
from nugget.search.store import SETTINGS, Store
from nugget.structures.io import write_images


@pytest.fixture
def campaign(tmp_path):
    """Two cells, three seeds; the last search of each cell has not begun, one has found nothing."""
    reference = relaxed()
    write_images(tmp_path / "reference.extxyz", [reference])
    low = float(reference.get_potential_energy())
    config = make_config(
        {
            "system": {"formula": "Au6"},
            "engine": {"name": "emt"},
            "search": {"budget": 4, "reference": str(tmp_path / "reference.extxyz")},
        }
    )
    made = Campaign.create(config, {"kappa": ("0", "2")}, 3, tmp_path / "campaign")
    for member in made.members:
        if member.seed == 2:
            continue
        miss = member.seed == 1 and member.setting.values["kappa"] == "0"
        energies = [low + 2, low + 1, low + 1, low + 1] if miss else [low + 2, None, low]
        source = a_search(tmp_path / "draft", energies, member.seed)
        member.directory.mkdir(parents=True)
        # The settings are those of the campaign, the evaluations are ours.
        Store.create(member.directory, made._config(member))
        store = Store(member.directory)
        for record in Store(source).records():
            store.append(record)
        store.keep_end(End("finished" if miss else "found", "", len(energies), 4))
        shutil.copytree(tmp_path / "campaign" / "reference", member.directory / "reference")
        shutil.rmtree(source)
    return tmp_path / "campaign"


def test_campaign(campaign):
    found = read_searches(campaign)
    assert [len(found.campaign.members), len(found.courses), len(found.rows)] == [6, 4, 4]
    spec = spec_of(as_html(campaign_spec(found, {})))
    verdict = spec["sections"][0]
    assert "2 of 2 searches with kappa=2 found the reference" in verdict["sentences"][0]
    assert "2 of 6 searches have not finished." in verdict["sentences"]
    cells = {row[0]: row[1:4] for row in titled(spec, "Settings compared")["rows"]}
    assert cells == {"kappa=0": [2, 1, "50%"], "kappa=2": [2, 2, "100%"]}
    curve = next(one for one in titled(spec, "Success")["layers"] if one["name"] == "kappa=0")
    assert curve["x"] == [0, 3, 4]
    assert curve["y"] == [0, 0.5, 0.5]
    assert curve["low"][1] < 0.5 < curve["high"][1]
    best = next(one for one in titled(spec, "Best so far")["layers"] if one["name"] == "kappa=2")
    assert best["y"] == pytest.approx([2, 2, 0])
    above = values_of(spec, "searches", "above")
    assert sorted(above) == pytest.approx([0, 0, 0, 1])
    assert values_of(spec, "searches", "found").count("no") == 1
    rows = titled(spec, "Searches")["rows"]
    assert len(rows) == 6
    assert sum(row[5] == "not finished" for row in rows) == 2
    assert spec["badge"] == ["not finished", "busy"]


def test_every_search_is_one_click_away(campaign):
    for directory in campaign.glob("runs/*/seed-*"):
        read_outcome(directory)  # a campaign keeps outcomes there
    before = contents(campaign)
    words = ["report", str(campaign), "--json"]
    told = json.loads(CliRunner().invoke(app, words).output)
    assert told["kind"] == "campaign"
    assert told["pages_of_searches"] == 4
    page = campaign / "report.html"
    table = titled(spec_of(page.read_text()), "Searches")
    links = [link for link in table["links"] if link]
    assert len(links) == 4
    for link in links:
        assert set(link) <= set("abcdefghijklmnopqrstuvwxyz%0123456789ABCDEF/.-")
        own = spec_of((campaign / unquote(link)).read_text())
        assert own["title"] == "Search for Au6"
    after = contents(campaign)
    assert {name: digest for name, digest in after.items() if "/report" not in name} == before
    assert CliRunner().invoke(app, words).exit_code != 0  # the page is there
    told = json.loads(CliRunner().invoke(app, [*words, "--force", "--no-searches"]).output)
    assert told["pages_of_searches"] == 0
    assert not any(titled(spec_of(page.read_text()), "Searches")["links"])


def test_no_reference(tmp_path):
    config = make_config({"system": {"formula": "Au6"}, "engine": {"name": "emt"}})
    Campaign.create(config, {}, 2, tmp_path / "campaign")
    spec = spec_of(make_pages(tmp_path / "campaign", "report").html)
    assert all(part.get("title") != "Success" for part in parts_of(spec))
    assert len(titled(spec, "Searches")["rows"]) == 2


def test_what_it_is(tmp_path, campaign):
    make_run(tmp_path / "search", 2)
    assert kind_of(tmp_path / "search") == "search"
    assert kind_of(campaign) == "campaign"
    (tmp_path / "search" / SETTINGS).unlink()
    assert kind_of(tmp_path / "search") == "search"
    with pytest.raises(NuggetError, match="neither a search nor a campaign"):
        kind_of(tmp_path)
    with pytest.raises(NuggetError, match="no directory"):
        kind_of(tmp_path / "nothing")
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "run.json").write_text('{"kind": "party"}')
    with pytest.raises(NuggetError, match="unknown kind: party"):
        kind_of(odd)
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code != 0


def test_failures_have_no_place_among_the_lowest(campaign):
    found = read_searches(campaign)
    for course in found.courses.values():
        assert np.isfinite(course.best.value)
