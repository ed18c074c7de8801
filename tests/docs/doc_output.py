"""Output that pages show, compared with what the commands above it print.

The comment `<!-- output: within 0.01, counts within 50 % -->` above a `text` block demands that
each line of the block occurs, in this order, in the output of the block that was run last. Words
must be equal. A number with a decimal point may differ by the first tolerance, an integer (a count)
by the second or, without one, by the first. A tolerance is absolute, or relative if it ends in `%`.
Frames of tables and the width of columns do not matter; a line of nothing but `…` is skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NUMBER = re.compile(r"(?<![\w.])[+\-−]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w]*_)")
FRAME = re.compile(r"[│┃|┌┐└┘├┤┬┴┼─━┏┓┗┛┡┩╇╋┳┻╞╡═╪]+")
MARK = re.compile(
    r"<!-- output: within ([\d.e-]+)( %)?(?:, counts within ([\d.e-]+)( %)?)? -->\s*$"
)


@dataclass(frozen=True)
class Tolerance:
    """How far a number on a page may lie from the printed one."""

    size: float
    relative: bool

    def allows(self, shown: float, printed: float) -> bool:
        limit = self.size / 100 * abs(printed) if self.relative else self.size
        return abs(shown - printed) <= limit * (1 + 1e-9)


@dataclass(frozen=True)
class Comparison:
    """The tolerances of one `text` block."""

    numbers: Tolerance
    counts: Tolerance

    @classmethod
    def from_mark(cls, paragraph: str) -> Comparison | None:
        """The comparison that the comment at the end of a paragraph asks for."""
        found = MARK.search(paragraph)
        if found is None:
            return None
        size, percent, count, count_percent = found.groups()
        numbers = Tolerance(float(size), bool(percent))
        counts = Tolerance(float(count), bool(count_percent)) if count else numbers
        return cls(numbers, counts)

    def same(self, shown: str, printed: str) -> bool:
        """Whether a line of a page agrees with a printed line."""
        if _words(shown) != _words(printed):
            return False
        pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
        return all(self._same_number(*pair) for pair in pairs)

    def _same_number(self, shown: str, printed: str) -> bool:
        is_count = shown.lstrip("+-−").isdigit() and printed.lstrip("+-−").isdigit()
        tolerance = self.counts if is_count else self.numbers
        return tolerance.allows(_value(shown), _value(printed))

    def missing_line(self, shown: str, printed: str) -> str | None:
        """The first line of a page that the printed text does not contain in this place."""
        lines = iter(filter(None, map(_plain, printed.splitlines())))
        for line in filter(None, map(_plain, shown.splitlines())):
            if line != "…" and not any(self.same(line, other) for other in lines):
                return line
        return None


def _plain(line: str) -> str:
    return " ".join(FRAME.sub(" ", line).split())


def _words(line: str) -> list[str]:
    return NUMBER.sub("#", line).split()


def _value(number: str) -> float:
    return float(number.replace("−", "-"))
