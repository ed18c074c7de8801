"""What may come of a damaged file: it is refused in one sentence, or read with the same result.

Cases run in children of this process: one that crashes ends its child, and is counted as a crash.
"""

from __future__ import annotations

import json
import os
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nugget import NuggetError

REFUSED, SAME, READ, CRASHED = "refused", "same", "read", "crashed"


def attempt(work: Callable[[], Any], expected: Any = None) -> tuple[str, str]:
    """The outcome of one case, and a text about it."""
    try:
        result = work()
    except NuggetError as error:
        text = str(error)
        if "\n" in text or not text.strip():
            return "unclear", repr(text)
        return REFUSED, text
    except Exception:
        return "traceback", traceback.format_exc()
    if isinstance(result, str):  # a complaint of the test itself
        return "wrong", result
    return (SAME if result == expected else READ), repr(result)[:200]


def in_children(run: Callable[[int], tuple[str, str]], cases: Sequence[int], file: Path) -> list:
    """Outcomes of all cases; a child writes them down one by one, and a crash starts another."""
    outcomes: list[tuple[int, str, str]] = []
    left = list(cases)
    while left:
        file.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            try:
                _write_outcomes(run, left, file)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        done = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        outcomes += [(case, kind, text) for case, kind, text in done]
        left = left[len(done) :]
        if left:
            outcomes.append((left.pop(0), CRASHED, f"wait status {status}"))
    return outcomes


def _write_outcomes(
    run: Callable[[int], tuple[str, str]], cases: Sequence[int], file: Path
) -> None:
    with open(file, "w", encoding="utf-8") as out:
        for case in cases:
            try:
                kind, text = run(case)
            except Exception:  # of the test itself
                kind, text = "error", traceback.format_exc()
            out.write(json.dumps([case, kind, text]) + "\n")
            out.flush()


def judge(outcomes: list[tuple[int, str, str]], allowed: set[str]) -> Counter:
    """Counts by kind; anything that is not allowed fails, with its case and its text."""
    wrong = [one for one in outcomes if one[1] not in allowed]
    told = "\n".join(f"case {case}: {kind}: {text}" for case, kind, text in wrong[:5])
    assert not wrong, f"{len(wrong)} of {len(outcomes)}:\n{told}"
    counts = Counter(kind for _, kind, _ in outcomes)
    print(dict(counts))
    return counts
