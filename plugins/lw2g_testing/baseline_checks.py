"""Checks of baselines and retrieval strategies: presets, forwards, plans of phases, what learning changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, ContractError, DataError
from lw2g.interfaces.component import BaselineComponent, Presets
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.phase import Phase, TrainingPhase
from lw2g.learning.evidence.collecting import collect_evidence
from lw2g.learning.evidence.gradients import each_its_own
from lw2g.learning.evidence.trial import Trials
from lw2g.learning.session import Session
from lw2g.registry.catalogue import Catalogue, Registered
from lw2g.runtime.boundary import WHO_WRITES, BackboneChangedError, written_at
from lw2g_testing.cases import (
    ContractViolation,
    NotApplicable,
    NotBuilt,
    RaisedError,
    Subject,
    check,
    error_line,
    line_of_author,
    methods_of,
)
from lw2g_testing.changes import changed, everything, flags, modules_of, wiring
from lw2g_testing.guards import seeded
from lw2g_testing.learning_faults import why_unmoved, wrong_shape
from lw2g_testing.moved_session import TOLERANCE, MovedSession, moved_session, require_own_rows
from lw2g_testing.small_run import (
    NO_RUN,
    SmallRun,
    begin,
    evaluate,
    learned,
    opened,
    whole,
)


@check("baseline", "retrieval")  # the first: most others are skipped where it fails
def check_learns_a_small_stream(subject: Subject) -> None:
    """On a small backbone it learns three tasks, the second of which reuses a set."""
    run = whole(subject)
    failed = run if isinstance(run, Exception) else None
    message = wrong_shape(subject)
    if message:  # most errors of a run come of it, and too few columns need not stop one
        raise RaisedError(message) from failed
    if isinstance(run, SmallRun):
        # under options, such as no epochs, a part may have nothing to do
        unmoved = "" if subject.options else run.unmoved
        if unmoved:
            raise ContractViolation(why_unmoved(subject, unmoved))
        return
    if isinstance(run, BackboneChangedError):
        with suppress(NotApplicable):
            check_phases_are_a_plan(subject)  # it tells which phase trains the backbone, if one does
    message = error_line(run).replace(WHO_WRITES, "")
    if isinstance(run, ContractError):
        entry = subject.catalogue.entries[subject.component.kind, subject.component.name]
        message += written_at(entry, run)
    cause = run.__cause__ if isinstance(run, NotBuilt) else run
    # an option or a larger benchmark mends what the component's own code has refused, and no mistake in it
    if isinstance(cause, ConfigError | DataError) and line_of_author(cause):
        message += (
            f"; {subject.component.name!r} has to learn the tiny benchmark (3 tasks of 2 and 3 classes, 4 to "
            "6 images each) on a ViT of 6 blocks, width 32 and 4 heads: where its defaults need more, give "
            "the check options"
        )
    raise RaisedError(message) from run


@check("baseline", "retrieval")  # early: what is left on the backbone breaks other promises, too
def check_backbone_is_untouched(subject: Subject) -> None:
    """Learning leaves the backbone's weights, modules, hooks and features as they were, without gradients."""
    ended = whole(subject)
    if isinstance(ended, BackboneChangedError):  # which ends the run
        raise ContractViolation(str(ended).replace(WHO_WRITES, "")) from ended
    run = learned(subject)
    backbone = run.session.parts.backbone
    for name, parameter in backbone.named_parameters():
        if parameter.requires_grad or parameter.grad is not None:
            raise ContractViolation(
                f"backbone.{name} is left with a gradient or requires one; never ask for gradients of the "
                "backbone"
            )
    nothing = frozenset[str]()
    now = wiring(backbone)
    for name in dict.fromkeys((*run.wires, *now)):
        before = run.wires.get(name, nothing)
        after = now.get(name, nothing)
        if before != after:
            gained = ", ".join(sorted(after - before)) or "nothing"
            lost = ", ".join(sorted(before - after)) or "nothing"
            raise ContractViolation(
                f"module {name!r} of the backbone has gained {gained} and lost {lost}; inject within "
                "backbone.features(images, injections), which takes everything out again"
            )
    images = torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16).to(backbone.device)
    plain = opened(subject).parts.backbone
    if changed({"": plain.features(images)}, {"": backbone.features(images)}):
        raise ContractViolation("plain features differ after training; leave nothing of an injection behind")


@check("baseline", applies=lambda subject: bool(subject.component.presets or subject.component.tuned))
def check_presets_name_options(subject: Subject) -> None:
    """Every preset names options that exist, with values that they take."""
    component: BaselineComponent = subject.component
    for kind, presets in (("presets", component.presets), ("tuned", component.tuned)):
        for family, values in presets.items():
            _resolve_preset(subject, kind, family, values)


def _resolve_preset(subject: Subject, kind: str, family: str, values: Mapping[str, Any]) -> None:
    """Resolve the values as the preset of a benchmark of the family.

    If none is registered, the tiny benchmark replaces it, and options of the benchmark are not checked.
    """
    catalogue = subject.catalogue
    name = subject.component.name
    benchmark = _benchmark_of(catalogue, family)
    if benchmark is None:
        benchmark = catalogue.get("benchmark", "tiny")
        values = {key: value for key, value in values.items() if not key.startswith("benchmark.")}
    # the preset alone: another one of the same benchmark would cover what is wrong in it
    presets: dict[str, Presets] = {"presets": {}, "tuned": {}}
    presets[kind] = {benchmark.family: values}
    record = attrs.evolve(subject.component, **presets)
    entries = dict(catalogue.entries)
    entries["baseline", name] = Registered(component=record, origin=entries["baseline", name].origin)
    # options of a constraint are known where the run has it
    constraints = []
    for path in values:
        section, *rest = path.split(".")
        if section == "constraints" and len(rest) == 2:
            constraints.append(rest[0])
    backbone = None
    if "backbone.name" not in values:
        backbone = "tiny"
    try:
        resolve(
            attrs.evolve(catalogue, entries=entries),
            baseline=name,
            benchmark=benchmark.name,
            backbone=backbone,
            constraints=constraints,
        )
    except ConfigError as error:
        raise ContractViolation(f"correct the preset of {name!r} for {family!r}: {error}") from error


def _benchmark_of(catalogue: Catalogue, family: str) -> Any:
    """Return the first registered benchmark of a family; None without one."""
    for name in catalogue.names("benchmark"):
        benchmark = catalogue.get("benchmark", name)
        if benchmark.family == family:
            return benchmark
    return None


@check("baseline", "retrieval")
def check_prediction_belongs_to_its_sample(subject: Subject) -> None:
    """The prediction for an image does not depend on the rest of its batch, nor on labels."""
    now = moved_session(subject)
    everyone = list(range(now.images))
    logits, tasks = now.predict(now.batch(everyone))
    # else every comparison below would hold of a method that looks at no image; far above what a comparison
    # forgives
    if float(logits.std(dim=0).max()) <= 100 * TOLERANCE:
        raise ContractViolation("logits are the same for all images; compute features from batch.images")

    def require_same(how: str, positions: Sequence[int], remedy: str, label: int | None = None) -> None:
        """Refuse if images at some positions get another task or other logits than before."""
        batch = now.batch(positions)
        if label is not None:
            batch.labels = torch.full_like(batch.labels, label)
        other, other_tasks = now.predict(batch)
        if tasks is not None and other_tasks is not None and not torch.equal(other_tasks, tasks[positions]):
            raise ContractViolation(f"an image gets another task {how}; {remedy}")
        if not torch.allclose(other, logits[positions], rtol=TOLERANCE, atol=TOLERANCE):
            raise ContractViolation(f"an image gets another prediction {how}; {remedy}")

    alone = (
        f"let {now.answering(subject)} compute every row from its own image alone: no vote, no statistics "
        "and no reshaping over the batch, nothing drawn at test time"
    )
    shuffled = torch.randperm(len(everyone), generator=torch.Generator().manual_seed(5)).tolist()
    require_same(f"in a shuffled batch than in one of {len(everyone)}", shuffled, alone)
    for position in everyone[::3]:  # some of them, each of which costs a forward
        require_same(f"alone than in a batch of {len(everyone)}", [position], alone)
    reading = methods_of(now.baseline, "features")
    if subject.component.kind == "retrieval":
        reading = methods_of(now.session.parts.retrieval, "query")
    for label in (0, now.session.parts.infos[-1].seen - 1):
        require_same(
            "with other labels",
            everyone,
            f"let {reading} read batch.query or batch.images alone (a strategy that must be told the task is "
            "a control: control=True in its component)",
            label,
        )


@check("baseline")
def check_sets_answer_as_chosen(subject: Subject) -> None:
    """Features are those of the chosen set, in a mixed batch and under copies of the set as well."""
    now = moved_session(subject)
    require_own_rows(subject)
    baseline = now.baseline
    pool = now.pool
    batch = now.batch(range(16))

    def features(routing: Any) -> Tensor:
        with torch.no_grad():
            return baseline.features(batch, routing)

    forced = {set_id: features(pool.force(set_id)) for set_id in pool.ids}
    if now.session.parts.retrieval is None and not baseline.scope.each:
        free = features(pool.route(None))
        for set_id, rows in forced.items():
            if not _close(free, rows):
                raise ContractViolation(
                    f"features under pool.force({set_id}) differ from those under pool.route(None), by "
                    "which a baseline without retrieval is evaluated; ignore routing.chosen, or name a "
                    "retrieval strategy in the component"
                )
    else:
        # the sets in turn, and of each image the row that its own set gave
        ids = [pool.ids[number % len(pool)] for number in range(16)]
        expected = torch.stack([forced[set_id][row] for row, set_id in enumerate(ids)])
        mixed = features(pool.route(torch.tensor(ids, device=batch.labels.device)))
        if not _close(mixed, expected):
            raise ContractViolation(
                "an image gets other features from its set in a mixed batch than where that set is forced on "
                "all; hand out sets per sample (routing.select gives [B, ...] where samples differ)"
            )
    if not baseline.takes_copies:
        return
    # as evidence runs several groups of images in one forward: here one of 5 and one of 11
    shared = [site for site in baseline.shared_sites() if site.per_sample]
    for set_id in pool.ids:
        forward = each_its_own(baseline, pool[set_id], [*baseline.sites(pool[set_id]), *shared], (5, 11))
        with torch.no_grad():
            if not _close(forward.features(batch), forced[set_id]):
                raise ContractViolation(
                    f"features under copies of set {set_id} differ from those under the set; read sets "
                    "through routing.select, let shared sites be per_sample only where a forward takes a "
                    "batch axis, or leave takes_copies False"
                )


def _close(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first, second, rtol=TOLERANCE, atol=TOLERANCE)


@check("baseline", "retrieval")
def check_phases_are_a_plan(subject: Subject) -> None:
    """phases() changes nothing; phases have different names and train their owner's parameters alone."""
    with seeded(10):
        try:
            session = opened(subject)
            for index in range(len(session.parts.infos)):
                context = begin(session, index)
                _require_a_plan(session, context, subject.component.kind)
        except ContractViolation:
            raise
        except Exception as error:  # a plugin's code may raise anything: learns_a_small_stream reports it
            raise NotApplicable(f"its phases cannot be asked for ({error})") from error


def _require_a_plan(session: Session, context: TaskContext, kind: str) -> None:
    """Refuse phases() that do something themselves, share a name or train what is of others.

    Args:
        session: Within the task, before its phases.
        context: Of the task.
        kind: Whose phases are checked: those of the baseline, or of the retrieval strategy.
    """
    strategy = session.parts.retrieval
    task = context.task.index + 1
    modules = modules_of(session)
    before = everything(modules)
    draws = torch.get_rng_state()
    # phases are asked for in the order of a run: retrieval first
    of_retrieval: list[Phase] = []
    if strategy is not None:
        of_retrieval = list(strategy.phases(context))
    of_baseline = list(session.parts.baseline.phases(context))
    moved = changed(before, everything(modules))
    if not torch.equal(draws, torch.get_rng_state()):
        moved.append("torch's global generator")
    if moved:
        raise ContractViolation(
            f"phases() of task {task} changes {moved[0]!r}; do it in a ComputePhase, which is not run again "
            "after a resume"
        )
    if kind == "baseline":
        phases = of_baseline
        trainer: Any = session.parts.baseline
        may_train = {"baseline", f"set {context.set_id}"}
    else:
        phases = of_retrieval
        trainer = strategy
        may_train = {"retrieval"}
    _require_names(phases, [*of_retrieval, *of_baseline], task)
    trained: list[tuple[str, Iterable[Tensor]]] = []
    for phase in phases:
        if isinstance(phase, TrainingPhase):
            trained.append((phase.name, phase.trained))
    baseline = session.parts.baseline
    if kind == "baseline" and trained and not baseline.trains(context.task):
        raise ContractViolation(
            f"{trained[0][0]!r} of task {task} trains, and trained_tasks = {baseline.trained_tasks} says "
            "that no phase of it does; declare how many tasks train"
        )
    if kind == "retrieval" and strategy is not None:
        for group in strategy.parameter_groups(context, 0.1):
            trained.append(("parameter_groups", group.parameters))
    owners = _owners({**modules, "backbone": session.parts.backbone})
    for name, parameters in trained:
        for parameter in parameters:
            if id(parameter) not in owners:
                raise RaisedError(
                    f"{name!r} of task {task} trains a parameter that no module holds; let "
                    f"{methods_of(trainer, 'phases')} train registered ones (several in an nn.ParameterList "
                    "and no plain list), so that a checkpoint holds them"
                )
            owner, called = owners[id(parameter)]
            if owner not in may_train:
                raise RaisedError(
                    f"{name!r} of task {task} trains {called!r} of {owner}; let "
                    f"{methods_of(trainer, 'phases')} train parameters of {' and '.join(sorted(may_train))} "
                    "alone, registered there so that a checkpoint holds them"
                )


def _require_names(own: Sequence[Phase], phases: Sequence[Phase], task: int) -> None:
    """Refuse a phase that has the name of another one of the task: a checkpoint finds phases by name."""
    names = Counter(phase.name for phase in phases)
    for phase in own:
        if names[phase.name] > 1:
            raise ContractViolation(
                f"several phases of task {task} are named {phase.name!r}; name each differently, and those "
                "of a retrieval strategy 'retrieval...'"
            )


def _owners(modules: Mapping[str, nn.Module]) -> dict[int, tuple[str, str]]:
    """Return owner and name of each parameter, by its identity; a shared one belongs to the last owner."""
    return {id(one): (owner, name) for owner, of in modules.items() for name, one in of.named_parameters()}


@check("baseline", "retrieval")
def check_seeds_no_generator(subject: Subject) -> None:
    """It does not seed torch's global generator, so that another seed of a run gives other draws."""
    with seeded(11):
        try:
            session = opened(subject)
            context = begin(session, 0)
        except Exception as error:  # a plugin's code may raise anything: learns_a_small_stream reports it
            raise NotApplicable(NO_RUN) from error
    baseline = session.parts.baseline
    if subject.component.kind == "baseline":
        component: Any = baseline
        chosen: Any = session.parts.config.baseline
    else:
        component = session.parts.retrieval
        chosen = session.parts.config.retrieval
    works: dict[str, Callable[[], object]] = {
        "build": lambda: subject.component.build(chosen.config, component.context),
    }
    if subject.component.kind == "baseline":
        works["new_set"] = lambda: baseline.new_set(None)
    trained = [phase for phase in component.phases(context) if isinstance(phase, TrainingPhase)]
    batch = MovedSession(session=session).of_task(0)
    if trained:  # a later phase may need what the first leaves
        first = trained[0]
        works[f"the step of phase {first.name!r}"] = lambda: first.step(batch)
    for what, work in works.items():
        try:
            states = [_state_after(seed, work) for seed in (1, 2)]
        except Exception:  # a plugin's code may raise anything: learns_a_small_stream reports it
            continue
        if torch.equal(*states):
            raise ContractViolation(
                f"{what} seeds torch's global generator (torch.manual_seed or the like), so that every seed "
                "of a run gives the same draws; leave it out: lw2g seeds it for each task and phase"
            )


def _state_after(seed: int, work: Callable[[], object]) -> Tensor:
    """Return the state of torch's global generator after some work that began with a seed."""
    with seeded(seed):
        work()
        return torch.get_rng_state()


@check("baseline")
def check_other_sets_stay(subject: Subject) -> None:
    """Learning a task changes no set but the task's own."""
    run = learned(subject)
    for task in range(1, run.tasks):
        before = run.after[task - 1].state
        own_set = f"set {run.session.parts.pool.task_to_set[task]}"
        for name in changed(before, run.after[task].state):
            owner = name.split(".", 1)[0]
            if owner.startswith("set ") and owner != own_set and name in before:
                raise ContractViolation(
                    f"learning task {task + 1}, which has {own_set}, changes {name!r}; let new_set clone "
                    "what it takes from its source, and detach or freeze the other sets"
                )


@check("baseline")
def check_cached_features_hold(subject: Subject) -> None:
    """Features depend on no more than the scope declares, so that cached features stay valid."""
    run = learned(subject)
    require_own_rows(subject)
    last = run.tasks - 1
    _, features = evaluate(run.session, last)
    if changed({"": run.after[last].features}, {"": features}):
        scope = run.session.parts.baseline.scope
        raise ContractViolation(
            f"features of test samples have changed though the scope {str(scope)!r} says that they cannot "
            "have; declare SET_SHARED where shared parameters take part, POOL where all sets do"
        )


@check(
    "baseline",
    "evidence",
    applies=lambda subject: (
        not isinstance(subject.component, BaselineComponent) or subject.component.growth == "sets"
    ),
)
def check_evidence_changes_nothing(subject: Subject) -> None:
    """Collecting evidence changes no parameter, buffer, flag, mode or generator."""
    run = learned(subject)
    # at the beginning of the second task, when there is a set to measure
    session = opened(subject, run.checkpoints[0])
    session.parts.begin_task(1)
    modules = modules_of(session)
    # modes that differ, so that one mode set for all of them is noticed
    for number, module in enumerate(modules.values()):
        module.train(number % 2 == 0)
    task = session.data.stream.tasks[1]
    evidence_sample = session.parts.evidence_sample(
        task.index, session.data.image_set([task.train], train=False)
    )

    values = everything(modules)
    before = flags(modules)
    collect_evidence(session.parts, evidence_sample, trials=lambda: Trials(session, evidence_sample))
    moved = changed(values, everything(modules))
    moved += [name for name, value in flags(modules).items() if before.get(name) != value]
    if moved:
        raise ContractViolation(
            f"collecting evidence changes {moved[0]!r}; let features, probe_loss, draw_head and measures "
            "only read (draw_head may change parameters, which are put back)"
        )
