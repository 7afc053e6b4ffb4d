"""Checks of presets, forwards and phases of baselines and retrieval strategies, without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError
from lw2g.interfaces.component import BaselineComponent, Kind, Presets
from lw2g.interfaces.phase import TrainingPhase
from lw2g.registry.catalogue import Registered
from lw2g.testing.guards import seeded
from lw2g.testing.kit import ContractViolation, NotApplicable, Subject, check
from lw2g.testing.scene import Scene, begin, scene
from lw2g.testing.world import changed, everything, modules_of, opened
from lw2g.training.evidence.gradients import each_its_own

TOLERANCE = 1e-4
"""Absolute and relative difference of logits that rounding may cause in batches of another size."""


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
    catalogue, name = subject.catalogue, subject.component.name
    benchmarks = [catalogue.get("benchmark", each) for each in catalogue.names("benchmark")]
    benchmark = next((registered for registered in benchmarks if registered.family == family), None)
    if benchmark is None:
        benchmark = catalogue.get("benchmark", "tiny")
        values = {key: value for key, value in values.items() if not key.startswith("benchmark.")}
    entries = dict(catalogue.entries)
    empty: dict[str, Presets] = {"presets": {}, "tuned": {}}
    only = attrs.evolve(subject.component, **(empty | {kind: {benchmark.family: values}}))
    replaced: tuple[tuple[Kind, Any], ...] = (("baseline", only), ("benchmark", benchmark))
    for kind, record in replaced:
        entries[kind, record.name] = Registered(component=record, origin=entries[kind, record.name].origin)
    used = [path.split(".")[1] for path in values if path.startswith("constraints.") and path.count(".") == 2]
    try:
        resolve(
            attrs.evolve(catalogue, entries=entries),
            baseline=name,
            benchmark=benchmark.name,
            backbone=None if "backbone.name" in values else "tiny",
            constraints=used,
        )
    except ConfigError as error:
        raise ContractViolation(f"correct the preset of {name!r} for {family!r}: {error}") from error


@check("baseline", "retrieval")
def check_prediction_belongs_to_its_sample(subject: Subject) -> None:
    """The prediction for an image does not depend on the rest of its batch, nor on labels."""
    now = scene(subject)
    everyone = list(range(now.images))
    logits, tasks = now.predict(now.batch(everyone))
    if float(logits.std(dim=0).max()) <= 100 * TOLERANCE:
        raise ContractViolation("logits are the same for all images; compute features from batch.images")

    def require_same(how: str, positions: Sequence[int], remedy: str, label: int | None = None) -> None:
        batch = now.batch(positions)
        if label is not None:
            batch.labels = torch.full_like(batch.labels, label)
        other, other_tasks = now.predict(batch)
        if tasks is not None and other_tasks is not None and not torch.equal(other_tasks, tasks[positions]):
            raise ContractViolation(f"an image gets another task {how}; {remedy}")
        if not torch.allclose(other, logits[positions], rtol=TOLERANCE, atol=TOLERANCE):
            raise ContractViolation(f"an image gets another prediction {how}; {remedy}")

    alone = (
        "compute every row from its own image alone: no vote, no statistics and no reshaping over the batch, "
        "nothing drawn at test time"
    )
    shuffled = torch.randperm(len(everyone), generator=torch.Generator().manual_seed(5)).tolist()
    require_same(f"in a shuffled batch than in one of {len(everyone)}", shuffled, alone)
    for position in everyone[::3]:
        require_same(f"alone than in a batch of {len(everyone)}", [position], alone)
    for label in (0, now.session.infos[-1].seen - 1):
        require_same(
            "with other labels",
            everyone,
            "read batch.query or batch.images alone (a strategy that must be told the task is a control: "
            "control=True in its component)",
            label,
        )


@check("baseline")
def check_sets_answer_as_chosen(subject: Subject) -> None:
    """Features are those of the chosen set, in a mixed batch and under copies of the set as well."""
    now = scene(subject)
    baseline, pool, batch = now.baseline, now.pool, now.batch(range(16))

    def features(routing: Any) -> Tensor:
        with torch.no_grad():
            return baseline.features(batch, routing)

    forced = {set_id: features(pool.force(set_id)) for set_id in pool.ids}
    if now.session.retrieval is None and not baseline.scope.each:
        free = features(pool.route(None))
        for set_id, rows in forced.items():
            if not _close(free, rows):
                raise ContractViolation(
                    f"features under pool.force({set_id}) differ from those under pool.route(None), by "
                    "which a baseline without retrieval is evaluated; ignore routing.chosen, or name a "
                    "retrieval strategy in the component"
                )
    else:
        ids = [pool.ids[number % len(pool)] for number in range(16)]
        mixed = features(pool.route(torch.tensor(ids, device=batch.labels.device)))
        if not _close(mixed, torch.stack([forced[set_id][row] for row, set_id in enumerate(ids)])):
            raise ContractViolation(
                "an image gets other features from its set in a mixed batch than where that set is forced on "
                "all; hand out sets per sample (routing.select gives [B, ...] where samples differ)"
            )
    shared = [site for site in baseline.shared_sites() if site.per_sample]
    for set_id in pool.ids if baseline.takes_copies else ():
        way = each_its_own(baseline, pool[set_id], [*baseline.sites(pool[set_id]), *shared], (5, 11))
        with torch.no_grad():
            if not _close(way.features(batch), forced[set_id]):
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
    mine = subject.component.kind
    with seeded(10):
        try:
            session = opened(subject)
            contexts = range(len(session.infos))
            for index in contexts:
                context = begin(session, index)
                _require_a_plan(Scene(session=session), context, mine)
        except ContractViolation:
            raise
        except Exception as error:  # a plugin's code may raise anything: learns_a_small_stream reports it
            raise NotApplicable(f"its phases cannot be asked for ({error})") from error


def _require_a_plan(now: Scene, context: Any, kind: str) -> None:
    session, task = now.session, context.task.index + 1
    modules = modules_of(session)
    before, draws = everything(modules), torch.get_rng_state()
    first = [] if session.retrieval is None else list(session.retrieval.phases(context))
    second = list(session.baseline.phases(context))
    moved = changed(before, everything(modules))
    if not torch.equal(draws, torch.get_rng_state()):
        moved.append("torch's global generator")
    if moved:
        raise ContractViolation(
            f"phases() of task {task} changes {moved[0]!r}; do it in a ComputePhase, which is not run again "
            "after a resume"
        )
    own, names = second if kind == "baseline" else first, [phase.name for phase in (*first, *second)]
    twice = [phase.name for phase in own if names.count(phase.name) > 1]
    if twice:
        raise ContractViolation(
            f"several phases of task {task} are named {twice[0]!r}; name each differently, and those of a "
            "retrieval strategy 'retrieval...'"
        )
    trained = [(phase.name, phase.trained) for phase in own if isinstance(phase, TrainingPhase)]
    if kind == "retrieval" and session.retrieval is not None:
        groups = session.retrieval.parameter_groups(context, 0.1)
        trained += [("parameter_groups", group.parameters) for group in groups]
    mine = {"retrieval"} if kind == "retrieval" else {"baseline", f"set {context.set_id}"}
    owners = {
        id(parameter): (owner, name)
        for owner, module in (*modules.items(), ("backbone", session.backbone))
        for name, parameter in module.named_parameters()
    }
    for phase, parameters in trained:
        for parameter in parameters:
            owner, name = owners.get(id(parameter), ("nobody", "unregistered parameter"))
            if owner not in mine:
                raise ContractViolation(
                    f"{phase!r} of task {task} trains {name!r} of {owner}; train parameters of "
                    f"{' and '.join(sorted(mine))} alone, registered there so that a checkpoint holds them"
                )
