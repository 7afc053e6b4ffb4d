"""What a baseline promises of its sets and its forward; nothing is trained to see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import attrs
import torch
from torch import Tensor, nn

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, Lw2gError
from lw2g.interfaces.baseline import FeatureScope
from lw2g.interfaces.component import BaselineComponent, Kind, Presets
from lw2g.interfaces.pool import Pool, Routing
from lw2g.registry.catalogue import Registered
from lw2g.testing.bench import (
    SAMPLES,
    TASKS,
    Bench,
    begin,
    built,
    changed,
    everything,
    lay_out,
    lay_out_or_skip,
    outcome,
    seeded,
)
from lw2g.testing.kit import ContractViolation, NotApplicable, Subject, check, told
from lw2g.training.evidence.gradients import each_its_own

__all__ = [
    "TOLERANCE",
    "check_a_batch_may_mix_sets",
    "check_builds",
    "check_copies_of_a_set_do_as_it_does",
    "check_new_sets_are_their_own",
    "check_prediction_belongs_to_its_sample",
    "check_presets_name_options",
    "check_refuses_without_a_set",
    "check_scores_all_classes",
    "check_state_is_all",
]

TOLERANCE = 1e-4
"""Absolute and relative difference of logits that rounding in batches of other sizes may make."""


@check("baseline")
@check("retrieval")
def check_builds(subject: Subject) -> None:
    """The component is built from its default options on a small backbone, and begins tasks."""
    found = outcome(subject, "bench", lambda: lay_out(subject))
    if isinstance(found, ContractViolation):
        raise found
    if isinstance(found, Exception):
        raise ContractViolation(
            f"build {subject.component.name!r} on a ViT of 6 blocks, width 32 and 4 heads, and begin three "
            f"tasks; where the defaults need more, give the check options. It raised {told(found)}"
        ) from found
    if found.baseline.feature_scope not in get_args(FeatureScope):
        raise ContractViolation(
            f"set feature_scope to one of {', '.join(get_args(FeatureScope))}, not "
            f"{found.baseline.feature_scope!r}"
        )


@check("baseline")
def check_presets_name_options(subject: Subject) -> None:
    """Every preset, official or tuned, names options that exist, with values that they take."""
    component: BaselineComponent = subject.component
    if not component.presets and not component.tuned:
        raise NotApplicable("it has no presets")
    for kind, presets in (("presets", component.presets), ("tuned", component.tuned)):
        for family, values in presets.items():
            _resolve_preset(subject, kind, family, values)


def _resolve_preset(subject: Subject, kind: str, family: str, values: Mapping[str, Any]) -> None:
    """Resolve the values as the preset of a benchmark of the family.

    Where none is registered, the tiny one stands in, and nothing is known of the benchmark's own options.
    """
    catalogue, name = subject.catalogue, subject.component.name
    offered = [catalogue.get("benchmark", known) for known in catalogue.names("benchmark")]
    benchmark = next((one for one in offered if one.family == family), None)
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


@check("baseline")
def check_new_sets_are_their_own(subject: Subject) -> None:
    """A new set is the same under the same seed, shares no tensor, and leaves its source as it was."""
    bench = built(subject)
    source = bench.baseline.source_of(bench.pool)
    before = everything(bench.modules)
    made = []
    for _ in range(2):
        with seeded(3):
            made.append(bench.baseline.new_set(source))
    if moved := changed(before, everything(bench.modules)):
        raise ContractViolation(f"new_set changes {moved[0]!r}; copy values out of the source, never into it")
    if unlike := changed(everything({"set": made[0]}), everything({"set": made[1]})):
        raise ContractViolation(
            f"new_set gives {unlike[0]!r} other values under the same seed; draw from torch's global "
            "generator"
        )
    owners = {
        place: name
        for owner, module in (("second set", made[1]), *bench.modules.items(), ("backbone", bench.backbone))
        for name, place in _places(owner, module)
    }
    for name, place in _places("set", made[0]):
        if place in owners:
            raise ContractViolation(
                f"new_set gives out {name!r} in the memory of {owners[place]!r}; clone what is taken from "
                "elsewhere"
            )


def _places(owner: str, module: nn.Module) -> list[tuple[str, int]]:
    """Return the address of every tensor of a module that holds numbers."""
    tensors = (*module.named_parameters(), *module.named_buffers())
    return [
        (f"{owner}.{name}", value.untyped_storage().data_ptr()) for name, value in tensors if value.numel()
    ]


@check("baseline")
@check("retrieval")
def check_state_is_all(subject: Subject) -> None:
    """Loaded into newly built modules, the state dicts give the same predictions, bit for bit."""
    bench = built(subject)
    fresh = lay_out(subject, draw=1)
    try:
        fresh.baseline.load_state_dict(bench.baseline.state_dict())
        fresh.pool.restore(
            bench.pool.task_to_set, bench.pool.state_dict(), lambda: fresh.baseline.new_set(None)
        )
        if bench.retrieval is not None and fresh.retrieval is not None:
            fresh.retrieval.load_state_dict(bench.retrieval.state_dict())
    except RuntimeError as error:
        raise ContractViolation(
            "give every tensor of a state dict the shape that it has in a newly built module (for a set: one "
            f"made by new_set(None)). Loading raised {told(error)}"
        ) from error
    everyone = torch.arange(SAMPLES)
    for what, one, other in zip(
        ("tasks", "logits"), _shown(bench, everyone), _shown(fresh, everyone), strict=True
    ):
        if changed({"": one}, {"": other}):
            raise ContractViolation(
                f"{what} differ after the state dicts were loaded into newly built modules; register as "
                "parameter or buffer whatever a prediction depends on"
            )


def _shown(bench: Bench, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return tasks and logits; a control strategy, which is never asked, is told some tasks."""
    if getattr(bench.retrieval, "control", False):
        tasks = positions % TASKS
        return tasks, bench.logits(bench.batch(positions), bench.pool.route(bench.pool.sets_of(tasks)))
    logits, tasks = bench.predict(bench.batch(positions))
    return tasks, logits


@check("baseline")
def check_scores_all_classes(subject: Subject) -> None:
    """Logits are [B, num_classes] and defined for seen classes, so that no other class can be predicted."""
    bench = lay_out_or_skip(subject, 0)
    everyone = torch.arange(8)
    for index in range(TASKS):
        with seeded(index):
            begin(bench, index)
        routing = bench.pool.force(bench.pool.task_to_set[index])
        with torch.no_grad():
            features = bench.baseline.features(bench.batch(everyone), routing).float()
            logits = bench.baseline.logits(bench.as_answers(features))
        if logits.shape != (8, 2 * TASKS):
            raise ContractViolation(
                f"let logits return a column for each of the {2 * TASKS} classes of the stream, seen or not, "
                f"[8, {2 * TASKS}] for 8 images; after task {index + 1} they are {list(logits.shape)}"
            )
        seen = bench.history[-1].seen
        if not bool(logits[:, :seen].isfinite().all()):
            raise ContractViolation(
                f"let logits be finite for the {seen} classes seen by task {index + 1}; minus infinity may "
                "only stand for classes to come"
            )


@check("baseline")
def check_prediction_belongs_to_its_sample(subject: Subject) -> None:
    """Logits and task of a sample are those it gets alone, in a batch of 64 and in a shuffled one."""
    bench = built(subject)
    everyone = torch.arange(SAMPLES)
    logits, tasks = bench.predict(bench.batch(everyone))
    if float(logits.std(dim=0).max()) <= 100 * TOLERANCE:
        raise ContractViolation("logits are the same for all images; compute features from batch.images")
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(5))
    company: list[tuple[str, Tensor, tuple[Tensor, Tensor]]] = [
        ("in a shuffled batch", order, bench.predict(bench.batch(order)))
    ]
    for position in range(0, SAMPLES, 8):
        alone = everyone[position : position + 1]
        company.append(("alone", alone, bench.predict(bench.batch(alone))))
    for how, positions, (others, other_tasks) in company:
        same = torch.equal(other_tasks, tasks[positions]) and torch.allclose(
            others, logits[positions], rtol=TOLERANCE, atol=TOLERANCE
        )
        if not same:
            raise ContractViolation(
                f"an image gets another prediction {how} than in a batch of {SAMPLES}; compute every row "
                "from its own image alone: no vote, no statistics and no reshaping over the batch, nothing "
                "drawn at test time"
            )


@check("baseline")
def check_a_batch_may_mix_sets(subject: Subject) -> None:
    """Each sample of a batch gets its own set; without a choice of sets, naming one changes nothing."""
    bench = built(subject)
    batch = bench.batch(torch.arange(16))

    @torch.no_grad()
    def answer(routing: Routing) -> Tensor:
        # where each set answers, the answer of one is its features
        return bench.baseline.features(batch, routing) if bench.each else bench.logits(batch, routing)

    forced = [answer(bench.pool.force(set_id)) for set_id in bench.pool.ids]
    if bench.retrieval is None and not bench.each:
        free = bench.logits(batch, bench.pool.route(None))
        for set_id, logits in zip(bench.pool.ids, forced, strict=True):
            if not torch.allclose(free, logits, rtol=TOLERANCE, atol=TOLERANCE):
                raise ContractViolation(
                    f"features under pool.force({set_id}) differ from those under pool.route(None), by "
                    "which a baseline without retrieval is evaluated; ignore routing.chosen, or name a "
                    "retrieval strategy in the component"
                )
        return
    chosen = torch.arange(16) % len(bench.pool)
    mixed = answer(bench.pool.route(chosen))
    expected = torch.stack([forced[int(place)][row] for row, place in enumerate(chosen)])
    if not torch.allclose(mixed, expected, rtol=TOLERANCE, atol=TOLERANCE):
        raise ContractViolation(
            "an image gets other features from its set in a mixed batch than where that set is forced on "
            "all; hand out sets per sample (routing.select gives [B, ...] where samples differ)"
        )


@check("baseline")
def check_copies_of_a_set_do_as_it_does(subject: Subject) -> None:
    """Features under copies of a set, and a row of shared sites per sample, are those under the set."""
    bench = built(subject)
    baseline, batch = bench.baseline, bench.batch(torch.arange(16))
    if not baseline.takes_copies:
        raise NotApplicable("it takes no copies of a set")
    shared = [site for site in baseline.shared_sites() if site.per_sample]
    for set_id in bench.pool.ids:
        own = bench.pool[set_id]
        way = each_its_own(baseline, own, [*baseline.sites(own), *shared], (5, 11))
        with torch.no_grad():
            found, expected = way.features(batch), baseline.features(batch, bench.pool.force(set_id))
        if not torch.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE):
            raise ContractViolation(
                f"features under copies of set {set_id} differ from those under the set; read sets through "
                "routing.select, let shared sites be per_sample only where a forward takes a batch axis, or "
                "leave takes_copies False"
            )


@check("baseline")
def check_refuses_without_a_set(subject: Subject) -> None:
    """Before the first task, or without a choice where one is needed, a forward fails and says what to do."""
    bench = built(subject)
    batch = bench.batch(torch.arange(4))
    nothing = Pool()
    _must_refuse(lambda: bench.logits(batch, nothing.route(None)), "before the first task")
    _must_refuse(lambda: bench.logits(batch, nothing.force(0)), "before the first task")
    if bench.retrieval is not None:
        _must_refuse(lambda: bench.logits(batch, bench.pool.route(None)), "although no set was chosen")


def _must_refuse(predict: Callable[[], Tensor], when: str) -> None:
    try:
        predict()
    except (ValueError, Lw2gError) as error:
        if str(error):
            return
    # Anything else is what a user would meet in place of a sentence.
    except Exception as error:
        raise ContractViolation(
            f"a forward {when} raises {told(error)}; raise a ValueError that says what to do"
        ) from error
    raise ContractViolation(
        f"something is predicted {when}; take sets through routing.select or routing.only, which refuse"
    )
