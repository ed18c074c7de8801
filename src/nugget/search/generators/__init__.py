"""New candidate structures: one way of making them per file."""
