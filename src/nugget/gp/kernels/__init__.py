"""Covariance functions of environments."""

from nugget.gp.kernels.base import Inducing, Kernel, SelfSum
from nugget.gp.kernels.rbf import RBF
from nugget.gp.kernels.rows import KernelRows
from nugget.gp.kernels.stationary import StationaryKernel

__all__ = ["RBF", "Inducing", "Kernel", "KernelRows", "SelfSum", "StationaryKernel"]
