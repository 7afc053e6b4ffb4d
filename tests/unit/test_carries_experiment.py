"""The study of carries: parity with lw2g's, the gate by hand, streams kept apart, verdicts by hand."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from lw2g.blocks.carrying import CARRIES
from lw2g.blocks.discriminants import Discriminant
from lw2g.config.resolve import resolve
from lw2g.registry.catalogue import load_catalogue
from lw2g_benchmarks.digits import DigitsBenchmark
from script_modules import importing

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "carries"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """Import a module of the experiment by name."""
    with importing(monkeypatch, FOLDER) as module_of:
        yield module_of


def drift(classes: int = 6, each: int = 7, dim: int = 5):
    """Return features before and after a drift that is no affine map, and their classes."""
    draw = np.random.default_rng(3)
    labels = np.repeat(np.arange(classes), each)
    before = draw.normal(size=(len(labels), dim)) + 2 * draw.normal(size=(classes, dim))[labels]
    after = before + 0.3 * np.tanh(before @ draw.normal(size=(dim, dim))) + 0.5
    return before, after, labels


@pytest.mark.parametrize("carry", ["none", "shift", "affine", "auto"])
@pytest.mark.parametrize("classes", [1, 2, 6])
def test_numpy_carries_do_what_those_of_lw2g_do(script, carry, classes):
    """Means and scatter of old classes end alike, whatever candidate was chosen."""
    before, after, labels = drift(classes)
    old = np.random.default_rng(5).normal(size=(4, before.shape[1]))
    scatter = old.T @ old
    ours = script("carrying").fit(carry, before, after, labels)
    theirs, _ = CARRIES[carry].fit(*(torch.from_numpy(rows) for rows in (before, after, labels)))
    np.testing.assert_allclose(ours(old), theirs(torch.from_numpy(old)).numpy(), rtol=1e-9, atol=1e-9)
    moved = theirs.scatter(torch.from_numpy(scatter), 1).numpy()
    np.testing.assert_allclose(ours.scatter(scatter), moved, rtol=1e-9, atol=1e-9)


def test_the_discriminant_is_that_of_lw2g(script):
    """Posteriors are the softmax of lw2g's scores."""
    before, after, labels = drift()
    ours, theirs = script("carrying").Discriminant(5), Discriminant(5, 6)
    for half in (labels < 3, labels >= 3):
        ours.learn(before[half], labels[half])
        theirs.update(torch.from_numpy(before[half]), torch.from_numpy(labels[half]))
    wanted = theirs.scores(torch.from_numpy(after), 6).log_softmax(1).numpy()
    np.testing.assert_allclose(ours.posteriors(after), wanted, rtol=1e-9, atol=1e-9)


def test_the_gate_by_hand(script):
    """New classes lie 2 apart: as near follows wholly, twice as far by a quarter, far off hardly."""
    gates = script("carrying").gates
    new = np.array([[0.0, 0.0], [2.0, 0.0]])
    old = np.array([[0.0, 2.0], [0.0, 4.0], [1.0, 0.0], [0.0, 400.0]])
    np.testing.assert_allclose(gates(old, new), [1, 0.25, 1, 2.5e-5])
    np.testing.assert_allclose(gates(old, new, tau=2.0), [1, 0.5, 1, 5e-5])
    np.testing.assert_allclose(gates(old + 7, new + 7), gates(old, new))
    np.testing.assert_allclose(gates(new, new), [1, 1])
    # a third new class far away does not change the median of nearest distances by much
    np.testing.assert_allclose(gates(old, np.vstack([new, [50.0, 0.0]]))[:2], [1, 0.25])


def test_a_step_measures_and_carries(script):
    """Old means follow as each carry says; what moved how far is told."""
    cell = script("cell")
    before, _, labels = drift()
    heads = {name: script("carrying").Discriminant(5) for name in cell.CARRIES}
    for head in heads.values():
        head.learn(before[labels < 3] + 9, labels[labels < 3])
    stood = heads["none"].mean.copy()
    test_before = np.concatenate([before[labels < 3] + 9, before[labels >= 3]])
    test = test_before + np.where(labels < 3, 1.0, 3.0)[:, None]
    new = labels >= 3
    found = dict(
        zip(
            cell.STEPS,
            cell.step(heads, before[new], before[new] + 3, labels[new], test_before, test, labels, known=3),
            strict=True,
        )
    )
    assert found["new_test"] == pytest.approx(3 * 5**0.5)
    assert found["new_train"] == pytest.approx(3 * 5**0.5)
    assert found["old_test"] == pytest.approx(5**0.5)
    assert found["ratio"] == pytest.approx(3)
    assert found["factor"] == pytest.approx(1 / 3)
    np.testing.assert_array_equal(heads["none"].mean, stood)
    np.testing.assert_allclose(heads["affine"].mean, stood + 3)
    weights = script("carrying").gates(stood, np.stack([before[labels == one].mean(0) for one in (3, 4, 5)]))
    np.testing.assert_allclose(heads["gate"].mean, stood + 3 * weights[:, None])
    assert found["gate"] == pytest.approx(weights.mean())
    np.testing.assert_array_equal(heads["gate"].scatter, heads["none"].scatter)


def a_cell(script, *, order: int = 0, stream: str = "turns", hits: dict | None = None, steps=None):
    """Return a cell of two tasks with two and four test images, right where ``hits`` says."""
    results, variants = script("results"), script("cell").VARIANTS
    labels = np.array([0, 1, 2, 2, 3, 3], np.int16)
    answers = np.full((len(variants), 2, 6), 9, np.int16)
    for (carry, expert), right in (hits or {}).items():
        row = answers[variants.index(carry), int(expert)]
        row[list(right)] = labels[list(right)]
    accuracy = np.full((len(variants), 2, 2, 2), np.nan, np.float32)
    right = answers == labels
    accuracy[:, :, 1] = 100 * np.stack([right[..., :2].mean(-1), right[..., 2:].mean(-1)], -1)
    facts = {"stream": stream, "order": order, "method": "slca-plus-plus", "size": 224}
    steps = np.zeros((3, len(script("cell").STEPS)), np.float32) if steps is None else steps
    return results.Cell(facts=facts, accuracy=accuracy, answers=answers, labels=labels, steps=steps)


def test_differences_are_paired_over_orders(script):
    """Tasks count alike whatever their images; the interval is over images, also those of one order."""
    less = script("results").less
    left, right = {"carry": "gate", "expert": False}, {"carry": "raw", "expert": False}
    first = a_cell(script, hits={("gate", False): (0, 1), ("raw", False): (2,)})
    second = a_cell(script, order=1, hits={("gate", False): (0, 1, 2), ("raw", False): (2,)})
    assert first.faa("gate") == pytest.approx(50)
    assert first.faa("raw") == pytest.approx(12.5)
    assert first.hits("raw").mean() == pytest.approx(12.5)
    found = less([first, second], left, right)
    assert (found.mean, found.worst, found.orders) == (pytest.approx(43.75), pytest.approx(37.5), 2)
    assert found.low < 43.75 < found.high
    one = less([first], left, right)
    assert one.mean == pytest.approx(37.5)
    assert -50 < one.low < 0  # draws without the first two images, which alone are better
    assert 50 < one.high <= 100
    assert str(one).endswith("(worst +37.5; 1 order)")


def test_verdicts_follow_the_letter(script):
    """A margin is refuted where a mean falls below it, also within its interval; few orders leave it open."""
    verdicts = script("verdicts")
    plan = tomllib.loads((FOLDER / "hypotheses.toml").read_text())
    good, bad = {("gate", True): (0, 1), ("raw", False): (0,)}, {("raw", False): range(6)}
    held = [a_cell(script, order=order, hits=good) for order in range(3)]
    fallen = [a_cell(script, order=order, hits=bad) for order in range(3)]
    assert verdicts.margin(plan["iv"], {"turns": held})[0] == "holds"
    text, lines = verdicts.margin(plan["iv"], {"turns": held, "tiny": fallen})
    assert text == "refuted on tiny"
    assert len(lines) == 2
    doubtful = [held[0], *fallen[1:]]
    assert verdicts.margin(plan["iv"], {"tiny": doubtful})[0] == "refuted by the mean alone on tiny"
    mixed = [*held, a_cell(script, order=3, hits={("gate", True): (0,), ("raw", False): (0, 1)})]
    assert verdicts.margin(plan["iv"], {"tiny": mixed})[0] == "holds by the mean alone"
    told = "\n".join(verdicts.judged({**plan, "i": plan["iv"], "i-exploratory": plan["iv"]}, held))
    assert "open (orders so far: pacs-art-sketch 0, cifar-second 0, tiny 0); on what there is: holds" in told


def test_a_margin_is_against_the_better_of_two(script):
    """The gate is set against `none` where that ends above `affine`."""
    plan = tomllib.loads((FOLDER / "hypotheses.toml").read_text())
    cells = [a_cell(script, hits={("none", False): (0, 1), ("gate", False): (0,)})]
    text, (line,) = script("verdicts").margin(plan["ii"], {"turns": cells})
    assert text == "refuted by the mean alone on turns"
    assert "less none -25.0" in line


def test_each_remedy_is_set_against_none_of_it(script):
    """A page that tells them together, or one alone, says nothing of what carry, gate or expert gains."""
    every = range(6)
    cells = [
        a_cell(
            script, stream="turns", hits={("gate", False): every, ("gate", True): (0,), ("none", True): (0,)}
        ),
        a_cell(
            script, stream="tiny", hits={("none", False): every, ("gate", True): (1,), ("none", True): (2,)}
        ),
    ]
    plan = {"main": cells[0].facts["method"], "sizes": [cells[0].facts["size"]], "streams": ["turns", "tiny"]}
    told = "\n".join(script("verdicts").gains(plan, cells))
    assert "- `affine` minus `none`: below on `tiny`, else undecided.\n" in told
    told = " ".join(told.split())
    for wanted in (
        "- Gate minus `none`: above on `turns`, below on `tiny`; each with the expert: undecided on all. ",
        "- Gate minus `affine`: above on `turns`, else undecided; of means only (exploratory): above on "
        "`turns`, else undecided. ",
        "- Expert minus no expert beside `none` (exploratory): below on `tiny`, else undecided; beside the "
        "gate: below on `turns`, else undecided. ",
    ):
        assert wanted in told


def test_a_foreseen_interval_that_decides_is_told(script):
    """Of all differences of the list, each by its name; the others are undecided."""
    every = range(6)
    cells = [
        a_cell(
            script, order=order, hits={("none", True): every if order else every[1:], ("gate", True): (0,)}
        )
        for order in range(3)
    ]
    plan = {"main": cells[0].facts["method"], "sizes": [cells[0].facts["size"]], "streams": ["turns"]}
    told = " ".join(script("verdicts").gains(plan, cells))
    assert "expert minus no expert beside `none` (exploratory) is above on all" in " ".join(told.split())
    assert "all else is undecided." in told
    *_, last = script("verdicts").gains(plan, [a_cell(script, order=order) for order in range(3)])
    assert last.endswith("foresaw, all are undecided.")


def test_a_page_says_why_the_gate_is_no_default(script):
    """By which methods ran on every stream, and by what gate and expert add beside each other."""
    every = range(6)
    gains = a_cell(script, stream="turns", hits={("gate", True): every})
    other = a_cell(script, stream="tiny", hits={("gate", True): (1,), ("none", True): (2,)})
    plan = {"main": "slca-plus-plus", "sizes": [224], "streams": ["turns", "tiny"], "replications": ["lora"]}
    told = " ".join(script("verdicts").defaults(plan, [gains, other]))
    assert "only `slca-plus-plus` ran on all 2 streams. There, at 224 px, gate minus `none` beside" in told
    assert "the expert is above on `turns`, else undecided; expert minus no expert beside the gate is" in told
    apart = {"turns": SimpleNamespace(low=-1.0, high=1.0), "tiny": SimpleNamespace(low=-1.0, high=1.0)}
    assert script("verdicts")._sides(apart) == "undecided on all"


def test_a_page_answers_whether_a_ratio_predicts_losses(script, monkeypatch):
    """It is shown where the claim holds at every size; a refuted one is never said to be shown."""
    verdicts = script("verdicts")
    plan = {"i": {}, "main": "slca-plus-plus", "sizes": [224, 64]}
    words = {224: "holds"}
    monkeypatch.setattr(verdicts, "judge", lambda *given: (f"{words[given[3]]} (rank correlation)", []))
    for small, answer in (("holds", "Yes"), ("refuted by the mean alone", "Not shown")):
        words[64] = small
        told = " ".join(verdicts.predicted(plan, []))
        assert told.endswith(f"? {answer}: [claim (i)](#verdicts).")


def test_the_page_says_how_a_claim_counts_a_loss_and_what_another_measure_says(script):
    """(i) is blind to a common motion: its verdict never stands without that of the other measure."""
    verdicts = script("verdicts")
    cells = script("results").load(FOLDER / "cells")
    told = " ".join(verdicts.page_parts(cells)["carries-verdicts"])
    assert "before new ones enter" in told
    assert "blind" in told
    plan = tomllib.loads(verdicts.HYPOTHESES.read_text())
    for size in plan["sizes"]:
        verdict, _ = verdicts.judge(plan, plan["i-exploratory"], plan["main"], size, cells)
        assert f"at {size} px {verdict.replace('rank correlation ', '')}" in " ".join(told.split())


def test_replications_tell_what_differs_from_the_main_method(script, monkeypatch):
    """A verdict like the main one is left out, another one has its mean; a method without cells is named."""
    verdicts = script("verdicts")
    monkeypatch.setattr(verdicts, "JUDGED", ("ii",))
    cells = [a_cell(script, hits={("gate", False): range(6)})]
    below = a_cell(script, hits={("none", False): range(6)})
    below.facts["method"] = "lora"
    plan = of_a_plan(margin=-0.5) | {"replications": ["lora", "prompt"]}
    told = [*verdicts.still_open(plan, [*cells, below])]
    assert told[2:] == [
        "- LoRA on `turns`: (ii) refuted on turns (-100.00).",
        "- One prompt set: not run.",
    ]
    alike = a_cell(script, hits={("gate", False): range(6)})
    alike.facts["method"] = "lora"
    assert [*verdicts.still_open(plan, [*cells, alike])][2] == "- LoRA on `turns`: none."


def test_tables_of_small_images_stand_in_the_archive_alone(script):
    """The page has those of large ones; neither lacks a row that the other has."""
    table = script("table")
    large, small = ("\n".join(table.study_lines(FOLDER / "cells", small=of)) for of in (False, True))
    assert re.findall(r"\*\*.*\*\*", large) == ["**Report streams, slca-plus-plus, 224 px**"]
    assert re.findall(r"\*\*.*\*\*", small) == ["**Report streams, slca-plus-plus, 64 px**"]
    rows = [re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) for text in (large, small)]
    assert rows[0] == rows[1]
    assert "gate minus affine of means only (no expert)" in rows[0]
    assert {"none with expert minus none", "gate with expert minus gate"} <= set(rows[0])


def of_a_plan(*, margin: float):
    """Return a plan of a study of one claim, that the gate ends above none by a margin; it had two orders."""
    gate, none = ({"carry": carry, "expert": False} for carry in ("gate", "none"))
    claim = {"kind": "margin", "left": gate, "right": [none], "margin": margin}
    return {"main": "slca-plus-plus", "sizes": [224], "streams": ["turns"], "orders": 2, "ii": claim}


def test_the_page_says_what_the_foreseen_intervals_and_orders_would_have_said(script, monkeypatch):
    """One order decides here: a t interval holds the margin, and the planned orders fall below it."""
    verdicts, results = script("verdicts"), script("results")
    monkeypatch.setattr(verdicts, "JUDGED", ("ii",))
    # the gate has nothing more in two orders, and all in two further ones
    cells = [a_cell(script, order=order) for order in range(2)]
    cells += [a_cell(script, order=order, hits={("gate", False): range(6)}) for order in (2, 3)]
    left, right = ({"carry": carry, "expert": False} for carry in ("gate", "none"))
    found = results.less_by_orders(cells, left, right)
    assert (found.mean, found.low) == (pytest.approx(50), pytest.approx(50 - 3.182 * 100 / 12**0.5, abs=0.1))
    alone = results.less(cells[2:3], left, right)
    assert results.less_by_orders(cells[2:3], left, right) == alone
    plan = of_a_plan(margin=-10.0)
    assert "is then also (ii) on `turns` at 224 px; no longer none" in verdicts.by_orders(plan, cells)
    assert "on the first 2 every verdict stays." in verdicts.first_orders(plan, cells)
    told = verdicts.first_orders(of_a_plan(margin=20.0), cells)
    assert (
        "on the first 2 (ii) is at 224 px refuted on turns (+0.00, margin +20; on all 4 orders +50.00)."
        in told
    )


def test_a_replication_is_told_as_far_as_it_ran(script, monkeypatch):
    """What is below a margin stands beside it, and a method without cells is named."""
    verdicts = script("verdicts")
    monkeypatch.setattr(verdicts, "JUDGED", ("ii",))
    cells = [a_cell(script, hits={("none", False): range(6)})]
    plan = of_a_plan(margin=-0.5) | {"replications": ["slca-plus-plus", "prompt"]}
    monkeypatch.setitem(verdicts.METHODS, "slca-plus-plus", "SLCA")
    first, *_, row = verdicts.replications(plan, cells)
    assert first == (
        "Foreseen replications, open as they lack streams; those of one prompt set were not run; "
        "on what there is:"
    )
    assert row.startswith("| SLCA, 224 px: turns (1 order) | refuted on turns (-100.00) | ")


def test_a_motion_is_set_against_the_median_of_earlier_ones(script, monkeypatch):
    """In every step that has earlier ones; the first has none."""
    verdicts = script("verdicts")
    cell = SimpleNamespace(step=lambda name: np.array([2.0, 6.0, 4.0, 8.0]))
    monkeypatch.setattr(verdicts, "chosen", lambda *_: [cell])
    assert verdicts.motions({"main": "one"}, [], 64, ["turns"]) == [3.0, 1.0, 2.0]


@pytest.mark.parametrize(("sign", "verdict"), [(1, "holds"), (-1, "refuted")])
def test_the_correlation_is_clustered_by_stream(script, sign, verdict):
    """Streams count once each, however many steps they have."""
    columns = script("cell").STEPS
    cells = {}
    for number, stream in enumerate(("turns", "tiny", "cifar-second")):
        steps = np.zeros((6, len(columns)), np.float32)
        steps[:, columns.index("ratio")] = range(6)
        lost = np.arange(6.0)
        lost[number : number + 2] = lost[number : number + 2][::-1]
        steps[:, columns.index("old_stays")] = sign * lost
        cells[stream] = [a_cell(script, stream=stream, steps=steps)]
    text, lines = script("verdicts").correlation({"of": "ratio", "with": "old_stays less old_affine"}, cells)
    assert text == f"{verdict} (rank correlation {sign * 0.94:+.2f} ± 0.00 over 3 streams)"
    assert lines[-1].startswith(f"mean over streams {sign * 0.94:+.2f} ±")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder with as many classes as the sets have, each with one small image a split."""
    objects = ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]
    domains = ["art_painting", "cartoon", "photo", "sketch"]
    names = {
        "cifar100": [f"c{number}" for number in range(100)],
        "caltech100_128": [f"k{number}" for number in range(100)],
        "pacs_128": [f"{domain}-{each}" for domain in domains for each in objects],
        "tinyimagenet200_64": [f"t{number}" for number in range(200)],
        "gtsrb_32": [f"s{number}" for number in range(43)],
        "trashnet_160.first": [f"w{number}" for number in range(6)],
        "trashnet_160.second": [f"w{number}" for number in range(6)],
    }
    for name, classes in names.items():
        for split in ("train", "test"):
            for number, label in enumerate(classes):
                folder = tmp_path / name / split / f"{number:03d}_{label}"
                folder.mkdir(parents=True)
                Image.new("RGB", (1, 1), (number, 0, 0)).save(folder / "000.png")
    return tmp_path


def test_report_streams_share_no_image_with_development_but_where_it_is_said(script, images):
    """Objects of PACS, classes of CIFAR-100 and signs, images of waste are split; rotations tell theirs."""
    streams = script("lay_out").streams(images)
    told = json.loads((ROOT / "experiments" / "stream_classes.json").read_text())
    for name, orders in streams.items():
        laid = [[f"{path.parents[1].name}/{path.name[:3]}" for path in order] for order in orders]
        assert [each.split() for each in told[name]] == laid, "images of two orders would not pair"
    known = tomllib.loads((ROOT / "experiments" / "streams.toml").read_text())["stream"]
    assert set(streams) <= set(known)
    used = {name: {path for order in orders for path in order} for name, orders in streams.items()}
    development = set().union(
        *(paths for name, paths in used.items() if known[name]["role"] == "development")
    )
    for name, paths in used.items():
        if known[name]["role"] == "report":
            assert bool(paths & development) != known[name]["shares"].startswith("shares no image"), name
            assert {path.parents[1].name for path in paths & development} <= {"pacs_128", "caltech100_128"}
        classes = known[name].get("classes", known[name]["tasks"] * known[name]["increment"])
        assert all(len(order) == classes for order in streams[name])
        assert all(len(set(order)) == len(order) for order in streams[name])


def test_sketches_and_photographs_in_turn_are_told_class_by_class(images):
    """`stream_classes.json` has the classes of each seed as the study of growth lays them out."""
    place = ROOT / "experiments" / "growth_score" / "lay_out.py"
    found = importlib.util.spec_from_file_location("lay_out_of_growth", place)
    lay_out = importlib.util.module_from_spec(found)
    found.loader.exec_module(lay_out)
    (images / "images").symlink_to(images)
    lay_out.lay_out_pacs(images)
    told = json.loads((ROOT / "experiments" / "stream_classes.json").read_text())
    for first in ("sketch", "photo"):
        for seed, classes in enumerate(told[f"{first}-first"]):
            laid = sorted((images / "pacs-turns" / first / str(seed) / "test").iterdir())
            assert [f"pacs_128/{path.resolve().name[:3]}" for path in laid] == classes.split()


def test_kinds_take_turns_in_all_six_orders(script, images):
    """A task has one kind of images, the kinds come in turn, and each order of kinds once."""
    orders = script("lay_out").streams(images)["turns"]
    firsts = set()
    for order in orders:
        tasks = [order[start : start + 5] for start in range(0, 60, 5)]
        kinds = [{path.parents[1].name for path in task} for task in tasks]
        assert all(len(kind) == 1 for kind in kinds)
        flat = [next(iter(kind)) for kind in kinds]
        assert flat == flat[:3] * 4
        firsts.add(tuple(flat[:3]))
        for task in tasks:
            if task[0].parents[1].name == "pacs_128":
                assert len({path.name[4:].rpartition("-")[0] for path in task}) == 1
    assert len(firsts) == len(orders) == 6


def test_archives_that_are_missing_are_told_in_a_line(script, tmp_path, monkeypatch, capsys):
    """What a folder lacks, and in which form it is expected, before anything is unpacked."""
    (tmp_path / "cifar100.json").touch()
    place, out = str(tmp_path), str(tmp_path / "out")
    monkeypatch.setattr("sys.argv", ["lay_out.py", "--data", place, "--out", out])
    with pytest.raises(SystemExit) as ended:
        script("lay_out").main()
    told = capsys.readouterr().err
    assert (ended.value.code, told.count("\n")) == (2, 1)
    assert told.startswith(
        f"error: {place!r} lacks cifar100*.zip, caltech100_128.json, caltech100_128*.zip, "
    )
    assert (
        "; --data is a folder of zips of sheets, one WebP sheet a class and split, each set beside a " in told
    )


def test_the_printed_command_reads_the_images_that_packs_have(script, tmp_path):
    """Its tasks and numbers of images are those of the runs behind the packs, on every stream of a table."""
    print_of, run_of = script("lay_out").run_command, script("cell").command
    known = tomllib.loads((ROOT / "experiments" / "streams.toml").read_text())["stream"]
    laid = {name: facts for name, facts in known.items() if "increment" in facts}
    assert {name for name, facts in known.items() if facts["role"] == "report"} <= set(laid)
    methods = ROOT / "experiments" / "frozen" / "methods.toml"
    for name, facts in laid.items():
        run = run_of(name, 0, "stopped-1", 224, tmp_path, tmp_path / "w", tmp_path / "run", methods=methods)
        own = {word.removeprefix("--set=") for word in run if word.startswith("--set=benchmark.")}
        conditions = {"benchmark.train_transform=none", "benchmark.test_resize=squash"}
        words = print_of(name, facts, tmp_path).split()
        assert {word for word in words if word.startswith("benchmark.")} == own - conditions, name
        assert words[-2:] == ["--seed", "0"]


def test_the_hash_is_of_images_and_labels_not_of_their_order(script, images):
    """Order changes nothing; a pixel, a label or the number of images does."""
    hash_of = script("lay_out").hash_of
    classes = sorted((images / "cifar100" / "train").iterdir())[:5]
    limits = {"train": 1, "test": 1}
    first = hash_of(classes, limits)
    assert first == hash_of(classes[::-1], limits)
    assert first != hash_of(classes[1:], limits)
    assert first != hash_of(classes, {"train": 1, "test": 0})
    Image.new("RGB", (1, 1), (77, 0, 0)).save(classes[0] / "000.png")
    assert first != hash_of(classes, limits)


def test_streams_tell_role_origin_and_licence():
    """Every stream has a role, sets with origin and licence, and the hashes of its images."""
    known = tomllib.loads((ROOT / "experiments" / "streams.toml").read_text())
    assert all(facts["origin"] and facts["licence"] for facts in known["set"].values())
    for name, facts in known["stream"].items():
        assert facts["role"] in ("development", "report", "surface"), name
        assert set(facts["sets"]) <= set(known["set"])
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in facts["sha256"]), name
        assert facts["sha256"], name


@pytest.mark.slow
def test_embedded_streams_are_those_of_the_store():
    """Their hash is the benchmark's fingerprint, which the records of the store carry."""
    known = tomllib.loads((ROOT / "experiments" / "streams.toml").read_text())["stream"]
    assert known["digits"]["sha256"] == [DigitsBenchmark().stream().fingerprint]
    records = [json.loads(path.read_text()) for path in (ROOT / "experiments" / "store").rglob("record.json")]
    glyphs = {one["fingerprints"]["benchmark"] for one in records if "glyphs" in json.dumps(one["config"])}
    assert set(known["glyphs"]["sha256"]) <= glyphs


def test_every_method_of_the_study_can_be_resolved(script):
    """No option of methods.toml is out of date; what the study trains has a carried `lda` head."""
    catalogue = load_catalogue()
    cells = script("table").METHODS
    for method, options in tomllib.loads((FOLDER / "methods.toml").read_text()).items():
        named = {kind: options.pop(kind) for kind in ("baseline", "policy")}
        named |= {kind: options.pop(kind) for kind in ("retrieval",) if kind in options}
        constraint = options.pop("constraint", None)
        places = {"benchmark": "folder", "backbone": "vit_tiny_patch16_224"}
        config = resolve(
            catalogue,
            **named,
            **places,
            constraints=constraint and [constraint],
            overrides={**options, "benchmark.root": "photos"},
        ).config
        chosen = config.baseline.config
        assert not config.constraints
        if method == "ranpac-frozen":
            assert chosen.adapt == "none"
        if method in (*cells, "recommended"):
            assert chosen.head == "lda"
            assert chosen.head_carry == ("gated" if method == "recommended" else "affine")


CLAIMS = re.compile(r"held out(?! classes)|no choice was made on|report streams?\b", re.IGNORECASE)


def claims(text: str, development: list[str]) -> list[str]:
    """Return the paragraphs and tables that call a development stream held out and do not name it so."""
    found = []
    for block in re.split(r"\n\s*\n(?!\|)", text):
        named = [name for name in development if re.search(rf"\b{re.escape(name)}\b", block)]
        if named and CLAIMS.search(block) and "development" not in block.lower():
            found.append(block)
    return found


def test_a_table_that_calls_a_development_stream_held_out_is_refused():
    """A caption belongs to its table; naming the role is enough."""
    table = "\n\n| FAA | caltech |\n| --- | ---: |\n| raw | 1 |"
    assert claims(f"Held out:{table}", ["caltech"])
    assert claims(f"On streams that no choice was made on:{table}", ["caltech"])
    assert not claims(f"Development streams, not held out:{table}", ["caltech"])
    assert not claims(f"Held out:{table}", ["turns-small"])
    assert not claims("Held-out classes of the task judge; caltech.", ["caltech"])


def test_no_page_calls_a_development_stream_held_out():
    """Neither by the names of streams.toml nor by those of their sets."""
    known = tomllib.loads((ROOT / "experiments" / "streams.toml").read_text())["stream"]
    development = [name for name, facts in known.items() if facts["role"] == "development"]
    development += [name for facts in known.values() for name in facts.get("called", ())]
    assert "Caltech-101" in development
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/howto/*.md")]
    for page in [*pages, *ROOT.glob("experiments/**/*.md")]:
        assert not claims(page.read_text(), development), page.name


def test_the_tables_keep_development_apart(script, tmp_path, monkeypatch):
    """A stream stands under the title of its role, and nowhere else."""
    table = script("table")
    hits = {("gate", True): (0, 1), ("raw", False): (0,)}
    cells = [a_cell(script, stream=stream, hits=hits) for stream in ("turns", "caltech")]
    lines = "\n".join(table.tables(cells, tmp_path))
    report, _, development = lines.partition("Development streams (not held out)")
    assert "turns (1 order)" in report
    assert "caltech" not in report
    assert "caltech (1 order)" in development
    assert "+25.0 [" in report


def test_the_cells_of_the_repository_end_where_their_runs_ended(script):
    """Answers give the FAA that the run itself recorded; every stream is a known one."""
    cells = script("results").load(FOLDER / "cells")
    known = tomllib.loads((ROOT / "experiments" / "streams.toml").read_text())["stream"]
    for cell in cells:
        assert cell.facts["stream"] in known
        assert cell.facts["precision"] == "bf16-mixed"
        assert cell.faa("affine") == pytest.approx(cell.facts["faa"], abs=0.01)
        assert json.dumps(cell.facts)


@pytest.mark.parametrize(("name", "first"), [("trashnet_160.first", 0), ("trashnet_160.second", 2)])
def test_halves_of_a_set_share_no_image(script, monkeypatch, tmp_path, name, first):
    """Each half takes images of its own of a sheet; the second one has what is left."""
    lay_out = script("lay_out")
    monkeypatch.setattr(lay_out, "MOST", {"trashnet_160.first": (2, 2), "trashnet_160.second": (2, 2)})
    monkeypatch.setattr(lay_out, "SKIPPED", {"trashnet_160.second": (2, 2)})
    facts = {"size": 1, "classes": ["w"], "counts": {"train": [3], "test": [4]}}
    (tmp_path / "trashnet_160.json").write_text(json.dumps(facts))
    with zipfile.ZipFile(tmp_path / "trashnet_160.zip", "w") as archive:
        for split in ("train", "test"):
            sheet = io.BytesIO()
            Image.fromarray(np.array([[[9 * place] * 3 for place in range(4)]], np.uint8)).save(sheet, "PNG")
            archive.writestr(f"{split}/000_w.webp", sheet.getvalue())
    lay_out.unpack(tmp_path, name, tmp_path / "images")
    shown = {
        split: [int(np.asarray(Image.open(file))[0, 0, 0]) // 9 for file in sorted(folder.iterdir())]
        for split in ("train", "test")
        for folder in [tmp_path / "images" / name / split / "000_w"]
    }
    assert shown == {"train": [0, 1] if not first else [2], "test": [first, first + 1]}
