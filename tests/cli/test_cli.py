from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import alloy_slab, gold_cluster
from typer.testing import CliRunner

from nugget import CUR, RBF, SOAP, LabelNoise, Potential
from nugget.cli import _fit as _estimate
from nugget.cli.fit import Preset
from nugget.cli.fit import fit as fit_command
from nugget.cli.main import app
from nugget.potential import gradient_check
from nugget.potential.model_file import read_header
from nugget.presets import CANDIDATES, PRESETS
from nugget.structures.io import read_images, write_images


def labelled(atoms: Atoms, **instead: object) -> Atoms:
    work = atoms.copy()
    work.calc = EMT()
    results = {"energy": work.get_potential_energy(), "forces": work.get_forces(), **instead}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def nugget(*arguments: object, code: int = 0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def parsed(*arguments: object, code: int = 0) -> dict:
    return json.loads(nugget(*arguments, "--json", code=code).stdout)


def refused(*arguments: object) -> str:
    """The one line on stderr of a command that cannot do its work."""
    result = nugget(*arguments, code=2)
    assert "Traceback" not in result.output
    lines = result.stderr.strip().splitlines()
    lines = [line for line in lines if not line.startswith("nugget: compiling")]  # on a first run
    assert len(lines) == 1, lines
    assert lines[0].startswith("Error: ")
    return lines[0]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    write_images(folder / "train.extxyz.gz", [labelled(gold_cluster(7, s)) for s in range(12)])
    write_images(folder / "test.extxyz", [labelled(gold_cluster(8, s)) for s in range(30, 53)])
    write_images(folder / "bare.extxyz", [gold_cluster(8, s) for s in range(2)])
    slabs = [labelled(alloy_slab(s)) for s in range(4)]
    for slab in slabs:
        slab.info.clear()
    write_images(folder / "slabs.extxyz", slabs)
    nugget("fit", folder / "train.extxyz.gz", "-o", folder / "au.model", "--cutoff", 5)
    nugget("fit", folder / "slabs.extxyz", "-o", folder / "slab.model", "--cutoff", 4.5)
    return folder


def test_start_is_light():
    """`nugget --help` and `import nugget` load none of the heavy packages."""
    heavy = {"numpy", "scipy", "ase", "numba", "sklearn", "matplotlib", "pydantic", "vesin"}
    for code in ("import nugget", "import nugget.cli.main"):
        probe = f"{code}; import sys; print(*sys.modules)"
        loaded = subprocess.run(
            [sys.executable, "-c", probe], capture_output=True, text=True, check=True
        ).stdout.split()
        assert not heavy & set(loaded), code


def test_help_teaches():
    text = nugget("--help").stdout
    for name in ("fit", "predict", "info", "check"):
        assert f"nugget {name} " in text
        assert f"nugget {name} " in nugget(name, "--help").stdout
    assert nugget("--version").stdout.startswith("nugget ")


def test_defaults_are_those_of_the_library():
    """Written out in the command so that it starts quickly; they must not drift apart."""
    given = {
        name: parameter.default
        for name, parameter in inspect.signature(fit_command).parameters.items()
    }
    assert given["seed"] == Potential(SOAP(("Au",))).seed
    assert set(get_args(Preset)) == set(PRESETS)
    for name in ("cutoff", "n_max", "l_max", "sigma", "length_scale", "amplitude", "noise"):
        assert given[name] is None  # left to the preset and to the data
    for name in ("label_noise", "prior_noise", "force_label_noise", "members", "observations"):
        assert given[name] is None  # left to the uncertainty's class


def test_fit_without_options_chooses_and_calibrates(here):
    report = parsed("fit", here / "train.extxyz.gz", "-o", here / "auto.model")
    chosen, calibration = report["choices"], report["calibration"]
    assert chosen["preset"] == "auto"
    assert chosen["range"].partition(",")[0] in CANDIDATES
    assert {name.partition(",")[0] for name in chosen["left_out_mae"]} <= set(CANDIDATES)
    best = min(chosen["left_out_mae"].items(), key=lambda item: item[1][0] * item[1][1])[0]
    assert chosen["range"] == best
    header = read_header(here / "auto.model")
    assert header["choices"] == chosen
    assert header["noise"] == chosen["noise"]
    assert header["uncertainty"]["name"] == "Posterior"
    assert header["uncertainty"]["force_floor"] == calibration["levels"]["force_floor"]
    assert calibration["within"]["force"][0] >= 0.5
    text = nugget("fit", here / "train.extxyz.gz", "-o", here / "auto.model", "--force").stdout
    assert chosen["range"] in text
    assert "Leave-one-out" in text


def test_presets_lean_and_optimise(here):
    start = ("fit", here / "train.extxyz.gz", "-o", here / "p.model", "--force")
    full = parsed(*start, "--preset", "quick")
    lean = parsed(*start, "--preset", "quick", "--lean")
    assert lean["bytes"] < full["bytes"]
    assert lean["choices"]["preset"] == "quick"
    exported = parsed("export", here / "au.model", "-o", here / "small.model")
    assert exported["bytes"]["lean"] < exported["bytes"]["model"]
    one, two = (Potential.load(here / name) for name in ("au.model", "small.model"))
    test = read_images(here / "test.extxyz")
    np.testing.assert_array_equal(one.predict(test).energy, two.predict(test).energy)
    best = parsed(*start, "--preset", "quick", "--optimise", "--no-forces")["choices"]
    assert np.isfinite(best["log_marginal_likelihood"])
    assert read_header(here / "p.model")["kernel"]["length_scale"] == best["length_scale"]
    assert "one range" in refused(*start, "--preset", "accurate", "--optimise")


def test_predict_with_intervals(here):
    found = parsed("predict", here / "au.model", here / "test.extxyz", "--interval", 0.8)
    factor = found["interval"]["factor"]
    for row in found["structures"]:
        assert row["energy_interval"] == pytest.approx(factor * row["energy_uncertainty"])
    assert "80%" in nugget(
        "predict", here / "au.model", here / "test.extxyz", "--interval", 0.8
    ).stdout  # fmt: skip
    assert "the most is 92%" in refused(
        "predict", here / "au.model", here / "test.extxyz", "--interval", 0.99
    )


def test_learn_curve(here):
    arguments = ("learn-curve", here / "test.extxyz", "--sizes", "6,12", "--repeats", 2)
    found = parsed(*arguments, "--preset", "quick", "--plot", here / "curve")
    assert [point["structures"] for point in found["points"]] == [6, 12]
    assert all(len(point["force_mae"]) == 2 for point in found["points"])
    assert (here / "curve" / "learning_curve.png").exists()
    assert "give 5 to 17" in refused("learn-curve", here / "test.extxyz", "--sizes", "40")


def test_fit_writes_the_model_that_python_makes(here):
    images = read_images(here / "train.extxyz.gz", "2:")
    report = parsed(
        "fit", here / "train.extxyz.gz", "-i", "2:", "-o", here / "x.model", "--cutoff", 5,
        "--n-max", 4, "--l-max", 3, "--sigma", 0.9, "--length-scale", 15, "--amplitude", 2,
        "--noise", 0.02, "--force-noise", 0.2, "--inducing", "cur", "--points", 40,
        "--members", 8, "--label-noise", 0.03, "--seed", 3, "--prior", "species",
        "--prior", "repulsion",
    )  # fmt: skip
    from nugget.potential.mean_functions.base import SpeciesEnergies
    from nugget.potential.mean_functions.pair_terms import Repulsion

    expected = Potential(
        SOAP(("Au",), 5.0, 4, 3, 0.9), RBF(15.0, 2.0), CUR(40), 0.02, 0.2,
        LabelNoise(0.03, members=8), [SpeciesEnergies(), Repulsion()], 3,
    ).fit(images)  # fmt: skip
    test = read_images(here / "test.extxyz")
    a, b = Potential.load(here / "x.model").predict(test), expected.predict(test)
    np.testing.assert_array_equal(a.energy, b.energy)
    np.testing.assert_array_equal(a.energy_uncertainty, b.energy_uncertainty)
    assert report["structures"] == 10
    assert report["inducing_points"] == 40
    assert report["labels"] == 10 + 10 * 21
    own = expected.predict(images)
    truth = np.array([atoms.get_potential_energy() for atoms in images])
    assert report["training"]["energy_mae"] == pytest.approx(np.abs(own.energy - truth).mean() / 7)


def test_fit_without_forces_and_with_the_projected_process(here):
    report = parsed(
        "fit", here / "train.extxyz.gz", "-o", here / "pp.model", "--no-forces",
        "--uncertainty", "projected-process", "--observations", "environments",
    )  # fmt: skip
    assert report["labels"] == 12
    assert "forces_mae" not in report["training"]
    used = parsed("info", here / "pp.model")["uncertainty"]
    assert used["name"] == "ProjectedProcess"
    assert used["observations"] == "environments"


@pytest.mark.parametrize("name", ["label-noise", "projected"])
def test_every_uncertainty_is_calibrated_unless_levels_are_given(here, name):
    start = ("fit", here / "train.extxyz.gz", "--cutoff", 4, "--n-max", 3, "--l-max", 2)
    own = (*start, "--uncertainty", name, "--force", "-o", here / "kind.model")
    report = parsed(*own)
    assert report["calibration"]["method"] == "leave-one-out"
    assert set(report["calibration"]["within"]) == {"energy", "force"}
    given = {"label-noise": "label=0.03", "projected": "energy=2"}[name]
    report = parsed(*own, "--uncertainty-option", given)
    assert report["calibration"] is None
    key, value = given.split("=")
    assert parsed("info", here / "kind.model")["uncertainty"][key] == float(value)


def test_fit_takes_parts_by_name(here):
    report = parsed(
        "fit", here / "train.extxyz.gz", "-o", here / "named_parts.model", "--descriptor", "soap",
        "--descriptor-option", "cutoff=4.5", "--kernel", "rbf", "--kernel-option",
        "length_scale=12", "--inducing", "cur", "--inducing-option", "n_points=30",
        "--uncertainty", "label-noise", "--uncertainty-option", "label=0.03",
    )  # fmt: skip
    assert report["inducing_points"] == 30
    header = read_header(here / "named_parts.model")
    assert header["descriptor"]["cutoff"] == 4.5
    assert header["kernel"]["length_scale"] == 12
    assert header["uncertainty"] == {**header["uncertainty"], "name": "LabelNoise", "label": 0.03}
    assert "no kernel 'cubic'" in refused(
        "fit", here / "train.extxyz.gz", "-o", here / "c.model", "--kernel", "cubic"
    )


def test_fit_prints_errors_and_where_the_model_is(here):
    text = nugget("fit", here / "train.extxyz.gz", "-o", here / "y.model").stdout
    for word in ("Training set", "MAE", "meV/atom", "eV/Å", "inducing points", "y.model"):
        assert word in text


def test_labels_under_other_names(here):
    images = read_images(here / "train.extxyz.gz")
    for atoms in images:
        atoms.info["REF_energy"] = atoms.get_potential_energy()
        atoms.arrays["REF_forces"] = atoms.get_forces()
        atoms.calc = None
    write_images(here / "named.extxyz", images)
    start = ("fit", here / "named.extxyz", "-o", here / "named.model", "--cutoff", 5, "--force")
    assert "no 'REF' for its energy; its info holds ['REF_energy']" in refused(
        *start, "--energy-key", "REF"
    )
    nugget(*start, "--energy-key", "REF_energy", "--forces-key", "REF_forces")
    test = read_images(here / "test.extxyz")
    a, b = (Potential.load(here / n).predict(test).energy for n in ("named.model", "au.model"))
    np.testing.assert_allclose(a, b, rtol=1e-6)
    # REF_forces are labels without being named.
    assert parsed(*start, "--energy-key", "REF_energy")["labels"] == 264


def test_a_large_fit_is_announced_and_one_too_large_is_refused(here, monkeypatch):
    arguments = ("fit", here / "train.extxyz.gz", "-o", here / "z.model")
    monkeypatch.setattr("nugget.cli._fit._LARGE", 1e3)
    assert "need about" in nugget(*arguments).stderr
    monkeypatch.setattr(_estimate, "available_memory", lambda: 4e5)
    (here / "z.model").unlink()
    message = refused(*arguments)
    assert "--no-forces" in message
    assert "--anyway" in message
    assert not (here / "z.model").exists()
    nugget(*arguments, "--anyway")
    assert (here / "z.model").exists()


def test_predict_writes_predictions_and_keeps_labels(here):
    nugget(
        "predict", here / "au.model", here / "test.extxyz", "-o", here / "out.extxyz",
        "--per-atom", "--force-uncertainty",
    )  # fmt: skip
    images = read_images(here / "test.extxyz")
    expected = Potential.load(here / "au.model").predict(
        images, energies=True, energies_uncertainty=True, forces_uncertainty=True
    )
    for s, atoms in enumerate(read_images(here / "out.extxyz")):
        assert atoms.get_potential_energy() == pytest.approx(expected.energy[s], abs=1e-7)
        np.testing.assert_allclose(atoms.get_forces(), expected.forces[s], atol=1e-7)
        np.testing.assert_allclose(atoms.get_potential_energies(), expected.energies[s], atol=1e-7)
        assert atoms.info["energy_uncertainty"] == pytest.approx(expected.energy_uncertainty[s])
        for name in ("energies_uncertainty", "forces_uncertainty"):
            np.testing.assert_allclose(atoms.arrays[name], getattr(expected, name)[s], atol=1e-7)
        assert atoms.info["reference_energy"] == images[s].get_potential_energy()
        np.testing.assert_allclose(atoms.arrays["reference_forces"], images[s].get_forces())


def test_predict_says_how_well_it_did(here):
    found = parsed("predict", here / "au.model", here / "test.extxyz", "-i", "3:7")
    assert len(found["structures"]) == 4
    images = read_images(here / "test.extxyz", "3:7")
    errors = [
        (row["energy"] - atoms.get_potential_energy()) / 8
        for row, atoms in zip(found["structures"], images, strict=True)
    ]
    assert found["summary"]["energy_mae"] == pytest.approx(np.mean(np.abs(errors)))
    text = nugget("predict", here / "au.model", here / "test.extxyz").stdout
    assert "the first 20 of 23" in text
    assert "Against the labels" in text
    text = nugget("predict", here / "au.model", here / "bare.extxyz").stdout
    assert "Against the labels" not in text
    bare = parsed("predict", here / "au.model", here / "bare.extxyz")
    assert bare["summary"]["energy_mae"] is None
    assert bare["structures"][0]["reference_energy"] is None


def test_predict_stress_of_slabs(here):
    nugget("predict", here / "slab.model", here / "slabs.extxyz", "--stress", "-o", here / "s.db")
    images = read_images(here / "slabs.extxyz")
    expected = Potential.load(here / "slab.model").predict(
        images, stress=True, stress_uncertainty=True
    )
    for s, atoms in enumerate(read_images(here / "s.db")):
        np.testing.assert_allclose(atoms.get_stress(), expected.stress[s], atol=1e-10)
    nugget("predict", here / "slab.model", here / "slabs.extxyz", "--stress", "-o", here / "s.xyz")
    rows = parsed("predict", here / "slab.model", here / "slabs.extxyz", "--stress")["structures"]
    for s, atoms in enumerate(read_images(here / "s.xyz")):
        sigma = expected.stress_uncertainty[s]
        np.testing.assert_allclose(atoms.info["stress_uncertainty"], sigma, rtol=1e-6)
        np.testing.assert_allclose(rows[s]["stress_uncertainty"], sigma, rtol=1e-6)


def test_info(here):
    header = parsed("info", here / "au.model")
    assert header["descriptor"]["cutoff"] == 5.0
    assert header["summary"]["structures"] == 12
    text = nugget("info", here / "au.model").stdout
    for word in ("SOAP", "RBF", "PivotedCholesky", "Posterior", header["provenance"]["data"]):
        assert word in text
    assert nugget("info", here / "au.model", "--card").stdout.startswith("# au\n")


def test_check(here, monkeypatch):
    found = parsed("check", here / "slab.model", here / "slabs.extxyz", "-i", "0:2")
    assert found["passed"]
    assert [c["name"] for c in found["checks"]] == [
        "E → forces", "σ → ∇σ", "E−2σ → gradient", "E → stress",
    ]  # fmt: skip
    text = nugget("check", here / "au.model", here / "test.extxyz", "-i", "0").stdout
    assert "ok" in text
    assert "stress" not in text
    arguments = ("check", here / "au.model", here / "test.extxyz", "-i", "0")
    twice = tuple((distance, 2 * weight) for distance, weight in gradient_check._STENCIL)
    monkeypatch.setattr(gradient_check, "_STENCIL", twice)
    assert "WRONG" in nugget(*arguments, code=1).stdout
    assert not parsed(*arguments, "--tolerance", 1e-14, code=1)["passed"]


def test_bad_structures(here):
    good = [labelled(gold_cluster(7, s)) for s in range(6)]
    bad = {
        r"Structure 6 (Au7) has no energy": gold_cluster(7, 9),
        "Structure 6: the energy label is not finite": labelled(gold_cluster(7, 9), energy=np.nan),
    }
    for message, atoms in bad.items():
        write_images(here / "bad.extxyz", [*good, atoms])
        assert message in refused("fit", here / "bad.extxyz", "-o", here / "bad.model")
    assert not (here / "bad.model").exists()
    message = refused("predict", here / "au.model", here / "slabs.extxyz")
    assert "no training structure contains Cu" in message
    for images in (good[:1], [good[0]] * 4):
        write_images(here / "few.extxyz", images)
        result = nugget("fit", here / "few.extxyz", "-o", here / "few.model", "--force")
        assert "Warning: the training set holds only 1 different structure" in result.stderr
        assert parsed("predict", here / "few.model", here / "test.extxyz")["structures"]


def test_bad_files(here):
    assert "does not exist" in refused("fit", here / "none.extxyz", "-o", here / "none.model")
    assert "does not exist" in refused("info", here / "none.model")
    assert "is no nugget model" in refused("info", here / "test.extxyz")
    (here / "notes.txt").write_text("no structures\n")
    assert "could not be read as structures" in refused(
        "predict", here / "au.model", here / "notes.txt"
    )
    (here / "cut.model").write_bytes((here / "au.model").read_bytes()[:5000])
    assert "is damaged" in refused("predict", here / "cut.model", here / "test.extxyz")
    assert "cannot be written" in refused(
        "fit", here / "train.extxyz.gz", "-o", here / "no" / "x.model"
    )
    assert "cannot be written" in refused(
        "predict", here / "au.model", here / "test.extxyz", "-o", here / "no" / "x.extxyz"
    )


def test_bad_settings(here):
    start = ("fit", here / "train.extxyz.gz", "-o", here / "never.model")
    assert "cutoff=0.5 is out of range" in refused(*start, "--cutoff", 0.5)
    assert "did you mean 'gfn1-xtb'" in refused(*start, "--prior", "gfn1-xt")
    assert "has no stress" in refused(*start, "--stress")
    assert "is not a slice" in refused(*start, "-i", "some")


def test_a_bug_still_shows_its_traceback(here, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("nugget.potential.model_file.read_header", broken)
    result = CliRunner().invoke(app, ["info", str(here / "au.model")])
    assert isinstance(result.exception, ZeroDivisionError)


def test_models_that_name_code_need_trust(here):
    nugget(
        "fit", here / "train.extxyz.gz", "-o", here / "delta.model",
        "--prior", "ase.calculators.emt:EMT", "--prior", "species",
    )  # fmt: skip
    arguments = ("predict", here / "delta.model", here / "test.extxyz")
    assert "--trust" in refused(*arguments)
    found = parsed(*arguments, "--trust")
    assert found["summary"]["energy_mae"] < 1e-6  # EMT is the very truth here
