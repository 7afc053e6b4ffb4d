"""A store with one honest pack, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lw2g.config.resolve import resolve
from lw2g.lifecycle.runner import start
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g_store.layout import add_protocol, init
from lw2g_store.submit import submit
from store_packs import SMALL, TOLD


@pytest.fixture(scope="session")
def known() -> Catalogue:
    return load_catalogue()


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory, known: Catalogue) -> tuple[Path, Path, Path]:
    """A run on glyphs, a store with its pack, and the pack's folder."""
    place = tmp_path_factory.mktemp("honest")
    options = {f"benchmark.{key}": value for key, value in SMALL.items()}
    options |= {"run.device": "cpu", "run.precision": "32-true", "run.evaluation_batch": 16, "run.seed": 3}
    options["baseline.features"] = 200
    resolved = resolve(known, overrides=options, baseline="ranpac", benchmark="glyphs")
    record = start(resolved, known, place / "run")
    init(place / "store")
    add_protocol(place / "store", record, [3, 4])
    return place / "run", place / "store", submit(place / "run", known, place / "store", TOLD).path


@pytest.fixture
def store(honest: tuple[Path, Path, Path], tmp_path: Path) -> Path:
    """A copy of the store."""
    return Path(shutil.copytree(honest[1], tmp_path / "store"))
