"""The page as a file: what it holds and refuses, and that a real browser shows all of it."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lw2g
import written_runs
from browsers import chromium
from lw2g.cli.main import main
from lw2g.results.cells import Cell
from lw2g.results.columns import COLUMNS, DEFAULT_COLUMNS
from lw2g.results.found_runs import find_runs
from lw2g.results.summaries import Difference
from lw2g.results.table import Row, tables_of
from lw2g_page import page, result_lines, thumbnails
from lw2g_page.figures import FIGURES
from lw2g_page.page_head import (
    Answer,
    _signed,
    answer_of,
    conditions_above,
    question_of,
    reference_of,
    shown_of,
)
from lw2g_page.report_command import for_a_terminal
from lw2g_page.result_lines import ResultCell, results_of

OF_ONE = "FAA, the mean over tasks; 95 % interval 39.1 to 86.2, of 12 test images"
ALONE = "a single pair tells nothing of other seeds and orders"
NASTY = "</script><img src=http://nowhere.invalid/x onerror=alert(1)>"


OTHERS = written_runs.SAMPLES.copy()
"""Predictions of which as many are right, of other images."""
OTHERS[[0, 2], 2] = 1


def report(*words: str | Path) -> Any:
    """Run ``lw2g report``."""
    return CliRunner().invoke(main, ["report", *map(str, words)])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the drawing library, which takes seconds to put together."""
    monkeypatch.setattr(page, "_script", lambda: "")


@pytest.mark.usefixtures("quick")
def test_a_page_is_one_file_that_asks_for_nothing(write_full_run, tmp_path):
    """Every figure is there, names cannot break out, and the same runs give the same file."""
    names = ["ant", NASTY, "cat", "dog", "elk", "fox"]
    for policy in ("min", "always"):
        write_full_run(policy, {"class_names": names}, policy=policy)
    out = tmp_path / "new" / "out.html"
    result = report(tmp_path, "--html", out)
    assert (result.exit_code, result.output) == (0, f"{out}: {out.stat().st_size / 1e6:.1f} MB\n")
    text = out.read_text(encoding="utf-8")
    assert text.startswith(page.MARK)
    assert re.findall(r'data-figure="(\w+)"', text) == [
        *(figure.name for figure in FIGURES if figure.scope == "rows"),
        *(figure.name for figure in FIGURES if figure.scope == "run"),
    ]
    assert "default-src 'none'" in text
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
    assert "nowhere.invalid" not in text
    assert "lw2g run \\\n" in text
    assert report(tmp_path, "--html", out).exit_code == 0
    assert out.read_text(encoding="utf-8") == text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--format", "md"), "--format md: --html writes a page and no text; leave one of the two out"),
        (("--against", "nothing"), "--against: 'nothing' is no row of digits"),
        (("--against", "x one"), "--against: no run of 'x one' is finished; PLACE, interrupted before"),
        (("--against", "named"), "--against: no run of 'named' is finished; PLACE, interrupted before"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(write_full_run, tmp_path, words, told):
    """Options that contradict each other, and rows that are not there; nothing is written."""
    write_full_run("run", policy="min")
    begun = write_full_run("begun", policy="one").path
    (begun / "record.json").unlink()
    cells = [{"name": begun.name, "row": "named"}]
    (tmp_path / "sweep.json").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    result = report(tmp_path, "--html", tmp_path / "out.html", *words)
    assert result.exit_code == 2
    assert told.replace("PLACE", str(begun)) in result.output
    assert not (tmp_path / "out.html").exists()


@pytest.mark.usefixtures("quick")
def test_cells_that_have_not_begun_are_named(write_full_run, tmp_path):
    """On the page, in text and by the command, of the sweep that is asked for and not of one of its cells."""
    run = write_full_run("many/run", policy="min")
    cells = [{"name": name, "label": f"row {name}"} for name in ("run", "b", "c", "../d", "e\0")]
    (run.path.parent / "sweep.json").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    told = f"cells of '{run.path.parent}' that have not begun: 'row b', 'row c', 'row ../d' and 1 more"
    write_full_run("many/removed", policy="one")
    left = f"runs in '{run.path.parent}' that are no cells of its grid, and count: 'removed'"
    page = tmp_path / "out.html"
    assert f"note: {told}\nnote: {left}\n" in report(tmp_path, "--html", page).stderr
    assert told in html.unescape(page.read_text(encoding="utf-8"))
    assert told in report(run.path.parent).stdout.replace("\\", "")  # as Markdown escapes names
    assert "have not begun" not in report(run.path).output


@pytest.mark.usefixtures("quick")
def test_only_reports_are_written_over(write_full_run):
    """A file that is no report stays as it is."""
    run = write_full_run("run", policy="min")
    before = (run.path / "record.json").read_bytes()
    result = report(run.path, "--html", run.path / "record.json")
    assert result.exit_code == 2
    assert "exists and is not a report; choose another name, or remove it" in result.output
    assert (run.path / "record.json").read_bytes() == before


@pytest.mark.usefixtures("quick")
def test_a_page_is_called_a_page(write_full_run, tmp_path):
    """The endings that work are named, and nothing is written."""
    run = write_full_run("run", policy="min")
    result = report(run.path, "--html", tmp_path / "out.pdf")
    assert result.exit_code == 2
    assert "out.pdf' would be a page and no .pdf; end its name in .html or .htm" in result.output
    assert not (tmp_path / "out.pdf").exists()
    assert "--html: " in result.output


@pytest.mark.usefixtures("quick")
def test_a_page_that_a_program_cannot_save_names_the_argument(write_full_run, tmp_path):
    """And no option of the command."""
    made = lw2g.report(write_full_run("run", policy="min").path)
    (tmp_path / "notes.html").write_text("mine")
    for name, told in (("out.pdf", "would be a page"), ("notes.html", "exists and is not a report")):
        with pytest.raises(lw2g.ConfigError, match=f"^out: '.*{name}' {told}"):
            made.save(tmp_path / name)


@pytest.mark.parametrize(
    ("streams", "kind"),
    [
        (["classes", None], "Class-incremental"),
        (["domains"], "Domain-incremental"),
        (["repetition"], "Continual"),
        (["domains", "classes"], "Continual"),
    ],
)
def test_a_page_says_what_kind_of_learning_it_is(streams, kind):
    """Tasks that bring domains are no class-incremental learning; an older run has no option and classes."""
    options = [{} if stream is None else {"benchmark.stream": stream} for stream in streams]
    runs = [SimpleNamespace(options=of_run) for of_run in options]
    assert page._kind_of(SimpleNamespace(rows=[SimpleNamespace(runs=runs)])) == kind


@pytest.mark.usefixtures("quick")
def test_the_run_that_is_shown_first_is_no_lucky_one(write_full_run, tmp_path):
    """Of the row that ends highest it is the run nearest the mean, and the page says so; one run is none."""
    shown = tmp_path / "out.html"
    for seed, faa in enumerate((60.0, 72.0, 90.0)):
        write_full_run(f"min{seed}", {"metrics.faa": faa}, policy="min", overrides={"run.seed": seed})
    write_full_run("always", {"metrics.faa": 73.0}, policy="always")
    assert report(tmp_path, "--html", shown).exit_code == 0
    text = html.unescape(shown.read_text(encoding="utf-8"))
    assert re.findall(r"<option .* selected>(.*)</option>", text) == ["hide-prompt x min, seed 1"]
    assert "Shown first is the run nearest its row's mean." in text
    assert report(tmp_path / "always", "--html", shown).exit_code == 0
    assert "nearest" not in shown.read_text(encoding="utf-8").partition("<script")[0]


@pytest.mark.usefixtures("quick")
def test_a_page_names_the_data_and_the_best(write_full_run, tmp_path):
    """The title is for readers who know no lw2g; one run earns no bold; what differs per run is said once."""
    write_full_run("min", policy="min")
    write_full_run("always", {"metrics.faa": 60.0}, policy="always")
    assert report(tmp_path, "--html", tmp_path / "out.html", "--columns", "faa").exit_code == 0
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "<title>Class-incremental learning on digits</title>" in text
    assert ">Class-incremental learning on digits</h1>" in text
    asked = "What share of the test images does each of 2 configurations get right in the end"
    assert f"{asked}, and how far is that from hide-prompt x always, the first row?" in text
    head = text[: text.index("<h2")]
    (answer,) = re.findall(r'<p class="answer">(.*)</p>', head)
    right = f"<strong>66.7 %</strong> right after 3 tasks ({OF_ONE}): "
    assert answer.startswith(f"{right}hide-prompt x min, the best of 2")
    conditions = dict(re.findall(r"<dt>(.*)</dt><dd>(.*)</dd></div>\n", head))
    assert conditions == {
        "Data": "digits, 6 classes, 2 a task, 3 tasks, 12 test images, data bbbbbbbb",
        "Backbone": "micro cccccccc",
        "Protocol": "like-for-like (changed: benchmark.test_resize)",
        "Runs": "2 runs: seed 42, one class order",
    }
    assert 'class="best"' not in text
    assert "not tested which row is ahead in FAA" in text
    assert "± is one sample standard deviation" not in text  # of a single run each


@pytest.mark.usefixtures("quick")
def test_the_footer_has_the_command_that_makes_the_page(write_full_run, tmp_path):
    """With --mix, --columns and --against, which without --mix would be refused: it makes the same page."""
    write_full_run("like-for-like", policy="min")
    write_full_run("official", {"protocol": "official"}, policy="always")
    first, second = tmp_path / "first.html", tmp_path / "second.html"
    words = ["--columns", "faa,ffm", "--against", "always", "--mix", "protocols"]
    assert report(tmp_path, "--html", first, *words[:2]).exit_code == 2
    assert report(tmp_path, "--html", first, *words).exit_code == 0
    text = first.read_text(encoding="utf-8")
    (footer,) = re.findall(r"<footer>.*<code>(.*)</code></footer>", text)
    command = shlex.split(html.unescape(footer))
    assert command == ["lw2g", "report", str(tmp_path), *words, "--html", "OUT.html"]
    assert report(*command[2:-1], second).exit_code == 0
    assert second.read_text(encoding="utf-8") == text


def test_a_terminal_shows_columns_below_each_other():
    """Cells have the width of their column, an escaped bar is no end of one, and words stay whole."""
    text = "### x\n\n| row | FAA |\n| --- | --- |\n| a \\| b | 7.5 |\n| c\\[d\\] | 9.25 |\n\n- one two\\_3\n"
    assert for_a_terminal(text, 9).splitlines() == [
        "### x",
        "",
        "| row    |  FAA |",
        "| ------ | ---- |",
        "| a \\| b |  7.5 |",
        "| c[d]   | 9.25 |",
        "",
        "- one",
        "  two_3",
    ]


def test_a_unit_stays_beside_its_quantity():
    """The head of a narrow column breaks between words, never before the unit."""
    assert result_lines._with_its_unit("evidence s") == "evidence\N{NO-BREAK SPACE}s"
    assert result_lines._with_its_unit("training mflop") == "training\N{NO-BREAK SPACE}mflop"
    assert result_lines._with_its_unit("chance PRA") == "chance PRA"
    said = [
        result_lines._in_words(ResultCell(*cell)) for cell in (("evidence s", "0"), ("n", "3"), ("FFM", "1"))
    ]
    assert said == ["evidence 0 s", "3 runs each", "FFM 1"]


@pytest.mark.usefixtures("quick")
def test_a_line_never_breaks_inside_an_option(write_full_run, tmp_path):
    """In the lead, the answer and the table the name of an option is whole; other names stay text."""
    for head in ("cosine", "auto"):
        write_full_run(head, baseline="simple-cil", overrides={"baseline.head": head})
    out = tmp_path / "out.html"
    assert report(tmp_path, "--html", out, "--against", "recommended").exit_code == 0
    text = out.read_text(encoding="utf-8")
    visible = text[text.index("<h1") : text.index("<select")]
    whole = '<span class="whole">(--recommended)</span>'
    assert visible.count(whole) == visible.count("(--recommended)") >= 4
    assert page._with_whole_options("<b> a-b --x-y") == '&lt;b&gt; a-b <span class="whole">--x-y</span>'


def test_published_values_share_the_cell_of_ours():
    """Their columns go, so that the table fits; a row without one has nothing."""
    ours, theirs = Cell(value="80.5", std="0.7"), Cell(value="85.9", std="0.1", note=" *")
    head = ["row", "n", "FAA", "paper FAA", "minus paper", "PRA", "paper PRA", "minus paper"]
    none = Cell(value="-")
    line = result_lines._with_published(["x", "2", ours, theirs, Cell(value="-5.4"), ours, none, none], head)
    assert line == [
        ResultCell("n", "2"),
        ResultCell("FAA", ours, "paper 85.9 ± 0.1 *"),
        ResultCell("PRA", ours),
    ]


def test_columns_are_what_rows_differ_in(write_full_run, installed, tmp_path):
    """Options have columns; what is equal is said above, unless it was asked for."""
    for lr in (0.01, 0.02):
        write_full_run(f"lr-{lr}", policy="min", overrides={"baseline.lr": lr, "baseline.epochs": 5})
    write_full_run("control", {"metrics.faa": 60.0, "metrics.ssp": None}, baseline="simple-cil")
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    results = results_of(table, [COLUMNS[name] for name in DEFAULT_COLUMNS], [COLUMNS["faa"], COLUMNS["bwt"]])
    assert [one.title for one in results.head] == ["baseline.lr", "FAA"]  # as --set takes it
    assert [(line.label, [str(cell.content) for cell in line.cells]) for line in results.lines] == [
        ("simple-cil", ["-", "60.00"]),
        ("hide-prompt[lr=0.01,epochs=5] x min", ["0.01", "66.67"]),
        ("hide-prompt[lr=0.02,epochs=5] x min", ["0.02", "66.67"]),
    ]
    assert results.same == ["The same in all rows: 1 run each, BWT -37.50."]
    untrained = {"images_per_second": None, "flops.training_per_image": None}
    write_full_run(
        "frozen", untrained, baseline="ranpac", overrides={"baseline.lr": 0.3, "baseline.adapt": "none"}
    )
    (both,) = tables_of(list(find_runs([tmp_path])), installed)
    shown = dict(zip([row.label for row in both.rows], both.options.values, strict=True))
    # of lr it makes no use; what one row alone chooses is a column, an equal number of several is none
    assert both.options.keys == ["baseline.lr", "baseline.adapt"]
    assert shown["ranpac[lr=0.3,adapt=none]"] == ("", "none")
    assert shown["simple-cil"] == ("", "")
    wanted = results_of(table, [COLUMNS["bwt"]], [COLUMNS["bwt"]])
    assert [one.title for one in wanted.head] == ["baseline.lr", "n", "BWT"]


def test_a_row_has_one_name_on_the_page(write_full_run, installed, tmp_path):
    """That of the table and of --against stands in the lead, the answer, legends, runs and choices."""
    for head in ("lda", "cosine"):
        overrides = {"baseline.head": head}
        write_full_run(head, {"metrics.faa": 50.0}, baseline="simple-cil", overrides=overrides)
    write_full_run("none", baseline="ranpac", overrides={"baseline.adapt": "none"})
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    labels = ["simple-cil", "simple-cil[head=lda]", "ranpac[adapt=none]"]
    assert sorted(row.label for row in table.rows) == sorted(labels)
    reference = table.row("simple-cil[head=lda]")
    assert question_of(table, reference, named=True).endswith("how far is that from simple-cil[head=lda]?")
    told = answer_of(table, reference).words
    assert "ranpac[adapt=none], the best" in told
    assert "above simple-cil[head=lda]" in told
    assert [row["label"] for row in page._compared(table, reference)["rows"]] == [
        line.label for line in results_of(table, [COLUMNS["faa"]], [COLUMNS["faa"]]).lines
    ]
    names = [name for name, _, _ in page._runs(table)]
    assert sorted(names) == sorted(f"{label}, seed 42" for label in labels)


def test_runs_of_a_row_are_told_apart_by_their_draws(write_full_run, installed, tmp_path):
    """By the seeds of class orders as in a sweep, then by their own; both in their order."""
    for place, (order, seed) in enumerate([(2, 10), (1, 0), (2, 2), (1, 10)]):
        drawn = {"benchmark.order": "seeded", "benchmark.order_seed": order, "run.seed": seed}
        changes = {"class_order": np.roll(range(6), order).tolist()}
        write_full_run(f"{place}", changes, policy="min", overrides=drawn)
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    assert [name.partition(", ")[2] for name, _, _ in page._runs(table)] == [
        "order_seed 1, seed 0",
        "order_seed 1, seed 10",
        "order_seed 2, seed 2",
        "order_seed 2, seed 10",
    ]


def test_rows_are_compared_with_the_best_that_trains_nothing(write_full_run, installed, tmp_path):
    """In a column beside FAA, with the interval; its own row is marked, and the question names it."""
    write_full_run("min", policy="min")
    for seed, head in enumerate(("lda", "ridge")):
        overrides = {"baseline.head": head}
        write_full_run(head, {"metrics.faa": 50.0 + seed}, baseline="simple-cil", overrides=overrides)
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    assert [row.trains for row in table.rows] == [False, True, False]
    reference = table.floor()
    assert reference is table.rows[2]
    results = results_of(table, [COLUMNS["faa"]], [COLUMNS["faa"]], reference)
    assert [line.roles for line in results.lines] == [[], [], ["reference"]]
    assert [one.title for one in results.head][-2:] == ["FAA", "FAA minus reference"]
    ffm = [COLUMNS["ffm"]]
    assert results_of(table, ffm, ffm).head[-1].words == "lost, points"
    write_full_run("gained", {"metrics.ffm": -5.0}, policy="always")
    (gained,) = tables_of(list(find_runs([tmp_path])), installed)
    assert results_of(gained, ffm, ffm).head[-1].words == "lost, points; below 0 gained"
    gap = table.rows[1].difference(reference, COLUMNS["faa"])
    assert [str(line.cells[-1].content) for line in results.lines] == ["-1.0", "+15.7", "-"]
    assert gap is not None
    # the accuracy after some tasks is not held against that after all of them, on either side
    write_full_run("part", {"tasks": 5}, policy="one")
    (begun,) = tables_of(list(find_runs([tmp_path])), installed, so_far=True)
    part = next(row for row in begun.rows if not row.finished)
    assert begun.differences(begun.floor(), COLUMNS["faa"])[part.label] is None
    assert reference_of(begun, part.label) is None
    # and it is none of those that the question and the answer count
    assert "each of 4 configurations" in question_of(begun, begun.floor(), named=False)
    assert ", the best of 4 configurations." in answer_of(begun, begun.floor()).words
    assert dict(conditions_above(begun))["Runs"].startswith("4 runs and 1 unfinished: seed 42, ")
    asked = question_of(table, reference, named=False)
    assert asked.endswith(
        "how far is that from simple-cil[head=ridge], the best of those that train nothing?"
    )


PAIR = "a pair of equal seed and class order"
METHODS = {
    "lda": {
        "baseline": "simple-cil",
        "overrides": {"baseline.head": "lda"},
        "changes": {"metrics.faa": 50.0},
    },
    "simple-cil": {"baseline": "simple-cil", "changes": {"metrics.faa": 60.0}},
    "min": {"policy": "min"},
    "always": {"policy": "always"},
    "joint": {
        "baseline": "joint",
        "changes": {"tasks": 1, "task_to_set": [0], "accuracy_matrix": [[90.0]], "retrieval_matrix": None}
        | {"files": {}},
    },
}
OF_CONTROLS = ["Controls are dotted"]
OF_JOINT = "learned all tasks at once is a level line"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["min", "lda"], []),
        (["min", "lda", "simple-cil"], OF_CONTROLS),
        (["min", "lda", "joint"], [*OF_CONTROLS, OF_JOINT]),
    ],
)
def test_a_page_explains_only_what_is_on_it(write_full_run, tmp_path, names, told):
    """Words about controls and level lines stand where there is such a row."""
    for name in names:
        write_full_run(name, **METHODS[name])
    assert report(tmp_path, "--html", tmp_path / "out.html").exit_code == 0
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    visible = " ".join(text[: text.index("<script")].split())
    assert "not tested which row is ahead in FAA" in visible
    assert [words for words in (*OF_CONTROLS, OF_JOINT) if words in visible] == told
    assert "dashed line" not in visible  # of rows that pay as much for more there is none
    assert ("control" in visible[visible.index("<main") :].lower()) == bool(told)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("seeds", "words", "reference", "told"),
    [
        (
            {"lda": [0], "simple-cil": [0], "min": [0]},
            (),
            "that from simple-cil, the best of those that train nothing",
            "",
        ),
        (
            {"lda": [42], "simple-cil": [0, 1], "min": [42]},
            (),
            f"that from simple-cil[head=lda], the best of those that train nothing with {PAIR}",
            "seed 42 (simple-cil[head=lda]; hide-prompt x min), seeds 0 and 1 (simple-cil)",
        ),
        (
            {"simple-cil": [1], "min": [0], "always": [0]},
            (),
            f"hide-prompt x min, the first row with {PAIR}, from the next one",
            "seed 1 (simple-cil), seed 0 (hide-prompt x min; hide-prompt x always)",
        ),
        (
            {"lda": [0], "simple-cil": [0], "min": [42]},
            ("--against", "min"),
            "",
            "seed 0 (simple-cil[head=lda]; simple-cil), seed 42 (hide-prompt x min)",
        ),
        ({"simple-cil": [1], "min": [2]}, (), "", "seed 1 (simple-cil), seed 2 (hide-prompt x min)"),
    ],
)
def test_differences_refer_to_a_row_with_pairs(
    write_full_run, tmp_path, monkeypatch, seeds, words, reference, told
):
    """The page asks for no other and has no empty column or choice; page and text say who has which seeds."""
    for place, (name, drawn) in enumerate(seeds.items()):
        if name == "always":
            monkeypatch.setattr(written_runs, "SAMPLES", OTHERS)
        for seed in drawn:
            named = METHODS[name]
            overrides = {"run.seed": seed, **named.get("overrides", {})}
            write_full_run(f"{place}-{seed}", **{**named, "overrides": overrides})
    done = report(tmp_path, "--html", tmp_path / "out.html", *words)
    assert done.exit_code == 0
    text = html.unescape((tmp_path / "out.html").read_text(encoding="utf-8"))
    (asked,) = re.findall(r'<p class="lead">(.*)</p>', text)
    assert asked.partition(" and how far is ")[2] == (f"{reference}?" if reference else "")
    assert ("FAA minus reference" in text) == bool(reference)
    assert text.count("No pair of equal seed and class order") == (not reference)
    on_page = re.findall(r"<li>rows have different seeds.*: (.*)</li>", text)
    printed = report(tmp_path, *words, "--all").output
    for remarks in (on_page[:1], re.findall(r"- rows have different seeds.*: (.*)", printed)):
        assert remarks == [told] * bool(told)
    (packed,) = re.findall(r'id="s0-rows">(.*)</script>', text)
    compared = json.loads(gzip.decompress(base64.b64decode(packed)))
    offered = {row[0] for row in compared["numbers"]["differences"]["rows"]}
    assert compared["picked"].get("against") in (offered if reference else {None})


def test_the_answer_is_the_best_and_how_far_it_is_from_another(write_full_run, installed, tmp_path):
    """From the reference, or from the next one where it is the reference; the question asks the same."""
    write_full_run("begun", {"tasks": 5}, policy="one")
    (table,) = tables_of(list(find_runs([tmp_path])), installed, so_far=True)
    begun = Answer("", "No run is finished yet: the numbers are those after the last task of each.")
    assert answer_of(table, None) == begun
    # one configuration has a row for each number of tasks that its runs have come to
    write_full_run("later", {"tasks": 6}, policy="one", overrides={"run.seed": 1})
    (table,) = tables_of(list(find_runs([tmp_path])), installed, so_far=True)
    assert len(table.rows) == 2
    assert "does each of 2 runs get right in the end" in question_of(table, None, named=False)
    whys = {numbers["why"] for numbers in page._compared(table, None)["numbers"].values()}
    assert whys == {"", "no run is finished"}
    shutil.rmtree(tmp_path / "later")
    write_full_run("min", policy="min")
    (table,) = tables_of(list(find_runs([tmp_path])), installed, so_far=True)
    told = f"right after 3 tasks ({OF_ONE}): hide-prompt x min."
    assert answer_of(table, None) == Answer("66.7 %", told)
    write_full_run("lda", {"metrics.faa": 50.0}, baseline="simple-cil", overrides={"baseline.head": "lda"})
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    reference = table.floor()
    best = next(row for row in table.rows if row is not reference)
    told = f"right after 3 tasks ({OF_ONE}): hide-prompt x min, the best of 2 configurations."
    for against, whose in ((reference, "simple-cil[head=lda]"), (best, "the next one, simple-cil[head=lda]")):
        apart = f" That is 16.7 points above {whose} ({ALONE})."
        assert answer_of(table, against) == Answer("66.7 %", told + apart)
    asked = [
        question_of(table, against, named=named).partition("how far is ")[2]
        for against, named in ((reference, False), (reference, True), (best, True))
    ]
    assert asked == [
        "that from simple-cil[head=lda], which trains nothing?",
        "that from simple-cil[head=lda]?",
        "hide-prompt x min from the next one?",
    ]
    write_full_run("control", {"metrics.faa": 70.0, "seed": 7}, baseline="no-prompt")
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    above = " The control no-prompt ends 3.3 points above it."
    assert answer_of(table, table.rows[1]).words.endswith(above)
    assert ", the best of 2 configurations, controls aside." in answer_of(table, table.rows[1]).words
    unpaired = answer_of(table, next(row for row in table.rows if row.control)).words
    assert unpaired.endswith("class order tells how far that is from the control no-prompt.")


def test_means_over_other_class_orders_are_not_ranked(write_full_run, installed, tmp_path):
    """The highest is named, as no better than the others; nor is a control of another order above it."""
    other = {"class_order": [1, 0, 2, 3, 4, 5]}
    write_full_run("min", policy="min")
    write_full_run("lda", **{**METHODS["lda"], "changes": other | {"metrics.faa": 50.0}})
    write_full_run("control", other | {"metrics.faa": 70.0}, baseline="no-prompt")
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    words = answer_of(table, None).words
    assert ", the highest of 2 configurations, which have different class orders, controls aside." in words
    assert " ends " not in words
    assert "best" not in words


def test_an_only_candidate_is_no_best_of_several(write_full_run, installed, tmp_path):
    """Controls aside, none is left that it could be better than; of controls alone the best is named."""
    write_full_run("min", policy="min")
    write_full_run("bound", {"metrics.faa": 50.0}, baseline="no-prompt")
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    bound = next(row for row in table.rows if row.control)
    told = f"right after 3 tasks ({OF_ONE}): hide-prompt x min."
    assert (
        answer_of(table, bound).words == f"{told} That is 16.7 points above the control no-prompt ({ALONE})."
    )
    (table,) = tables_of([bound.runs[0], write_full_run("more", baseline="simple-cil")], installed)
    assert ", the best of 2 configurations, all of which are controls." in answer_of(table, None).words


def test_an_answer_names_no_best_of_rows_that_end_alike(write_full_run, installed, tmp_path):
    """Of two there is nothing more to say; further rows are compared with both."""
    for policy in ("min", "always"):
        write_full_run(policy, policy=policy)
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    both = f"right after 3 tasks ({OF_ONE}): hide-prompt x always and hide-prompt x min end alike"
    assert {answer_of(table, row).words for row in (None, *table.rows)} == {f"{both}."}
    assert " 0 lies" not in answer_of(table, table.rows[0]).words
    write_full_run("lda", {"metrics.faa": 50.0}, baseline="simple-cil", overrides={"baseline.head": "lda"})
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    told = f"{both}, the best of 3 configurations. That is 16.7 points above "
    for against, whose in ((0, "the next one, "), (2, "")):
        reference = sorted(table.rows, key=lambda row: row.label)[against]
        assert answer_of(table, reference).words.startswith(f"{told}{whose}simple-cil[head=lda] (")
    write_full_run("bound", baseline="no-prompt")
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    bound = next(row for row in table.rows if row.control)
    assert answer_of(table, bound).words.endswith(". That is as much as the control no-prompt.")


CORRECTED = "not corrected for 2 rows; p is corrected (Holm)."
CHOSEN = ", not corrected for the choice of the best of 3"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("against", "orders", "in_cell", "below", "in_answer"),
    [
        ("lda", 5, ", p=0.120", CORRECTED, "; p=0.120 (Holm): which is better is open)"),
        ("lda", 5, ", p=0.020", CORRECTED, "; p=0.020 (Holm))"),
        ("always", 5, ", p=0.020", CORRECTED, f"; p=0.020 (Holm){CHOSEN})"),
        ("lda", 4, "", "not corrected for 2 rows.", f"{CHOSEN}; 4 class orders tell"),
    ],
)
def test_no_interval_is_a_finding_that_p_does_not_bear_out(
    write_full_run, tmp_path, monkeypatch, against, orders, in_cell, below, in_answer
):
    """The page has p, as the text has, else that nothing corrects intervals; the answer is as cautious."""
    for order, (name, method) in product(range(orders), METHODS.items()):
        if name in ("lda", "min", "always"):
            drawn = {"class_order": np.roll(range(6), order).tolist()}
            changes = method.get("changes", {}) | drawn
            write_full_run(f"{name}{order}", **{**method, "changes": changes})
    raw = float(in_cell.partition("p=")[2] or 1) / 2
    gap = Difference(mean=1.5, low=0.6, high=2.4, n=orders, p=raw if orders > 4 else None)
    monkeypatch.setattr(Row, "difference", lambda *_: gap)
    assert report(tmp_path, "--html", tmp_path / "out.html", "--against", against).exit_code == 0
    text = html.unescape((tmp_path / "out.html").read_text(encoding="utf-8"))
    assert text.count(f"<small>+0.6\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}+2.4{in_cell}</small>") == 2
    assert f"test images, {below}</p>" in text
    assert f"(95 % interval +0.6 to +2.4{in_answer}" in text


def test_an_end_of_an_interval_is_no_zero_that_it_is_not():
    """Beside 'in which 0 lies' a +0.0 would contradict; what is 0 stays so."""
    assert [_signed(end) for end in (-0.03, 0.04, 1.43, -0.2, 0.0)] == [
        "-0.03",
        "+0.04",
        "+1.4",
        "-0.2",
        "+0.0",
    ]


def test_below_a_legend_stands_whether_a_line_is_a_run_or_a_mean(
    write_full_run, installed, tmp_path, monkeypatch
):
    """With its seeds and class orders, how many runs a mean is of, and what a band is where one is drawn."""
    told, answers = [], []
    band = {figure.name: figure.band for figure in FIGURES if figure.legend}
    assert band == {"curves": True, "pareto": False}
    samples = (written_runs.SAMPLES, OTHERS)  # no row answers alike in both seeds
    for name, policy, seed in (("a", "min", 0), ("b", "always", 0), ("c", "min", 1), ("d", "always", 1)):
        monkeypatch.setattr(written_runs, "SAMPLES", samples[(policy == "always") ^ seed])
        write_full_run(name, policy=policy, overrides={"run.seed": seed})
        (table,) = tables_of(list(find_runs([tmp_path])), installed)
        told.append(shown_of(table, band=band["curves"]))
        answers.append(answer_of(table, table.rows[-1]).words)
        assert told[-1].partition(" A band ")[0] == shown_of(table, band=band["pareto"])
    drawn, of_band = (
        "(seeds 0 and 1 of one class order)",
        "A band is one standard deviation over the seeds of one class order.",
    )
    assert told == [
        "Shown is one run, no mean (seed 0, one class order).",
        "Shown is one run of each row, no mean (seed 0, one class order).",
        f"Shown is each row's mean of 1 to 2 runs {drawn}. {of_band}",
        f"Shown is each row's mean of 2 runs {drawn}. {of_band}",
    ]
    # the answer says what so few do not tell
    assert " Over 1 pair of equal seed and class order that is 0.0 points above " in answers[2]
    assert answers[3].endswith("which is better is open; 2 seeds tell little of others).")
    # the same rows have an interval over their images, and a p value from five pairs on
    of_two = table.rows[0].difference(table.rows[1], COLUMNS["faa"])
    for seed, policy in product((2, 3, 4), ("min", "always")):
        monkeypatch.setattr(written_runs, "SAMPLES", samples[policy == "always"])
        write_full_run(f"{policy}{seed}", policy=policy, overrides={"run.seed": seed})
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    of_five = table.rows[0].difference(table.rows[1], COLUMNS["faa"])
    assert of_two.low is not None
    assert (of_two.n, of_two.p, of_five.n, of_five.p) == (2, None, 5, 1.0)
    assert "tell little" not in answer_of(table, table.rows[-1]).words


def test_what_is_mixed_is_told_by_what_differs():
    """What all cells begin with is said above; a row that has nothing more shows a dash."""
    cells = [
        [ResultCell("mixed", text, text=True)] for text in ("file a, 12 layers", "file a", "file a, 2 layers")
    ]
    assert result_lines._take_common(cells) == ["file a"]
    assert [line[0].content for line in cells] == ["12 layers", "-", "2 layers"]
    assert result_lines._take_common([[ResultCell("n", "1")]]) == []


@pytest.mark.usefixtures("quick")
def test_unfinished_runs_say_what_goes_on_with_them(write_full_run, tmp_path):
    """Above the table, with the command; runs of which no task is finished, too."""
    write_full_run("min", policy="min")
    interrupted = write_full_run("later run", {"tasks": 5}, policy="always")
    begun = write_full_run("begun", policy="one")
    (begun.path / "record.json").unlink()
    assert report(tmp_path, "--html", tmp_path / "out.html").exit_code == 0
    text = html.unescape((tmp_path / "out.html").read_text(encoding="utf-8"))
    told = f"interrupted after task 3 of 5; lw2g resume '{interrupted.path}' goes on"
    assert f"<strong>hide-prompt x always, 3 of 5 tasks</strong>: {told}" in text
    told = f"interrupted before the end of its first task; lw2g resume {begun.path} goes on"
    assert f"<strong>{begun.path}</strong>: {told}" in text
    assert "not counted: " not in text
    # a task is finished whose record is gone
    (begun.path / "checkpoints").mkdir(exist_ok=True)
    (begun.path / "checkpoints" / "task-000.safetensors").touch()
    told = f"not counted: {begun.path}, record.json is missing; write it anew: lw2g resume {begun.path}"
    assert told in report(tmp_path, "--all").output


def test_a_missing_extra_is_one_line(write_full_run, tmp_path, monkeypatch):
    """Without the drawing library the line names what to install."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    page._script.cache_clear()
    result = report(write_full_run("run", policy="min").path, "--html", tmp_path / "out.html")
    assert result.exit_code == 2
    assert "a page needs 'vl_convert', which is not installed; pip install 'lw2g[report]'" in result.output


# -- in a browser ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    with chromium() as opened:
        yield opened


@pytest.fixture
def written(write_full_run, tmp_path) -> Path:
    """A page of three configurations with long names, two seeds, and a class name that attacks it."""
    names = ["ant", NASTY, "cat", "dog", "elk", "fox"]
    for seed in (0, 1):
        overrides = {"run.seed": seed}
        write_full_run(f"min-{seed}", {"class_names": names}, policy="min", overrides=overrides)
    other = {"metrics.faa": 60.0, "metrics.ssp": 3, "class_names": names}
    long = {
        "growth.energy": 0.9,
        "growth.images": 128,
        "baseline.epochs": 3,
        "baseline.lr": 0.01,
        "run.seed": 0,
    }
    write_full_run("long", {"class_names": names}, policy="min", overrides=long)
    write_full_run("always", other, policy="always", overrides={"run.seed": 0})
    assert report(tmp_path, "--html", tmp_path / "out.html").exit_code == 0
    return tmp_path / "out.html"


# What is cut off: an element whose text does not fit, outside regions that scroll; a drawing beyond its card.
CUT_OFF = """() => {
  const found = [];
  const page = document.documentElement;
  if (page.scrollWidth > innerWidth) found.push(`page ${page.scrollWidth} > ${innerWidth}`);
  for (const one of document.querySelectorAll('main *, header *, footer *')) {
    if (one.closest('.scroll, select, svg') || !one.getClientRects().length) continue;
    if (one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== 'inline')
      found.push(`${one.tagName}.${one.className} ${one.scrollWidth} > ${one.clientWidth}`);
  }
  for (const drawing of document.querySelectorAll('.plot svg')) {
    const frame = drawing.getBoundingClientRect();
    for (const text of drawing.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      if (box.width && (box.left < frame.left - 1 || box.right > frame.right + 1 ||
          box.top < frame.top - 1 || box.bottom > frame.bottom + 1))
        found.push(`${drawing.closest('figure').id}: ${text.textContent}`);
    }
  }
  return found;
}"""


# Headings that skip a level, and pictures without an alternative text.
SKIPPED = """() => {
  let last = 0;
  const found = [];
  for (const one of document.querySelectorAll('h1, h2, h3, h4')) {
    const level = Number(one.tagName[1]);
    if (level > last + 1) found.push(one.textContent);
    last = level;
  }
  for (const one of document.images) if (!one.hasAttribute('alt')) found.push(one.src);
  return found;
}"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_every_figure_whole(browser, written, width, scheme):
    """All figures are drawn, tables open by keyboard, nothing is cut off, no request leaves the file."""
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked: list[str] = []
    troubles: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("console", lambda line: troubles.append(line.text) if line.type in ("error", "warning") else None)
    tab.on("dialog", lambda dialog: troubles.append("a name ran as a script") or dialog.dismiss())
    tab.goto(written.as_uri())
    tab.wait_for_selector("html[data-ready]")
    for figure in FIGURES:
        place = tab.locator(f"#s0-{figure.name}")
        assert place.locator("h3").text_content() == figure.title
        assert place.is_visible() == (figure.name not in ("paper", "motions"))
        if not place.is_visible():
            continue
        assert place.locator(".plot svg path, .plot svg text").count() > 3, figure.name
        place.locator("summary").focus()
        tab.keyboard.press("Enter")
        place.locator("tbody tr").first.wait_for()
        head = place.locator("thead th").all_inner_texts()
        assert head == [field.title for field in figure.fields]
    told = "Not shown: Published values against ours (no paper reports these configurations)."
    assert tab.locator("#s0-rows-missing").inner_text() == told
    assert tab.locator(".results").evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
    for summary in tab.locator("details:not(.numbers) > summary").all():
        summary.click()
    assert tab.evaluate(CUT_OFF) == []
    assert tab.evaluate(SKIPPED) == []
    axis = "\n100\nmean accuracy over the tasks so far (%), the axis begins at 60"
    assert tab.locator("#s0-curves .plot").inner_text().endswith(axis)
    panel = tab.locator("#s0-pareto .panel", has=tab.get_by_role("heading", name="sets", exact=True))
    named = panel.locator("svg .role-axis-label").first.locator("text").all_text_contents()
    assert named == ["2", "3"]  # there is no half of a set
    tab.select_option(".chooser select", label="hide-prompt x always, seed 0")
    tab.locator("#s0-curves .legend button").first.click()
    tab.wait_for_function("document.querySelector('#s0-curves .legend button').ariaPressed === 'false'")
    assert tab.locator("#s0-curves caption").inner_text().startswith("Accuracy after each task: 9 rows")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(246, 246, 243)" if scheme == "light" else "rgb(20, 22, 26)"
    )
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert [url for url in asked if url.startswith("file:")] == [written.as_uri()]
    assert troubles == []
    tab.close()


# Words of captions that stand on two lines, and what is wider than the page.
BROKEN = """() => {
  const found = [];
  for (const caption of document.querySelectorAll('.pictures span')) {
    for (const text of caption.childNodes) {
      for (const {0: word, index} of text.textContent.matchAll(/[^\\s_]+_?/g)) {
        const range = document.createRange();
        range.setStart(text, index);
        range.setEnd(text, index + word.length);
        if (range.getClientRects().length > 1) found.push(word);
      }
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push('the page');
  return found;
}"""


class Pictures:
    """Test images without a data set."""

    def __init__(self, run, catalogue):
        pass

    def thumbnail(self, sample):
        return "data:,"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390, 320])
def test_a_caption_breaks_between_words_alone(browser, write_full_run, tmp_path, monkeypatch, width):
    """Below images of classes and of mistakes; a word longer than a box may break, and widens no page."""
    monkeypatch.setattr(thumbnails, "_TestImages", Pictures)
    endless = "x" * 60
    names = ["cardboard", "brontosaurus", "corrugated fibreboard", "electric_guitar", "cup", endless]
    write_full_run("run", {"class_names": names})
    assert report(tmp_path / "run", "--html", tmp_path / "out.html").exit_code == 0
    tab = browser.new_page(viewport={"width": width, "height": 900})
    tab.goto((tmp_path / "out.html").as_uri())
    tab.wait_for_selector("html[data-ready]")
    assert tab.locator(".tasks img").count() == tab.locator(".tasks span").count() == len(names)
    assert tab.locator(".gallery img").count()
    assert set(tab.evaluate(BROKEN)) == {endless}
    tab.close()


@pytest.mark.slow
def test_a_row_without_a_training_step_says_what_its_prediction_asks_for(browser, write_full_run, tmp_path):
    """Words stand in place of a number, in the drawing and in the table."""
    untrained = {
        "metrics.ssp": None,
        "storage.prompt_vectors": 0,
        "images_per_second": None,
        "flops": {"training_per_image": None, "inference_per_image": None},
    }
    write_full_run("trained", policy="min")
    write_full_run("untrained", untrained, baseline="simple-cil")
    assert report(tmp_path, "--html", tmp_path / "out.html").exit_code == 0
    tab = browser.new_page()
    troubles: list[str] = []
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("console", lambda line: troubles.append(line.text) if line.type in ("error", "warning") else None)
    tab.goto((tmp_path / "out.html").as_uri())
    tab.wait_for_selector("html[data-ready]")
    costs = tab.locator("#s0-costs")
    texts = costs.locator("svg text").all_text_contents()
    assert [text for text in texts if text.startswith("simple-cil: ")][-2:] == [
        "simple-cil: no training step",
        "simple-cil: one forward of the backbone",
    ]
    costs.locator("summary").click()
    assert "one forward of the backbone" in costs.locator("tbody").inner_text()
    assert troubles == []
    tab.close()


@pytest.mark.slow
def test_the_list_of_tables_keeps_off_the_switch_of_colours(browser, write_full_run, tmp_path):
    """It stands below the switch of a page of several tables, with a space between."""
    for increment in (1, 2):
        write_full_run(str(increment), overrides={"benchmark.increment": increment})
    assert report(tmp_path, "--html", tmp_path / "out.html").exit_code == 0
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto((tmp_path / "out.html").as_uri())
    switch = tab.locator(".theme").bounding_box()
    overview = tab.locator(".overview").bounding_box()
    assert overview["y"] - (switch["y"] + switch["height"]) >= 8
    tab.close()
