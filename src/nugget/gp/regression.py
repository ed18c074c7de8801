"""Sparse Gaussian-process regression from label rows of any kind.

With UᵀU = K_mm and U upper triangular, the QR factorisation of the stack [Σ^{-1/2}A; U] gives the
paper's α = [K_mm + AᵀΣ⁻¹A]⁻¹AᵀΣ⁻¹y without squaring the condition number. We work in whitened
coordinates, in which everything after the first step is well conditioned. With B = Σ^{-1/2}AU⁻¹,

- many labels (p >= m): [B; I] = QR, Uα = R⁻¹Q₁ᵀΣ^{-1/2}y (the R of that stack is our RU);
- few labels (p < m): [Bᵀ; I] = QS with the smaller S (p, p), Uα = BᵀS⁻¹S⁻ᵀΣ^{-1/2}y.

Q is never stored. R, Q₁ᵀΣ^{-1/2}y and B suffice to add labels or inducing points, at a cost that is
proportional to the number of new rows. `fit_streamed` fits label rows that exceed the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import lapack

from nugget.errors import NuggetError
from nugget.gp.labels import ENERGY, FORCE, Labels
from nugget.gp.linalg import LADDER, cholesky, merged_qr, right_solve, solve, stacked_qr, update_qr
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.numerics.lapack import right_solve_in_place
from nugget.numerics.threads import each


class RowStore:
    """Rows (p, m) in a buffer with spare rows and columns, shared by a chain of regressions.

    Appending writes into the spare part of the buffer if it is still unused. A second regression
    that grows from the same parent gets a copy.
    """

    def __init__(self, rows: Floats, room: tuple[int, int] | None = None) -> None:
        p, m = rows.shape if room is None else room
        # The operating system allocates spare rows only when they are written to.
        self.buffer = np.empty((p + p // 4 + 64, m + m // 8 + 32))
        self.used = (rows.shape[0], rows.shape[1])
        self.buffer[: self.used[0], : self.used[1]] = rows

    @classmethod
    def blank(cls, p: int, m: int) -> RowStore:
        """Uninitialised rows (p, m); the caller fills `rows`."""
        store = cls(np.empty((0, m)), (p, m))
        store.used = (p, m)
        return store

    @property
    def rows(self) -> Floats:
        """The rows (p, m) in use."""
        return self.buffer[: self.used[0], : self.used[1]]

    def append(self, at: tuple[int, int], rows: Floats | None, columns: Floats | None) -> RowStore:
        """The first `at` = (p, m) entries with further rows, columns or both."""
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


def border(s: Floats, b: Floats, new: Floats) -> Floats | None:
    """S with the rows and columns of further labels; None if only a new QR would be accurate."""
    p, k = len(b), len(new)
    side = solve(s, b @ new.T, transposed=True)
    corner, info = lapack.dpotrf(np.eye(k) + new @ new.T - side.T @ side, lower=0, clean=1)
    # The corner is at least I; the round-off of the subtraction must stay far below that.
    if info or np.finfo(float).eps * float(np.sum(side * side)) > 1e-8:
        return None
    out = np.zeros((p + k, p + k), order="F")
    out[:p, :p], out[:p, p:], out[p:, p:] = s, side, corner
    return out


def grow_cholesky(
    upper: Floats, k_new: Floats, jitter: float, amplitude: float
) -> tuple[Floats, float]:
    """U with further columns; their diagonal gets the old jitter, or more if necessary."""
    m, k = upper.shape[0], k_new.shape[1]
    u12 = solve(upper, k_new[:m], transposed=True)
    rest = k_new[m:] - u12.T @ u12
    for relative in LADDER:
        trial_jitter = max(jitter, relative * amplitude)
        trial = np.array(0.5 * (rest + rest.T), order="F")
        trial.flat[:: k + 1] += trial_jitter
        u22, info = lapack.dpotrf(trial, lower=0, clean=1)
        floor = max(1e-13 * amplitude, 0.5 * trial_jitter)
        if info == 0 and np.min(np.diagonal(u22)) ** 2 >= floor:
            out = np.empty((m + k, m + k), order="F")
            out[:m, :m], out[:m, m:], out[m:, m:] = upper, u12, u22
            out[m:, :m] = 0.0
            return out, trial_jitter
    raise NuggetError("The new inducing points make the kernel matrix indefinite; refit instead.")


_ROWS = 256  # label rows that are whitened together


@dataclass(frozen=True)
class SparseRegression:
    """A fitted sparse regression; `add_rows` and `add_inducing` return grown ones."""

    upper: Floats  # U (m, m), UᵀU = K_mm + jitter
    y: Floats
    noise: Floats
    count: Floats
    kind: Ints
    amplitude: float  # θ₀, the largest diagonal element of K_mm
    jitter: float
    _store: RowStore | None  # None after loading from a file, which holds R but no label rows
    _qr: tuple[Floats, Floats] | None = None  # (R, Q₁ᵀΣ^{-1/2}y), kept where p >= m
    _kept: Floats | None = None  # energy and stress rows of B, if a streamed fit dropped the rest

    @classmethod
    def fit(cls, k_mm: Floats, labels: Labels, threads: int | None = None) -> SparseRegression:
        """Fit label rows (p, m) with the kernel matrix of the m inducing points."""
        k_mm = np.asarray(k_mm, float)
        m = k_mm.shape[0]
        if k_mm.shape != (m, m) or labels.rows.shape[1] != m:
            raise NuggetError(
                f"K_mm has shape {k_mm.shape} and label rows {labels.rows.shape}; both need one "
                "column per inducing point."
            )
        upper, jitter = cholesky(k_mm)
        amplitude, none = float(np.max(np.diagonal(k_mm), initial=0.0)), np.zeros(0)
        kinds = np.zeros(0, dtype=np.int64)
        start = cls(upper, none, none, none, kinds, amplitude, jitter, RowStore(np.empty((0, m))))
        store = RowStore.blank(len(labels), m)
        whiten(labels, upper, threads, store.rows)
        return start._with_rows(labels, store, threads)

    @property
    def n_inducing(self) -> int:
        return int(self.upper.shape[0])

    @property
    def whitened(self) -> Floats:
        """B = Σ^{-1/2}AU⁻¹ (p, m)."""
        return self._rows.buffer[: self.y.size, : self.n_inducing]

    @property
    def has_rows(self) -> bool:
        """Whether the label rows are in memory; predictions do not need them, updates do."""
        return self._store is not None

    @property
    def _rows(self) -> RowStore:
        if self._store is None:
            raise NuggetError("The label rows are not in memory; compute them again (`with_rows`).")
        return self._store

    def some_rows(self, chosen: Bools) -> Floats:
        """Rows of B; those of energies and stresses are available even after a streamed fit."""
        if self._store is None and self._kept is not None:
            light = self.kind != FORCE
            if not np.any(chosen & ~light):
                return self._kept[chosen[light]]
        return self.whitened[chosen]

    def smooth_counts(self) -> Floats:
        """UCn (m, 1), the response of Uα to a common shift of all atomic energies."""
        counted = (self.count / self.noise)[:, None]
        if self._store is not None or self._kept is None:
            return self.smooth(counted)
        energy = self.kind == ENERGY
        product = self.some_rows(energy).T @ counted[energy]
        return solve(self.r, solve(self.r, product, transposed=True))

    def with_rows(self, labels: Labels) -> SparseRegression:
        """The same regression with its label rows, which a model file does not hold."""
        if len(labels) != self.y.size:
            raise NuggetError(f"There are {len(labels)} label rows for {self.y.size} labels.")
        whole = replace(self, _store=RowStore(whiten(labels, self.upper)))
        whole.__dict__["alpha"] = self.alpha
        return whole

    @property
    def few(self) -> bool:
        """True when there are fewer labels than inducing points."""
        return self.y.size < self.n_inducing

    @cached_property
    def qr(self) -> tuple[Floats, Floats]:
        """R (m, m) with RᵀR = I + BᵀB, and Q₁ᵀΣ^{-1/2}y (m,)."""
        return self._qr or self._updated(np.eye(self.n_inducing), np.zeros(self.n_inducing), 0)

    @property
    def r(self) -> Floats:
        return self.qr[0]

    @cached_property
    def s(self) -> Floats:
        """S (p, p) with SᵀS = I + BBᵀ."""
        p = self.y.size
        return update_qr(np.eye(p), np.zeros((p, 0)), self.whitened.T, np.zeros((0, 0)))[0]

    def smooth(self, d: Floats) -> Floats:
        """(I + BᵀB)⁻¹Bᵀd = UCΣ^{1/2}d, the response of Uα to labels d (p, q) in units of noise."""
        if self.few:
            return self.whitened.T @ solve(self.s, solve(self.s, d, transposed=True))
        return solve(self.r, solve(self.r, self.whitened.T @ d, transposed=True))

    def add_rows(self, labels: Labels) -> SparseRegression:
        """The regression with further labels, at a cost of O(p_new m²)."""
        if labels.rows.shape[1] != self.n_inducing:
            raise NuggetError(
                f"New label rows have {labels.rows.shape[1]} columns for {self.n_inducing} "
                "inducing points."
            )
        at = (self.y.size, self.n_inducing)
        return self._with_rows(labels, self._rows.append(at, whiten(labels, self.upper), None))

    def _with_rows(
        self, labels: Labels, store: RowStore, threads: int | None = None
    ) -> SparseRegression:
        p = self.y.size
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(labels, name)])
            for name in ("y", "noise", "count", "kind")
        }
        grown = replace(self, **arrays, _store=store, _qr=None)
        if grown.few and "s" in self.__dict__:
            bordered = border(self.s, grown.whitened[:p], grown.whitened[p:])
            if bordered is not None:
                grown.__dict__["s"] = bordered
        if not grown.few and self._qr is not None:
            grown = replace(grown, _qr=grown._updated(*self._qr, p, threads))
        if grown.few:
            return grown
        m = self.n_inducing
        return replace(grown, _qr=grown._qr or grown._updated(np.eye(m), np.zeros(m), 0, threads))

    def _updated(
        self, r: Floats, z: Floats, first: int, threads: int | None = None
    ) -> tuple[Floats, Floats]:
        """(R, Q₁ᵀΣ^{-1/2}y) after the rows from `first` on."""
        scaled_y = (self.y / self.noise)[first:, None]
        r, out = stacked_qr(r, z[:, None], self.whitened[first:], scaled_y, threads)
        return r, out[:, 0]

    @cached_property
    def alpha(self) -> Floats:
        """The weights of the inducing points (m,)."""
        if self.few:
            beta = self.smooth((self.y / self.noise)[:, None])[:, 0]
        else:
            beta = solve(*self.qr)
        return solve(self.upper, beta)

    def add_inducing(self, k_new: Floats, a_new: Floats) -> SparseRegression:
        """The regression with further inducing points, at a cost of O((p + m) m) each.

        `k_new` (m+k, k) holds the new columns of K_mm, `a_new` (p, k) those of the label rows.
        """
        m, k = self.n_inducing, k_new.shape[1]
        if k_new.shape[0] != m + k or a_new.shape != (self.y.size, k):
            raise NuggetError(
                f"New columns have shapes {k_new.shape} and {a_new.shape}; expected "
                f"{(m + k, k)} and {(self.y.size, k)}."
            )
        if k == 0:
            return self
        p, b = self.y.size, self.whitened
        upper, jitter = grow_cholesky(self.upper, k_new, self.jitter, self.amplitude)
        u12, u22 = upper[:m, m:], np.asfortranarray(upper[m:, m:])
        columns = right_solve(a_new / self.noise[:, None] - b @ u12, u22)
        store = self._rows.append((p, m), None, columns)
        grown = replace(self, upper=upper, jitter=jitter, _store=store, _qr=None)
        if grown.few:
            if "s" in self.__dict__:  # new inducing points add rows to [Bᵀ; I]
                empty = np.zeros((p, 0))
                grown.__dict__["s"] = update_qr(self.s, empty, columns.T, empty[:0])[0]
            return grown
        # Block Gram–Schmidt of [columns; 0; I] without Q: as Q = [B; I]R⁻¹, R and B are enough.
        # The second round removes the round-off of the first ("twice is enough").
        r, z = self.qr
        rest_b, rest_i = columns, np.zeros((m, k))
        r12 = np.zeros((m, k))
        for _ in range(2):
            step = solve(r, b.T @ rest_b + rest_i, transposed=True)
            x = solve(r, step)
            rest_b, rest_i = rest_b - b @ x, rest_i - x
            r12 += step
        q, r22 = np.linalg.qr(np.concatenate([rest_b, rest_i, np.eye(k)]))
        z2 = q[:p].T @ (self.y / self.noise)
        new_r = np.zeros((m + k, m + k), order="F")
        new_r[:m, :m], new_r[:m, m:], new_r[m:, m:] = r, r12, r22
        return replace(grown, _qr=(new_r, np.concatenate([z, z2])))

    def update_state(self) -> dict[str, Floats]:
        """What `state` leaves out and further updates use, so that they keep all bits."""
        kept = {"whitened": np.ascontiguousarray(self.whitened)}
        return {**kept, "s": self.s} if "s" in self.__dict__ else kept

    def with_update_state(self, state: dict[str, Floats]) -> SparseRegression:
        """The inverse of `update_state`."""
        whole = replace(self, _store=RowStore(state["whitened"]))
        whole.__dict__["alpha"] = self.alpha
        if "s" in state:
            whole.__dict__["s"] = np.asfortranarray(state["s"])
        return whole

    def state(self) -> dict[str, Floats]:
        """Plain arrays from which `from_state` restores the same regression, bit for bit.

        If there are more labels than inducing points, R replaces the much larger label rows.
        """
        kept = {"whitened": np.ascontiguousarray(self.whitened)} if self._qr is None else {}
        if self._qr is not None:  # sufficient for predictions; `with_rows` restores the rows
            kept = {"r": self._qr[0], "z": self._qr[1]}
        arrays = {name: getattr(self, name) for name in ("upper", "alpha", "y", "noise", "count")}
        return {
            **arrays,
            "kind": self.kind.astype(float),
            "amplitude": np.array(self.amplitude),
            "jitter": np.array(self.jitter),
            **kept,
        }

    @classmethod
    def from_state(cls, state: dict[str, Floats]) -> SparseRegression:
        names = ("upper", "y", "noise", "count")
        kept = (np.asfortranarray(state["r"]), np.asarray(state["z"])) if "r" in state else None
        regression = cls(
            **{name: np.asfortranarray(state[name], dtype=float) for name in names},
            kind=np.asarray(state["kind"]).astype(np.int64),
            amplitude=float(state["amplitude"]),
            jitter=float(state["jitter"]),
            _store=RowStore(np.asarray(state["whitened"], float)) if "whitened" in state else None,
            _qr=kept,
        )
        # The stored bits, because a new solve could differ in the last one.
        regression.__dict__["alpha"] = np.asarray(state["alpha"], float)
        return regression


def whiten(
    labels: Labels, upper: Floats, threads: int | None = None, out: Floats | None = None
) -> Floats:
    """B = Σ^{-1/2}AU⁻¹ of new labels, written into `out` if it is given."""
    target = np.empty(labels.rows.shape) if out is None else out

    def piece(start: int) -> None:
        rows = slice(start, start + _ROWS)
        part = target[rows]
        np.divide(labels.rows[rows], labels.noise[rows, None], out=part)
        finite = np.isfinite(part.sum(axis=1))  # quick test, repeated below if a sum overflows
        if not np.all(finite):
            for row in np.flatnonzero(~finite):
                if not np.isfinite(part[row]).all():
                    raise NuggetError(
                        f"Label row {start + row} holds NaN or infinity; check its features."
                    )
        right_solve_in_place(part, upper)

    each(piece, range(0, len(labels), _ROWS), threads)
    return target


_LANES = 2  # independent triangular factors of a streamed fit


def fit_streamed(
    k_mm: Floats, pieces: Sequence[Callable[[], Labels]], threads: int | None = None
) -> SparseRegression:
    """A regression with bounded memory; each of `pieces` returns some of the label rows.

    The pieces are computed, used and dropped one after the other. Two triangular factors grow in
    parallel and are merged in the end; the assignment of pieces depends on their number alone, so
    that threads do not change the result. The few rows of energies and stresses are kept for exact
    uncertainties, those of forces are not; an update computes them again.
    """
    upper, jitter = cholesky(np.asarray(k_mm, float))
    m = len(upper)
    bare: list[Labels] = [None] * len(pieces)  # type: ignore[list-item]
    kept: list[Floats] = [np.empty((0, m))] * len(pieces)

    def grow(lane: int) -> tuple[Floats, Floats]:
        r, z = np.eye(m) if lane == 0 else np.zeros((m, m)), np.zeros((m, 1))
        for k in range(lane, len(pieces), _LANES):
            labels = pieces[k]()
            rows = whiten(labels, upper)
            r, z = update_qr(r, z, rows, (labels.y / labels.noise)[:, None])
            kept[k] = rows[labels.kind != FORCE]
            empty = np.empty((len(labels), 0))
            bare[k] = Labels(empty, labels.y, labels.noise, labels.count, labels.kind)
        return r, z

    (r, z), (lower, rest) = each(grow, range(_LANES), threads)
    r, z = merged_qr(r, z, lower, rest)
    labels = Labels.concatenate(bare)
    if len(labels) < m:
        raise NuggetError(f"{len(labels)} labels are too few to stream for {m} inducing points.")
    amplitude = float(np.max(np.diagonal(k_mm), initial=0.0))
    return SparseRegression(
        upper, labels.y, labels.noise, labels.count, labels.kind, amplitude, jitter, None,
        (r, z[:, 0]), np.concatenate(kept),
    )  # fmt: skip
