"""Pages are written from records and pictures by their script, and no link of a page is broken."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lw2g.config.describe import describe_options
from lw2g.config.resolve import resolve
from lw2g.registry.catalogue import load_catalogue

ROOT = Path(__file__).resolve().parents[2]
DOCS, SCRIPTS = ROOT / "docs", ROOT / "scripts"

FIRST_HOUR = ("index", "start", "use", "concepts", "commands")
WITHOUT_GROUND = ("index", "benchmarks", "changelog", "experiments")
"""The page of links, and those that show a file from elsewhere."""

if not DOCS.exists():
    pytest.skip("needs the source tree", allow_module_level=True)


@pytest.fixture(scope="module")
def components(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The generated pages, by path without suffix."""
    folder = tmp_path_factory.mktemp("components")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        runpy.run_path(str(SCRIPTS / "write_components.py"))["write"](folder)
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*.md")
    }


@pytest.fixture(scope="module")
def docstrings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The generated pages of docstrings, by name without suffix."""
    folder = tmp_path_factory.mktemp("reference")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        runpy.run_path(str(SCRIPTS / "write_reference.py"))["write"](folder)
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}


def test_a_page_of_docstrings_has_them_whole(docstrings: dict[str, str]) -> None:
    """What the reference leaves out: types, arguments and errors of functions and of a contract's methods."""
    assert "weights: str | Path | None=None" in docstrings["from-python"].partition("## load")[2]
    assert "- `DataError`: There is no such model" in docstrings["from-python"]
    method = docstrings["baselines"].partition("### Baseline.head_features\n")[2].partition("###")[0]
    assert "`head_features(batch: Batch, routing: Routing) -> Tensor`" in method
    assert "It is what `features` returns; for a head in closed form" in method


def test_the_list_of_components_is_up_to_date() -> None:
    """A changed record changes the list: run scripts/write_components.py docs/components.md."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        written = runpy.run_path(str(SCRIPTS / "write_components.py"))["listing"]()
    assert (DOCS / "components.md").read_text(encoding="utf-8") == written


def test_the_page_of_commands_says_which_policies_bring_constraints() -> None:
    """All but `always` bring the same ones."""
    catalogue = load_catalogue()
    policies = {name: catalogue.get("policy", name).default_constraints for name in catalogue.names("policy")}
    assert policies.pop("always") == ()
    assert set(policies.values()) == {("orthogonal", "cpk")}
    said = "All policies but `always` bring the constraints `orthogonal` and `cpk`"
    assert said in (DOCS / "commands.md").read_text(encoding="utf-8")


def test_the_page_of_sweeps_says_under_which_policy_a_method_runs() -> None:
    """Every method that grows, of prompts or not, runs under one default, and every other under another."""
    catalogue = load_catalogue()
    ran: dict[bool, set[str]] = {True: set(), False: set()}
    for name in catalogue.names("baseline"):
        grows = catalogue.get("baseline", name).growth != "fixed"
        ran[grows].add(resolve(catalogue, baseline=name).config.policy.name)
    (growing,), (fixed,) = ran[True], ran[False]
    page = (DOCS / "howto" / "sweeps.md").read_text(encoding="utf-8")
    said = f"grows](../components.md) runs under `{growing}` and its constraints, any other under `{fixed}`"
    assert said in page


def test_every_component_has_a_page_with_all_its_options(components: dict[str, str]) -> None:
    """Name, summary and every option stand on the page, and the index of the kind links it."""
    for entry in load_catalogue().components():
        name = entry.component.name
        (place,) = [
            path
            for path in components
            if path.endswith(f"/{name}") and f"- {entry.component.kind} of" in components[path]
        ]
        assert f"({place}.md)" in components[place.partition("/")[0]]
        for option in describe_options(entry.component.config):
            assert f"\n| `{option.name}` |" in components[place], f"{name}: {option.name}"


def test_a_page_says_what_the_record_says(components: dict[str, str]) -> None:
    """Ranges, presets, literal values, facts of data and deviations of one known component each."""
    prompt = components["baselines/dual-prompt"]
    assert "| `lr` | float, > 0 | `0.03` |" in prompt
    assert "| `baseline.epochs` | `40` | `50` | `50` |  |" in prompt
    assert "- `gather = reshaped`: a missing transpose" in prompt
    assert "## What differs from the paper\n\n- evaluation.unseen_classes masked; published: scored" in prompt
    assert "- split official: 5994 + 5794 images" in components["benchmarks/cub200"]
    assert "No options." in components["policies/always"]
    assert "`energy`" in components["section-growth"]


def test_every_page_stands_in_the_contents() -> None:
    """A page that no list of docs/index.md names would be missing from the site."""
    listed = re.findall(r"^[\w/-]+$", (DOCS / "index.md").read_text(encoding="utf-8"), flags=re.M)
    pages = {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for pattern in ("*.md", "*.ipynb", "howto/*")
        for path in DOCS.glob(pattern)
    }
    assert pages - {"index"} == set(listed) - {"components/index", "reference/index"}


def test_the_first_hour_is_short() -> None:
    """What a newcomer is sent to has fewer than 5,000 words; marks and the bars of tables are none."""
    pages = [ROOT / "README.md", *(DOCS / f"{name}.md" for name in FIRST_HOUR)]
    text = re.sub("<!--.*?-->", "", "".join(page.read_text(encoding="utf-8") for page in pages))
    assert len([word for word in text.split() if re.search(r"\w", word)]) < 5000


def test_every_page_names_what_it_rests_on() -> None:
    """One paragraph of it does, with a link or a name; what it names of the repository is there."""
    rest = re.compile(r"^Rests on: (.*?)(?:\n\n|\Z)", flags=re.S | re.M)
    of_the_repository = r"`((?:benchmarks|docs|experiments|lw2g|plugins|scripts|tests)/[\w./-]+)"
    for page in sorted([*DOCS.glob("*.md"), *DOCS.glob("howto/*.md")]):
        if page.stem not in WITHOUT_GROUND:
            found = rest.findall(page.read_text(encoding="utf-8"))
            assert len(found) == 1, page.name
            assert re.search(r"`[^`]+`|\]\(", found[0]), page.name
            gone = [path for path in re.findall(of_the_repository, found[0]) if not (ROOT / path).exists()]
            assert gone == [], page.name


def test_no_line_of_a_page_is_lost_on_the_site() -> None:
    """One that begins with a per cent sign is a remark there: "95" at the end of a line, "% ..." below it."""
    for page in FOR_READERS:
        if page.suffix == ".md":
            _, *lines = page.read_text(encoding="utf-8").splitlines()
            assert [line for line in lines if line.startswith("%")] == [], page.name


def test_the_pictures_are_what_their_script_draws() -> None:
    """Changed by hand, a picture would be lost when it is drawn again: run scripts/draw_concepts.py."""
    script = runpy.run_path(str(SCRIPTS / "draw_concepts.py"))
    drawn = script["forms"]()
    there = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "pictures").glob("*.svg")}
    assert there == drawn


FOR_READERS = sorted(
    path
    for folder, pattern in (
        (ROOT, "*.md"),
        (DOCS, "*.md"),
        (DOCS, "*.ipynb"),
        (DOCS / "howto", "*.md"),
        (ROOT / "benchmarks", "*.md"),
        (ROOT / "experiments", "*.md"),
        (ROOT / "experiments", "*/*.md"),
    )
    for path in folder.glob(pattern)
)
"""What people read in a checkout; of the docs this is without what building the site writes."""
ON_SITE = re.compile(r"<!-- site: (.*?) -->", re.DOTALL)
"""What docs/conf.py uncovers on the site."""
LINK = re.compile(r"\]\(([^)#\s]*)(?:#[^)\s]*)?\)")


def shown_on_site() -> dict[Path, str]:
    """Return the files outside docs that a page of the site includes, with the page."""
    return {
        (DOCS / beside).resolve(): page.name
        for page in DOCS.glob("*.md")
        for beside in re.findall(r"^```\{include\} (\S+)", page.read_text(encoding="utf-8"), flags=re.M)
    }


@pytest.mark.parametrize("page", FOR_READERS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_works_in_a_checkout_and_on_the_site(
    page: Path, components: dict[str, str], docstrings: dict[str, str]
) -> None:
    """It leads to a file that the site has, too; on the site alone to pages that are written for it."""
    text = page.read_text(encoding="utf-8")
    for target in LINK.findall(ON_SITE.sub("", text)):
        if "://" in target or not target:
            continue
        linked = (page.parent / target).resolve()
        assert linked.is_file(), target
        if page.is_relative_to(DOCS) and linked.suffix == ".md" and not linked.is_relative_to(DOCS):
            assert linked in shown_on_site(), f"{target}: no page of the site shows it; name it in backquotes"
    written = {f"components/{name}.md" for name in components}
    written |= {f"reference/{name}.md" for name in docstrings}
    for uncovered in ON_SITE.findall(text):
        for target in LINK.findall(uncovered):
            assert (page.parent / target).resolve().relative_to(DOCS).as_posix() in written, target


def test_the_page_of_the_package_has_no_link_into_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its words and tables are those of the README; what only a checkout has is linked by neither."""
    plugin = SimpleNamespace(MetadataHookInterface=object)
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", plugin)
    metadata: dict[str, Any] = {}
    hook = runpy.run_path(str(SCRIPTS / "package_page.py"))["PackagePage"]
    hook.update(hook.__new__(hook), metadata)
    text = metadata["readme"]["text"]
    assert [target for target in LINK.findall(text) if target and "://" not in target] == []
    assert "docs/pictures" not in text
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for kept in ("lw2g start photos model --backbone vit-tiny", "what to use", "| turns |", "https://"):
        assert (kept in text) == (kept in readme), kept


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, those of a file that it includes among them."""
    text = page.read_text(encoding="utf-8")
    for included in re.findall(r"^```\{include\} (\S+)", text, flags=re.MULTILINE):
        text += "\n" + (page.parent / included).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_no_link_leads_to_a_missing_heading() -> None:
    """What a link names behind `#` is a heading of the page that it leads to."""
    missing = []
    for page in FOR_READERS:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
            linked = page.parent / target if target else page
            ours = "://" not in target and linked.suffix == ".md"
            if ours and anchor not in anchors(linked):
                missing.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert missing == []
