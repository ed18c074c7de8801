"""How long it takes to summarise a campaign of 2000 searches that have ended.

    python benchmarks/campaign_summary.py [--searches 2000]

Ten real searches (Au6, EMT, 12 evaluations) are copied with other seeds until there are enough. The
first look reads every database; later ones read one small file per search.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import common  # first: it sets one thread

from nugget.campaign import Campaign, summarise
from nugget.campaign.results import write_csv
from nugget.engines.execution import InProcess
from nugget.search import make_config

VARY = {"kappa": ("0", "1", "2", "4", "8")}
REAL = 2  # seeds that are really run
EVALUATIONS = 12


def real(directory: Path) -> Campaign:
    """The small campaign, with its own best structure as the one to be found."""
    settings = {
        "system": {"formula": "Au6"},
        "engine": {"name": "emt"},
        "model": {"cutoff": 5.0},
        "search": {"budget": EVALUATIONS, "candidates": 4, "relax_steps": 30, "initial": 3},
    }
    first = Campaign.create(make_config(settings), VARY, 1, directory / "first")
    first.run(InProcess())
    best = min(first.rows(), key=lambda row: row.outcome.best_energy or 0.0)
    found = directory / "first" / "runs" / f"kappa={best.setting['kappa']}" / "seed-0000"
    settings["search"] |= {"reference": str(found / "best.extxyz"), "reference_tolerance": 0.05}
    campaign = Campaign.create(make_config(settings), VARY, REAL, directory / "many")
    campaign.run(InProcess())
    return campaign


def copied(campaign: Campaign, searches: int) -> None:
    """As many searches as wanted, in their places, as if they had been run elsewhere."""
    repeats = searches // len(campaign.settings)
    whole = Campaign.resume(campaign.directory, repeats)
    sources = {(m.setting.name, m.seed): m.directory for m in campaign.members}
    for member in whole.members:
        if not member.directory.exists():
            source = sources[member.setting.name, member.seed % REAL]
            shutil.copytree(source, member.directory)
            settings = member.directory / "config.toml"
            text = settings.read_text().replace(
                f"seed = {member.seed % REAL} ", f"seed = {member.seed} "
            )
            settings.write_text(text)
        (member.directory / "result.json").unlink(missing_ok=True)


def timed(directory: Path) -> tuple[float, int]:
    """From opening the campaign to its table and its summary, in wall seconds."""
    begun = time.perf_counter()
    campaign = Campaign.resume(directory)
    rows = campaign.collect()
    write_csv(directory / "results.csv", rows)
    summarise(rows)
    return time.perf_counter() - begun, len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searches", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        campaign = real(Path(folder))
        copied(campaign, args.searches)
        directory = campaign.directory
        looks = [timed(directory) for _ in range(4)]
    count = looks[0][1]
    assert all(found == count for _, found in looks)
    first, later = looks[0][0], sorted(seconds for seconds, _ in looks[1:])[1]
    rows = [["first look, databases", count, first], ["later looks (median of 3)", count, later]]
    common.table("Summary of a campaign, wall seconds", ["", "searches", "seconds"], rows)
    common.save(
        "campaign_summary",
        {"searches": count, "evaluations": EVALUATIONS, "first": first, "later": later},
    )


if __name__ == "__main__":
    main()
