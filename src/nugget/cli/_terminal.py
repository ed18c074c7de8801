"""Terminals that know no Greek: what they cannot show is written in their letters."""

from __future__ import annotations

import codecs
import io
from typing import Any

_PLAIN = {
    "σ": "std", "κ": "kappa", "α": "alpha", "ρ": "rho", "θ": "theta", "μ": "u", "Δ": "D", "Å": "A",
    "₀": "0", "²": "2", "³": "3", "⁻": "-", "√": "sqrt", "·": "*", "×": "x", "±": "+-",
    "–": "-", "—": "-", "−": "-", "…": "...", "→": "->", "≤": "<=", "≥": ">=", "•": "*",
    "“": '"', "”": '"', "‘": "'", "’": "'", "é": "e", "ø": "o", "ö": "o", "ü": "u", "ä": "a",
}  # fmt: skip


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(letter, "?") for letter in lost), error.end


codecs.register_error("nugget-plain", _plain)


def plain_where_needed(*streams: Any) -> None:
    """Let streams replace letters that their encoding lacks, instead of failing."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="nugget-plain")
