"""Atomic environments as vectors, with the road back to positions."""

from __future__ import annotations
