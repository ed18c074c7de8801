"""Damaged settings: refused, or settings that a search can begin with and that survive a file."""

from __future__ import annotations

import numpy as np
import pytest
from mutations import damaged_text
from outcomes import READ, REFUSED, SAME, attempt, in_children, judge

from nugget.search.prepare import check, locate
from nugget.search.search_settings import make_config, read_config, write_config

SETTINGS = [
    {"system": {"formula": "Au8"}, "engine": {"name": "emt"}},
    {"system": {"formula": "Cu3Au5", "radius": 7.0}, "engine": {"name": "emt"},
     "model": {"uncertainty": "projected-process", "use_forces": True},
     "search": {"acquisition": "ei", "in_flight": 2}},
    {"system": {"formula": "Cu4", "kind": "bulk", "cell": (4.0, 4.1, 4.2, 80.0, 90.0, 100.0)},
     "engine": {"name": "emt", "options": {"fixed_cutoff": True}},
     "execution": {"kind": "in-process"}},
]  # fmt: skip


@pytest.mark.parametrize("n", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_settings(tmp_path, n):
    texts = [write_config(make_config(one), comments=k % 2 == 0) for k, one in enumerate(SETTINGS)]

    def begin(path, again) -> object:
        config = read_config(path)
        check(config, locate(config, tmp_path))
        again.write_text(write_config(config), encoding="utf-8")
        if read_config(again) != config:
            return "settings do not survive being written"
        return config.model_dump()

    def run(case: int) -> tuple[str, str]:
        rng = np.random.default_rng([4, case])
        k = case % len(texts)
        path, again = tmp_path / "damaged.toml", tmp_path / "again.toml"
        path.write_bytes(damaged_text(texts[k], rng))
        return attempt(lambda: begin(path, again), make_config(SETTINGS[k]).model_dump())

    for k, text in enumerate(texts):  # compiled before children start
        (tmp_path / "whole.toml").write_text(text, encoding="utf-8")
        assert (
            begin(tmp_path / "whole.toml", tmp_path / "again.toml")
            == make_config(SETTINGS[k]).model_dump()
        )
    counts = judge(in_children(run, range(n), tmp_path / "out"), {REFUSED, SAME, READ})
    assert counts[REFUSED] > 0.3 * n
