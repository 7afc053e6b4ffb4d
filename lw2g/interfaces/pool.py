"""The pool: it owns the parameter sets and the map task -> set, which is all that growth changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import torch
from torch import Tensor, nn

__all__ = ["BESIDE", "UNCHOSEN", "Pool", "Routing"]

UNCHOSEN = -1
"""Stands for a set's id if no set is chosen: the features are those of the sets as they are."""

BESIDE = -3
"""The id of the first module of ``Baseline.beside``; the next one has the next lower id."""


@attrs.frozen(kw_only=True, eq=False)
class Routing:
    """The sets that a forward may use, and the one that each sample gets.

    Attributes:
        sets: The live sets in the order of their ids. An evaluation leaves out sets that no sample of the
            batch gets, unless the baseline's features depend on all of them.
        chosen: Position in ``sets``: one for the whole batch (training forces the task's set), one per sample
            (``[B]`` int64), or None if the baseline makes no hard choice.
    """

    sets: tuple[nn.Module, ...]
    chosen: int | Tensor | None = None

    def select(self, read: Callable[[nn.Module], Tensor]) -> Tensor:
        """Return a tensor of the chosen set, with a leading batch axis if each sample has its own.

        Args:
            read: Returns the tensor of a set; it has one shape for all sets.

        Returns:
            The tensor itself if one set serves the whole batch, else ``[B, ...]``.

        Raises:
            ValueError: No set is chosen.
        """
        if self.chosen is None:
            raise ValueError("expected a routing with a chosen set, but got one without")
        if isinstance(self.chosen, int):
            return read(self.sets[self.chosen])
        # stacked, then indexed: one gather for the batch, and its gradient reaches every chosen set
        return torch.stack([read(item) for item in self.sets])[self.chosen]

    def to(self, device: torch.device) -> Routing:
        """Return the routing with a choice per sample moved to a device."""
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

    Every entry of ``task_to_set`` is the id of a live set, every set has a task, and ids are never reused.
    As of a mapping, ``pool[id]`` is a set, ``len(pool)`` their number, and iterating gives their ids.
    """

    def __init__(self) -> None:
        self._sets: dict[int, nn.Module] = {}
        self._versions: dict[int, int] = {}
        self._sizes: dict[int, tuple[int, int]] = {}  # version of a set, and its values then
        self.task_to_set: list[int] = []

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the live sets, ascending."""
        return tuple(self._sets)

    @property
    def sets(self) -> tuple[nn.Module, ...]:
        """The live sets in the order of their ids."""
        return tuple(self._sets.values())

    @property
    def newest(self) -> nn.Module | None:
        """The set that the last task trained; None before the first task."""
        return self._sets[self.task_to_set[-1]] if self.task_to_set else None

    def __getitem__(self, set_id: int) -> nn.Module:
        return self._sets[set_id]

    @property
    def size(self) -> int:
        """Total number of parameter values in all sets; counted once per version of a set."""
        total = 0
        for set_id, module in self._sets.items():
            version = self._versions[set_id]
            counted, values = self._sizes.get(set_id, (None, 0))
            if counted != version:
                values = sum(parameter.numel() for parameter in module.parameters())
                self._sizes[set_id] = (version, values)
            total += values
        return total

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
        """Return the tasks of a set, ascending."""
        return tuple(task for task, owner in enumerate(self.task_to_set) if owner == set_id)

    def sets_of(self, tasks: Tensor) -> Tensor:
        """Map task ids ``[B]`` to set ids ``[B]``."""
        table = torch.as_tensor(self.task_to_set, dtype=torch.long, device=tasks.device)
        return table[tasks]

    def version(self, set_id: int) -> int:
        """Return a number that changes whenever the set's parameters have changed."""
        return self._versions[set_id]

    def touch(self, set_id: int) -> None:
        """Record that the set's parameters have changed: features cached under it are stale."""
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
        """Return the routing that gives each sample its set.

        Args:
            set_ids: The id of each sample's set, ``[B]``; None for no hard choice.
            alone: Whether to leave out sets that no sample gets, for features that depend on the chosen set
                alone; waits for the device of the ids.
            beside: Those of ``Baseline.beside``, with the ids from ``BESIDE`` downwards.

        Raises:
            ValueError: The pool is empty.
        """
        self._require_sets()
        if set_ids is None or not alone:
            return Routing(sets=self.sets, chosen=set_ids)
        ids, places = torch.unique(set_ids, return_inverse=True)
        sets: list[nn.Module] = []
        for set_id in ids.tolist():
            # ids of modules that the pool does not own count downwards
            sets.append(self._sets[set_id] if set_id >= 0 else beside[BESIDE - set_id])
        return Routing(sets=tuple(sets), chosen=places)

    def _require_sets(self) -> None:
        if not self._sets:
            raise ValueError(
                "expected a pool with a set but got an empty one; learn a task (or call grow) first"
            )

    def state_dict(self, ids: Iterable[int] | None = None) -> dict[str, Tensor]:
        """Return the tensors of the sets ``ids`` (all by default) as ``"<set>.<name>"``."""
        state = {}
        for set_id in self._sets if ids is None else ids:
            for name, value in self._sets[set_id].state_dict().items():
                state[f"{set_id}.{name}"] = value
        return state

    def restore(
        self, task_to_set: Sequence[int], state: dict[str, Tensor], new_set: Callable[[], nn.Module]
    ) -> None:
        """Rebuild the pool from a checkpoint.

        Args:
            task_to_set: The map to restore.
            state: What :meth:`state_dict` returned.
            new_set: Returns a new set, whose values the state replaces.
        """
        before = self._sets
        versions = self._versions
        self.task_to_set = list(task_to_set)
        self._sets = {}
        self._versions = {}
        self._sizes = {}
        for set_id in sorted(set(task_to_set)):
            module = new_set()
            prefix = f"{set_id}."
            state_of_set = {
                name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
            }
            module.load_state_dict(state_of_set)
            self._sets[set_id] = module
            version = versions.get(set_id, 0)
            moved = set_id in before and not _alike(before[set_id], module)
            # features may be cached under the set as it was
            self._versions[set_id] = version + 1 if moved else version


def _alike(one: nn.Module, other: nn.Module) -> bool:
    """Return whether two modules have the same tensors."""
    tensors = one.state_dict()
    other_tensors = other.state_dict()
    return tensors.keys() == other_tensors.keys() and all(
        torch.equal(tensors[name], other_tensors[name]) for name in tensors
    )
