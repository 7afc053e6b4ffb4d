"""Reports: which runs are a row, what rows are called, and what may stand in one table."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

import written_runs
from lw2g.api.given_objects import Locals
from lw2g.disk.contents import record_hash
from lw2g.disk.sealed import seal_json
from lw2g.errors import ConfigError
from lw2g.results.ahead import ahead_in_words
from lw2g.results.cells import counted_in, few_remarks_on, mean_cells, remarks_on, shown_columns
from lw2g.results.columns import COLUMNS, chosen_columns
from lw2g.results.difference_words import SAME, few_in_words, on_differences
from lw2g.results.found_runs import Given, find_runs, read_run
from lw2g.results.paper import published_places
from lw2g.results.render import as_markdown
from lw2g.results.row_choice import no_such_row
from lw2g.results.summaries import Difference, MeanStd, paired_difference, summary
from lw2g.results.table import Row, tables_of

SAMPLES = written_runs.SAMPLES
LW2G = {"policy.name": "min", "constraints": {"orthogonal": {}, "cpk": {"phi": 0.5}}}
FAA = COLUMNS["faa"]


def test_a_row_is_a_configuration_over_seeds_and_orders(write_run, installed):
    """Seed, order, device, paths tell no rows apart; a seed counts once; orders, constraints are named."""
    runs = [
        write_run(80.0),
        write_run(84.0, **{"run.seed": 1, "benchmark.root": "there", "run.device": "cuda"}),
        write_run(99.0, **{"run.seed": 1}),
        write_run(
            82.0, **{"benchmark.order": "seeded", "benchmark.order_seed": 7, "record.class_order": [1, 0]}
        ),
        write_run(50.0, **{"baseline.epochs": 9}),
        write_run(60.0, **LW2G),
    ]
    (table,) = tables_of(runs, installed)
    assert [(row.label, len(row.runs)) for row in table.rows] == [
        ("dual-prompt x always", 3),
        ("dual-prompt[epochs=9] x always", 1),
        ("dual-prompt x min", 1),
    ]
    assert table.rows[0].number == "2 orders, 3 runs"
    assert table.rows[0].summary(FAA) == summary([(80.0 + 84.0) / 2, 82.0])
    others = "dual-prompt[epochs=9] x always"
    assert (*table.unlike, table.notes[0]) == (
        "means over different class orders do not compare: "
        f"orders natural and seeded 7 (dual-prompt x always), order natural ({others}; dual-prompt x min)",
        "constraints differ, not the policy alone: "
        f"none (dual-prompt x always; {others}), cpk+orthogonal (dual-prompt x min)",
        "rows have different seeds, and differences are over equal ones: "
        f"seeds 0 and 1 (dual-prompt x always), seed 0 ({others}; dual-prompt x min)",
        "not counted: 1 further run of the same seed of dual-prompt x always",
    )


def test_equal_orders_in_another_sequence_are_the_same(write_run, installed):
    """Rows over the same class orders stand together, whichever of their runs was found first."""
    orders = {seed: {"benchmark.order": "seeded", "benchmark.order_seed": seed} for seed in (1, 2)}
    held = {1: [0, 1], 2: [1, 0]}
    runs = [write_run(80.0, **orders[seed], **{"record.class_order": held[seed]}) for seed in (1, 2)]
    for seed in (2, 1):
        more = {"record.class_order": held[seed], "baseline.epochs": 9}
        runs.append(write_run(81.0, **orders[seed], **more))
    assert not tables_of(runs, installed)[0].unlike
    runs.append(write_run(60.0, **LW2G))
    others = "dual-prompt x always; dual-prompt[epochs=9] x always"
    assert (
        tables_of(runs, installed)[0]
        .unlike[0]
        .endswith(f": orders seeded 1 and seeded 2 ({others}), order natural (dual-prompt x min)")
    )


def test_a_table_says_over_how_many_tasks_accuracy_is(write_run, installed):
    """Where tasks have brought no new class, in any of the runs."""
    matrices = [[[80.0, 80.0], [None, None]], [[80.0, 80.0], [None, 80.0]]]
    runs = [
        write_run(80.0, **{"run.seed": seed, "record.accuracy_matrix": matrices[seed]}) for seed in (0, 1)
    ]
    (table,) = tables_of(runs, installed)
    assert table.notes == ("FAA is over 1 of 2 tasks: the others brought no new class",)
    assert not tables_of(runs[1:], installed)[0].notes


def test_a_table_tells_the_domains_of_its_rows(write_run, installed):
    """A single row is not named, of two each; a stream of classes has none."""
    domains = {"record.domains": ["photo", "art"], "record.accuracy_matrix": [[80.0, 70.0], [None, 60.0]]}
    runs = [write_run(65.0, **domains), write_run(65.0, **domains, **{"baseline.epochs": 9})]
    of_row = "photo 70.0 %, art 60.0 %"
    assert tables_of(runs[:1], installed)[0].notes[0] == f"by domain: {of_row}"
    (table,) = tables_of(runs, installed)
    first, second = (row.label for row in table.rows)
    assert table.notes[0] == f"by domain: {first}: {of_row}; {second}: {of_row}"
    (plain,) = tables_of([write_run(65.0)], installed)
    assert not any("domain" in note for note in plain.notes)


def test_the_label_of_a_grid_is_the_name_of_its_row(write_run, installed, tmp_path):
    """It stands for the components, which a note tells; rows with one label keep their composed names.

    The note hides no other one: what its orders have stands below the table, too.
    """
    turned = {"benchmark.order": "seeded", "benchmark.order_seed": 7, "record.class_order": [1, 0]}
    turned |= {"record.metrics.faa": 60.0}
    options = ({}, turned, LW2G, LW2G | turned, {"baseline.epochs": 9}, {"baseline.epochs": 8})
    paths = [write_run(80.0, **one).path for one in options]
    names = ["published", "published", "ours", "ours", "same", "same"]
    cells = [{"name": path.name, "row": name} for path, name in zip(paths, names, strict=True)]
    (tmp_path / "sweep.json").write_text(json.dumps({"cells": cells, "executor": {}}))
    (table,) = tables_of([read_run(path) for path in paths], installed)
    assert [(row.label, len(row.runs)) for row in table.rows] == [
        ("published", 2),
        ("ours", 2),
        ("dual-prompt[epochs=9] x always", 1),
        ("dual-prompt[epochs=8] x always", 1),
    ]
    over = "60.00 / 70.00 / 80.00"
    told = {
        "names of the grid: published is dual-prompt x always; ours is dual-prompt x min",
        f"FAA over 2 class orders (min / mean / max): published {over}; ours {over}",
    }
    assert told <= {*table.notes}
    for wanted in ("ours", "dual-prompt x min", "x min", "our"):
        assert table.row(wanted).label == "ours"
    with pytest.raises(ConfigError, match="did you mean 'ours'"):
        table.row("dual-promt x min")


def test_an_unfinished_run_leaves_the_label_of_a_grid_to_the_finished_row(write_run, installed, tmp_path):
    """It has the label with its tasks, what was changed is told once, and no part of a name means it."""
    paths = [write_run(80.0, **{"run.seed": seed, "record.tasks": 2 + seed}).path for seed in (0, 1)]
    paths.append(write_run(60.0, **LW2G).path)
    cells = [
        {"name": path.name, "row": row} for path, row in zip(paths, ("prompt", "prompt", "x"), strict=True)
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"cells": cells, "executor": {}}))
    (table,) = tables_of([read_run(path) for path in paths], installed, so_far=True)
    assert [row.label for row in table.rows] == ["prompt", "prompt, 2 of 3 tasks", "x"]
    told = "names of the grid: prompt is dual-prompt x always; x is dual-prompt x min"
    assert told in table.notes
    for wanted in ("prompt", "dual-prompt x always", "x al"):
        assert table.row(wanted).label == "prompt"
    assert table.row("2 of 3").label == "prompt, 2 of 3 tasks"
    (begun,) = tables_of([read_run(paths[1])], installed, so_far=True)
    assert [row.label for row in begun.rows] == ["prompt, 2 of 3 tasks"]


def test_marks_are_true_of_each_row(write_full_run, installed, tmp_path, monkeypatch):
    """Not of the union of their runs: rows have several class orders, or seeds of one, or one run."""
    monkeypatch.setattr(Row, "alike", False)
    columns = [FAA, COLUMNS["caa"]]
    orders = [list(range(6)), [1, 0, 2, 3, 4, 5], [0, 1, 3, 2, 4, 5]]
    # a row has several seeds of an order that another row has once
    runs = [("min", 0, 7), ("min", 1, 7), ("min", 2, 7), ("always", 0, 8), ("always", 1, 8), ("max", 0, 9)]

    def write(policy: str, order: int, seed: int) -> None:
        changes = {"class_order": orders[order], "metrics.caa": 60.0 + order + seed}
        write_full_run(f"{policy} {order} {seed}", changes, policy=policy, overrides={"run.seed": seed})

    def marks() -> tuple[list[str], list[str]]:
        (table,) = tables_of(list(find_runs([tmp_path])), installed)
        told = [*counted_in(table), *remarks_on(table, columns, None)]
        kept = ("n: ", "95 % interval: ", "±: ")
        numbers = [str(line[1]) for line in mean_cells(table, columns)]
        return numbers, [one.partition(", left out")[0] for one in told if one.startswith(kept)]

    for run in runs:
        write(*run)
    few = "fewer than five tell little of others"
    assert marks() == (
        ["n", "2", "1", "3"],
        [
            "n: class orders",
            f"95 % interval: of FAA, over class orders and test images ({few})",
            "±: one sample standard deviation over class orders",
        ],
    )
    write("max", 0, 10)
    either = "class orders, or the seeds of one"
    assert marks() == (
        ["n", "2 orders", "2 seeds", "3 orders"],
        [
            f"n: {either}",
            f"95 % interval: of FAA, over {either}, and test images ({few})",
            f"±: one sample standard deviation over {either}",
        ],
    )
    # single runs of several seeds vary in nothing
    for policy, order, seed in runs:
        if order:
            shutil.rmtree(tmp_path / f"{policy} {order} {seed}")
    shutil.rmtree(tmp_path / "max 0 10")
    assert marks() == (
        ["n", "1", "1", "1"],
        ["n: seeds of one class order", "95 % interval: of FAA, over test images"],
    )


def test_rows_of_other_test_images_do_not_compare(write_full_run, installed, tmp_path, monkeypatch):
    """However equal their class orders: the remark says so, with the number of each."""
    write_full_run("min", policy="min")
    (alone,) = tables_of(list(find_runs([tmp_path])), installed)
    monkeypatch.setattr(written_runs, "SAMPLES", SAMPLES[::2])
    write_full_run("half", {"metrics.faa": 250 / 3}, policy="always")
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    (told,) = [one for one in table.unlike if one.startswith("means over different ")]
    assert told.startswith("means over different test images do not compare: order ")
    assert ", 12 test images (hide-prompt x min)" in told
    assert ", 6 test images (hide-prompt x always" in told
    assert not any(one.startswith("means over different ") for one in alone.unlike)


@pytest.mark.parametrize(
    ("of_others", "told"),
    [
        ([[]], ": the best has no pair of equal seed and class order with 1 row"),
        ([range(3)], ": the best has pairs over only 3 seeds with 1 row"),
        (
            [[], range(3), range(1)],
            " with 1 row and pairs over fewer than five class orders or seeds with",
        ),
        ([range(5), []], " with 1 row and no predictions of common test images with 1 row"),
    ],
    ids=["unpaired", "few", "both", "no predictions"],
)
def test_no_row_is_tested_for_want_of_pairs(write_run, installed, of_others, told):
    """The words say what the best row lacks; that it is not ahead, nothing has shown."""
    runs = [write_run(90.0 + seed, **{"run.seed": seed}) for seed in range(5)]
    for number, seeds in enumerate(of_others):
        for seed in seeds or [9]:
            runs.append(write_run(50.0 + seed, **{"run.seed": seed, "baseline.epochs": 20 + number}))
    (table,) = tables_of(runs, installed)
    said = ahead_in_words(table, [FAA])
    assert said.startswith("not tested which row is ahead in FAA: the best has ")
    assert told in said


@pytest.mark.parametrize(
    ("wrong", "p", "said"),
    [
        ([6], [2 / 2**6], "bold: ahead of each other row in FAA beyond chance"),
        ([5], [2 / 2**5], "the best is not ahead of hide-prompt x always"),
        ([8, 7], [4 / 2**8, 2 / 2**7], "bold: ahead of each other row in FAA beyond chance"),
        ([8, 5], [4 / 2**8, 2 / 2**5], "the best is not ahead of hide-prompt x max"),
        ([0, 5], [1.0, 4 / 2**5], " and 1 more row"),
    ],
)
def test_rows_that_answer_alike_are_tested_over_images(
    write_full_run, installed, monkeypatch, tmp_path, wrong, p, said
):
    """By McNemar's exact test: draws of so few images have a smaller p. What failed a test is named."""
    for policy, number in zip(("min", "always", "max"), (0, *wrong), strict=False):
        samples = SAMPLES.copy()
        samples[:, 2] = samples[:, 1]
        samples[:number, 2] = (samples[:number, 1] + 1) % 6
        monkeypatch.setattr(written_runs, "SAMPLES", samples)
        is_wrong = samples[:, 2] != samples[:, 1]
        faa = 100 - float(np.mean([100 * is_wrong[samples[:, 0] == task].mean() for task in range(3)]))
        for seed in range(5):
            write_full_run(
                f"{policy}-{seed}", {"metrics.faa": faa}, policy=policy, overrides={"run.seed": seed}
            )
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    gaps = table.differences(table.row("x min"), FAA)
    found = [gaps[row.label].p for row in table.rows if row.label in gaps]
    assert found == pytest.approx(p)
    assert said in ahead_in_words(table, [FAA])


def test_the_first_unfinished_runs_are_named(write_run, installed):
    """Two that were stopped are both named below a few remarks; of many the first three."""
    runs = [write_run(80.0)]
    for seed in range(1, 6):
        runs.append(write_run(80.0, **{"run.seed": seed, "record.tasks": 3}))
        (table,) = tables_of(runs, installed)
        (told,) = [one for one in few_remarks_on(table, (), None, "here") if one.startswith("not counted: ")]
        named = [run.path for run in runs[1:] if str(run.path) in told]
        assert named == [run.path for run in runs[1:4]]
        assert told.endswith(f"; {seed - 3} more (here)") == (seed > 3)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([{"name": f"run-{at}"} for at in (2, 0, 1)], ["min", "always", "max"]),
        ([{"name": "run-2"}, "no cell", {"name": ["run-0"]}], ["min", "always", "max"]),
        ("no list", ["always", "max", "min"]),
        (None, ["always", "max", "min"]),
    ],
)
def test_rows_of_a_sweep_stand_in_the_order_of_its_grid(write_run, installed, tmp_path, cells, expected):
    """Folders are named by hashes: only the list tells the order; what it does not list follows by name."""
    for policy in ("always", "max", "min"):
        write_run(80.0, **{"policy.name": policy, "constraints": {}})
    if cells is not None:
        (tmp_path / "sweep.json").write_text(json.dumps({"cells": cells, "executor": {}}))
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    assert [row.runs[0].config["policy"]["name"] for row in table.rows] == expected


def test_default_columns_are_those_that_differ(write_run, installed):
    """What says the same of every row compares nothing; a column that is asked for stays."""
    runs = [
        write_run(80.0, **{"record.metrics.ssp": 2, "record.metrics.caa": 90.0}),
        write_run(70.0, **{**LW2G, "record.metrics.ssp": 2, "record.metrics.caa": 85.0}),
    ]
    (table,) = tables_of(runs, installed)
    names = [column.name for column in shown_columns(table, chosen_columns(None, {}))]
    assert names == ["faa", "caa", "total_s"]
    for wanted in ("faa,total_s,ssp", "FAA, total s, SSP", ["Faa", "total_s", "ssp"]):  # or as headings are
        asked = [column.name for column in shown_columns(table, chosen_columns(wanted, {}))]
        assert asked == ["faa", "total_s", "ssp"]
    # three tasks in two sets: their number stays although no row differs in it; of one set none is told
    matrix = [[90.0, 80.0, 70.0], [None, 70.0, 60.0], [None, None, 50.0]]
    for sets, told in ((2, ["ssp"]), (1, [])):
        found = {"record.metrics.ssp": sets, "record.accuracy_matrix": matrix, "record.tasks": 3}
        found |= {"record.metrics.pra": 100.0, "record.task_to_set": [0, 1, 1]}
        (table,) = tables_of([write_run(80.0, **found), write_run(70.0, **{**LW2G, **found})], installed)
        names = [column.name for column in shown_columns(table, chosen_columns(None, {}))]
        assert names == ["faa", *(["pra"] if told else []), *told, "total_s"]
    # the share of answers within the task is 100 where each task has all classes
    for stream, told in (("domains", []), ("classes", ["task_accuracy"])):
        options = {"benchmark.stream": stream, "record.metrics.task_accuracy": 100.0}
        (table,) = tables_of([write_run(80.0, **options)], installed)
        names = [column.name for column in shown_columns(table, chosen_columns("all", {}))]
        assert [name for name in names if name == "task_accuracy"] == told
    # a single row is compared with none, and a time that nobody took says nothing of it
    for seconds, others in ((0.0, []), (3.0, ["evidence_s"])):
        (table,) = tables_of([write_run(80.0, **{"record.seconds.evidence": seconds})], installed)
        names = [column.name for column in shown_columns(table, chosen_columns(None, {}))]
        assert [name for name in names if name == "evidence_s"] == others
        asked = [column.name for column in shown_columns(table, chosen_columns("evidence_s", {}))]
        assert asked == ["evidence_s"]
    # what one row has and the other has not tells them apart, though it is one number
    runs = [write_run(80.0, **{"record.metrics.caa": 90.0}), write_run(70.0, **LW2G)]
    (table,) = tables_of(runs, installed)
    names = [column.name for column in shown_columns(table, chosen_columns(None, {}))]
    assert names == ["faa", "caa", "total_s"]


def test_a_name_shows_what_is_composed_and_every_option_that_is_not_the_presets(write_run, installed):
    """Options stand beside their component; retrieval, constraints where not the method's own; words."""
    changes = [
        ({}, "dual-prompt x always"),
        (
            {"baseline.head": "lda", "baseline.head_carry": "affine"},
            "dual-prompt[head=lda,head_carry=affine] x always",
        ),
        ({"baseline.blocks": [0, 1]}, "dual-prompt[blocks=[0,1]] x always"),
        (LW2G, "dual-prompt x min"),
        ({**LW2G, "constraints.cpk.phi": 0.9}, "dual-prompt x min, cpk[phi=0.9]+orthogonal"),
        ({"policy.name": "min"}, "dual-prompt x min, no constraints"),
        ({"policy": {"name": "min", "margin": 3.0}}, "dual-prompt x min[margin=3.0], no constraints"),
        ({"retrieval.name": "oracle"}, "dual-prompt x always, retrieval oracle"),
        ({"routing.mix": 3}, "dual-prompt x always, routing[mix=3]"),
        ({"growth.new": 1}, "dual-prompt x always, growth.new 1"),
        (
            {"baseline": {"name": "simple-cil", "head": "auto"}, "retrieval": None},
            "simple-cil (--recommended)",
        ),
        (
            {
                "baseline": {"name": "slca-plus-plus", "head": "auto", "trained_tasks": 1, "epochs": 3},
                "retrieval": None,
            },
            "slca-plus-plus[epochs=3] (--trained)",
        ),
        (
            {"baseline": {"name": "slca-plus-plus", "head": "auto", "trained_tasks": 2}, "retrieval": None},
            "slca-plus-plus[head=auto,trained_tasks=2]",
        ),
    ]
    (table,) = tables_of([write_run(1.0, **change) for change, _ in changes], installed)
    assert [row.label for row in table.rows] == [label for _, label in changes]
    (alone,) = tables_of([write_run(1.0, **{"baseline.head": "lda", "policy.name": "x"})], installed)
    assert [row.label for row in alone.rows] == ["dual-prompt[head=lda] x x"]


def test_conditions_that_all_rows_share_are_told_once(write_run, installed):
    """Numbers, and options of benchmark, backbone and run, leave the names where they are the same in all."""
    common = {"baseline.epochs": 5, "run.precision": "32-true", "baseline.head": "lda"}
    runs = [write_run(1.0, **common), write_run(2.0, **common, **{"policy.name": "max"})]
    (table,) = tables_of(runs, installed)
    labels = ["dual-prompt[head=lda] x always", "dual-prompt[head=lda] x max, no constraints"]
    assert [row.label for row in table.rows] == labels
    assert table.notes[0] == "all rows: baseline.epochs 5, run.precision 32-true"
    (table,) = tables_of([*runs, write_run(2.0, **{**common, "baseline.epochs": 6})], installed)
    assert [row.label for row in table.rows][::2] == [
        "dual-prompt[epochs=5,head=lda] x always",
        "dual-prompt[epochs=6,head=lda] x always",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"baseline.head_carry": "affine"},
        {"baseline.blocks": [1]},
        {"backbone.image_size": 64},
        {"benchmark.train_resize": 9},
        {"growth.measures": ["energy"]},
        {"growth.new": True},
        {"routing.mix": 3},
        {"constraints.freeze": {}},
        {"retrieval": None},
        {"run.precision": "32-true"},
        {"record.origin": {"run": "x", "task": 0, "changed": []}},
    ],
    ids=str,
)
def test_runs_that_differ_are_never_averaged(write_run, installed, change):
    """Another seed of another configuration is another row, also where a record lacks the option."""
    runs = [write_run(1.0), write_run(3.0, **{"run.seed": 1}, **change)]
    (table,) = tables_of(runs, installed)
    assert [len(row.runs) for row in table.rows] == [1, 1]
    assert len({row.label for row in table.rows}) == 2


def test_an_option_that_came_later_had_its_default_before(write_run, installed):
    """What an older record does not know tells its row apart where another has more than the default."""
    older = write_run(60.0)
    known = {"baseline.head": "linear", "growth.measures": [], "routing.mix": 1, "backbone.image_size": None}
    same = write_run(62.0, **known, **{"run.seed": 1})
    other = write_run(70.0, **{"baseline.head": "lda", "run.seed": 1})
    [table] = tables_of([older, same, other], installed)
    assert [(row.label, len(row.runs)) for row in table.rows] == [
        ("dual-prompt x always", 2),
        ("dual-prompt[head=lda] x always", 1),
    ]


def test_a_fork_is_no_run_of_its_configuration(write_run, installed):
    """What began as another run has a row of its own, which says so."""
    (table,) = tables_of(
        [write_run(1.0), write_run(2.0, **{"record.origin": {"run": "x", "task": 2, "changed": []}})],
        installed,
    )
    labels = ["dual-prompt x always", "dual-prompt x always, forked after task 3"]
    assert [row.label for row in table.rows] == labels


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ({"policy.name": "min", "policy.margin": 0.0, "policy.reading": "ours"}, "policy min"),
        (
            {"policy.name": "min", "policy.margin": 1.0, "growth.energy": 0.9},
            "policy min[margin=1.0], growth[energy=0.9]",
        ),
        ({"policy.name": "always", "policy.margin": None}, "policy always"),
        ({"policy.name": "gone", "policy.own": 3}, "policy gone[own=3]"),
        ({"policy.margin": 0.0}, "policy[margin=0.0]"),
        ({"constraints": ["cpk", "orthogonal"], "constraints.cpk.phi": 0.5}, "cpk+orthogonal"),
        ({"constraints": ["cpk"], "constraints.cpk.phi": 0.9, "constraints.pgp.on": None}, "cpk[phi=0.9]"),
        ({"constraints": [], "constraints.orthogonal.on": None}, "no constraints"),
        ({"constraints.cpk.phi": 0.5, "growth.centred": True}, "cpk[phi=0.5], growth[centred]"),
        ({"baseline.epochs": 1, "run.device": "cpu"}, "baseline[epochs=1]"),
    ],
)
def test_a_fork_names_what_its_parent_had_otherwise_as_rows_are_named(write_run, installed, before, told):
    """Defaults go without saying beside the name of a component, and options of new ones are none of it."""
    changed = [{"option": key, "before": value, "after": "other"} for key, value in before.items()]
    run = write_run(2.0, **{"record.origin": {"run": "x", "task": 2, "changed": changed}})
    (table,) = tables_of([run], installed)
    assert table.rows[0].label == f"dual-prompt x always, forked after task 3 from {told}"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"record.protocol": "like-for-like"}, "protocols"),
        ({"record.backbone": {"timm_name": "vit", "sha256": "d" * 64}}, "checkpoints"),
        ({"record.fingerprints.benchmark": "d" * 64}, "splits"),
        ({"benchmark.split": "coda", "record.fingerprints.benchmark": "d" * 64}, "splits"),
        ({"record.class_names": ["a", "z"], "record.fingerprints.benchmark": "d" * 64}, "splits"),
    ],
)
def test_what_does_not_compare_makes_no_table_unless_asked_for(write_run, installed, changes, kind):
    """Checkpoints and protocols are refused, splits have their own tables; --mix makes one, with marks."""
    runs = [write_run(1.0), write_run(2.0, **{"run.seed": 1}, **changes)]
    if kind == "splits":
        assert len({table.title for table in tables_of(runs, installed)}) == 2
    else:
        with pytest.raises(ConfigError, match=f"the runs mix {kind} .*say mix='{kind}'"):
            tables_of(runs, installed)
        facts = {"test_transform": {"size": 32, "resize": "squash"}}
        cropped = {"test_transform": {"size": 32, "resize": "middle"}}
        noted = [
            write_run(
                3.0,
                **{
                    "record.protocol": "like-for-like",
                    "record.protocol_hash": name,
                    "record.protocol_facts": own,
                },
            )
            for name, own in (("a", facts), ("b", cropped))
        ]
        with pytest.raises(ConfigError, match=r"they differ in test_transform.resize squash or middle\)"):
            tables_of(noted, installed)
    (table,) = tables_of(runs, installed, [kind])
    assert len({row.marks for row in table.rows}) == len(table.rows) == 2
    assert f"mixes {kind}: rows with different ones are not comparable" in table.unlike


OTHER_DATA = {"record.fingerprints.benchmark": "d" * 64}


@pytest.mark.parametrize(
    ("first", "second", "differing"),
    [
        ({}, OTHER_DATA, "images differ (data {} and dddddddd)"),
        (
            {"record.image_hashes": ["x"]},
            {"record.image_hashes": ["y"]},
            "test images differ (data {} and dddddddd)",
        ),
        (
            {"record.image_hashes": ["x"]},
            {"record.image_hashes": ["x"]},
            "training images differ (data {} and",
        ),
        ({}, {"record.class_names": ["a", "z"]}, "classes differ (data {} and dddddddd)"),
        ({}, {"benchmark.split": "coda"}, "splits differ (data {} and dddddddd)"),
    ],
)
def test_why_runs_of_a_benchmark_have_several_tables(write_run, installed, first, second, differing):
    """It stands once, above the tables; a benchmark of one table needs no reason."""
    runs = [
        write_run(1.0, **first),
        write_run(2.0, **OTHER_DATA | second),
        write_run(3.0, **{"run.seed": 1}, **first),
    ]
    tables = tables_of(runs, installed)
    printed = as_markdown(tables, [COLUMNS["faa"]], None)
    data = runs[0].record["fingerprints"]["benchmark"][:8]
    assert tables[0].apart.startswith(f"2 tables of {tables[0].benchmark}: their {differing.format(data)}")
    assert printed.startswith(f"{tables[0].apart}\n\n### ")
    assert printed.count("2 tables of") == 1
    assert not tables_of(runs[::2], installed)[0].apart


def test_a_real_record_has_what_reports_read(finished, catalogue):
    """Every column, the title and the label come from the record of an actual run."""
    run = read_run(finished[0])
    assert run is not None
    assert (run.state, run.done, run.tasks) == ("finished", 3, 3)
    (table,) = tables_of([run], catalogue)
    assert table.title.startswith("tiny, ")
    assert [row.label for row in table.rows] == ['dual-prompt x min, growth[measures=["energy"]]']
    missing = {name for name, column in COLUMNS.items() if table.rows[0].summary(column).mean is None}
    assert missing <= {"ari", "images_per_s", "faa_domains", "faa_told", "faa_hard", "faa_within"}


FIRST = {"benchmark": {"name": "cifar100"}, "fingerprint": "b" * 64, "first_task": 0, "tasks": 1}
FIRST |= {"first_class": 0, "classes": 1}
BIRDS = {"name": "folder", "root": "/my/birds"}


def test_benchmarks_have_tables_of_their_own(write_run, installed):
    """Another benchmark or another task size is another table."""
    runs = [
        write_run(1.0),
        write_run(2.0, **{"benchmark.increment": 20}),
        write_run(3.0, **{"benchmark.name": "x"}),
        write_run(4.0, **{"record.sources": [FIRST, {**FIRST, "benchmark": BIRDS}]}),
    ]
    assert [table.title for table in tables_of(runs[:3], installed)] == [
        "CIFAR-100, 2 classes, 10 a task",
        "CIFAR-100, 2 classes, 20 a task",
        "x, 2 classes, 10 a task",
    ]
    (gone_on,) = tables_of(runs[3:], installed)
    assert gone_on.title == "CIFAR-100 + images in 'birds', 2 classes, 10 a task"


@pytest.mark.parametrize(
    ("options", "titles"),
    [
        ([{}, {"shots": 5}, {"imbalance": 50.0}], ["", ", shots 5", ", imbalance 50.0"]),
        ([{"shots": 5}, {"shots": 5, "imbalance": 50.0}], ["", ", imbalance 50.0"]),
        ([{"shots": 5}, {"shots": 5}], [", data 00000000", ", data 11111111"]),
        ([{}, {}, {"shots": 5}], [", data 00000000", ", data 11111111", ", shots 5"]),
    ],
)
def test_titles_say_in_which_options_streams_differ(write_run, installed, options, titles):
    """A hash of the data tells a reader nothing: it stands where no short option does."""
    runs = []
    for at, own in enumerate(options):
        changes = {f"benchmark.{name}": value for name, value in own.items()}
        runs.append(write_run(80.0, **changes, **{"record.fingerprints.benchmark": str(at) * 64}))
    found = [table.title for table in tables_of(runs, installed)]
    assert found == [f"CIFAR-100, 2 classes, 10 a task{title}" for title in titles]


MINE = {"kind": "baseline", "name": "mine", "plugin": "mine", "distribution": "my-dist", "version": "1.0"}
WITHIN = "runs of one row have different code of a plugin: dual-prompt x always: my-dist"
ACROSS = "rows have different code of my-dist"


@pytest.mark.parametrize(
    ("always", "least", "told"),
    [
        (["1.0 aa", "1.0 aa", "1.0 bb"], [], [f"{WITHIN}: 2 runs learned by 1.0 aa, 1 by 1.0 bb"]),
        ([None, "2.0 aa"], [], [f"{WITHIN}: 1 run learned by 1.0, 1 by 2.0 aa"]),
        (["1.0 aa", "1.0 aa+1.0 bb"], [], [f"{WITHIN}: 1 run learned by 1.0 aa, 1 by 1.0 aa and 1.0 bb"]),
        (["1.0 bb+1.0 aa"], [], [f"{WITHIN}: 1 run learned by 1.0 aa and 1.0 bb"]),
        ([None, "1.0 aa", "1.0 aa"], [], []),  # one of an older lw2g
        (["1.0 aa"], ["1.0 bb"], [f"{ACROSS}: 1.0 aa (dual-prompt x always), 1.0 bb (dual-prompt x min)"]),
        (
            ["1.0 aa", "1.0 bb"],
            ["1.0 bb", "1.0 bb"],
            [
                f"{WITHIN}: 1 run learned by 1.0 aa, 1 by 1.0 bb",
                f"{ACROSS}: 1.0 aa and 1.0 bb (dual-prompt x always), 1.0 bb (dual-prompt x min)",
            ],
        ),
        (["1.0 aa"], ["1.0 aa"], []),
        (["1.0 aa"], [None], []),
    ],
)
def test_runs_and_rows_with_different_code_are_told(write_run, installed, always, least, told):
    """A hash of settings says nothing of a plugin's code: a mean is of no one method, a difference of two."""
    runs = []
    for method, had in (({}, always), (LW2G, least)):
        for seed, code in enumerate(had):
            runs.append(write_run(80.0, **method, **{"run.seed": seed}))
            noted = {"components": [MINE], "code": {} if code is None else {"my-dist": code.split("+")}}
            (runs[-1].path / "plugins.json").write_bytes(seal_json(noted))
    (table,) = tables_of(runs, installed)
    may_be = ": a difference may be the code's"
    whole = [f"{one}{may_be}" if one.startswith(ACROSS) else one for one in told]
    assert [one for one in table.unlike if "different code" in one] == whole
    few = [one for one in few_remarks_on(table, (), None, "here") if "different code" in one]
    assert few == whole  # each is a line of its own


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (("1.0 aa", "1.0 bb"), ["dual-prompt x always, run-0", "dual-prompt x always, run-1"]),
        (("1.0 aa", "1.0 aa"), ["dual-prompt x always"]),
        ((None, "1.0 aa"), ["dual-prompt x always"]),  # of an older lw2g, which noted the version alone
    ],
)
def test_a_run_that_was_repeated_with_other_code_is_a_row_beside_the_old_one(
    write_run, installed, code, names
):
    """What `sweep retry --stale` keeps can be compared with what it ran anew."""
    runs = [write_run(80.0), write_run(90.0)]
    for run, one in zip(runs, code, strict=True):
        noted = {"components": [MINE], "code": {} if one is None else {"my-dist": [one]}}
        (run.path / "plugins.json").write_bytes(seal_json(noted))
    (table,) = tables_of(runs, installed)
    assert [row.label for row in table.rows] == names
    assert any(note.startswith("rows have different code") for note in table.unlike) == (len(names) > 1)


def test_old_runs_of_a_sweep_are_rows_named_after_those_of_its_grid(write_run, installed, tmp_path):
    """`report DIR DIR/.stale`: one row a label, whatever code its runs had; one more for a second time."""
    of_rows = {"plain": {}, "decay": {"baseline.epochs": 9}, "": LW2G}
    cells = []
    for row, options in of_rows.items():
        for seed in (0, 1):
            path = write_run(80.0, **options, **{"run.seed": seed}).path
            cells.append({"name": path.name, "row": row})
            for number, code in enumerate(("1.0 aa", "1.0 bb") if seed else ("1.0 aa",), start=1):
                old = Path(shutil.copytree(path, tmp_path / ".stale" / f"{path.name}-{number}"))
                codes = [code, "1.0 bb"] if seed else [code]
                noted = {"components": [MINE], "code": {"my-dist": codes}}
                (old / "plugins.json").write_bytes(seal_json(noted))
    (tmp_path / "sweep.json").write_text(json.dumps({"cells": cells, "executor": {}}))
    (table,) = tables_of(list(find_runs([tmp_path, tmp_path / ".stale"])), installed)
    names = ["plain", "decay", "dual-prompt x min"]
    every = [
        *((name, 2) for name in names),
        *((f"{name}, old 1", 2) for name in names),
        *((f"{name}, old 2", 1) for name in names),
    ]
    assert sorted((row.label, len(row.runs)) for row in table.rows) == sorted(every)
    assert [row.label for row in table.rows][:4] == [*names, "plain, old 1"]


def test_records_edited_after_their_run_are_told_first(write_run, installed):
    """The seal may have been renewed; the hash of the contents then tells, and `lw2g verify` what differs."""
    whole = write_run(80.0)
    told = {**whole.record, "record_hash": record_hash(whole.record)}
    held = attrs.evolve(whole, record=told)
    edited = attrs.evolve(whole, record={**told, "metrics": {"faa": 99.0, "pra": None}})
    other = attrs.evolve(edited, record={**edited.record, "seed": 1})
    where = edited.path
    verify = f"lw2g verify {where} tells what"
    stored = Given(who="x", tuned_on="nothing", protocol="p@1", badges=())
    for runs, place in (
        ([whole], ""),
        ([held], ""),
        ([attrs.evolve(edited, given=stored)], ""),  # a store verified it, then gave it one's own names
        ([edited], f"the record of {where} was changed after the run: {verify}"),
        ([edited, other], f"the records of 2 runs were changed after the runs: {verify}"),
    ):
        (table,) = tables_of(runs, installed)
        assert list(table.unlike) == ([place] if place else [])


def test_a_row_that_never_grows_has_no_options_of_growth(write_run, installed):
    """Unless it protects by a constraint what it has learned: the space of that is growth's."""
    chosen = {"baseline": {"name": "simple-cil"}, "retrieval": None, "policy": {"name": "min"}}
    runs = [
        write_run(80.0, **{"growth.energy": 0.9}),
        write_run(81.0, **LW2G),
        write_run(70.0, **{"growth.energy": 0.5}, **chosen),
        write_run(71.0, **{**chosen, "baseline": {"name": "ssiat"}, "constraints": {"cpk": {"phi": 0.5}}}),
    ]
    (table,) = tables_of(runs, installed)
    column = table.options.keys.index("growth.energy")
    assert [values[column] for values in table.options.values] == ["0.9", "0.95", "", "0.95"]


def test_draws_that_drew_nothing_are_named(write_run, installed):
    """Runs of one seed that differ in the seed of an order which is natural are one run, again and again."""
    runs = [write_run(80.0, **{"benchmark.order_seed": seed}) for seed in (1, 2, 3)]
    (table,) = tables_of(runs, installed)
    told = f"not counted: 2 further runs of the same seed of {table.rows[0].label}"
    noted = [note for note in table.notes if "not counted" in note]
    assert noted == [f"{told}: benchmark.order_seed drew nothing"]


def test_own_data_are_named_and_never_mixed(write_run, installed):
    """A table per folder or title, also of a folder that moved; never one of two data sets."""

    def run(root, fingerprint, order=0, **more):
        own = {"benchmark": {"name": "folder", "root": root, "increment": 1, "order_seed": order}}
        seen = {"record.class_order": [order, 1 - order], "record.fingerprints.benchmark": fingerprint * 64}
        return write_run(1.0, **own, **seen, **more)

    moved = [run("/a/birds", "1"), run("/b/birds", "1", **{"run.seed": 1}), run("/a/birds", "2", 1)]
    others = [run("/c/birds", "3"), run("/c/birds", "4", 1, **{"record.tasks": 3}), run("/a/birds", "5")]
    titled = [
        run("/d/x", "6", **{"benchmark.title": "Bees"}),
        run("/e", "7", 1, **{"benchmark.title": "Bees"}),
    ]
    tables = tables_of([*moved, *others, *titled], installed)
    assert [(table.title, len(table.rows[0].runs), len(table.unfinished)) for table in tables] == [
        ("images in 'birds', 2 classes, 1 a task, data 11111111", 2, 0),
        ("images in 'birds', 2 classes, 1 a task, data 22222222", 1, 0),
        ("images in 'birds', 2 classes, 1 a task, data 55555555", 1, 0),
        ("images in 'birds', 2 classes, 1 a task, data 33333333", 1, 1),
        ("Bees, 2 classes, 1 a task", 2, 0),
    ]


@pytest.mark.parametrize(
    ("hashes", "drawn", "tables"),
    [
        (["0b", "0a"], {}, 1),
        (["0a", "0c"], {}, 2),
        (["0a", "0c"], {"test_share": 0.2}, 1),  # before split_seed, the seed of the order drew them
        (["0a", "0b"], {"test_share": 0.2, "split_seed": 42}, 1),
        (["0a", "0c"], {"test_share": 0.2, "split_seed": 42}, 2),
        (None, {}, 1),  # of an older lw2g
    ],
)
def test_orders_of_changed_photographs_are_two_tables(write_run, installed, hashes, drawn, tables):
    """A fingerprint covers the order, and compares none with another: the tested images tell."""
    runs = []
    for order, of in ((0, ["0a", "0b"]), (1, hashes)):
        own = {"name": "folder", "root": "/a", "title": None, "increment": 1, "order_seed": order}
        seen = {"record.class_order": [order, 1 - order], "record.fingerprints.benchmark": str(order) * 64}
        benchmark = {**own, **drawn}
        runs.append(write_run(1.0, benchmark=benchmark, **seen, **{"record.image_hashes": of}))
    assert len(tables_of(runs, installed)) == tables


def test_controls_are_known_by_their_records(write_run, installed):
    """Bounds, methods that learn nothing and oracle retrieval are marked, whatever they are called."""
    runs = [
        write_run(1.0),
        write_run(1.0, **{"baseline.name": "simple-cil"}),
        write_run(1.0, **{"baseline.name": "joint"}),
        write_run(1.0, **{"retrieval.name": "oracle"}),
        write_run(1.0, **{"baseline.name": "unheard-of"}),
    ]
    (table,) = tables_of(runs, installed)
    assert [row.control for row in table.rows] == [False, True, True, True, False]


class MyHead:
    """A stranger's head, as far as a report looks at it."""


def test_a_head_under_a_control_is_no_control(write_run):
    """A baseline that is nothing but its head is as the head says; a bound is a bound under every head."""
    catalogue = Locals.of({"head": MyHead}).catalogue()
    heads = {
        ("simple-cil", "local-my-head"): False,
        ("simple-cil", "lda"): False,
        ("simple-cil", "cosine"): True,
        ("simple-cil", "not-installed"): False,
        ("dual-prompt", "cosine"): False,
        ("joint", "local-my-head"): True,
        ("replay", "lda"): True,
    }
    runs = [write_run(1.0, **{"baseline.name": name, "baseline.head": head}) for name, head in heads]
    (table,) = tables_of(runs, catalogue)
    assert [row.control for row in table.rows] == list(heads.values())


def test_the_paper_stands_beside_ours_with_what_differs(write_run, installed):
    """Values of the table that prints the configuration; another checkpoint or protocol is said."""
    (table,) = tables_of([write_run(80.0), write_run(80.0, **LW2G)], installed)
    always, lw2g = (row.paper["faa"] for row in table.rows)
    assert (always.value, always.std, always.source, always.differs) == (85.94, 0.1, "LW2G, table 1", ())
    assert (lw2g.value, lw2g.source) == (86.86, "LW2G, table 1")
    assert table.rows[0].paper["ffm_code"].value == 6.38
    other = {"backbone.name": "ibot1k"}
    (six,) = tables_of([write_run(1.0, **LW2G, **other)], installed)
    assert (six.rows[0].paper["faa"].value, six.rows[0].paper["faa"].source) == (71.79, "LW2G, table 6")
    (tiny,) = tables_of(
        [write_run(1.0, **{"backbone.name": "timm", "record.protocol": "like-for-like"})], installed
    )
    assert tiny.notes == (
        "published values are for checkpoint sup21k, ours timm (row dual-prompt x always)",
        "published values are for its authors' settings, ours like-for-like (row dual-prompt x always)",
    )
    (split,) = tables_of(
        [write_run(1.0, **{"benchmark": {"name": "imagenet-r", "increment": 20, "split": "coda"}})], installed
    )
    assert split.rows[0].paper["faa"].differs == (
        "split random:42, ours coda",
        "baseline.epochs: published 50; here 40",
        "growth.energy: published 0.99; here 0.95",
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"baseline.head": "lda"}, "baseline.head: published linear; here lda"),
        ({"constraints.cpk.phi": 0.9}, "constraints.cpk.phi: published 0.5; here 0.9"),
        ({"constraints.orthogonal.on": "gradient"}, None),  # the published value, and not our default
        ({"growth.energy": 0.9}, "growth.energy: published 0.95; here 0.9"),
        ({"routing.mix": 3}, "routing.mix: published 1; here 3"),
        ({"policy.margin": 3.0}, "policy.margin: published 0.0; here 3.0"),
        (
            {"benchmark.test_interpolation": "bilinear"},
            "benchmark.test_interpolation: published bicubic; here bilinear",
        ),
        ({"run.precision": "32-true"}, None),
        (
            {"record.deviations": [{"option": "a", "value": 1, "published": 2, "note": "x"}]},
            "a: published 2; here 1",
        ),
        (
            {"record.deviations": [{"option": "b", "value": 1, "published": None, "note": "so it is"}]},
            "b 1: so it is",
        ),
    ],
    ids=str,
)
def test_no_published_value_stands_beside_another_method_unsaid(write_run, installed, changes, text):
    """Every option that is not the authors' is named with the value and below the table."""
    (table,) = tables_of([write_run(80.0, **{**LW2G, **changes})], installed)
    assert table.rows[0].paper["faa"].differs == ((text,) if text else ())
    noted = [note for note in table.notes if note.startswith("differs from")]
    assert noted == ([f"differs from what was published: {text} (row {table.rows[0].label})"] if text else [])


def test_what_we_chose_for_a_benchmark_is_no_published_value(write_run, installed):
    """On a benchmark that the authors never ran, options count that have no value of ours for it."""
    changes = {
        "benchmark.name": "digits",
        "record.protocol": "like-for-like",
        "baseline.head_carry": "affine",
    }
    (table,) = tables_of([write_run(80.0, **changes)], installed)
    assert table.rows[0].label == "dual-prompt[head_carry=affine] x always"
    assert "baseline.epochs 40" in table.notes[0]
    assert table.rows[0].differs == ("baseline.head_carry: published none; here affine",)


def test_a_users_own_method_differs_from_nothing_published(write_run, installed):
    """A component without citation has no published method; that of a published one beside it counts."""
    own = attrs.evolve(installed.get("baseline", "dual-prompt"), citation="")
    catalogue = installed.with_component(own)
    changes = {"baseline.epochs": 9, "growth.energy": 0.9, **LW2G}
    runs = [write_run(80.0, **changes)]
    assert "baseline.epochs: published 40; here 9" in tables_of(runs, installed)[0].rows[0].differs
    assert tables_of(runs, catalogue)[0].rows[0].differs == ("growth.energy: published 0.95; here 0.9",)
    # nor were a user's own photos, whatever their options
    told = []
    for citation in ("a paper of 2020", ""):
        photos = attrs.evolve(installed.get("benchmark", "folder"), citation=citation)
        shared = {"benchmark.name": "folder", "benchmark.test_share": 0.2}
        (table,) = tables_of([write_run(80.0, **shared, **LW2G)], installed.with_component(photos))
        told.append([text for text in table.rows[0].differs if "test_share" in text])
        published = published_places(table.rows[0].runs[0], installed.with_component(photos))
        assert published("benchmark") is published("benchmark.test_share") is bool(citation)
    assert told == [["benchmark.test_share: published none; here 0.2"], []]


@pytest.mark.parametrize(
    ("changes", "cell", "told"),
    [
        (
            {"baseline.name": "sd-lora", "baseline.epochs": 20, "backbone.name": "sup21k-augreg"},
            "88 †",
            "a comparison of 2026, sup21k-augreg, seeds not told",
        ),
        (
            {
                "baseline": {"name": "inflora", "epochs": 20},
                "backbone.name": "sup21k-augreg",
                "record.class_order": [1, 0],
            },
            "86.5 †",
            "a comparison of 2026, sup21k-augreg, seeds not told",
        ),
        (
            {
                "baseline.name": "ranpac",
                "backbone.name": "sup21k-augreg",
                "benchmark": {"name": "imagenet-r", "increment": 20, "split": "folders", "order": "natural"},
            },
            "77.9 *",
            "RanPAC, sup21k-ft1k, split folders, 1 seed (its own table)",
        ),
        (
            {
                "baseline.name": "simple-cil",
                "backbone.name": "sup21k-augreg",
                "benchmark.name": "omnibenchmark",
                "benchmark.increment": 30,
                "benchmark.split": "folders",
                "benchmark.order": "seeded",
                "benchmark.order_seed": 1993,
            },
            "73.15",
            "Aper, sup21k-augreg, split folders, 1 seed",
        ),
    ],
    ids=["sd-lora", "inflora", "ranpac", "simple-cil"],
)
def test_every_published_value_has_its_source_and_marks(write_run, installed, changes, cell, told):
    """Values of other papers say whose they are, whether second hand, and where their runs differ."""
    (table,) = tables_of([write_run(50.0, **changes)], installed)
    printed = as_markdown([table], [COLUMNS["faa"]], None)
    assert f"| {cell} |" in printed
    assert f"- paper: {told}" in printed
    assert ("- † second hand" in printed) == ("†" in cell)
    assert ("checkpoint sup21k-ft1k, ours sup21k-augreg" in printed) == ("*" in cell)
    assert ("class order 1993, ours another" in printed) == ("*" in cell)


def test_a_mean_over_runs_needs_a_value_of_each():
    """A run without a value leaves none for the row; a single run has no deviation, no run has nothing."""
    assert summary([80.0, None]) == MeanStd(mean=None, std=None, n=2)
    assert summary([]) == MeanStd(mean=None, std=None, n=0)
    assert summary([5.0]) == MeanStd(mean=5.0, std=None, n=1)


_GAPPY = st.dictionaries(st.integers(0, 8), st.none() | st.floats(-100, 100), max_size=9)


@given(mine=_GAPPY, theirs=_GAPPY)
def test_intervals_pair_what_both_have(mine, theirs):
    """With seeds missing on either side the interval is scipy's, over the differences of the other seeds."""
    gaps = [
        round(mine[seed] - theirs[seed], 9)  # digits after these come of rounding, and are no difference
        for seed in range(9)
        if mine.get(seed) is not None and theirs.get(seed) is not None
    ]
    found = paired_difference(mine, theirs)
    if not gaps:
        assert found is None
        return
    assert found is not None
    assert (found.n, found.mean) == (len(gaps), pytest.approx(sum(gaps) / len(gaps), abs=1e-9))
    if not any(gaps):  # nothing differs
        assert found.is_none
        return
    if len(gaps) < 3 or len(set(gaps)) == 1:  # few pairs, or pairs that are alike, tell no spread
        assert (found.low, found.high) == (None, None)
        return
    ends = tuple(ttest_1samp(gaps, 0.0).confidence_interval(0.95))
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-6, abs=1e-9)


def test_a_paired_difference_has_an_interval_of_t():
    """Hand-worked: differences 1, 2, 3 have mean 2 and deviation 1; t of 2 degrees is 4.3027."""
    found = paired_difference({0: 2.0, 1: 4.0, 2: 6.0, 3: None}, {0: 1.0, 1: 2.0, 2: 3.0, 3: 1.0, 4: 1.0})
    assert found is not None
    assert (found.mean, found.n) == (2.0, 3)
    assert (found.low, found.high) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-4)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None
    single = paired_difference({0: 1.0}, {0: 3.0})
    assert single is not None
    assert (single.mean, single.low, single.high, single.n) == (-2.0, None, None, 1)


def test_equal_numbers_differ_by_zero():
    """Whatever the order of their additions: no difference of 1e-15, and no minus before a zero."""
    ours = dict.fromkeys(range(3), 0.1 + 0.2)
    found = paired_difference(ours, dict.fromkeys(range(3), 0.3))
    mirrored = paired_difference(dict.fromkeys(range(3), 0.3), ours)
    assert found == mirrored
    assert found is not None
    assert found.is_none
    assert str(found.mean) == "0.0"


@pytest.mark.parametrize(
    ("orders", "seeds", "number", "over", "has_interval", "has_p"),
    [
        (1, 5, "5", 5, True, True),
        (2, 1, "2", 2, False, False),
        (2, 2, "2 orders x 2 seeds", 2, False, False),
        (3, 2, "3 orders x 2 seeds", 3, True, False),
        (4, 1, "4", 4, True, False),
        (5, 1, "5", 5, True, True),
    ],
)
def test_seeds_of_one_order_are_one_where_orders_vary(
    write_full_run, installed, orders, seeds, number, over, has_interval, has_p
):
    """Of every metric: deviation and interval are over orders, each the mean of its seeds.

    A p value of FAA has at least five of them, and where no row has, the remark says so; here seeds of one
    order answer alike, and p is over images.
    """
    ours, theirs = [], []
    for order, seed in product(range(orders), range(seeds)):
        draw = {"class_order": np.roll(range(6), order).tolist(), "metrics.ffm": 10.0 * order + seed}
        other = draw | {"metrics.ffm": 3.0 * order**2 - seed**2}
        for policy, changes, found in (("min", draw, ours), ("always", other, theirs)):
            name = f"{policy}{order}{seed}"
            found.append(write_full_run(name, changes, overrides={"run.seed": seed}, policy=policy))
    (table,) = tables_of([*ours, *theirs], installed)
    first, second = table.rows
    of_order = [10.0 * order + (seeds - 1) / 2 for order in range(orders)]
    if orders > 1:
        assert first.summary(COLUMNS["ffm"]) == summary(of_order)
    assert (first.number, first.summary(COLUMNS["ffm"]).n) == (number, over)
    for name in ("ffm", "faa"):
        gap = first.difference(second, COLUMNS[name])
        assert gap.n == over
    assert (first.difference(second, COLUMNS["ffm"]).low is not None) == has_interval
    assert first.difference(second, COLUMNS["faa"]).low is not None
    assert [gap.p is not None for gap in table.differences(first, COLUMNS["faa"]).values()] == [has_p]
    remarks = " ".join(remarks_on(table, [COLUMNS["faa"]], first.label))
    test = "paired t test" if orders > 1 else "McNemar's exact test over images"
    tested = f"p, the larger of bootstrap and {test}, corrected for the rows (Holm)"
    assert (tested in remarks, "; no p below five class orders" in remarks) == (has_p, not has_p)
    assert "interval]" in remarks, "of a single difference nothing is to correct"
    unit = "class orders" if orders > 1 else "seeds of one class order"
    for others in ("", "--all"):  # every remark, and a few
        printed = as_markdown([table], [COLUMNS["ffm"]], first.label, others=others)
        assert (f"| {number} |" in printed, f"n: {unit}" in printed) == (True, True)


@pytest.mark.parametrize(
    ("gaps", "by_orders"),
    [([0.01, 0.02, 0.03, 5.0, 9.0], 0.1978), ([4.0, 4.1, 3.9, 4.0, 4.0], 0.0)],
)
def test_few_orders_of_one_sign_that_spread_are_no_finding(
    write_full_run, installed, monkeypatch, gaps, by_orders
):
    """p is the larger of the draws', whose tails are too thin for five orders, and a t test's over orders."""
    runs = []
    for order, gap in enumerate(gaps):
        for policy, faa in (("min", 60.0 + gap), ("always", 60.0)):
            draw = {"class_order": np.roll(range(6), order).tolist(), "metrics.faa": faa}
            runs.append(write_full_run(f"{policy}{order}", draw, policy=policy))
    drawn = Difference(mean=sum(gaps) / 5, low=0.1, high=9.0, n=5, p=0.0002)
    (table,) = tables_of(runs, installed)
    ours, theirs = table.rows
    # rows that see their orders: the answers of these runs are written alike
    monkeypatch.setattr(type(ours), "answers", None)
    monkeypatch.setattr(type(ours), "_right_answers", dict.fromkeys(ours.draws))
    monkeypatch.setattr("lw2g.results.table.over_orders_and_images", lambda *_: drawn)
    found = ours.difference(theirs, COLUMNS["faa"])
    assert found.p == pytest.approx(max(by_orders, 0.0002), abs=5e-4)
    assert (found.mean, found.low, found.high) == (drawn.mean, drawn.low, drawn.high)


def test_a_difference_is_over_all_pairs_or_no_interval_is_over_images(write_full_run, installed):
    """Predictions of one pair are gone: FAA differs by what the means do, not by what those of others do."""
    runs = []
    for policy, seed in product(("min", "always"), (0, 1)):
        faa = {} if (policy, seed) != ("min", 1) else {"metrics.faa": 50.0}
        runs.append(write_full_run(f"{policy}{seed}", faa, overrides={"run.seed": seed}, policy=policy))
    (runs[1].path / "predictions/task-002.safetensors").unlink()
    (table,) = tables_of(runs, installed)
    gap = table.rows[0].difference(table.rows[1], FAA)
    assert (gap.mean, gap.n) == (pytest.approx((50 - 200 / 3) / 2), 2)


def test_a_file_is_named_by_its_hash_unless_the_hash_is_known(write_run, installed):
    """A file under a name may hold anything: neither the title nor published values take the name."""
    known = "ac7478131e1b77e5c2f0225849730bd19ee89cfffe600c2dfd2272b34a50a43d"
    prefix = "e5005f0a" + "0" * 56
    names = []
    for digest, source in ((known, "file"), (prefix, "file"), ("d" * 64, "file"), ("d" * 64, "timm hub tag")):
        backbone = {"timm_name": "vit_base_patch16_224.orig_in21k", "sha256": digest, "source": source}
        (table,) = tables_of([write_run(80.0, **{"record.backbone": backbone})], installed)
        names.append((table.conditions[0], table.rows[0].paper["faa"].differs))
    named = "backbone sup21k vit_base_patch16_224.orig_in21k"
    assert names == [
        (f"{named} ac747813", ()),
        (f"{named} e5005f0a", ()),
        (
            "backbone file dddddddd (vit_base_patch16_224)",
            ("checkpoint sup21k, ours file dddddddd (vit_base_patch16_224)",),
        ),
        (f"{named} dddddddd", ()),
    ]


def test_layers_that_a_run_has_chosen_are_no_other_checkpoint(write_run, installed):
    """They are a part of its method; those that somebody asked for make features that do not compare."""
    joined = {"record.backbone.layers": 12, "record.backbone.pool": "both", "backbone.pool": "default"}
    taken = {"record.findings": {"choice": {"head": "ridge", "layers": 12}}}
    chosen = {"backbone.layers": "auto", "baseline.epochs": 3}
    runs = [write_run(50.0), write_run(60.0, **joined, **chosen, **taken)]
    (table,) = tables_of(runs, installed)
    assert f"head taken by {table.rows[1].label}: ridge on 12 layers" in table.notes
    assert [run.metric("faa") for row in table.rows for run in row.runs] == [50.0, 60.0]
    runs.append(write_run(70.0, **joined, **{"backbone.layers": 12, "baseline.epochs": 4}))
    with pytest.raises(ConfigError, match=r"the runs mix checkpoints .*both pooling, 12 layers"):
        tables_of(runs, installed)


@pytest.mark.parametrize(
    ("state", "progress", "told"),
    [
        ("finished", {}, ""),
        ("stopped", {}, "stopped after task 2 of 3, as it was asked to; lw2g continue PLACE goes on"),
        ("interrupted", {}, "interrupted after task 2 of 3; lw2g resume PLACE goes on"),
        (
            "running",
            {"remaining": 90.4},
            "running: task 3 of 3, 2 learned, about 0:01:30 left; make the report again for more",
        ),
        (
            "failed",
            {},
            "failed after task 2 of 3; lw2g sweep retry SWEEP goes on, lw2g sweep status SWEEP says why",
        ),
    ],
)
def test_a_run_says_how_far_it_is_and_what_goes_on_with_it(write_run, state, progress, told):
    """In words with the command, for a page and below a table; of a finished run there is nothing to say."""
    run = write_run(50.0, **{"record.tasks": 3})
    if state == "failed":
        note_failure(run.path)
        run = read_run(run.path)
    else:
        run = attrs.evolve(run, state=state, progress=progress)
    assert run.standing == told.replace("PLACE", str(run.path)).replace("SWEEP", str(run.path.parent))


def note_failure(run: Path) -> None:
    """Make a run a cell that failed."""
    (run.parent / "sweep.json").write_text(json.dumps({"cells": [{"name": run.name}]}), encoding="utf-8")
    (run.parent / "failed").mkdir()
    (run.parent / "failed" / run.name).write_text("exit code 2: no", encoding="utf-8")


def test_what_marks_mean_stands_there_however_much_is_unlike(write_run, installed):
    """A deviation, or a mark, that nobody explains says nothing: other remarks are counted before it."""
    runs = [write_run(80.0 + seed, **{"run.seed": seed}) for seed in (0, 1)]
    (table,) = tables_of(runs, installed)
    for kinds, more in (("abcd", "1 more remark"), ("abcdef", "3 more remarks")):
        crowded = attrs.evolve(table, unlike=tuple(f"{kind}: unlike" for kind in kinds))
        *shown, legend = few_remarks_on(crowded, [FAA], None, "here")
        assert shown == [f"{kind}: unlike" for kind in "abcd"]
        assert "\n  - ±: one sample standard deviation over the seeds of one class order" in legend
        assert legend.startswith(f"{more} (here); marks:\n  - n: seeds of one class order")


def test_runs_that_answer_alike_are_no_draws(write_full_run, installed, monkeypatch, tmp_path):
    """They are marked; between two such rows an interval is over test images, however few runs."""
    others = written_runs.SAMPLES.copy()
    others[[0, 2], 2] = 1  # as many are right, of other images
    for policy, seed in product(("min", "always", "max"), (0, 1)):
        monkeypatch.setattr(written_runs, "SAMPLES", others if (policy, seed) == ("max", 1) else SAMPLES)
        write_full_run(f"{policy}-{seed}", policy=policy, overrides={"run.seed": seed})
    (table,) = tables_of(list(find_runs([tmp_path])), installed)
    assert [str(line[1]) for line in mean_cells(table, [FAA])] == ["n", "2, alike", "2", "2, alike"]
    always, most, least = table.rows
    assert (len(always.answers.images), most.answers) == (12, None)
    assert few_in_words(least, always) == ""
    assert few_in_words(least, most) == "2 seeds tell little of others"
    both = "2 seeds of one class order and test images (2 seeds"
    for rows, over in (((always, least), "over test images, "), (table.rows, both)):
        told = on_differences(attrs.evolve(table, rows=rows), [FAA], "always")
        assert any(over in part for part in told)
    alike = "alike: the same final answers in every run"
    assert any(one.startswith(alike) for one in remarks_on(table, [FAA], None))
    assert SAME in remarks_on(attrs.evolve(table, rows=(always, least)), [FAA], "always")
    assert SAME not in remarks_on(attrs.evolve(table, rows=(always, most)), [FAA], "always")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "n: class orders"),
        ({"benchmark.shots": 5}, "n: class orders (each draws its own training images)"),
        # before split_seed
        ({"benchmark.test_share": 0.2}, "n: class orders (each draws its own training and test images)"),
        ({"benchmark.test_share": 0.2, "benchmark.split_seed": 42}, "n: class orders"),
    ],
)
def test_orders_that_draw_images_say_so(write_run, installed, options, told):
    """Their spread is that of images, too."""
    name = {"benchmark.name": "folder"} if "benchmark.test_share" in options else {}
    orders = [{"benchmark.order_seed": at, "record.class_order": [at, 1 - at]} for at in (0, 1)]
    runs = [write_run(1.0 + at, **name, **options, **order) for at, order in enumerate(orders)]
    (table,) = tables_of(runs, installed)
    assert counted_in(table) == [told]


def test_what_every_row_has_is_no_remark_below_a_few(write_run, installed):
    """A precision that all runs settled on is counted, not printed; one that differs is printed."""
    settled = [
        {"record.precision": {"asked": "auto", "used": used, "reason": "so"}}
        for used in ("bf16-mixed", "32-true")
    ]
    for other, told in (
        (settled[0], "1 remark on all rows (here)"),
        (settled[1], "run.precision auto: "),
    ):
        (table,) = tables_of([write_run(1.0, **settled[0]), write_run(2.0, **LW2G, **other)], installed)
        remarks = few_remarks_on(table, (), None, "here")
        printed = next(one for one in remarks if "precision" in one or "all rows" in one)
        assert printed.startswith(told)
        assert any("run.precision auto: " in one for one in table.notes)


def test_a_word_in_common_letters_is_no_near_name(write_run, installed):
    """Such as of *one* in *cosine*; a slip of the keyboard is offered."""
    tables = tables_of([write_run(1.0), write_run(2.0, **{"policy.name": "one"})], installed)
    for wanted, is_offered in (("cosine", False), ("onne", True), ("alwyas", True)):
        found = no_such_row(tables[0].rows, wanted, [tables[0].title])
        assert ("did you mean" in str(found)) == is_offered
        assert "rows are: " in str(found)
