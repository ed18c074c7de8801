"""A growing matrix that several regressions share."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Floats


class RowStore:
    """Rows (p, m) in a buffer with room to grow both ways.

    Appending writes into the spare room when nobody has written there yet, so that a chain of
    regressions shares one buffer; a second branch from the same parent gets its own copy.
    """

    def __init__(self, rows: Floats, room: tuple[int, int] | None = None) -> None:
        p, m = rows.shape if room is None else room
        # Spare rows cost no memory before they are written to.
        self.buffer = np.empty((p + p // 4 + 64, m + m // 8 + 32))
        self.used = (rows.shape[0], rows.shape[1])
        self.buffer[: self.used[0], : self.used[1]] = rows

    @classmethod
    def blank(cls, p: int, m: int) -> RowStore:
        """Rows (p, m) that are still to be written, into `rows`."""
        store = cls(np.empty((0, m)), (p, m))
        store.used = (p, m)
        return store

    @property
    def rows(self) -> Floats:
        """The rows (p, m) that are in use."""
        return self.buffer[: self.used[0], : self.used[1]]

    def append(self, at: tuple[int, int], rows: Floats | None, columns: Floats | None) -> RowStore:
        p, m = at
        need = (
            p + (0 if rows is None else len(rows)),
            m + (0 if columns is None else columns.shape[1]),
        )
        store = self
        if at != self.used or need[0] > self.buffer.shape[0] or need[1] > self.buffer.shape[1]:
            store = RowStore(self.buffer[:p, :m], need)
        if rows is not None:
            store.buffer[p : need[0], :m] = rows
        if columns is not None:
            store.buffer[:p, m : need[1]] = columns
        store.used = need
        return store
