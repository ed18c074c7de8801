"""What an option of an engine may do decides whether a file needs trust."""

from __future__ import annotations

import json
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from types import SimpleNamespace

import pytest
from ase.build import molecule
from ase.calculators.emt import EMT
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.engines import engine as lookup
from nugget.engines.engine import Electrons, Engine, describe_options, engines, get_engine
from nugget.engines.engine_settings import EngineConfig, ExecutionConfig, code_in, engine_code
from nugget.engines.options import Use, bare_name, code
from nugget.engines.task import Task, run_task
from nugget.errors import NuggetError

# All engines that come with nugget, those without a table of options included.
BUILT_IN = [name for name, engine in engines().items() if engine.load is None]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("orca", {"orcasimpleinput": "PBE def2-TZVP/C DLPNO-CCSD(T) 6-31+G**"}),
        ("gpaw", {"txt": "gpaw.txt", "mode": {"name": "pw", "ecut": 300}}),
        ("espresso", {"pseudopotentials": {"Si": "Si.UPF"}, "input_data": {"system": {"nbnd": 8}}}),
        ("vasp", {"encut": 300, "kpts": [2, 2, 1], "setups": "recommended", "lreal": "Auto"}),
        ("mace", {"model": "medium", "device": "cpu"}),
        ("cp2k", {"cutoff": 4082, "basis_set": "DZVP-MOLOPT-SR-GTH", "max_scf": 60}),
        ("aims", {"species_dir": "/opt/light", "occupation_type": "gaussian 0.1"}),
        ("gfn1-xtb", {"supercell": 8.0, "solvation": ["alpb", "water"]}),
        ("lj", {"rc": 6, "smooth": True}),
        ("pyscf", {"basis": "6-311++G(2d,2p)", "method": "b3lyp"}),
        ("sevennet", {"model": "7net-l3i5", "device": "cpu", "precision": "single"}),
        ("chgnet", {"model": "r2scan", "threads": 1}),
        ("ani", {"model": "ani2x"}),
        ("mattersim", {"model": "MatterSim-v1.0.0-5M.pth"}),
        ("orb", {"model": "orb-v3-conservative-inf-omat", "precision": "float32-highest"}),
        ("fairchem", {"model": "uma-s-1p1", "task": "omat"}),
    ],
)
def test_plain_options_need_no_trust(name: str, options: dict) -> None:
    assert engine_code(name, options) == []
    get_engine(name).check_options(options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("orca", {"orcasimpleinput": 'PBE %method ProgExt "x" end'}),
        ("orca", {"orcablocks": "%pal nprocs 4 end"}),
        ("orca", {"profile": "x"}),
        ("gpaw", {"txt": "/home/user/.bashrc"}),
        ("gpaw", {"txt": "../x"}),
        ("gpaw", {"restart": "x.gpw"}),
        ("espresso", {"input_data": {"control": {"outdir": "/tmp/x"}}}),
        ("espresso", {"input_data": {"control": {"title": 'a\', outdir="/x" ! '}}}),
        ("espresso", {"additional_cards": ["x"]}),
        ("vasp", {"txt": "/tmp/x"}),
        ("vasp", {"directory": "/tmp/x"}),
        ("cp2k", {"inp": "&GLOBAL\n&END"}),
        ("aims", {"use_pimd_wrapper": "host 1234"}),
        ("mace", {"model": "model.pt"}),
        ("pyscf", {"basis": "basis/def2-svp"}),
        ("sevennet", {"model": "./7net-0"}),
        ("chgnet", {"model": "chgnet.pth.tar"}),
        ("mattersim", {"model": "MatterSim.pth"}),
        ("orb", {"weights": "orb.ckpt"}),
        ("fairchem", {"weights": "uma.pt"}),
        ("fairchem", {"model": "../uma-s-1p1"}),
        ("lj", {"label": "x"}),
    ],
)
def test_all_other_options_do(name: str, options: dict) -> None:
    [code] = engine_code(name, options)
    assert code.startswith(f"{name}:{next(iter(options))}=")


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("orca", {"orcasimpleinput": 'PBE\n%method ProgExt "x" end'}, "control character"),
        ("espresso", {"pseudopotentials": {"Si": "Si.UPF\nx"}}, "control character"),
        ("vasp", {"xc": "pbe\rx"}, "control character"),
        ("lj", {"rc": "six"}, "must be number"),
        ("lj", {"rc": float("nan")}, "not finite"),
        ("lj", {"smooth": 0.5}, "must be true or false"),
        ("espresso", {"input_data": {"sytem": {"ecutwfc": 30}}}, "did you mean 'system'"),
        ("espresso", {"input_data": {"ecutwcf": 30}}, "did you mean 'ecutwfc'"),
    ],
)
def test_wrong_values_are_refused_even_with_trust(name: str, options: dict, reason: str) -> None:
    with pytest.raises(NuggetError, match=reason):
        get_engine(name).full_options(options, Electrons())


def test_numbers_that_are_not_finite_are_refused_in_settings() -> None:
    with pytest.raises(ValueError, match=r"options\.x\.y is not a finite number"):
        EngineConfig(options={"x": {"y": float("nan")}})


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch):
    """Engines of another package: a declared one, and a mere factory."""
    declared = Engine("inner", "x", lambda **o: EMT(), code=("command", "k"), vacuum=5.0)
    offered = {"declared": declared, "factory": lambda **options: EMT()}
    entries = [
        SimpleNamespace(name=name, value=f"pkg:{name}", module="json", load=lambda part=part: part)
        for name, part in offered.items()
    ]
    monkeypatch.setattr(lookup, "entry_points", lambda group: entries)
    engines.cache_clear()
    yield
    monkeypatch.undo()
    engines.cache_clear()


def test_engines_of_other_packages_keep_what_they_declare(entry_points: None) -> None:
    assert engine_code("declared", {"command": "rm", "k": 3, "h": 0.2}) == [
        "declared:command=rm",
        "declared:k=3",
    ]
    assert get_engine("declared").vacuum == 5.0
    assert get_engine("declared").name == "declared"


def test_those_that_declare_nothing(entry_points: None) -> None:
    options = {"vasp_command": "x", "executable": "x", "xc": "PBE", "k": 3, "how": "a; b"}
    assert engine_code("factory", options) == [
        "factory:vasp_command=x",
        "factory:executable=x",
        "factory:how=a; b",
    ]
    assert code_in(EngineConfig(name="m:f", options={"command": "x"})) == ["m:f", "m:f:command=x"]


def test_words_of_a_job_script() -> None:
    def code(**options):
        return code_in(
            EngineConfig(), ExecutionConfig(kind="dask", cluster="slurm", options=options)
        )

    assert code(queue="long", walltime="01:00:00", memory="4 GB", cores=4) == []
    for name, value in {
        "interface": "eth0 --preload evil.py",
        "walltime": "01:00\ncurl x | sh",
        "queue": "$(x)",
    }.items():
        assert code(**{name: value}) == [f"dask:{name}={value}"]


def test_the_table_of_options() -> None:
    rows = describe_options()
    assert {row[0] for row in rows} >= {"vasp", "orca", "gpaw", "espresso", "emt", "gfn1-xtb"}
    assert {row[2] for row in rows} == {str(use) for use in Use}
    result = CliRunner().invoke(app, ["engines", "orca", "--options", "--json"])
    table = {row["option"]: row["use"] for row in json.loads(result.output)["options"]}
    assert table["orcablocks"] == "code"
    assert table["orcasimpleinput"] == "plain"


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_engine_declares_all_that_its_factory_takes(name: str) -> None:
    engine = get_engine(name)
    assert engine.table
    kinds = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    taken = signature(engine.batched or engine.factory).parameters.values()
    assert {one.name for one in taken if one.kind in kinds} <= set(engine.table)
    for option in ("command", "inp", "orcablocks", "weights"):  # programs and files with code
        assert engine.table.get(option, code(option)[option]).use is Use.CODE
    # Other options need trust, also those that a factory would pass on to its program.
    assert engine.use_of("no_such_option", 1) is Use.CODE


def test_the_table_of_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is generated, with every engine and every option in the right column."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs" / "_ext"))
    page = import_module("_settings").options()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    assert rows[0] == ["engine", "plain", "code", "writes files"]
    cells = {row[0].strip("`"): [set(cell.split(", ")) for cell in row[1:]] for row in rows[2:]}
    assert set(cells) == set(BUILT_IN)
    for name in BUILT_IN:
        for use, cell in zip(Use, cells[name], strict=True):
            expected = {f"`{key}`" for key, one in get_engine(name).table.items() if one.use is use}
            assert cell == (expected or {"–"})


def test_an_impossible_spin() -> None:
    radical = molecule("NO")
    outcome = run_task(Task(name="gfn1-xtb", spin=1), radical)
    assert "spin = 1 is impossible for 15 electrons" in outcome.reason
    Electrons(spin=2).check_spin(radical.numbers)
    Electrons(charge=1, spin=1).check_spin(radical.numbers)
    with pytest.raises(NuggetError, match="is odd"):
        Electrons(charge=1, spin=2).check_spin(radical.numbers)


def test_a_missing_pseudopotential(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "pw.x"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    options = {
        "command": str(program),
        "pseudo_dir": str(tmp_path),
        "pseudopotentials": {"O": "O.UPF"},
    }
    outcome = run_task(Task(name="espresso", options=options), molecule("CO"))
    assert outcome.reason.startswith("espresso has no pseudopotential for C;")


def test_a_basis_set_of_pyscf_from_a_file_is_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PySCF evaluates the numbers of such a file as expressions, and prefers files to names."""
    assert engine_code("pyscf", {"basis": "6-311++G(2d,2p)", "method": "b3lyp"}) == []
    for basis in ("./evil.bas", "/tmp/def2-svp", "sto-3g\u2028H S"):
        assert engine_code("pyscf", {"basis": basis}) == [f"pyscf:basis={basis}"]
    monkeypatch.chdir(tmp_path)
    assert bare_name("pyscf", "basis", "def2-svp") == "def2-svp"
    Path("def2-svp").write_text("H S\n  print(1) 1.0\n")
    assert bare_name("pyscf", "basis", "./def2-svp") == "./def2-svp"
    with pytest.raises(NuggetError, match=r"has a file def2-svp.*\./def2-svp if it is meant"):
        bare_name("pyscf", "basis", "def2-svp")
    pytest.importorskip("pyscf")
    with pytest.raises(NuggetError, match="has a file def2-svp"):
        get_engine("pyscf").calculator().get_potential_energy(molecule("H2"))


def test_separators_of_lines_are_refused() -> None:
    """Python breaks lines at these characters as well."""
    for char in "\n\r\x0b\x0c\x1c\x85\u2028\u2029":
        with pytest.raises(NuggetError, match="control character"):
            get_engine("vasp").check_options({"xc": f"pbe{char}x"})
