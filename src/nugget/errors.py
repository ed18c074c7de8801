"""The one exception type that users meet: it says what is wrong and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable


class NuggetError(ValueError):
    """Bad input or an impossible request; the message names the culprit and the remedy."""


def run_script(main: Callable[[], object]) -> None:
    """Run a script: what a user can put right becomes one line, and exit code 2."""
    try:
        main()
    except NuggetError as error:
        reason = str(error)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        reason = f"{name}{error.strerror or error}."
    else:
        return
    print(f"Error: {' '.join(reason.split())}", file=sys.stderr)
    raise SystemExit(2)
