"""Runs of several data sizes in several class orders: a table per size, a mean over its orders."""

import pytest

from lw2g.results.cells import counted_in
from lw2g.results.columns import COLUMNS
from lw2g.results.render import as_markdown
from lw2g.results.table import tables_of

STRICT = "mixes splits: rows with different ones are not comparable"
ORDERS = (["a", "b"], ["b", "a"])


def _grid(write_run, sizes, orders=ORDERS):
    """Write a run of each size in each order; each draws its own images, as ``shots`` does."""
    runs = []
    for number, order in enumerate(orders):
        for size, options in sizes.items():
            changes = {f"benchmark.{key}": value for key, value in options.items()}
            changes |= {"benchmark.order": "seeded", "benchmark.order_seed": number}
            changes |= {"record.class_order": [ord(name) - ord("a") for name in order]}
            changes |= {"record.fingerprints.benchmark": f"{number}{size}" * 32}
            runs.append(write_run(10.0 * number + int(size), **changes))
    return runs


def test_sizes_have_a_table_each_with_a_mean_over_their_orders(write_run, installed):
    """The curve of shots: that a table has another size beside it does not part its class orders."""
    runs = _grid(write_run, {"1": {"shots": 1}, "5": {"shots": 5}, "9": {}})
    tables = tables_of(runs, installed)
    assert [table.title.rpartition("a task")[2] for table in tables] == [", shots 1", ", shots 5", ""]
    (lowest, *_) = [table.rows for table in tables]
    assert [len(table.rows) for table in tables] == [1, 1, 1]
    assert [row.summary(COLUMNS["faa"]).mean for table in tables for row in table.rows] == [6.0, 10.0, 14.0]
    assert lowest[0].number == "2"
    alone = [tables_of([run for run in runs if run.options.get("benchmark.shots") == 1], installed)]
    assert alone[0][0].rows[0].summary(COLUMNS["faa"]) == lowest[0].summary(COLUMNS["faa"])
    assert tables[0].apart.endswith("images differ (shots 1, shots 5 and shots none)")
    assert as_markdown(tables, [COLUMNS["faa"]], None).count("(a class order each)") == 3


def test_a_table_that_mixes_sizes_has_a_row_of_each(write_run, installed):
    """Its name tells the size, and no folder; its mark is the same in each class order."""
    (table,) = tables_of(_grid(write_run, {"1": {"shots": 1}, "5": {"shots": 5}}), installed, ["splits"])
    assert [row.number for row in table.rows] == ["2", "2"]
    assert [row.label.rpartition(", ")[2] for row in table.rows] == [
        "benchmark[shots=1]",
        "benchmark[shots=5]",
    ]
    assert [row.marks[0].rpartition(", ")[2] for row in table.rows] == ["shots 1", "shots 5"]
    assert "(a class order each)" not in "".join(table.conditions)  # a row has as many


def _mixed(write_run, installed, sizes, tested):
    """Return the table of runs of several sizes, whose tested images have these hashes."""
    runs = _grid(write_run, sizes)
    for at, run in enumerate(runs):
        run.record["image_hashes"] = tested[at % len(sizes)]
    (table,) = tables_of(runs, installed, ["splits"])
    return table


@pytest.mark.parametrize(
    ("sizes", "told", "marks"),
    [
        ({"1": {"shots": 1}, "5": {}}, "shots", ["shots 1", "shots none"]),
        (
            {"1": {"name": "glyphs", "train_per_class": 1}, "5": {"name": "glyphs", "train_per_class": 5}},
            "train_per_class",
            ["train_per_class 1", "train_per_class 5"],
        ),
    ],
)
def test_numbers_of_training_images_are_told_as_that_alone(write_run, installed, sizes, told, marks):
    """Rows with the same test images compare; with others, or unknown ones, they do not."""
    table = _mixed(write_run, installed, sizes, [["x", "y"]] * 2)
    assert [row.marks for row in table.rows] == [(mark,) for mark in marks]
    assert table.unlike == (f"training images differ in number ({told}); test images are the same",)
    for tested in ([["x", "y"], ["x", "z"]], [None, None]):
        table = _mixed(write_run, installed, sizes, tested)
        assert STRICT in table.unlike
        assert all(row.marks[0].startswith("split only of classes ") for row in table.rows)


@pytest.mark.parametrize(("of_other", "some"), [({}, " in some rows"), ({"shots": 5}, "")])
def test_rows_of_all_images_are_not_told_to_draw(write_run, installed, of_other, some):
    """The order of classes draws few shots, and nothing where a row has all images."""
    table = _mixed(write_run, installed, {"1": {"shots": 1}, "5": of_other}, [["x", "y"]] * 2)
    assert counted_in(table) == [f"n: class orders (each draws its own training images{some})"]


def test_more_than_the_number_of_training_images_keeps_the_strict_words(write_run, installed):
    """A long tail is another data set."""
    sizes = {"1": {"shots": 1}, "5": {"shots": 5, "imbalance": 10}}
    assert STRICT in _mixed(write_run, installed, sizes, [["x", "y"]] * 2).unlike


def test_sizes_without_a_common_order_have_tables_of_their_own(write_run, installed):
    """Nothing tells that their images are the same."""
    runs = _grid(write_run, {"1": {"shots": 1}}, ORDERS[:1])
    runs += _grid(write_run, {"5": {"shots": 5}}, ORDERS[1:])
    assert [len(table.rows) for table in tables_of(runs, installed)] == [1, 1]


def test_options_that_leave_the_images_as_they_are_part_no_table(write_run, installed):
    """Fewer shots than images are drawn anew, more are all of them."""
    runs = _grid(write_run, {"5": {"shots": 500}})
    same = [run.record["fingerprints"]["benchmark"] for run in runs]
    for fingerprint, run in zip(same, _grid(write_run, {"5": {}}), strict=True):
        assert run.record["fingerprints"]["benchmark"] == fingerprint
        runs.append(run)
    (table,) = tables_of(runs, installed)
    assert [row.number for row in table.rows] == ["2", "2"]
