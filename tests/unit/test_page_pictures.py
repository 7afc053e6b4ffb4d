"""Pictures of pages: their words do not overlap, stay within, and can be read in light and in dark."""

from __future__ import annotations

import importlib
import itertools
import math
import re
import runpy
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from browsers import chromium

ROOT = Path(__file__).resolve().parents[2]
PICTURES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("docs", "docs/pictures", "experiments/growth", "experiments/map")
    for path in (ROOT / folder).glob("*.svg")
)
COLUMN, SMALLEST = 358, 9.0
"""The width of a page's text on a telephone, and its smallest letters, in pixels."""
LETTER = 0.52
"""The width of a letter over its height, of common fonts, on average over a word."""


def moved(transform: str) -> np.ndarray:
    """Return the matrix of a transformation."""
    matrix = np.eye(3)
    for name, numbers in re.findall(r"(\w+)\(([^)]*)\)", transform):
        values = [float(number) for number in re.split(r"[ ,]+", numbers.strip())]
        step = np.eye(3)
        if name == "translate":
            step[:2, 2] = (*values, 0.0)[:2]
        elif name == "rotate":
            turn = math.radians(values[0])
            step[:2, :2] = [[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]]
            about = np.array(values[1:3] or (0.0, 0.0))
            step[:2, 2] = about - step[:2, :2] @ about
        else:
            raise ValueError(name)
        matrix = matrix @ step
    return matrix


def boxes(element: ElementTree.Element, place: np.ndarray, size: float) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each text with its left, top, right and bottom."""
    place = place @ moved(element.get("transform", ""))
    size = float((element.get("font-size") or str(size)).removesuffix("px"))
    if element.tag.endswith("}text") and (element.text or "").strip() and element.get("opacity") != "0":
        words = str(element.text)
        width = LETTER * size * len(words)
        begin = {"middle": -width / 2, "end": -width}.get(element.get("text-anchor", ""), 0.0)
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        corners = [(x + begin + a * width, y - b * 0.7 * size, 1.0) for a in (0, 1) for b in (0, 1)]
        ends = np.array([place @ corner for corner in corners])[:, :2]
        yield words, np.array([*ends.min(0), *ends.max(0)])
    for child in element:
        yield from boxes(child, place, size)


@pytest.mark.parametrize("name", PICTURES)
def test_words_of_a_picture_do_not_overlap_and_are_not_cut_off(name: str) -> None:
    """Boxes computed from anchors, turns and sizes; of names above each other at one place, too."""
    root = ElementTree.fromstring((ROOT / name).read_text(encoding="utf-8"))
    _, _, wide, high = map(float, root.get("viewBox", "").split())
    found = list(boxes(root, np.eye(3), 12.0))
    assert found
    cut = [
        words
        for words, (left, top, right, bottom) in found
        if min(left, top) < -1 or right > wide + 1 or bottom > high + 1
    ]
    assert cut == []
    over = []
    for (one, own), (other, theirs) in itertools.combinations(found, 2):
        shared = np.minimum(own[2:], theirs[2:]) - np.maximum(own[:2], theirs[:2])
        if (shared > 1).all():
            over.append((one, other))
    assert over == []


@pytest.mark.parametrize("name", PICTURES)
def test_letters_of_a_picture_can_be_read_on_a_telephone(name: str) -> None:
    """Its narrow form, or it itself where it has none, has no letter below the smallest in a column."""
    path = ROOT / name
    narrow = path.with_name(f"{path.stem}-narrow.svg")
    svg = (narrow if narrow.exists() else path).read_text(encoding="utf-8")
    wide = float(ElementTree.fromstring(svg).get("viewBox", "").split()[2])
    sizes = {float(size) for size in re.findall(r'font-size="([\d.]+)(?:px)?"', svg)}
    assert min(sizes) * min(1.0, COLUMN / wide) >= SMALLEST


def test_a_page_shows_a_picture_in_every_form_that_it_has() -> None:
    """One of the colours of a scheme or of a width has a source for each of its forms beside it."""
    for page in sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/howto/*.md")]):
        text = page.read_text(encoding="utf-8")
        for shown in re.findall(r"\]\((\S+\.(?:svg|png))\)|src=\"(\S+)\"", text):
            path = page.parent / "".join(shown)
            stem = path.stem.removesuffix("-light")
            forms = {one.name for one in path.parent.glob(f"{stem}*{path.suffix}")}
            named = {Path(one).name for one in re.findall(r"[\w./-]+\.(?:svg|png)", text)}
            assert forms - named == set(), page.name


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour (WCAG 2)."""
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    """Return how far two colours are apart (WCAG 2), from 1 to 21."""
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_colours_of_pictures_are_seen_in_light_and_in_dark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters have a contrast of 4.5 with the card, marks one of 3; a stream is told by colour and shape."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    plain = runpy.run_path(str(ROOT / "scripts" / "interval_plot.py"))
    streams = runpy.run_path(str(ROOT / "scripts" / "stream_plot.py"))
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    for scheme, ground in enumerate(plain["CARD"]):
        assert contrast(plain["INK"][scheme], ground) >= 4.5
        marks = [own[scheme] for own in streams["COLOURS"]]
        assert [colour for colour in marks if contrast(colour, ground) < 3] == []
        assert len(set(marks)) == len(marks)
    concepts = runpy.run_path(str(ROOT / "scripts" / "draw_concepts.py"))["STYLE"]
    for scheme in concepts.split("@media"):
        fill = dict(re.findall(r"\.(\w+)\{fill:(#\w{6})", scheme))
        dim = [name for name in "abcd" if contrast(fill[name], fill["card"]) < 4.5]
        assert dim == [name for name in "abcd" if contrast(fill[name], fill["on"]) < 4.5] == []
    assert len(set(streams["SHAPES"])) == len(streams["SHAPES"]) == len(streams["COLOURS"])
    drawn = (ROOT / "docs" / "leaderboard.svg").read_text(encoding="utf-8")
    legend, _, rows = drawn.partition("forwards an image")
    named = dict(re.findall(r'class="(c\d)" transform="[^"]*" d="([^"]*)"', legend))
    assert len(named) == 7
    assert set(re.findall(r'class="(c\d)"[^>]* d="([^"]*)"', rows)) == set(named.items())


def test_an_axis_has_round_steps() -> None:
    """From the least to the greatest value, at most eight of them, zero among them."""
    steps = runpy.run_path(str(ROOT / "scripts" / "interval_plot.py"))["steps"]
    assert steps(-31.7, 22.2) == [-30.0, -20.0, -10.0, 0.0, 10.0, 20.0]
    assert steps(-1.4, 1.51) == [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5]


def shown(*values: object) -> tuple[str, ...]:
    """Return values as Vega names them."""
    return tuple(f"{one:.12g}".replace("-", "−") if isinstance(one, float) else str(one) for one in values)


def test_the_angles_of_table_7_are_those_of_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each point, as the drawing names it; draw it again by experiments/paper/table7.py where this fails."""
    for folder in ("experiments", "experiments/growth", "experiments/paper"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    table7 = importlib.import_module("table7")
    for name in ("table7", "readings"):
        monkeypatch.delitem(sys.modules, name)
    points = [*table7.of_the_paper(), *table7.of_packs()]
    wanted = {shown(*(point[key] for key in ("task", "degrees", "set", "task was"))) for point in points}
    wanted |= {shown(point["task"], point["by ranks alone"]) for point in points if "by ranks alone" in point}
    svg = (ROOT / "docs" / "table7.svg").read_text(encoding="utf-8")
    named = re.findall(r'aria-label="([^"]*; [^"]*)"', svg)
    assert wanted == {tuple(part.rpartition(": ")[2] for part in words.split("; ")) for words in named}


@pytest.mark.parametrize("light", sorted(path.name for path in (ROOT / "docs").rglob("*-light.png")))
def test_a_picture_with_a_dark_twin_is_shown_with_it(light: str) -> None:
    """Readers in the dark scheme see the dark one, in a checkout and on the site, under the same words."""
    dark = light.replace("-light.", "-dark.")
    assert list((ROOT / "docs").rglob(dark))
    shown_on = []
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if "_build" not in page.parts and (light in text or dark in text):
            shown_on.append(page)
            assert text.count(light) == text.count(dark) == len(re.findall(rf'/{dark}">', text))
    assert shown_on


def test_the_site_shows_a_picture_in_the_scheme_of_its_own_switch() -> None:
    """What a checkout shows by screen and system becomes a picture for each scheme and width."""
    for_the_site = runpy.run_path(str(ROOT / "scripts" / "site_pictures.py"))["for_the_site"]
    on_site = for_the_site((ROOT / "docs" / "howto" / "learn.md").read_text(encoding="utf-8"))
    assert "<picture>" not in on_site
    for scheme, (form, width) in itertools.product(
        ("light", "dark"), {"": "wide", "-narrow": "narrow"}.items()
    ):
        shown = f"teach{form}-{scheme}.png\n:class: only-{scheme} {width}\n:alt: A model has"
        assert f"```{{image}} ../pictures/{shown}" in on_site
    concepts = for_the_site((ROOT / "docs" / "concepts.md").read_text(encoding="utf-8"))
    assert "```{image} pictures/set.svg\n:class: wide\n:alt: sets\n```\n\n" in concepts
    assert concepts.count("class: narrow") == concepts.count("class: wide") == 6


@pytest.mark.slow  # a browser takes seconds
def test_a_drawing_follows_the_switch_of_the_site(tmp_path: Path) -> None:
    """In a browser: its scheme, whatever the system has; where it leaves it to the system, the system's."""
    rules = (ROOT / "docs" / "_static" / "outputs.css").read_text(encoding="utf-8")
    shutil.copy(ROOT / "docs" / "carries.svg", tmp_path)
    page_file = tmp_path / "page.html"
    seen = {}
    with chromium() as browser:
        for system, switch in itertools.product(("light", "dark"), ("light", "dark", "auto")):
            page_file.write_text(f'<style>{rules}</style><body data-theme="{switch}"><img src="carries.svg">')
            page = browser.new_page(color_scheme=system)
            page.goto(page_file.as_uri())
            taken = page.locator("img").screenshot()
            seen[system, switch] = np.asarray(Image.open(BytesIO(taken)).convert("L"))[100, 20] < 128
    assert seen == {
        (system, switch): (system if switch == "auto" else switch) == "dark" for system, switch in seen
    }
