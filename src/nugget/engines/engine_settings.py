"""Settings of evaluations, and which code they may run.

Each option and its default is defined here only; `nugget init` writes the texts as comments.

Code is run only if the user trusts it. `module:factory` on the command line is trusted. In a
settings file, a run directory, a data set, a model file or a campaign it may come from another
person, and needs `--trust` or an entry in the user's list of trusted names. The same holds for
options of engines that are not plain (see `nugget.engines.options`), and for settings of a Dask
cluster that may start programs. Built-in engines and those of installed packages need no trust.
This module decides for all these files. The list is `~/.config/nugget/trusted.toml` (or
`$XDG_CONFIG_HOME/nugget/trusted.toml`, or the file in `$NUGGET_TRUSTED`):

    code = ["my_engine:make", "vasp:command=mpirun -n 8 vasp_std"]
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from nugget.engines.engine import engines, get_engine
from nugget.engines.options import Use, matching, use_of_undeclared
from nugget.errors import NuggetError
from nugget.settings import Section


class EngineConfig(Section):
    """The expensive calculator; `nugget engines` lists them."""

    name: str = Field("gfn1-xtb", description="a name from `nugget engines`, or module:factory")
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="passed to the engine; text that begins with ./ or ../ is a path relative to "
        "the directory in which nugget was started",
    )
    charge: int = Field(0, description="total charge, e")
    spin: int | None = Field(
        None, ge=1, description="multiplicity 2S + 1; none: default of the engine"
    )
    magmoms: dict[str, float] = Field(
        default_factory=dict, description="initial magnetic moments by element, μB per atom"
    )
    vacuum: float | None = Field(
        None, gt=0, description="Å around structures without a cell; none: if the engine needs it"
    )
    scratch: str | None = Field(
        None, description="directory for the engine's files; none: scratch/ in the run directory"
    )
    keep_scratch: bool = Field(False, description="also keep the files of successful calculations")
    stress: bool = Field(
        False, description="calculate the stress of periodic structures, if the engine can"
    )
    time_limit: float = Field(600.0, gt=0, description="seconds before a calculation is killed")
    retries: int = Field(
        1, ge=0, description="further attempts after the process of a calculation died"
    )
    relax_steps: int = Field(0, ge=0, description="relaxation steps with the engine itself")
    verify: bool = Field(
        True,
        description="check forces and repeatability at the start, a known structure at a resume, "
        "and the lowest structure at the end; at most three evaluations, and single atoms",
    )
    max_failures: int = Field(10, ge=1, description="stop after this many failures in a row")


MAX_LOSSES = 3  # a job that loses more workers than this is abandoned
HEARTBEAT = 120.0  # seconds without a heartbeat before a worker is replaced


class ExecutionConfig(Section):
    """Where the searches of a campaign run, or with dask and jobs the evaluations of one search."""

    kind: Literal["in-process", "processes", "dask", "jobs"] = Field(
        "processes",
        description="sequential, processes on this machine, Dask, or one SLURM job for each",
    )
    workers: int | None = Field(None, ge=1, description="searches at a time; none: one per core")
    address: str | None = Field(
        None, description="dask: address of a running scheduler, as tcp://node1:8786"
    )
    cluster: Literal["local", "slurm", "pbs"] = Field(
        "local", description="dask: otherwise start workers on this machine or as jobs of a queue"
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="dask: passed to LocalCluster, SLURMCluster or PBSCluster (queue, walltime, …)"
        "; jobs: ranks, memory, walltime, queue, prologue, … of a job",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ExecutionConfig:
        if self.kind != "dask" and (self.address or self.cluster != "local"):
            raise ValueError('address and cluster belong to kind = "dask"')
        if self.options and not self.is_cluster:
            raise ValueError('options belong to kind = "dask" or "jobs"')
        if self.address is not None and (self.options or self.cluster != "local"):
            raise ValueError("give the address of a scheduler or a cluster to start, not both")
        return self

    @property
    def is_cluster(self) -> bool:
        """Whether evaluations of a search leave this machine's own processes."""
        return self.kind in ("dask", "jobs")

    @property
    def is_elsewhere(self) -> bool:
        """Whether evaluations run on machines with programs and variables of their own."""
        return self.kind == "jobs" or self.address is not None or self.cluster != "local"

    @property
    def count(self) -> int:
        """Number of workers on this machine."""
        if self.workers is not None:
            return self.workers
        # A batch system may grant fewer cores than the machine has; macOS has no such function.
        granted = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
        return len(granted(0))


# Options of Dask clusters and jobs that are plain numbers and names; all others may start programs.
# They become part of a shell script, so that text must be one word.
_HARMLESS = frozenset(
    {
        "account", "cores", "cores_per_rank", "death_timeout", "interface", "job_name", "memory",
        "n_workers", "name", "nodes", "poll", "processes", "project", "queue", "ranks",
        "resource_spec", "resubmissions", "threads_per_worker", "walltime",
    }
)  # fmt: skip

_is_word = matching(r"[\w.,:=@+][\w.,:=@+-]*|\d+ ?\w+")


def code_in(engine: EngineConfig, execution: ExecutionConfig | None = None) -> list[str]:
    """Code that these settings run besides built-in engines, one line each."""
    return engine_code(engine.name, engine.options) + execution_code(execution or ExecutionConfig())


def engine_code(name: str, options: dict[str, Any]) -> list[str]:
    """The code that an engine with these options runs, and the files that they write."""
    own = []
    if name in engines():
        use_of = get_engine(name).use_of
    elif ":" in name:
        own, use_of = [name], use_of_undeclared
    else:
        return []  # an unknown name runs nothing
    asked = [(o, value) for o, value in options.items() if use_of(o, value) is not Use.PLAIN]
    return own + [f"{name}:{option}={value}" for option, value in asked]


def execution_code(execution: ExecutionConfig) -> list[str]:
    """The code that an executor with these settings runs."""
    code = [
        f"{execution.kind}:{option}={value}"
        for option, value in execution.options.items()
        if option not in _HARMLESS or not (isinstance(value, int | float) or _is_word(value))
    ]
    if execution.address is not None:
        code.append(f"dask:address={execution.address}")  # its scheduler decides what runs
    return code


def require_trust(code: Iterable[str], origin: str, trust: bool = False) -> None:
    """Raise NuggetError that lists the code, unless the user trusts it.

    code : from `code_in`, or any `module:factory`; origin : the file that names it.
    """
    names = list(code)
    if trust or not names:
        return
    trusted = trusted_code()
    if untrusted := [name for name in names if name not in trusted]:
        raise NuggetError(
            f"{origin} would run {' and '.join(repr(name) for name in untrusted)}. If you trust "
            f"it, say --trust, or add it to the list `code` in {trusted_file()}."
        )


def trusted_file() -> Path:
    """The file with the user's list of trusted names."""
    if named := os.environ.get("NUGGET_TRUSTED"):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "nugget" / "trusted.toml"


def trusted_code() -> frozenset[str]:
    """The names in the user's list; empty if there is no list."""
    path = trusted_file()
    try:
        listed = tomllib.loads(path.read_text(encoding="utf-8")).get("code", [])
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NuggetError(f"{path} cannot be read: {error}.") from None
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise NuggetError(f'{path}: code must be a list of names, as code = ["my_engine:make"].')
    return frozenset(listed)
