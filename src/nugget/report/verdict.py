"""Verdicts: what a finished run has found, how sure that is, what is wrong, and how to use it.

Pages, the summaries of the commands and `--json` show the same verdict. The limits that decide
about the levels of badges are constants, and every badge states them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from nugget.display import counted


class Level(StrEnum):
    """How good a number is."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


_ORDER = list(Level)


@dataclass(frozen=True)
class Badge:
    """One number with its level, the limits that decide about it, and the section that shows it."""

    label: str
    value: str
    level: Level
    limits: str
    evidence: str = ""  # title of a section of the page


@dataclass(frozen=True)
class Use:
    """A file or command that goes on from here."""

    purpose: str
    command: str


@dataclass(frozen=True)
class Verdict:
    """Sentences, badges, uses, and a paragraph of methods with its references."""

    sentences: tuple[str, ...]
    badges: tuple[Badge, ...] = ()
    uses: tuple[Use, ...] = ()
    methods: str = ""
    references: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        """The worst level of all badges."""
        return max((one.level for one in self.badges), key=_ORDER.index, default=Level.GOOD)

    @property
    def text(self) -> str:
        return " ".join(self.sentences)

    def badge(self, label: str) -> Badge:
        """The badge with this label."""
        return next(one for one in self.badges if one.label == label)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"level": self.level, **asdict(self)}


# --------------------------------------------------------------------------- limits
# The limits are conventions. None of them was fitted to runs; the comments give their reasons.

#: rms of error/σ. Of 20 predictions with a perfect σ it lies between 0.69 and 1.31 in 95% of all
#: cases (χ distribution), and errors have heavier tails than a Gaussian; hence a factor of 1.7.
#: With a σ three times too small only 26% of the errors lie within σ.
CALIBRATED, USELESS = (0.6, 1.7), (1 / 3, 3.0)
_FEW = 5  # predictions, below which the rms scatters by more than 30% even with a perfect σ

#: Share of evaluations that failed: one in twenty costs no more than a search's own scatter; with
#: one in five the failed region of structures is not explored.
FAILURES = (0.05, 0.2)

#: Largest force on a free atom, eV/Å: the default threshold of final relaxations, and twice that.
FORCES = (0.05, 0.1)

#: Mean error of predicted energies, eV/atom: about kT at room temperature, and a typical difference
#: between isomers.
MODEL_ERROR = (0.03, 0.1)


def graded(value: float, limits: tuple[float, float]) -> Level:
    """Good up to the first limit, bad above the second."""
    good, bad = limits
    return Level.GOOD if value <= good else Level.WARNING if value <= bad else Level.BAD


def calibration_level(z: float) -> Level:
    """The level of an rms of error/σ, as it is shown."""
    z = round(z, 2) if z >= 0.01 else z
    if CALIBRATED[0] <= z <= CALIBRATED[1]:
        return Level.GOOD
    return Level.WARNING if USELESS[0] <= z <= USELESS[1] else Level.BAD


def calibration_sentence(z: float, count: int) -> str:
    """What an rms of error/σ says about σ."""
    if count < _FEW:
        return f"σ cannot be judged from {counted(count, 'prediction')}."
    if calibration_level(z) is Level.GOOD:
        return f"σ is calibrated (rms of error/σ {z:.2f})."
    if z > 1:
        return f"σ is {z:.1f} times too small."
    return f"σ is {1 / z:.1f} times too large." if z > 0 else "σ is far too large."


def calibration_badge(z: float, count: int, evidence: str) -> Badge:
    """The rms of error/σ over `count` predictions."""
    level = calibration_level(z) if count >= _FEW else Level.WARNING
    limits = (
        f"good from {CALIBRATED[0]:g} to {CALIBRATED[1]:g}, bad below {USELESS[0]:.2f} or above "
        f"{USELESS[1]:g}, judged from {_FEW} predictions on"
    )
    return Badge("error/σ", f"{z:.2f}", level, limits, evidence)


def failure_badge(failed: int, total: int, evidence: str) -> Badge:
    """The number of failed evaluations."""
    good, bad = (f"{share:.0%}" for share in FAILURES)
    level = graded(failed / max(total, 1), FAILURES)
    limits = f"good up to {good} of all evaluations, bad above {bad}"
    return Badge("failures", f"{failed} of {total}", level, limits, evidence if failed else "")


def failure_sentence(failed: int, total: int) -> str:
    """Empty without failures."""
    if not failed:
        return ""
    return f"{failed} of {counted(total, 'evaluation')} failed."


def force_badge(fmax: float, evidence: str, label: str = "fmax") -> Badge:
    """The largest force on a free atom of the reported structure."""
    limits = f"good up to {FORCES[0]:g} eV/Å, bad above {FORCES[1]:g} eV/Å, on free atoms"
    return Badge(label, f"{fmax:.3f} eV/Å", graded(fmax, FORCES), limits, evidence)


def joined(*sentences: str) -> tuple[str, ...]:
    """The sentences that are not empty."""
    return tuple(one for one in sentences if one)


# --------------------------------------------------------------------------- references

PAPER = (
    "M.-P. V. Christiansen, N. Rønne, B. Hammer, Efficient ensemble uncertainty estimation in "
    "Gaussian processes regression, arXiv:2407.12525 (2024)."
)
SOAP = "A. P. Bartók, R. Kondor, G. Csányi, On representing chemical environments, Phys. Rev. B 87, 184115 (2013)."  # noqa: E501
ASE = "A. H. Larsen et al., The atomic simulation environment, J. Phys.: Condens. Matter 29, 273002 (2017)."  # noqa: E501
KULESHOV = "V. Kuleshov, N. Fenner, S. Ermon, Accurate uncertainties for deep learning using calibrated regression, ICML (2018)."  # noqa: E501
CLIMBING = "G. Henkelman, B. P. Uberuaga, H. Jónsson, A climbing image nudged elastic band method, J. Chem. Phys. 113, 9901 (2000)."  # noqa: E501
KAPLAN = "E. L. Kaplan, P. Meier, Nonparametric estimation from incomplete observations, J. Am. Stat. Assoc. 53, 457 (1958)."  # noqa: E501
SPGLIB = "A. Togo, K. Shinohara, I. Tanaka, Spglib: a software library for crystal symmetry search, Sci. Technol. Adv. Mater. Methods 4, 2384822 (2024)."  # noqa: E501
_ENGINES = {
    "gfn1-xtb": "S. Grimme, C. Bannwarth, P. Shushkov, J. Chem. Theory Comput. 13, 1989 (2017).",
    "gfn2-xtb": "C. Bannwarth, S. Ehlert, S. Grimme, J. Chem. Theory Comput. 15, 1652 (2019).",
    "emt": "K. W. Jacobsen, P. Stoltze, J. K. Nørskov, Surf. Sci. 366, 394 (1996).",
    "tersoff": "J. Tersoff, Phys. Rev. B 39, 5566 (1989).",
    "gpaw": "J. J. Mortensen et al., J. Chem. Phys. 160, 092503 (2024).",
}


def cited(engine: str, *references: str) -> tuple[str, ...]:
    """References of the method and of the engine, if it is known."""
    known = _ENGINES.get(engine)
    return (*references, *([known] if known else []), ASE)


def listed(names: Sequence[str], most: int = 8) -> str:
    """As A, B and C."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
