"""Covariance functions of environments."""

from __future__ import annotations

from nugget.gp.kernels.base import Inducing, Kernel, KernelBase, KernelRows, SelfSum
from nugget.gp.kernels.dot_product import DotProduct
from nugget.gp.kernels.rbf import RBF
from nugget.gp.kernels.stationary import StationaryKernel

__all__ = [
    "RBF",
    "DotProduct",
    "Inducing",
    "Kernel",
    "KernelBase",
    "KernelRows",
    "SelfSum",
    "StationaryKernel",
]
