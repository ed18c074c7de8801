"""The directory of a run: settings and start, files that grow, and what is left at the end."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import ase.io
from ase import Atoms
from ase.io.jsonio import decode, encode

from nugget.errors import NuggetError
from nugget.evaluation.config import Section
from nugget.evaluation.outcome import atoms_dict, atoms_from
from nugget.onthefly.model import OnlineModel
from nugget.structures.io import write_images
from nugget.structures.sealed import read_sealed, write_sealed

RUN, LABELLED = "run.json", "labelled.extxyz"


def create(directory: Path, kind: str, config: Section, *structures: Atoms) -> None:
    """Make a directory for a new run; one that holds a run already is refused."""
    if (directory / RUN).exists():
        raise NuggetError(
            f"{directory} holds a run already: --resume {directory}, or choose another."
        )
    directory.mkdir(parents=True, exist_ok=True)
    kept = [encode(atoms_dict(_bare(atoms))) for atoms in structures]
    settings = json.loads(config.model_dump_json())
    write_sealed(directory / RUN, {"kind": kind, "settings": settings, "structures": kept})


def _bare(atoms: Atoms) -> Atoms:
    copy = atoms.copy()
    copy.info = {}
    return copy


def read_run(directory: Path, kind: str) -> tuple[dict[str, Any], list[Atoms]]:
    """Settings and structures that a run was created with."""
    try:
        data = read_sealed(directory / RUN, "start the run anew")
    except FileNotFoundError:
        raise NuggetError(f"{directory} holds no run: there is no {RUN}.") from None
    if data.get("kind") != kind:
        raise NuggetError(f"{directory} holds a run of `nugget {data.get('kind')}`, not {kind}.")
    return data["settings"], [atoms_from(decode(text)) for text in data["structures"]]


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """The last state, or None if the run has not come that far."""
    try:
        return read_sealed(path, "start the run anew")
    except FileNotFoundError:
        return None


class Appended:
    """A file that grows; on resuming it is cut back to what the last state knows of."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        path.touch()
        if path.stat().st_size < offset:
            raise NuggetError(f"{path} is shorter than it was; start the run anew.")
        os.truncate(path, offset)

    def write(self, text: str) -> None:
        with open(self._path, "ab") as file:
            file.write(text.encode())

    def write_frame(self, atoms: Atoms) -> None:
        """One frame as extxyz, with what is in `info` and `arrays`."""
        text = io.StringIO()
        ase.io.write(text, atoms, format="extxyz")
        self.write(text.getvalue())

    def sync(self) -> int:
        """Bring everything to the disk; the length."""
        with open(self._path, "rb+") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size


def finish(directory: Path, name: str, model: OnlineModel, factor: float = 1.0) -> None:
    """Write the model, its σ multiplied by a factor, and the structures that it has learned."""
    if model.potential is not None:
        saved = model.potential.copy()
        fitted: Any = saved.fitted.uncertainty
        if factor != 1.0 and hasattr(fitted, "with_scale"):
            saved.set_uncertainty(fitted.with_scale(factor * fitted.scale))
        saved.save(directory / name)
    if model.images:
        write_images(directory / LABELLED, model.images)
