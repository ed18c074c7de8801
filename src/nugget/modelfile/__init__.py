"""One file per potential: versioned, free of pickle, written atomically."""

from nugget.modelfile.file import VERSION, load, read_header, save

__all__ = ["VERSION", "load", "read_header", "save"]
