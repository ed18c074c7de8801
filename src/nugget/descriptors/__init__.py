"""Atomic environments as vectors, with the road back to positions."""
