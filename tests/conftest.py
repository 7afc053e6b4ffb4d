"""Hypothesis profiles and fixtures that several test folders share."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

# torch and lw2g are imported where they are used: what starts pytest-xdist's workers needs neither
if TYPE_CHECKING:
    from torch import Generator as TorchGenerator

    from lw2g.config.resolve import Resolved
    from lw2g.learning.session import Session
    from lw2g.registry.catalogue import Catalogue

# The first torch call is slow, so deadlines say nothing.
settings.register_profile(
    "thorough", deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fast", settings.get_profile("thorough"), max_examples=25, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

gc.disable()  # until all tests are collected: what collecting makes stays to the end

# Tests of signals speak of processes that nobody started with `nohup` or in the background of a script, where
# SIGHUP and SIGINT are ignored, in every process that is started from there, too.
for _number, _usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _usual)

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and what is printed off terminals would obey


WHOLE = ("tests/contract/", "tests/property/", "tests/unit/vit/")
"""Tests of which ``--first-cases`` leaves out none: of every component, and of the networks of timm."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option for the oldest dependencies, which may lack a call, whatever it is called with."""
    told = f"of each test the first of its cases alone, but in {', '.join(WHOLE)}"
    parser.addoption("--first-cases", action="store_true", help=told)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes longest first; keep first cases alone where asked. What is left out is out before."""
    items.sort(key=_seconds, reverse=True)
    if not config.getoption("first_cases"):
        return
    kept: dict[str, pytest.Item] = {}
    left_out = []
    for item in items:
        whole = item.nodeid.startswith(WHOLE)
        test = item.nodeid if whole else item.nodeid.partition("[")[0]
        if kept.setdefault(test, item) is not item:
            left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept.values()


def _seconds(item: pytest.Item) -> float:
    """Return how long a test takes by its own mark ``slow(seconds=...)``, which few have; 0 without one."""
    mark = item.get_closest_marker("slow")
    return 0 if mark is None else mark.kwargs.get("seconds", 0)


def pytest_collection() -> None:
    """Give torch one thread and a cheap seed, and let nothing wait for the disk; no test is imported yet."""
    import torch

    # no test cuts the power: what a killed process has written, the system has
    os.fsync = lambda descriptor: None
    torch.set_num_threads(1)
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        return

    # torch keeps each seed, and the stack of its call, until a GPU appears; pytest's stacks are deep
    def seed_the_cpu(seed: int) -> TorchGenerator:
        return torch.default_generator.manual_seed(int(seed))

    torch.manual_seed = seed_the_cpu


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collect tests alone here: the examples of docstrings are those of the packages."""
    return [module for module in (yield) if not isinstance(module, DoctestModule)]


def pytest_collection_finish() -> None:
    """Search for garbage again, ten times less often: most of what it walks through stays to the end."""
    gc.set_threshold(7_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True)
def passes_on_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes reach `caplog` also where an earlier test ran a command, which keeps them to itself."""
    # the oldest pytest that is supported hears loggers alone that pass on what they are told
    monkeypatch.setattr(logging.getLogger("lw2g.progress"), "propagate", True)


@pytest.fixture(scope="session", autouse=True)
def micro_is_read_once() -> Generator[None, None, None]:
    """Each opening of a model reads the embedded network: here once for each size, and copied afterwards."""
    from lw2g_backbones import micro
    from lw2g_testing.tiny import _copied

    read, known = micro._load, dict[Any, Any]()

    def load(path: Path, source: Any, image_size: int | None, config: Any) -> Any:
        if source != "package":
            return read(path, source, image_size, config)
        key = (path, image_size, config)
        if key not in known:
            known[key] = read(path, source, image_size, config)
        return _copied(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(micro, "_load", load)
        yield


QUICK = {
    "baseline.epochs": 2,
    "baseline.batch_size": 8,
    "run.device": "cpu",
    "run.precision": "32-true",
    "run.evaluation_batch": 16,
    "growth.images": 16,
}
FEW_IMAGES = {"benchmark.train": 6, "benchmark.test": 4}
"""For whole runs on the tiny benchmark: two batches an epoch."""
ALL_IMAGES = {"benchmark.train": 12, "benchmark.test": 6}
"""As many as it has by itself."""


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    """All installed plugins and the tiny benchmark and backbone."""
    from lw2g_testing.tiny import tiny_catalogue

    return tiny_catalogue()


@pytest.fixture(scope="session")
def quick(catalogue: Catalogue) -> Callable[..., Resolved]:
    """Resolve an experiment on the tiny components; dotted overrides go before names."""
    from lw2g.config.resolve import resolve

    def make(overrides: dict[str, Any] | None = None, **names: Any) -> Resolved:
        chosen = {"baseline": "dual-prompt", "benchmark": "tiny", "backbone": "tiny"} | names
        images = FEW_IMAGES if chosen["benchmark"] == "tiny" else {}
        return resolve(catalogue, overrides=QUICK | images | (overrides or {}), **chosen)

    return make


@pytest.fixture(scope="session")
def session_of(catalogue: Catalogue, quick: Callable[..., Resolved]) -> Callable[..., Session]:
    """Open the session of an experiment on the tiny components, with all images."""
    from lw2g.learning.session import open_session

    def make(overrides: dict[str, Any] | None = None, **names: Any) -> Session:
        images = {} if "benchmark" in names else ALL_IMAGES
        return open_session(quick(images | (overrides or {}), **names).config, catalogue)

    return make


@pytest.fixture(scope="session")
def finished(
    tmp_path_factory: pytest.TempPathFactory, catalogue: Catalogue, quick: Callable[..., Resolved]
) -> tuple[Path, dict[str, Any]]:
    """The directory and the record of one finished run: dual-prompt x min on the tiny components.

    It records a second measure, which stores something of every task.
    """
    from lw2g.lifecycle.runner import start

    directory = tmp_path_factory.mktemp("finished") / "run"
    return directory, start(quick({"growth.measures": ["energy"]}), catalogue, directory)
