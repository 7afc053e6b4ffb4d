"""Checks of a head: what it declares, it keeps.

Features are Gaussian classes drawn here; a head sees neither images nor a backbone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lw2g.interfaces.carry import Motion
from lw2g.interfaces.context import TaskInfo, derive_seed
from lw2g.interfaces.defaults import FROZEN_BASELINE
from lw2g.interfaces.head import ClosedForm, HeadContext
from lw2g.model.parts import widened
from lw2g_testing.cases import ContractViolation, NotApplicable, Subject, check, error_line, methods_of
from lw2g_testing.changes import plain_tensors
from lw2g_testing.guards import available, seeded
from lw2g_testing.small_run import require_run

_DIM = 12
"""Width of features."""
CLASSES = 6
_IMAGES = 40
"""Images of each class."""
_FEATURES = 24
"""Width of what a head may lift features to."""
_FORGOTTEN = 2
"""The class that is forgotten: neither the first nor the last."""
_EXACT = 1e-8
"""Relative difference of scores up to which cuts into tasks and batches count as the same."""
_FOUND = 0.5
"""Least share of images whose class is found."""
_SURE = 2.0
"""Factor by which a posterior's best temperature may differ from 1."""
_ALONE = 1e-6
"""Relative difference of scores that rounding may cause in batches of another size."""


def made(subject: Subject, *, classes: int = CLASSES, carried: bool = False) -> ClosedForm:
    """Return the head, built for features of a small width."""
    context = HeadContext(
        dim=_DIM,
        num_classes=classes,
        seed=derive_seed(0, "head", _DIM, _FEATURES),
        features=_FEATURES,
        carried=carried,
    )
    head: Any = available(lambda: subject.component.build(subject.config, context))
    if not isinstance(head, ClosedForm):
        raise ContractViolation(f"build returns {type(head).__name__}; return a lw2g.plugin.ClosedForm")
    return head


def declared(name: str) -> Any:
    """Return whether a head declares something; a head that cannot be built concerns every check."""

    def applies(subject: Subject) -> bool:
        try:
            return bool(getattr(made(subject), name))
        except Exception:  # the check itself reports it
            return True

    return applies


def images_of(classes: int = CLASSES, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return features ``[n, dim]`` of overlapping Gaussian classes with one covariance, and labels ``[n]``.

    Another seed draws other images: their labels, like means and covariance, are the same.
    """
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(classes, _DIM, generator=torch.Generator().manual_seed(1)) + 1
    mix = torch.eye(_DIM) + 0.3 * torch.randn(_DIM, _DIM, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(classes).repeat_interleave(_IMAGES)
    noise = torch.randn(len(labels), _DIM, generator=generator)
    return means[labels] + noise @ mix, labels


def task_of(index: int, classes: Sequence[int], targets: Sequence[int] | None = None) -> TaskInfo:
    """Return the facts of a task."""
    return TaskInfo(
        index=index,
        classes=tuple(classes),
        class_names=tuple(f"class {position}" for position in classes),
        seen=classes[-1] + 1,
        num_images=_IMAGES * len(classes),
        targets=tuple(targets or classes),
    )


def teach(head: ClosedForm, sizes: Sequence[int], rows: Tensor, labels: Tensor, first: int = 0) -> ClosedForm:
    """Let a head learn classes in tasks of some sizes, and return it."""
    begin = first
    for index, size in enumerate(sizes):
        classes = range(begin, begin + size)
        head.begin_task(task_of(index, classes))
        in_task = (labels >= begin) & (labels < begin + size)
        head.learn(rows[in_task], labels[in_task], torch.Generator().manual_seed(index))
        begin += size
    return head


def _difference(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of scores, relative to the largest score."""
    return float((one - other).abs().max() / one.abs().max().clamp(min=1e-30))


@check("head")
def check_scores_classes(subject: Subject) -> None:
    """It scores each seen class of each image in float64; logits are 0 for classes to come."""
    rows, labels = images_of()
    for seen, sizes in ((2, (2,)), (CLASSES, (2, 2, 2))):
        head = teach(made(subject), sizes, rows, labels)
        scores = head.scores(rows[:5], seen)
        if scores.shape != (5, seen) or scores.dtype != torch.float64 or not scores.isfinite().all():
            raise ContractViolation(
                f"score returns {tuple(scores.shape)} {scores.dtype} for 5 images and {seen} classes; return "
                "finite float64 scores [n, classes]"
            )
        logits = head.logits(rows[:5])
        if logits.shape != (5, CLASSES) or bool(logits[:, seen:].any()):
            raise ContractViolation(
                f"logits must be [n, {CLASSES}] with zeros for classes to come; leave logits as inherited"
            )


@check("head")
def check_learns(subject: Subject) -> None:
    """It tells Gaussian classes that it has learned in several tasks apart, better than chance by far."""
    rows, labels = images_of()
    head = teach(made(subject), (2, 2, 2), rows, labels)
    unseen, true_labels = images_of(seed=9)
    scores = head.scores(unseen, CLASSES)
    found, found_by_least = (
        float((answers == true_labels).double().mean()) for answers in (scores.argmax(1), scores.argmin(1))
    )
    if found_by_least >= _FOUND:  # distances, where their negatives are asked for
        raise ContractViolation(
            f"its score is smallest for the class that an image has; let {methods_of(head, 'score')} change "
            "the sign, since the largest score wins"
        )
    if found < _FOUND:
        raise ContractViolation(
            f"it finds {found:.0%} of the classes, by chance {1 / CLASSES:.0%}; let "
            f"{methods_of(head, 'add')} add to what earlier batches have left, and "
            f"{methods_of(head, 'score')} be largest for the class that an image has"
        )


@check("head")
def check_prediction_belongs_to_its_sample(subject: Subject) -> None:
    """The scores of an image do not depend on the rest of its batch."""
    rows, labels = images_of()
    head = teach(made(subject), (2, 2, 2), rows, labels)
    unseen, _ = images_of(seed=9)
    together = head.scores(unseen, CLASSES)
    positions = range(0, len(unseen), _IMAGES // 2)
    alone = torch.cat([head.scores(unseen[[position]], CLASSES) for position in positions])
    difference = _difference(together[positions], alone)
    if not difference <= _ALONE:  # NaN, too, such as a deviation over one row
        raise ContractViolation(
            f"scores of an image alone differ by {difference:.1e} from those in a batch of {len(unseen)}; "
            f"let {methods_of(head, 'score')} compute every row from its own features and the solution, "
            "without statistics of the batch"
        )


@check("head", applies=declared("exact"))
def check_is_exact(subject: Subject) -> None:
    """Its scores are the same to 1e-8, however images are cut into tasks, batches and orders."""
    rows, labels = images_of()
    at_once = teach(made(subject), (CLASSES,), rows, labels)
    expected = at_once.scores(rows, CLASSES)
    for sizes in ((3, 3), (2, 2, 2), (1,) * CLASSES):
        in_tasks = teach(made(subject), sizes, rows, labels)
        difference = _difference(expected, in_tasks.scores(rows, CLASSES))
        if difference > _EXACT:
            raise ContractViolation(
                f"its scores after tasks of {sizes} classes differ by {difference:.1e}; choose "
                "nothing by one task's images, or declare exact = False"
            )
    head = made(subject)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(3))
    head.begin_task(task_of(0, range(CLASSES)))
    for part in torch.split(order, 7):
        head.update(rows[part], labels[part])
    difference = _difference(expected, head.scores(rows, CLASSES))
    if difference > _EXACT:
        raise ContractViolation(
            f"its scores after batches of 7 in another order differ by {difference:.1e}; let "
            f"{methods_of(head, 'add')} add each image to sums alone, or declare exact = False"
        )


@check("head")
def check_positions_of_one_class(subject: Subject) -> None:
    """A class that comes again has one score, and its images of both tasks count."""
    rows, labels = images_of()
    head = made(subject)
    head.begin_task(task_of(0, (0, 1, 2)))
    first = labels < 3
    head.learn(rows[first], labels[first], torch.Generator().manual_seed(0))
    again = (labels >= 3) & (labels < 5)
    # position 3 is the class of position 1 again, position 4 a new one
    head.begin_task(task_of(1, (3, 4), targets=(1, 3)))
    try:
        head.learn(rows[again], labels[again], torch.Generator().manual_seed(1))
        scores = head.scores(rows, 5)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        # such as a score for each position, where one for each class is asked for
        raise ContractViolation(
            f"it fails where a class comes again ({error_line(error)}); let {methods_of(head, 'solve')} sum "
            "positions of one class by pooled (ClosedForm.pooled)"
        ) from error
    if scores.shape[1] != 5 or not torch.equal(scores[:, 1], scores[:, 3]):
        raise ContractViolation(
            "positions of one class have different scores; solve classes of one target together "
            "(ClosedForm.pooled)"
        )


def _lost(subject: Subject) -> str | None:
    """Return what a head loses that is built again and given its state; None if it gives the same scores."""
    rows, labels = images_of()
    head = teach(made(subject), (3, 3), rows, labels)
    expected = head.scores(rows, CLASSES)
    fresh = made(subject)
    fresh.load_state_dict(copy.deepcopy(head.state_dict()))
    if torch.equal(fresh.scores(rows, CLASSES), expected):
        return None
    return ", ".join(map(repr, plain_tensors({"self": head}))) or "something that its scores depend on"


def _require_state(subject: Subject) -> None:
    """Skip a check that gives a head's state to another one where this loses something.

    Raises:
        NotApplicable: It does; the check ``state_is_complete`` reports it.
    """
    if subject.once("lost", lambda: _lost(subject)) is not None:
        raise NotApplicable(
            "not tried: a head given its state is another one; see the check 'state_is_complete'"
        )


@check("head")
def check_state_is_complete(subject: Subject) -> None:
    """Built again and given its state, as an export is, it gives the same scores to the bit."""
    lost = subject.once("lost", lambda: _lost(subject))
    if lost is not None:
        raise ContractViolation(
            f"its state does not hold {lost}; let {methods_of(made(subject), '__init__')} register sums as "
            "buffers (self.register_buffer), and draw what is not among them from context.seed"
        )


@check("head")
def check_takes_more_classes(subject: Subject) -> None:
    """With room for more classes its old scores stay as they were, and it learns the new ones."""
    _require_state(subject)
    rows, labels = images_of()
    old = teach(made(subject, classes=3), (3,), rows, labels)
    expected = old.scores(rows, 3)
    larger = made(subject)
    larger.load_state_dict(widened(old.state_dict(), larger.state_dict(), "it"))
    if not torch.equal(larger.scores(rows, 3), expected):
        raise ContractViolation("room for more classes changes its old scores; draw nothing by their number")
    teach(larger, (3,), rows, labels, first=3)
    if not larger.scores(rows, CLASSES).isfinite().all():
        raise ContractViolation(
            "its scores are not finite after classes that came later; let "
            f"{methods_of(larger, 'add', 'solve')} take classes that had no image at first"
        )


@check("head")
def check_takes_one_image(subject: Subject) -> None:
    """A class of one image is legal, also where all classes have one."""
    rows, labels = images_of()
    count = _IMAGES + 1  # all images of the first class, and the first one of the second
    head = made(subject)
    head.begin_task(task_of(0, (0, 1)))
    head.learn(rows[:count], labels[:count], torch.Generator().manual_seed(0))
    if not head.scores(rows, 2).isfinite().all():
        raise ContractViolation(
            "its scores are not finite where a class has one image; let "
            f"{methods_of(head, 'solve')} shrink what is inverted"
        )
    first = slice(None, None, _IMAGES)  # the first image of each class: nothing varies within one
    head = teach(made(subject), (CLASSES,), rows[first], labels[first])
    if not head.scores(rows, CLASSES).isfinite().all():
        raise ContractViolation(
            "its scores are not finite where all classes have one image: the variance within them is 0; let "
            f"{methods_of(head, 'solve', 'score')} divide by it only where it is positive"
        )


@check("head")
def check_draws_from_its_seed(subject: Subject) -> None:
    """It draws from its own seed: the global generators stay, and built twice it scores alike."""
    rows, labels = images_of()
    with seeded(1) as generators:
        first = teach(made(subject), (3, 3), rows, labels).scores(rows, CLASSES)
        generators.refuse_draws("it", "; use torch.Generator().manual_seed(context.seed)")
    second = teach(made(subject), (3, 3), rows, labels).scores(rows, CLASSES)
    if not torch.equal(first, second):
        raise ContractViolation("built twice it scores differently; draw from context.seed alone")


@check("head", applies=declared("likelihood"))
def check_scores_are_posteriors(subject: Subject) -> None:
    """The softmax of its scores is a posterior: no other temperature than about 1 fits unseen images."""
    rows, labels = images_of()
    unseen, true_labels = images_of(seed=7)
    head = teach(made(subject), (3, 3), rows, labels)
    scores = head.scores(unseen, CLASSES)
    temperatures = torch.linspace(-4, 4, 81, dtype=torch.float64).exp2()  # from 1/16 to 16
    losses = []
    for temperature in temperatures:
        losses.append(torch.nn.functional.cross_entropy(scores / temperature, true_labels))
    # argmin takes NaN for the least: a head of broken scores gets a temperature of the ends, and fails
    best = float(temperatures[torch.stack(losses).argmin()])
    if not 1 / _SURE <= best <= _SURE:
        raise ContractViolation(
            f"the temperature {best:.2g} fits its scores best; return log likelihoods, or leave out "
            "likelihood = True"
        )


@check("head", applies=declared("class_rows"))
def check_forgets_a_class(subject: Subject) -> None:
    """Without the rows of a class it is as if it had never learned it, to the bit."""
    _require_state(subject)
    rows, labels = images_of()
    head = teach(made(subject), (CLASSES,), rows, labels)
    left = [position for position in range(CLASSES) if position != _FORGOTTEN]
    state = head.state_dict()
    for name, value in state.items():
        if value.ndim:  # a single number is of no class
            state[name] = value[left]
    reduced = made(subject, classes=len(left))
    reduced.load_state_dict(state)
    # the other head never sees the class; those behind it move up by one place
    of_others = labels != _FORGOTTEN
    places = labels[of_others] - (labels[of_others] > _FORGOTTEN).long()
    fresh = made(subject, classes=len(left))
    fresh.begin_task(task_of(0, range(len(left))))
    fresh.update(rows[of_others], places)
    if not torch.equal(reduced.scores(rows, len(left)), fresh.scores(rows, len(left))):
        raise ContractViolation(
            f"its rows depend on other classes; let {methods_of(head, 'add')} change the rows of an image's "
            "own class alone, or declare class_rows = False"
        )


@check("head", applies=declared("carried"))
def check_can_be_carried(subject: Subject) -> None:
    """Centres are the means of features, follow a motion, and stay where nothing moves."""
    rows, labels = images_of()
    head = teach(made(subject, carried=True), (3, 3), rows, labels)
    classes = torch.arange(CLASSES)
    means = torch.stack([rows[labels == label].double().mean(0) for label in classes])
    # a head of normalised features knows means up to a few percent; a quarter off, it keeps something else
    if float((head.centres(classes) - means).norm() / means.norm()) > 0.25:
        raise ContractViolation(
            "centres are not the means of the features that it has learned; let "
            f"{methods_of(head, 'add')} add features to sums, and {methods_of(head, 'centres')} divide the "
            "sum of a class by its count"
        )
    before = head.centres(classes).clone()
    scores = head.scores(rows, CLASSES)
    head.carry(Motion(rows=lambda one: one, still=True), classes.tolist())
    if not torch.equal(head.scores(rows, CLASSES), scores):
        raise ContractViolation(
            "a motion that moves nothing changes its scores; leave carry as it is inherited"
        )
    offset = torch.linspace(-1, 1, _DIM, dtype=torch.float64)
    head.carry(Motion(rows=lambda one: one + offset), classes.tolist())
    if not torch.allclose(head.centres(classes), before + offset, atol=1e-6):
        raise ContractViolation(
            f"its centres do not follow a motion; let {methods_of(head, 'move')} make the sum of each class "
            "its count times motion(mean)"
        )
    if not head.scores(rows, CLASSES).isfinite().all():
        raise ContractViolation(
            f"its scores are not finite after a motion; let {methods_of(head, 'move')} keep counts, and "
            "variances positive"
        )


@check("head")
def check_serves_a_run_and_its_export(subject: Subject) -> None:
    """Runs predict by it, and their export predicts the same."""
    made(subject)  # what it lacks is a reason to skip
    _require_state(subject)
    require_run(subject, {"baseline.head": subject.component.name}, FROZEN_BASELINE)
