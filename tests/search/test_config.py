from __future__ import annotations

import string
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nugget.errors import NuggetError
from nugget.registry import find, names
from nugget.search.search_settings import Config, make_config, read_config, write_config


def refusal(settings: dict[str, Any]) -> str:
    with pytest.raises(NuggetError) as error:
        make_config(settings)
    return str(error.value)


def test_defaults_need_nothing():
    config = make_config({})
    assert config == Config()
    assert config.system.formula == "Au20"
    assert config.engine.name == "gfn1-xtb"


def test_default_generators_are_all_there_are():
    found = {name: find("generator", name).__module__ for name in names("generator")}
    ours = {name for name, module in found.items() if module.startswith("nugget.")}
    crystals = make_config({"system": {"kind": "crystal"}}).search.generators
    varied = make_config({"system": {"vary": "O:1-2"}}).search.generators
    assert {*Config().search.generators, *crystals, *varied} == ours


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"search": {"buget": 10}}, "search.buget is not an option; did you mean 'budget'?"),
        ({"sytem": {}}, "sytem is not an option; did you mean 'system'?"),
        ({"engine": {"timelimit": 3}}, "engine.timelimit is not an option; did you mean"),
        (
            {"model": {"label": 0.1}},
            "model.label is not an option; did you mean 'uncertainty_options.label'?",
        ),
        ({"model": {"prior": 0.1}}, "did you mean 'uncertainty_options.prior'?"),
        ({"model": {"force": 0.1}}, "did you mean 'uncertainty_options.force'?"),
        ({"model": {"xyzzy": 3}}, "model.xyzzy is not an option; known: cutoff, sigma,"),
        ({"xyzzy": {}}, "xyzzy is not an option; known: system, engine, model, search"),
    ],
)
def test_unknown_keys_meet_a_suggestion(settings, hint):
    assert hint in refusal(settings)


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"search": {"budget": 0}}, "search.budget: Input should be greater than or equal to 1"),
        ({"search": {"budget": "many"}}, "(got 'many')"),
        ({"search": {"kappa": float("inf")}}, "search.kappa: Input should be a finite number"),
        ({"search": {"kappa": float("nan")}}, "search.kappa"),
        ({"search": {"acquisition_options": {"kappa": 3}}}, "need an acquisition by name"),
        ({"search": {"generator_options": {"ratle": {}}}}, "for ratle, which has no weight"),
        ({"engine": {"time_limit": -1}}, "engine.time_limit"),
        ({"search": {"generators": {}}}, "at least one above 0"),
        ({"search": {"generators": {"rattle": 0}}}, "at least one above 0"),
        ({"search": {"generators": {"rattle": 1, "melt": -1}}}, "weights of 0 or more"),
        ({"search": {"generators": {"rattle": "often"}}}, "search.generators.rattle"),
        ({"search": 3}, "search must be a table, [search], not 3"),
        ({"system": {"kind": "surface"}}, "needs system.template"),
        ({"system": {"kind": "bulk"}}, "needs system.cell"),
        ({"system": {"kind": "bulk", "cell": [1.0, 2.0]}}, "3 or 6 numbers"),
    ],
)
def test_bad_values_are_named(settings, hint):
    assert hint in refusal(settings)


def test_all_mistakes_are_told_at_once_with_their_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        '[system]\nformula = "Au3"\n[search]\nbuget = 3\nkappa = -1\n[model]\ncutoff = 0\n'
    )
    with pytest.raises(NuggetError) as error:
        read_config(file)
    text = str(error.value)
    assert text.startswith(str(file))
    assert all(name in text for name in ("search.buget", "search.kappa", "model.cutoff"))


def test_unreadable_files(tmp_path):
    with pytest.raises(NuggetError, match=r"none\.toml cannot be read: No such file"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "broken.toml").write_text("[search\nbudget = 3")
    with pytest.raises(NuggetError, match=r"broken\.toml is not valid TOML.*line 1"):
        read_config(tmp_path / "broken.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(NuggetError, match="not valid TOML"):
        read_config(tmp_path / "binary.toml")
    (tmp_path / "empty.toml").write_text("# nothing\n")
    with pytest.raises(NuggetError, match=r"empty\.toml holds no settings"):
        read_config(tmp_path / "empty.toml")
    (tmp_path / "parts.toml").write_text("[search]\nbudget = 3\n")
    with pytest.raises(NuggetError, match=r"parts\.toml holds no system\.formula"):
        read_config(tmp_path / "parts.toml")


def again(config: Config, folder: Path, comments: bool = True) -> Config:
    file = folder / "config.toml"
    file.write_text(write_config(config, comments=comments), encoding="utf-8")
    return read_config(file)


@pytest.mark.parametrize("comments", [True, False])
def test_round_trip(tmp_path, comments):
    config = make_config(
        {
            "system": {"formula": "Cu5Au8", "radius": 6.25},
            "engine": {
                "name": "my.code:factory",
                "options": {
                    "method": 'say "hi" \\ there',
                    "two words": [1, 2.5, "three", [True, False]],
                    "nested": {"width": 1e-20, "name": "fermi-dirac", "größe": {"a.b": 3}},
                    "count": np.int64(3),
                    "share": np.float64(0.1),
                    "yes": np.bool_(True),
                },
                "time_limit": 1e16,
            },
            "model": {"use_forces": False, "members": 50, "noise": 0.1 + 0.2, "label_noise": 1e-9},
            "search": {
                "generators": {"rattle": 0.3, "symmetric": 2, "melt": 0},
                "generator_options": {"rattle": {"fraction": 0.5}, "melt": {}},
                "acquisition": "lcb",
                "acquisition_options": {"kappa": 1.5},
                "seed": 12345678901,
                "reference": "some where/tetra#1 'x'.xyz",
            },
        }
    )
    assert again(config, tmp_path, comments) == config
    assert ("#" in write_config(Config(), comments=comments)) is comments


def test_round_trip_of_other_kinds_and_defaults(tmp_path):
    for system in (
        {"kind": "surface", "template": "C:\\slabs\tcu.traj", "height": 3.5},
        {"kind": "bulk", "cell": [4.0, 5.0, 6.0, 90.0, 90.0, 120.0]},
        {},
    ):
        config = make_config({"system": system})
        assert again(config, tmp_path) == config


VALUES = st.recursive(
    st.text()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=100)
@given(options=st.dictionaries(st.text(string.printable + "é\x7f\x00", max_size=8), VALUES))
def test_options_come_back_whatever_they_are(options):
    config = make_config({"engine": {"options": options}})
    read = tomllib.loads(write_config(config))
    assert make_config(read) == config
    assert repr(read["engine"]["options"]) == repr(options)  # 1 and 1.0 and True differ


def test_what_toml_cannot_hold_is_refused():
    config = make_config({"engine": {"options": {"nothing": None}}})
    with pytest.raises(NuggetError, match="None cannot be written"):
        write_config(config)


def test_every_option_is_explained():
    text = write_config(Config())
    for section in Config.model_fields.values():
        for name, field in section.annotation.model_fields.items():
            assert field.description, name
            assert f"# {field.description}" in text


REMOVED = {
    "hops": 0, "parents": "kmeans", "fmax": 0.05, "molecule_stiffness": 100.0, "walker_hops": 10,
    "usual_force": 2.0,
}  # fmt: skip


def test_removed_options_with_their_old_defaults_are_dropped():
    assert make_config({"search": REMOVED}) == Config()
    crystal = {"system": {"formula": "Si", "kind": "crystal"}}
    old = {**crystal, "search": {**REMOVED, "usual_force": 0.0}}
    assert make_config(old) == make_config(crystal)


@pytest.mark.parametrize("name", REMOVED)
def test_removed_options_with_other_values_are_refused(name):
    value = "best" if name == "parents" else 7
    hint = f"search.{name} is {value!r}, but this setting can no longer be changed from"
    assert hint in refusal({"search": {name: value}})
    assert repr(REMOVED[name]) in refusal({"search": {name: value}})
