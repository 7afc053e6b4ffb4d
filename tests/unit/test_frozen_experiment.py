"""The study of the frozen answer: heads in a span, runs beside cells, intervals and the rule by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import torch

from lw2g.blocks.discriminants import Discriminant
from lw2g.blocks.ridge import Ridge
from script_modules import importing

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "frozen"

if not FOLDER.exists():
    pytest.skip("needs the source tree", allow_module_level=True)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """Import a script of the study by name."""
    with importing(monkeypatch, FOLDER) as module_of:
        yield module_of


@pytest.mark.parametrize(("name", "whole"), [("ridge-12", "ridge"), ("lda-12", "lda")])
def test_heads_in_the_span_of_their_images_are_those_of_the_whole_width(script, monkeypatch, name, whole):
    """Scores, left-out scores and distances, of fewer images than features."""
    heads = script("heads")
    monkeypatch.setattr(heads, "COLUMNS", 5)
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % 3
    rows = torch.randn(24, 60, generator=draw).double() + labels[:, None]
    tested = torch.randn(7, 60, generator=draw).double() + 1
    split = {"train": rows, "test": tested}
    images = heads.Images(split, split, {"train": labels, "test": torch.arange(7) % 3})
    own, row = heads.learned(name, images, 3)
    assert own.turn is not None
    head = Ridge(60, 3, 0, 0, choice="gcv") if whole == "ridge" else Discriminant(60, 3)
    head.update(rows, labels)
    torch.testing.assert_close(row.scores, head.scores(tested, 3))
    torch.testing.assert_close(row.left_out, head.without_each(rows, labels, 3))
    if whole == "lda":
        theirs = heads.moments_of(head, 3).scores(tested)
        torch.testing.assert_close(own.known(tested, 3), theirs)


def test_a_run_is_laid_beside_a_cell_class_by_class(script):
    """Its classes are numbered as its tasks bring them; images of a class keep their order."""
    results = script("frozen_results")
    labels = np.array([0, 0, 1, 1, 2])
    cell = results.Cell({"order": None}, {"orders": np.array([[2, 0, 1]]), "labels": labels})
    true = np.array([0, 1, 1, 2, 2])
    predicted = np.array([0, 1, 0, 0, 2])
    assert results.laid_out(true, predicted, cell, 0).tolist() == [1, 0, 0, 1, 1]


def test_an_interval_is_over_images_and_over_orders(script):
    """Orders that differ widen it, whether or not they share images; without any difference it is 0."""
    results = script("frozen_results")
    better = np.repeat([1.0, 0.0], [20, 80])
    worse = -better
    for images in (None, [range(100), range(100, 200)]):
        low, high = results.interval([better, better], images)
        assert 10 < low < 20 < high < 30
        low, high = results.interval([better, worse], images)
        assert low < -15
        assert high > 15
        assert results.interval([np.zeros(5)]) == (0, 0)
    # the same images in other places are the same images: two orders that answer alike tell no more than one
    turned = [range(100), range(99, -1, -1)]
    assert results.interval([better, better[::-1]], turned) == results.interval([better])


def test_an_image_has_one_name_in_every_order_that_has_it(script, monkeypatch):
    """By its class in the data set and its place there, whatever number an order gives the class."""
    results = script("frozen_results")
    names = {0: ["set/7", "set/3"], 1: ["set/3", "set/8"]}
    monkeypatch.setattr(results, "classes_of", lambda stream, order: names[order])
    cells = {
        order: results.Cell({"order": order}, {"orders": np.array([[0, 1]]), "labels": np.array([1, 0, 1])})
        for order in names
    }
    stream = results.Stream("turns", cells)
    assert list(stream.images(0)) == [("set/3", 0), ("set/7", 0), ("set/3", 1)]
    assert set(stream.images(0)) & set(stream.images(1)) == {("set/3", 0)}


def test_calibration_errors_differ_by_paired_images(script):
    """A row against itself is 0; one that is surer than right ends surely above one that is not."""
    results = script("frozen_results")
    right = np.arange(200) % 5 > 0
    values = {
        "rows": np.array(["true", "too-sure"]),
        "labels": np.zeros(200, int),
        "answers": np.stack([~right, ~right]).astype(int),
        "surest": np.stack([np.full(200, 0.8), np.full(200, 0.999)]).astype(np.float32),
    }
    stream = results.Stream("turns", {None: results.Cell({"order": None}, values)})
    assert stream.ece_apart("true", "true") == (0, 0)
    low, high = stream.ece_apart("too-sure", "true")
    assert 5 < low < stream.ece("too-sure") - stream.ece("true") + 1
    assert low < high < 30
    assert stream._drawn_ece("too-sure", np.ones((1, 200))) == pytest.approx(stream.ece("too-sure"))


def test_few_images_are_paired_run_by_run_and_judged(script, monkeypatch):
    """A run is set against one of the frozen answer; the verdict is open until every set has both."""
    gains = script("frozen_gains")
    true = np.arange(10).repeat(3)
    # one image of three of class 0, two of the nine others
    frozen = np.where(np.arange(30) % 3 < np.where(true > 0, 2, 1), true, -1)
    trained = SimpleNamespace(true=true, predicted=np.where(true > 0, true, 5))
    runs = {("few-signs-five", "recommended"): {0: trained}}
    assert gains.few(runs, "recommended") == {}
    runs["few-signs-five", "frozen-answer"] = {0: SimpleNamespace(true=true, predicted=frozen)}
    own = gains.few(runs, "recommended")["signs", 5]
    # all but class 0 are right: nine more, one fewer, of thirty
    assert own.mean == pytest.approx(100 * 8 / 30)
    assert own.images == 30
    assert "open (1 of 4 sets); on these: refuted on signs" in next(gains.verdicts(runs))
    names = list(gains.SURFACE["set"])
    nothing = SimpleNamespace(mean=0.0, low=-1.0, high=1.0)
    more = SimpleNamespace(mean=0.5, low=-1.0, high=2.0)
    monkeypatch.setattr(
        gains,
        "few",
        lambda runs, method: {
            (name, count): more if count == 20 else nothing for name in names for count in (5, 10, 20)
        },
    )
    verdicts = [line.split("**")[3] for line in gains.verdicts({})]
    assert verdicts == [gains.UNOPPOSED, "holds", gains.UNOPPOSED]


def test_fewer_images_of_the_same_classes_are_paired_by_image(script, monkeypatch):
    """Rows of a stream with fewer images pair over orders; claims are open until all orders have both."""
    fewer, results = script("frozen_fewer"), script("frozen_results")
    names = {order: tuple(classes) for order, classes in enumerate(([0, 1], [1, 0], [0, 1]))}
    cell = results.Cell({"order": None}, {"orders": np.array([*names.values()]), "labels": np.arange(2)})
    known = {fewer.WHOLE: results.Stream(fewer.WHOLE, {None: cell})}

    def run(order, right):
        true = np.arange(2)
        return SimpleNamespace(
            hits=lambda cell: results.laid_out(true, np.where(right, true, 5), cell, order)
        )

    def rows(orders):
        # the trained row answers class 1 too, which comes first in order 1
        frozen = {order: run(order, np.array(names[order]) == 0) for order in orders}
        return {
            (fewer.FEW, "stopped-1"): {order: run(order, True) for order in orders},
            (fewer.FEW, fewer.FROZEN_ANSWER): frozen,
        }

    own = fewer.differences(known, rows(names), "stopped-1", fewer.FROZEN_ANSWER)[fewer.FEW]
    assert (own.mean, own.orders, own.images) == (50, 3, 2)
    # so is a stream's own row, against runs and not the head of all classes at once
    gains = script("frozen_gains")
    monkeypatch.setattr(results.Stream, "accuracy", lambda stream, row: 60.0)
    whole = {(fewer.WHOLE, method): found for (_, method), found in rows(names).items()}
    (row,) = gains.gains(known, whole, "stopped-1")
    assert (row.stream, row.gain, row.orders) == (fewer.WHOLE, 50, 3)
    lines = {line.split("**")[1]: line for line in fewer.lines(known, rows([0, 1]))}
    assert "open (2 of 3 orders); on these: holds" in lines["(n-ii)"]
    assert "**open (0 of 6 orders)**" in lines["(n-iv)"]


def test_a_line_of_a_stream_has_intervals_of_both_trainings_and_orders_above_one(script, monkeypatch):
    """Bold is decided, italic no report stream; one order has no n, and what did not run is a dash."""
    gains = script("frozen_gains")
    ends = {"images": 20, "lda": 60.0}
    few = gains.Gain(stream="few", gain=-1.0, low=-3.0, high=1.0, orders=1, chosen_on="", **ends)
    many = gains.Gain(stream="many", gain=2.0, low=1.0, high=3.0, orders=5, chosen_on="", **ends)
    rows = {gains.METHOD: [few, many], gains.EVERY_TASK: [attrs.evolve(few, gain=0.0, low=0.0, high=0.0)]}
    monkeypatch.setattr(gains, "gains", lambda known, runs, method: rows[method])
    monkeypatch.setattr(gains, "FACTS", {"few": {"role": "surface"}, "many": {"role": "report"}})
    _, _, first, second = gains.table({}, {})
    assert first == "| *few* | 20 | 60.0 | -1.0 [-3.0, +1.0] | the same |"
    assert second == "| many | 20 | 60.0 | **+2.0** [+1.0, +3.0], n=5 | - |"


def test_rows_of_a_table_are_counted_by_their_side_of_zero(script):
    """Above zero and below it, each also with the interval; a tie is on no side."""
    gains = script("frozen_gains")
    ends = [(-5.0, -8.0, -2.0), (-1.0, -3.0, 1.0), (2.0, 1.0, 3.0), (1.0, -1.0, 3.0), (0.0, 0.0, 0.0)]
    rows = [SimpleNamespace(gain=gain, low=low, high=high) for gain, low, high in ends]
    assert gains._sides(rows) == {"rows": 5, "above": 2, "surely_above": 1, "below": 2, "surely_below": 1}


@pytest.mark.parametrize(
    ("above", "told"),
    [
        ([], ""),
        (["tiny"], ""),
        (["cifar-whole"], " (the method was chosen there)"),
        (["cifar-second", "cifar-whole"], " (one contains the other; the method was chosen there)"),
        (["tiny", "cifar-whole"], " (the method was chosen on images of `cifar-whole`)"),
        (
            ["cifar-second", "tiny", "cifar-whole"],
            " (the last contains `cifar-second`; the method was chosen on images of `cifar-second` and "
            "`cifar-whole`)",
        ),
    ],
)
def test_streams_that_are_no_independent_evidence_are_told(script, above, told):
    """One contains others, or its images saw the choice of the method; another list has other words."""
    assert script("frozen_words").aside(above) == told


@pytest.mark.parametrize(
    ("above", "below", "told"),
    [
        ([], [], "undecided on all 3 that it ran on"),
        (["tiny"], [], "above on `tiny`, undecided on 2 of 3 that it ran on"),
        (
            ["tiny"],
            ["turns", "x"],
            "above on `tiny`, below on `turns` and `x`, undecided on 0 of 3 that",
        ),
    ],
)
def test_sides_of_a_row_are_counted_over_the_streams_that_it_ran_on(script, monkeypatch, above, below, told):
    """A stream without a run of the row is none of them."""
    words = script("frozen_words")
    monkeypatch.setattr(words, "sides", lambda *_: (above, below))
    names = ["turns", "tiny", "cifar-second", "waste-second"]
    runs = {(name, "one-set"): {} for name in names[:3]}
    assert words._sides_told(dict.fromkeys(names), runs, "one-set").startswith(told)


@pytest.mark.parametrize(
    ("taken", "told"),
    [
        ([["lda", "lda"], ["lda", "ridge-12"]], "other draws differ"),
        ([["lda", "lda"], ["lda", "lda"]], "among fewer classes)"),
        ([["lda", "lda"], ["ridge-12", "lda"]], ""),
    ],
)
def test_what_start_took_in_one_draw_is_not_said_of_all(script, monkeypatch, taken, told):
    """The run and `start` are compared on the first draw; others may have taken another head."""
    words = script("frozen_words")
    cells = {str(number): {"5": {"takes": heads}} for number, heads in enumerate(taken)}
    monkeypatch.setattr(words.frozen_gains, "frozen_cells", lambda: cells)
    reason = words._why_few_apart()
    assert told in reason
    assert bool(reason) == bool(told)
    assert ("others" in reason) == ("others" in told)


def test_a_candidate_replaces_what_is_held_on_three_streams(script, monkeypatch):
    """One that gains on two is passed over, and the next is set against the one before it."""
    rule = script("frozen_rule")
    gains = {"ranpac-joined": 2, "recommended": 3, "recommended-joined": 6}

    def gain(known, runs, stream, name, held):
        place = rule.RULE["development"].index(stream)
        return SimpleNamespace(low=0.5 if place < gains[name] else -0.5)

    monkeypatch.setattr(rule, "gain", gain)
    steps = rule.steps({}, {})
    assert [(step.name, step.held, step.replaces) for step in steps] == [
        ("ranpac-joined", "frozen", False),
        ("recommended", "frozen", True),
        ("recommended-joined", "recommended", True),
    ]
    assert rule.verdict(steps) == "recommended-joined"


OPEN = "open (late has 3 of 6 streams); on these: frozen"


@pytest.mark.parametrize(("run", "verdict"), [(3, OPEN), (4, "frozen")])
def test_the_rule_is_open_while_missing_streams_may_change_it(script, run, verdict):
    """A candidate that gains nowhere is decided once fewer than three streams are missing."""
    rule = script("frozen_rule")
    gains = {stream: SimpleNamespace(low=-0.5) for stream in rule.RULE["development"][:run]}
    steps = [rule.Step(name="late", held="frozen", gains=gains, replaces=False)]
    assert rule.verdict(steps) == verdict
    assert bool(rule.settled(steps)) == (run == 4)


def ended(mean: float, low: float, high: float, orders: int = 5) -> SimpleNamespace:
    """Return a difference as verdicts read it."""
    return SimpleNamespace(mean=mean, low=low, high=high, orders=orders)


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        (ended(0.5, -0.5, 1.5), "stopped-1"),
        (ended(-0.5, -1.5, 0.5), "stopped-1"),
        (ended(-0.5, -1.5, -0.1), "recommended"),
        (ended(-6.0, -13.0, 1.0), "recommended"),
        (ended(0.5, -0.5, 1.5, orders=4), "open (waste-first has 4 of 5 orders); on what ran: stopped-1"),
        (None, "open (waste-first has 0 of 5 orders); on what ran: stopped-1"),
    ],
)
def test_the_cheaper_row_takes_the_name_if_it_loses_nothing(script, last, verdict):
    """No interval below 0 and no mean below 0 over streams; open while a stream lacks an order."""
    rule = script("frozen_trained")
    *others, name = rule.RULE["development"]
    found = {stream: ended(1.0, 0.5, 1.5) for stream in others}
    assert rule.verdict(found | ({name: last} if last else {})) == verdict


def test_a_claim_of_whole_cifar_asks_for_three_orders(script):
    """With fewer the verdict is open and says what these give; the interval decides, not the mean."""
    whole = script("frozen_whole")
    claim = whole.CLAIMS[0]
    assert whole.verdict(claim, None) == "open"
    assert whole.verdict(claim, ended(2.0, 0.1, 4.0, orders=2)) == "open (2 of 3 orders); on these: holds"
    assert whole.verdict(claim, ended(2.0, 0.1, 4.0, orders=3)) == "holds"
    assert whole.verdict(claim, ended(2.0, -0.1, 4.0, orders=3)) == "refuted"


def test_orders_of_whole_cifar_are_those_that_cells_and_tables_pair_by(script):
    """A drawn order lists all classes; the cell and stream_classes.json number them alike."""
    script("features")  # whole.py looks for its neighbours by itself
    classes = [Path(f"images/cifar100_whole.{number // 5:02d}/train/{number:03d}_c") for number in range(100)]
    laid = script("whole").orders(classes)
    told = json.loads((FOLDER.parent / "stream_classes.json").read_text())["cifar-whole"]
    assert told == [" ".join(f"{path.parents[1].name}/{path.name[:3]}" for path in order) for order in laid]
    cell = script("frozen_results").streams()["cifar-whole"].cell(0)
    assert cell.values["orders"].tolist() == [[int(path.name[:3]) for path in order] for order in laid]
    assert {len(set(order)) for order in laid} == {100}


def test_claims_are_judged_on_the_order_that_they_were_written_for(script, monkeypatch):
    """Where further orders judge otherwise, that stands beside it."""
    stopped = script("frozen_stopped")

    def found(known, runs, names, left, right):
        mean = 3.0 if len(runs[stopped.FAR, left]) == 1 else 1.0
        return {stopped.FAR: ended(mean, -1.0, 5.0)}

    monkeypatch.setattr(stopped, "less_by_stream", found)
    monkeypatch.setattr(stopped, "by_task", lambda run, stream: [50.0])
    runs = {(stopped.FAR, method): {0: "a", 1: "b"} for method in (stopped.FIRST, stopped.SECOND)}
    first, second, *_ = stopped.lines({}, runs)
    written = f"on order 0, for which it was written: refuted on {stopped.FAR}"
    assert f"**holds where both ran** over all orders; {written}" in first
    assert f"**refuted on {stopped.FAR}**. {stopped.FAR}" in second


def test_whole_images_are_answered_as_in_the_cells(script):
    """What is compared with their middle is the row of the other tables, on the same test images."""
    results = script("frozen_results")
    found = json.loads((results.HERE / "cropped.json").read_text(encoding="utf-8"))
    for name, stream in results.streams().items():
        if name in found:
            hits = stream.cell(0).hits("auto")
            whole, middle = (found[name][way]["right"] for way in ("squash", "crop"))
            assert len(whole) == len(middle) == len(hits), name
            assert whole.count("1") == pytest.approx(hits.sum(), abs=1), name
