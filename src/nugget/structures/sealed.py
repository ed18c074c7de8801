"""Small JSON files that tell when they have been damaged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from nugget.errors import NuggetError
from nugget.structures.files import write_atomically

_SEAL = "sha256"


def write_sealed(path: Path, data: dict[str, Any], sync: bool = True) -> None:
    """Write plain data and a hash of them, atomically."""
    text = json.dumps({**data, _SEAL: _hash(data)}, indent=1)
    write_atomically(path, text + "\n", sync)


def read_sealed(path: Path, remedy: str) -> dict[str, Any]:
    """Data that `write_sealed` wrote; damage is an error that ends with the remedy.

    A file without a hash, as earlier versions wrote it, is taken as it is.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        seal = data.pop(_SEAL, None)
        whole = isinstance(data, dict) and (seal is None or seal == _hash(data))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NuggetError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, AttributeError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise NuggetError(f"{path} is damaged: {remedy}.")
    return dict(data)


def _hash(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
