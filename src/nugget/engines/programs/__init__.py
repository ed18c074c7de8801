"""One file per program that nugget can call."""
