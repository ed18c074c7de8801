"""Covariance functions of environments."""

from nugget.gp.kernels.rbf import RBF, Inducing, KernelRows, SelfSum

__all__ = ["RBF", "Inducing", "KernelRows", "SelfSum"]
