"""One file per potential: versioned, free of pickle, written atomically."""

from nugget.modelfile.file import REGISTRY, VERSION, load, read_header, save

__all__ = ["REGISTRY", "VERSION", "load", "read_header", "save"]
