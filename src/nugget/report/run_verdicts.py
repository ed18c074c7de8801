"""Verdicts about campaigns, dynamics, reaction paths and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nugget.campaign.statistics import compare, grouped, has_reference
from nugget.display import counted
from nugget.numerics.arrays import Floats
from nugget.report.digest import fixed, rounded
from nugget.report.verdict import (
    ASE,
    CLIMBING,
    KAPLAN,
    KULESHOV,
    PAPER,
    SOAP,
    Badge,
    Level,
    Use,
    Verdict,
    calibration_badge,
    calibration_sentence,
    cited,
    failure_badge,
    failure_sentence,
    graded,
    joined,
    listed,
)

if TYPE_CHECKING:
    from nugget.calibration import Components, Residuals
    from nugget.campaign.campaign import Campaign
    from nugget.campaign.results import Row
    from nugget.report.onthefly_runs import Dynamics, ReactionPath

# --------------------------------------------------------------------------- campaigns

#: Half-width of the 95% interval of the success rate: about 40 searches, and about 10.
_INTERVAL = (0.15, 0.3)
_SIGNIFICANT = 0.05


def campaign_verdict(campaign: Campaign, rows: Sequence[Row], unit: str) -> Verdict:
    """The verdict about a campaign; `rows` are the searches that have ended."""
    total, ended = len(campaign.members), len(rows)
    groups, engine = grouped(rows), campaign.base.engine.name
    errors = sum(bool(row.outcome.error) for row in rows)
    sentences, badges = [], []
    if rows and has_reference(rows):
        best = max(groups, key=lambda group: (group.success, -(group.curve.median or np.inf)))
        low, high = best.interval
        name = f" with {best.name}" if len(groups) > 1 else ""
        sentences.append(
            f"{best.hits} of {len(best.rows)} searches{name} found the reference "
            f"({low:.0%} to {high:.0%} at 95% confidence)"
            + (f", in {best.curve.median} evaluations by the median." if best.curve.median else ".")
        )
        half = (high - low) / 2
        good, bad = (f"{limit:.0%}" for limit in _INTERVAL)
        limits = f"half of the 95% interval; good up to {good}, bad above {bad}"
        badges.append(
            Badge("precision", f"± {half:.0%}", graded(half, _INTERVAL), limits, "Success")
        )
        sentences.append(_differences(groups))
    else:
        energies = [row.outcome.best_energy for row in rows if row.outcome.best_energy is not None]
        if energies:
            same = sum(value - min(energies) < 1e-3 for value in energies)
            sentences.append(
                f"The lowest energy of {len(energies)} finished searches is "
                f"{fixed(min(energies))} {unit}; {same} reached it within 1 meV."
            )
            share = same / len(energies)
            limits = "share of searches within 1 meV of the lowest; good from 50%, bad below 20%"
            level = Level.GOOD if share >= 0.5 else Level.WARNING if share >= 0.2 else Level.BAD
            badges.append(
                Badge("agreement", f"{same} of {len(energies)}", level, limits, "Every search")
            )
        sentences.append("No reference was given, so success rates are not known.")
    if ended < total:
        sentences.append(f"{total - ended} of {total} searches have not finished.")
    level = Level.GOOD if ended == total else Level.WARNING
    badges.append(
        Badge("finished", f"{ended} of {total}", level, "good if all have finished", "Searches")
    )
    if errors:
        sentences.append(f"{errors} of {total} searches ended with an error.")
    level = graded(errors / max(total, 1), (0.0, 0.1))
    badges.append(
        Badge("errors", str(errors), level, "good if 0, bad above 10% of the searches", "Searches")
    )
    place = campaign.directory
    uses = (
        Use("read the results", f'pandas.read_csv("{place / "results.csv"}")'),
        Use(
            "add searches",
            f"nugget campaign --resume {place} --repeats {2 * max(campaign.repeats, 1)}",
        ),
        Use("write the page", f"nugget report {place}"),
    )
    text = (
        f"{total} searches for {campaign.base.system.title} with {engine} were run with nugget, "
        f"with {counted(len(campaign.settings), 'setting')} and the same seeds for each. Success "
        "curves are Kaplan–Meier estimates with Greenwood's bands, shares have Wilson's intervals, "
        "and settings are compared by log-rank and Fisher's tests with Holm's correction."
    )
    return Verdict(joined(*sentences), tuple(badges), uses, text, cited(engine, PAPER, KAPLAN))


def _differences(groups: Sequence[Any]) -> str:
    pairs = [(a, b) for k, a in enumerate(groups) for b in groups[k + 1 :]]
    if not pairs:
        return ""
    tests = compare(pairs)
    clear = [t for t in tests if min(t["fisher_p_holm"], t["logrank_p_holm"]) < _SIGNIFICANT]
    if not clear:
        return "No difference between settings is significant (p > 0.05 after Holm)."
    names = listed([f"{test['a']} and {test['b']}" for test in clear], 3)
    return f"The difference between {names} is significant (p < {_SIGNIFICANT} after Holm)."


# --------------------------------------------------------------------------- dynamics

#: Components within 2σ at random audits, of 95% that are expected; a σ that is 1.6 times too small
#: gives 80%.
_WITHIN = (0.9, 0.8)
#: Drift in meV/atom per ps: 2 heat a solid by 8 K in a picosecond (3k T per atom), 10 by 40 K.
_DRIFT = (2.0, 10.0)
_OFF = (2.0, 4.0)  # |mean T − target| in standard errors
#: Steps between independent temperatures in estimates of standard errors, in ps.
_CORRELATION = 0.1


def temperature_of(run: Dynamics) -> tuple[float, float, float] | None:
    """Mean, fluctuation and standard error of the temperature in the second half, K."""
    values, times = run.log["temperature"], run.log["time"]
    half = values[len(values) // 2 :]
    if len(half) < 2:
        return None
    span = 1e-3 * float(times[-1] - times[len(values) // 2])
    independent = max(min(span / _CORRELATION, float(len(half))), 1.0)
    return float(half.mean()), float(half.std()), float(half.std()) / independent**0.5


def drift_of(run: Dynamics) -> float | None:
    """Drift of the total energy by a straight line, meV/atom per ps; None if it is not kept."""
    total, time = run.log["potential"] + run.log["kinetic"], 1e-3 * run.log["time"]
    if run.config.ensemble != "nve" or len(total) < 3 or time[-1] <= time[0]:
        return None
    slope = float(np.polyfit(time, total, 1)[0])
    return 1e3 * slope / len(run.start)


def md_verdict(run: Dynamics) -> Verdict:
    """The verdict about molecular dynamics."""
    config, calls, steps = run.config, run.calls, run.step
    done = steps >= config.steps - config.every
    share = len(calls) / max(steps, 1)
    sentences = [
        f"{1e-3 * steps * config.dt:.3g} ps of dynamics took {counted(len(calls), 'engine call')}, "
        f"{share:.1%} of the steps."
    ]
    badges: list[Badge] = []
    if (heat := temperature_of(run)) is not None:
        mean, spread, error = heat
        sentences.append(f"The temperature was {mean:.0f} ± {spread:.0f} K in the second half.")
        if config.ensemble != "nve" and error > 0:
            off = abs(mean - config.temperature) / error
            limits = (
                f"difference from {config.temperature:g} K in standard errors; good up to "
                f"{_OFF[0]:g}, bad above {_OFF[1]:g}"
            )
            value = f"{mean:.0f} ± {spread:.0f} K"
            badges.append(Badge("temperature", value, graded(off, _OFF), limits, "Temperature"))
            if off > _OFF[1]:
                sentences.append(f"That is not the thermostat's {config.temperature:g} K.")
    if (drift := drift_of(run)) is not None:
        value = f"{rounded(drift, plus=True)} meV/atom/ps"
        limits = f"good up to {_DRIFT[0]:g} meV/atom per ps, bad above {_DRIFT[1]:g}"
        badges.append(
            Badge("drift", value, graded(abs(drift), _DRIFT), limits, "Drift of the energy")
        )
        sentences.append(f"The total energy drifts by {value.replace('/ps', ' per ps')}.")
    sentences.append(_audits(run, badges))
    failed = sum(bool(call["failed"]) for call in calls)
    sentences.append(failure_sentence(failed, len(calls)))
    badges.append(failure_badge(failed, len(calls), "Evaluations"))
    if not done:
        sentences.append(f"The run has not finished: {steps} of {config.steps} steps.")
        limits = "good if all steps were made"
        badges.append(
            Badge("steps", f"{steps} of {config.steps}", Level.WARNING, limits, "Trajectory")
        )
    place, engine = run.directory, config.engine.name
    uses = [
        Use("read the trajectory", f'ase.io.read("{place / "md.extxyz"}", ":")'),
        Use("use the model", f'nugget.load_calculator("{place / "learned.model"}")'),
        Use("go on", f"nugget md --resume {place} --steps {2 * config.steps}"),
        Use("write the page", f"nugget report {place}"),
    ]
    text = (
        f"Molecular dynamics ({config.ensemble.upper()}, {config.temperature:g} K, time step "
        f"{config.dt:g} fs) was run with nugget on a Gaussian process with SOAP descriptors. "
        f"{engine} was called whenever σ of a force component exceeded "
        f"{config.max_force_error:g} eV/Å, and at random steps as an audit of σ."
    )
    return Verdict(joined(*sentences), tuple(badges), tuple(uses), text, cited(engine, PAPER, SOAP))


def _audits(run: Dynamics, badges: list[Badge]) -> str:
    audits = [c for c in run.calls if c["reason"] == "audit" and c["within"] is not None]
    if not audits:
        return "σ was not tested at random steps."
    within = float(np.mean([call["within"] for call in audits]))
    rms = float(np.mean([call["rms"] for call in audits]))
    level = (
        Level.GOOD if within >= _WITHIN[0] else Level.WARNING if within >= _WITHIN[1] else Level.BAD
    )
    limits = f"good from {_WITHIN[0]:.0%}, bad below {_WITHIN[1]:.0%}; 95% are expected"
    badges.append(
        Badge("audits within 2σ", f"{within:.0%}", level, limits, "σ and errors at evaluations")
    )
    limit = run.config.max_force_error
    error = f"{rounded(rms)} eV/Å"
    limits = f"rms of a component; good up to the threshold {limit:g}, bad above {2 * limit:g}"
    badges.append(
        Badge(
            "audit error", error, graded(rms, (limit, 2 * limit)), limits, "Errors at evaluations"
        )
    )
    many = counted(len(audits), "random audit")
    if level is Level.GOOD:
        return f"At {many} {within:.0%} of the forces lay within 2σ, with an rms error of {error}."
    return f"σ is too small: at {many} only {within:.0%} of the forces lay within 2σ."


# --------------------------------------------------------------------------- reaction paths

#: eV; rates at room temperature change by a factor of 2 and of 50.
_BARRIER_ERROR = (0.02, 0.1)


def path_verdict(run: ReactionPath) -> Verdict:
    """The verdict about a reaction path."""
    config, result, place = run.config, run.result, run.directory
    failed, total = sum(not one.ok for one in run.outcomes), len(run.outcomes)
    sentences: list[str] = []
    badges: list[Badge] = []
    if result is None:
        sentences.append("The path has no result yet.")
    else:
        sentences += _barrier(result, badges, config.fmax)
        calls = counted(total, "engine call")
        if result["converged"]:
            sentences.append(f"The saddle has converged after {calls}.")
        else:
            sentences.append(f"The saddle has not converged after {calls} ({result['reason']}).")
        modes = result.get("imaginary_modes")
        if modes is not None and modes != 1:
            sentences.append(f"It has {counted(modes, 'imaginary mode')} instead of one.")
        level = Level.GOOD if result["converged"] else Level.BAD
        word = "yes" if result["converged"] else "no"
        badges.insert(0, Badge("converged", word, level, "bad if not", "Evaluations"))
        if modes is not None:
            level = Level.GOOD if modes == 1 else Level.BAD
            limits = "a saddle of first order has one"
            badges.append(
                Badge("imaginary modes", str(modes), level, limits, "Energy along the path")
            )
    sentences.append(failure_sentence(failed, total))
    badges.append(failure_badge(failed, total, "Evaluations"))
    engine = config.engine.name
    uses = (
        Use("read the path", f'ase.io.read("{place / "path.extxyz"}", ":")'),
        Use("use the model", f'nugget.load_calculator("{place / "learned.model"}")'),
        Use("go on", f"nugget neb --resume {place}"),
        Use("write the page", f"nugget report {place}"),
    )
    text = (
        f"The minimum-energy path was found with a climbing-image nudged elastic band of "
        f"{config.images} images on a Gaussian process with SOAP descriptors, trained on "
        f"{counted(total, 'evaluation')} with {engine}, until the force of {engine} at the "
        f"saddle was below {config.fmax:g} eV/Å."
    )
    return Verdict(
        joined(*sentences), tuple(badges), uses, text, cited(engine, PAPER, CLIMBING, SOAP)
    )


def _barrier(result: Mapping[str, Any], badges: list[Badge], fmax: float) -> list[str]:
    barrier, error = result.get("barrier"), result.get("error")
    if barrier is None or not np.isfinite(barrier):
        return ["No barrier was found."]
    sentences = [f"The barrier is {fixed(barrier, 3)} ± {error or 0.0:.3f} eV"]
    back, reaction = result.get("barrier_back"), result.get("reaction_energy")
    if back is not None and np.isfinite(back):
        sentences[0] += f", {fixed(back, 3)} eV in reverse"
    sentences[0] += "."
    if reaction is not None and np.isfinite(reaction):
        lies = "as high as" if abs(reaction) < 5e-4 else f"{fixed(abs(reaction), 3)} eV "
        lies += "" if abs(reaction) < 5e-4 else "above" if reaction > 0 else "below"
        sentences.append(f"The end lies {lies} the start.")
    if error is not None and np.isfinite(error):
        limits = f"good up to {_BARRIER_ERROR[0]:g} eV, bad above {_BARRIER_ERROR[1]:g} eV"
        level = graded(error, _BARRIER_ERROR)
        badges.append(
            Badge("error of the barrier", f"{error:.3f} eV", level, limits, "Energy along the path")
        )
    force = result.get("saddle_fmax")
    if force is not None and np.isfinite(force):
        limits = f"of the engine; good up to {fmax:g} eV/Å, bad above {2 * fmax:g}"
        level = graded(force, (fmax, 2 * fmax))
        badges.append(
            Badge("force at the saddle", f"{force:.3f} eV/Å", level, limits, "Evaluations")
        )
    return sentences


# --------------------------------------------------------------------------- models

#: Spearman's coefficient of σ and |error|: of perfectly calibrated Gaussian errors whose σ vary by
#: a factor of four it is 0.4, and without any relation about 0.
_RANK = (0.4, 0.1)
#: RMSE over the spread of the labels: above one half, the mean of the labels is nearly as good.
_RELATIVE = (0.1, 0.5)


def rms_z(true: Floats, predicted: Floats, std: Floats) -> float:
    """Root mean square of error/σ."""
    positive = std > 0
    scores = (predicted - true)[positive] / std[positive]
    return float(np.sqrt(np.mean(scores**2))) if len(scores) else float("inf")


def model_verdict(
    name: str | Path,
    data: str | Path,
    energies: Residuals,
    parts: Mapping[str, Components],
    facts: Mapping[str, str] | None = None,
) -> Verdict:
    """The verdict about a model on labelled structures."""
    from scipy.stats import spearmanr

    error, count = energies.y_pred - energies.y_true, len(energies.y_true)
    rmse = float(np.sqrt(np.mean(error**2)))
    first = (
        f"On {counted(count, 'structure')} energies are wrong by {1e3 * np.abs(error).mean():.3g} "
        f"meV/atom on average (RMSE {1e3 * rmse:.3g})"
    )
    if "force" in parts:
        force = parts["force"]
        first += f", forces by {np.abs(force.y_pred - force.y_true).mean():.3g} eV/Å"
    sentences = [f"{first}."]
    spread = float(np.std(energies.y_true))
    badges = []
    if count > 2 and spread > 0:
        ratio = rmse / spread
        good, bad = _RELATIVE
        limits = f"RMSE over the spread of the labels; good up to {good:g}, bad above {bad:g}"
        badges.append(
            Badge("relative error", f"{ratio:.2f}", graded(ratio, _RELATIVE), limits, "Energies")
        )
        if ratio > _RELATIVE[1]:
            sentences.append("The model predicts little more than the mean of the labels.")
    z = rms_z(energies.y_true, energies.y_pred, energies.y_std)
    sentences.append(calibration_sentence(z, count).replace("σ is", "σ of energies is"))
    badges.append(calibration_badge(z, count, "Errors in units of σ"))
    if "force" in parts:
        force = parts["force"]
        zf = rms_z(force.y_true, force.y_pred, force.y_std)
        sentences.append(
            calibration_sentence(zf, len(force.y_true)).replace("σ is", "σ of forces is")
        )
        one = calibration_badge(zf, len(force.y_true), "Errors in units of σ")
        badges.append(Badge("error/σ of forces", one.value, one.level, one.limits, one.evidence))
    if count > 4 and np.ptp(energies.y_std) > 0:
        rank = float(spearmanr(energies.y_std, np.abs(error)).statistic)
        level = Level.GOOD if rank >= _RANK[0] else Level.WARNING if rank >= _RANK[1] else Level.BAD
        limits = f"Spearman's, of σ and |error|; good from {_RANK[0]:g}, bad below {_RANK[1]:g}"
        badges.append(
            Badge("rank correlation", fixed(rank, 2), level, limits, "Energy errors and σ")
        )
        if level is Level.BAD:
            sentences.append("σ does not tell good predictions from bad ones.")
    uses = (
        Use("use the model in ASE", f'atoms.calc = nugget.load_calculator("{name}")'),
        Use("predict", f"nugget predict {name} structures.extxyz -o predicted.extxyz"),
        Use("calibrate σ", f"nugget calibrate {name} validation.extxyz"),
        Use("evaluate again", f"nugget evaluate {name} {data} --html model.html"),
    )
    text = (
        "The model is a sparse Gaussian process on local environments"
        + (f" ({facts['descriptor']})" if facts and "descriptor" in facts else "")
        + f". It was judged on {counted(count, 'structure')} that it was not trained on unless "
        "--allow-training was given; calibration follows ref. 3."
    )
    return Verdict(joined(*sentences), tuple(badges), uses, text, (PAPER, SOAP, KULESHOV, ASE))
