"""A cheaper engine, or a model of one, as what a search believes before any data."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from flights import settings

from nugget import SOAP, Potential
from nugget.campaign import Campaign
from nugget.cli.search import read_settings
from nugget.engines.engine import Engine
from nugget.errors import NuggetError
from nugget.potential.mean_functions.base import SpeciesEnergies
from nugget.potential.mean_functions.from_models import CalculatorPrior, ModelPrior
from nugget.relax import relax
from nugget.search import Search, make_config
from nugget.structures.batch import as_batch


def clusters(count: int, symbols: str = "Au6") -> list[Atoms]:
    """Rattled octahedra with energies and forces of EMT."""
    rng = np.random.default_rng(4)
    corners = 1.9 * np.array([(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)])
    images = []
    for _ in range(count):
        atoms = Atoms(symbols, corners + rng.normal(scale=0.15, size=(6, 3)))
        atoms.calc = EMT()
        results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **results)
        images.append(atoms)
    return images


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "emt.model"
    Potential(SOAP(["Au"], 5.0)).fit(clusters(8)).save(file)
    return file


def with_baseline(name: str, **search: object) -> dict[str, object]:
    tree = settings(1, budget=7, **search)
    tree["model"]["baseline"] = name
    return tree


def slope_error(potential: Potential, atoms: Atoms) -> float:
    """Difference between gradient and central differences of E − 2σ, eV/Å."""
    surface = potential.lcb(2.0)
    gradient = surface([atoms])[1][0]
    numbers = np.zeros_like(gradient)
    for i, c in np.ndindex(*gradient.shape):
        moved = []
        for step in (1e-4, -1e-4):
            moved.append(atoms.copy())
            moved[-1].positions[i, c] += step
        up, down = surface(moved)[0]
        numbers[i, c] = (up - down) / 2e-4
    return float(np.abs(numbers - gradient).max())


@pytest.mark.parametrize("kind", ["engine", "model"])
def test_gradients_are_exact(kind: str, model: Path) -> None:
    prior = CalculatorPrior("emt") if kind == "engine" else ModelPrior(str(model))
    train = clusters(4)
    potential = Potential(SOAP(["Au"], 4.0), prior=[SpeciesEnergies(), prior])
    potential.fit(train[:3], use_forces=False)
    assert slope_error(potential, train[3]) < 1e-5


def test_a_model_is_its_own_mean(model: Path) -> None:
    image = clusters(9)[8:]
    found = ModelPrior(str(model)).evaluate(as_batch(image))
    expected = Potential.load(model).predict(image, energies=True)
    assert found.totals(as_batch(image)) == pytest.approx(expected.energy, abs=1e-9)
    assert found.energies == pytest.approx(expected.energies[0], abs=1e-9)
    assert found.gradient == pytest.approx(-expected.forces[0], abs=1e-9)


def test_the_calculator_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    plain = Engine.calculator

    def counted(self: Engine, *args: object, **options: object) -> object:
        made.append(self.name)
        return plain(self, *args, **options)

    monkeypatch.setattr(Engine, "calculator", counted)
    prior = CalculatorPrior("emt")
    for atoms in clusters(3):
        assert prior([atoms])[0][0] == pytest.approx(atoms.get_potential_energy(), abs=1e-9)
    assert made == ["emt"]


def test_values_do_not_depend_on_what_was_calculated_before() -> None:
    """Tight binding would start from the charges of the last structure."""
    images = clusters(2, "Cu3Au3")
    kept, fresh = CalculatorPrior("gfn1-xtb"), CalculatorPrior("gfn1-xtb")
    after = [kept([atoms])[0][0] for atoms in images][1]
    assert after == fresh([images[1]])[0][0]


def test_a_structure_on_which_the_engine_fails_does_not_disturb_the_others() -> None:
    good = clusters(2)
    strange = Atoms("Si6", good[0].positions)  # unknown to EMT
    prior = CalculatorPrior("emt")
    found = relax([good[0], strange, good[1]], prior, 0.05, 20)
    assert [one.ok for one in found] == [True, False, True]
    alone = relax([good[1]], prior, 0.05, 20)[0]
    assert np.array_equal(found[2].atoms.positions, alone.atoms.positions)


@pytest.mark.slow
def test_an_engine_that_is_its_own_baseline_leaves_nothing_to_learn(tmp_path: Path) -> None:
    Search.create(make_config(with_baseline("engine:emt", candidates=3)), tmp_path / "run").run()
    records = Search.resume(tmp_path / "run").store.records()
    known = [record for record in records if record.predicted is not None]
    assert known
    for record in known:
        assert record.predicted == pytest.approx(record.energy, abs=1e-6)
    # The first structures are minima of the baseline, not random ones.
    forces = np.linalg.norm(records[0].atoms.get_forces(), axis=1)
    assert forces.max() < 0.3
    assert Search.replay(tmp_path / "run").same


def test_a_model_is_copied_and_the_search_goes_on_without_the_original(
    model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "cheap.model"
    shutil.copy(model, file)
    tree = make_config(with_baseline(str(file)))
    Search.create(tree, tmp_path / "whole").run()
    Search.create(tree, tmp_path / "broken").run(budget=4)
    file.unlink()
    assert Search.resume(tmp_path / "broken").config.model.baseline == "baseline/cheap.model"
    Search.resume(tmp_path / "broken").run()
    one, two = (Search.resume(tmp_path / d).store.records() for d in ("whole", "broken"))
    assert [r.predicted for r in one] == [r.predicted for r in two]
    assert Search.replay(tmp_path / "broken").same
    copied = tmp_path / "broken" / "baseline" / "cheap.model"
    copied.write_bytes(copied.read_bytes()[:-200])
    with pytest.raises(NuggetError, match="is missing or was changed"):
        Search.resume(tmp_path / "broken").run(budget=9)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere.model", "there is no file nowhere.model"),
        ("engine:emtt", "there is no engine 'emtt'"),
        ("engine:tersoff", "gives no energy for structures of Au6"),
        ("pair-wall", "There is no prior 'pair-wall'"),
    ],
)
def test_what_cannot_be_a_baseline_is_named(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(NuggetError, match=reason):
        Search.create(make_config(with_baseline(name)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_code_needs_trust(tmp_path: Path) -> None:
    """An engine that a settings file names, and one that a model file holds."""
    file = tmp_path / "code.model"
    prior = [SpeciesEnergies(), CalculatorPrior("ase.calculators.emt:EMT")]
    Potential(SOAP(["Au"], 4.0), prior=prior).fit(clusters(3)).save(file)
    changed = {"engine.name": "emt", "model.baseline": str(file)}
    with pytest.raises(NuggetError, match=r"would run 'ase.calculators.emt:EMT'.*--trust"):
        read_settings("Au6", changed)
    config, base, _ = read_settings("Au6", changed, trust=True)
    Search.create(config, tmp_path / "run", base)
    with pytest.raises(NuggetError, match=r"would run 'ase.calculators.emt:EMT'"):
        Search.resume(tmp_path / "run")
    Search.resume(tmp_path / "run", trust=True)
    toml = tmp_path / "own.toml"
    toml.write_text(
        '[system]\nformula = "Au6"\n[model]\nbaseline = "engine:ase.calculators.emt:EMT"\n'
    )
    with pytest.raises(NuggetError, match=r"would run 'ase.calculators.emt:EMT'"):
        read_settings(str(toml), {})


def test_a_campaign_takes_baseline_and_learned_data_along(model: Path, tmp_path: Path) -> None:
    Search.create(make_config(settings(1, budget=4)), tmp_path / "before").run()
    tree = with_baseline(str(model), learn=str(tmp_path / "before"))
    tree["search"]["budget"] = 2
    campaign = Campaign.create(make_config(tree), {}, 1, tmp_path / "campaign")
    shutil.rmtree(tmp_path / "before")
    with ThreadPoolExecutor(1) as executor:
        campaign.run(executor)
    for member in campaign.members:
        assert len(Search.resume(member.directory).knowledge().learned) == 4
        assert Search.replay(member.directory).same
