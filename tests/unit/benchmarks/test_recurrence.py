"""Streams in which classes come again: in other images, in other domains, in both."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import attrs
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import lw2g
from lw2g.cli.main import main
from lw2g.disk.sealed import seal_json
from lw2g.errors import ConfigError
from lw2g_benchmarks.folder import FolderBenchmark
from lw2g_benchmarks.options import FolderConfig, OrderOptions
from lw2g_benchmarks.tasks import ArraySource, LabelledImages, build_stream

CLASSES, EACH = 5, 12


def images(split, each):
    """Return tiny images of five classes."""
    labels = np.repeat(np.arange(CLASSES), each)
    pixels = torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8)
    return LabelledImages(
        source=ArraySource(pixels, [f"{split}/{i}" for i in range(len(labels))]), labels=labels
    )


def repetition(tasks, slots, seed=0):
    """Return a stream of repetition."""
    return build_stream(
        name="tiny",
        train=images("train", EACH),
        test=images("test", 2),
        class_names="abcde",
        order=range(CLASSES),
        sizes=(slots,),
        options=OrderOptions(stream="repetition", tasks=tasks, order_seed=seed),
    )


@pytest.fixture
def tree(tmp_path):
    """Three domains of three classes; one domain lacks a class."""
    for place in ("photo/a", "photo/b", "photo/c", "sketch/b", "sketch/c", "art/a", "art/b", "art/c"):
        domain, name = place.split("/")
        for split, count in (("train", 4), ("test", 2)):
            folder = tmp_path / "data" / domain / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (5, 4), (number, 10 * (split == "test"), 20)).save(folder / f"{number}.png")
    return tmp_path / "data"


def folder(root, **options):
    """Return the stream of a tree of domains."""
    return FolderBenchmark(FolderConfig(root=root, **options)).stream()


@pytest.mark.parametrize(("tasks", "slots"), [(5, 1), (7, 2), (4, 3), (3, 5)])
@pytest.mark.parametrize("seed", range(3))
def test_repetition_shares_out_all_images(tasks, slots, seed):
    """Every image is trained on once, and tested where its class comes first."""
    made = repetition(tasks, slots, seed)
    assert len(made.tasks) == tasks
    trained = [name for task in made.tasks for name in task.train.ids]
    assert sorted(trained) == sorted(images("train", EACH).source.ids)
    tested = [name for task in made.tasks for name in task.test.ids]
    assert sorted(tested) == sorted(images("test", 2).source.ids)
    met = set()
    for task in made.tasks:
        targets = set(made.targets_of(task))
        assert len(task.test) == 2 * len(targets - met)
        met |= targets
    parts = Counter(made.class_order)
    assert max(parts.values()) <= -(-tasks * slots // CLASSES)
    assert made.fingerprint == repetition(tasks, slots, seed).fingerprint


def test_domains_bring_their_classes_in_the_wanted_order(tree):
    """A class missing from a domain has no position there; ids, names and targets follow the classes."""
    made = folder(tree, stream="domains", domain_order=("sketch", "photo"))
    assert [(task.domain, task.class_names) for task in made.tasks] == [
        ("sketch", ("b", "c")),
        ("photo", ("a", "b", "c")),
    ]
    assert made.targets == (0, 1, 2, 0, 1)
    assert made.target_names == ("b", "c", "a")
    assert [len(task.test) for task in made.tasks] == [4, 6]
    assert made.tasks[0].train.ids[0] == "sketch/train/b/0.png"
    assert made.planted_groups == (0, 1)
    other = folder(tree, stream="domains", domain_order=("photo", "sketch"))
    assert other.fingerprint != made.fingerprint


def test_versatile_streams_shuffle_domains_and_groups(tree):
    """Each pair of a domain and a group of classes is a task, in an order that the seed draws."""
    drawn = {
        tuple((task.domain, task.class_names) for task in folder(tree, **options).tasks)
        for options in (
            {"stream": "versatile", "increment": 2, "uneven": True, "order_seed": seed} for seed in range(4)
        )
    }
    assert len(drawn) > 1
    pairs = {("art", ("a", "b")), ("art", ("c",)), ("photo", ("a", "b")), ("photo", ("c",))}
    assert {frozenset(one) for one in drawn} == {frozenset(pairs | {("sketch", ("b",)), ("sketch", ("c",))})}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": "domains", "domain_order": ("phto",)}, "no domain 'phto' in .*did you mean 'photo'"),
        ({"stream": "domains", "domain_order": ("art", "art")}, "domain_order repeats one of"),
        ({"domain_order": ("art",)}, "the stream 'classes' has no domains"),
        ({"stream": "domains", "more_roots": (Path("x"),)}, "domains lie below one root"),
    ],
)
def test_domains_that_cannot_be_are_refused(tree, options, message):
    """One line names the option."""
    with pytest.raises(ConfigError, match=message):
        folder(tree, **options)


@pytest.mark.parametrize(
    ("tasks", "slots", "message"),
    [
        (2, 2, "2 tasks of 2 classes cannot hold 5 classes"),
        (20, 4, "of 12 training images cannot come 16 times"),
    ],
)
def test_repetition_that_cannot_be_is_refused(tasks, slots, message):
    """Too few places, or too few images."""
    with pytest.raises(ConfigError, match=message):
        repetition(tasks, slots)


def sized(**options):
    """Return the training images of each class of a stream with fewer of them, and its deviations."""
    made = build_stream(
        name="tiny",
        train=images("train", EACH),
        test=images("test", 2),
        class_names="abcde",
        order=(4, 3, 2, 1, 0),
        sizes=(3, 2),
        options=OrderOptions(**options),
    )
    assert sum(len(task.test) for task in made.tasks) == 2 * CLASSES
    counts = Counter(int(label) for task in made.tasks for label in task.train.labels)
    return [counts[position] for position in range(CLASSES)], made


def test_shots_and_long_tails_are_drawn_from_training_images():
    """Shots count from a task on, a tail follows its formula, both by the seed; tests are untouched."""
    assert sized(shots=2)[0] == [2] * 5
    counts, few = sized(shots=2, shots_from=1)
    assert counts == [12, 12, 12, 2, 2]
    assert few.deviations == ("2 drawn training images of each class from task 2 on",)
    tail, made = sized(imbalance=16)
    assert tail == [12, 6, 3, 1, 1]  # 12 * 16 ** (-k / 4), rounded down, at least one
    assert sorted(sized(imbalance=16, imbalance_shuffled=True)[0]) == sorted(tail)
    prints = {sized(imbalance=16, order_seed=seed)[1].fingerprint for seed in (1, 2, 42)}
    assert len(prints) == 3
    assert made.fingerprint in prints


def test_few_shots_begin_within_the_stream():
    """From a task on that it lacks, all tasks would silently keep all images."""
    with pytest.raises(ConfigError, match=r"shots_from: 2 leaves no task .* task 1 .from 0.; lower it"):
        sized(shots=2, shots_from=2)
    assert sized(shots_from=2)[0] == [12] * 5  # without shots it is not read


def test_data_without_domains_name_those_that_have_some():
    """Of all benchmarks, the published ones among them."""
    with pytest.raises(ConfigError, match="these images have none; take benchmark glyphs, domainnet, or fol"):
        sized(stream="domains")


def test_targets_are_checked():
    """They begin with 0, have one name each, and a task has each once."""
    made = repetition(7, 2)
    with pytest.raises(ValueError, match="targets that first appear as 0, 1"):
        attrs.evolve(made, targets=tuple(1 + target for target in made.targets))
    with pytest.raises(ValueError, match="one class name for each target"):
        attrs.evolve(made, class_names=tuple("z" * 14))
    with pytest.raises(ValueError, match="targets say where a class comes again"):
        attrs.evolve(made, targets=None)


def test_a_method_that_trains_refuses_a_class_alone(tmp_path):
    """A loss over one class is 0: one line and exit code 2, before anything is learned."""
    arguments = ["--benchmark", "digits", "--set", "benchmark.increment=1", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(main, ["run", "--baseline", "dual-prompt", *arguments])
    assert done.exit_code == 2
    (line,) = [line for line in done.output.splitlines() if line.startswith("error:")]
    assert "task 1 has one class, and baseline 'dual-prompt' learns nothing" in line


def test_a_last_task_of_one_class_is_refused_before_the_first_is_learned(tmp_path):
    """Of a method without sets too; one that trains in the first task alone takes such a stream."""
    pixels = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)
    labels = np.arange(30) % 5
    data = {
        "benchmark": ((pixels, labels), (pixels[::-1] // 2, labels[::-1])),
        "benchmark.increment": 2,
        "benchmark.uneven": True,
        "baseline.epochs": 1,
    }
    events = []
    with pytest.raises(ConfigError, match="task 3 has one class, and baseline 'finetune' learns nothing"):
        lw2g.run(
            baseline="finetune", out=tmp_path / "refused", trackers=events.append, progress=False, **data
        )
    assert "EpochEnded" not in [type(event).__name__ for event in events]
    record = lw2g.run(baseline="ranpac", out=tmp_path / "taken", progress=False, **data)
    assert len(record["accuracy_matrix"]) == 3


def test_the_next_domain_is_tested_before_it_is_learned(tree, tmp_path):
    """Only where all its classes are known; one that comes with a new class has no value."""
    out = tmp_path / "run"
    arguments = ["run", "--baseline", "simple-cil", "--benchmark", "folder", "--out", str(out)]
    for option in (
        *("run.next_domain=true", "run.device=cpu", f"benchmark.root={tree}", "benchmark.stream=domains"),
        *('benchmark.domain_order=["sketch","photo","art"]', "backbone.name=micro"),
    ):
        arguments += ["--set", option]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads((out / "record.json").read_text())["next_domain"]
    first, second, third = found["by_task"]
    assert (first, second) == (None, None)  # photo brings a new class
    assert 0 <= third <= 100
    assert found["mean"] == third
    record = json.loads((out / "record.json").read_text())
    assert found["chance"] == 100 / len(set(record["class_names"]))
    shown = CliRunner().invoke(main, ["show", str(out), "--all"]).output
    assert "before their tasks are learned" in shown
    assert "of a guess among the seen classes" in " ".join(shown.split())
    assert CliRunner().invoke(main, ["verify", str(out)]).exit_code == 0
    del record["next_domain"]["chance"]  # records of earlier versions
    (out / "record.json").write_bytes(seal_json(record))
    shown = CliRunner().invoke(main, ["show", str(out), "--all"]).output
    assert "before their tasks are learned" in shown
    assert "a guess" not in shown


def parts_of(made, size):
    """Return how many equal parts, of ``size`` images each, of each class each task of a stream holds."""
    tasks = []
    for task in made.tasks:
        images_of = Counter(made.class_names[label] for label in task.train.labels.tolist())
        tasks.append({name: count // size for name, count in images_of.items()})
    return tasks


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_a_task_repeats_a_class_only_where_no_other_has_parts_left(slots):
    """Drawn from the last task to the first: what is left over when classes run out comes at the beginning.

    Five classes of ``slots`` parts each fill five tasks.
    """
    repeated = 0
    for seed in range(30):
        tasks = parts_of(repetition(5, slots, seed), EACH // slots)
        left = dict.fromkeys("abcde", slots)
        for parts in reversed(tasks):
            there = sum(count > 0 for count in left.values())
            assert len(parts) == min(slots, there)
            assert sum(parts.values()) == slots
            repeated += len(parts) < slots
            for name, count in parts.items():
                left[name] -= count
        assert not any(left.values())
        distinct = [len(parts) for parts in tasks]
        assert distinct == sorted(distinct)
    assert repeated > 0


def test_parts_that_do_not_come_out_even_go_to_drawn_classes():
    """Seven places among five classes: every class comes twice in about two draws of five."""
    draws = 200
    twice = Counter()
    for seed in range(draws):
        met = Counter(name for task in repetition(7, 1, seed).tasks for name in task.class_names)
        assert sorted(met.values()) == [1, 1, 1, 2, 2]
        twice.update(name for name, count in met.items() if count == 2)
    deviation = (draws * 0.4 * 0.6) ** 0.5
    assert all(abs(twice[name] - draws * 0.4) < 4 * deviation for name in "abcde")


def test_shots_are_drawn_anew_in_each_task():
    """The images kept of a class depend on its task and on the seed, not on the class alone."""
    kept = []
    for seed in range(6):
        _, made = sized(shots=3, order_seed=seed)
        for task in made.tasks:
            first = min(task.train.labels.tolist())
            rows = [int(name.split("/")[1]) % EACH for name in task.train.ids]
            kept.append(
                tuple(row for row, label in zip(rows, task.train.labels, strict=True) if label == first)
            )
    assert len(set(kept)) == len(kept)  # 12 draws of 3 images of 12: equal ones only if the seed is


@pytest.mark.parametrize("stream", ["classes", "repetition", "domains"])
def test_groups_are_planted_where_classes_do_not_come_again(stream):
    """Given ones hold for disjoint classes, domains are groups, and repetition has none."""
    plain = images("train", EACH)
    domain = np.arange(len(plain.labels)) % 2
    train, test = (attrs.evolve(images(split, EACH), domain=domain) for split in ("train", "test"))
    made = build_stream(
        name="tiny",
        train=train,
        test=test,
        class_names="abcde",
        order=range(CLASSES),
        sizes={"classes": (3, 2), "repetition": (2,), "domains": (5,)}[stream],
        options=OrderOptions(stream=stream, tasks=5),
        domains=("photo", "sketch"),
        planted_groups=(1, 0),
    )
    assert made.planted_groups == {"classes": (1, 0), "repetition": None, "domains": (0, 1)}[stream]


def test_the_fingerprint_knows_the_names_of_domains():
    """The same images in the same order are another stream where a domain has another name."""
    plain = images("train", EACH)
    domain = np.arange(len(plain.labels)) % 2
    prints = set()
    for names in (("photo", "sketch"), ("photo", "drawing"), ("photo", "sketch")):
        made = build_stream(
            name="tiny",
            train=attrs.evolve(plain, domain=domain),
            test=attrs.evolve(images("test", EACH), domain=domain),
            class_names="abcde",
            order=range(CLASSES),
            sizes=(CLASSES,),
            options=OrderOptions(stream="domains"),
            domains=names,
        )
        prints.add(made.fingerprint)
    assert len(prints) == 2
