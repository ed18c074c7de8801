"""A model as a client of i-PI and other programs that use its socket protocol.

ASE's client does the talking. Added here are the wait for a server that is not ready yet, and σ:
it goes to the server as JSON in the `extras` of the protocol, which i-PI writes to a file if its
input asks for `energy_uncertainty` or `outside`.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.socketio import IPIProtocol, SocketClient, SocketClosed

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.potential.calculator import NuggetCalculator

_SENT = ("energy_uncertainty", "outside")

_PAUSE = 0.2  # s between attempts to connect


@dataclass(frozen=True)
class Server:
    """Where the server listens: a Unix socket by its name, or a host and a port."""

    socket: str | None = None
    host: str = "localhost"
    port: int | None = None

    def __post_init__(self) -> None:
        if (self.socket is None) == (self.port is None):
            raise NuggetError("Give the name of a Unix socket, or a port.")

    def __str__(self) -> str:
        return f"socket {self.socket}" if self.socket else f"{self.host}:{self.port}"

    def connect(self, wait: float) -> SocketClient:
        """A client, as soon as the server listens, within `wait` seconds."""
        end = time.monotonic() + wait
        while True:
            try:
                if self.socket is not None:
                    return SocketClient(unixsocket=self.socket)
                return SocketClient(host=self.host, port=self.port)
            except OSError as error:
                if time.monotonic() > end:
                    raise NuggetError(
                        f"No server listens at {self} after {wait:g} s ({error.strerror or error})."
                    ) from None
                time.sleep(_PAUSE)


class _Protocol(IPIProtocol):
    """ASE's protocol, which also sends the uncertainties of the last evaluation."""

    def __init__(self, socket: Any, calculator: NuggetCalculator) -> None:
        super().__init__(socket)
        self._calculator = calculator

    def sendforce(
        self, energy: float, forces: Floats, virial: Floats, morebytes: object = None
    ) -> None:
        results = self._calculator.results
        extras = json.dumps({name: float(results[name]) for name in _SENT if name in results})
        super().sendforce(energy, forces, virial, np.frombuffer(extras.encode(), dtype=np.byte))


def serve(atoms: Atoms, calculator: NuggetCalculator, server: Server, wait: float = 60.0) -> int:
    """Evaluate what the server asks for until it ends; the number of evaluations.

    `atoms` have the elements and the periodicity of the server's structure, in its order.
    Periodic cells with a volume get a virial.
    """
    client = server.connect(wait)
    client.protocol = _Protocol(client.protocol.socket, calculator)
    atoms.calc = calculator
    first = calculator.evaluations
    use_stress = bool(atoms.pbc.any()) and atoms.cell.rank == 3
    try:
        for _ in client.irun(atoms, use_stress=use_stress):
            pass
    except (SocketClosed, BrokenPipeError, ConnectionResetError):
        pass  # a server that ends while it waits for a force
    return calculator.evaluations - first
