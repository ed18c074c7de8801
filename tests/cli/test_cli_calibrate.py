"""`nugget calibrate`, `nugget evaluate` and `nugget dataset` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster
from typer.testing import CliRunner

from nugget.calibration import calibration_error, residuals
from nugget.cli.main import app
from nugget.potential import Potential
from nugget.potential.model_file import read_header
from nugget.structures.io import read_images, write_images


def labelled(n: int, seed: int):
    atoms = gold_cluster(n, seed)
    work = atoms.copy()
    work.calc = EMT()
    atoms.calc = SinglePointCalculator(
        atoms, energy=work.get_potential_energy(), forces=work.get_forces()
    )
    return atoms


def nugget(*arguments: object, code: int = 0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def parsed(*arguments: object) -> dict:
    return json.loads(nugget(*arguments, "--json").stdout)


def refused(*arguments: object) -> str:
    result = nugget(*arguments, code=2)
    assert "Traceback" not in result.output
    return result.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrate")
    write_images(folder / "train.extxyz", [labelled(7, s) for s in range(14)])
    write_images(folder / "test.extxyz", [labelled(6 + s % 3, s) for s in range(100, 145)])
    write_images(folder / "bare.extxyz", [gold_cluster(8, s) for s in range(2)])
    for name, more in (("au", ()), ("pp", ("--uncertainty", "projected-process"))):
        model = folder / f"{name}.model"
        nugget("fit", folder / "train.extxyz", "-o", model, "--cutoff", 5, "--no-forces", *more)
    return folder


@pytest.mark.parametrize("name", ["au", "pp"])
def test_calibrate_writes_an_honest_model(here, name):
    model, out = here / f"{name}.model", here / f"{name}-calibrated.model"
    untouched = model.read_bytes()
    found = parsed("calibrate", model, here / "test.extxyz", "-i", "0:25", "-o", out)
    assert model.read_bytes() == untouched
    assert found["calibration"] == read_header(out)["calibration"]
    assert found["calibration"]["n"] == 25
    images = read_images(here / "test.extxyz", "0:25")
    after = residuals(Potential.load(out).without_domain(), images)  # levels refer to this σ
    value = calibration_error(after.y_true, after.y_pred, after.y_std)
    assert value == pytest.approx(found["calibration"]["value"], abs=1e-9)
    assert value < found["before"]["calibration_error"]
    assert np.array_equal(after.y_pred, residuals(Potential.load(model), images).y_pred)
    assert "Calibration" in nugget("info", out).stdout


def test_calibrate_in_place_and_in_words(here, tmp_path):
    model = tmp_path / "au.model"
    model.write_bytes((here / "au.model").read_bytes())
    assert "--force" in refused("calibrate", model, here / "test.extxyz")
    assert model.read_bytes() == (here / "au.model").read_bytes()
    start = ("calibrate", model, here / "test.extxyz", "--force")
    text = nugget(*start, "--objective", "nll").stdout
    assert "floor of σ" in text
    assert "factor on σ, forces" in text
    assert "90 % interval" in text
    assert read_header(model)["calibration"]["objective"] == "nll"
    text = nugget(*start, "--method", "scale").stdout
    assert "factor on σ" in text
    assert read_header(model)["calibration"]["method"] == "scale"


def test_factors_by_group(here, tmp_path):
    """`calibrate --by` measures a factor for each group, which predictions use."""
    images = read_images(here / "test.extxyz")
    for atoms in images:
        atoms.info["group"] = "small" if len(atoms) == 6 else "large"
    write_images(tmp_path / "grouped.extxyz", images)
    out = tmp_path / "grouped.model"
    start = ("calibrate", here / "au.model", tmp_path / "grouped.extxyz", "-o", out)
    found = parsed(*start, "--by", "group", "--resamples", 0)
    factors = found["calibration"]["by"]["factors"]
    assert set(factors) == {"small", "large"}
    rows = parsed("predict", out, tmp_path / "grouped.extxyz")["structures"]
    plain = Potential.load(out).predict(images, forces=False).energy_uncertainty
    expected = [s * factors[a.info["group"]] for s, a in zip(plain, images, strict=True)]
    assert [row["energy_uncertainty"] for row in rows] == pytest.approx(expected)
    table = parsed("evaluate", out, tmp_path / "grouped.extxyz", "--by", "group")["by"]["groups"]
    assert [group["rms_z"] for group in table.values()] == pytest.approx([1.0, 1.0])
    text = nugget("evaluate", out, tmp_path / "grouped.extxyz", "--by", "group").stdout
    assert "rms z" in text
    assert "Factor on σ" in nugget(*start, "--by", "group", "--force").stdout


def test_training_structures_are_refused_with_their_number(here, tmp_path):
    mixed = tmp_path / "mixed.extxyz"
    train = read_images(here / "train.extxyz")
    write_images(mixed, [*train[:3], *read_images(here / "test.extxyz")])
    for command in (("evaluate",), ("calibrate", "-o", tmp_path / "new.model")):
        start = (command[0], here / "au.model", mixed, *command[1:])
        assert "Error: 3 of 48 structures are in the training set" in refused(*start)
        nugget(*start, "--allow-training", "--resamples", 0)
    shifted = [atoms.copy() for atoms in train[:2]]
    for atoms in shifted:
        atoms.positions[0, 0] += 1e-3
    training = Potential.load(here / "au.model").fitted.training
    assert training.contains([*train[:2], *shifted]).tolist() == [True, True, False, False]


def test_evaluate_gives_every_metric_and_a_figure(here, tmp_path):
    arguments = ("evaluate", here / "au.model", here / "test.extxyz")
    found = parsed(*arguments, "--plot", tmp_path / "figures")
    expected = residuals(
        Potential.load(here / "au.model"), read_images(here / "test.extxyz")
    ).summary()
    for name, value in expected.to_dict().items():
        if name != "intervals":
            assert found["metrics"][name] == pytest.approx(value)
    low, high = found["metrics"]["intervals"]["mae"]
    assert low < found["metrics"]["mae"] < high
    assert sum(found["bins"]["count"]) == 45
    for file in found["figures"]:
        assert Path(file).stat().st_size > 5000
    assert (tmp_path / "figures" / "calibration.png").read_bytes().startswith(b"\x89PNG")
    text = nugget(*arguments, "--resamples", 0).stdout
    for word in ("RMSE", "ENCE", "CRPS", "Spearman", "bias"):
        assert word in text


def test_labels_by_another_name(here, tmp_path):
    images = read_images(here / "test.extxyz")
    for atoms in images:
        atoms.info["REF_energy"] = atoms.get_potential_energy()
        atoms.calc = None
    write_images(tmp_path / "named.extxyz", images)
    model, out = here / "au.model", tmp_path / "out.model"
    named = ("--energy-key", "REF_energy", "--resamples", 0)
    one = parsed("evaluate", model, tmp_path / "named.extxyz", *named)
    two = parsed("evaluate", model, here / "test.extxyz", "--resamples", 0)
    for name in ("mae", "calibration_error", "nll"):
        assert one["metrics"][name] == pytest.approx(two["metrics"][name])
    nugget("calibrate", model, tmp_path / "named.extxyz", *named, "-o", out)


def test_dataset_then_fit_then_evaluate(tmp_path):
    """The whole way of a new user."""
    folder = tmp_path / "gold"
    found = parsed("dataset", "Au6-Au7", "-n", 24, "-e", "emt", "--split", "2:1:1", "-o", folder)
    assert found["complete"]
    assert found["parts"] == {"train": 12, "validation": 6, "test": 6}
    text = nugget("dataset", "--resume", folder).stdout
    assert "24 of 24" in text
    assert "0 now" in text
    model = tmp_path / "au.model"
    nugget("fit", folder / "train.extxyz", "-o", model, "--cutoff", 5)
    nugget("calibrate", model, folder / "validation.extxyz", "--force")
    nugget("evaluate", model, folder / "test.extxyz")


def test_mistakes_are_explained(here, tmp_path):
    model = here / "au.model"
    assert "no energy" in refused("calibrate", model, here / "bare.extxyz", "--force")
    assert "no energy" in refused("evaluate", model, here / "bare.extxyz")
    assert "does not exist" in refused("evaluate", model, here / "nothing.extxyz")
    assert "--out DIR" in refused("dataset", "Au5")
    assert "no data set" in refused("dataset", "--resume", tmp_path)
    assert "takes no other options" in refused("dataset", "Au5", "--resume", tmp_path)
    for more, word in (
        (("Gold",), "formula"),
        (("Au5", "--split", "1:2"), "8:1:1"),
        (("Au5", "-e", "emtt"), "emt"),
        (("Au5", "-e", "emt", "--option", "a"), "name=value"),
        (("Au5", "-e", "emt", "--generator", "magic"), "magic"),
    ):
        assert word in refused("dataset", *more, "--out", tmp_path / "d")
    assert not (tmp_path / "d" / "recipe.json").exists()
    wrong = ("dataset", "Au8", "-n", 50, "-e", "dataset_engines:moody", "--option", "colour=red")
    assert "colour" in refused(*wrong, "--out", tmp_path / "d")
