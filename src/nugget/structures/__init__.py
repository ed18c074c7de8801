"""Structures as flat arrays: batches, neighbours, labels, files."""

from __future__ import annotations
