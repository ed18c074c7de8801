"""Figure 4: does exploration pay? Success against κ for both uncertainties, and how soon it comes.

    nugget campaign paper/fig4.toml --vary kappa=0,1,2,4,8 \\
      --vary uncertainty=label-noise,projected-process --repeats 50 --out runs/fig4
    python paper/fig4_success.py --campaign runs/fig4
    python paper/fig4_success.py                       # from paper/results/fig4_au20*.csv

Needs: nothing for the last line, which draws the tables that ship. Takes: seconds; the campaign
itself some days on two cores.

Au20, GFN1-xTB, energies only, 150 evaluations. Found is the tetrahedron's bond graph within 0.2 eV
of its energy. Left: share of searches that found it (Wilson, 95 %); right: Kaplan–Meier curves
(Greenwood, 95 %). Tests: each κ > 0 against κ = 0, and both uncertainties at each κ, all in one
family for Holm's correction. A second table counts either of two tetrahedra, the compact one or the
one with its face atoms pushed out, which GFN1-xTB puts 16 meV lower.
"""

import argparse
import json
from pathlib import Path

from nugget.campaign.grid import split
from nugget.campaign.results import Row, examine, read_csv, read_outcome, write_csv
from nugget.campaign.statistics import Group, compare, describe, grouped
from nugget.errors import NuggetError, run_script
from nugget.report.figures import success_figure
from nugget.report.style import save
from nugget.search.store import Store

HERE = Path(__file__).parent
TETRAHEDRA = HERE.parent / "benchmarks" / "references" / "gfn1-au20-tetrahedra.extxyz"
CSV = HERE / "results" / "fig4_au20.csv"
UNCERTAINTIES = ("label-noise", "projected-process")


def varied(name: str) -> dict[str, str]:
    """The values of the varied settings, from the name of a directory such as kappa=2."""
    if name == "all":
        return {}
    pairs = [part.partition("=") for part in split(name.replace("%2F", "/"))]
    return {key: value for key, _, value in pairs}


def collect(campaign: Path, reference: Path | None = None) -> list[Row]:
    """The searches of a campaign that have ended, from their directories alone.

    With `reference` they are judged by that file instead of the one that they were to stop at.
    """
    rows = []
    for directory in sorted(campaign.glob("runs/*/seed-*")):
        outcome = read_outcome(directory)
        if outcome is not None and reference is not None:
            store = Store.open(directory)
            config = store.config()
            search = config.search.model_copy(update={"reference": str(reference)})
            config = config.model_copy(update={"search": search})
            outcome = examine(store, config)
        if outcome is not None:
            seed = int(directory.name.removeprefix("seed-"))
            rows.append(Row(varied(directory.parent.name), seed, outcome))
    if not rows:
        raise NuggetError(f"{campaign} holds no search that has ended.")
    # At κ = 0 no σ is used: searches with the two uncertainties are the same to the last bit, so
    # that one that was run with label noise stands for both.
    had = {(row.setting["kappa"], row.setting["uncertainty"], row.seed) for row in rows}
    for row in rows[:]:
        twin = {**row.setting, "uncertainty": UNCERTAINTIES[1]}
        if row.setting["kappa"] == "0" and ("0", UNCERTAINTIES[1], row.seed) not in had:
            rows.append(Row(twin, row.seed, row.outcome))
    order = {name: k for k, name in enumerate(UNCERTAINTIES)}
    return sorted(
        rows, key=lambda r: (float(r.setting["kappa"]), order[r.setting["uncertainty"]], r.seed)
    )


def tests(groups: list[Group]) -> list[dict]:
    """κ against 0 for each uncertainty, and the uncertainties against each other at each κ."""
    by = {(float(g.setting["kappa"]), g.setting["uncertainty"]): g for g in groups}
    kappas = sorted({kappa for kappa, _ in by})
    pairs = [
        (by[kappa, name], by[0.0, name])
        for name in UNCERTAINTIES
        for kappa in kappas
        if kappa > 0 and {(kappa, name), (0.0, name)} <= by.keys()
    ]
    pairs += [
        (by[kappa, UNCERTAINTIES[0]], by[kappa, UNCERTAINTIES[1]])
        for kappa in kappas
        if all((kappa, name) in by for name in UNCERTAINTIES)
    ]
    return compare(pairs)


def tell(statistics: dict) -> None:
    for cell in statistics["cells"]:
        low, high = cell["success_interval"]
        ends = ["…" if end is None else str(end) for end in cell["median_interval"]]
        median = cell["median_evaluations"] or "not reached"
        print(
            f"{cell['name']:40} {cell['found']:3d}/{cell['searches']:<3d} "
            f"{100 * cell['success']:3.0f} % ({100 * low:.0f} to {100 * high:.0f}), "
            f"median {median} ({ends[0]} to {ends[1]})"
            + (f", {cell['errors']} failed" if cell["errors"] else "")
        )
    print("\np after Holm: success (Fisher), curves (log-rank)")
    for test in statistics["tests"]:
        print(
            f"{test['a']} – {test['b']}: {100 * test['success_difference']:+.0f} %, "
            f"{test['fisher_p_holm']:.2g}, {test['logrank_p_holm']:.2g}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--csv", type=Path, default=CSV, help="the table to draw")
    parser.add_argument("--campaign", type=Path, help="collect the table from here first")
    parser.add_argument("--out", type=Path, help="for figure and statistics; else paper/")
    parser.add_argument("--json", type=Path, help="file for the statistics")
    args = parser.parse_args()
    statistics_file = args.json or (args.out or HERE / "results") / "fig4_success.json"
    args.out = args.out or HERE / "figures"
    if args.campaign is not None and args.csv == CSV and args.out != HERE / "figures":
        args.csv = args.out / CSV.name
    args.out.mkdir(parents=True, exist_ok=True)
    either = args.csv.with_name(f"{args.csv.stem}_either.csv")
    if args.campaign is not None:
        write_csv(args.csv, collect(args.campaign))
        write_csv(either, collect(args.campaign, TETRAHEDRA.absolute()))
        print(f"written: {args.csv}, {either}")
    groups = grouped(read_csv(args.csv))
    statistics = {}
    for name, file in (("compact", args.csv), ("either", either)):
        of = grouped(read_csv(file))
        statistics[name] = {"cells": [describe(group) for group in of], "tests": tests(of)}
        print(f"\n{name} tetrahedron")
        tell(statistics[name])
    statistics_file.write_text(json.dumps(statistics, indent=1) + "\n")
    for dark in (False, True):
        title = "Au$_{20}$, GFN1-xTB: is the tetrahedron found?"
        save(success_figure(groups, title, dark), args.out / "fig4_success.png", dark)


if __name__ == "__main__":
    run_script(main)
