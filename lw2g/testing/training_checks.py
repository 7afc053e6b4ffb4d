"""What baselines and retrieval strategies promise of a run: looked at in small ones on the tiny benchmark."""

from __future__ import annotations

import torch

from lw2g.testing.bench import changed, everything, named_modules, wiring
from lw2g.testing.kit import ContractViolation, NotApplicable, Subject, check, told
from lw2g.testing.small_run import (
    SmallRun,
    evaluate,
    first_difference,
    interrupted,
    learned,
    opened,
    repeated,
    same_predictions,
    whole,
)
from lw2g.training.boundary import BackboneChangedError
from lw2g.training.evidence.collecting import collect_evidence
from lw2g.training.models.parts import lasting

__all__ = [
    "PROTECTED",
    "check_answers_without_what_only_learning_reads",
    "check_backbone_is_untouched",
    "check_cached_features_hold",
    "check_checkpoint_predicts_the_same",
    "check_evidence_changes_nothing",
    "check_learns_a_small_stream",
    "check_leaves_no_injection_behind",
    "check_other_sets_stay",
    "check_protection_holds",
    "check_resumes_to_the_same_bits",
    "check_same_seed_same_numbers",
]

PROTECTED = float(torch.finfo(torch.float32).eps)
"""How far linear outputs of unit activations inside a protected space may move.

Relative to the parameter's largest entry times the root of its width: what rounding to float32 can do.
"""


@check("baseline")
@check("retrieval")
def check_learns_a_small_stream(subject: Subject) -> None:
    """A run of three tasks, the second of which reuses a set, comes to its end."""
    found = whole(subject)
    if isinstance(found, Exception):
        raise ContractViolation(
            f"make {subject.component.name!r} learn the tiny benchmark (3 tasks, 2 classes each, 24 images "
            f"per task). It raised {told(found)}"
        ) from found


@check("baseline")
@check("retrieval")
def check_backbone_is_untouched(subject: Subject) -> None:
    """The backbone is bit for bit as it was, without gradients, after all tasks."""
    found = whole(subject)
    if isinstance(found, BackboneChangedError):  # which ends the run
        raise ContractViolation(str(found)) from found
    run = learned(subject)
    backbone = run.session.backbone
    for name, parameter in backbone.named_parameters():
        if parameter.requires_grad or parameter.grad is not None:
            raise ContractViolation(
                f"backbone.{name} is left with a gradient or requires one; never ask for gradients of the "
                "backbone"
            )


@check("baseline")
@check("retrieval")
def check_leaves_no_injection_behind(subject: Subject) -> None:
    """After training and evaluation the backbone has its own modules and hooks, and plain features."""
    run = learned(subject)
    backbone = run.session.backbone
    now, nothing = wiring(backbone), frozenset[str]()
    for name in dict.fromkeys((*run.wires, *now)):
        before, after = run.wires.get(name, nothing), now.get(name, nothing)
        if before != after:
            gained, lost = (", ".join(sorted(one)) or "nothing" for one in (after - before, before - after))
            raise ContractViolation(
                f"module {name!r} of the backbone has gained {gained} and lost {lost}; inject within "
                "backbone.features(images, injections), which takes everything out again"
            )
    images = torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16).to(backbone.device)
    plain = opened(subject, run.resolved).backbone
    if changed({"": plain.features(images)}, {"": backbone.features(images)}):
        raise ContractViolation("plain features differ after training; leave nothing of an injection behind")


@check("baseline")
@check("retrieval")
def check_other_sets_stay(subject: Subject) -> None:
    """Learning a task changes no set but its own."""
    run = learned(subject)
    task_to_set = run.session.pool.task_to_set
    for task in range(1, run.tasks):
        for name in changed(run.after[task - 1].state, run.after[task].state):
            owner = name.split(".", 1)[0]
            if (
                owner.startswith("set ")
                and owner != f"set {task_to_set[task]}"
                and name in run.after[task - 1].state
            ):
                raise ContractViolation(
                    f"learning task {task + 1}, which has set {task_to_set[task]}, changes {name!r}; detach "
                    "or freeze the other sets"
                )


@check("baseline")
def check_cached_features_hold(subject: Subject) -> None:
    """Features depend on no more than feature_scope says, so that those kept from old tasks hold."""
    run = learned(subject)
    last = run.tasks - 1
    _, features = evaluate(run.session, last)
    if changed({"": run.after[last].features}, {"": features}):
        scope = run.session.baseline.feature_scope
        raise ContractViolation(
            f"features of test samples have changed though feature_scope {scope!r} says that they cannot "
            "have; declare 'set+shared' where shared parameters take part, 'pool' where all sets do"
        )


@check("baseline")
@check("evidence")
def check_evidence_changes_nothing(subject: Subject) -> None:
    """Collecting evidence changes no parameter, buffer, flag, mode or generator."""
    run = learned(subject)
    session = run.session
    if session.fixed:
        raise NotApplicable("it does not grow, so no evidence is collected")
    # as the second task arrives, when there is a set that can be measured
    session = opened(subject, run.resolved, run.checkpoints[0])
    session.begin_task(1)
    modules = named_modules(session.baseline, session.pool, session.retrieval)
    for number, module in enumerate(modules.values()):
        module.train(number % 2 == 0)
    task = session.stream.tasks[1]
    probe = session.probe(task.index, session.image_set([task.train], train=False))

    def flags() -> dict[str, object]:
        found: dict[str, object] = {"torch's global generator": torch.get_rng_state().tolist()}
        for owner, module in modules.items():
            found |= {f"mode of {owner}.{name}": part.training for name, part in module.named_modules()}
            found |= {
                f"requires_grad or grad of {owner}.{name}": (one.requires_grad, one.grad is None)
                for name, one in module.named_parameters()
            }
        return found

    values, others = everything(modules), flags()
    evidence = collect_evidence(session, probe)
    moved = changed(values, everything(modules))
    moved += [name for name, value in flags().items() if others.get(name) != value]
    if moved:
        raise ContractViolation(
            f"collecting evidence changes {moved[0]!r}; let features, probe_loss and measures only read"
        )
    if not any(one.excluded is None for one in evidence.candidates):
        raise NotApplicable(f"no set could be measured ({evidence.candidates[0].excluded})")


@check("baseline")
@check("retrieval")
def check_same_seed_same_numbers(subject: Subject) -> None:
    """Two runs with the same seed have the same parameters, features and predictions, bit for bit."""
    one, other = learned(subject), repeated(subject)
    _must_agree(
        one,
        other,
        "of two runs with the same seed",
        "draw from torch's global generator (in a ComputePhase from TaskContext.generator)",
    )


@check("baseline")
@check("retrieval")
def check_resumes_to_the_same_bits(subject: Subject) -> None:
    """A run that is cut within a task and resumed in a new session ends as an uninterrupted one."""
    _must_agree(
        learned(subject),
        interrupted(subject),
        "of a resumed run and of an uninterrupted one",
        "keep in parameters or buffers whatever later steps depend on, and draw as the framework seeds",
    )


def _must_agree(one: SmallRun, other: SmallRun, whose: str, remedy: str) -> None:
    for task in range(one.tasks):
        if (unlike := first_difference(one.after[task], other.after[task])) is not None:
            raise ContractViolation(f"{unlike} {whose} differ after task {task + 1}; {remedy}")


@check("baseline")
@check("retrieval")
def check_answers_without_what_only_learning_reads(subject: Subject) -> None:
    """What is declared as read by learning alone changes no prediction: an exported model lacks it."""
    run = learned(subject)
    last = run.tasks - 1
    session = opened(subject, run.resolved, run.checkpoints[last])
    modules = [one for one in (session.baseline, session.retrieval) if one is not None]
    if not any(one.learning_only for one in modules):
        raise NotApplicable("learning_only names nothing")
    for module in modules:
        state = module.state_dict()
        unread = [state[name] for name in state.keys() - lasting(module, state).keys()]
        if module.learning_only and not unread:
            raise ContractViolation(
                f"learning_only {module.learning_only!r} names nothing in the state; correct it"
            )
        for value in unread:
            value.fill_(torch.nan if value.is_floating_point() else 0)
    predictions, features = evaluate(session, last)
    before = run.after[last]
    if not same_predictions(predictions, before.predictions) or changed(
        {"": before.features}, {"": features}
    ):
        raise ContractViolation(
            "predictions differ without what learning_only names; name only what nothing but learning reads"
        )


@check("baseline")
@check("retrieval")
def check_checkpoint_predicts_the_same(subject: Subject) -> None:
    """Loaded from the checkpoint of a finished task, the run predicts what it predicted then."""
    run = learned(subject)
    for task in dict.fromkeys((0, run.tasks - 1)):
        session = opened(subject, run.resolved, run.checkpoints[task])
        predictions, features = evaluate(session, task)
        before = run.after[task]
        if not same_predictions(predictions, before.predictions) or changed(
            {"": before.features}, {"": features}
        ):
            raise ContractViolation(
                f"loaded from the checkpoint of task {task + 1}, features or predictions are others than "
                "before; register as parameter or buffer whatever a prediction depends on"
            )


@check("baseline")
def check_protection_holds(subject: Subject) -> None:
    """Trained on, a parameter keeps the linear outputs of its site's old activations, and moves otherwise."""
    run = learned(subject)
    if run.tasks < 2:
        raise NotApplicable("it learns everything as one task")
    before, after = run.after[0].sites, run.after[1].sites
    if not before:
        raise NotApplicable("it declares no sites")
    free = trained = 0
    for name, old in before.items():
        if name not in after or old.space is None:
            continue
        moved = (after[name].rows - old.rows).double()
        # outputs of the unit activations that span the space: those of all others in it are sums of them
        inside = float(old.space.to(dtype=moved.dtype).on(moved).abs().max())
        largest = float(torch.stack([old.rows, after[name].rows]).abs().max())
        tolerance = PROTECTED * largest * old.space.dim**0.5
        if inside > tolerance:
            raise ContractViolation(
                f"site {name!r} moves by {inside:.1e} inside the space of its old activations (tolerance "
                f"{tolerance:.1e}) when task 2 is learned; change its parameter only in a TrainingPhase with "
                "host=True, on which constraints act"
            )
        free += not old.space.is_full
        trained += float(moved.abs().max()) > tolerance
    if not free:
        raise NotApplicable("all spaces of the tiny task are full")
    if not trained:
        raise ContractViolation(
            "no site of a reused set, or shared one, is trained in task 2; put its parameter into the "
            "groups of a TrainingPhase with host=True, whether the set is new or not"
        )
