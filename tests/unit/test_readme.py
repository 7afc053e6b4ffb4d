"""The README stays true where a program can tell."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from lw2g.cli.main import main
from lw2g.registry.catalogue import load_catalogue

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("mark", ["run", "test"])
def test_a_setup_command_is_one_line(mark: str) -> None:
    """The first fenced block after each mark holds exactly one command."""
    after = README.split(f"<!-- setup:{mark} -->", 1)[1]
    block = after.split("```", 2)[1]
    assert len([line for line in block.splitlines() if line.strip()]) == 1


def listed_methods() -> str:
    """Return the folded list of methods."""
    (listed,) = re.findall("<details>(.*?)</details>", README, flags=re.DOTALL)
    return str(listed)


def test_the_number_of_methods_is_that_of_the_list() -> None:
    """The first list counts the methods that the folded list names, and the controls among them."""
    named = re.findall(r"`([\w-]+)`", listed_methods())
    assert len(named) == len(set(named))
    assert f"{len(named)} methods" in README
    controls = {
        entry.component.name
        for entry in load_catalogue(disabled=()).components()
        if entry.component.kind == "baseline" and entry.origin.first_party and entry.component.control
    }
    _, _, listed = listed_methods().partition("- Controls: ")
    assert {*re.findall(r"`([\w-]+)`", listed)} == controls
    assert len(controls) == 6
    assert "six of them controls" in README


def test_the_readme_is_short() -> None:
    """Two screens: fewer than 800 words; what is folded, marks, tags and the bars of tables are none."""
    unfolded = re.sub("<details>.*?</details>|<!--.*?-->|<[^>]*>", "", README, flags=re.DOTALL)
    words = [word for word in unfolded.split() if not set(word) <= set("|-:")]
    assert len(words) < 800


def test_listed_methods_are_there() -> None:
    """Each is a baseline of lw2g, with the year of its paper; a new one joins the list with its release."""
    listed = listed_methods()
    own = {
        entry.component.name: entry.component
        for entry in load_catalogue(disabled=()).components()
        if entry.component.kind == "baseline" and entry.origin.first_party
    }
    for name in re.findall(r"`([\w-]+)`", listed):
        citation = own[name].citation
        if citation:
            _, _, after = listed.partition(f"`{name}`")
            assert citation[-4:] in after.partition(")")[0], name


def test_measured_methods_are_in_bold() -> None:
    """Those with packs of report streams at 224 px, which the leaderboard shows; the page counts them."""
    streams = tomllib.loads((ROOT / "experiments" / "streams.toml").read_text(encoding="utf-8"))["stream"]
    packs = ROOT / "experiments" / "store" / "runs" / "folder" / "like-for-like"
    measured = {
        method.name.partition("_")[0]
        for name, facts in streams.items()
        if facts["role"] == "report"
        for method in packs.glob(f"{name}.*.224*@*/*")
    }
    assert {*re.findall(r"\*\*`([\w-]+)`\*\*", listed_methods())} == measured
    assert len(measured) == 8
    assert "[leaderboard](docs/leaderboard.md) of eight" in README


def test_no_named_file_is_missing() -> None:
    """Files and folders that the README names exist."""
    named = re.findall(r"`((?:lw2g|plugins|scripts|experiments|docs|tests)/[\w./-]+)`", README)
    linked = re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", README)
    for path in named + linked:
        assert (ROOT / path).exists(), path


def test_every_plugin_package_is_registered_and_type_checked() -> None:
    """A package under plugins/ is in mypy's list, and its records have an entry point."""
    text = (ROOT / "pyproject.toml").read_text()
    for folder in (ROOT / "plugins").iterdir():
        if folder.name.startswith("lw2g_") and not folder.name.endswith(".egg-info"):
            if (folder / "plugin.py").is_file():
                assert f'"{folder.name}.plugin"' in text, folder.name
            assert f'"{folder.name}"' in text, folder.name


def test_the_help_begins_as_the_page_does() -> None:
    """What lw2g is stands in one sentence, the same for whoever reads either first."""
    sentence = main.help.partition("\n")[0] if main.help else ""
    assert README.startswith(f"# lw2g\n\n{sentence} ")
