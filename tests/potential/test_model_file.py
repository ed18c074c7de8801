from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import alloy_slab, gold_cluster

from nugget import CUR, RBF, SOAP, LabelNoise, NuggetError, PivotedCholesky, Potential
from nugget import ProjectedProcess as PP
from nugget.gp.uncertainty.base import HasStateShapes
from nugget.potential import model_archive as _archive
from nugget.potential.mean_functions.base import SpeciesEnergies
from nugget.potential.mean_functions.from_models import CalculatorPrior
from nugget.potential.mean_functions.pair_terms import Repulsion
from nugget.potential.model_file import OLDEST, VERSION, read_header

DATA = Path(__file__).parents[1] / "data"


def labelled(atoms: Atoms) -> Atoms:
    work = atoms.copy()
    work.calc = EMT()
    results = {"energy": work.get_potential_energy(), "forces": work.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


TRAIN = [labelled(gold_cluster(7, s)) for s in range(6)]
MORE = [labelled(gold_cluster(8, s)) for s in range(20, 23)]
TEST = gold_cluster(8, 99)
UNCERTAINTIES = {
    "exact": LabelNoise(),
    "sampled": LabelNoise(members=7),
    "structures": PP("structures"),
    "environments": PP("environments"),
}


def made(uncertainty: str = "sampled", inducing: object = None) -> Potential:
    return Potential(
        SOAP(["Au"], 5.0),
        RBF(12.0, 2.0),
        inducing or CUR(30),
        uncertainty=UNCERTAINTIES[uncertainty],
        prior=[SpeciesEnergies(), Repulsion(reach=1.1)],
        seed=5,
    ).fit(TRAIN)


def same_bits(a: Potential, b: Potential, tolerance: float = 0.0) -> None:
    one, two = (
        p.predict(
            [TEST, *MORE], uncertainty_gradient=True, energies=True, energies_uncertainty=True,
            forces_uncertainty=True,
        )
        for p in (a, b)
    )  # fmt: skip
    for name in vars(one):
        first, second = getattr(one, name), getattr(two, name)
        if first is not None:
            for x, y in zip(first, second, strict=True):
                np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=name)
    if tolerance:
        return
    # One structure takes another way through the code than several.
    assert a.predict(TEST).energy[0] == b.predict(TEST).energy[0]
    assert a.predict(TEST).energy_uncertainty[0] == b.predict(TEST).energy_uncertainty[0]


@pytest.mark.parametrize("uncertainty", sorted(UNCERTAINTIES))
@pytest.mark.parametrize("inducing", [CUR(30), PivotedCholesky(1e-6)])
def test_a_loaded_potential_predicts_bit_for_bit_and_learns_on(tmp_path, uncertainty, inducing):
    pot = made(uncertainty, inducing)
    pot.update(MORE[:1])  # a grown regression has spare room in its arrays, which a file has not
    pot.calibration = {"scale": np.float64(1.25), "levels": {"label": 0.01}, "bins": np.arange(3)}
    pot.set_uncertainty(pot.fitted.uncertainty.with_scale(1.25))
    pot.save(tmp_path / "a.model")
    again = Potential.load(tmp_path / "a.model")
    same_bits(pot, again)
    assert again.predict(TEST).energy_uncertainty[0] > 0
    assert again.calibration == {"scale": 1.25, "levels": {"label": 0.01}, "bins": [0, 1, 2]}
    assert again.uncertainty == pot.uncertainty
    assert again.fitted.training.fingerprint() == pot.fitted.training.fingerprint()
    for p in (pot, again):
        p.update(MORE[1:])
    assert len(again.fitted.inducing) == len(pot.fitted.inducing)
    same_bits(pot, again, 1e-6)  # label rows are made again, all at once: the same up to round-off
    # And from the start, settings alone: the same data give the same model.
    same_bits(made(uncertainty, inducing), again.fit(TRAIN))


def test_settings_survive(tmp_path):
    pot = made()
    pot.save(tmp_path / "model")
    again = Potential.load(tmp_path / "model")
    for name in ("descriptor", "kernel", "inducing", "noise", "force_noise"):
        assert getattr(again, name) == getattr(pot, name), name
    assert (again.uncertainty, again.prior) == (pot.uncertainty, pot.prior)
    assert again.seed == 5
    assert again.fitted.mean_function == pot.fitted.mean_function
    header = read_header(tmp_path / "model")
    assert header["provenance"]["data"] == pot.fitted.training.fingerprint()
    assert header["summary"]["structures"] == 6
    assert header["summary"]["inducing_points"] == 30


def test_no_pickle_inside(tmp_path):
    made().save(tmp_path / "model")
    with np.load(tmp_path / "model", allow_pickle=False) as archive:
        assert archive.files[0] == "header"
        assert all(archive[name].dtype != object for name in archive.files)


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "model"
    made().save(path)
    before = path.read_bytes()

    def broken(file, array, **options):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", broken)
    with pytest.raises(NuggetError, match="could not be written: No space left"):
        made("exact").save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_where_it_cannot_write(tmp_path):
    with pytest.raises(NuggetError, match="could not be written: No such file or directory"):
        made().save(tmp_path / "no" / "model")
    with pytest.raises(NuggetError, match="has not been fitted"):
        Potential(SOAP(["Au"])).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.95, 0.999])
def test_truncated_files(tmp_path, share):
    path = tmp_path / "model"
    made().save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    for read in (Potential.load, read_header):
        with pytest.raises(NuggetError, match="is damaged: it is truncated"):
            read(path)


def test_a_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "model"
    made().save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    for read in (Potential.load, read_header):
        with pytest.raises(NuggetError, match=r"is damaged: .* changed"):
            read(path)


def test_foreign_files(tmp_path):
    path = tmp_path / "file"
    for content in (b"", b"3\nAu3\nAu 0 0 0\n", b"PK\x03\x04 and so on", bytes(range(256))):
        path.write_bytes(content)
        with pytest.raises(NuggetError, match="is no nugget model"):
            Potential.load(path)
    with open(path, "wb") as file:
        np.savez(file, weights=np.ones(3))
    with pytest.raises(NuggetError, match="is no nugget model"):
        Potential.load(path)
    with open(path, "wb") as file:
        np.savez(file, header=np.frombuffer(b'{"format": "other"}', np.uint8))
    with pytest.raises(NuggetError, match="is no nugget model"):
        Potential.load(path)
    with pytest.raises(NuggetError, match="does not exist"):
        Potential.load(tmp_path / "nothing")
    with pytest.raises(NuggetError, match="cannot be read: Is a directory"):
        Potential.load(tmp_path)


def contents(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files if name != "checksum"}


def edited(source: Path, target: Path, change) -> Path:
    """A changed file whose checksum is right."""
    arrays = contents(source)
    header = json.loads(arrays.pop("header").tobytes())
    change(header, arrays)
    text = json.dumps(header).encode()
    _archive.write(target, {"header": np.frombuffer(text, np.uint8), **arrays})
    return target


def test_a_changed_array_does_not_match_the_checksum(tmp_path):
    path = tmp_path / "model"
    made().save(path)
    with np.load(path) as archive:
        assert archive.files[-1] == "checksum"
        arrays = {name: archive[name] for name in archive.files}
    arrays["regression/alpha"][0] *= 1 + 1e-15
    with open(path, "wb") as file:
        np.savez(file, **arrays)
    for read in (Potential.load, read_header):
        with pytest.raises(NuggetError, match="damaged: its content does not match its checksum"):
            read(path)
    del arrays["checksum"]
    with open(path, "wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(NuggetError, match="damaged: its checksum is missing"):
        Potential.load(path)


def replaced(name: str, value) -> object:
    """A change of one array."""

    def change(header, arrays):
        arrays[name] = np.asarray(value(arrays[name]) if callable(value) else value)

    return change


def holed(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flat[0] = np.nan
    return array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced("inducing/z", lambda z: z[:, :-1]), "inducing/z has the shape"),
        (replaced("inducing/group", lambda g: g + 1), "inducing/group names species"),
        (replaced("inducing/group", lambda g: g.astype(float)), "group is of type float64"),
        (replaced("regression/alpha", lambda a: a[:-1]), "regression/alpha has the shape"),
        (replaced("regression/alpha", lambda a: a[None]), "alpha has 2 axes, not 1"),
        (replaced("regression/alpha", holed), "regression/alpha holds numbers that are not finite"),
        (replaced("regression/upper", lambda u: u[:5, :5]), "regression/upper has the shape"),
        (replaced("regression/noise", lambda n: 0 * n), "regression/noise is not positive"),
        (replaced("regression/kind", lambda k: k + 7), "unknown kinds of labels"),
        (replaced("regression/r", lambda r: 0 * r), "regression/r is singular"),
        (replaced("uncertainty/label", lambda w: w[:, :1]), "uncertainty/label has the shape"),
        (replaced("uncertainty/prior", lambda w: w[:-1]), "uncertainty/prior has the shape"),
        (replaced("uncertainty/rho", holed), "uncertainty/rho holds numbers that are not finite"),
        (replaced("uncertainty/scale", np.array(-1.0)), "uncertainty/scale is not positive"),
        (replaced("uncertainty/more", np.ones(3)), "nothing is known of an array 'uncertainty/mo"),
        (replaced("colour", np.ones(3)), "nothing is known of an array 'colour'"),
        (replaced("training/offsets", lambda o: o[::-1].copy()), "training/offsets do not ascend"),
        (replaced("training/offsets", lambda o: 2 * o), "training/offsets do not ascend"),
        (replaced("training/numbers", lambda n: n - 1), "elements that are not described"),
        (replaced("training/pbc", lambda p: p.astype(float)), "training/pbc is of type float64"),
        (replaced("labels/energy", holed), "labels/energy holds numbers that are not finite"),
        (replaced("labels/forces", holed), "labels/forces is there for parts of a structure only"),
        (lambda h, a: a.pop("regression/z"), "regression/r and regression/z belong together"),
        (lambda h, a: a.pop("regression/y"), "the array regression/y is missing"),
        (lambda h, a: h["summary"].update(structures=5), "its summary does not fit"),
        (lambda h, a: h["descriptor"].update(n_max=4), "inducing/z has the shape"),
        (lambda h, a: h["descriptor"].update(cutoff="far"), "cutoff of its descriptor is 'far'"),
        (lambda h, a: h["kernel"].update(length_scale=float("nan")), "length_scale of its kernel"),
        (lambda h, a: h["prior"]["parts"][1].update(reach=None), "reach of its prior is None"),
        (lambda h, a: h["fitted_prior"].update(parts=[3]), "its prior has no name"),
        (lambda h, a: h.update(noise=True), "noise is True"),
        (lambda h, a: h.update(seed=-1), "its seed is -1"),
        (lambda h, a: h["rng"].update(state=3), "is damaged"),
    ],
)
def test_forged_files_with_a_right_checksum(tmp_path, change, message):
    made().save(tmp_path / "model")
    path = edited(tmp_path / "model", tmp_path / "forged", change)
    with pytest.raises(NuggetError, match=message) as caught:
        Potential.load(path)
    assert "forged" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def label_noise_without_shapes(monkeypatch):
    """`LabelNoise` as the uncertainty of another package, which declares no shapes."""
    monkeypatch.delattr(LabelNoise, "state_shapes")
    HasStateShapes._abc_caches_clear()  # Python 3.11 remembers which classes passed isinstance
    yield
    monkeypatch.undo()
    HasStateShapes._abc_caches_clear()


@pytest.mark.usefixtures("label_noise_without_shapes")
def test_uncertainties_of_others_are_compared_with_the_inducing_points(tmp_path):
    made().save(tmp_path / "model")
    same_bits(made(), Potential.load(tmp_path / "model"))

    def shorter(header, arrays):
        for name in ("label", "force", "prior"):
            arrays[f"uncertainty/{name}"] = arrays[f"uncertainty/{name}"][:-1]

    path = edited(tmp_path / "model", tmp_path / "forged", shorter)
    with pytest.raises(NuggetError, match="does not belong to 30 inducing points"):
        Potential.load(path)


def test_shapes_larger_than_the_file_take_no_memory(tmp_path):
    path = tmp_path / "model"
    made().save(path)
    content = path.read_bytes()
    assert content.count(b"'shape': (30,), ") >= 2
    path.write_bytes(content.replace(b"'shape': (30,), ", b"'shape': (3**9,)", 1))
    with pytest.raises(NuggetError, match="is damaged"):
        Potential.load(path)
    path.write_bytes(content.replace(b"(30, 30), }  ", b"(1000000000,)", 1))
    with pytest.raises(NuggetError, match="is damaged"):
        Potential.load(path)


def test_newer_and_strange_files(tmp_path):
    made().save(tmp_path / "model")

    def attempt(change, message):
        path = edited(tmp_path / "model", tmp_path / "changed", change)
        with pytest.raises(NuggetError, match=message):
            Potential.load(path)

    def newer(header, arrays):
        header["version"] = VERSION + 1
        header["provenance"]["nugget"] = "9.9"

    attempt(newer, rf"model format {VERSION + 1}, written by nugget 9.9; .* update nugget")
    attempt(lambda h, a: h.update(version="x"), "format version is 'x'")
    attempt(lambda h, a: h["kernel"].update(name="Matern"), "no kernel 'Matern'")
    attempt(lambda h, a: h["prior"].update(name="magic"), "no prior 'magic'")
    attempt(lambda h, a: a.pop("regression/alpha"), "array regression/alpha is missing")
    attempt(lambda h, a: h.pop("noise"), "noise is missing")
    attempt(lambda h, a: h["kernel"].update(colour=1), "unexpected keyword argument 'colour'")


def test_code_named_in_a_file_is_not_run_unasked(tmp_path):
    prior = [CalculatorPrior("ase.calculators.emt:EMT"), SpeciesEnergies()]
    pot = Potential(SOAP(["Au"], 5.0), prior=prior).fit(TRAIN)
    pot.save(tmp_path / "model")
    with pytest.raises(NuggetError, match="If you trust it, say --trust"):
        Potential.load(tmp_path / "model")
    same_bits(pot, Potential.load(tmp_path / "model", trust_code=True))

    def hidden(header, arrays):
        header["prior"] = {"name": "species", "energies": None}

    path = edited(tmp_path / "model", tmp_path / "hidden", hidden)
    with pytest.raises(NuggetError, match="If you trust it, say --trust"):
        Potential.load(path)

    def program(header, arrays):
        for name in ("prior", "fitted_prior"):
            header[name] = {"name": "calculator", "engine": "vasp", "options": [["command", "rm"]]}

    path = edited(tmp_path / "model", tmp_path / "program", program)
    with pytest.raises(NuggetError, match="would run 'vasp:command=rm'"):
        Potential.load(path)
    # A name that this installation knows is no such risk.
    pot = Potential(SOAP(["Au"], 5.0), prior=CalculatorPrior("emt")).fit(TRAIN)
    pot.save(tmp_path / "model")
    same_bits(pot, Potential.load(tmp_path / "model"))


def test_unknown_parts_are_refused_when_saving(tmp_path):
    class Mine(CUR):
        pass

    with pytest.raises(NuggetError, match="inducing Mine cannot be saved"):
        made(inducing=Mine(10)).save(tmp_path / "model")


def test_labels_that_are_partly_missing_survive(tmp_path):
    bare = TRAIN[0].copy()
    bare.calc = SinglePointCalculator(bare, energy=TRAIN[0].get_potential_energy())
    pot = Potential(SOAP(["Cu", "Au"], 4.0)).fit([bare, *TRAIN[1:3], labelled(alloy_slab(3))])
    pot.save(tmp_path / "model")
    again = Potential.load(tmp_path / "model")
    assert again.fitted.training.has_forces.tolist() == [False, True, True, True]
    same_bits(pot, again)


@pytest.mark.parametrize("version", range(OLDEST, VERSION + 1))
def test_every_format_stays_readable(version):
    """One file from each version of the format; none of a release is ever replaced."""
    path = DATA / f"model-format-{version}.npz"
    assert path.stat().st_size < 50_000
    assert zipfile.ZipFile(path).namelist()[0] == "header.npy"
    expected = json.loads((DATA / f"model-format-{version}.json").read_text())
    pot = Potential.load(path)
    atoms = Atoms(expected["symbols"], positions=expected["positions"])
    found = pot.predict(atoms, energies_uncertainty=True)
    assert read_header(path)["version"] == version
    assert found.energy[0] == pytest.approx(expected["energy"], rel=1e-9)
    assert found.energy_uncertainty[0] == pytest.approx(expected["energy_uncertainty"], rel=1e-7)
    np.testing.assert_allclose(found.forces[0], expected["forces"], atol=1e-7)
    np.testing.assert_allclose(
        found.energies_uncertainty[0], expected["energies_uncertainty"], rtol=1e-6
    )
    if "outside" in expected:
        assert found.outside[0] == pytest.approx(expected["outside"], rel=1e-9)
    else:
        assert found.outside is None
    updated = pot.update([labelled(gold_cluster(5, 77))]).predict(atoms)
    assert updated.energy[0] == pytest.approx(expected["energy_after_update"], rel=1e-6)


def test_a_lean_model_predicts_the_same_but_cannot_learn(tmp_path):
    pot = made("exact")
    pot.save(tmp_path / "full")
    pot.save(tmp_path / "lean", lean=True)
    lean = Potential.load(tmp_path / "lean")
    same_bits(pot, lean)
    assert (tmp_path / "lean").stat().st_size < (tmp_path / "full").stat().st_size
    with pytest.raises(NuggetError, match="cannot be updated"):
        lean.update(MORE)
    lean.save(tmp_path / "again")  # what is known of the training set stays
    assert read_header(tmp_path / "again")["summary"] == read_header(tmp_path / "full")["summary"]
    assert read_header(tmp_path / "again")["lean"]
    assert lean.fit(TRAIN).update(MORE).predict(TEST).energy.shape == (1,)


def test_label_rows_are_not_kept(tmp_path):
    pot = made()
    pot.save(tmp_path / "model")
    with np.load(tmp_path / "model") as archive:
        assert "regression/whitened" not in archive.files
