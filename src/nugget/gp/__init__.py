"""Sparse Gaussian processes on feature vectors; knows nothing of atoms."""

# The kernels come first: their loops and those of `_std_loops` import each other.
import nugget.gp.kernels  # noqa: F401
