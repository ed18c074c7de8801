"""Every registered part passes its conformance check; wrong variants do not.

The registry lists the parts: ours and those of the example package. A part that cannot be made
without options needs an entry in `EXAMPLES`.
"""

from __future__ import annotations

from inspect import isfunction

import pytest
import wrong_parts as wrong
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from nugget import (
    CUR,
    RBF,
    SOAP,
    LabelNoise,
    PivotedCholesky,
    Potential,
    ProjectedProcess,
    Random,
    registry,
    testing,
)
from nugget.descriptors.combined import Joined, UnitLength
from nugget.engines import make_calculator
from nugget.gp.kernels import DotProduct
from nugget.gp.kernels.sum_kernel import SumKernel
from nugget.potential.mean_functions.base import SpeciesEnergies, SumPrior
from nugget.potential.mean_functions.foundation import FoundationMean
from nugget.potential.mean_functions.from_models import CalculatorPrior, ModelPrior
from nugget.potential.mean_functions.pair_terms import PairWell
from nugget.potential.mean_functions.zbl import ZBL

CUAU = ("Cu", "Au")
CHECKS = {
    "kernel": testing.check_kernel,
    "descriptor": testing.check_descriptor,
    "uncertainty": testing.check_uncertainty,
    "prior": testing.check_prior,
    "inducing": testing.check_inducing,
    "generator": testing.check_generator,
    "acquisition": testing.check_acquisition,
}
# Options that every part of a kind is made with, unless it has examples.
OPTIONS = {"descriptor": {"species": CUAU}}


def model_prior(tmp_path):
    atoms = bulk("Cu", cubic=True)
    atoms.symbols[0] = "Au"
    atoms.rattle(0.1, seed=2)
    work = atoms.copy()
    work.calc = EMT()
    atoms.calc = SinglePointCalculator(
        atoms, energy=work.get_potential_energy(), forces=work.get_forces()
    )
    Potential(SOAP(CUAU, 4.0), RBF(20.0, 10.0)).fit([atoms]).save(tmp_path / "model")
    return ModelPrior(str(tmp_path / "model"))


# A part, or a function of a temporary directory that makes one.
EXAMPLES = {
    # Fitted starting distances make it zero on the structures of the check.
    ("prior", "zbl"): [ZBL((("Au", "Au", 3.2), ("Au", "Cu", 3.0), ("Cu", "Cu", 2.8)))],
    ("kernel", "RBF"): [RBF(1.3, 2.0), RBF(20, 1)],
    ("kernel", "DotProduct"): [DotProduct(4, 2.0), DotProduct(1), DotProduct(2)],
    ("kernel", "sum"): [
        SumKernel((RBF(1.5, 2.0), RBF(0.7, 0.5)), (3, 2)),
        SumKernel((DotProduct(2), RBF(1.2)), (2, 4)),
    ],
    ("descriptor", "SOAP"): [
        SOAP(CUAU, 5.0), SOAP(CUAU, 5.0, compression="mu1nu1"), SOAP(CUAU, 5.0, compression="mu2"),
        SOAP(["C", "H", "O"], 4.0, 4, 3),
    ],
    ("descriptor", "unit-length"): [UnitLength(SOAP(CUAU, 5.0))],
    ("descriptor", "joined"): [Joined((SOAP(CUAU, 4.0), UnitLength(SOAP(CUAU, 5.0, 2, 2))))],
    ("uncertainty", "LabelNoise"): [LabelNoise(), LabelNoise(members=20)],
    ("uncertainty", "ProjectedProcess"): [ProjectedProcess(), ProjectedProcess("environments")],
    ("prior", "sum"): [SumPrior((SpeciesEnergies(), PairWell()))],
    ("prior", "calculator"): [CalculatorPrior("emt")],
    ("prior", "model"): [model_prior],
    ("prior", "foundation"): [FoundationMean("pair-model")],
    ("inducing", "CUR"): [CUR(10)],
    ("inducing", "Random"): [Random(10)],
    ("inducing", "PivotedCholesky"): [PivotedCholesky(1e-2)],
}  # fmt: skip
WRONG = {
    testing.check_kernel: [wrong.WrongSign(), wrong.WrongCurvature(), wrong.NotACovariance()],
    testing.check_descriptor: [
        wrong.NoStrain(CUAU), wrong.WrongForces(CUAU), wrong.SeesTheNumbering(CUAU),
        wrong.EndsAbruptly(CUAU),
    ],
    testing.check_uncertainty: [
        wrong.NotExtensive(), wrong.WrongWeights(), wrong.Forgetful(), wrong.Lucky()
    ],
    testing.check_prior: [
        wrong.PushesTheWrongWay(), wrong.StrainForgotten(), wrong.PerStructure()
    ],
    testing.check_inducing: [wrong.Again(10), wrong.Dice(10)],
    testing.check_generator: [wrong.Unseeded(), wrong.ChangesParents(), wrong.Collides()],
    testing.check_acquisition: [
        wrong.LikesHighEnergies(), wrong.Gambles(), wrong.NeverSatisfied()
    ],
}  # fmt: skip


def registered_parts():
    for kind in CHECKS:
        for name in registry.names(kind):
            for k, part in enumerate(EXAMPLES.get((kind, name), [None])):
                yield pytest.param(kind, name, part, id=f"{kind}-{name}-{k}")


def test_every_kind_is_checked():
    """Systems have tests of their own, tests/systems/test_system_kinds.py."""
    assert set(CHECKS) == set(registry.HOMES) - {"system"}


@pytest.mark.parametrize(("kind", "name", "part"), list(registered_parts()))
def test_registered_parts_keep_their_contract(kind, name, part, tmp_path):
    if part is None:
        part = registry.make(kind, name, **OPTIONS.get(kind, {}))
    elif isfunction(part):
        part = part(tmp_path)
    CHECKS[kind](part)


def cases(parts):
    return [
        pytest.param(check, part, id=f"{check.__name__}-{type(part).__name__}-{k}")
        for check, several in parts.items()
        for k, part in enumerate(several)
    ]


@pytest.mark.parametrize(("check", "part"), cases(WRONG))
def test_wrong_variants_are_found(check, part):
    with pytest.raises(testing.ConformanceError):
        check(part)


def copper():
    atoms = bulk("Cu", cubic=True)
    atoms.rattle(0.1, seed=1)
    return atoms


def test_engines():
    testing.check_engine(lambda: make_calculator("emt"), copper())


@pytest.mark.parametrize("engine", [wrong.TwiceTheForce, wrong.NoStress, wrong.Noisy])
def test_wrong_engines_are_found(engine):
    with pytest.raises(testing.ConformanceError):
        testing.check_engine(engine, copper())
