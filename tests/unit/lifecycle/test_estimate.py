"""What a run would cost, to about 50 %, and nothing where parts are missing."""

from __future__ import annotations

import math
import socket
import time
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.phase import ComputePhase
from lw2g.learning.session import open_session
from lw2g.lifecycle import estimate as module
from lw2g.lifecycle import rehearsal
from lw2g.lifecycle.estimate import estimate, missing_parts, seconds_to_start
from lw2g.lifecycle.rehearsal import Rehearsal, TaskCost
from lw2g.lifecycle.runner import start


@pytest.fixture(scope="module")
def run(catalogue, quick, tmp_path_factory):
    """An estimate, the record and the directory of the run that it is of, and its experiment."""
    resolved, directory = quick(policy="always"), tmp_path_factory.mktemp("estimated") / "run"
    cost = estimate(resolved.config, catalogue)
    return cost, start(resolved, catalogue, directory), directory, resolved


def test_what_can_be_counted_is_exact(run):
    """Tasks and images are those of the run."""
    cost, *_ = run
    assert (cost.tasks, cost.images) == (3, (48, 34))


def test_disk_is_that_of_checkpoints_and_predictions(run):
    """Within a tenth of what the run has written, its log and record aside."""
    cost, _, directory, _ = run
    files = [*directory.glob("checkpoints/*"), *directory.glob("predictions/*"), directory / "samples.json"]
    written = sum(path.stat().st_size for path in files)
    assert cost.disk == pytest.approx(written, rel=0.1)


def test_time_and_memory_are_measured(run):
    """Both are there, and plausible of any process with torch."""
    cost, *_ = run
    assert cost.seconds > 0
    assert cost.memory > 50 * 2**20
    assert cost.device_memory is None


def test_fewer_evaluations_write_fewer_rows(catalogue, quick):
    """Predictions of the last task alone, 34 rows, in place of 9, 24 and 34."""
    every = estimate(quick(policy="always").config, catalogue)
    last = estimate(quick({"run.evaluate": "last"}, policy="always").config, catalogue)
    assert every.disk - last.disk == pytest.approx(module._ROW * (9 + 24), rel=0.2)


@pytest.mark.parametrize(
    ("names", "plan"),
    [
        ({"policy": "always"}, (0, 1, 2)),
        ({"policy": "one"}, (0, 0, 0)),
        ({"policy": "min"}, (0, 1, 1)),
        ({"baseline": "l2p", "policy": "always"}, (0, 0, 0)),
    ],
)
def test_sets_are_known_as_far_as_the_policy_tells(session_of, names, plan):
    """A policy that reads no evidence is asked; one that does is taken to add one every second time."""
    session = session_of(**names)
    reads = session.components.policy.reads(session.parts.config.policy.config)
    assert module._plan(session.parts, 3, reads=bool(reads)) == plan


def test_a_slow_machine_goes_through_few_images(catalogue, quick, monkeypatch):
    """Evidence is continued from few images then; what does not depend on images is the same."""
    wanted = {"growth.images": 64, "benchmark.train": 40, "benchmark.tasks": 2}
    config = quick(wanted, policy="min").config
    whole = estimate(config, catalogue)
    monkeypatch.setattr(rehearsal, "_seconds_per_image", lambda session: 1.0)
    cost = estimate(config, catalogue)
    assert (cost.tasks, cost.images) == (whole.tasks, whole.images)
    assert cost.seconds > 0


@pytest.mark.parametrize("baseline", ["hide-prompt", "coda-prompt", "inflora", "sema", "ranpac", "joint"])
def test_every_shape_of_method_is_priced(catalogue, baseline):
    """Several phases, weighted sets, designed sets, expansion, first session, closed form, one task."""
    names = {"baseline": baseline, "benchmark": "tiny", "backbone": "tiny"}
    options = {"run.device": "cpu", "growth.images": 16}
    cost = estimate(resolve(catalogue, overrides=options, **names).config, catalogue)
    assert 0 < cost.seconds < math.inf


def test_each_class_has_images_however_small_a_batch_is(session_of, tmp_path):
    """Three batches would leave some out, which a closed form over all classes refuses."""
    session = session_of({"baseline.batch_size": 1, "benchmark.increment": 5}, benchmark="digits")
    small = Rehearsal(session, tmp_path, (0, 0))._small
    for task, of_few in zip(session.data.stream.tasks, small.data.stream.tasks, strict=True):
        assert set(of_few.train.labels) == set(task.train.labels)


def test_a_process_takes_its_time_to_start():
    """Imports alone take longer than an interpreter that imports nothing."""
    assert seconds_to_start() > 0.2


def test_some_tasks_and_several_seeds_count(catalogue, run):
    """Two of three tasks, and twice that for two seeds; what a run refuses is refused."""
    config = run[3].config
    cost = estimate(config, catalogue, tasks=2)
    assert (cost.tasks, cost.images) == (2, (34, 24))
    twice = cost.times(2)
    assert (twice.runs, twice.seconds, twice.disk) == (2, 2 * cost.seconds, 2 * cost.disk)
    assert twice.memory == cost.memory
    # as processes of their own each of them starts anew
    started = cost.in_process(5.0).times(2)
    assert (started.seconds, started.starting) == (2 * (cost.seconds + 5.0), 5.0)
    with pytest.raises(ConfigError, match="cannot stop after task 4: the stream has 3"):
        estimate(config, catalogue, tasks=4)


def test_more_processes_than_the_machine_has_are_refused(catalogue, quick):
    """As a run refuses them."""
    with pytest.raises(ConfigError, match=r"run.devices: 1000 is too many"):
        estimate(quick({"run.devices": 1000}).config, catalogue)


def test_what_is_missing_is_listed_and_nobody_is_asked(catalogue, monkeypatch, tmp_path):
    """Data and weights each with a remedy, without a look at the network; then nothing is priced."""
    asked = []

    def look_up(host, *given, **options):
        if host != "127.0.0.1":  # where an older client of the hub is sent, and nothing listens
            asked.append(host)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    names = {"baseline": "simple-cil", "benchmark": "cifar100", "backbone": "vit-tiny"}
    config = resolve(catalogue, overrides={"benchmark.root": str(tmp_path)}, **names).config
    data, weights = missing_parts(config, catalogue)
    assert "lw2g data get cifar100" in data
    assert "weights=FILE" in weights
    with pytest.raises(DataError):
        estimate(config, catalogue)
    assert asked == []


def test_a_strangers_benchmark_says_what_it_lacks(catalogue):
    """Whatever the option is called that has to name its data; any other mistake is none of missing data."""

    def refuse(config):
        raise ConfigError("benchmark.shelf: names no folder", "ask the librarian")

    glyphs = catalogue.get("benchmark", "glyphs")
    config = resolve(catalogue, baseline="simple-cil", benchmark="glyphs").config
    wanting = attrs.evolve(glyphs, build=refuse, lacks=lambda config: ("shelf", "ask the librarian"))
    (line,) = missing_parts(config, catalogue.with_component(wanting))
    assert line.startswith("benchmark.shelf: names no folder")
    with pytest.raises(ConfigError, match=r"benchmark\.shelf"):
        missing_parts(config, catalogue.with_component(attrs.evolve(glyphs, build=refuse)))


def test_a_rehearsal_learns_by_batches_of_the_declared_size(catalogue, quick, tmp_path):
    """Where a method declares none, by the usual ones: a task has three batches."""
    session = open_session(quick({"baseline.batch_size": 8}, policy="always").config, catalogue)
    assert len(Rehearsal(session, tmp_path, (0, 1))._small.data.stream.tasks[0].train) <= 3 * 8


def test_work_grows_with_images_where_it_reads_them(catalogue, quick, monkeypatch, tmp_path):
    """A phase that pulls images is continued in proportion; another is cut short, and continued likewise."""
    session = open_session(quick(policy="always").config, catalogue)
    small = Rehearsal(session, tmp_path, (0, 1, 2))._small
    clock = rehearsal._Clock(small, 0, 10 * len(small.data.stream.tasks[0].train))
    now = iter(np.arange(100.0))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(now)))
    phase = ComputePhase(name="statistics", run=lambda progress: None)
    with clock.during(phase):
        small.parts.noted["pulled"] = 4
    assert clock.seconds == 10
    with clock.during(phase):
        clock.reporter.advance(1, 20)
        pytest.fail("one step took longer than its patience")
    assert clock.seconds == 10 + 20


def test_fitting_a_mix_is_priced(catalogue, quick, monkeypatch):
    """Work on images that were held back belongs to the training of each task."""
    clock, real = [0.0], time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: real() + clock[0])

    def learn_routing(parts, context, images, reporter):
        clock[0] += 1000.0

    monkeypatch.setattr("lw2g.learning.learner.learn_routing", learn_routing)
    overrides = {"routing.mix": 2, "routing.held_back": 4, "benchmark.tasks": 2}
    cost = estimate(quick(overrides, policy="always").config, catalogue)
    assert cost.seconds == pytest.approx(2000, rel=0.05)


def test_tasks_to_come_lie_on_the_line_through_the_first_two():
    """What grows goes on growing; what has fallen once stays where it is."""
    assert module._sum_of_line(1, 3, 4) == 1 + 3 + 5 + 7
    assert module._sum_of_line(3, 1, 4) == 3 + 1 + 1 + 1
    assert module._sum_of_line(3, 3, 4) == 12


def test_seconds_of_later_tasks_are_continued_from_the_first_two():
    """Evidence by sets, training by images, evaluation by test images seen, all by hand."""
    tasks = [SimpleNamespace(train=range(10), test=range(4)) for _ in range(4)]
    first, second = (_cost(evidence=1, training=20), _cost(evidence=3, training=30, evaluation=4))
    # evidence 1 + (1 + 2) + (1 + 4) + (1 + 6), training 20 + 30 + 40 + 50, spaces 4, checkpoints 4
    assert module._learning(tasks, (0, 1, 2, 3), first, second) == 16 + 140 + 4 + 4
    # one set in all: evidence 1 + 3 + 3 + 3
    assert module._learning(tasks, (0, 0, 0, 0), first, second) == 10 + 140 + 4 + 4
    # copies that are trained first cost every later task the same
    trying = attrs.evolve(second, copies=50)
    assert module._learning(tasks, (0, 0, 0, 0), first, trying) == 10 + 140 + 4 + 4 + 3 * 50
    # where two tasks train, the others are spared its steps: 140 - 2 * 25
    stopping = attrs.evolve(second, steps=25)
    assert module._learning(tasks, (0, 0, 0, 0), first, stopping, 2) == 10 + 90 + 4 + 4
    assert module._evaluation(tasks, [4, 8, 12, 16], first, second) == 2 + 4 + 6 + 8
    assert module._evaluation(tasks, [16], first, second) == 8


def test_seconds_of_one_task_are_its_own():
    """There is nothing to continue."""
    task = SimpleNamespace(train=range(10), test=range(4))
    cost = _cost(evidence=1, training=20)
    assert module._learning([task], (0,), cost, cost) == 1 + 20 + 1 + 1
    assert module._evaluation([task], [4], cost, cost) == 2


def test_a_task_that_repeats_classes_is_priced(catalogue, quick):
    """It brings no test images: each evaluation costs what that of the tasks before it does."""
    again = {"benchmark.stream": "repetition", "benchmark.tasks": 3, "benchmark.increment": 10}
    config = quick(again | {"baseline.epochs": 1}, benchmark="digits").config
    cost = estimate(config, catalogue)
    assert (cost.tasks, cost.images) == (3, (1442, 355))
    assert 0 < cost.seconds < math.inf
    tasks = [SimpleNamespace(train=range(10), test=range(count)) for count in (4, 0, 4)]
    of_four = _cost(evidence=1, training=20)
    assert module._evaluation(tasks, [4, 4, 8], of_four, of_four) == 2 + 2 + 4


def _cost(*, evidence: float, training: float, evaluation: float = 2) -> TaskCost:
    return TaskCost(
        evidence=evidence,
        training=training,
        spaces=1,
        evaluation=evaluation,
        checkpoints=1,
        disk=1,
        memory=1,
        device_memory=None,
    )
