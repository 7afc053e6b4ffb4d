"""Checks with torch: libraries, devices, plugins, and one small run.

Each step runs in its own process (:mod:`lw2g.api.examination`) and imports what it needs.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lw2g.api.finding import Finding, note, ok, problem
from lw2g.errors import Lw2gError, PluginError, counted

if TYPE_CHECKING:
    from lw2g.registry.catalogue import Catalogue

__all__ = [
    "STEPS",
    "at_a_glance",
    "devices",
    "libraries",
    "plugins",
    "small_run",
]

_COMPILED = ("numpy", "torch", "torchvision", "timm", "sklearn", "safetensors")
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_GIB = 2**30
# Two tasks of five classes, four training images a class, one epoch: a few seconds on one core.
_SMALL = {
    "benchmark.classes_per_family": 2,
    "benchmark.increment": 5,
    "benchmark.train_per_class": 4,
    "benchmark.test_per_class": 2,
    "baseline.epochs": 1,
    "baseline.replay_epochs": 1,
    "retrieval.epochs": 1,
    "retrieval.replay_epochs": 1,
    "growth.images": 16,
}


def libraries(names: Iterable[str] = _COMPILED) -> Iterator[Finding]:
    """Import libraries with compiled parts, each after its requirements, and yield which ones fail."""
    fine: list[str] = []
    messages: set[str] = set()
    for name in names:
        # the last line of a process that an import kills
        print(f"importing {name}", file=sys.stderr, flush=True)
        try:
            importlib.import_module(name)
        # an unsuitable build raises various errors (RuntimeError: operator torchvision::nms does not exist;
        # OSError: undefined symbol)
        except Exception as error:
            if str(error) in messages:
                continue  # the error of a library that it imports
            messages.add(str(error))
            wanted = _DISTRIBUTIONS.get(name, name)
            if "torch" in name:  # either may be the one of another release
                wanted = "torch torchvision"
            remedy = f"pip install --force-reinstall {wanted}, builds of one release from one index"
            text = f"{name} cannot be imported: {type(error).__name__}: {error}"
            yield problem("libraries", text, remedy)
        else:
            fine.append(name)
    yield ok("libraries", f"can be imported: {', '.join(fine)}")


def devices() -> Iterator[Finding]:
    """Yield the devices by name and memory."""
    import torch

    num_gpus = 0
    if torch.cuda.is_available():
        num_gpus = torch.cuda.device_count()
    for index in range(num_gpus):
        about = torch.cuda.get_device_properties(index)
        free, size = torch.cuda.mem_get_info(index)
        text = (
            f"cuda:{index}: {about.name}, {size / _GIB:.0f} GiB memory, {free / _GIB:.0f} GiB of it free, "
            f"compute capability {about.major}.{about.minor}, CUDA {torch.version.cuda}"
        )
        if free >= size / 2:
            yield ok("devices", text)
        else:
            remedy = "another process uses it: wait, or name another one with --device cuda:N"
            yield note("devices", text, remedy)
    if not num_gpus and Path("/proc/driver/nvidia/version").exists():
        text = f"an NVIDIA driver is there, but torch {torch.__version__} sees no GPU"
        remedy = "install builds of torch and torchvision for its CUDA release, or update the driver"
        yield problem("devices", text, f"{remedy}; check CUDA_VISIBLE_DEVICES")
    if torch.backends.mps.is_available():
        yield ok("devices", "mps: Apple GPU")
    yield ok(
        "devices",
        f"cpu: {counted(torch.get_num_threads(), 'thread')}, {torch.backends.cpu.get_cpu_capability()}",
    )


def plugins(catalogue: Catalogue | None = None, *, imports_code: bool = True) -> Iterator[Finding]:
    """Yield the usable components, the disabled plugins, and every problem, those of commands too.

    Args:
        catalogue: The components; None for all that are installed.
        imports_code: Whether to import the code that the record of a component or a command only names.
    """
    from lw2g.interfaces.component import Lazy
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.registry.command_set import load_commands
    from lw2g.registry.manager import DISABLE_VARIABLE, attempt

    catalogue = catalogue or load_catalogue()
    entries = catalogue.components()
    commands = load_commands()
    problems = [*catalogue.problems, *commands.problems]
    origins = {entry.origin for entry in entries}
    text = f"{len(entries)} components of {len(origins)} plugins"
    origins |= {entry.origin for entry in commands.entries.values()}
    strangers = sorted(str(origin) for origin in origins if not origin.first_party)
    if strangers:
        text += f", not of lw2g itself: {', '.join(strangers)}"
    yield ok("plugins", text)
    if catalogue.disabled:
        text = f"{DISABLE_VARIABLE} leaves out {', '.join(catalogue.disabled)}"
        yield note("plugins", text, f"unset {DISABLE_VARIABLE} to use them")
    if imports_code:
        for entry in entries:
            build = getattr(entry.component, "build", None)
            if isinstance(build, Lazy):
                what = f"cannot build its {entry.component.kind} {entry.component.name!r}"
                attempt(build.load, entry.origin, what, problems)
        for command in commands.entries.values():
            try:
                command.load()
            except PluginError as error:
                yield problem("plugins", error.what, error.remedy)
    # a package that offers components and commands may be broken as a whole
    for fault in dict.fromkeys(problems):
        yield problem("plugins", fault.text, fault.remedy)


def small_run(catalogue: Catalogue | None = None) -> Iterator[Finding]:
    """Run a small version of the default experiment on a run's default device; yield the result."""
    from lw2g.config.resolve import resolve
    from lw2g.lifecycle.runner import start
    from lw2g.registry.catalogue import load_catalogue

    catalogue = catalogue or load_catalogue()
    began = time.perf_counter()
    try:
        resolved = resolve(catalogue, overrides=_SMALL)
        with tempfile.TemporaryDirectory() as folder:
            record = start(resolved, catalogue, Path(folder) / "run")
    except Lw2gError as error:
        text = f"the default experiment does not run: {error.what}"
        yield problem("smoke run", text, error.remedy or "run `lw2g run` to see more")
        return
    config = resolved.config
    device = record["environment"]["device"]
    names = f"{config.baseline.name} x {config.policy.name} on {config.benchmark.name}, made small"
    seconds = time.perf_counter() - began
    tasks = len(record["task_to_set"])
    yield ok("smoke run", f"{names}: {tasks} tasks learned and evaluated on {device} in {seconds:.1f} s")


def at_a_glance() -> Iterator[Finding]:
    """Yield what takes a second or two: torch, its devices, and the records of all plugins."""
    found = list(libraries(["torch"]))
    yield from found
    if all(finding.status == "ok" for finding in found):
        yield from devices()
        yield from plugins(imports_code=False)


STEPS: Mapping[str, Callable[[], Iterator[Finding]]] = {
    "libraries": libraries,
    "at a glance": at_a_glance,
    "devices": devices,
    "plugins": plugins,
    "smoke run": small_run,
}
"""The steps, in order; the one at a glance stands for all others."""
