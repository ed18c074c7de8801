"""Saddle searches on molecules beside published programs: `python saddles.py --data PATH`.

PATH contains `saddle_starts.extxyz.gz` and `saddle_published.csv`. Needs PySCF. Every third
molecule (index 0, 3, …, 87) belongs to the tuning set; the others are judged. Small molecules come
first, and finished ones are kept in the output file, so that an interrupted run continues.
Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.io import read

from nugget.engines.engine_settings import EngineConfig
from nugget.engines.programs.pyscf import PySCF
from nugget.onthefly.run_settings import SaddleConfig
from nugget.onthefly.saddle_run import find_saddle, report_of
from nugget.storage.files import replacing

RESULTS = Path(__file__).parent / "results" / "saddles.json"
TUNING = frozenset(range(0, 90, 3))
SCREEN = 1e-8  # Hartree
PROGRAMS = ("sella", "gp_dimer", "ot_gp_dimer", "dimer")


class Screened(PySCF):
    """Gradients neglect two-electron contributions below SCREEN, which saves a third of the time.

    Forces of two molecules of the tuning set (17 and 18 atoms) change by 1e-5 eV/Å.
    """

    def converged_field(self, atoms: Atoms) -> Any:
        field = super().converged_field(atoms)
        gradient = field.nuc_grad_method()
        gradient.get_jk = screened_jk
        field.nuc_grad_method = lambda: gradient
        return field


def screened_jk(molecule: Any, density: np.ndarray, hermi: int = 0) -> tuple:
    """`pyscf.grad.rhf.get_jk` with another threshold."""
    from pyscf.grad import rhf
    from pyscf.scf import _vhf

    options = _vhf._VHFOpt(molecule, "int2e_ip1", "CVHFgrad_jk_prescreen",
                           dmcondname="CVHFnr_dm_cond1", direct_scf_tol=SCREEN)  # fmt: skip
    options.q_cond = rhf._calc_q_cond(molecule, options)
    coulomb, exchange = _vhf.direct_mapdm(
        "int2e_ip1_sph", "s2kl", ("lk->s1ij", "jk->s1il"), density, 3,
        molecule._atm, molecule._bas, molecule._env, vhfopt=options,
    )  # fmt: skip
    return -coulomb, -exchange


def one(atoms: Atoms, baseline: str) -> dict:
    """Search from one start with HF/3-21G; seconds of the engine and of the rest."""
    spin = int(atoms.info["multiplicity"])
    calculator, spent = Screened("hf", "3-21g", multiplicity=spin), [0.0]
    failures: list[str] = []

    def engine(structure: Atoms) -> Atoms | None:
        begin = time.process_time()
        structure.calc = calculator
        try:
            results = {"energy": structure.get_potential_energy(), "forces": structure.get_forces()}
        except Exception as error:  # any failure of the engine is one of the search's results
            failures.append(f"{type(error).__name__}: {error}")
            return None
        finally:
            spent[0] += time.process_time() - begin
        from ase.calculators.singlepoint import SinglePointCalculator

        structure.calc = SinglePointCalculator(structure, **results)
        return structure

    config = SaddleConfig(engine=EngineConfig(name="pyscf", spin=spin), baseline=baseline)
    begin, bare = time.process_time(), atoms.copy()
    bare.info = {}
    result = find_saddle(bare, engine, config)
    report = report_of(result)
    report["engine_failures"] = failures
    report["engine_seconds"] = spent[0] / result.calls
    report["own_seconds"] = (time.process_time() - begin - spent[0]) / result.calls
    return report


def summary(done: dict, published: list[dict], indices: list[int]) -> dict:
    rows = [(done[row["id"]], row) for k, row in enumerate(published)
            if k in indices and row["id"] in done]  # fmt: skip
    if not rows:
        return {}
    calls = [mine["search_calls"] for mine, _ in rows if mine["converged"]]
    own = [mine["own_seconds"] for mine, _ in rows]
    gap = np.array([mine["energy"] - float(row["sella_saddle_eV"]) for mine, row in rows
                    if mine["converged"] and row["sella_saddle_eV"]])  # fmt: skip
    out = {
        "molecules": len(rows), "converged": len(calls), "median_calls": float(np.median(calls)),
        "own_seconds_per_call": float(np.median(own)),
        "own_over_engine": float(np.median([m["own_seconds"] / m["engine_seconds"]
                                            for m, _ in rows])),
        "same_as_sella": int(np.sum(np.abs(gap) < 0.01)), "lower": int(np.sum(gap <= -0.01)),
        "higher": int(np.sum(gap >= 0.01)),
    }  # fmt: skip
    fewer = [mine["search_calls"] < int(row["sella_calls"]) for mine, row in rows
             if mine["converged"] and row["sella_calls"]]  # fmt: skip
    out["fewer_calls_than_sella"] = int(np.sum(fewer))
    for name in PROGRAMS:
        theirs = [int(row[f"{name}_calls"]) for _, row in rows if row[f"{name}_calls"]]
        out[f"median_{name}"] = float(np.median(theirs))
        out[f"converged_{name}"] = sum(bool(row[f"{name}_saddle_eV"]) for _, row in rows)
    return out


def draw(done: dict, published: list[dict], path: Path) -> None:
    import matplotlib.pyplot as plt

    rows = sorted((row for row in published if row["id"] in done),
                  key=lambda row: done[row["id"]]["search_calls"])  # fmt: skip
    fig, axes = plt.subplots(figsize=(8, 4))
    for name in PROGRAMS:
        calls = [float(row[f"{name}_calls"]) if row[f"{name}_saddle_eV"] else np.nan
                 for row in rows]  # fmt: skip
        axes.plot(calls, ".", label=name.replace("_", "-"))
    mine = [done[row["id"]] for row in rows]
    axes.plot([one["search_calls"] for one in mine], "k-", label="nugget")
    failed = [k for k, one in enumerate(mine) if not one["converged"]]
    if failed:
        axes.plot(failed, [mine[k]["search_calls"] for k in failed], "kx", label="not converged")
    axes.set(
        yscale="log",
        xlabel="molecule, in the order of nugget's calls",
        ylabel="energy and force calls",
    )
    axes.legend(ncols=6, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0))
    fig.savefig(path, dpi=150, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--set", choices=("tuning", "judging"), default="judging")
    parser.add_argument("--baseline", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true", help="only the table and the figure")
    parser.add_argument("--figure", type=Path, help="calls of every molecule beside the others'")
    options = parser.parse_args()
    images = read(options.data / "saddle_starts.extxyz.gz", ":")
    published = list(csv.DictReader((options.data / "saddle_published.csv").open()))
    done = json.loads(options.out.read_text()) if options.out.exists() else {}
    chosen = [k for k in range(len(images)) if (k in TUNING) == (options.set == "tuning")]
    for k in sorted(chosen, key=lambda k: len(images[k])):  # small ones are quick
        name = images[k].info["id"]
        if name in done or options.summary:
            continue
        done[name] = one(images[k], options.baseline)
        with replacing(options.out) as partial:
            partial.write_text(json.dumps(done, indent=1))
        row = done[name]
        print(name, len(images[k]), row["search_calls"], published[k]["sella_calls"],
              f"{row['energy']:.4f}", published[k]["sella_saddle_eV"], row["reason"],
              row["model_modes"], flush=True)  # fmt: skip
    print(json.dumps(summary(done, published, chosen), indent=1))
    if options.figure is not None:
        draw(done, published, options.figure)


if __name__ == "__main__":
    main()
