"""Sparse Gaussian-process regression from label rows of any kind.

With U upper triangular, UᵀU = K_mm, the QR factorisation of the stack [Σ^{-1/2}A; U] gives the
paper's α = [K_mm + AᵀΣ⁻¹A]⁻¹AᵀΣ⁻¹y without squaring the condition number. It is done in whitened
coordinates, where everything after the first step is well conditioned: with B = Σ^{-1/2}AU⁻¹,

- many labels (p >= m): [B; I] = QR, Uα = R⁻¹Q₁ᵀΣ^{-1/2}y (the R of that stack is our RU);
- few labels (p < m): [Bᵀ; I] = QS with the smaller S (p, p), Uα = BᵀS⁻¹S⁻ᵀΣ^{-1/2}y.

Q is never stored: R, Q₁ᵀΣ^{-1/2}y and B are enough to go on, so adding a structure costs what that
structure costs.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget._compiled.lapack import right_solve_in_place
from nugget._compiled.threads import each
from nugget.errors import NuggetError
from nugget.gp._growth import border, grow_cholesky
from nugget.gp._store import RowStore
from nugget.gp.labels import ENERGY, FORCE, Labels
from nugget.gp.linalg import cholesky, right_solve, solve, stacked_qr, update_qr

_ROWS = 256  # label rows that are whitened together


@dataclass(frozen=True)
class SparseRegression:
    """A fitted sparse regression; `add_rows` and `add_inducing` return grown ones."""

    upper: Floats  # U (m, m), UᵀU = K_mm + jitter
    y: Floats
    noise: Floats
    count: Floats
    kind: Ints
    amplitude: float  # θ₀, the diagonal of K_mm
    jitter: float
    _store: RowStore | None  # None: read from a file, which keeps R but not the many rows
    _qr: tuple[Floats, Floats] | None = None  # (R, Q₁ᵀΣ^{-1/2}y), kept where p >= m
    _kept: Floats | None = None  # rows of B other than forces', of a fit whose rows were dropped

    @classmethod
    def fit(cls, k_mm: Floats, labels: Labels, threads: int | None = None) -> "SparseRegression":
        """Fit label rows (p, m) with the kernel matrix of the m inducing points."""
        k_mm = np.asarray(k_mm, float)
        m = k_mm.shape[0]
        if k_mm.shape != (m, m) or labels.rows.shape[1] != m:
            raise NuggetError(
                f"K_mm has shape {k_mm.shape} and label rows {labels.rows.shape}; both need one "
                "column per inducing point."
            )
        upper, jitter = cholesky(k_mm)
        start = cls(
            upper=upper,
            y=np.zeros(0),
            noise=np.zeros(0),
            count=np.zeros(0),
            kind=np.zeros(0, dtype=np.int64),
            amplitude=float(np.max(np.diagonal(k_mm), initial=0.0)),
            jitter=jitter,
            _store=RowStore(np.empty((0, m))),
        )
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
        """Whether the label rows are at hand; predictions do not need them, learning on does."""
        return self._store is not None

    @property
    def _rows(self) -> RowStore:
        if self._store is None:
            raise NuggetError("The label rows are not at hand; make them again (`with_rows`).")
        return self._store

    def some_rows(self, chosen: Bools) -> Floats:
        """Rows of B; those of energies and stress are there even when the others were dropped."""
        if self._store is None and self._kept is not None:
            light = self.kind != FORCE
            if not np.any(chosen & ~light):
                return self._kept[chosen[light]]
        return self.whitened[chosen]

    def smooth_counts(self) -> Floats:
        """UCn (m, 1): what a shift of all atoms' energies does to Uα."""
        counted = (self.count / self.noise)[:, None]
        if self._store is not None or self._kept is None:
            return self.smooth(counted)
        energy = self.kind == ENERGY
        product = self.some_rows(energy).T @ counted[energy]
        return solve(self.r, solve(self.r, product, transposed=True))

    def with_rows(self, labels: Labels) -> "SparseRegression":
        """The same regression with its label rows, which a model file does not keep."""
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
        """(I + BᵀB)⁻¹Bᵀd, i.e. U C Σ^{1/2}d: what labels d (p, q) in units of noise do to Uα."""
        if self.few:
            return self.whitened.T @ solve(self.s, solve(self.s, d, transposed=True))
        return solve(self.r, solve(self.r, self.whitened.T @ d, transposed=True))

    def add_rows(self, labels: Labels) -> "SparseRegression":
        """With further labels, at O(p_new m²)."""
        if labels.rows.shape[1] != self.n_inducing:
            raise NuggetError(
                f"New label rows have {labels.rows.shape[1]} columns for {self.n_inducing} "
                "inducing points."
            )
        at = (self.y.size, self.n_inducing)
        return self._with_rows(labels, self._rows.append(at, whiten(labels, self.upper), None))

    def _with_rows(
        self, labels: Labels, store: RowStore, threads: int | None = None
    ) -> "SparseRegression":
        p = self.y.size
        grown = replace(
            self,
            y=np.concatenate([self.y, labels.y]),
            noise=np.concatenate([self.noise, labels.noise]),
            count=np.concatenate([self.count, labels.count]),
            kind=np.concatenate([self.kind, labels.kind]),
            _store=store,
            _qr=None,
        )
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

    def add_inducing(self, k_new: Floats, a_new: Floats) -> "SparseRegression":
        """With further inducing points, at O((p + m) m) each.

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
        grown = replace(
            self,
            upper=upper,
            jitter=jitter,
            _store=self._rows.append((p, m), None, columns),
            _qr=None,
        )
        if grown.few:
            if "s" in self.__dict__:  # new inducing points are further rows of [Bᵀ; I]
                empty = np.zeros((p, 0))
                grown.__dict__["s"] = update_qr(self.s, empty, columns.T, empty[:0])[0]
            return grown
        # Block Gram–Schmidt of [columns; 0; I] without Q: as Q = [B; I]R⁻¹, R and B are enough.
        # The second round removes what round-off left in the first ("twice is enough").
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

    def state(self) -> dict[str, Floats]:
        """Plain arrays that `from_state` turns back into the same regression, bit for bit.

        Where there are many labels, their rows are left out: they are large.
        """
        kept = {"whitened": np.ascontiguousarray(self.whitened)} if self._qr is None else {}
        if self._qr is not None:  # enough to predict; `with_rows` brings back the rest
            kept = {"r": self._qr[0], "z": self._qr[1]}
        return {
            "upper": self.upper,
            "alpha": self.alpha,
            "y": self.y,
            "noise": self.noise,
            "count": self.count,
            "kind": self.kind.astype(float),
            "amplitude": np.array(self.amplitude),
            "jitter": np.array(self.jitter),
            **kept,
        }

    @classmethod
    def from_state(cls, state: dict[str, Floats]) -> "SparseRegression":
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
        regression.__dict__["alpha"] = np.asarray(
            state["alpha"], float
        )  # its bits, not a new solve
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
        finite = np.isfinite(part.sum(axis=1))  # a quick look; a sum may overflow
        if not np.all(finite):
            for row in np.flatnonzero(~finite):
                if not np.isfinite(part[row]).all():
                    raise NuggetError(
                        f"Label row {start + row} holds NaN or infinity; check its features."
                    )
        right_solve_in_place(part, upper)

    each(piece, range(0, len(labels), _ROWS), threads)
    return target
