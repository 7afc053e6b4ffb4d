"""The boundary between a run and its components: who failed, where prints go, and the frozen weights.

lw2g treats every component as a stranger's code, its own included. A run and a saved model call components
within :func:`guarded`, which turns whatever they raise into an error that names plugin, component and
method. It reads the failing component off the traceback, and so finds it behind phases, hooks and closures
too.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

import attrs

from lw2g.config.layers import NAMED_BY
from lw2g.config.settings import ModelConfig
from lw2g.errors import (
    ComponentError,
    ContractError,
    EndedBySignal,
    Interrupted,
    Lw2gError,
    closest,
    error_text,
    is_out_of_memory,
)
from lw2g.interfaces.component import Kind, Lazy
from lw2g.registry.catalogue import Catalogue, Registered
from lw2g.runtime.frames import Frame, WorkerError, frames_to
from lw2g.vit.backbone import Backbone
from lw2g.vit.weights import state_sha256

__all__ = [
    "WHO_WRITES",
    "BackboneChangedError",
    "Frozen",
    "build",
    "given_at",
    "guarded",
    "made_of",
    "written_at",
]

_NOT_THEIRS = (Lw2gError, Interrupted, KeyboardInterrupt, EndedBySignal)
"""Errors that pass unchanged: mistakes of users, and requests to stop."""


def build(catalogue: Catalogue, kind: Kind, chosen: Any, *arguments: Any) -> Any:
    """Build a component.

    Args:
        catalogue: Knows the component.
        kind: Its kind.
        chosen: Its name and options.
        arguments: What it is built with in addition.

    Raises:
        ContractError: The component builds an object of another kind.
    """
    component: Any = catalogue.get(kind, chosen.name)
    made = component.build(chosen.config, *arguments)
    for name in _promised(component.interface.load()):
        if not hasattr(made, name):
            raise ContractError(
                f"{kind} {chosen.name!r}, build: {type(made).__name__!r} has no {name!r}, so it is no {kind}"
                f"{_near(name, made)}",
                "give it one, or register it as what it is",
                f"{kind} {chosen.name!r}",
            )
    return made


def _near(name: str, made: object) -> str:
    """Return what an object has of nearly a name that it lacks, a method with its line; or nothing."""
    near = closest(name, dir(made))
    if near is None:
        return ""
    method = getattr(type(made), near, None)
    return f"; it has {near!r}" + (f" ({_place_of(method)})" if inspect.isfunction(method) else "")


def _promised(interface: type) -> list[str]:
    """Return the names that an interface promises: methods, and values of a protocol without defaults."""
    names = []
    is_protocol = getattr(interface, "_is_protocol", False)  # typing sets it; other classes have none
    for name in dir(interface):
        promise = getattr(interface, name)
        if callable(promise) or (is_protocol and isinstance(promise, property)):
            names.append(name)
    if is_protocol:
        # a value that is only annotated is no attribute of the class
        names += inspect.get_annotations(interface)
    return [name for name in names if not name.startswith("_")]


class _Prints:
    """Sends what is printed to stderr while any thread calls components, and where it went before after that.

    A redirection of each call alone would put back what another thread's call has put there.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._calls = 0
        self._before: TextIO | None = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._calls:
                self._before = sys.stdout
                sys.stdout = sys.stderr
            self._calls += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1
            if not self._calls and self._before is not None:
                sys.stdout = self._before
                self._before = None


_PRINTS = _Prints()


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
        with _PRINTS:
            yield
    except ContractError as error:
        # it names the component already; here the plugin and its version are added
        for entry in _in_use(catalogue, config):
            if error.component == f"{entry.component.kind} {entry.component.name!r}":
                what = f"{entry.origin}: {error.what}{written_at(entry, error)}"
                raise type(error)(what, error.remedy) from error
        told = _blamed(error, _in_use(catalogue, config))
        if told is not None:
            raise told from error
        raise
    except _NOT_THEIRS:
        raise
    # A stranger's code may raise anything, SystemExit too, which would end a run as if it had succeeded.
    except BaseException as error:
        frames = frames_to(error)
        # an error that could not travel comes as a WorkerError, which knows the name of its class
        error_class = error.kind if isinstance(error, WorkerError) else ""
        entries = _in_use(catalogue, config)
        uncalled = _uncalled(error, error_class, frames, entries)
        culprit = _blame(frames, entries) if uncalled is None else uncalled[:2]
        refused = isinstance(error, OSError | MemoryError) and not _raised_by_strangers(frames, entries)
        if refused or (isinstance(error, RuntimeError) and is_out_of_memory(error)):
            culprit = None  # what the system or the device refuses
        if culprit is None:
            raise
        entry, method = culprit
        component = entry.component
        place = _own_place(frames, entries, entry) if uncalled is None else uncalled[2]
        raise ComponentError(
            f"{entry.origin}: {component.kind} {component.name!r}, {method}: "
            f"{error_text(error, error_class)} ({place})"
        ) from error


def _blamed(error: ContractError, entries: Sequence[Registered]) -> ContractError | None:
    """Return an error that names no component with the plugin, method and line that it came from, if any.

    What a plugin makes of lw2g, such as a phase, refuses its arguments without knowing whose they are.
    """
    if error.component:
        return None
    frames = frames_to(error)
    culprit = _blame(frames, entries)
    if culprit is None or culprit[0].origin.first_party:
        return None
    entry, method = culprit
    component = f"{entry.component.kind} {entry.component.name!r}"
    place = _own_place(frames, entries, entry)
    what = f"{entry.origin}: {component}, {method}: {error.what} ({place})"
    return type(error)(what, error.remedy, component)


def _in_use(catalogue: Catalogue, config: ModelConfig) -> list[Registered]:
    entries = []
    for kind, choice in config.chosen():
        entry = catalogue.find(kind, choice.name)
        if entry is not None:  # without its plugin there is none
            entries.append(entry)
    return entries


def _owner(
    entries: Sequence[Registered], frame: Frame, caller: Registered | None = None
) -> Registered | None:
    """Return the component that owns a frame's code.

    Of several in one module it is one with such a method, and of a function that is no method the caller.
    """
    fitting = sorted(
        entries,
        key=lambda entry: (
            not hasattr(entry.component.interface.load(), frame.function),
            entry is not caller,
        ),
    )
    # the surest rule first: a package may hold several components, a class belongs to one
    for rule in (_owns, _defines, _ships):
        for entry in fitting:
            if rule(entry, frame):
                return entry
    return None


def _raised_by_strangers(frames: Sequence[Frame], entries: Sequence[Registered]) -> bool:
    """Return whether the innermost code of an error, libraries apart, belongs to another distribution."""
    for frame in reversed(frames):
        entry = _owner(entries, frame)
        if entry is not None or frame.module.partition(".")[0] == "lw2g":
            return entry is not None and not entry.origin.first_party
    return False


def _blame(frames: Sequence[Frame], entries: Sequence[Registered]) -> tuple[Registered, str] | None:
    """Return the component that is to blame for an error, and which of its methods.

    It is the one that the run called, or a head or carry that this one called; where components of other
    distributions were called, the last of these.
    """
    calls: list[tuple[Registered, Frame]] = []
    for frame in frames:
        entry = _owner(entries, frame, calls[-1][0] if calls else None)
        if entry is not None:
            calls.append((entry, frame))
    if not calls:
        return None
    culprit = calls[0][0]
    parts = [entry for entry, _ in calls if entry.component.kind in NAMED_BY]
    strangers = [entry for entry, _ in calls if not entry.origin.first_party]
    if strangers or parts:
        culprit = (strangers or parts)[-1]
    its_calls: list[Frame] = []
    for entry, frame in reversed(calls):
        if entry is culprit:
            its_calls.insert(0, frame)
        elif its_calls:
            break
    # what lw2g calls first may be inherited, and a lambda or a comprehension has no name
    own = [frame for frame in its_calls if _ships(culprit, frame) or _defines(culprit, frame)]
    named = [frame for frame in [*own, *its_calls] if not frame.function.startswith("<")]
    function = [*named, *its_calls][0].function
    return culprit, "build" if function == "__init__" else function


def _own_place(frames: Sequence[Frame], entries: Sequence[Registered], entry: Registered) -> str:
    """Return the innermost line of a component's own code: what it calls may have raised the error.

    Where what its class inherits is all that ran, of lw2g or a library, it is that one's line.
    """
    owned = [frame for frame in reversed(frames) if _owner(entries, frame) is entry]
    # a method that the component's class inherits, as of torch's Module, has its ``self``, too
    own = [frame for frame in owned if _ships(entry, frame) or _defines(entry, frame)]
    of_others = [frame for frame in owned if not _is_core(frame.module)]
    (frame, *_) = own or of_others or owned
    if frame.module == _OF_FUNCTIONS:
        called = frames[frames.index(frame) + 1 :]
        frame = next((one for one in reversed(called) if one.module == called[0].module), frame)
    return _in_package(frame.module, frame.place)


_OF_FUNCTIONS = "lw2g.api.given_objects"
"""The module that calls a function of a program in a component's place: the line of that one is meant."""


def _in_package(module: str, place: str) -> str:
    """Return a place in a file with the folders of its package: many plugins have a ``baseline.py``."""
    return "/".join([*module.split(".")[:-1], place])


def written_at(entry: Registered, error: ContractError) -> str:
    """Return in brackets where the method begins that a broken promise names; empty if none is its own.

    Of a method that its class inherits from lw2g, these are the methods of its own that this one calls.
    """
    named = re.match(re.escape(error.component) + r", (\w+): ", error.what)
    if named is None:
        return ""
    made = _built_by(entry)
    # what a program gives is wrapped; a function of it stands for a policy's one method
    built = inspect.unwrap(made)
    method = built if built is not made and inspect.isroutine(built) else getattr(built, named[1], None)
    if not inspect.isroutine(method):
        return ""
    if _is_core(method.__module__):
        if _GIVEN in error.what:
            return ""
        called = [f"{own.__name__}: {_place_of(own)}" for own in _called_by(method, built)]
        return f" (it calls {', '.join(called)})" if called else ""
    return f" ({_place_of(method)})"


_GIVEN = ", given to its phase at "


def given_at(function: Any) -> str:
    """Return where a function begins that a plugin gives to a phase; empty for one of lw2g's own packages.

    It may change what a method of lw2g returns, which is then not to blame.
    """
    code = getattr(function, "__code__", None)
    if code is None or str(function.__module__).startswith("lw2g"):
        return ""
    return f"{_GIVEN}{_place_of(function)}"


def _called_by(inherited: Any, built: type) -> list[Any]:
    """Return the methods of a class's own package that a method calls which it inherits from lw2g."""
    own: list[Any] = []
    for name in inspect.unwrap(inherited).__code__.co_names:
        method = getattr(built, name, None)
        if not inspect.isfunction(method) or method is inherited:
            continue
        if _is_core(method.__module__):
            own += _called_by(method, built)
        elif method.__module__.partition(".")[0] == built.__module__.partition(".")[0]:
            own.append(method)
    return own


def _is_core(module: str) -> bool:
    return module.partition(".")[0] == "lw2g"


_UNCALLED = re.compile(r"Can't instantiate abstract class (?P<abstract>\w+)|(?P<called>[\w.<>]+)\(\) ")
"""How Python begins the message that a class lacks methods, or that a call does not fit a signature."""


def _uncalled(
    error: BaseException, error_class: str, frames: Sequence[Frame], entries: Sequence[Registered]
) -> tuple[Registered, str, str] | None:
    """Return the component whose method could not even be called, that method, and where it stands.

    Python raises such an error in the frame of the caller, so that no frame is the component's.
    """
    if not (isinstance(error, TypeError) or error_class == "TypeError"):
        return None
    if not frames or not (_is_core(frames[-1].module) or _owner(entries, frames[-1]) is None):
        return None
    said = _UNCALLED.match(str(error))
    if said is None:
        return None
    called = said["abstract"] or said["called"]
    for entry in entries:
        built = made_of(entry)
        if built is None or _is_core(built.__module__):
            continue
        if called == built.__qualname__ or (said["abstract"] and called == built.__name__):
            return entry, "build", _place_of(built)
        for base in built.__mro__ if isinstance(built, type) else ():
            owner, _, method = called.rpartition(".")
            own = vars(base).get(method)
            if owner == base.__qualname__ and own is not None and not _is_core(base.__module__):
                return entry, "build" if method == "__init__" else method, _place_of(own)
    return None


def _place_of(target: Any) -> str:
    """Return the file and the line where a class or function begins; the file alone if it has no source."""
    target = inspect.unwrap(getattr(target, "__func__", target))
    code = getattr(target, "__code__", None)
    if code is not None:
        return _in_package(target.__module__, f"{Path(code.co_filename).name}:{code.co_firstlineno}")
    try:
        place = f"{Path(inspect.getfile(target)).name}:{inspect.getsourcelines(target)[1]}"
        return _in_package(target.__module__, place)
    except (OSError, TypeError):
        return str(target.__module__)


def _built_by(entry: Registered) -> Any:
    build: Any = getattr(entry.component, "build", None)
    if not isinstance(build, Lazy):
        return build
    module, _, name = build.target.partition(":")
    return getattr(sys.modules.get(module), name, None)


def made_of(entry: Registered) -> Any:
    """Return the class or function that a component is made of; of a given instance its class."""
    built = inspect.unwrap(_built_by(entry))  # what a program gives is wrapped
    if built is None or isinstance(built, type) or inspect.isroutine(built):
        return built
    return type(built)


def _owns(entry: Registered, frame: Frame) -> bool:
    """Whether the frame is a method (or a closure in one) of what the component's class has built."""
    built = made_of(entry)
    return isinstance(built, type) and f"{built.__module__}.{built.__qualname__}" in frame.owners


def _defines(entry: Registered, frame: Frame) -> bool:
    """Whether the frame's code is in the module that builds the component, or that of what a program gave."""
    return frame.module in (getattr(made, "__module__", None) for made in (_built_by(entry), made_of(entry)))


def _ships(entry: Registered, frame: Frame) -> bool:
    """Whether the frame's code is in the component's package."""
    package = entry.component.config.__module__.partition(".")[0]
    return package != "lw2g" and frame.module.partition(".")[0] == package


WHO_WRITES = " (lw2g check NAME tells which component it is)"
"""How the remedy for a changed backbone ends, in a run of several components."""


class BackboneChangedError(ContractError):
    """A component has written into the frozen backbone."""


@attrs.frozen
class Frozen:
    """The backbone's weights as a run found them.

    Attributes:
        sums: SHA-256 of each parameter and buffer. Reading takes 0.8 s for the 86 million float32 numbers
            of a ViT-B on one core (0.05 s for a ViT-Ti), once a task. It does not see a change that was
            undone in between, nor hooks and modules left behind.
    """

    sums: Mapping[str, str]

    @classmethod
    def of(cls, backbone: Backbone) -> Frozen:
        """Return the weights as they are."""
        sums = {}
        # each tensor has a sum of its own, so that a message can name the one that has changed
        for name, value in backbone.model.state_dict().items():
            sums[name] = state_sha256({name: value})
        return cls(sums)

    def require_same(self, backbone: Backbone, when: str) -> None:
        """Compare the weights with those of the start.

        Raises:
            BackboneChangedError: They have changed.
        """
        sums = Frozen.of(backbone).sums
        for name in {**self.sums, **sums}:
            if self.sums.get(name) != sums.get(name):
                raise BackboneChangedError(
                    f"the frozen backbone's {name!r} has changed {when}",
                    f"a component writes into it: let it inject parameters of its own{WHO_WRITES}",
                )
