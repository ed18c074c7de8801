"""Structure files: `nugget.structures.io` under its public name."""

from nugget.structures.io import (
    PER_ATOM,
    PER_STRUCTURE,
    attach_uncertainties,
    read_images,
    relabelled,
    write_images,
)

__all__ = [
    "PER_ATOM",
    "PER_STRUCTURE",
    "attach_uncertainties",
    "read_images",
    "relabelled",
    "write_images",
]
