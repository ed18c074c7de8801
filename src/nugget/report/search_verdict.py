"""The verdict about a search: of clusters, surfaces, crystals and compositions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ase import Atoms
from ase.io import read

from nugget.display import counted
from nugget.errors import NuggetError
from nugget.report.digest import failures, fixed, informed, likely, per_atom, quality
from nugget.report.hull_sections import read_phases
from nugget.report.minima import COUNT, Low, Lowest, relaxed_ends, symmetry
from nugget.report.phase_diagram_sections import diagram_statements
from nugget.report.verdict import (
    MODEL_ERROR,
    PAPER,
    SOAP,
    SPGLIB,
    Badge,
    Level,
    Use,
    Verdict,
    calibration_badge,
    calibration_sentence,
    cited,
    failure_badge,
    failure_sentence,
    force_badge,
    graded,
    joined,
    listed,
)
from nugget.search.knowledge import read_knowledge
from nugget.search.polish import HULL
from nugget.search.record import Check, CheckKind, PolishStep, Record, energy_of
from nugget.search.search_settings import Config
from nugget.search.stop import Confidence, RediscoveryCounter
from nugget.search.store import BEST, DATABASE, MINIMA, Activity, Reader, State
from nugget.systems.goal import Goal
from nugget.systems.system_settings import make_goal, make_system

#: Estimated probability that the lowest structure is found: eight independent rediscoveries, and
#: one or two of them (`search.stop.Confidence`).
CONFIDENCE = (0.9, 0.7)

#: Share of the evaluations after which the lowest structure was found. A search that improves until
#: its last third is likely to improve further; in the last tenth it has had no time to be tested.
LATE = (2 / 3, 0.9)

_BADGE_SEARCH, _BADGE_TRUST = "The search", "Prediction errors"
_LOWEST, _FAILURES, _HULL = "The lowest structures", "Failures", "Convex hull"


@dataclass(frozen=True, eq=False)
class SearchFacts:
    """What a verdict about a search depends on."""

    directory: Path
    config: Config
    goal: Goal  # with the hull of all evaluations
    records: Sequence[Record]
    steps: Sequence[PolishStep]
    low: Sequence[Low]  # distinct structures, the lowest first
    confidence: Confidence | None  # None for systems whose rediscoveries are not counted
    state: State
    checks: Sequence[Check] = ()
    best: Low | None = None  # the structure in best.extxyz
    phases: Sequence[dict[str, Any]] = ()

    @classmethod
    def read(cls, directory: Path) -> SearchFacts:
        """Read a search, finished or not; nothing is written."""
        reader = Reader(directory)
        config, state = reader.config(), reader.state()
        records, steps = reader.news()
        goal = informed(make_goal(config.system), records, steps)
        lowest = Lowest(goal, COUNT)
        lowest.add(records)
        problem = make_system(config.system, directory)
        confidence = None
        if problem.counts_rediscoveries:
            try:
                learned = read_knowledge(config, problem, directory).learned
            except NuggetError:  # the structures of --learn are missing
                learned = ()
            confidence = RediscoveryCounter.of(records, learned).confidence()
        low = lowest.chosen(records, steps, relaxed_ends(directory))
        return cls.of(
            directory, config, goal, records, steps, low, confidence, state, reader.checks()
        )

    @classmethod
    def of(
        cls,
        directory: Path,
        config: Config,
        goal: Goal,
        records: Sequence[Record],
        steps: Sequence[PolishStep],
        low: Sequence[Low],
        confidence: Confidence | None,
        state: State,
        checks: Sequence[Check] = (),
    ) -> SearchFacts:
        """With the files that the search has written at its end."""
        file = directory / HULL
        phases = read_phases(file) if goal.hull is not None and file.exists() else []
        best = None if goal.hull is not None else reported(directory, goal, low)
        return cls(
            directory, config, goal, records, steps, low, confidence, state, checks, best, phases
        )

    @property
    def running(self) -> bool:
        return self.state.doing is Activity.RUNNING

    @property
    def later(self) -> int:
        """Evaluations after that of the reported structure."""
        return 0 if self.best is None else len(self.records) - 1 - max(self.best.start, 0)

    @property
    def next(self) -> Low | None:
        """The lowest structure besides the reported one."""
        best = self.best
        if best is None:
            return None
        others = (one for one in self.low if one is not best and one.start != best.start)
        return next(others, None)


def reported(directory: Path, goal: Goal, low: Sequence[Low]) -> Low | None:
    """The structure in best.extxyz; the lowest one if there is no such file."""
    file = directory / BEST
    if not low or not file.exists():
        return next(iter(low), None)
    try:
        atoms = read(file, format="extxyz")
        assert isinstance(atoms, Atoms)
        value = goal.value(atoms, energy_of(atoms))
    except (OSError, ValueError, KeyError, IndexError, AttributeError):
        return low[0]
    nearest = min(low, key=lambda one: abs(one.value - value))
    if abs(nearest.value - value) > 1e-6:  # the file belongs to an earlier moment
        return low[0]
    return nearest


def search_verdict(facts: SearchFacts) -> Verdict:
    """The verdict about a search."""
    if facts.goal.hull is not None:
        sentences, badges = _hull(facts)
    elif facts.config.system.vary is not None:
        sentences, badges = diagram_statements(facts.directory)
    else:
        sentences, badges = _lowest(facts)
    recent = quality(facts.records)
    if recent is not None:
        sentences += [calibration_sentence(recent.z, recent.count)]
        badges.append(calibration_badge(recent.z, recent.count, _BADGE_TRUST))
        good, bad = (1e3 * limit for limit in MODEL_ERROR)
        limits = f"mean of the last {recent.count}; good up to {good:g} meV/atom, bad above {bad:g}"
        value = per_atom(recent.error)
        level = graded(recent.error, MODEL_ERROR)
        badges.append(Badge("model error", value, level, limits, _BADGE_TRUST))
        if level is Level.BAD:
            few = recent.error > 3 * recent.median  # a few large errors decide
            middle = f", by {per_atom(recent.median)} in the median" if few else ""
            sentences.append(f"The model misses energies by {value} on average{middle}.")
    failed, total = sum(failures(facts.records).values()), len(facts.records)
    sentences += [failure_sentence(failed, total), *_check_sentences(facts), _end_sentence(facts)]
    badges.append(failure_badge(failed, total, _FAILURES))
    badges += _check_badges(facts) + _end_badges(facts)
    text, references = _methods(facts)
    return Verdict(joined(*sentences), tuple(badges), _uses(facts), text, references)


def read_search_verdict(directory: Path) -> Verdict:
    """The verdict about the search in a directory."""
    return search_verdict(SearchFacts.read(directory))


# --------------------------------------------------------------------------- one structure


def _lowest(facts: SearchFacts) -> tuple[list[str], list[Badge]]:
    best, goal = facts.best, facts.goal
    if best is None:
        return ["No evaluation has succeeded."], []
    symbol = symmetry(best.atoms)[1].replace(" (", ", no. ").rstrip(")")
    name = f"The lowest structure ({symbol})" if symbol else "The lowest structure"
    pressure = facts.config.system.pressure
    at = f" at {pressure:g} GPa" if pressure else ""
    first = f"{name} has an {goal.quantity} of {fixed(best.value)} {goal.unit}{at}"
    other = facts.next
    unit = "meV" if goal.unit == "eV" else "meV/atom"
    gap = None if other is None else 1e3 * (other.value - best.value)
    if gap is not None and gap >= 0:
        first += f", {_millis(gap)} {unit} below the next."
    elif gap is not None:
        first += f"; another one lies {_millis(-gap)} {unit} lower but has not converged."
    else:
        first += "; no other was found."
    sentences = [first, _when(facts, gap), _confidence_sentence(facts), _converged_sentence(best)]
    return sentences, [*_confidence_badge(facts), *_when_badge(facts), *_force_badges(best)]


def _millis(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _when(facts: SearchFacts, gap: float | None) -> str:
    best, total = facts.best, len(facts.records)
    assert best is not None
    if best.start < 0:
        return "It was given by --learn; no evaluation found a lower one."
    found = f"It was found at evaluation {best.start + 1} of {total}"
    if not facts.later or (gap is not None and gap < 0):
        return f"{found}."
    later = counted(facts.later, "later evaluation")
    return f"{found}; {later} found nothing lower."


def _when_badge(facts: SearchFacts) -> list[Badge]:
    best, total = facts.best, len(facts.records)
    if best is None or best.start < 0:
        return []
    level = graded((best.start + 1) / max(total, 1), LATE)
    limits = (
        f"good in the first {LATE[0]:.0%} of the evaluations, bad in the last {1 - LATE[1]:.0%}"
    )
    return [Badge("found at", f"{best.start + 1} of {total}", level, limits, _BADGE_SEARCH)]


def _confidence_sentence(facts: SearchFacts) -> str:
    confidence = facts.confidence
    if confidence is None:
        assert facts.best is not None
        images = [record.atoms for record in facts.records if record.ok]
        times = facts.goal.count([facts.best.atoms], images)
        return f"{counted(times, 'evaluation')} reached it; a probability is not estimated here."
    if confidence.probability is None:
        return f"There is no estimate of confidence, because {confidence.no_estimate}."
    reached = counted(confidence.met, "independent candidate")
    word = _confidence_word(confidence)
    if word == "high":
        return f"Confidence is high ({likely(confidence.probability)}): {reached} reached it."
    why = f"only {reached} reached it" if not confidence.lower else (
        f"{reached} reached it, but {counted(confidence.lower, 'structure')} with lower predicted "
        "energies were not evaluated"
    )  # fmt: skip
    return f"Confidence is {word} ({confidence.probability:.0%}): {why}."


def _confidence_word(confidence: Confidence) -> str:
    if confidence.probability is None or confidence.probability < CONFIDENCE[1]:
        return "low"
    return "high" if confidence.probability >= CONFIDENCE[0] else "moderate"


_WORD_LEVELS = {"high": Level.GOOD, "moderate": Level.WARNING, "low": Level.BAD}


def _confidence_badge(facts: SearchFacts) -> list[Badge]:
    confidence = facts.confidence
    if confidence is None:
        return []
    value = "no estimate" if confidence.probability is None else likely(confidence.probability)
    limits = (
        f"probability that the lowest is found; good from {CONFIDENCE[0]:.0%}, bad below "
        f"{CONFIDENCE[1]:.0%} or without an estimate"
    )
    return [
        Badge(
            "confidence", value, _WORD_LEVELS[_confidence_word(confidence)], limits, _BADGE_SEARCH
        )
    ]


def _converged_sentence(best: Low) -> str:
    if best.fmax is None:
        return "The engine gives no forces, so convergence is not known."
    if not best.polished:
        return f"It was not relaxed with the engine (fmax {best.fmax:.2f} eV/Å)."
    if best.converged:
        return ""
    return f"Its final relaxation has not converged (fmax {best.fmax:.2f} eV/Å)."


def _force_badges(best: Low) -> list[Badge]:
    return [] if best.fmax is None else [force_badge(best.fmax, _LOWEST)]


# --------------------------------------------------------------------------- compositions


def _hull(facts: SearchFacts) -> tuple[list[str], list[Badge]]:
    hull = facts.goal.hull
    assert hull is not None
    phases = facts.phases
    if not phases:
        missing = [hull.name(end) for end in hull.ends if end not in hull.points]
        if missing:
            return [f"There is no hull yet; {listed(missing)} has no energy."], []
        return ["The hull is not final; the phases have not been relaxed."], []
    stable = [phase for phase in phases if phase["stable"]]
    loose = [phase["formula"] for phase in stable if not phase["relaxed"]]
    sentences, badges = [], []
    if stable:
        lowest = min(stable, key=lambda phase: phase["formation"])
        names = listed([phase["formula"] for phase in stable])
        several = len(stable) > 1
        sentences.append(f"The stable {'phases are' if several else 'phase is'} {names}.")
        formation = fixed(1e3 * lowest["formation"], 1)
        if lowest["formation"] < 0:
            sentences.append(
                f"{lowest['formula']} has the lowest formation enthalpy, {formation} meV/atom."
            )
        else:
            sentences.append("No compound is stable against the elements.")
    else:
        sentences.append("No phase can be called stable, because the elements were not relaxed.")
    if loose:
        sentences.append(f"{listed(loose)} on the hull was not relaxed to convergence.")
    unrelaxed = [p["formula"] for p in phases if not p["relaxed"] and not p["stable"]]
    if unrelaxed:
        sentences.append(
            f"{counted(len(unrelaxed), 'composition')} above the hull ({listed(unrelaxed, 5)}) "
            + (
                "was not relaxed, so its distance is an upper bound."
                if len(unrelaxed) == 1
                else "were not relaxed, so their distances are upper bounds."
            )
        )
    level = Level.BAD if loose or not stable else Level.GOOD
    on = f"{len(stable) - len(loose)} of {len(stable)}"
    limits = "good if all phases on the hull are relaxed with the engine, bad otherwise"
    badges.append(Badge("relaxed on the hull", on, level, limits, _HULL))
    level = Level.WARNING if unrelaxed else Level.GOOD
    known = f"{len(phases) - len(unrelaxed)} of {len(phases)}"
    limits = "good if the lowest crystal of every composition is relaxed"
    badges.append(Badge("relaxed compositions", known, level, limits, _HULL))
    return sentences, badges


# --------------------------------------------------------------------------- checks and end


def _verdicts(facts: SearchFacts) -> Counter[CheckKind]:
    return Counter(check.kind for check in facts.checks if check.remarkable)


def _check_sentences(facts: SearchFacts) -> list[str]:
    words = {
        CheckKind.CORRECTED: "The engine had returned a wrong result for {}, which was corrected.",
        CheckKind.REJECTED: "The engine had returned a wrong result for {}, which was rejected.",
        CheckKind.UNCONFIRMED: "The result of {} could not be confirmed by a repetition.",
    }
    found = _verdicts(facts)
    return [words[kind].format(counted(n, "evaluation")) for kind, n in found.items()]


def _check_badges(facts: SearchFacts) -> list[Badge]:
    found = _verdicts(facts)
    if not found:
        return []
    level = Level.BAD if CheckKind.UNCONFIRMED in found else Level.WARNING
    value = ", ".join(f"{n} {kind.value}" for kind, n in found.items())
    limits = "a repeated evaluation differed; bad if the repetition itself failed"
    return [Badge("checked results", value, level, limits, _FAILURES)]


_ENDS = {
    Activity.RUNNING: "The search is still running.",
    Activity.STOPPED: "The search was stopped before its end.",
    Activity.INTERRUPTED: "The search was interrupted before its end.",
}


def _end_sentence(facts: SearchFacts) -> str:
    state = facts.state
    if state.doing is Activity.FAILED:
        return f"The search failed: {state.reason.rstrip('.')}."
    if state.doing is Activity.FOUND:
        return "The reference structure was found."
    if facts.config.search.reference is not None and state.doing is Activity.FINISHED:
        return "The reference structure was not found."
    return _ENDS.get(state.doing, "")


def _end_badges(facts: SearchFacts) -> list[Badge]:
    state, badges = facts.state, []
    if facts.config.search.reference is not None and state.doing in (
        Activity.FOUND, Activity.FINISHED,
    ):  # fmt: skip
        found = state.doing is Activity.FOUND
        word, level = ("found", Level.GOOD) if found else ("not found", Level.BAD)
        badges.append(Badge("reference", word, level, "bad if not found", _BADGE_SEARCH))
    if state.doing in (Activity.FAILED, *_ENDS):
        level = Level.BAD if state.doing is Activity.FAILED else Level.WARNING
        limits = "bad after a failure, a warning before the end"
        badges.append(Badge("end", state.doing.value, level, limits, _BADGE_SEARCH))
    return badges


# --------------------------------------------------------------------------- uses and methods


def _uses(facts: SearchFacts) -> tuple[Use, ...]:
    place, engine = facts.directory, facts.config.engine.name
    uses = []
    if facts.best is not None:
        best = place / BEST
        uses += [
            Use("read the lowest structure", f'ase.io.read("{best}")'),
            Use("look at it", f"ase gui {best}"),
        ]
        tighter = "" if facts.config.system.kind != "crystal" else " --cell"
        relax = f"nugget relax {best} --engine {engine} --fmax 0.01{tighter} -o relaxed.extxyz"
        uses.append(Use("relax it further, or with another engine", relax))
    if (place / MINIMA).exists():
        uses.append(Use("read all minima", f'ase.io.read("{place / MINIMA}", ":")'))
    if facts.phases:
        uses.append(Use("read the hull", f'json.load(open("{place / HULL}"))'))
    uses.append(Use("see all structures", f"ase gui {place / DATABASE}"))
    if not facts.running:
        budget = 2 * max(len(facts.records), 1)
        more = f"nugget search --resume {place} --budget {budget}"
        uses.append(Use("go on with the search", more))
    uses.append(Use("write the page", f"nugget report {place}"))
    return tuple(uses)


def _methods(facts: SearchFacts) -> tuple[str, tuple[str, ...]]:
    config, total = facts.config, len(facts.records)
    model, search = config.model, config.search
    labels = "energies and forces" if model.use_forces else "energies"
    kinds = {"crystal": "crystal structures", "cluster": "clusters", "surface": "adsorbates"}
    what = kinds.get(config.system.kind, "structures")
    text = (
        f"The {what} of {config.system.title} were searched with nugget in "
        f"{counted(total, 'evaluation')} with {config.engine.name}. After {search.initial} initial "
        f"structures, {search.candidates} candidates per iteration were relaxed on a sparse "
        f"Gaussian process with {model.descriptor} descriptors, trained on all {labels} so far, "
        f"and one was chosen by the acquisition function {search.acquisition!r} (κ = "
        f"{search.kappa:g}). Uncertainties ({model.uncertainty}; refs. 1, 2) were recalibrated "
        "during the search."
    )
    if facts.steps:
        text += (
            f" The lowest structures were relaxed with {config.engine.name} in "
            f"{counted(len(facts.steps), 'further evaluation')} until no force on a free atom "
            f"exceeded {search.final_fmax:g} eV/Å."
        )
    if config.system.pressure:
        text += f" Enthalpies refer to a pressure of {config.system.pressure:g} GPa."
    text += f" The seed was {search.seed}."
    crystal = config.system.kind == "crystal"
    return text, cited(config.engine.name, PAPER, SOAP, *([SPGLIB] if crystal else []))
