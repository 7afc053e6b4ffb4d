"""Every option says what it is, and lw2g asks the option, not its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import attrs
import pytest

from lw2g.config.describe import OWN_OPTIONS
from lw2g.config.roles import keys_of_role, role_of_key
from lw2g.config.sources import place_options
from lw2g.interfaces.options import ROLES, UNCOUNTED, batch_size_of, option, options_of_role, role_of
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.registry.kinds import place_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def installed() -> Catalogue:
    """Return all first-party components."""
    return load_catalogue()


def sections(installed: Catalogue) -> Iterator[tuple[str, type[Any]]]:
    """Yield the places of all options, and their classes."""
    yield from OWN_OPTIONS
    for entry in installed.components():
        component = entry.component
        if component.section:
            yield place_of(component.kind, component.name), component.config


def test_every_option_has_a_role(installed: Catalogue) -> None:
    """Of lw2g's own sections and of every component; what needs no word is part of what is learned."""
    asked = [role_of(field) for _, config in sections(installed) for field in attrs.fields(config)]
    assert set(asked) == set(ROLES)
    assert len(asked) > 500


def test_the_options_of_run_are_no_part_of_a_method_unless_they_change_its_numbers(
    installed: Catalogue,
) -> None:
    """Each option of ``run`` was looked at: a new one has to be put into its place here."""
    (config,) = [config for place, config in OWN_OPTIONS if place == "run"]
    by_role = {role: set(options_of_role(config, role)) for role in ROLES}
    assert by_role["draw"] == {"seed"}
    assert by_role["shown"] == {"next_domain", "probabilities"}
    assert by_role["machine"] == {"device", "evaluation_batch", "workers", "image_memory", "image_disk"}
    assert by_role["learned"] == {
        *("devices", "precision", "deterministic", "compile", "evaluate", "speed", "queries", "protocol")
    }


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("batch_size", {"batch"}),
        ("order", {"draw"}),
        ("order_seed", {"draw"}),
        ("class_order", {"draw"}),
        ("root", {"machine"}),
        ("title", {"title"}),
        ("pool", {"fingerprint"}),
    ],
)
def test_options_of_one_name_are_one_thing(name: str, roles: set[str], installed: Catalogue) -> None:
    """What several components have under one name has the same role in each of them."""
    kinds = {"batch_size": ("baseline", "retrieval"), "pool": ("backbone",)}.get(name, ("benchmark",))
    found = set()
    for entry in installed.components():
        for field in attrs.fields(entry.component.config) if entry.component.kind in kinds else ():
            if field.name == name:
                found.add(role_of(field))
    assert found == roles


def test_a_place_of_a_benchmarks_data_is_of_the_machine(installed: Catalogue) -> None:
    """A path of another machine makes no other row and no other protocol."""
    paths = []
    for name in installed.names("benchmark"):
        config = installed.get("benchmark", name).config
        for option_name, hint in get_type_hints(config).items():
            if Path in (hint, *get_args(hint)):
                paths.append((name, option_name, role_of(attrs.fields_dict(config)[option_name])))
    assert paths
    assert {role for _, _, role in paths} == {"machine"}


@attrs.frozen(kw_only=True)
class Strange:
    """Options of a stranger's method, under other names than ours."""

    images_per_step: int = option(12, "images per step", role="batch")
    where: str = option("here", "where a cache lies", role="machine")
    strength: float = option(0.5, "how strong")


def test_a_method_declares_its_batch_size() -> None:
    """Whatever the option is called; a method that trains nothing has none."""
    assert batch_size_of(Strange(images_per_step=7)) == 7

    @attrs.frozen
    class Nothing:
        batch_size: int = 3

    assert batch_size_of(Nothing()) is None


def test_a_run_is_asked_for_the_options_of_its_own_components(installed: Catalogue) -> None:
    """An option of a stranger's component has the role that the stranger gave it, whatever its name."""
    component = attrs.evolve(installed.get("baseline", "simple-cil"), config=Strange)
    catalogue = installed.with_component(component)
    run = {"baseline": {"name": "simple-cil"}, "benchmark": {"name": "not-installed"}, "retrieval": None}
    assert role_of_key("baseline.where", run, catalogue) == "machine"
    assert role_of_key("baseline.strength", run, catalogue) == "learned"
    # of a component that is not here nothing is known but what others of its kind mean by the name
    assert role_of_key("benchmark.root", run, catalogue) in UNCOUNTED
    assert role_of_key("benchmark.order_seed", run, catalogue) == "draw"
    assert role_of_key("backbone.weights", run, catalogue) == "fingerprint"
    assert role_of_key("run.graph", run, catalogue) == "machine"  # one that is gone
    assert role_of_key("retrieval.temperature", run, catalogue) == "learned"
    assert "baseline.where" in keys_of_role("machine", catalogue)


def test_a_strangers_option_of_the_machine_separates_no_rows(installed: Catalogue) -> None:
    """Rows of a report ask the role, so that two machines with the stranger's own option share one row."""
    from lw2g.results.found_runs import ReportedRun
    from lw2g.results.row_names import settings_of

    catalogue = installed.with_component(
        attrs.evolve(installed.get("baseline", "simple-cil"), config=Strange, presets={}, tuned={})
    )
    rows = []
    for place, strength in (("here", 0.5), ("there", 0.5), ("here", 0.9)):
        config = {
            "baseline": {"name": "simple-cil", "where": place, "strength": strength},
            "benchmark": {"name": "digits", "increment": 2},
            "constraints": {},
            "policy": {"name": "always"},
        }
        run = ReportedRun(
            path=Path(place), state="finished", config=config, record={"protocol": "like-for-like"}
        )
        rows.append(settings_of(run, catalogue).values)
    assert rows[0] == rows[1] != rows[2]


def test_a_benchmark_says_which_options_are_places(installed: Catalogue) -> None:
    """A path of the machine is one, what else is of the machine is none; of all, the first comes first."""

    @attrs.frozen(kw_only=True)
    class Own:
        backend: str = option("pil", "reader", role="machine")
        lists: tuple[Path, ...] = option((), "lists", role="machine")
        cache: Path | None = option(None, "cache", role="machine")
        model: Path | None = option(None, "what is learned from")

    assert place_options(Own) == ["lists", "cache"]
    places = {name: place_options(installed.get("benchmark", name).config) for name in ("folder", "features")}
    assert places == {"folder": ["root", "more_roots", "boxes"], "features": ["file"]}


@pytest.mark.parametrize("package", ["lw2g/results", "plugins/lw2g_page", "plugins/lw2g_store"])
def test_packs_and_reports_name_no_option_of_a_place(package: str, installed: Catalogue) -> None:
    """They ask the benchmark; a stranger's would else leave its paths in a pack."""
    named = set()
    for name in installed.names("benchmark"):
        named |= {*place_options(installed.get("benchmark", name).config)}
    named.remove("file")  # also a word for where weights come from
    paths = list((ROOT / package).rglob("*.py"))
    assert paths
    for path in paths:
        words = [
            node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)
        ]
        assert not named.intersection(words), path
