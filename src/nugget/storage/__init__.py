"""Files that survive crashes: atomic writes, locks, seals and databases."""
