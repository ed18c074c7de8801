"""The compiled floor: Numba and vectors, as this package uses them."""
