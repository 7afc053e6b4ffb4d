"""The pool: it owns the parameter sets and the map task -> set. Growth is only a change of that map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs
import torch
from torch import Tensor, nn

__all__ = ["BESIDE", "Pool", "Routing"]

BESIDE = -3
"""The id of the first module that answers beside the live sets; the second has the next lower one."""


@attrs.frozen(kw_only=True, eq=False)
class Routing:
    """Which sets a forward may use, and which of them each sample gets.

    Attributes:
        sets: Live sets, in the order of their ids: all of them, but in an evaluation only those that a sample
            of the batch gets, unless the baseline's features depend on all (``feature_scope = "pool"``).
        chosen: Position in ``sets``: one for the whole batch (training: the set is forced), one per sample
            (``[B]`` int64), or None where the baseline makes no hard choice.
    """

    sets: tuple[nn.Module, ...]
    chosen: int | Tensor | None = None

    def select(self, read: Callable[[nn.Module], Tensor]) -> Tensor:
        """Return ``read(set)`` of the chosen set, with a leading batch axis where samples differ.

        Args:
            read: Takes the wanted tensor, of one shape for all sets, out of a set.

        Returns:
            The tensor itself where one set serves the whole batch, else ``[B, ...]``.

        Raises:
            ValueError: Nothing was chosen.
        """
        if self.chosen is None:
            raise ValueError("expected a routing with a chosen set, but got one without")
        if isinstance(self.chosen, int):
            return read(self.sets[self.chosen])
        return torch.stack([read(item) for item in self.sets])[self.chosen]

    def to(self, device: torch.device) -> Routing:
        """Return the routing with its choice on a device, where it lies on one."""
        if not isinstance(self.chosen, Tensor):
            return self
        return attrs.evolve(self, chosen=self.chosen.to(device, non_blocking=True))

    def only(self) -> nn.Module:
        """Return the one set of a routing that forces it on the whole batch.

        Raises:
            ValueError: The routing does not force one set.
        """
        if not isinstance(self.chosen, int):
            raise ValueError(f"expected a routing that forces one set, but got {self.chosen!r}")
        return self.sets[self.chosen]


class Pool:
    """The live parameter sets of a run and the map task -> set.

    Every task of ``task_to_set`` names a live set, sets never outnumber tasks, and ids are never reused.
    """

    def __init__(self) -> None:
        self._sets: dict[int, nn.Module] = {}
        self._versions: dict[int, int] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self.task_to_set: list[int] = []

    def __len__(self) -> int:
        return len(self._sets)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the live sets, ascending."""
        return tuple(self._sets)

    @property
    def sets(self) -> tuple[nn.Module, ...]:
        """The live sets in the order of their ids."""
        return tuple(self._sets.values())

    def __getitem__(self, set_id: int) -> nn.Module:
        return self._sets[set_id]

    @property
    def size(self) -> int:
        """Number of values of all sets' parameters; each set is counted once per version."""
        for set_id, module in self._sets.items():
            version = self._versions[set_id]
            if self._sizes.get(set_id, (-1, 0))[0] != version:
                self._sizes[set_id] = version, sum(one.numel() for one in module.parameters())
        return sum(self._sizes[set_id][1] for set_id in self._sets)

    def grow(self, parameters: nn.Module) -> int:
        """Add a set for the next task and return its id."""
        set_id = len(self._sets)
        self._sets[set_id] = parameters
        self._versions[set_id] = 0
        self.task_to_set.append(set_id)
        return set_id

    def reuse(self, set_id: int) -> int:
        """Give the next task an existing set.

        Raises:
            KeyError: No such set is live.
        """
        if set_id not in self._sets:
            raise KeyError(f"no set {set_id!r} in the pool; it has {list(self._sets)}")
        self.task_to_set.append(set_id)
        return set_id

    def tasks_of(self, set_id: int) -> tuple[int, ...]:
        """Return the tasks that train this set, ascending."""
        return tuple(task for task, owner in enumerate(self.task_to_set) if owner == set_id)

    def sets_of(self, tasks: Tensor) -> Tensor:
        """Map task ids ``[B]`` to set ids ``[B]``."""
        table = torch.as_tensor(self.task_to_set, dtype=torch.long, device=tasks.device)
        return table[tasks]

    def version(self, set_id: int) -> int:
        """Return a number that changes whenever the set's parameters have changed."""
        return self._versions[set_id]

    def touch(self, set_id: int) -> None:
        """Say that the set's parameters have changed, so that features cached from it are stale."""
        self._versions[set_id] += 1

    def force(self, set_id: int) -> Routing:
        """Return the routing that gives the whole batch one set.

        Raises:
            ValueError: The pool is empty, or no such set is live.
        """
        self._require_sets()
        if set_id not in self._sets:
            raise ValueError(f"expected one of the live sets {list(self._sets)} but got {set_id!r}")
        return Routing(sets=self.sets, chosen=self.ids.index(set_id))

    def route(
        self, set_ids: Tensor | None, *, alone: bool = False, beside: Sequence[nn.Module] = ()
    ) -> Routing:
        """Return the routing that gives each sample its set ``[B]``; None for no hard choice.

        Args:
            set_ids: Ids of live sets.
            alone: Whether sets that no sample gets are left out, for features that depend on the chosen one;
                waits for the device that the ids lie on.
            beside: Modules like sets that have ids too, from ``BESIDE`` downwards.

        Raises:
            ValueError: The pool is empty.
        """
        self._require_sets()
        if set_ids is None or not alone:
            return Routing(sets=self.sets, chosen=set_ids)
        ids, places = torch.unique(set_ids, return_inverse=True)
        sets = (self._sets[one] if one >= 0 else beside[BESIDE - one] for one in ids.tolist())
        return Routing(sets=tuple(sets), chosen=places)

    def _require_sets(self) -> None:
        if not self._sets:
            raise ValueError(
                "expected a pool with a set but got an empty one; learn a task (or call grow) first"
            )

    def state_dict(self, ids: Iterable[int] | None = None) -> dict[str, Tensor]:
        """Return the tensors of some sets, or of all, as ``"<set>.<name>"``."""
        return {
            f"{set_id}.{name}": value
            for set_id in (self._sets if ids is None else ids)
            for name, value in self._sets[set_id].state_dict().items()
        }

    def restore(
        self, task_to_set: Sequence[int], state: dict[str, Tensor], new_set: Callable[[], nn.Module]
    ) -> None:
        """Rebuild the pool from a checkpoint.

        Args:
            task_to_set: The map to restore.
            state: What :meth:`state_dict` returned.
            new_set: Makes an empty set of the right shape.
        """
        self.task_to_set = list(task_to_set)
        self._sets, self._versions, self._sizes = {}, {}, {}
        for set_id in sorted(set(task_to_set)):
            module = new_set()
            prefix = f"{set_id}."
            module.load_state_dict(
                {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            )
            self._sets[set_id] = module
            self._versions[set_id] = 0
