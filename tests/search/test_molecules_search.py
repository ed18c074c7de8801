"""A search of molecules: they stay whole, and the search replays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nugget.search import Search, make_config
from nugget.systems.system_settings import make_goal, make_system


def test_molecules_stay_whole_and_the_search_replays(tmp_path: Path) -> None:
    config = make_config(
        {
            "system": {"formula": "H2O*2"},
            "engine": {"name": "gfn1-xtb"},
            "search": {"budget": 6, "initial": 3, "candidates": 4, "relax_steps": 20, "polish": 0},
        }
    )
    search = Search.create(config, tmp_path / "run")
    search.run()
    records = search.store.records()
    assert {record.generator for record in records} <= {
        "random_molecules", "molecule_move", "molecule_splice"
    }  # fmt: skip
    problem = make_system(config.system, tmp_path)
    for record in records:
        assert problem.fault(record.atoms) is None
        bonds = [record.atoms.get_distance(3 * k, 3 * k + j) for k in (0, 1) for j in (1, 2)]
        assert np.allclose(bonds, 0.97, atol=0.1)
        assert not record.draws  # bonds do not tell them apart
    assert Search.replay(tmp_path / "run").same


def test_structures_with_the_same_bonds_are_kept_apart() -> None:
    config = make_config({"system": {"formula": "H2O*2"}})
    problem = make_system(config.system, Path())
    x = np.concatenate([unit.shape for unit in problem.units])
    near, far = x.copy(), x.copy()
    near[3:, 0] += 2.9
    far[3:, 0] += 3.6
    memory = make_goal(config.system).memory(coarse=True)
    memory.add(problem.assemble(near), -1.0)
    assert problem.assemble(near) in memory
    assert problem.assemble(far) not in memory
