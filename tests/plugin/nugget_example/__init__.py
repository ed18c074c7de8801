"""A package that adds one part of every kind to nugget, through public names and entry points."""
