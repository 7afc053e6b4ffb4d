"""The study of the growth score: what its tables mean."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lw2g.results.right_answers import RightAnswers
from script_modules import importing

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "growth_score"
KINDS, DRAWS = 4, 3

if not FOLDER.exists():
    pytest.skip("needs the source tree", allow_module_level=True)


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch):
    """The study's modules by name."""
    with importing(monkeypatch, FOLDER) as module_of:
        yield module_of


def cross(study, table: np.ndarray, null: np.ndarray):
    """Return the cross tables of a method with one reading."""
    tables = {"hfc|x": table, "null|x": null}
    return study("score_results").Cross(method="one", tables=tables, kinds=KINDS)


def test_a_sum_of_gradient_and_space_has_no_interaction(study):
    """The shares are those of the sums of squares, and rank explains what follows it."""
    draw = np.random.default_rng(0)
    null, of_gradient = draw.normal(size=12), draw.normal(size=12)
    found = cross(study, 3 * null[None] + of_gradient[:, None], null).shares("x")
    assert found["interaction"] == pytest.approx(0, abs=1e-9)
    whole = 9 * null.var() + of_gradient.var()
    assert found["space"] == pytest.approx(100 * 9 * null.var() / whole)
    assert found["rank"] == pytest.approx(found["space"])


def test_a_score_that_follows_the_kind_finds_it_and_one_of_ranks_does_not(study):
    """HFC that is greater at sets of the task's kind is found beyond rank, and missed by the least."""
    tasks = np.arange(KINDS * DRAWS)
    null = 10.0 * (tasks % KINDS)
    same = tasks[:, None] % KINDS == tasks[None] % KINDS
    one = cross(study, null[None] + 0.1 * same, null)
    assert one.found("greatest-beyond-rank", "x").mean == 100
    assert one.found("least", "x").mean == pytest.approx(100 / KINDS)
    # twelve tasks, of which each chooses twice: its choices are of one gradient, and count once
    assert one.found_between("greatest-beyond-rank", "x") == "100 [76, 100]"
    assert one.own("x").mean == pytest.approx(0.1 * (1 - (DRAWS - 1) / (len(tasks) - 1)))


def test_a_mean_over_kinds_tells_on_how_many_of_them_it_stands(study):
    """One kind whose spaces hinder its own tasks less is counted, and is not found."""
    tasks = np.arange(KINDS * DRAWS)
    same = tasks[:, None] % KINDS == tasks[None] % KINDS
    of_kind = np.where(tasks % KINDS == 0, -1.0, 1.0)
    one = cross(study, same * of_kind[None], np.zeros(len(tasks)))
    assert one.own("x").mean > 0
    assert one.kinds_above("x") == KINDS - 1
    assert one.found_by_kind("greatest-beyond-rank", "x") == [0, 100, 100, 100]


def run(study, order: int, right: list[float], tasks: list[int], row: str = "keep"):
    """Return a run with its answers, all of one task."""
    answers = np.array(right)
    faa = 100 * float(answers.mean())
    return study("score_results").Run(
        stream="turns-small",
        order=order,
        row=row,
        record={"metrics": {"faa": faa}, "task_to_set": tasks},
        answers=RightAnswers(
            images=range(len(answers)), right=answers > 0, shares=np.full(len(answers), 1 / len(answers))
        ),
    )


def test_a_difference_is_that_of_accuracies_and_none_of_equal_answers(study):
    """Paired by order and image, with an interval that equal answers make empty."""
    results = study("score_results")
    ours = {name: run(study, name, [1, 1, 1, 0], [0]) for name in (0, 1)}
    theirs = {name: run(study, name, [1, 0, 1, 0], [0]) for name in (0, 1)}
    apart = results.less(ours, theirs)
    assert apart.mean == 25
    # both orders have the same four images: the interval is that of one order
    assert (apart.low, apart.high) == (0, 75)
    same = results.less(ours, ours)
    assert (same.low, same.high) == (0, 0)
    assert results.less(ours, {}) is None


def test_a_verdict_waits_for_all_orders(study):
    """What has fewer orders than asked is open, and says what it would be."""
    verdicts = study("score_verdicts")
    plan = {"streams": ["turns-small"], "orders": 2}
    few = [run(study, 0, [1], [0, 0, 1])]
    assert verdicts.fewer_sets({"most": 80.0}, plan, few) == (
        "open (turns-small 1 of 2; so far holds)",
        "turns-small 67 %",
    )
    whole = [*few, run(study, 1, [1], [0, 1, 2])]
    assert verdicts.fewer_sets({"most": 80.0}, plan, whole) == ("refuted", "turns-small 83 %")


@pytest.mark.parametrize(
    ("least", "verdict"),
    [
        (0.0, "holds"),
        (15.0, "holds by the mean alone"),
        (25.0, "refuted by the mean alone on turns-small"),
        (50.0, "refuted on turns-small"),
    ],
)
def test_a_mean_decides_and_the_interval_tells_how_surely(study, least, verdict):
    """Of 20 points here, by either side of a margin."""
    ours = run(study, 0, [1] * 40 + [0] * 10, [0])
    theirs = run(study, 0, [1] * 30 + [0] * 20, [0, 1], row="always")
    plan = {"streams": ["turns-small"], "orders": 1}
    judged = study("score_verdicts").not_below({"than": "always", "least": least}, plan, [ours, theirs])
    assert judged[0] == verdict


@pytest.mark.parametrize(
    ("keep", "others", "verdict"),
    [
        (40, 30, "holds"),
        (31, 30, "undecided"),
        (30, 31, "refuted by the mean alone"),
        (30, 40, "refuted"),
    ],
)
def test_ending_above_both_needs_an_interval_and_ending_below_tells_whether_it_has_one(
    study, keep, others, verdict
):
    """Of 50 images each."""
    ours = run(study, 0, [1] * keep + [0] * (50 - keep), [0])
    theirs = [run(study, 0, [1] * others + [0] * (50 - others), [0, 1], row=row) for row in ("always", "one")]
    plan = {"streams": ["turns-small"], "orders": 1}
    judged = study("score_verdicts").buys({"than": ["always", "one"]}, plan, [ours, *theirs])
    assert judged[0] == verdict


ONE_AND_KEEP = "`one` and `keep` on `turns-small`"


@pytest.mark.parametrize(
    ("right", "above", "below"),
    [(40, ONE_AND_KEEP, ""), (31, "", ""), (20, "", ONE_AND_KEEP)],
)
def test_rules_and_one_set_are_above_or_below_with_their_interval_alone(study, right, above, below):
    """Against a set for each task with constraints, or the published one; `lda` and both are no rivals."""
    fields = study("growth_fields")
    runs = [
        run(study, 0, [1] * 30 + [0] * 20, [0, 1], row="always, constrained"),
        run(study, 0, [1] * right + [0] * (50 - right), [0, 1], row="always"),
        *(run(study, 0, [1] * right + [0] * (50 - right), [0], row=row) for row in ("keep", "one", "lda")),
    ]
    assert fields.rules_apart(runs, ["turns-small"], "always, constrained") == {1: above, -1: below}
    assert fields.rules_apart(runs, ["turns-small"], "always") == {1: "", -1: ""}


def test_sets_and_one_set_are_apart_over_the_orders_of_both(study):
    """An order that has one of the two alone counts for neither, nor does a stream."""
    fields = study("growth_fields")
    grown, one = fields.PROMPTS_APART

    def packed(method, order, right, stream="turns"):
        answers = run(study, order, right, [0]).answers
        return SimpleNamespace(stream=stream, order=order, method=method, answers=answers)

    runs = [packed(grown, 0, [1, 1, 0, 0]), packed(one, 0, [1, 0, 0, 0]), packed(one, 1, [1, 1, 1, 1])]
    words = fields.prompts_apart([*runs, packed(one, 0, [1, 1, 1, 1], stream="tiny")])
    assert set(words) == {"turns"}
    assert words["turns"].startswith("+25.0 [")
    assert words["turns"].endswith("in 1 order of 4 test images of `turns`")


def test_points_above_a_set_for_each_task_stand_below_its_accuracy(study):
    """A reader of the table can tell the FAA of every row: the first is that of which all others are less."""
    held = run(study, 0, [1] * 30 + [0] * 20, [0, 1], row="always, constrained")
    keep = run(study, 0, [1] * 40 + [0] * 10, [0], row="keep")
    plan = {"keep": {"streams": ["turns-small"]}, "report": {"streams": ["turns"]}}
    first, second = study("score_pages").by_policy(plan, [held, keep])
    assert first == ("`always`, constrained", f"FAA {held.faa:.1f}", "-")
    assert second[0] == "`keep`"
    assert second[1].startswith("100 %, +20.0 [")


def test_a_set_for_each_task_under_the_constraints_of_others_is_a_row_of_its_own(study):
    """``always`` has none unless told: what differs between the two is not their decisions."""
    row = study("score_results")._row
    config = {"baseline": {"name": "dual-prompt", "epochs": 5}, "policy": {"name": "always"}}
    assert row({"config": config | {"constraints": {}}}) == "always"
    constrained = config | {"constraints": {"orthogonal": {}, "cpk": {}}}
    assert row({"config": constrained}) == "always, constrained"
    assert row({"config": constrained | {"policy": {"name": "min"}}}) == "min"


def test_copies_count_as_training(study):
    """Two epochs of `keep` see at most the images of five, and fewer where a set is left as it is."""
    seen = study("score_results").images_seen
    config = {"baseline": {"epochs": 2}}
    trained = [{"decision": "grow"}] * 10
    held = [trained[0], *[{"decision": "reuse", "held": True}] * 9]
    assert seen({"config": config, "decisions": trained}, "keep") == pytest.approx(4.7)
    assert seen({"config": config, "decisions": held}, "keep") == pytest.approx(2.9)
    assert seen({"config": config, "decisions": held}, "always") == 2
    trial = {
        "config": {
            "baseline": {"epochs": 3, "batch_size": 32},
            "evidence": {"trial": {"steps": 4, "draws": 1}},
            "benchmark": {"train_per_class": 20},
        },
        "decisions": [{"candidates": []}, {"candidates": [{}]}],
        "task_classes": [[0, 1, 2], [3, 4, 5]],
    }
    # four steps of 32 images, with a new set and with the old one, in the second of two tasks of 60
    assert seen(trial, "trial") == pytest.approx(3 + 4 * 32 * 2 / 60 / 2)


def test_a_set_is_of_the_domain_of_its_first_task(study):
    """Counted are later tasks that share a set."""
    results = study("score_results")
    one = SimpleNamespace(record={"task_to_set": [0, 1, 0, 0]}, stream="sketch-first", row="min", order=0)
    one.domains = results.Run.domains.fget(one)
    assert one.domains == ["sketch", "photo", "sketch", "photo"]
    assert results.joins([one], "sketch-first", "min") == (2, 1)


def test_a_protocol_is_named_after_stream_and_order(study):
    """A pack has no names of folders, so the protocol tells them."""
    results = study("score_results")
    named = [
        {"name": "folder", "root": "/data/pacs-turns/sketch/3"},
        {"name": "folder", "root": "turns/0"},
        {"name": "glyphs", "order_seed": 4},
    ]
    names = [results.protocol_name({"config": {"benchmark": one}}) for one in named]
    assert names == ["growth-score.sketch-first.3", "growth-score.turns.0", "growth-score.glyphs.4"]
    found = results.OF_THE_STUDY.fullmatch(f"folder/like-for-like/{names[0]}@1")
    assert found.groupdict() == {"stream": "sketch-first", "order": "3"}
