"""Damage to files, drawn from a seeded generator: as disks, editors and people do it."""

from __future__ import annotations

import re

import numpy as np

Rng = np.random.Generator


def damaged_bytes(content: bytes, rng: Rng) -> bytes:
    """Cut, flipped, overwritten, moved, doubled or emptied."""
    size = len(content)
    a, b = sorted(int(x) for x in rng.integers(0, size + 1, 2))
    work = bytearray(content)
    kind = rng.choice(["cut", "flip", "flips", "zeros", "noise", "drop", "double", "empty"],
                      p=[0.2, 0.25, 0.15, 0.1, 0.1, 0.1, 0.08, 0.02])  # fmt: skip
    if kind == "cut":
        return content[:a]
    if kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else int(rng.integers(2, 40))):
            work[int(rng.integers(size))] ^= 1 << int(rng.integers(8))
        return bytes(work)
    b = min(b, a + 4096)
    if kind == "zeros":
        work[a:b] = bytes(b - a)
    elif kind == "noise":
        work[a:b] = rng.bytes(b - a)
    elif kind == "drop":
        del work[a:b]
    elif kind == "double":
        work[a:a] = work[a:b]
    else:
        return b""
    return bytes(work)


_WORDS = [
    "nan", "inf", "-1", "0", "-0.0", "1e308", "1e400", "99999999999999999999", "true", "false",
    '""', '"text"', "[]", "[1, 2]", "{}", "null", "1.5", "3", "'", '"', "=", "[", "]", "\x00", "é",
    "0x10", "1_000", "\\", "Au20", "None", "-", "1979-05-27",
]  # fmt: skip
_TOKEN = re.compile(r"[^\s=,:\[\]{}]+")


def damaged_text(text: str, rng: Rng) -> bytes:
    """Other words in the place of some, lines lost or exchanged; sometimes damaged bytes."""
    kind = rng.choice(["word", "line", "swap", "cut", "bytes"], p=[0.55, 0.1, 0.1, 0.1, 0.15])
    lines = text.splitlines(keepends=True)
    if kind == "bytes" or len(lines) < 2:
        return damaged_bytes(text.encode(), rng)
    if kind == "word":
        for _ in range(int(rng.integers(1, 3))):
            tokens = list(_TOKEN.finditer(text))
            token = tokens[int(rng.integers(len(tokens)))]
            word = str(rng.choice(_WORDS))
            text = text[: token.start()] + word + text[token.end() :]
        return text.encode()
    i, j = (int(x) for x in rng.integers(0, len(lines), 2))
    if kind == "line":
        del lines[i]
    elif kind == "swap":
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines = lines[:i]
    return "".join(lines).encode()


def damaged_array(array: np.ndarray, rng: Rng) -> np.ndarray:
    """An array of another shape, type, order or content."""
    kind = rng.choice(["value", "hole", "huge", "short", "long", "axes", "type", "order", "zero",
                       "negative", "shuffled"])  # fmt: skip
    work = np.array(array)
    if kind in ("value", "hole", "huge") and work.size:
        where = int(rng.integers(work.size))
        new = {"value": rng.normal(), "hole": np.nan, "huge": 1e300}[str(kind)]
        if work.dtype.kind != "f":
            new = int(rng.integers(-(10**6), 10**6))
        work.flat[where] = new
        return work
    if kind == "short" and work.ndim:
        return work[: int(rng.integers(0, len(work)))] if len(work) else work
    if kind == "long" and work.ndim:
        return np.concatenate([work, work[:1]])
    if kind == "axes":
        return work[None] if rng.integers(2) else work.reshape(-1)
    if kind == "type":
        return work.astype(str(rng.choice(["f4", "i4", "c16", "S8", "?", ">f8", "u1", "M8[s]"])))
    if kind == "order" and work.ndim:
        return np.asfortranarray(work.T) if work.ndim > 1 else work[::-1].copy()
    if kind == "zero":
        return np.zeros_like(work)
    if kind == "negative" and work.dtype.kind in "fi":
        return -work
    if work.ndim and kind != "order":
        return work[rng.permutation(len(work))]
    return work + work
