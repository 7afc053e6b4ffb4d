"""CUDA graphs of the backbone's forward and backward: one launch in place of thousands.

A small batch on a GPU waits for launches. The images and the tensors of a forward's injections are
copied to fixed addresses, and the captured kernels run again. A graph is kept only where it gives the same
bits, whatever it saves: no clock decides how a run computes. Routing, heads, losses, constraints and
optimizers stay outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast
from weakref import ref

import attrs
import torch
from torch import Tensor

from lw2g.errors import ContractError
from lw2g.vit.injection import Injection

__all__ = ["CALLS", "DEVICES", "Graphs", "captured"]

Forward = Callable[[Tensor, Sequence[Injection]], Tensor]
Static = Callable[..., Tensor]
"""A forward as a function of tensors alone."""

DEVICES = ("cuda",)
"""Types of devices whose kernels are captured."""
CALLS = 20
"""Calls of the same shapes before a forward is captured."""
_MOST = 8
"""Graphs at a time: each keeps its activations."""


def captured(forward: Static, samples: tuple[Tensor, ...]) -> Static:
    """Return a forward and its backward as CUDA graphs; ``samples`` become their inputs' addresses."""
    return cast(Static, torch.cuda.make_graphed_callables(forward, samples, allow_unused_input=True))


class Graphs:
    """The graphs of one backbone, by what its forwards look like.

    Args:
        batch_sizes: Batches of other sizes are not captured: evidence, and the last batch of an epoch.
        capture: In place of :func:`captured`.

    Attributes:
        refused: Why forwards that came often enough were not captured, and how many of them.
    """

    def __init__(
        self,
        batch_sizes: frozenset[int],
        capture: Callable[[Static, tuple[Tensor, ...]], Static] | None = None,
    ) -> None:
        self._sizes = batch_sizes
        self._capture = capture or captured
        self._calls: Counter[Hashable] = Counter()
        self._kept: dict[Hashable, _Graph | None] = {}
        self.refused: Counter[str] = Counter()

    def __str__(self) -> str:
        used = sum(graph is not None for graph in self._kept.values())
        why = "".join(f", {count} not: {reason}" for reason, count in self.refused.items())
        return f"{used} forwards{why}"

    def __deepcopy__(self, memo: object) -> Graphs:
        return Graphs(self._sizes, self._capture)  # graphs belong to the weights that they were captured with

    def __call__(
        self, forward: Forward, images: Tensor, injections: Sequence[Injection], kind: Hashable = None
    ) -> Tensor:
        """Return ``forward(images, injections)``, replayed if it has a graph.

        While the gradient of a replayed forward is still to be taken, others of the same shapes run as they
        are, because they would overwrite its activations.

        Args:
            forward: What is captured.
            images: The batch.
            injections: Of the forward.
            kind: Distinguishes forwards that look alike.
        """
        if len(images) not in self._sizes:
            return forward(images, injections)
        inputs = [images]
        try:
            # what the injections look like; their tensors join the inputs
            structure = _structure(injections, inputs)
        except TypeError:  # something is computed within the forward
            return forward(images, injections)
        gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        reduced = torch.is_autocast_enabled(images.device.type)
        key = (kind, gradient, reduced, _looks(images), structure)
        self._calls[key] += 1
        is_due = self._calls[key] >= CALLS and len(self._kept) < _MOST
        # tried once: a forward that was refused is kept as None
        if is_due and key not in self._kept:

            def static(first: Tensor, *others: Tensor) -> Tensor:
                return forward(first, _rebuilt(injections, iter(others)))

            # a cast that autocast keeps would be read in a replay, when it is gone
            with torch.autocast(images.device.type, enabled=reduced, cache_enabled=False):
                self._kept[key] = self._tried(static, inputs, gradient)
        graph = self._kept.get(key)
        if graph is None or graph.waits:
            return forward(images, injections)
        return graph(inputs)

    def _tried(self, static: Static, inputs: Sequence[Tensor], gradient: bool) -> _Graph | None:
        """Capture a forward, and return its graph if it computes the same."""
        device = inputs[0].device
        if device.type == "cuda" and torch.cuda.mem_get_info(device)[0] < torch.cuda.memory_reserved(device):
            self.refused["half of the memory is in use"] += 1  # a graph keeps what its forward takes
            return None
        samples = tuple(_like(tensor, gradient) for tensor in inputs)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            before = _generator(device)
            try:
                with _refusing_waits(device):
                    # twice: what two equal calls differ by is what a replay may differ by
                    first = _computed(static, samples)
                    second = _computed(static, samples)
                if not torch.equal(before, _generator(device)):
                    self.refused["it draws numbers"] += 1
                    return None
                replayed = self._capture(static, tuple(_like(tensor, gradient) for tensor in inputs))
            except RuntimeError as error:
                self.refused[str(error).partition("\n")[0]] += 1
                return None
            if not _agree(first, second, _computed(replayed, samples)):
                self.refused["other values"] += 1
                return None
        return _Graph(replayed)


@attrs.define(eq=False)
class _Graph:
    """A captured forward, whose activations are those of its last call."""

    replayed: Static
    latest: ref[_Token] | None = None

    @property
    def waits(self) -> bool:
        """Whether the last call may still be differentiated."""
        if self.latest is None:
            return False
        # the token is gone when nobody can differentiate the call any more
        token = self.latest()
        return token is not None and not token.done

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        # the next replay overwrites what this one returns, gradients included
        out = self.replayed(*_Apart.apply(*inputs)).clone()
        if out.grad_fn is not None:
            token = _Token(self)
            node: Any = out.grad_fn
            node.metadata["lw2g"] = token  # lives as long as the autograd graph
            node.register_prehook(token.close)
            self.latest = ref(token)
        return out


class _Apart(torch.autograd.Function):
    """Tensors as they are, whose gradients are copied."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(None if gradient is None else gradient.clone() for gradient in gradients)


class _Token:
    """Whether a replayed forward has been differentiated."""

    def __init__(self, graph: _Graph) -> None:
        self.done = False
        self._graph = graph

    def close(self, gradients: object) -> None:
        latest = self._graph.latest
        if latest is None or latest() is not self:
            raise ContractError(
                "a forward is differentiated a second time, after another one of the same shapes",
                "set run.graph to off",
            )
        self.done = True


def _structure(value: Any, tensors: list[Tensor]) -> Hashable:
    """Return what injections look like without their tensors, which are appended to a list.

    Raises:
        TypeError: They hold something else than tensors and constants.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        return _looks(value)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return tuple((key, _structure(each, tensors)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return (type(value), *(_structure(each, tensors) for each in value))
    if attrs.has(type(value)):
        return (type(value), *(_structure(getattr(value, name), tensors) for name in _names(value)))
    raise TypeError(f"{type(value).__name__} is no constant")


def _rebuilt(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Return injections with other tensors, in the order of :func:`_structure`."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {key: _rebuilt(each, tensors) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_rebuilt(each, tensors) for each in value)
    if attrs.has(type(value)):
        changes = {name.lstrip("_"): _rebuilt(getattr(value, name), tensors) for name in _names(value)}
        return attrs.evolve(value, **changes)
    return value


def _names(value: Any) -> list[str]:
    return [field.name for field in attrs.fields(type(value)) if field.init]


def _looks(tensor: Tensor) -> tuple[torch.Size, torch.dtype, bool]:
    return tensor.shape, tensor.dtype, tensor.requires_grad


def _like(tensor: Tensor, gradient: bool) -> Tensor:
    return tensor.detach().clone().requires_grad_(gradient and tensor.requires_grad)


def _computed(forward: Static, samples: Sequence[Tensor]) -> list[Tensor]:
    """Return the output, and the gradients of a sum of its squares."""
    out = forward(*samples)
    wanted = [sample for sample in samples if sample.requires_grad]
    slopes: tuple[Tensor | None, ...] = ()
    if wanted:
        slopes = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True)
    # copies: the next call of a captured forward writes to the same addresses
    return [each.clone() for each in (out.detach(), *slopes) if each is not None]


@contextmanager
def _refusing_waits(device: torch.device) -> Iterator[None]:
    """Raise RuntimeError where the host waits for a GPU: within a capture its generator would be lost."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _generator(device: torch.device) -> Tensor:
    """Return the state of the generator that a forward on a device draws from."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()


def _agree(first: Sequence[Tensor], second: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Whether values are the same to the bit, or vary no more than those of two equal calls do anyway."""

    def apart(one: Tensor, two: Tensor) -> float:
        return float(torch.linalg.vector_norm((one - two).float()))

    pairs = zip(first, second, other, strict=True)
    return all(apart(a, c) <= 4 * apart(a, b) for a, b, c in pairs)
