"""Every part of ours and of the example package passes its check; wrong variants do not."""

from __future__ import annotations

import pytest
import wrong_parts as wrong
from ase.build import bulk
from nugget_example.acquisition import GreedyAfter
from nugget_example.descriptor import RadialShells
from nugget_example.generator import Swing
from nugget_example.kernel import Matern52
from nugget_example.prior import Springs
from nugget_example.uncertainty import Distance

from nugget import CUR, RBF, SOAP, LabelNoise, PivotedCholesky, ProjectedProcess, Random, testing
from nugget.engines import make_calculator
from nugget.generators import make_generator
from nugget.potential.priors import (
    CalculatorPrior,
    PairWell,
    Repulsion,
    SpeciesEnergies,
    SumPrior,
)
from nugget.registry import make, names

CUAU = ("Cu", "Au")
GOOD = {
    testing.check_kernel: [RBF(1.3, 2.0), RBF(20, 1), Matern52(1.2, 3.0)],
    testing.check_descriptor: [
        SOAP(CUAU, 5.0), SOAP(CUAU, 5.0, compression="mu1nu1"), SOAP(CUAU, 5.0, compression="mu2"),
        SOAP(["C", "H", "O"], 4.0, 4, 3), RadialShells(CUAU)
    ],
    testing.check_uncertainty: [
        LabelNoise(), LabelNoise(members=20), ProjectedProcess(),
        ProjectedProcess("environments"), Distance(),
    ],
    testing.check_prior: [
        SpeciesEnergies(), Repulsion(), PairWell(), SumPrior((SpeciesEnergies(), PairWell())),
        CalculatorPrior("emt"), Springs(),
    ],
    testing.check_inducing: [CUR(10), Random(10), PivotedCholesky(1e-2)],
    testing.check_generator: [*map(make_generator, names("generator")), Swing()],
    testing.check_acquisition: [
        *(make("acquisition", name) for name in names("acquisition")), GreedyAfter()
    ],
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
    testing.check_acquisition: [wrong.LikesHighEnergies(), wrong.Gambles()],
}  # fmt: skip


def cases(parts):
    return [
        pytest.param(check, part, id=f"{check.__name__}-{type(part).__name__}-{k}")
        for check, several in parts.items()
        for k, part in enumerate(several)
    ]


@pytest.mark.parametrize(("check", "part"), cases(GOOD))
def test_parts_keep_their_contract(check, part):
    check(part)


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
