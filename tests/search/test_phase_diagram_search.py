"""Searches with varying numbers of atoms: resume, replay, in flight, files, references."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111
from ase.calculators.emt import EMT
from ase.io import read, write

from nugget.engines.engine_settings import EngineConfig
from nugget.errors import NuggetError
from nugget.search.phase_diagram import (
    DIAGRAM,
    PHASES,
    SUGGESTIONS,
    _Drawn,
    _interval,
    _Pool,
    below_relaxed_envelope,
    conditions_map,
    joint_deviations,
)
from nugget.search.record import Record
from nugget.search.reference_energies import species, species_energy
from nugget.search.search import Result, Search
from nugget.search.search_settings import make_config
from nugget.systems.grand_potential import Envelope, GrandPotential
from nugget.systems.reservoirs import make_reservoirs
from nugget.systems.thermochemistry import gas_potential

SETTINGS: dict[str, Any] = {
    "system": {"vary": "Cu:2-4,Au:0-1", "chemical_potential": "Cu=-3.5:-1.0,Au=-4:-1"},
    "engine": {"name": "emt"},
    "search": {"budget": 11, "initial": 5, "candidates": 6, "explore": 1, "seed": 3, "polish": 2},
}


def changed(**search: Any) -> dict[str, Any]:
    return {**SETTINGS, "search": {**SETTINGS["search"], **search}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    directory = tmp_path_factory.mktemp("vary") / "run"
    return directory, Search.create(make_config(SETTINGS), directory).run()


def rows(directory: Path) -> list[tuple[bytes, bytes, str]]:
    records = Search.resume(directory).store.records()
    return [(r.atoms.positions.tobytes(), r.atoms.numbers.tobytes(), r.generator) for r in records]


def test_references_are_in_the_directory(finished: tuple[Path, Result]) -> None:
    energies = Search.resume(finished[0]).config.system.reference_energies
    assert energies.keys() == {"Cu(atom)", "Au(atom)"}
    atom = Atoms("Cu", calculator=EMT())
    assert energies["Cu(atom)"] == pytest.approx(atom.get_potential_energy())


def test_files_agree_with_the_result(finished: tuple[Path, Result]) -> None:
    directory, result = finished
    diagram = result.diagram
    assert diagram is not None
    data = json.loads((directory / DIAGRAM).read_text())
    assert data["stable"] == [phase.formula for phase in diagram.stable]
    images = read(directory / PHASES, ":")
    assert [a.info["formula"] for a in images] == [phase.formula for phase in diagram.phases]
    for atoms, phase in zip(images, diagram.phases, strict=True):
        again = atoms.copy()
        again.calc = EMT()
        assert again.get_potential_energy() == pytest.approx(phase.energy, abs=1e-6)
    assert len(read(directory / SUGGESTIONS, ":")) == len(diagram.suggestions) == 3
    gains = [one.gain for one in diagram.suggestions]
    assert gains == sorted(gains, reverse=True)


def test_phases_are_stable_where_their_plane_is_lowest(finished: tuple[Path, Result]) -> None:
    """Brute force over Δμ, from the numbers of the result alone."""
    diagram = finished[1].diagram
    assert diagram is not None
    deciding = [p for p in diagram.phases if p.relaxed]
    axes = [np.linspace(*diagram.ranges[s], 201) for s in diagram.elements]
    delta = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    references = np.array([diagram.references[s] for s in diagram.elements])
    planes = [
        p.energy - (references + delta) @ np.array([p.counts[s] for s in diagram.elements])
        for p in deciding
    ]
    winners = {deciding[k].formula for k in np.unique(np.argmin(planes, axis=0))}
    assert winners == {p.formula for p in diagram.stable}
    for p in diagram.phases:
        assert p.probability is not None
        assert 0.0 <= p.probability <= 1.0


def test_replay_is_identical(finished: tuple[Path, Result]) -> None:
    replay = Search.replay(finished[0])
    assert replay.same
    assert replay.proposals == 11


def test_resumed_search_has_the_same_bits(finished: tuple[Path, Result], tmp_path: Path) -> None:
    search = Search.create(make_config(SETTINGS), tmp_path / "run")
    search.run(budget=7)
    result = Search.resume(tmp_path / "run").run()
    assert rows(tmp_path / "run") == rows(finished[0])
    ours, theirs = result.diagram, finished[1].diagram
    assert ours is not None
    assert theirs is not None
    assert [p.energy for p in ours.stable] == pytest.approx([p.energy for p in theirs.stable])


@pytest.mark.slow
def test_several_in_flight_replay(tmp_path: Path) -> None:
    search = Search.create(make_config(changed(in_flight=2, budget=8)), tmp_path / "run")
    assert search.run().diagram is not None
    assert Search.replay(tmp_path / "run").same


def test_start_and_learn(finished: tuple[Path, Result], tmp_path: Path) -> None:
    dimer = Atoms("Cu2", [[0, 0, 0], [2.3, 0, 0]])
    write(tmp_path / "start.extxyz", dimer)
    settings = changed(start=str(tmp_path / "start.extxyz"), learn=str(finished[0]), budget=3)
    settings["system"] = {**SETTINGS["system"], "vary": "Cu:2-5,Au:0-1"}
    search = Search.create(make_config(settings), tmp_path / "run")
    search.run()
    first = search.store.records()[0]
    # The dimer was evaluated by the other search, unless its bond differs by more than 0.2 Å.
    assert len(search.knowledge().learned) >= 11
    assert first.predicted is not None or first.generator == "start"
    write(tmp_path / "wrong.extxyz", Atoms("Cu9", np.random.default_rng(0).uniform(0, 8, (9, 3))))
    with pytest.raises(NuggetError, match="numbers of atoms within their ranges"):
        Search.create(make_config(changed(start=str(tmp_path / "wrong.extxyz"))), tmp_path / "no")


def test_surface_with_a_rigid_template(tmp_path: Path) -> None:
    slab = fcc111("Cu", (2, 2, 2), vacuum=6.0)
    slab.pbc = (True, True, False)
    write(tmp_path / "slab.traj", slab)
    settings = changed(budget=6, initial=4)
    settings["system"] = {
        "kind": "surface", "template": str(tmp_path / "slab.traj"), "vary": "Au:0-2",
        "chemical_potential": "Au=-1:1", "reservoirs": "Au=Au(bulk)", "height": 3.0,
    }  # fmt: skip
    search = Search.create(make_config(settings), tmp_path / "run")
    result = search.run()
    first = search.store.records()[0]
    assert len(first.atoms) == len(slab)  # the bare template
    diagram = result.diagram
    assert diagram is not None
    assert diagram.phases[0].formula == "clean"
    assert diagram.phases[0].counts == {"Au": 0}
    for one in diagram.boundaries:
        assert one.position is not None
        assert one.low is not None
        assert one.high is not None
        assert one.low <= one.high
    assert search.config.system.reference_energies["Au(bulk)"] == pytest.approx(0.0, abs=0.01)


def test_missing_references_are_refused(finished: tuple[Path, Result], tmp_path: Path) -> None:
    file = finished[0] / "config.toml"
    text = file.read_text()
    try:
        file.write_text("\n".join(line for line in text.splitlines() if "(atom)" not in line))
        with pytest.raises(NuggetError):
            Search.resume(finished[0])
    finally:
        file.write_text(text)


def test_species() -> None:
    assert species("O2", periodic=True).pbc.all()
    assert len(species("Pt(bulk)")) == 1
    with pytest.raises(NuggetError, match="reference_energies"):
        species("Pt7Xe2")
    engine = EngineConfig(name="emt")
    dimer = species_energy("O2", engine, False)
    atoms = species("O2")
    atoms.calc = EMT()
    assert dimer < atoms.get_potential_energy()
    with pytest.raises(NuggetError, match="could not be computed"):
        species_energy("Fe(atom)", engine, False)


def test_joint_draws_have_the_covariance_of_the_model(finished: tuple[Path, Result]) -> None:
    search = Search.resume(finished[0])
    learner = search.learner()
    for record in search.store.records():
        learner.learn(record)
    images = [record.atoms for record in learner.good[:4]]
    mean, std, deviations = joint_deviations(learner.potential, images)
    assert deviations is not None
    energy, expected = learner.predict(images)
    assert mean == pytest.approx(energy)
    assert np.linalg.norm(deviations, axis=1) == pytest.approx(expected)
    assert std == pytest.approx(expected)
    pool = _Pool(images, [-1] * 4, mean, std, deviations)
    draws = pool.draws(np.random.default_rng(0), 40000)
    assert draws.mean(axis=0) == pytest.approx(mean, abs=4 * std.max() / 200)
    covariance = deviations @ deviations.T
    assert np.cov(draws.T) == pytest.approx(covariance, abs=0.04 * covariance.max())
    alone = _Pool(images, [-1] * 4, mean, std, None)
    assert alone.kind == "independent"
    assert alone.draws(np.random.default_rng(0), 20000).std(axis=0) == pytest.approx(std, rel=0.05)


def test_interval_of_a_boundary() -> None:
    """Two phases, of which the second has a normal energy: quantiles of (e₂ − e₁)/2."""
    rng = np.random.default_rng(1)
    energies = np.column_stack([np.zeros(20000), rng.normal(-1.0, 0.2, 20000)])
    drawn = _Drawn([(0,), (2,)], energies, {})
    low, high = _interval(drawn, (0,), (2,), [(-3.0, 3.0)])
    assert low == pytest.approx(-0.5 - 0.1 * 1.645, abs=0.005)
    assert high == pytest.approx(-0.5 + 0.1 * 1.645, abs=0.005)


def test_map_over_temperature_and_pressure() -> None:
    """Oxygen desorbs where it is hot and dilute; the boundary is that of the tables."""
    reservoirs = make_reservoirs(
        "O:0-1", energies={"O2": -10.0}, temperature="300:1200", partial_pressures="O2=1e-10:1"
    )
    (low, high) = reservoirs.ranges[0]
    start = Envelope((8,), (-5.0,), (low,), (high,))
    envelope = start.including((0,), 0.0).including((1,), -6.0)  # Δμ = −1
    made = conditions_map(reservoirs, envelope, {(0,): "clean", (1,): "O"})
    assert made is not None
    for p, row in zip(made["pressures"], made["stable"], strict=True):
        for t, name in zip(made["temperatures"], row, strict=True):
            assert name == ("O" if gas_potential("O2", t, p) / 2 > -1.0 else "clean")
    assert {name for row in made["stable"] for name in row} == {"clean", "O"}
    assert conditions_map(make_reservoirs("O:0-1"), envelope, {}) is None


def test_what_lies_below_the_relaxed_envelope_is_relaxed() -> None:
    goal = GrandPotential(envelope=Envelope((79,), (0.0,), (-3.0,), (0.0,)))

    def record(k: int, n: int, energy: float) -> Record:
        atoms = Atoms(f"Au{n}", np.arange(3 * n).reshape(n, 3))
        from ase.calculators.singlepoint import SinglePointCalculator

        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=np.zeros((n, 3)))
        return Record(k, atoms, "start")

    records = [record(0, 2, -2.0), record(1, 3, -4.0), record(2, 3, -4.5), record(3, 4, -6.5)]
    below = below_relaxed_envelope(goal, records, records[:1], [])
    assert sorted(one.iteration for one in below) == [2, 3]
