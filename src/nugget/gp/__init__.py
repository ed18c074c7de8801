"""Sparse Gaussian processes on feature vectors; knows nothing of atoms."""
