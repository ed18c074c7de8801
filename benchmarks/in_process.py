"""Searches without a directory: the engine runs in this process, which is quick for cheap ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common  # noqa: F401  first: it sets one thread
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.calculators.singlepoint import SinglePointCalculator
from ase.optimize import LBFGS

from nugget.engines.engine import make_calculator
from nugget.search import make_config
from nugget.search.knowledge import read_knowledge
from nugget.search.learner import Learner
from nugget.search.loop import make_pending
from nugget.search.record import Record
from nugget.systems.system_settings import make_system


def evaluate(atoms: Atoms, calculator: Calculator) -> Atoms | None:
    """The structure with results; None if the engine fails."""
    done = atoms.copy()
    calculator.reset()
    done.calc = calculator
    try:
        results = {"energy": float(done.get_potential_energy()), "forces": done.get_forces()}
    except Exception:  # whatever a calculator raises
        return None
    done.calc = SinglePointCalculator(done, **results)
    return done


def polished(atoms: Atoms, calculator: Calculator) -> Atoms:
    """Relaxed with the engine, with results; the last good structure if that fails."""
    moved = atoms.copy()
    calculator.reset()
    moved.calc = calculator
    try:
        LBFGS(moved, logfile=None, maxstep=0.1).run(0.03, 200)
    except Exception:  # whatever a calculator raises
        return atoms
    return evaluate(moved, calculator) or atoms


def search(tree: dict[str, Any], calculator: Calculator | None = None) -> Iterator[Record]:
    """The records of a search, one at a time, as `nugget search` would write them."""
    config = make_config(tree)
    problem = make_system(config.system, Path())
    learner = Learner(config, problem, read_knowledge(config, problem))
    engine = make_calculator(config.engine.name) if calculator is None else calculator
    for k in range(config.search.budget):
        proposal = learner.propose(k)
        if proposal is None:
            return
        pending = make_pending(k, k, proposal, config.search.kappa)
        atoms = evaluate(proposal.atoms, engine)
        failed = {"failure": "error"} if atoms is None else {}
        kept = {
            name: getattr(pending, name)
            for name in ("generator", "predicted", "std", "scale", "kappa", "acquisition",
                         "purpose", "draws")
        }  # fmt: skip
        record = Record(iteration=k, atoms=atoms or proposal.atoms, **kept, **failed)
        learner.learn(record)
        yield record
