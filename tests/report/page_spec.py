"""What a page holds, read back from its HTML."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np


def spec_of(html: str) -> dict[str, Any]:
    """The data of a page."""
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', html, re.S)
    assert found is not None
    return json.loads(found[1])


def parts_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """All sections, those beside each other too."""
    parts = []
    for part in spec["sections"]:
        parts += part["sections"] if part["kind"] == "row" else [part]
    return parts


def titled(spec: dict[str, Any], title: str) -> dict[str, Any]:
    """The section with this title."""
    return next(part for part in parts_of(spec) if part.get("title") == title)


def values_of(spec: dict[str, Any], data: str, name: str) -> list[Any]:
    return spec["data"][data]["columns"][name]["values"]


def per_atom(spec: dict[str, Any], structure: int, name: str) -> np.ndarray:
    packed = spec["structures"]["frames"][structure]["values"][name]
    return np.frombuffer(b64decode(packed), "<f4")


def contents(directory: Path) -> dict[str, str]:
    """Digests of all files, to see that looking at them has changed none."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
