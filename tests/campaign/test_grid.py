from __future__ import annotations

from pathlib import Path

import pytest
from ase.build import fcc111
from hypothesis import given
from hypothesis import strategies as st

from nugget.campaign import Campaign
from nugget.campaign.campaign import with_execution
from nugget.campaign.grid import make_settings, read_vary, setting_name, split
from nugget.engines.engine_settings import ExecutionConfig
from nugget.engines.execution import InProcess
from nugget.errors import NuggetError
from nugget.search import make_config
from nugget.search.search_settings import Config

BASE = make_config({"engine": {"name": "emt"}})


def test_all_combinations_in_order():
    vary = read_vary(["kappa=0,1.5", "model.uncertainty=label-noise,projected-process"])
    assert vary == {
        "kappa": ("0", "1.5"),
        "uncertainty": ("label-noise", "projected-process"),
    }
    cells = make_settings(BASE, vary)
    assert [cell.name for cell in cells] == [
        "kappa=0,uncertainty=label-noise",
        "kappa=0,uncertainty=projected-process",
        "kappa=1.5,uncertainty=label-noise",
        "kappa=1.5,uncertainty=projected-process",
    ]
    assert [cell.config.search.kappa for cell in cells] == [0.0, 0.0, 1.5, 1.5]
    assert cells[3].config.model.uncertainty == "projected-process"
    assert cells[3].config.engine == BASE.engine


def test_values_are_those_of_toml():
    settings = ("members=none,10", "calibrate=true,false", "baseline=none,repulsion")
    vary = read_vary([*settings, "search.relax_steps=1,2"])
    cells = make_settings(BASE, vary)
    assert {cell.config.model.uncertainty_options.get("members") for cell in cells} == {None, 10}
    assert {cell.config.search.calibrate for cell in cells} == {True, False}
    assert {cell.config.model.baseline for cell in cells} == {"none", "repulsion"}
    assert {cell.config.search.relax_steps for cell in cells} == {1, 2}
    assert "search.relax_steps" in vary  # engine has one, too
    [one] = make_settings(BASE, read_vary(["search.generators.melt=3"]))
    assert one.config.search.generators == {**Config().search.generators, "melt": 3.0}
    assert one.name == "search.generators.melt=3"


@pytest.mark.parametrize(
    ("vary", "hint"),
    [
        (["kappa"], "write a setting and its values"),
        (["kappa="], "write a setting and its values"),
        (["kapa=1"], "kapa is not a setting; known:"),
        (["relax_steps=1"], "write engine.relax_steps or search.relax_steps"),
        (["kappa=1", "search.kappa=2"], "varied twice"),
        (["kappa=0,0.0"], "0.0 is given twice"),
        (["kappa=-1"], "search.kappa"),
        (["kappa=0,,1"], "search.kappa"),
        (["search.kapa=1"], "did you mean 'kappa'?"),
        (["serch.kappa=1"], "did you mean 'search'?"),
        (["kappa.x=1"], "did you mean kappa below [search]?"),
        (["search.kappa.x=1"], "kappa is a value"),
        (["seed=1,2"], "--repeats"),
        (["execution.workers=1,2"], "not a setting of a search"),
        (["workers=1,2"], "workers is not a setting"),
        (["reference=a,b"], "look for the same structure"),
    ],
)
def test_mistakes(vary, hint, tmp_path):
    with pytest.raises(NuggetError) as error:
        Campaign.create(BASE, read_vary(vary), 1, tmp_path / "c")
    assert hint in str(error.value)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"engine": {"name": "no_such_module:make"}}, "is not installed"),
        ({"search": {"reference": "nowhere.xyz"}}, "no file nowhere.xyz"),
        ({"system": {"formula": "Qx3"}}, "Qx"),
        ({"search": {"generators": {"ratle": 1}}}, "no generator 'ratle'"),
    ],
)
def test_mistakes_in_the_settings(settings, hint, tmp_path):
    with pytest.raises(NuggetError, match=hint):
        Campaign.create(make_config(settings), {}, 1, tmp_path / "c")
    assert not (tmp_path / "c").exists()


WORD = st.text("abc.0-_/:[]", min_size=1).filter(lambda t: t.count("[") == t.count("]") == 0)


@given(st.dictionaries(st.text("abc_.", min_size=1), WORD, min_size=1, max_size=3))
def test_names_of_settings_contain_their_values(values):
    name = setting_name(values)
    assert "/" not in name
    pairs = [part.partition("=") for part in split(name.replace("%2F", "/"))]
    assert {key: value for key, _, value in pairs} == values


def test_commas_in_brackets_and_quotes():
    assert split("[1,2],{a=1,b=2},'x,y',\"z,\",3") == [
        "[1,2]", "{a=1,b=2}", "'x,y'", '"z,"', "3",
    ]  # fmt: skip
    assert split("cell=[1,2,3],kappa=0") == ["cell=[1,2,3]", "kappa=0"]
    assert setting_name({}) == "all"


def test_a_campaign_is_read_as_it_was_written(tmp_path: Path):
    config = make_config(
        {
            "engine": {"name": "emt", "options": {"asap_cutoff": True}},
            "search": {"seed": 7},
            "execution": {"kind": "dask", "cluster": "slurm", "options": {"queue": "long"}},
        }
    )
    vary = read_vary(["kappa=0,1e0", "search.relax_steps=3"])
    made = Campaign.create(config, vary, 2, tmp_path)
    again = Campaign.resume(tmp_path)
    assert again.base == made.base == config
    assert [(m.setting.name, m.seed, m.directory) for m in again.members] == [
        (m.setting.name, m.seed, m.directory) for m in made.members
    ]
    assert again.members[-1].directory == (
        tmp_path / "runs" / "kappa=1e0,search.relax_steps=3" / "seed-0008"
    )
    assert with_execution(again, {"workers": 5}).options == {"queue": "long"}
    assert with_execution(again, {"kind": "in-process"}) == ExecutionConfig(kind="in-process")
    with pytest.raises(NuggetError, match="holds no campaign"):
        Campaign.resume(tmp_path / "runs")
    (tmp_path / "campaign.toml").write_text("repeats = 3\n")
    with pytest.raises(NuggetError, match="must have base, vary and repeats"):
        Campaign.resume(tmp_path)


def test_a_template_goes_along(tmp_path: Path):
    fcc111("Cu", (2, 2, 2), vacuum=5.0).write(tmp_path / "slab.traj")
    settings = {"system": {"formula": "Cu", "kind": "surface", "template": "slab.traj"}}
    settings |= {"engine": {"name": "emt"}, "model": {"cutoff": 4.0}, "search": {"budget": 1}}
    made = Campaign.create(make_config(settings), {}, 1, tmp_path / "c", base=tmp_path)
    (tmp_path / "slab.traj").unlink()
    [row] = made.run(InProcess())
    assert row.outcome.evaluations == 1
    assert row.outcome.found is None
    assert not row.outcome.error
