"""The main program of a batch job: one call, read from a file and answered in a file."""

from __future__ import annotations

import json
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from ase.io.jsonio import decode, encode

from nugget.storage.files import write_atomically

CALL, RESULT = "call.json", "result.json"


def write_call(directory: Path, text: str) -> None:
    """Store a call in the directory of its job."""
    write_atomically(directory / CALL, text)


def call_text(function: Any, args: tuple[Any, ...]) -> str:
    """A call as text, the same for equal arguments; they must be plain data and arrays."""
    return encode({"function": f"{function.__module__}:{function.__qualname__}", "args": args})


def main(directory: Path) -> None:
    """Do what the call says. An exception is part of the answer, so that it is not repeated."""
    call = decode((directory / CALL).read_text())
    module, _, name = call["function"].partition(":")
    function = getattr(import_module(module), name)
    try:
        answer = {"value": function(*map(_plain, call["args"]))}
    except Exception as error:
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    write_atomically(directory / RESULT, json.dumps(answer))


def _plain(value: Any) -> Any:
    # ASE's decoder makes a structure of a dictionary that is one; the functions take dictionaries.
    return value.todict() if hasattr(value, "todict") else value


if __name__ == "__main__":
    main(Path(sys.argv[1]))
