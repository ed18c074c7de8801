"""Settings of evaluations: which engine, and where the work is done.

Each option is documented once, here; `nugget init` writes these texts as comments.
"""

from __future__ import annotations

import os
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """A table of a settings file: unknown keys and numbers that are not finite are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


class EngineConfig(Section):
    """The expensive calculator; `nugget engines` lists them."""

    name: str = Field("gfn1-xtb", description="a name from `nugget engines`, or module:factory")
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="passed to the engine; text that begins with ./ or ../ is a path from where "
        "nugget was started",
    )
    charge: int = Field(0, description="total charge, e")
    spin: int | None = Field(None, ge=1, description="multiplicity 2S + 1; none: the engine's own")
    magmoms: dict[str, float] = Field(
        default_factory=dict, description="initial magnetic moments by element, μB per atom"
    )
    vacuum: float | None = Field(
        None, gt=0, description="Å around structures without a cell; none: if the engine needs it"
    )
    scratch: str | None = Field(
        None, description="directory for the engine's files; none: scratch/ in the run directory"
    )
    keep_scratch: bool = Field(
        False, description="keep the files of calculations that succeeded, too"
    )
    stress: bool = Field(
        False, description="ask for the stress of periodic structures, if the engine can give it"
    )
    time_limit: float = Field(600.0, gt=0, description="seconds before a calculation is killed")
    retries: int = Field(1, ge=0, description="new attempts after a calculation has died")
    relax_steps: int = Field(0, ge=0, description="relaxation steps with the engine itself")
    max_failures: int = Field(10, ge=1, description="stop after this many failures in a row")


class ExecutionConfig(Section):
    """Where the searches of a campaign run, or with dask the evaluations of one search."""

    kind: Literal["in-process", "processes", "dask"] = Field(
        "processes", description="one after the other, processes on this machine, or Dask"
    )
    workers: int | None = Field(None, ge=1, description="searches at a time; none: one per core")
    max_losses: int = Field(
        3, ge=0, description="a search that has lost more workers than this is given up"
    )
    heartbeat: float = Field(
        120.0, gt=0, description="seconds without a sign of life before a worker is replaced"
    )
    address: str | None = Field(
        None, description="dask: a scheduler that runs already, as tcp://node1:8786"
    )
    cluster: Literal["local", "slurm", "pbs"] = Field(
        "local", description="dask: else start workers on this machine or as jobs of a queue"
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="dask: passed to LocalCluster, SLURMCluster or PBSCluster (queue, walltime, …)",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ExecutionConfig:
        if self.kind != "dask" and (self.address or self.options or self.cluster != "local"):
            raise ValueError('address, cluster and options belong to kind = "dask"')
        if self.address is not None and (self.options or self.cluster != "local"):
            raise ValueError("give the address of a scheduler or a cluster to start, not both")
        return self

    @property
    def count(self) -> int:
        """Workers on this machine."""
        if self.workers is not None:
            return self.workers
        # A batch system may grant fewer cores than the machine has; macOS cannot tell.
        granted = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
        return len(granted(0))
