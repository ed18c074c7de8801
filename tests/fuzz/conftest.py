"""Fuzzing: seeded damage to every kind of file that nugget reads."""
