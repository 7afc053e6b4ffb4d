"""The boundary between a run and its components: who failed, where prints go, and the frozen weights.

Components are strangers' code, those that come with lw2g included. A run and a saved model call them within
:func:`guarded`, the one place that turns whatever they raise into an error that names plugin, component and
method; the failing component is read off the traceback, so that calls through phases, hooks and closures are
told as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

import attrs
import torch

from lw2g.config.model import ExperimentConfig, ModelConfig
from lw2g.errors import ComponentError, ContractError, Lw2gError, told
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.component import Kind, Lazy
from lw2g.interfaces.constraint import Constraint
from lw2g.interfaces.evidence import Measure
from lw2g.interfaces.growth import GrowthPolicy
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.interfaces.stream import Benchmark
from lw2g.interfaces.tracker import Tracker
from lw2g.registry.catalogue import Catalogue, Registered
from lw2g.training.frames import Frame, WorkerError, frames_of
from lw2g.training.progress import Interrupted
from lw2g.vit.backbone import Backbone
from lw2g.vit.weights import state_sha256

__all__ = ["BackboneChangedError", "Frozen", "build", "guarded"]

_INTERFACES: Mapping[Kind, type] = {
    "baseline": Baseline,
    "retrieval": RetrievalStrategy,
    "policy": GrowthPolicy,
    "evidence": Measure,
    "constraint": Constraint,
    "tracker": Tracker,
    "benchmark": Benchmark,
    "backbone": Backbone,
}
_NOT_THEIRS = (Lw2gError, Interrupted, KeyboardInterrupt, torch.OutOfMemoryError)
"""Told as they are: mistakes of users, requests to stop, and what the device refuses."""


def build(catalogue: Catalogue, kind: Kind, chosen: Any, *arguments: Any) -> Any:
    """Return what a component builds.

    Args:
        catalogue: Knows the component.
        kind: Its kind.
        chosen: Its name and options.
        arguments: What it is built with beside these.

    Raises:
        ContractError: It builds something of another kind.
    """
    component: Any = catalogue.get(kind, chosen.name)
    made = component.build(chosen.config, *arguments)
    promised = _INTERFACES[kind]
    names = (name for name in dir(promised) if name[0] != "_" and callable(getattr(promised, name)))
    lacking = next((name for name in names if not hasattr(made, name)), None)
    if lacking is not None:
        raise ContractError(
            f"{kind} {chosen.name!r}, build: {type(made).__name__!r} has no {lacking!r}, so it is no {kind}; "
            "register it as what it is"
        )
    return made


@contextmanager
def guarded(catalogue: Catalogue, config: ModelConfig) -> Iterator[None]:
    """Call components within the block; what they print goes to stderr.

    Args:
        catalogue: Knows who offers them.
        config: Names those in use.

    Raises:
        ComponentError: A component raised something, the request to end the program included.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except ContractError as error:
        for entry in _in_use(catalogue, config):
            if str(error).startswith(f"{entry.component.kind} {entry.component.name!r}"):
                raise type(error)(f"{entry.origin}: {error}") from error
        raise
    except _NOT_THEIRS:
        raise
    # A stranger's code may raise anything, SystemExit too, which would end a run as if it had succeeded.
    except BaseException as error:
        frames = getattr(error, "frames", frames_of(error.__traceback__))
        kind = error.kind if isinstance(error, WorkerError) else ""
        entries = _in_use(catalogue, config)
        found = _blame(frames, entries)
        if isinstance(error, OSError | MemoryError) and not _raised_by_strangers(frames, entries):
            found = None  # what the system refuses
        if found is None:
            raise
        entry, method = found
        component = entry.component
        raise ComponentError(
            f"{entry.origin}: {component.kind} {component.name!r}, {method}: {told(error, kind)}"
        ) from error


def _in_use(catalogue: Catalogue, config: ModelConfig) -> list[Registered]:
    kinds: list[tuple[Kind, Any]] = [("baseline", config.baseline), ("retrieval", config.retrieval)]
    if isinstance(config, ExperimentConfig):
        kinds += [
            ("policy", config.policy),
            *(("evidence", one) for one in config.evidence),
            *(("constraint", one) for one in config.constraints),
            *(("tracker", one) for one in config.trackers),
            ("benchmark", config.benchmark),
        ]
    kinds.append(("backbone", config.backbone))
    found = (catalogue.entries.get((kind, one.name)) for kind, one in kinds if one is not None)
    return [entry for entry in found if entry is not None]


def _owner(entries: Sequence[Registered], frame: Frame) -> Registered | None:
    """Return the component whose code a frame is; of several in one module, one that has such a method."""
    fitting = sorted(entries, key=lambda one: not hasattr(_INTERFACES[one.component.kind], frame.function))
    return next((one for rule in (_owns, _defines, _ships) for one in fitting if rule(one, frame)), None)


def _raised_by_strangers(frames: Sequence[Frame], entries: Sequence[Registered]) -> bool:
    """Whether the last code on the way to an error, but for libraries, is that of another distribution."""
    for frame in reversed(frames):
        entry = _owner(entries, frame)
        if entry is not None or frame.module.partition(".")[0] == "lw2g":
            return entry is not None and not entry.origin.first_party
    return False


def _blame(frames: Sequence[Frame], entries: Sequence[Registered]) -> tuple[Registered, str] | None:
    """Return the component that the run called last before the error, and which of its methods."""
    found: tuple[Registered, str] | None = None
    for frame in frames:
        entry = _owner(entries, frame)
        if entry is None or (found is not None and entry is not found[0]):
            if found is not None:
                return found
            continue
        found = (entry, "build" if frame.function == "__init__" else frame.function)
        if not frame.function.startswith("<"):
            return found
    return found


def _built_by(entry: Registered) -> Any:
    build: Any = getattr(entry.component, "build", None)
    if not isinstance(build, Lazy):
        return build
    module, _, name = build.target.partition(":")
    return getattr(sys.modules.get(module), name, None)


def _owns(entry: Registered, frame: Frame) -> bool:
    """Whether the frame is a method (or a closure in one) of what the component's class has built."""
    built = _built_by(entry)
    return isinstance(built, type) and f"{built.__module__}.{built.__qualname__}" in frame.owners


def _defines(entry: Registered, frame: Frame) -> bool:
    """Whether the frame's code is in the module that builds the component."""
    return frame.module == getattr(_built_by(entry), "__module__", None)


def _ships(entry: Registered, frame: Frame) -> bool:
    """Whether the frame's code is in the component's package."""
    package = entry.component.config.__module__.partition(".")[0]
    return package != "lw2g" and frame.module.partition(".")[0] == package


class BackboneChangedError(ContractError):
    """A component has written into the frozen backbone."""


@attrs.frozen
class Frozen:
    """The backbone's weights as a run found them.

    Attributes:
        sums: SHA-256 of each parameter and buffer. Reading takes 0.8 s for the 86 million float32 numbers
            of a ViT-B on one core (0.05 s for a ViT-Ti), once a task. What was changed and put back in
            between is not seen, nor are hooks and modules that were left behind.
    """

    sums: Mapping[str, str]

    @classmethod
    def of(cls, backbone: Backbone) -> Frozen:
        """Return the weights as they are."""
        return cls({name: state_sha256({name: one}) for name, one in backbone.model.state_dict().items()})

    def require_same(self, backbone: Backbone, when: str) -> None:
        """Look at the weights again.

        Raises:
            BackboneChangedError: They have changed.
        """
        now = Frozen.of(backbone).sums
        moved = [name for name in {**self.sums, **now} if self.sums.get(name) != now.get(name)]
        if moved:
            raise BackboneChangedError(
                f"the frozen backbone's {moved[0]!r} has changed {when}; a component writes into it: let it "
                "inject parameters of its own (lw2g check NAME tells which component it is)"
            )
