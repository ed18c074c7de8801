"""Structures as flat arrays: batches, neighbours, labels, files."""
