"""Tables of pages say what the packs say; a run that learned all at once is read by its stream's tasks."""

from __future__ import annotations

import json
import random
import re
import shutil
import tomllib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from lw2g.errors import DataError
from lw2g.registry.catalogue import load_catalogue
from lw2g.results.summaries import Difference
from lw2g_store.layout import read_protocol
from lw2g_store.stored import Stored, stored_runs
from script_modules import importing

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "experiments" / "store"
CELLS = ROOT / "experiments" / "carries" / "cells"
GAINS = "plugins/lw2g_photos/training_gains.json"

if not STORE.exists():
    pytest.skip("needs the source tree", allow_module_level=True)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """Import a script by name."""
    with importing(monkeypatch, ROOT / "scripts") as module_of:
        yield module_of


FEW = ("turns.0", "tiny.0", "pacs-art-sketch.0", "pacs-art-sketch.1")
"""Streams and orders whose packs are refused in one way or another."""


def of_all_packs(test):
    """Mark a test that needs all packs: one worker reads them, and draws intervals, for all such tests."""
    return pytest.mark.xdist_group("packs")(pytest.mark.slow(test))


@pytest.fixture(scope="module")
def stored() -> Stored:
    """All packs of the repository, which take 15 seconds: for slow tests alone."""
    return stored_runs(STORE, load_catalogue())


@pytest.fixture(scope="module")
def few() -> Stored:
    """The packs of a few orders that learned all classes at once."""
    names = [f"folder/like-for-like/{name}.224.at-once@1" for name in FEW]
    hashes = [read_protocol(STORE, name)["hash"] for name in names]
    return stored_runs(STORE, load_catalogue(), hashes)


@pytest.fixture
def root(tmp_path: Path, script) -> Path:
    """A copy of the pages that have tables."""
    tables = script("tables")
    for page in {
        *tables.PAGES,
        *tables.confirmed_files(),
        *script("prose").pages(),
        *(f"docs/{name}.svg" for name in ("leaderboard", "worth", "frozen", "carries", "growth_score")),
        GAINS,
    }:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    return tmp_path


@of_all_packs
def test_every_pack_holds(stored):
    """None is left out of the tables."""
    assert stored.left_out == []


@of_all_packs
def test_every_page_says_what_the_packs_say(script, stored):
    """Run scripts/tables.py where this fails."""
    assert list(script("tables").differing(stored)) == []


CHANGED = (
    *("README.md", "docs/use.md", "docs/growth.md", "docs/growth_archive.md", "docs/heads.md"),
    *("docs/worth.md", "docs/carries.md", "docs/frozen.md", "docs/frozen_tables.md", "docs/leaderboard.md"),
)


OF_A_TABLE = r"^\|(?: [^|]*\|)+? [+]?(\d\d?\.\d)"
OF_SENTENCES = {
    "README.md": r"were\s+right\s+on\s+(\d\d) to",
    "docs/use.md": r"seen\s+to\s+end\s+at\s+(\d\d\.\d)",
    "docs/frozen.md": r"of\s+the\s+frozen\s+answer:\s+(\d\.\d)\s+to",
    "docs/worth.md": r"signs-second\s+it\s+has\s+\+(\d\.\d)\s",
    "docs/growth.md": r"point\s+below\s+`always`:\s+on\s+development\s+streams\s+(\w+)",
}
"""A number or a verdict in a sentence of a page."""


@of_all_packs
@pytest.mark.parametrize("places_of", [{}, OF_SENTENCES], ids=["tables", "sentences"])
def test_a_changed_number_is_found(places_of, script, stored, root):
    """In whichever table or sentence, with its line; all pages at once: each look makes all tables anew."""
    places = []
    for page in places_of or CHANGED:
        path = root / page
        text = path.read_text()
        number = re.search(places_of.get(page, OF_A_TABLE), text, re.MULTILINE)
        before = text[: number.start(1)]
        path.write_text(before + "99.9" + text[number.end(1) :])
        places.append(f"{page}:{before.count(chr(10)) + 1}")
    found = list(script("tables").differing(stored, root))
    assert sorted(":".join(line.split(":")[:2]) for line in found) == sorted(places)
    assert all("99.9" in line for line in found)


@of_all_packs
def test_a_pack_that_is_gone_or_broken_is_found(script, stored):
    """A table without one order is another table; a pack that does not hold is named."""
    tables = script("tables")
    kept = [each for each in stored.runs if "turns.0.224@" not in each[1].given.protocol]
    found = list(tables.differing(attrs.evolve(stored, runs=kept, left_out=["left out of the store: seal"])))
    assert found[0] == "left out of the store: seal"
    assert any("docs/use.md" in line for line in found)


@of_all_packs
def test_the_packs_of_a_table_are_named_by_row(script, stored, monkeypatch, capsys):
    """`--packs` says stream, pixels, row as its table calls it, order, FAA and pack; then the difference."""
    tables = script("tables")
    monkeypatch.setattr(tables, "stored_runs", lambda *_: stored)
    told = []
    for named in ("growth-224", "leaderboard"):
        assert tables.main(["--packs", named]) == 0
        told.append(capsys.readouterr().out.splitlines())
    lines, every = told
    assert any(line.startswith("cifar-second, 224 px, `lda` (the floor), order 0: FAA ") for line in lines)
    apart = [line for line in every if ", minus `lda`: " in line]
    assert all((ROOT / line.rpartition(", ")[2]).is_dir() for line in every if line not in apart)
    page = (ROOT / "docs" / "leaderboard.md").read_text()
    known = script("stream_tables")._streams()
    shown = [line for line in apart if known[line.partition(",")[0]]["role"] == "report"]
    assert all(re.search(r"`lda`: (\S+ \[.*?\]) over", line)[1] in page for line in shown)
    assert len(shown) < len(apart), "development streams stand on no page, and their packs are named"
    assert len(set(every)) == len(every), "64 and 224 px are told apart"
    assert set(lines) < set(every)


@of_all_packs
def test_cells_and_packs_behind_training_are_named(script, stored, monkeypatch, capsys):
    """`--packs frozen` names a file for each head and run, and the differences that stand on the page."""
    tables = script("tables")
    monkeypatch.setattr(tables, "stored_runs", lambda *_: stored)
    assert tables.main(["--packs", "frozen"]) == 0
    lines = capsys.readouterr().out.splitlines()
    apart = [line for line in lines if " minus the frozen answer: " in line]
    named = [re.split(r", |: ", line)[-1] for line in lines if line not in apart]
    assert all((ROOT / path).exists() for path in named)
    page = (ROOT / "docs" / "use.md").read_text()
    assert len(apart) > 20
    assert all(line.rpartition("answer: ")[2] in page for line in apart)


def test_a_page_without_its_marks_is_refused(script):
    """No mark, no end, or the mark twice."""
    tables = script("tables")
    mark = "<!-- table: it -->"
    page = tables.with_table(f"a\n{mark}\nold\n{tables.END}\nb", "it", iter(["| 1 |"]))
    assert page.split() == f"a {mark} | 1 | {tables.END} b".split()
    for page in ("a", f"{mark} a", f"{mark} {tables.END} {mark}"):
        with pytest.raises(SystemExit, match="must have"):
            tables.with_table(page, "it", iter([]))


@pytest.mark.parametrize("page", ["README.md", "docs/growth.md", "experiments/README.md"])
def test_a_row_without_packs_is_refused(script, root, page):
    """A table that somebody writes by hand, outside all marks; whole numbers and prose may stand."""
    assert list(script("tables").without_packs(root)) == []
    path = root / page
    text = path.read_text()
    path.write_text(text + "\n| cells | 126 |\n| ours | 67.1 |\n")
    found, *_ = script("tables").without_packs(root)
    assert found == f"{page}:{len(text.splitlines()) + 3}: no pack bears the numbers of this line"


@of_all_packs
def test_no_table_prints_a_development_stream_as_a_report_stream(script, stored):
    """Tables of report streams have these alone, whatever packs there are; one asked for both is refused."""
    tables, streams = script("tables"), script("stream_tables")
    known = streams._streams()
    runs = streams.runs_of(STORE, stored)
    for name in tables.streams_tables():
        table = tables.facts()[name]
        roles = {known[line.stream]["role"] for line in tables.table_lines(table, runs)}
        assert roles == {table["role"]}, name
    development = {run.stream for run in runs if known[run.stream]["role"] == "development"}
    for page in tables.PAGES:
        report = re.split(r"[Dd]evelopment\s+streams", (ROOT / page).read_text())[0]
        assert not [name for name in development if re.search(rf"^\| {name} \|", report, re.MULTILINE)], page


def test_the_best_frozen_head_is_found_on_the_same_orders(script, monkeypatch):
    """By hand: `ranpac` ends higher on the orders that all heads have; without runs there is no gain."""
    answered = script("stream_tables").RightAnswers

    def right(*of: int):
        """Return the answers of one task of ten images: so many of them right in each order."""
        even = np.full(10, 0.1)
        return {
            order: answered(images=range(10), right=np.arange(10) < many, shares=even)
            for order, many in enumerate(of)
        }

    monkeypatch.syspath_prepend(str(ROOT / "experiments" / "worth"))
    gains = script("gains")
    plan = {"heads": {"lda": "", "ranpac": "", "klda": ""}, "methods": {"ours": ""}}
    ends = {
        ("turns", "ours"): right(9, 8, 1),
        ("turns", "lda"): right(6, 5, 10),
        ("turns", "ranpac"): right(8, 6),
    }
    found = gains.gain(plan, ends, "turns", "ours")
    # 10 and 20 points on the two orders; at best the images that differ are drawn thrice as often
    assert (found.head, found.apart.n, found.apart.mean) == ("ranpac", 2, pytest.approx(15.0))
    assert found.apart.low == pytest.approx(0.0)
    assert 25.0 < found.apart.high <= 60.0
    assert gains.gain(plan, ends, "tiny", "ours") is None
    loss = gains.over_orders_and_images(right(6), right(7))
    alone = gains.Gain(stream="turns", method="ours", head="lda", apart=loss)
    assert gains.margin([("turns", found)], -0.5) == "holds"
    assert gains.margin([("turns", alone)], -0.5) == "refuted by the mean alone on turns"
    both = gains.margin([("turns", alone), ("tiny", found)], -0.5)
    assert both == "refuted by the mean alone on turns; met on tiny"


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ({"tiny": (0.0, 2.0), "turns": (1.0, 3.0)}, "holds"),
        ({"tiny": (-2.0, 4.0), "turns": (1.0, 3.0)}, "holds; met by the mean alone on tiny"),
        ({"tiny": (-2.0, 4.0), "turns": (-1.0, 3.0)}, "holds by the mean alone"),
        ({"tiny": (-4.0, 2.0), "turns": (1.0, 3.0)}, "refuted by the mean alone on tiny"),
        (
            {"tiny": (-4.0, 2.0), "turns": (-3.0, -1.0)},
            "refuted on turns; refuted by the mean alone on tiny",
        ),
        ({"tiny": (0.0, 4.0), "turns": (-3.0, -1.0)}, "refuted on turns"),
        ({"tiny": (-2.0, 4.0), "turns": (-3.0, -1.0)}, "refuted on turns; met by the mean alone on tiny"),
    ],
)
def test_means_decide_and_intervals_tell_how_surely(script, ends, verdict):
    """On either side of a margin by one rule, so that neither success nor failure is softened."""
    found = {
        name: Difference(mean=(low + high) / 2, low=low, high=high, n=3) for name, (low, high) in ends.items()
    }
    assert script("sentences").at_least(found, 0.0) == verdict
    alike = {"tiny": Difference(mean=0.0, n=3)}
    assert script("sentences").at_least(alike, 0.0) == "holds"
    assert script("sentences").at_least(alike, 0.5) == "refuted on tiny"


@of_all_packs
def test_the_numbers_are_those_that_the_study_found(script, stored):
    """Raw `lda` by the stream's tasks and the carried head end where the study's own cells have them."""
    compared = 0
    for run in script("stream_tables").runs_of(STORE, stored):
        trained = "slca-plus-plus"
        file = CELLS / f"{run.stream}.{run.order}.{trained}.{run.size}.npz"
        frozen = run.method == "simple-cil_lda"
        if not file.exists() or not (frozen or run.method == f"{trained}_always_lda"):
            continue
        cell = np.load(file)
        own = json.loads(str(cell["facts"]))["faa"]
        if frozen:
            # the last variant is raw `lda`; the last state has learned all tasks
            own = float(cell["accuracy"][-1, 0, -1].mean())
        assert run.faa == pytest.approx(own, abs=0.01)
        compared += 1
    assert compared >= 20


def test_a_run_at_once_must_have_the_images_of_its_stream(script, few):
    """Its labels by the tasks of another order's protocol are refused, and a stream that is not stored."""
    tables = script("stream_tables")
    pack = next(
        pack
        for pack, run in few.runs
        if "turns.0.224.at-once" in run.given.protocol and pack.submission["method"] == "simple-cil_lda"
    )

    def by(name: str) -> float:
        named = tables.OF_A_STREAM.fullmatch(f"folder/like-for-like/{name}.224.at-once@1")
        return tables._answers(STORE, named, pack).accuracy

    assert by("turns.0") == pytest.approx(88.4, abs=0.05)
    with pytest.raises(ValueError, match=r"its test images are not those of turns"):
        by("turns.1")
    with pytest.raises(ValueError, match=r"its test images are not those of pacs"):
        by("pacs-art-sketch.0")
    with pytest.raises(DataError, match="no protocol"):
        by("unknown.0")


def test_a_pack_of_no_known_stream_is_named(script, few, monkeypatch):
    """It would stand in no table, and nobody would see that."""
    tables = script("stream_tables")
    known = {name: facts for name, facts in tables._streams().items() if name != "tiny"}
    monkeypatch.setattr(tables, "_streams", lambda: known)
    with pytest.raises(ValueError, match=r"streams.toml has no stream 'tiny'"):
        tables.runs_of(STORE, few)


def test_two_packs_of_one_order_are_refused(script, few):
    """They would count as two orders, and one of them twice in the mean."""
    tables = script("stream_tables")
    first, *_ = (pair for pair in few.runs if tables.OF_A_STREAM.fullmatch(tables.protocol_of(pair[1])))
    twice = SimpleNamespace(runs=[first, first])
    with pytest.raises(ValueError, match="are of the same method and order; remove one"):
        tables.runs_of(STORE, twice)


def test_images_of_two_orders_are_told_by_their_hashes(script, few):
    """New packs have them: one image has one in both orders, and another image under its name is refused."""
    tables = script("stream_tables")
    orders = [f"/pacs-art-sketch.{order}.224.at-once@1/simple-cil_lda/" for order in (0, 1)]
    pairs = [next(pair for pair in few.runs if order in str(pair[0].path)) for order in orders]
    runs = tables.runs_of(STORE, attrs.evolve(few, runs=pairs))
    marks = [[f"{hash(image) % 16**8:08x}" for image in run.answers.images] for run in runs]
    assert marks[0] != marks[1], "the orders have other places for them"

    def marked():
        """Return the two packs with hashes, as new ones have them."""
        return [
            (attrs.evolve(pack, record={**pack.record, "image_hashes": own}), run)
            for (pack, run), own in zip(pairs, marks, strict=True)
        ]

    assert len(tables.runs_of(STORE, attrs.evolve(few, runs=marked()))) == 2
    marks[1].reverse()
    with pytest.raises(ValueError, match=r"its image \('pacs_128/.* is another one than in other packs"):
        tables.runs_of(STORE, attrs.evolve(few, runs=marked()))


def test_development_streams_stand_apart_and_differences_are_paired(script):
    """By hand: two orders; a third of the floor has no pair, so that its 90.0 lowers no difference."""
    tables = script("stream_tables")
    facts = {"path": Path("x"), "size": 224, "kept": 1_000, "forwards": 12.34, "told": 0.0}

    def run(stream: str, order: int, method: str, right: int):
        """Return a run with so many of ten images right."""
        given = np.arange(10) < right
        answers = tables.RightAnswers(
            images=range(10), right=given, shares=np.full(10, 0.1), predicted=given.tolist()
        )
        own = {"stream": stream, "order": order, "method": method}
        return tables.StreamRun(**own, faa=10.0 * right, answers=answers, **facts)

    floor = [run("turns", order, tables.FLOOR, right) for order, right in enumerate((7, 7, 9))]
    ours = [run("turns", 0, "mine", 8), run("turns", 1, "mine", 10), run("caltech", 0, "mine", 5)]
    lines = tables.lines_of([*ours, *floor], "report", 224)
    assert [(line.stream, line.method) for line in lines] == [("turns", tables.FLOOR), ("turns", "mine")]
    shown = list(tables.markdown(lines))
    # the eighth image differs in both orders, two more in the second
    interval = r"\+20\.0 \[\+0\.0, \+[56]0\.0\]"
    assert re.fullmatch(rf"\| mine \| 2 \| 90\.0 \| 80\.0 \| {interval} \| 12\.3 \| 1,000 \|", shown[-1])
    assert shown[-2].startswith("| `lda` (the floor) | 3 | 76.7 | 70.0 | - |")
    alike = tables.lines_of([run("turns", order, tables.FLOOR, 7) for order in range(2)], "report", 224)
    assert "| 2, alike |" in list(tables.markdown(alike))[-1]
    rows = list(tables.matrix(lines, ["mine", "never run", tables.FLOOR]))
    assert rows[0] == "| | turns (3 orders) |"
    assert rows[2:] == [
        f"| mine | {shown[-1].split(' | ')[4]}, n=2 |",
        "| `lda` (the floor) | 76.7 |",
    ]
    (development,) = tables.lines_of(ours[2:], "development", 224)
    assert development.stream == "caltech"


def test_the_floor_of_one_order_stands_for_all_where_all_have_the_same_images(script):
    """By hand: it sees no order; where orders have classes of their own, a difference says over how many."""
    tables = script("stream_tables")
    facts = {"path": Path("x"), "size": 224, "kept": 1, "forwards": 1.0, "told": 0.0}

    def line(stream: str):
        """Return a line of three orders, with their images in turned places, and one order of the floor."""
        every = []
        for order, right in enumerate((4, 4, 2)):
            images = np.roll(np.arange(4), order)
            given = images < right
            answers = tables.RightAnswers(
                images=images.tolist(), right=given, shares=np.full(4, 0.25), predicted=given.tolist()
            )
            own = {"stream": stream, "order": order, "faa": 25.0 * right, "answers": answers}
            every.append(tables.StreamRun(**own, method="mine", **facts))
        answers = attrs.evolve(every[0].answers, right=np.array([True, True, True, False]))
        floor = [attrs.evolve(every[0], method=tables.FLOOR, answers=answers)]
        return tables.Line(stream=stream, method="mine", runs=every, floor=floor)

    same = line("waste-second").less_the_floor
    assert (same.n, same.mean) == (3, pytest.approx((25 + 25 - 25) / 3))
    (shown,) = list(tables.markdown([line("tiny")]))[2:]
    assert "| 3 | 83.3 | 50.0 | +25.0 [" in shown
    assert "] (1 order) |" in shown


@of_all_packs
def test_a_sentence_is_filled_from_packs(script, stored):
    """A field has the table's number; one of a method without packs is refused, and prose by hand as well."""
    streams, sentences = script("stream_tables"), script("sentences")
    runs = streams.runs_of(STORE, stored)
    (line,) = [
        each
        for each in streams.lines_of(runs, "report", 224, ["simple-cil_ridge"])
        if each.stream == "cifar-second"
    ]
    text = "It ends at {ridge/cifar-second/faa}, {ridge/cifar-second/interval} points."
    (found,) = sentences.sentence(text, {"ridge": "simple-cil_ridge"}, 224, runs, {})
    assert found == f"It ends at {line.faa:.1f}, {streams.with_interval(line.less_the_floor)} points."
    ends = [(0.04, 2.0), (0.06, 2.0), (-2.0, -0.04), (-2.0, -0.06), (-1.0, 1.0)]
    assert [streams.side_of_zero(*each) for each in ends] == [0, 1, 0, -1, 0], "as the ends are printed"
    with pytest.raises(SystemExit, match="no pack of nothing on tiny"):
        list(sentences.sentence("{nothing/tiny/faa}", {}, 224, runs, {}))


SENTENCES = [page for page in tomllib.loads((ROOT / "scripts" / "prose.toml").read_text()) if ".md" in page]


@pytest.mark.parametrize("page", SENTENCES)
def test_no_number_of_a_sentence_can_be_added_unseen(script, page):
    """A number in digits or words, or a verdict, in whatever is said by hand; code may have numbers."""
    tables, prose = script("tables"), script("prose")
    # what scripts write is compared whole, so that its lines alone are kept here
    text = tables.MARKED.sub(lambda found: "\n" * found[0].count("\n"), (ROOT / page).read_text())
    assert list(prose.faults(text, tables.MARKED, page)) == []

    last = len(text.splitlines()) + 2
    for added in (
        "It has 2.7.",
        "It takes twelve.",
        "A third is right.",
        "So (one) holds.",
        "Training wins.",
        "Nothing is gained.",
        "Training is worse.",
        "It ends well below the floor.",
        "Accuracy was\nimproved.",
    ):
        found = list(prose.faults(f"{text}\n{added}\n", tables.MARKED, page))
        assert found, added
        lines = (f"{page}:{last}: no pack bears", f"{page}:{last + 1}: no pack bears")
        assert all(each.startswith(lines) for each in found)
    assert list(prose.faults(f"{text}\nOptions as `x=0.5` may stand.\n", tables.MARKED, page)) == []
    assert list(prose.faults(f"{text}\n    lw2g run --set head.mix=0.5\n", tables.MARKED, page)) == []
    for unseen in (
        "    accuracy: 91 %",
        "    lw2g doctor   # 3 seconds",
        "| ours | refuted |",
        '<img alt="2 sets">',
    ):
        assert list(prose.faults(f"{text}\n\n{unseen}\n", tables.MARKED, page)), unseen


def test_words_that_rest_on_a_field_are_named_once_it_says_another_thing(script):
    """A verdict that somebody wrote by hand stands while the packs bear it."""
    prose = script("prose")
    held = [
        found
        for entries in prose.listed().values()
        for reason in entries.values()
        if (found := prose.WHILE.fullmatch(reason))
    ]
    assert {found["study"] for found in held} == {"frozen", "growth"}
    as_listed = {found["field"]: found["value"] for found in held}
    assert list(prose.no_longer_so(lambda _: as_listed)) == []
    named = list(prose.no_longer_so(lambda _: dict.fromkeys(as_listed, "turns (`keep`)")))
    assert len(named) == len(held)
    assert all("which is turns (`keep`); write what the packs say now" in line for line in named)


CONFIRM = "python scripts/tables.py --confirm"


def test_any_changed_word_of_a_page_is_seen(script, root):
    """A word of text, code or the target of a picture, one that is gone or added; a wrapped line is none."""
    tables, confirmed = script("tables"), script("confirmed")
    read = tables.confirmed_files()
    assert list(confirmed.listed()) == read
    assert list(confirmed.faults(root, read, tables.MARKED)) == []
    for page in read:
        path, draw = root / page, random.Random(page)
        text = path.read_text()
        written = [found.span() for found in tables.MARKED.finditer(text)]
        by_hand = [
            word
            for word in re.finditer(r"\S+", text)
            if not any(begin <= word.start() < end for begin, end in written)
        ]
        for word in draw.sample(by_hand, 30):
            head, tail = text[: word.start()], text[word.end() :]
            for other in ("", f"{word[0]} not", f"x{word[0]}"):
                path.write_text(head + other + tail)
                (found,) = confirmed.faults(root, [page], tables.MARKED)
                assert found.startswith(f"{page}: its text differs"), word
                assert found.endswith(f"read what changed against its source, then {CONFIRM} {page}")
        # lines of sentences alone: one of commands or of a table may not be wrapped
        wrapped = re.sub(
            r"^[A-Z][^`\n]*$", lambda line: line[0].replace(". ", ".\n "), text, flags=re.MULTILINE
        )
        path.write_text(wrapped)
        assert list(confirmed.faults(root, [page], tables.MARKED)) == []


def test_confirming_renews_the_named_pages_alone(script, root, monkeypatch, tmp_path):
    """Two pages changed, one confirmed: the other is still named; a block of a script wants none."""
    tables, confirmed = script("tables"), script("confirmed")
    shutil.copy(confirmed.LISTED, tmp_path / "confirmed.toml")
    monkeypatch.setattr(confirmed, "LISTED", tmp_path / "confirmed.toml")
    monkeypatch.setattr(tables, "ROOT", root)
    for page in ("docs/use.md", "docs/heads.md"):
        (root / page).write_text((root / page).read_text() + "\nMore.\n")
    path = root / "docs/growth.md"
    path.write_text(path.read_text().replace("<!-- table: growth-224 -->", "<!-- table: growth-224 -->\n\n9"))
    assert tables.main(["--confirm", "docs/use.md"]) == 0
    (found,) = confirmed.faults(root, tables.confirmed_files(), tables.MARKED)
    assert found.startswith("docs/heads.md: ")


UNFILLED = (
    ("docs/start.md", "<!-- table: extra -->", "<!-- end of table -->"),  # no script has the name
    ("docs/frozen.md", "<!-- cells -->", "<!-- end of cells -->"),  # of another page
    ("docs/carries.md", "<!-- cells -->", "<!-- end of cells -->"),  # for the second time
)


@of_all_packs
def test_marks_that_no_script_fills_are_refused(script, stored, root):
    """Between them anything could stand; confirming the page does not let them pass."""
    for page, begin, end in UNFILLED:
        path = root / page
        path.write_text(f"{path.read_text()}\n{begin}\nTraining gains 9.9 points.\n{end}\n")
    with pytest.raises(SystemExit) as refused:
        script("tables").pages(stored, root)
    wanted = [
        f"{page}: no script fills {begin} here; remove the block with its marks"
        for page, begin, _ in UNFILLED
    ]
    assert sorted(str(refused.value).splitlines()) == sorted(wanted)


def test_every_page_with_numbers_is_looked_at(script):
    """A page with computed blocks has its sentences looked at, but for one that is computed whole."""
    tables, prose = script("tables"), script("prose")
    archives = {"docs/growth_archive.md", "experiments/README.md", "experiments/carries/README.md"}
    assert {*tables.PAGES} - {*prose.pages()} == {tables.LEADERBOARD, *archives}
    fraction = re.compile(r"\d\.\d")
    reasons = [reason for section in prose.listed().values() for reason in section.values()]
    assert not [reason for reason in reasons if fraction.search(reason)], "a reason names what bears a result"


def test_every_page_names_the_command_that_prints_its_blocks(script):
    """By its path; and no page names a block that it does not have."""
    tables = script("tables")
    names = []
    for page in (*tables.PAGES, "docs/howto/store.md"):
        text = (ROOT / page).read_text()
        told = re.findall(r"--print\s+([\w./-]+)", text)
        own = [tables.name_of(block) for block in tables.MARKED.finditer(text)]
        assert page in told or not own, page
        assert {*told} <= {*own, page}, page
        names += own
        packs = re.findall(r"scripts/tables\.py\s+--packs\s+([\w-]+)", text)
        assert {*packs} <= {*tables.streams_tables(), "leaderboard"}, page
    assert len(names) == len({*names}), "a name is of one block"


@of_all_packs
def test_the_readme_leaves_out_no_report_stream_that_was_trained_on(script, stored):
    """A row for each stream on which the row of `--trained` has a pack, whatever it found."""
    tables, streams = script("tables"), script("stream_tables")
    runs = streams.runs_of(STORE, stored)
    trained = tables.of_experiment("frozen", "frozen_results").METHODS["stopped-1"]
    wanted = {line.stream for line in streams.lines_of(runs, "report", 224, [trained])}
    (block,) = tables.blocks({"README.md": (ROOT / "README.md").read_text()}, "headline")
    assert {*re.findall(r"^\| ([a-z][\w-]+) \|", block, re.MULTILINE)} == wanted


def test_a_block_is_printed_as_its_page_has_it(script):
    """By its name, or all of its page."""
    tables = script("tables")
    page = "a\n<!-- table: one -->\n\n| 1 |\n\n<!-- end of table -->\n"
    page += "<!-- gains -->\n\n2\n\n<!-- end of gains -->\n"
    written = {"docs/a.md": page, "docs/b.md": "<!-- frozen: three -->\n\n3\n\n<!-- end of frozen -->"}
    assert list(tables.blocks(written, "one")) == ["## one\n\n| 1 |"]
    assert list(tables.blocks(written, "docs/a.md")) == ["## one\n\n| 1 |", "## gains\n\n2"]
    assert list(tables.blocks(written, "four")) == []


def test_what_the_list_of_numbers_has_stands_on_its_page(script, root):
    """An entry that no sentence needs any more is named, so that the list does not grow over results."""
    tables = script("tables")
    path = root / "README.md"
    path.write_text(path.read_text().replace("23 MB", "a little"))
    assert list(tables.without_packs(root)) == [
        "README.md: prose.toml lists '23 MB', which its sentences do not have"
    ]


def test_every_report_stream_says_what_a_choice_has_seen(script):
    """`shares` and `touched` stand in streams.toml, from which pages print them."""
    known = script("stream_tables")._streams()
    lacking = [
        f"{name}: {key}"
        for name, facts in known.items()
        if facts["role"] == "report"
        for key in ("shares", "touched")
        if not facts.get(key)
    ]
    assert not lacking


@of_all_packs
def test_the_leaderboard_begins_with_every_method_that_ran_on_all_streams(script, stored):
    """A list by hand left out one that is above the floor as often as those that it named."""
    streams, board = script("stream_tables"), script("write_leaderboard")
    lines = streams.lines_of(streams.runs_of(STORE, stored), "report", 224)
    number = len({line.stream for line in lines})
    ran = Counter(line.method for line in lines if line.method != streams.FLOOR)
    on_all = {streams.LABELS[method] for method, count in ran.items() if count == number}
    told = board.in_short(lines).replace("\n", " ")
    assert {label for label in streams.LABELS.values() if f"{label} (" in told} == on_all
    assert f"beside `lda` {len(on_all)} rows ran on all {number} streams." in told


@of_all_packs
def test_the_leaderboard_counts_what_is_kept_alike_and_means_of_all_rows(script, stored):
    """One order of a row was stored by an older way; the difference of means was that of two rows."""
    streams, board = script("stream_tables"), script("write_leaderboard")
    lines = streams.lines_of(streams.runs_of(STORE, stored), "report", 224)
    unlike = [(line.stream, line.method) for line in lines if len({run.kept for run in line.runs}) > 1]
    assert unlike == []
    ends = [(run.faa, 100 * run.answers.right.mean()) for line in lines for run in line.runs]
    apart = max(abs(by_task - by_image) for by_task, by_image in ends)
    assert f"over images differ by up to {apart:.1f} points" in " ".join(board.legend(lines))


def test_the_leaderboard_says_of_how_many_intervals_some_exclude_zero():
    """Both are the numbers that a reader counts in the rows of several orders."""
    page = (ROOT / "docs" / "leaderboard.md").read_text()
    table, _, rest = page.partition("<!-- end of table -->")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line[:1] == "|"
    ]
    several = [row[4] for row in rows if re.match(r"[2-9]", row[1]) and "[" in row[4]]
    ends = [re.findall(r"[+-]\d+\.\d", cell)[1:] for cell in several]
    sure = [low for low, high in ends if float(low) > 0 or float(high) < 0]
    told = re.search(r"Of (\d+) intervals over several orders (\d+) exclude zero", " ".join(rest.split()))
    assert told
    assert told.groups() == (str(len(several)), str(len(sure)))


@of_all_packs
def test_lines_stand_by_their_difference_from_the_floor_of_the_same_orders(script, stored):
    """On the leaderboard, a table a stream, those of fewer orders than most behind; each has a floor."""
    streams, board = script("stream_tables"), script("write_leaderboard")
    runs = streams.runs_of(STORE, stored)
    for role in ("report", "development"):
        lines = board.by_accuracy(streams.lines_of(runs, role, 224))
        apart = {line.stream: [] for line in lines}
        orders = {
            stream: Counter(len(line.runs) for line in lines if line.stream == stream) for stream in apart
        }
        most = {stream: max(own, key=lambda number: (own[number], number)) for stream, own in orders.items()}
        for line in lines:
            less = line.less_the_floor
            assert less is not None or line.method == streams.FLOOR, (line.stream, line.method)
            complete = line.method == streams.FLOOR or len(line.runs) >= most[line.stream]
            apart[line.stream].append((complete, 0.0 if less is None else less.mean))
        assert all(own == sorted(own, reverse=True) for own in apart.values())
    lines = board.by_accuracy(streams.lines_of(runs, "report", 224))
    page = (ROOT / "docs" / "leaderboard.md").read_text()
    for stream in dict.fromkeys(line.stream for line in lines):
        own = [line for line in lines if line.stream == stream]
        rows = [line.split(" | ") for line in streams.markdown(own)][2:]
        names = [streams.LABELS.get(line.method, line.method) for line in own]
        assert [row[0].strip("| ") for row in rows] == names
        assert f"**{stream}**\n\n" + "\n".join(streams.markdown(own)) in page
