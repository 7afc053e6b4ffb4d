"""Where a process stands among those that work on one run together, as torchrun tells it or lw2g itself."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment

__all__ = ["Place"]

_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables of torchrun, which those that lw2g starts itself are told as well."""


class Place(ClusterEnvironment):
    """A process among several, for Lightning Fabric.

    Args:
        rank: Its number among all, from 0.
        size: How many there are.
        local_rank: Its number among those of its host.
        local_size: How many its host has; all hosts have as many.
        address: Where the first process listens.
        port: On which port.
    """

    def __init__(
        self, rank: int, size: int, local_rank: int, local_size: int, address: str, port: int
    ) -> None:
        self.rank, self.size, self.local_size = rank, size, local_size
        self._local_rank, self._address, self._port = local_rank, address, port

    @classmethod
    def told(cls, variables: Mapping[str, str] = os.environ) -> Place | None:
        """Return what the environment says; None where it speaks of one process or of none."""
        if not all(variables.get(name) for name in _NAMES) or int(variables["WORLD_SIZE"]) < 2:
            return None
        rank, size, local_rank, local_size = (int(variables[name]) for name in _NAMES[:4])
        address, port = (variables[name] for name in _NAMES[4:])
        return cls(rank, size, local_rank, local_size, address, int(port))

    @classmethod
    def first_of(cls, size: int, port: int) -> Place:
        """Return the place of the first of so many processes on this host, which meet at a port."""
        return cls(0, size, 0, size, "127.0.0.1", port)

    def told_to(self, rank: int) -> dict[str, str]:
        """Return the variables that tell another process of this host its place."""
        values = (rank, self.size, rank, self.local_size, self._address, self._port)
        return {name: str(value) for name, value in zip(_NAMES, values, strict=True)}

    @property
    def num_nodes(self) -> int:
        """How many hosts there are."""
        return self.size // self.local_size

    # -- what Lightning Fabric asks for ------------------------------------------------------------------

    @property
    def creates_processes_externally(self) -> bool:
        """Whether the processes run already, as they do."""
        return True

    @property
    def main_address(self) -> str:
        """Where the first process listens."""
        return self._address

    @property
    def main_port(self) -> int:
        """On which port."""
        return self._port

    @staticmethod
    def detect() -> bool:
        """Whether the environment speaks of several processes."""
        return Place.told() is not None

    def world_size(self) -> int:
        """How many processes there are."""
        return self.size

    def set_world_size(self, size: int) -> None:
        """Leave it as it is."""

    def global_rank(self) -> int:
        """The process's number among all."""
        return self.rank

    def set_global_rank(self, rank: int) -> None:
        """Leave it as it is."""

    def local_rank(self) -> int:
        """The process's number among those of its host."""
        return self._local_rank

    def node_rank(self) -> int:
        """The number of its host."""
        return self.rank // self.local_size
