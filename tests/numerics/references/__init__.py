"""Compiled loops in NumPy, as short as the equations: what each loop has to compute.

A reference takes the arguments of its compiled function and returns the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nugget.descriptors import soap_loops
from nugget.gp import loops
from nugget.gp.kernels import rbf_loops
from nugget.potential import design
from nugget.potential.mean_functions import pair_terms
from nugget.structures import neighbour_loops
from references import atoms, rbf, soap

REFERENCES: dict[Any, Callable[..., Any]] = {
    soap_loops.forward: soap.forward,
    soap_loops.backward: soap.backward,
    soap_loops.coincident: soap.coincident,
    soap_loops.jacobian: soap.jacobian,
    rbf_loops.exponentials: rbf.exponentials,
    rbf_loops.exponentials_symmetric: rbf.exponentials_symmetric,
    rbf_loops.scaled: rbf.scaled,
    rbf_loops.kernel_rows: rbf.kernel_rows,
    rbf_loops.kernel_rows_vjp: rbf.kernel_rows_vjp,
    rbf_loops.group_rows: rbf.group_rows,
    rbf_loops.group_rows_vjp: rbf.group_rows_vjp,
    rbf_loops.self_sums: rbf.self_sums,
    rbf_loops.self_sums_vjp: rbf.self_sums_vjp,
    rbf_loops.fused_value_and_grad: rbf.value_and_grad,
    loops.std_and_weights: rbf.std_and_weights,
    neighbour_loops.is_sound: atoms.is_sound,
    neighbour_loops.small_pairs: atoms.small_pairs,
    design.scatter: atoms.scatter,
    pair_terms.pair_sum: atoms.pair_sum,
}
