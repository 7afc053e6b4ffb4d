"""Weights and data: what is here, what would be fetched, and what a user has to bring.

Every component is asked by building it with its defaults, in a process that may not use the hub. What a
build says when it fails is what a run would say.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, TypeVar

from lw2g.doctor.finding import Finding, note, ok, problem, split_remedy
from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.interfaces.component import Kind
from lw2g.interfaces.dataset import ROOT_VARIABLE, default_root
from lw2g.registry.catalogue import Catalogue, Registered, load_catalogue
from lw2g.registry.manager import Origin, Problem, attempt

__all__ = ["backbone_findings", "benchmark_findings", "hub_findings"]

T = TypeVar("T")

_PATIENCE = 20.0
"""Seconds that reading one benchmark may take: large ones are not read to the end."""


def backbone_findings(catalogue: Catalogue | None = None) -> Iterator[Finding]:
    """Yield which backbones can be had here, which would be fetched from the hub, and which need a file."""
    fetched: list[str] = []
    brought: list[str] = []
    for entry in _entries(catalogue, "backbone"):
        name, problems = entry.component.name, list[Problem]()
        built = _build(entry, problems)
        yield from _failed("weights", problems)
        if isinstance(built, ConfigError):
            continue  # one that takes any model needs to be told which
        if not isinstance(built, Lw2gError):
            if built is not None:
                yield _checked(entry, built.fingerprint.sha256)
        elif entry.component.embedded:
            what, remedy = split_remedy(str(built), "reinstall the package")
            yield problem("weights", f"{name}: {what}", remedy)
        elif isinstance(built.__cause__, OSError):  # what it would have fetched is not in the cache
            fetched.append(name)
        else:
            brought.append(name)
    if fetched:
        text = f"not cached, fetched from the hub when used: {', '.join(fetched)}"
        yield note("weights", text, "--network asks whether the hub answers; without it, use --weights FILE")
    if brought:
        text = f"need a file: {', '.join(brought)}"
        yield note(
            "weights", text, "`lw2g run --backbone NAME` says which file and where; pass --weights FILE"
        )


def _checked(entry: Registered, sha256: str) -> Finding:
    """Compare the hash of weights that have just been loaded with what was installed."""
    label = f"{entry.component.name}: weights load, sha256 {sha256[:12]}"
    if not getattr(entry.component, "embedded", False):
        return ok("weights", label)
    recorded = _recorded_hashes(entry.origin)
    if recorded is None:
        return ok("weights", f"{label} (embedded; an editable installation records none to compare with)")
    if sha256 in recorded:
        return ok("weights", f"{label}, as installed (embedded)")
    text = f"{entry.component.name}: embedded weights are not the installed ones, sha256 {sha256[:12]}"
    return problem("weights", text, f"pip install --force-reinstall --no-deps {entry.origin.distribution}")


def _recorded_hashes(origin: Origin) -> frozenset[str] | None:
    """Return the SHA-256 of each installed weights file, hexadecimal; None where nothing is recorded."""
    if origin.distribution is None:
        return None
    try:
        files = distribution(origin.distribution).files or []
    except PackageNotFoundError:
        return None
    hashes = [one.hash for one in files if one.suffix == ".safetensors" and one.hash is not None]
    found = [one.value for one in hashes if one.mode == "sha256"]
    # RECORD has them in URL-safe base64 without padding
    return (
        frozenset(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex() for value in found) or None
    )


def benchmark_findings(catalogue: Catalogue | None = None, patience: float = _PATIENCE) -> Iterator[Finding]:
    """Yield which benchmarks find their data where they look for them by default."""
    absent: list[str] = []
    root = default_root()
    for entry in _entries(catalogue, "benchmark"):
        name, problems = entry.component.name, list[Problem]()
        if entry.component.data is not None and not entry.component.data.lies_below(root):
            absent.append(name)
            continue
        finished, stream = _within(patience, partial(_stream, entry, problems))
        yield from _failed("data", problems)
        if not finished:
            text = f"{name}: data are there, but reading them takes more than {patience:g} s"
            yield note("data", text, "nothing is wrong so far; a run reads them to the end")
        elif isinstance(stream, Lw2gError):
            what, remedy = split_remedy(str(stream), f"see `lw2g plugins {name}`")
            level = problem if entry.component.embedded else note
            yield level("data", what if repr(name) in what else f"{name}: {what}", remedy)
        elif stream is not None:
            yield ok("data", f"{name}: {len(stream.tasks)} tasks, {stream.num_classes} classes")
    if absent:
        where = f"{ROOT_VARIABLE}={root}" if root else f"{ROOT_VARIABLE} is not set"
        text = f"not here: {', '.join(absent)} ({where})"
        yield note("data", text, f"set {ROOT_VARIABLE} to where they are, or fetch one: `lw2g data get NAME`")


def hub_findings(timeout: float = 10.0) -> Iterator[Finding]:
    """Ask the hub from which timm fetches weights for its front page."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    from huggingface_hub.constants import ENDPOINT

    try:
        with urlopen(Request(ENDPOINT, method="HEAD"), timeout=timeout):
            pass
    except HTTPError as answer:
        answer.close()  # it answers, if not with a page
    except (OSError, ValueError) as error:
        text = f"the hub cannot be reached ({error})"
        yield note("weights", text, "fetch weights elsewhere and pass them with --weights FILE")
        return
    yield ok("weights", "the hub answers")


def _entries(catalogue: Catalogue | None, kind: Kind) -> list[Any]:
    catalogue = load_catalogue() if catalogue is None else catalogue
    return [entry for entry in catalogue.components() if entry.component.kind == kind]


def _build(entry: Any, problems: list[Problem]) -> Any:
    return _told(entry, problems, lambda: entry.component.build(entry.component.config(), None, None))


def _stream(entry: Any, problems: list[Problem]) -> Any:
    return _told(entry, problems, lambda: entry.component.build(entry.component.config()).stream())


def _told(entry: Registered, problems: list[Problem], action: Callable[[], T]) -> T | Lw2gError | None:
    """Return a result or what the component has to say; any other error is a problem of its plugin."""

    def asked() -> T | Lw2gError:
        try:
            return action()
        except (DataError, ConfigError) as error:
            return error

    what = f"has the {entry.component.kind} {entry.component.name!r}, which fails"
    return attempt(asked, entry.origin, what, problems)


def _failed(area: str, problems: list[Problem]) -> Iterator[Finding]:
    for one in problems:
        yield problem(area, str(one).removesuffix(f"; {one.remedy}"), one.remedy)


def _within(seconds: float, action: Callable[[], T]) -> tuple[bool, T | None]:
    """Return whether an action ended in time, and its result; one that did not is not waited for."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(action()), daemon=True)
    thread.start()
    thread.join(seconds)
    return (True, results[0]) if results else (False, None)
