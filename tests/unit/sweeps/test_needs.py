"""What a cell needs is found by what components declare, whatever their options are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from lw2g.interfaces.options import option
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.sweeps.grid import Cell
from lw2g.sweeps.needs import Need, needs_of


@attrs.frozen(kw_only=True)
class Shelf:
    """Options of a stranger's benchmark."""

    shelf: Path | None = option(
        None, "where the images lie", converter=attrs.converters.optional(Path), role="machine"
    )
    more: tuple[Path, ...] = option((), "further shelves", role="machine")
    increment: int = option(2, "new classes per task")


def lacks_a_shelf(config: Any) -> tuple[str, str] | None:
    return ("shelf", "ask the librarian") if config.shelf is None else None


@pytest.fixture
def catalogue() -> Catalogue:
    """Return the catalogue in which the benchmark ``folder`` is a stranger's."""
    installed = load_catalogue()
    folder = installed.get("benchmark", "folder")
    return installed.with_component(
        attrs.evolve(
            folder, config=Shelf, lacks=lacks_a_shelf, unread=lambda _: {}, like_for_like={}, rehearsal={}
        )
    )


def data(catalogue: Catalogue, **options: Any) -> Need:
    """Return what a cell of the benchmark needs of data."""
    settings = {"baseline.name": "simple-cil", "benchmark.name": "folder"}
    settings |= {f"benchmark.{name}": value for name, value in options.items()}
    return needs_of(Cell(settings=settings, label=""), catalogue)[0]


def test_a_strangers_data_are_looked_for_where_its_options_say(catalogue: Catalogue, tmp_path: Path) -> None:
    """A place that is there is no need; one that is not, or that nobody names, is told with its option."""
    assert data(catalogue, shelf=str(tmp_path)) == Need(what=f"folder {tmp_path}", here=True)
    lost = tmp_path / "lost"
    assert data(catalogue, shelf=str(lost)) == Need(
        what=f"folder {lost}", here=False, remedy="--set benchmark.shelf=PLACE"
    )
    assert data(catalogue, shelf=str(tmp_path), more=[str(tmp_path), str(lost)]) == Need(
        what=f"folder {tmp_path} {tmp_path} {lost}", here=False, remedy="--set benchmark.more=PLACE"
    )
    assert data(catalogue) == Need(
        what="folder", here=False, remedy="ask the librarian, then --set benchmark.shelf=FOLDER"
    )


def test_the_weights_of_a_timm_model_are_those_of_its_name() -> None:
    """Its options say which repository; a bare architecture has none."""
    timm = load_catalogue().get("backbone", "timm")
    model = "vit_tiny_patch16_224.augreg_in21k"
    assert timm.repository(timm.config(model=model)) == f"timm/{model}"
    assert timm.repository(timm.config(model="vit_tiny_patch16_224")) == ""
    preset = load_catalogue().get("backbone", "sup21k-augreg")
    assert preset.repository(preset.config()) == preset.hub != ""


def test_weights_in_a_folder_or_in_the_home_are_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run would take them; what is not there is a need."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "hub").mkdir()
    settings = {"baseline.name": "simple-cil", "benchmark.name": "glyphs", "backbone.name": "sup21k"}
    for weights, here in ((str(tmp_path / "hub"), True), ("~/hub", True), ("~/lost", False)):
        cell = Cell(settings=settings | {"backbone.weights": weights}, label="")
        assert needs_of(cell, load_catalogue())[1].here == here, weights
