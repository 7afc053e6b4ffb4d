"""The session that a small run leaves, with randomly moved parameters: for checks of forwards."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import attrs
import torch
from torch import Tensor, nn

from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.pool import Pool
from lw2g.learning.session import Session
from lw2g.model.predictor import Predictor
from lw2g_testing.cases import NotApplicable, Subject, methods_of
from lw2g_testing.changes import modules_of
from lw2g_testing.guards import seeded
from lw2g_testing.small_run import NO_RUN, begin, opened, whole

__all__ = ["TOLERANCE", "MovedSession", "declares", "moved_session", "require_own_rows", "require_sites"]

TOLERANCE = 1e-4
"""Absolute and relative difference of logits that rounding may cause in batches of another size."""
_MOVED = 0.3
"""Standard deviation of the random motion of each parameter."""


def declares(subject: Subject, what: str) -> bool:
    """Return whether a baseline or strategy declares something to check; True if it cannot be built.

    Args:
        subject: The component.
        what: ``"sites"`` or ``"learning_only"``.
    """
    facts: dict[str, bool] = subject.once("facts", lambda: _facts(subject))
    return facts.get(what, True)


def require_sites(subject: Subject) -> None:
    """Skip a check of sites where a baseline declares none.

    Raises:
        NotApplicable: It declares none.
    """
    if not declares(subject, "sites"):
        raise NotApplicable("no sites: nothing is measured or protected")


def require_own_rows(subject: Subject) -> None:
    """Skip a check that compares answers of one image where they depend on the others of its batch.

    Raises:
        NotApplicable: They do; the check ``prediction_belongs_to_its_sample`` reports it.
    """
    if subject.once("mixes its batch", lambda: _mixes(subject)):
        raise NotApplicable(
            "not tried: answers depend on the batch; see the check 'prediction_belongs_to_its_sample'"
        )


def _mixes(subject: Subject) -> bool:
    """Return whether a baseline answers an image alone otherwise than within a batch, by the same set."""
    now = moved_session(subject)
    routing = now.pool.force(now.pool.ids[0])

    def logits(positions: Sequence[int]) -> Tensor:
        features = now.baseline.features(now.batch(positions), routing)
        return now.baseline.logits(now.as_answers(features))

    everyone = range(now.images)
    try:
        with torch.no_grad():
            together = logits(everyone)
            # as many as the check that reports it looks at
            alone = torch.cat([logits([position]) for position in everyone[::3]])
    except Exception:  # a plugin's code may raise anything: another check reports it
        return False
    return not torch.allclose(alone, together[::3], rtol=TOLERANCE, atol=TOLERANCE)


def _facts(subject: Subject) -> dict[str, bool]:
    """Return whether a component declares sites, and whether it is for learning only; empty if it fails."""
    with seeded(0), warnings.catch_warnings(action="ignore"):
        try:
            session = opened(subject)
            begin(session, 0)
            parts = session.parts
            component = parts.baseline if subject.component.kind == "baseline" else parts.retrieval
            sites = [*parts.baseline.sites(parts.pool.sets[0]), *parts.baseline.shared_sites()]
            learning_only = component is not None and component.learning_only
            return {"sites": bool(sites), "learning_only": bool(learning_only)}
        except Exception:  # a plugin's code may raise anything; a check reports it
            return {}


@attrs.frozen(kw_only=True, eq=False)
class MovedSession:
    """A session after three tasks with randomly moved parameters, and the test images of all tasks.

    So sets differ from each other and heads prefer some classes. Buffers, which may have structure (a
    Cholesky factor, a count), keep the values that phases have set.
    """

    session: Session

    @property
    def baseline(self) -> Baseline:
        """The baseline."""
        return self.session.parts.baseline

    @property
    def pool(self) -> Pool:
        """Its sets."""
        return self.session.parts.pool

    @property
    def images(self) -> int:
        """Number of images."""
        return len(self.session.data.evaluator.images)

    def batch(self, positions: Sequence[int]) -> Batch:
        """Return some of the images; their query takes a plain forward at this batch size."""
        return next(iter(self.session.data.evaluator.images.batches([list(positions)])))

    def of_task(self, index: int) -> Batch:
        """Return the images of one task."""
        tasks = self.session.data.stream.tasks
        first = sum(len(task.test) for task in tasks[:index])
        return self.batch(range(first, first + len(tasks[index].test)))

    @torch.no_grad()
    def predict(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return logits of the seen classes and retrieved tasks (None without retrieval), as evaluation does.

        A control, which evaluation never asks, gets arbitrary tasks.
        """
        tasks = len(self.session.parts.infos)
        strategy = self.session.parts.retrieval
        predictor = Predictor.of(self.session.parts, tasks - 1)
        if strategy is None:
            choice = predictor.all_members(len(batch))
        elif strategy.control:
            choice = predictor.of_tasks((batch.samples % tasks).to(batch.labels.device))
        else:
            choice, _ = predictor.choose(batch)
        logits = self.baseline.scope.score(self.baseline.logits, predictor.rows(batch, choice))
        return logits[:, : predictor.seen], choice.tasks

    def answering(self, subject: Subject) -> str:
        """Return the methods by which a baseline or strategy answers, for a message."""
        if subject.component.kind == "baseline":
            return methods_of(self.baseline, "features", "logits")
        return methods_of(self.session.parts.retrieval, "scores")

    def as_answers(self, features: Tensor) -> Tensor:
        """Return features ``[B, F]`` as :meth:`Baseline.logits` takes them, the same ones under every set."""
        members = len(self.pool) + len(self.baseline.beside())
        return self.baseline.scope.repeated(features, members)


def moved_session(subject: Subject, *, fresh: bool = False) -> MovedSession:
    """Return the session after the subject's run, or after beginning its tasks if the run fails.

    Args:
        subject: The component.
        fresh: Whether the check will change the session, which is then not shared with other checks.

    Raises:
        NotApplicable: The tasks cannot be begun; the check ``learns_a_small_stream`` reports why.
    """

    def make() -> MovedSession | None:
        """Return the session after all tasks, with every parameter moved; None if the component fails."""
        run = whole(subject)
        with seeded(0):
            try:
                if isinstance(run, Exception):
                    session = opened(subject)
                    for index in range(len(session.parts.infos)):
                        begin(session, index)
                else:
                    session = opened(subject, run.checkpoints[run.tasks - 1])
            except Exception:  # a plugin's code may raise anything: one check reports it
                return None
            # values that begin at zero, such as an up factor, would hide what they multiply
            for module in modules_of(session).values():
                _move(module)
        return MovedSession(session=session)

    result = make() if fresh else subject.once("moved session", make)
    if result is None:
        raise NotApplicable(NO_RUN)
    return result


@torch.no_grad()
def _move(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.add_(_MOVED * torch.randn_like(parameter))
    module.requires_grad_(False).eval()
