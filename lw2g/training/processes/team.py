"""The processes that work on one run together: what each does a share of, and what they agree on.

All of them go through the same run step by step and hold the same parameters. Work on images is shared out,
and what was found is gathered in order; all else each does for itself. The first one decides and writes.
Alone, a process does everything, and nothing here costs anything or changes a bit.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, distributed, nn

from lw2g.errors import ContractError, Lw2gError
from lw2g.training.processes.place import Place
from lw2g.training.processes.slices import Slice

__all__ = ["ALONE", "ProcessLostError", "Team"]

T = TypeVar("T")
R = TypeVar("R")

_ROUND = 8
"""Batches that a process works on before what was found is gathered."""


class ProcessLostError(Lw2gError):
    """A process of a run has ended, or cannot be reached any more."""

    exit_code = 1


class Team:
    """The processes of a run, seen by one of them.

    Args:
        place: Where it stands; None where it is alone.
        ended: Says who has ended, asked once others cannot be reached.

    Attributes:
        place: The same.
        device: Where what others had on a device shall lie here.
        resume: How to go on with the run, for messages.
    """

    def __init__(self, place: Place | None = None, ended: Callable[[], str] = str) -> None:
        self.place, self._ended = place, ended
        self.rank, self.size = (0, 1) if place is None else (place.rank, place.size)
        self.device = torch.device("cpu")
        self.resume = "start it again"

    @property
    def writes(self) -> bool:
        """Whether this process decides and writes."""
        return self.rank == 0

    # -- work that is shared out -------------------------------------------------------------------------

    def portion(self, items: Sequence[T]) -> Sequence[T]:
        """Return this process's part of some items; the parts follow each other."""
        return items[len(items) * self.rank // self.size : len(items) * (self.rank + 1) // self.size]

    def spread(self, items: Sequence[T], work: Callable[[Sequence[T]], Iterable[R]]) -> Iterator[R]:
        """Yield what is made of items, in their order; each process makes its share.

        Args:
            items: The same in every process.
            work: Gives one result for each item of a part of them, one after the other.
        """
        if self.size == 1:
            yield from work(items)
            return
        each = min(_ROUND, -(-len(items) // self.size))
        starts = range(0, len(items), max(1, each * self.size))
        own = [
            items[at + self.rank * each : min(at + (self.rank + 1) * each, at + each * self.size)]
            for at in starts
        ]
        made = iter(work([item for part in own for item in part]))
        for part in own:
            for found in self.gather(list(islice(made, len(part)))):
                yield from found

    def gather(self, value: T) -> list[T]:
        """Return what each process has, in their order."""
        if self.size == 1:
            return [value]
        packed: list[Any] = [None] * self.size
        with self.together():
            distributed.all_gather_object(packed, _packed(value))
        return [value if rank == self.rank else self._unpacked(one) for rank, one in enumerate(packed)]

    # -- what is agreed on -------------------------------------------------------------------------------

    def broadcast(self, value: T) -> T:
        """Return what the first process has."""
        if self.size == 1:
            return value
        held = [_packed(value) if self.writes else None]
        with self.together():
            distributed.broadcast_object_list(held)
        return value if self.writes else self._unpacked(cast(bytes, held[0]))

    def once(self, work: Callable[[], T]) -> T:
        """Return what the first process, and no other, makes."""
        return self.broadcast(work() if self.writes else cast(T, None))

    def any(self, asked: bool) -> bool:
        """Return whether a process says yes."""
        return asked if self.size == 1 else bool(self._summed(torch.tensor([int(asked)])))

    def everywhere(self, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return what is true in every process."""
        if self.size == 1:
            return known
        return cast("npt.NDArray[np.bool_]", np.logical_and.reduce(self.gather(known)))

    def require_alike(self, state: Mapping[str, Tensor], when: str) -> None:
        """Refuse to go on where tensors differ between processes.

        Raises:
            ProcessLostError: They do.
        """
        if apart := self.apart(state):
            raise ProcessLostError(
                f"the {self.size} processes have come apart {when} (in {apart[0]!r}): their devices or "
                f"libraries compute differently; {self.resume}"
            )

    def align(self, state: Mapping[str, Tensor]) -> list[str]:
        """Put the first process's values in place of others; return the names of those that were others.

        Args:
            state: Tensors by name, the same names and shapes in every process; changed in place.
        """
        apart = self.apart(state)
        with torch.no_grad():
            for name in apart:
                state[name].copy_(self.broadcast(state[name]))
        return apart

    def apart(self, state: Mapping[str, Tensor]) -> list[str]:
        """Return the names of the tensors that do not have the same bits in all processes."""
        if self.size == 1:
            return []
        first, *others = self.gather({name: _checksum(value) for name, value in state.items()})
        return [name for name in first if any(other.get(name) != first[name] for other in others)]

    # -- training steps ----------------------------------------------------------------------------------

    def cut(self, count: int, *, splits: bool = True) -> Slice:
        """Return which part of a batch of so many images is this process's; all of it unless it is split."""
        if self.size == 1 or not splits:
            return Slice(first=0, last=count, total=count, weight=float(self.writes))
        bounds = [count * rank // self.size for rank in range(self.size + 1)]
        first, last = bounds[self.rank : self.rank + 2]
        sizes = tuple(end - begin for begin, end in pairwise(bounds))
        return Slice(
            first=first,
            last=last,
            total=count,
            weight=(last - first) / count,
            gather=lambda rows: self._rows(rows, sizes),
        )

    def average(
        self, parameters: Sequence[nn.Parameter], losses: Mapping[str, Tensor], weight: float, *, stop: bool
    ) -> tuple[dict[str, Tensor], bool]:
        """Add up gradients and losses of a step over all processes, as one flat sum.

        A parameter without a gradient in any process keeps none.

        Args:
            parameters: What is trained; their gradients are replaced.
            losses: Of this process's part of the batch, by name.
            weight: Of this process.
            stop: Whether it is asked to stop.

        Returns:
            The losses of the whole batch, and whether any process is asked to stop.
        """
        if self.size == 1:
            return dict(losses), stop
        told = [int(stop), len(losses), *(parameter.grad is not None for parameter in parameters)]
        stops, parts, *present = self._summed(torch.tensor(told)).tolist()
        if parts != self.size * len(losses):
            raise ContractError(
                f"the processes of a run have losses of {sorted(losses)} and others; what a step gives must "
                "not depend on which images are in it (or declare the phase with splits=False)"
            )
        held = [parameter for parameter, count in zip(parameters, present, strict=True) if count]
        values = torch.stack([loss.detach().float().reshape(()) for loss in losses.values()])
        flat = torch.cat([*(_gradient(parameter) for parameter in held), values]) * weight
        self._summed(flat)
        sizes = [*(parameter.numel() for parameter in held), len(values)]
        *gradients, found = torch.split(flat, sizes)
        for parameter, gradient in zip(held, gradients, strict=True):
            parameter.grad = gradient.view_as(parameter).to(parameter.dtype)
        return dict(zip(losses, found.unbind(), strict=True)), bool(stops)

    def _rows(self, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return the rows of all processes, of which each has so many."""
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows[: max(sizes)]
        parts = [torch.empty_like(padded) for _ in sizes]
        with self.together():
            # as bytes: not every backend knows every number format
            distributed.all_gather([part.view(torch.uint8) for part in parts], padded.view(torch.uint8))
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    def _summed(self, values: Tensor) -> Tensor:
        with self.together():
            distributed.all_reduce(values)
        return values

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let errors within the block say who has ended."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ProcessLostError(f"{self._ended()}; {self.resume}") from error

    def _unpacked(self, packed: bytes) -> Any:
        def here(storage: Any, location: str) -> Any:
            return storage if location == "cpu" else storage.to(self.device)

        return torch.load(io.BytesIO(packed), map_location=here, weights_only=False)


def _packed(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _gradient(parameter: nn.Parameter) -> Tensor:
    gradient = parameter.grad
    return torch.zeros_like(parameter).flatten() if gradient is None else gradient.flatten()


def _checksum(value: Tensor) -> tuple[str, int]:
    held = value.detach().cpu().contiguous().reshape(-1)
    return f"{value.dtype} {list(value.shape)}", zlib.crc32(held.view(torch.uint8).numpy().data)


ALONE = Team()
"""What a process is that works on a run alone."""
