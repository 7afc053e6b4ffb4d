"""One training phase: order, schedule, joining, freezing, and exact continuation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
import torch
from torch import nn

from lw2g.blocks.schedules import cosine
from lw2g.errors import ConfigError, ContractError
from lw2g.interfaces.constraint import Constraint
from lw2g.interfaces.phase import ComputePhase, ParameterGroup, StepOutput, TrainingPhase
from lw2g.interfaces.site import Activation, Restriction, Site
from lw2g.interfaces.tracker import EpochEnded
from lw2g.learning.finite import Diverged, LossWatch
from lw2g.learning.phases import (
    PhaseProgress,
    epoch_order,
    hosted,
    load_optimizer,
    only_trainable,
    optimizer_tensors,
    train_phase,
)
from lw2g.learning.protection import Protection, SiteRule
from lw2g.learning.session import Session
from lw2g.maths.subspace import Subspace
from lw2g.runtime.progress import Reporter
from lw2g.vit.taps import Tap


class Listener:
    """Remembers events."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.images = 0

    def on_event(self, event: Any) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.events.append("closed")


@pytest.fixture
def session(session_of: Callable[..., Session]) -> Session:
    found = session_of()
    found.parts.begin_task(0)
    found.parts.pool.grow(found.parts.new_set(None))
    return found


def phase_of(weight: nn.Parameter, **changes: Any) -> TrainingPhase:
    def step(batch: Any) -> StepOutput:
        noise = torch.rand(())  # stands for dropout: must be the same after a continuation
        return StepOutput(loss=((weight * batch.labels.float().mean() - noise) ** 2).sum())

    options: dict[str, Any] = {"epochs": 3, "batch_size": 7, "optimizer": "adam"}
    return TrainingPhase(
        name="test", groups=(ParameterGroup(parameters=(weight,), lr=0.1),), step=step, **options | changes
    )


def run(
    session: Session,
    phase: TrainingPhase,
    progress: PhaseProgress,
    protection: Protection | None = None,
    **hooks: Any,
) -> Listener:
    images = session.data.image_set([session.data.stream.tasks[0].train], train=True)
    listener = Listener()
    listener.images = train_phase(
        phase,
        session.task_context(0, images),
        images,
        owner="baseline 'b'",
        engine=session.parts.engine,
        protection=protection or Protection(),
        reporter=Reporter([listener], [1, 1, 1]),
        progress=progress,
        after_step=hooks.get("after_step", lambda optimizer, at: None),
        after_epoch=hooks.get("after_epoch", lambda optimizer, at: None),
    )
    return listener


def test_each_group_gets_its_own_rate_from_the_schedule(session: Session) -> None:
    """A floor at 0.02 is one for all groups; an epoch's event shows the first group's rate."""
    weight, other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    groups = (ParameterGroup(parameters=(weight,), lr=0.1), ParameterGroup(parameters=(other,), lr=0.03))
    seen: list[list[float]] = []

    def note(optimizer: torch.optim.Optimizer, at: PhaseProgress) -> None:
        seen.append([group["lr"] for group in optimizer.param_groups])

    phase = attrs.evolve(phase_of(weight), groups=groups, schedule=cosine(0.02))
    listener = run(session, phase, PhaseProgress(), after_epoch=note)
    expected = [0.1, 0.03, 0.08, 0.0275, 0.04, 0.0225]
    assert [rate for epoch in seen for rate in epoch] == pytest.approx(expected)
    assert [event.lr for event in listener.events if isinstance(event, EpochEnded)] == [a for a, _ in seen]


def test_a_generator_of_parameters_is_read_once_and_kept() -> None:
    """Such as a module's own, which groups are asked for more than once."""
    layer = nn.Linear(2, 3)
    group = ParameterGroup(parameters=layer.parameters(), lr=0.1)
    assert list(map(id, group.parameters)) == list(map(id, layer.parameters()))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (nn.Parameter(torch.ones(3)), "a Parameter;"),
        (nn.Linear(2, 3), "a Linear;"),
        ("head", "a str among them"),
        (nn.Linear(2, 3).named_parameters(), "a tuple among them"),
    ],
)
def test_what_is_no_list_of_parameters_is_told_where_it_is_given(given: Any, named: str) -> None:
    """In one line, and not later by an optimizer."""
    with pytest.raises(ContractError, match=f"got {named}.*parameters=.*one,.* or module.parameters"):
        ParameterGroup(parameters=given, lr=0.1)


def test_a_group_alone_is_no_list_of_groups() -> None:
    """Of one, a comma is easily left out."""
    weight = nn.Parameter(torch.ones(3))
    group: Any = ParameterGroup(parameters=(weight,), lr=0.1)
    with pytest.raises(ContractError, match=r"got a ParameterGroup; write groups=\(ParameterGroup\(...\),\)"):
        attrs.evolve(phase_of(weight), groups=group)


def decayed(base: float, epoch: int) -> float:
    return base / (1 + epoch)


class Owner:
    """Has a method that takes more than lw2g gives."""

    def step(self, batch: Any, context: Any) -> None:
        """Take two."""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"step": Owner().step},
            r"step of phase 'test' takes \(batch, context\), lw2g calls step\(batch\); "
            r"write `step=lambda batch: self\.step\(batch, context\)`",
        ),
        ({"step": lambda: None}, r"takes \(\), lw2g calls step\(batch\); let it take \(batch\)"),
        ({"step": 3}, r"step of phase 'test' is a int, and lw2g calls it; give a function of \(batch\)"),
        ({"schedule": decayed}, r"write `schedule=lambda base, epoch, epochs: decayed\(base, epoch\)`"),
        ({"wanted": decayed}, r"lw2g calls wanted\(\); write `wanted=lambda: decayed\(base, epoch\)`"),
        ({"adjust": decayed}, r"lw2g calls adjust\(\)"),
    ],
)
def test_a_function_that_cannot_be_called_is_told_where_it_is_given(
    changes: dict[str, Any], told: str
) -> None:
    """By the phase that takes it: the call would fail in lw2g, without a line of the plugin."""
    with pytest.raises(ContractError, match=told):
        attrs.evolve(phase_of(nn.Parameter(torch.ones(3))), **changes)


def test_so_is_the_work_of_a_phase_without_training() -> None:
    """It is called with how to tell progress."""
    with pytest.raises(ContractError, match=r"run of phase 'sums' takes \(\), lw2g calls run\(progress\)"):
        ComputePhase(name="sums", run=lambda: None)  # type: ignore[misc,arg-type]


def test_a_continuation_at_any_step_gives_the_same_bits(session: Session) -> None:
    """Stopped after each step in turn and continued from the saved optimizer, the result is the same."""
    weight = nn.Parameter(torch.ones(3))
    run(session, phase_of(weight), PhaseProgress())
    final = weight.detach().clone()
    saved: list[tuple[torch.Tensor, PhaseProgress]] = []

    def save(optimizer: torch.optim.Optimizer, at: PhaseProgress) -> None:
        position = PhaseProgress(epoch=at.epoch, step=at.step, optimizer=optimizer_tensors(optimizer))
        saved.append((weight.detach().clone(), position))

    with torch.no_grad():
        weight.fill_(1.0)
    run(session, phase_of(weight), PhaseProgress(), after_step=save, after_epoch=save)
    assert len(saved) == 3 * 4
    for values, position in saved[::3]:
        with torch.no_grad():
            weight.copy_(values)
        run(session, phase_of(weight), position)
        assert torch.equal(weight, final)


def test_a_continuation_counts_what_was_trained_on_before_it(session: Session) -> None:
    """A phase has as many images wherever it is gone on with; a short last batch may not count."""
    weight = nn.Parameter(torch.ones(3))
    size = len(session.data.stream.tasks[0].train)
    for drop_last, each in ((False, size), (True, size - size % 7)):
        phase = phase_of(weight, drop_last=drop_last)
        for at in (
            PhaseProgress(),
            PhaseProgress(step=1),
            PhaseProgress(epoch=2, step=1),
            PhaseProgress(epoch=3),
        ):
            assert run(session, phase, at).images == 3 * each


def test_an_epoch_meets_every_sample_once(session: Session) -> None:
    """The order is a permutation; a last small batch is dropped only where asked for and not alone."""
    images = session.data.image_set([session.data.stream.tasks[0].train], train=True)
    weight = nn.Parameter(torch.ones(1))
    order = epoch_order(images, phase_of(weight), 5)
    assert sorted(position for batch in order for position in batch) == list(range(25))
    assert [len(batch) for batch in order] == [7, 7, 7, 4]
    dropped = epoch_order(images, phase_of(weight, drop_last=True), 5)
    assert [len(batch) for batch in dropped] == [7, 7, 7]
    alone = epoch_order(images, phase_of(weight, drop_last=True, batch_size=100), 5)
    assert [len(batch) for batch in alone] == [25]


def run_protected(
    session: Session, weight: nn.Parameter, on: Literal["gradient", "update"], **options: Any
) -> None:
    """Run a host phase at rate 1 that is kept off the first of two directions."""
    space = Subspace(basis=torch.tensor([[[1.0], [0.0]]]), ranks=(1,))
    site = Site(name="w", parameter=weight, activation=Activation(tap=Tap(0, "query")))
    rule = SiteRule(site=site, restriction=Restriction(subspace=space), on=on, hard=True)
    groups = (ParameterGroup(parameters=(weight,), lr=1.0),)
    phase = TrainingPhase(name="host", groups=groups, optimizer="sgd", host=True, **options)
    run(session, phase, PhaseProgress(), Protection([rule]))


def test_gradients_are_clipped_before_they_are_protected(session: Session) -> None:
    """Clipping sees the whole gradient: what protection leaves is then shorter than the norm allowed."""
    weight = nn.Parameter(torch.zeros(2))
    pull = torch.tensor([30.0, 40.0])
    options = {"step": lambda batch: StepOutput(loss=(weight * pull).sum()), "clip_norm": 1.0}
    run_protected(session, weight, "gradient", epochs=1, batch_size=25, **options)
    torch.testing.assert_close(weight.detach(), torch.tensor([0.0, -0.8]), atol=1e-5, rtol=0)


def test_an_adjustment_follows_every_step_and_is_protected_too(session: Session) -> None:
    """What it moves inside a protected space is taken out again, as an optimizer's step would be."""
    weight = nn.Parameter(torch.zeros(2))
    options = {
        "step": lambda batch: StepOutput(loss=0.0 * weight.sum()),
        "adjust": lambda: weight.add_(1.0),
    }
    run_protected(session, weight, "update", epochs=2, batch_size=13, **options)
    torch.testing.assert_close(weight.detach(), torch.tensor([0.0, 4.0]))


def test_what_is_not_wanted_is_not_trained(session: Session) -> None:
    """No step is made and no event sent."""
    weight = nn.Parameter(torch.ones(2))
    listener = run(session, phase_of(weight, wanted=lambda: False), PhaseProgress())
    assert weight.tolist() == [1, 1]
    assert not any(isinstance(event, EpochEnded) for event in listener.events)


def test_every_epoch_augments_anew(session_of: Callable[..., Session]) -> None:
    """Under a random transform a sample looks different in another epoch, and the same when repeated."""
    session = session_of({"benchmark.random_crops": True})
    session.parts.begin_task(0)
    session.parts.pool.grow(session.parts.new_set(None))
    weight, seen = nn.Parameter(torch.ones(1)), {}

    def step(batch: Any) -> StepOutput:
        for sample, image in zip(batch.samples.tolist(), batch.images, strict=True):
            seen.setdefault(sample, []).append(image.clone())
        return StepOutput(loss=weight.sum())

    for _ in range(2):
        run(session, attrs.evolve(phase_of(weight), step=step), PhaseProgress())
    assert all(len(images) == 6 for images in seen.values())
    epochs = [torch.stack([seen[sample][epoch] for sample in sorted(seen)]) for epoch in range(6)]
    assert all(torch.equal(epochs[epoch], epochs[epoch + 3]) for epoch in range(3))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(epochs[one], epochs[other])


def test_every_step_draws_anew(session: Session) -> None:
    """Dropout of no two steps of a phase is the same, in one epoch or in several; repeated, each is."""
    weight = nn.Parameter(torch.ones(1))
    drawn: list[float] = []

    def step(batch: Any) -> StepOutput:
        drawn.append(float(torch.rand(())))
        return StepOutput(loss=weight.sum())

    for _ in range(2):
        run(session, attrs.evolve(phase_of(weight), step=step), PhaseProgress())
    assert drawn[:12] == drawn[12:]
    assert len(set(drawn)) == 3 * 4


def test_only_the_phases_parameters_require_a_gradient(session: Session) -> None:
    """Inside the block the trained ones, after it none."""
    parameters = list(session.parts.baseline.parameters())
    with only_trainable(session.parts.modules, parameters[:1]):
        assert [parameter.requires_grad for parameter in parameters].count(True) == 1
    assert not any(p.requires_grad for module in session.parts.modules for p in module.parameters())


def test_retrieval_and_extra_losses_join_the_host_phase_only(session: Session) -> None:
    """The host's loss is the sum of all parts and its optimizer holds the key."""

    class Extra(Constraint):
        def extra_loss(self, batch: Any, output: StepOutput, context: Any) -> torch.Tensor:
            return torch.tensor(10.0)

    images = session.data.image_set([session.data.stream.tasks[0].train], train=False)
    context = session.task_context(0, images)
    batch = next(iter(images.batches([[0, 1]])))
    weight = nn.Parameter(torch.zeros(1))
    phase = TrainingPhase(
        name="host",
        groups=(ParameterGroup(parameters=(weight,), lr=0.1),),
        step=lambda batch: StepOutput(loss=weight.sum()),
        epochs=1,
        batch_size=2,
        host=True,
    )
    assert session.parts.retrieval is not None
    others = ("retrieval 'r'", session.parts.retrieval), {"constraint 'c'": Extra()}
    joined = hosted(phase, context, "baseline 'b'", *others)
    pull = session.parts.retrieval.loss(batch, context)
    assert pull is not None
    output = joined.step(batch)
    assert float(output.loss.detach()) == pytest.approx(10.0 + float(pull.detach()))
    assert list(output.parts) == ["baseline 'b'", "retrieval 'r'", "constraint 'c'"]
    assert len(joined.trained) == 2
    plain = TrainingPhase(name="x", groups=phase.groups, step=phase.step, epochs=1, batch_size=2)
    assert hosted(plain, context, "baseline 'b'", *others) is plain


def failing(weight: nn.Parameter, step: int, value: float, **parts: float) -> TrainingPhase:
    """Return a phase of three epochs of four steps whose loss is bad in one step, counted from 1."""
    count = iter(range(1, 100))

    def loss(batch: Any) -> StepOutput:
        bad = next(count) == step
        own = weight.sum() * (value if bad else 1.0)
        added = {f"constraint {name!r}": torch.tensor(part if bad else 0.0) for name, part in parts.items()}
        return StepOutput(loss=own, parts={"baseline 'b'": own, **added} if parts else {})

    return attrs.evolve(phase_of(weight), step=loss)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    ("step", "told"), [(1, "step 1 of epoch 1"), (6, "step 2 of epoch 2"), (12, "step 4 of epoch 3")]
)
def test_a_bad_loss_stops_in_its_step(session: Session, value: float, step: int, told: str) -> None:
    """The message names step, epoch, phase, task and component; nothing has moved or is saved."""
    weight, saved = nn.Parameter(torch.ones(1)), []
    before: list[torch.Tensor] = []

    def save(optimizer: torch.optim.Optimizer, at: PhaseProgress) -> None:
        before.append(weight.detach().clone())
        saved.append((at.epoch, at.step))

    with pytest.raises(
        ConfigError, match=f"loss of baseline 'b' is not finite in {told} of phase 'test' of task 1"
    ):
        run(session, failing(weight, step, value), PhaseProgress(), after_step=save, after_epoch=save)
    assert len(saved) == step - 1
    assert torch.equal(weight, before[-1] if before else torch.ones(1))


def test_what_helps_against_a_bad_loss_is_what_the_method_has(tmp_path: Path) -> None:
    """Options of the baseline are named where it has them, and the run's own configuration."""
    error = Diverged("training diverged: why")
    both = attrs.make_class("Both", ["lr", "clip_norm"])(1.0, None)
    config = tmp_path / "config.toml"
    again = f"in a new run: lw2g run {config}"
    told = f"lower baseline.lr or clip with baseline.clip_norm, {again} --set baseline.lr=..."
    assert error.of_run(both, config).remedy == told
    other = attrs.make_class("Other", ["speed"])(1.0)
    assert error.of_run(other, config).remedy == f"lower the method's learning rate, {again}"


def test_a_bad_loss_is_told_by_its_component(session: Session) -> None:
    """Among the parts of a loss the one that is not finite is named."""
    phase = failing(nn.Parameter(torch.ones(1)), 2, 1.0, good=0.5, bad=torch.nan)
    with pytest.raises(ConfigError, match="the loss of constraint 'bad' is not finite in step 2 of"):
        run(session, phase, PhaseProgress())


def test_a_device_is_asked_only_before_something_is_saved() -> None:
    """Where a number is dear the first bad step is remembered, and told by whoever is about to save."""
    watch = LossWatch(phase_of(nn.Parameter(torch.ones(1))), "epoch 1", torch.device("cpu"))
    watch._at_once = False
    for step, loss in enumerate([1.0, torch.inf, torch.nan, 1.0]):
        watch.see(step, {"a": torch.tensor(0.0), "b": torch.tensor(loss)})
    with pytest.raises(ConfigError, match="the loss of b is not finite in step 2 of epoch 1"):
        watch.require_sound()


def test_parameters_are_looked_at_after_every_epoch(session: Session) -> None:
    """A finite loss with a gradient that is not leaves no checkpoint either, in the last step above all."""
    weight, saved = nn.Parameter(torch.zeros(1)), []
    phase = attrs.evolve(
        phase_of(weight, epochs=1, batch_size=25), step=lambda batch: StepOutput(loss=weight.sqrt().sum() * 0)
    )
    with pytest.raises(
        ConfigError, match="parameters are not finite after epoch 1 of phase 'test' of task 1"
    ):
        run(session, phase, PhaseProgress(), after_epoch=lambda optimizer, at: saved.append(at))
    assert not saved


def test_an_optimizers_state_survives_the_round_trip() -> None:
    """Moments and step counts come back; rates stay those of the new optimizer."""
    weight = nn.Parameter(torch.ones(2))
    first = torch.optim.Adam([weight], lr=0.1)
    weight.grad = torch.tensor([1.0, -2.0])
    first.step()
    second = torch.optim.Adam([weight], lr=0.5)
    load_optimizer(second, optimizer_tensors(first))
    state = second.state_dict()["state"][0]
    assert torch.equal(state["exp_avg"], first.state_dict()["state"][0]["exp_avg"])
    assert float(state["step"]) == 1.0
    assert second.param_groups[0]["lr"] == 0.5
