"""The numbers behind the figures of a page: the right values, and why there are none."""

from __future__ import annotations

import base64
import io
import json
import shlex
from pathlib import Path

import attrs
import numpy as np
import pytest
from PIL import Image

from lw2g.cli.shared_options import experiment_options
from lw2g.config.toml import flat, read_json, to_mapping
from lw2g.results.columns import COLUMNS
from lw2g.results.found_runs import Given
from lw2g.results.recorded_evidence import apart
from lw2g.results.table import tables_of
from lw2g_page import compare, inside, thumbnails
from lw2g_page.figures import FIGURES
from lw2g_page.gallery import CLASSIFIED, RETRIEVED, confused_most, gallery_of, mistakes, task_pictures
from lw2g_page.inside import look_inside
from lw2g_page.repeating import command_of
from lw2g_page.thumbnails import Allowance, Thumbnails
from lw2g_testing.made_evidence import measured_set

MORE = {"accuracy_matrix": [[80.0, 55.0, 30.0], [None, 55.0, 30.0], [None, None, 80.0]]}


@pytest.fixture
def rows(write_full_run, installed):
    """Two seeds of one configuration, one seed of another, one that is not finished, and a bound."""
    seeds = ({"run.seed": 0}, {"run.seed": 1})
    work = {"flops.inference_per_image": 2e6}
    runs = [
        write_full_run("a", work, overrides=seeds[0], policy="min"),
        write_full_run("b", {**MORE, **work, "metrics.faa": 140 / 3}, overrides=seeds[1], policy="min"),
        write_full_run(
            "c",
            {"metrics.faa": 60.0, "metrics.ssp": 3, "storage.basis_vectors": 70},
            overrides=seeds[0],
            policy="always",
        ),
        write_full_run("d", {"tasks": 5}, overrides=seeds[0], policy="max"),
        write_full_run(
            "e",
            {"tasks": 1, "metrics": {"faa": 90.0}, "task_to_set": [0]}
            | {"accuracy_matrix": [[90.0]], "retrieval_matrix": None},
            overrides=seeds[0],
            baseline="joint",
        ),
    ]
    (table,) = tables_of(runs, installed, so_far=True)
    return table.rows


@pytest.fixture
def opened(write_full_run):
    """One run with its predictions."""
    return look_inside(write_full_run("one", policy="min", overrides={"policy.margin": 2.0}), "one")


def test_unfinished_runs_have_rows_of_their_own(rows, installed):
    """They say how far they have come, and never stand in a row that is averaged."""
    assert [(row.label, len(row.runs), row.finished) for row in rows] == [
        ("hide-prompt x min", 2, True),
        ("hide-prompt x always", 1, True),
        ("hide-prompt x max, 3 of 5 tasks", 1, False),
        ("joint", 1, True),
    ]
    (table,) = tables_of([run for row in rows for run in row.runs], installed)
    assert [len(row.runs) for row in table.rows] == [2, 1, 1]
    assert [run.path.name for run in table.unfinished] == ["d"]


def test_curves_have_a_seed_band_and_level_lines(rows):
    """Means of seen tasks after each task, one deviation around; joint training is a line to the end."""
    found = {(row[0], row[1]): row[2:] for row in compare.curves(rows).rows}
    mean, low, high, n, control = found["hide-prompt x min", 3]
    assert (mean, n, control) == (pytest.approx((200 / 3 + 140 / 3) / 2), "2", False)
    assert [high - mean, mean - low] == pytest.approx([np.std([200 / 3, 140 / 3], ddof=1)] * 2)
    assert [found["joint", after] for after in (1, 3)] == [(90.0, 90.0, 90.0, "1", True)] * 2


def test_no_drawing_calculates_with_a_number_of_runs():
    """It is in words where several orders have several seeds, which are above 1 in no filter."""
    assert [figure.name for figure in FIGURES if "datum.n " in json.dumps(figure.drawing)] == []


def test_no_key_has_one_colour_for_two_entries():
    """Of one form: a figure of several panels has one key."""
    keys = {figure.name: [tuple(entry[1:]) for entry in figure.key] for figure in FIGURES}
    assert [name for name, entries in keys.items() if len(set(entries)) < len(entries)] == []


def test_a_band_ends_where_runs_end_alike():
    """A point without deviation is the end of its band; left out, the band would break off a task before."""
    (curves,) = [figure for figure in FIGURES if figure.name == "curves"]
    (band,) = [layer for layer in curves.drawing["layer"] if layer["mark"]["type"] == "area"]
    assert "transform" not in band


def test_a_small_difference_alone_does_not_fill_its_axis():
    """An axis of differences has five points on both sides of 0 at least."""
    (differences,) = [figure for figure in FIGURES if figure.name == "differences"]
    layers = differences.drawing["layer"]
    (unseen,) = [layer for layer in layers if layer["encoding"]["x"].get("field") == "at"]
    assert unseen["data"] == {"values": [{"at": -5}, {"at": 5}]}
    assert unseen["mark"]["opacity"] == 0


def test_only_rows_that_nothing_beats_are_best(rows):
    """More FAA for less, in every price; controls take no part."""
    finished = [row for row in rows if row.finished]
    found = {(row[0], row[1]): row for row in compare.pareto(finished).rows}
    best = {key: row[-2] for key, row in found.items()}
    assert best["hide-prompt x min", "sets"]
    assert best["hide-prompt x always", "sets"]
    assert best["hide-prompt x always", "MFLOP of a prediction, per image"]
    assert not best["hide-prompt x min", "MFLOP of a prediction, per image"]
    assert not best["joint", "MFLOP of a prediction, per image"]
    assert found["hide-prompt x min", "vectors kept (in all sets and bases)"][2] == 100.0
    two = {row[1] for row in compare.pareto([finished[0], finished[-1]]).rows}
    assert "sets" not in two  # of which the second row has none: nothing to compare
    assert "MFLOP of a prediction, per image" in two
    assert compare.pareto(finished[:1]).why == "there are no two finished rows to compare"


def changed(row, label, record):
    """Return a row of one run whose record has other entries."""
    run = row.runs[0]
    config = {**run.config, **record.get("config", {})}
    run = attrs.evolve(run, record={**run.record, **record}, config=config)
    return attrs.evolve(row, label=label, runs=(run,))


def frozen(row):
    """Return a row that trained nothing and has no sets, and is more accurate than all others."""
    metrics = {**row.runs[0].record["metrics"], "faa": 99.0, "ssp": None}
    storage = {"prompt_vectors": 0, "basis_vectors": 0, "parameters": 0, "statistics": 700}
    flops = {"training_per_image": None, "inference_per_image": None}
    record = {"metrics": metrics, "storage": storage, "flops": flops, "images_per_second": None}
    return changed(row, "frozen", record)


def test_a_row_that_pays_nothing_beats_all_others(rows):
    """It takes part in prices of 0; one that no row pays has no panel."""
    none = frozen(rows[0])
    vectors = "vectors kept (in all sets and bases)"
    found = compare.pareto([*rows[:2], none]).rows
    assert [row[0] for row in found if row[1] == vectors and row[-2]] == ["frozen"]
    more = changed(none, "more", {"storage": {**none.runs[0].record["storage"], "statistics": 900}})
    panels = {row[1] for row in compare.pareto([none, more]).rows}
    assert "numbers kept (parameters and statistics)" in panels
    assert vectors not in panels


def test_a_price_that_all_rows_pay_is_told_and_not_drawn(rows):
    """Numbers that differ in the sixth digit have an axis of one number at every tick."""
    labels = ("a", "b", "c")
    work = [{"flops": {"inference_per_image": 2.50698e9 + at}} for at in range(3)]
    bars = [changed(rows[0], label, of) for label, of in zip(labels, work, strict=True)]
    numbers = compare.pareto(bars)
    assert "MFLOP of a prediction, per image" not in {row[1] for row in numbers.rows}
    assert "all the same: MFLOP of a prediction, per image 2,510" in numbers.why


def test_a_line_is_told_where_one_is_drawn(rows):
    """A single row that nothing beats has no line, and two curves in one place look like one."""
    known, shared, *_ = rows
    worse = changed(known, "worse", {"metrics": {**known.runs[0].record["metrics"], "faa": 1.0, "ssp": 3}})
    assert [compare.pareto(of).has_line for of in ([known, shared], [known, worse])] == [True, False]
    one = changed(known, "one", {"accuracy_matrix": MORE["accuracy_matrix"]})
    assert compare.curves([one, shared, attrs.evolve(one, label="two")]).facts == ["one, two: the same curve"]
    assert compare.curves([one, shared]).facts == []


def test_sets_are_a_price_of_rows_that_have_some(rows):
    """A row without sets is named, and no point at 0; where no row has two sets there is no panel."""
    known, shared, *_ = rows
    numbers = compare.pareto([known, shared, frozen(known)])
    assert [row[:3] for row in numbers.rows if row[1] == "sets"] == [
        (known.label, "sets", 2.0),
        (shared.label, "sets", 3.0),
    ]
    assert "without sets, so missing from that panel alone: frozen" in numbers.facts
    slow = changed(known, "slow", {"seconds": {"total": 20.0}})
    untimed = changed(known, "untimed", {"seconds": {}})
    assert "not told of seconds of the whole run, and left out there: untimed" in (
        compare.pareto([known, slow, untimed]).facts
    )
    single = {"metrics": {**known.runs[0].record["metrics"], "ssp": 1}}
    grown = compare.pareto([changed(known, "a", single), changed(known, "b", single), frozen(known)])
    assert "sets" not in {row[1] for row in grown.rows}
    assert not any(fact.startswith("without sets") for fact in grown.facts)


def test_storage_is_told_in_the_words_of_the_columns(rows):
    """Sets are prompts with some methods, adapters or updates of weights with others."""
    (figure,) = (figure for figure in FIGURES if figure.name == "costs")
    for name in ("prompt_vectors", "basis_vectors"):
        assert COLUMNS[name].meaning in figure.reading
    key = {entry[0] for entry in figure.key}
    assert {row[2] for row in compare.costs(rows).rows} <= key
    prices = {row[1] for row in compare.pareto(rows[:2]).rows}
    assert not [text for text in (*key, *prices, figure.reading) if "prompt" in text]


@pytest.mark.parametrize(
    ("other", "training", "inference"),
    [
        ({}, "no training step", "one forward of the backbone"),
        ({"images_per_second": 80.0}, None, None),  # it trained, and nobody counted
        ({"storage": {"prompt_vectors": 40}}, "no training step", None),  # the forward of a set, too
        ({"config": {"benchmark": {"name": "features"}}}, "no training step", None),  # before the run
    ],
)
def test_a_row_that_trains_nothing_says_what_it_asks_for(rows, other, training, inference):
    """Operations are counted at a training step; without one, the cheapest prediction is one forward."""
    row = changed(frozen(rows[0]), "frozen", other)
    costs = compare.costs([rows[0], row]).rows
    told = {part: value for label, _, part, value in costs if label == "frozen"}
    assert (told["training"], told["inference"]) == (training, inference)
    alone = {part for _, _, part, _ in compare.costs([row]).rows}
    assert not alone & {"training", "inference"}  # words alone are no panel


def test_costs_and_times_are_told_by_part(rows):
    """Sets beside bases, operations in millions; what no clock took is other."""
    costs = {row[1:3]: row[3] for row in compare.costs(rows[:1]).rows}
    kind = "vectors of the backbone's width"
    assert (costs[kind, "sets"], costs[kind, "bases"]) == (40.0, 60.0)
    assert costs["MFLOP of a training step, per image", "training"] == 3.0
    (run,) = rows[1].runs
    bare = {**run.record, "storage": {**run.record["storage"], "prompt_vectors": 0, "basis_vectors": 0}}
    without = attrs.evolve(rows[1], runs=(attrs.evolve(run, record=bare),))
    assert kind not in {row[1] for row in compare.costs([without]).rows}
    assert kind in {row[1] for row in compare.costs([rows[0], without]).rows}
    uncounted = {**run.record, "flops": {"training_per_image": None, "inference_per_image": None}}
    headless = attrs.evolve(rows[1], runs=(attrs.evolve(run, record=uncounted),))
    training = [row[3] for row in compare.costs([rows[0], headless]).rows if row[2] == "training"]
    assert training == [3.0, None]  # a row that nobody counted stands beside the others
    (figure,) = (figure for figure in FIGURES if figure.name == "costs")
    assert "after the first task where nothing is trained" in figure.reading
    times = {row[1]: row[2] for row in compare.times(rows[:1]).rows}
    idle = attrs.evolve(
        run, record=run.record | {"seconds": {"total": 2.0, "training": 2.0, "evidence": 0.04}}
    )
    alone = compare.times([attrs.evolve(rows[0], runs=(idle,))]).rows
    assert [row[1] for row in alone] == ["learning"]  # what prints as 0.0 in every row has no colour
    assert times == {"evidence": 1.0, "learning": 6.0, "subspace": 0.5, "evaluation": 2.0, "other": 0.5}


def test_differences_are_paired_and_go_both_ways(rows):
    """Over seeds that both rows have; where predictions are not at hand, a single pair has no interval."""
    found = {row[:3]: row[3:] for row in compare.differences(rows[:2]).rows}
    first, second = (row.label for row in rows[:2])
    assert found[first, second, "FAA"] == (pytest.approx(60 - 200 / 3), None, None, "1")
    assert found[second, first, "FAA"][0] == pytest.approx(200 / 3 - 60)


def test_the_paper_stands_beside_ours(write_run, installed):
    """Its value, ours, and in what its runs differ."""
    (table,) = tables_of([write_run(80.0)], installed)
    ((_, metric, theirs, _, ours, _, n, source, differs), *_) = compare.paper(table.rows).rows
    assert (metric, ours, n) == ("FAA", 80.0, "1")
    assert theirs == table.rows[0].paper["faa"].value
    assert source == table.rows[0].paper["faa"].citation
    assert differs == "; ".join(table.rows[0].paper["faa"].differs)


def test_matrices_count_from_one(opened):
    """A[i, t] below the diagonal is left out; forgetting is from the best a task ever had."""
    assert inside.accuracies(opened).rows[:3] == [(1, 1, 100.0), (1, 2, 75.0), (1, 3, 50.0)]
    assert inside.forgetting(opened).rows == [(1, 100.0, 100.0, 50.0, 50.0), (2, 75.0, 75.0, 50.0, 25.0)]
    better = opened.record | {"accuracy_matrix": [[82.5, 87.5], [None, 80.0]], "metrics": {"ffm": -5.0}}
    gained = inside.forgetting(attrs.evolve(opened, run=attrs.evolve(opened.run, record=better)))
    assert gained.rows == [(1, 82.5, 82.5, 87.5, -5.0)]
    assert gained.facts == ["FFM -5.00, the mean of best minus last, below 0: a gain"]
    assert inside.drift(opened).rows == [(1, 2, 2.0), (1, 3, 10.0), (2, 3, 0.0)]
    still = attrs.evolve(opened.run, record={**opened.record, "feature_drift": [[None], [0.0, None]]})
    assert inside.drift(attrs.evolve(opened, run=still)).why.startswith("no feature of an old task drifted")


def test_motions_are_drawn_task_by_task(opened):
    """Two points a task, and what deserves a look; a run that carried nothing says so."""
    assert not inside.motions(opened).rows
    assert inside.motions(opened).why == "no statistics of old classes were carried"
    entries = [
        {"task": 1, "new": 2.0, "old": 1.0, "times": None, "held": [], "carried": 2, "alarming": False},
        {"task": 2, "new": 8.0, "old": 0.5, "times": 4.0, "held": [0, 3], "carried": 4, "alarming": True},
    ]
    run = attrs.evolve(opened.run, record={**opened.record, "findings": {"motions": entries}})
    found = inside.motions(attrs.evolve(opened, run=run))
    assert found.rows[:2] == [(2, "its own", 2.0, None, 0, 2), (2, "old ones", 1.0, None, 0, 2)]
    assert found.rows[2:] == [(3, "its own", 8.0, 4.0, 2, 4), (3, "old ones", 0.5, None, 2, 4)]
    assert found.facts == [
        "task 3: its own classes moved three times the median of earlier tasks, or more",
        "old classes were held 2 times in all",
    ]


def test_class_confusion_tells_wrong_tasks_from_wrong_classes(opened):
    """Every cell with its images, and the three shares sum to all."""
    found = inside.classes(opened)
    cells = {(row[1], row[3]): row[4:] for row in found.rows}
    assert cells["bee", "ant"] == ("wrong class, right task", 1, 50.0)
    assert cells["bee", "cat"] == ("wrong task", 1, 50.0)
    assert cells["ant", "ant"] == ("right", 2, 100.0)
    assert sum(row[5] for row in found.rows) == 12
    assert found.facts == ["66.7 % right", "16.7 % another class of the right task", "16.7 % a wrong task"]
    assert found.extra["blocks"] == [{"at": 2}, {"at": 4}]


def test_no_task_is_wrong_where_each_has_all_classes(write_full_run):
    """On a stream of domains the shares of wrong tasks say nothing; what each domain reaches does."""
    every_class = {"task_classes": [list(range(6))] * 3, "domains": ["photo", "art", "sketch"]}
    opened = look_inside(write_full_run("domains", every_class), "domains")
    found = inside.classes(opened)
    assert found.facts == ["66.7 % right"]
    assert {row[4] for row in found.rows} == {"right", "wrong class"}
    assert inside.accuracies(opened).facts == ["by domain: photo 50.0 %, art 50.0 %, sketch 100.0 %"]


def test_a_class_that_comes_again_is_of_the_task_of_its_images(write_full_run):
    """Cells of the confusion and the shares above them agree, where classes share one of their tasks."""
    again = {"task_classes": [[0, 1], [2, 3], [4, 5, 1, 2]]}
    found = inside.classes(look_inside(write_full_run("again", again), "again"))
    kinds = {(row[1], row[3]): row[4] for row in found.rows}
    assert kinds["bee", "cat"] == "wrong task"  # its images are of task 1, which has no cat
    assert found.facts[2] == "16.7 % a wrong task"


def test_each_kind_of_a_cell_has_its_colour():
    """The key of class confusion names what its numbers may say."""
    (figure,) = (figure for figure in FIGURES if figure.name == "classes")
    assert [text for text, _ in figure.key] == [
        "right",
        "wrong class",
        "wrong class, right task",
        "wrong task",
    ]


def test_points_in_one_place_are_all_seen():
    """Rows of equal price and accuracy lie on each other: what is hollow hides no other."""
    (figure,) = (figure for figure in FIGURES if figure.name == "pareto")
    (points,) = (layer for layer in figure.drawing["layer"] if layer["mark"]["type"] == "point")
    assert points["mark"]["filled"] is False


def test_retrieval_counts_a_shared_set_as_right(opened):
    """Tasks 1 and 3 share a set; PRA and chance stand beside the map."""
    found = inside.retrieval(opened)
    cells = {row[:2]: row[2:] for row in found.rows}
    assert cells[1, 3] == (True, 1, 25.0)
    assert cells[1, 2] == (False, 1, 25.0)
    assert (2, 3) not in cells
    assert found.facts[:2] == ["PRA 75.0 %", "chance 55.6 %"]


def test_a_set_is_right_if_it_holds_any_task_with_the_class_and_domain():
    """Class 0 comes again in task 3, in the domain of task 1; a set of another domain is wrong."""
    record = {
        "task_to_set": [0, 1, 2],
        "task_classes": [[0, 1], [0], [0]],
        "domains": ["photo", "sketch", "photo"],
    }
    columns = {
        "task": np.array([0, 0, 0, 0, 1]),
        "true": np.array([0, 0, 0, 1, 0]),
        "set": np.array([0, 1, 2, 2, 2]),
    }
    assert inside.owned(columns, record).tolist() == [True, False, True, False, False]


def test_growth_tells_sets_and_all_evidence(opened):
    """Which set each task got; per candidate value, error and threshold, and why one was excluded."""
    flow = inside.flow(opened)
    assert [row[:4] for row in flow.rows] == [
        (1, "grow", "#0", 2),
        (2, "grow", "#1", 1),
        (3, "reuse", "#0", 2),
    ]
    assert flow.rows[1][4] == "cat, dog"
    assert len(flow.extra["paths"]) == 12
    assert flow.facts == ["tasks: 3", "sets: 2", "grown: 2", "reused: 1"]
    assert inside.flow(attrs.evolve(opened, grows=False)).why  # its sets are fixed, whatever the record says
    z = [row[:2] + row[3:] for row in inside.decisions(opened).rows if row[2] == "hindrance (degrees)"]
    assert z == [
        (2, 0, 3.0, 0.5, 2.5, 3.5, None, None, None, "grow", None, "not taken", ""),
        (3, 0, -1.0, 0.5, -1.5, -0.5, 1.0, None, None, "reuse #0", 90.0, "reused", ""),
        (3, 1, None, None, None, None, None, None, None, "reuse #0", 90.0, "excluded", "its space is full"),
    ]


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        # after growth against the least, whose error is common to all sets but for a tenth
        ({"decision": "grow", "set": 3}, {0: (2, 4.0, 0.125), 1: (2, 1.5, None)}),
        ({"decision": "reuse", "set": 0}, {2: (0, -4.0, 0.125), 1: (0, -2.5, None)}),
        ({"decision": "reuse", "set": 4}, {0: (2, 4.0, 0.125), 1: (2, 1.5, None)}),
    ],
)
def test_sets_are_compared_with_the_error_of_their_difference(write_full_run, decision, expected):
    """Replicates of the same images go together; without them the error is unknown, not that of a value."""
    sets = [
        measured_set(0, 3.0, 1.0, replicates=(1.0, -1.25, 0.875)),
        measured_set(1, 0.5, 1.0),
        measured_set(2, -1.0, 1.0, replicates=(1.125, -1.125, 0.75)),
        measured_set(4, None, excluded="its space is full"),
    ]
    entry = {"task": 5, "candidates": [one.as_mapping() for one in sets]} | decision
    found = apart(json.loads(json.dumps(entry)))
    assert found == {(number, "hindrance"): row for number, row in expected.items()}
    run = write_full_run("sets", {"decisions": [{"margin": 0.0} | entry]})
    rows = inside.decisions(look_inside(run, "sets")).rows
    assert {row[1]: row[8:10] for row in rows if row[8] is not None} == {
        number: row[1:] for number, row in expected.items()
    }


def test_evidence_stands_beside_its_nulls(opened):
    """What was measured, against the pre-trained space and two kinds of chance."""
    found = inside.nulls(opened)
    assert {row[2:4]: row[4] for row in found.rows if row[:2] == (2, 0)} == {
        ("hindrance (degrees)", "measured"): 3.0,
        ("hindrance (degrees)", "null"): -2.0,
        ("HFC (degrees)", "measured"): 73.0,
        ("HFC (degrees)", "pre-trained space"): 70.0,
        ("HFC (degrees)", "null by rank"): 40.0,
        ("HFC (degrees)", "null by energy"): 72.0,
    }
    assert "HFC above null by energy in 1 of 2" in found.facts


def test_records_that_lack_something_say_so(write_full_run):
    """A run of an older lw2g, or without sets or predictions, still gives every figure, or one line why."""
    changes = {
        "files": {},
        "decisions": [],
        "feature_drift": [],
        "metrics": {"faa": 50.0},
        "accuracy_matrix": [[50.0]],
        "retrieval_matrix": None,
        "tasks": 1,
        "task_to_set": [0],
        "storage": {},
        "flops": {},
        "seconds": {},
    }
    run = look_inside(write_full_run("old", changes), "old")
    told = {figure.name: figure.of(run) for figure in FIGURES if figure.scope == "run"}
    assert {name for name, numbers in told.items() if numbers.rows} == {"accuracies"}
    assert all(numbers.rows or numbers.why for numbers in told.values())
    assert all("\n" not in numbers.why for numbers in told.values())


def test_predictions_that_do_not_fit_are_not_drawn(write_full_run):
    """What does not match its checksum, or predicts a class without a name, is told, not shown."""
    strange = look_inside(write_full_run("strange", {"class_names": ["ant"], "task_classes": []}), "x")
    assert inside.classes(strange).why == "predictions/task-002.safetensors has class 5, which has no name"
    run = write_full_run("edited")
    path = run.path / "predictions/task-002.safetensors"
    path.write_bytes(path.read_bytes() + b" ")
    assert inside.classes(look_inside(run, "x")).why == (
        "predictions/task-002.safetensors is not the file that the record lists"
    )


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"policy": "min", "overrides": {"growth.energy": 0.9, "baseline.epochs": 3, "run.seed": 5}},
        {"policy": "min", "constraints": ["none"]},
        {"baseline": "s-prompt-plus-plus", "retrieval": "lda", "overrides": {"routing.mix": 2}},
        {"baseline": "simple-cil", "overrides": {"benchmark.increment": 5, "run.precision": "bf16-mixed"}},
    ],
    ids=["defaults", "options", "no constraints", "retrieval", "control"],
)
def test_the_command_makes_the_same_configuration(write_full_run, installed, named):
    """What the command line parses to is the configuration of the run, however that was written."""
    import click

    from lw2g.cli.shared_options import typed_experiment

    run = write_full_run("run", **named)
    words = shlex.split(command_of(run, installed))
    assert words[:2] == ["lw2g", "run"]
    command = experiment_options(click.Command("run", callback=lambda **values: values))
    values = command.main(words[2:], standalone_mode=False)
    found = typed_experiment(values, installed)
    assert flat(to_mapping(found.config)) == run.options


def test_the_command_asks_for_the_precision_that_was_asked_for(write_full_run, installed):
    """The hash of a record covers what was asked for: with the precision that it settled on it is another."""
    settled = {"precision": {"asked": "auto", "used": "bf16-mixed", "reason": "the CPU has amx_bf16"}}
    run = write_full_run("run", settled, overrides={"run.precision": "bf16-mixed"})
    assert "precision" not in command_of(run, installed)
    gone = settled | {"config.baseline.gone": 1, "config.run.precision": "bf16-mixed"}
    foreign = write_full_run("foreign", gone)
    file = f"{foreign.path}/config.toml"
    assert command_of(foreign, installed) == f"lw2g run {file} --out NEW --set run.precision=auto"


def test_a_command_that_means_something_else_today_reads_the_file(write_full_run, installed):
    """An option that is no more, or weights that are elsewhere: then the run's own file is the command."""
    run = write_full_run("run", {"config.baseline.gone": 1})
    assert command_of(run, installed) == f"lw2g run {run.path}/config.toml --out NEW"


def test_a_fork_and_a_continued_run_say_how_they_came(write_full_run, installed):
    """The run they began with, the task, and what was changed; the benchmarks that followed."""
    origin = {
        "run": "old run",
        "task": 1,
        "changed": [{"option": "policy.map", "before": None, "after": [0, 0]}],
    }
    fork = write_full_run("fork", {"origin": origin})
    assert command_of(fork, installed) == ("lw2g fork 'old run' --at-task 2 --set 'policy.map=[0, 0]'")
    sources = [{"benchmark": {"name": "digits"}}, {"benchmark": {"name": "glyphs", "increment": 5}}]
    longer = write_full_run("longer", {"sources": sources})
    assert command_of(longer, installed).endswith(
        " && lw2g continue NEW --benchmark glyphs --set benchmark.increment=5"
    )


def test_mistakes_are_of_two_kinds(opened):
    """A wrong set, or the right set and a wrong class; a shared set is no wrong one."""
    found = [
        (int(opened.predicted["task"][row]), row, why)
        for row, why in mistakes(opened.predicted, {"task_to_set": [0, 1, 0]})
    ]
    assert found == [
        (0, 3, RETRIEVED),
        (0, 2, CLASSIFIED),
        (1, 7, RETRIEVED),
        (1, 5, CLASSIFIED),
        (2, 9, RETRIEVED),
    ]


def small(opened, installed, left=10_000):
    """Return the thumbnails of a run, for which a page has some bytes."""
    return Thumbnails(opened.run, installed, Allowance(left))


def test_what_is_confused_most_stands_first_with_its_images(opened, installed, monkeypatch):
    """Pairs of classes by their number of images; none of a run of somebody else, or without its images."""
    assert confused_most(opened, small(opened, installed)) == ()  # the run was tested on other images
    monkeypatch.setattr(thumbnails, "_TestImages", Images)
    predicted = opened.predicted["predicted"].copy()
    predicted[4] = 3
    twice = attrs.evolve(opened, predicted={**opened.predicted, "predicted": predicted})
    pairs = confused_most(twice, small(twice, installed))
    assert [(one.true, one.predicted, one.count, one.of) for one in pairs] == [
        ("cat", "dog", 2, 2),
        ("bee", "ant", 1, 2),
        ("bee", "cat", 1, 2),
        ("dog", "fox", 1, 2),
    ]
    assert pairs[0].sources == ["image 4", "image 5"]
    given = Given(who="x", tuned_on="nothing", protocol="p", badges=())
    theirs = attrs.evolve(opened, run=attrs.evolve(opened.run, given=given))
    assert confused_most(theirs, small(theirs, installed)) == ()
    assert task_pictures(theirs, small(theirs, installed)) == ()


class Images:
    """Test images of which each has a name of seven letters or more for a thumbnail."""

    def __init__(self, run, catalogue):
        pass

    def thumbnail(self, sample):
        return f"image {sample}"


def test_each_task_shows_its_classes_within_the_bytes_of_the_page(opened, installed, monkeypatch):
    """The first image of each class by task, and how many classes are left out; none of stored features."""
    monkeypatch.setattr(thumbnails, "_TestImages", Images)
    shown = task_pictures(opened, small(opened, installed))
    assert [(one.task, one.pictures, one.further) for one in shown] == [
        (1, [("ant", "image 0"), ("bee", "image 2")], 0),
        (2, [("cat", "image 4"), ("dog", "image 6")], 0),
        (3, [("elk", "image 8"), ("fox", "image 10")], 0),
    ]
    allowed = small(opened, installed, left=len("image 0image 2image 4"))
    shown = task_pictures(opened, allowed)
    assert [(one.task, len(one.pictures), one.further) for one in shown] == [(1, 2, 0), (2, 1, 1)]
    assert gallery_of(opened, allowed).pictures == []
    opened.predicted["retrieved"][:] = -1
    shown = gallery_of(opened, small(opened, installed)).pictures
    assert {one.mistake for one in shown} == {"wrong class"}
    opened.run.config["backbone"]["name"] = "features"
    assert task_pictures(opened, small(opened, installed)) == ()


@pytest.mark.parametrize("moved", [False, True])
def test_images_in_folders_are_read_as_files(moved, opened, installed, tmp_path, monkeypatch):
    """Ids that are paths below the root lead to the files: no stream is opened, which examines all images.

    The root is that of the run, or where its images lie by now.
    """
    count = len(read_json(opened.run.path / "samples.json"))
    (tmp_path / "photos" / "ant").mkdir(parents=True)
    ids = [f"photos/ant/{number}.png" for number in range(count)]
    for number, name in enumerate(ids):
        Image.new("RGB", (120, 60), (number, 50, 100)).save(tmp_path / name)
    (opened.run.path / "samples.json").write_text(json.dumps(ids))
    root = str(tmp_path / "photos")
    if moved:
        (opened.run.path / "moved.toml").write_text(f"[benchmark]\nname = 'folder'\nroot = {root!r}\n")
    else:
        opened.run.config["benchmark"] |= {"name": "folder", "root": root}
    monkeypatch.setattr(thumbnails, "_TestImages", None)
    pair, *_ = confused_most(opened, small(opened, installed))
    shown = gallery_of(opened, small(opened, installed)).pictures
    assert shown
    assert {one.sample for one in shown} <= set(ids)
    content = base64.b64decode(pair.sources[0].partition(",")[2])
    assert Image.open(io.BytesIO(content)).size == (96, 48)


def test_an_image_in_an_unusual_mode_is_left_to_its_stream(opened, installed, tmp_path):
    """Sixteen bits are scaled by the reader of the stream, which then says that the run saw other images."""
    ids = [f"photos/{name}" for name in read_json(opened.run.path / "samples.json")]
    for name in ids:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("I;16", (4, 4)).save(tmp_path / name, "PNG")
    (opened.run.path / "samples.json").write_text(json.dumps(ids))
    opened.run.config["benchmark"] |= {"name": "folder", "root": str(tmp_path / "photos")}
    assert confused_most(opened, small(opened, installed)) == ()


def test_the_gallery_needs_the_very_images(opened, installed, tmp_path: Path):
    """Data that are others, or not there, are told in one line."""
    assert gallery_of(opened, small(opened, installed)).why == (
        "the data set cannot be read: the run was tested on other images"
    )
