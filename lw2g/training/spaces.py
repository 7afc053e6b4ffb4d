"""Absorbing a finished task: its activations extend the spaces that protect it from later tasks.

There are two kinds of spaces: those of the memory, by set, and those that a constraint keeps for itself. Each
is built only where someone wants it, from one pass over the task's sample.
"""

from __future__ import annotations

from collections.abc import Callable

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.constraint import ConstraintContext
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.site import Site
from lw2g.training.probe import Probe, merged, moments_of, undisturbed
from lw2g.training.progress import Steps
from lw2g.training.session import Session

__all__ = ["absorb_task"]


def absorb_task(
    session: Session,
    context: TaskContext,
    probe: Probe,
    rules: ConstraintContext,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Extend spaces by what the finished task's images activate, with the task's set in force.

    Under ``protect = "visible"`` the task extends the memory's spaces of every live set, because where sets
    are summed it passes through all of them.

    Args:
        session: The run.
        context: The finished task.
        probe: Its sample of images.
        rules: What constraints with spaces of their own are told.
        progress: Told how many batches and spaces are done, of how many.
    """
    pool, baseline = session.pool, session.baseline
    trained = (*baseline.sites(context.parameters), *baseline.shared_sites())
    kept = _kept_sites(session, context) if session.keeps_memory else []
    taps = list(dict.fromkeys(site.activation.tap for site in (*trained, *(site for _, site in kept))))
    if not taps:
        return
    absorbing = [constraint for constraint in session.constraints.values() if constraint.absorbs]
    step = Steps(probe.num_batches + len(kept) + len(absorbing) * len(trained), progress)
    routing = pool.force(context.set_id)

    def forward(batch: Batch) -> object:
        return baseline.features(batch, routing)

    parts = []
    whole = ((batch, [len(batch)]) for batch, _ in probe.batches())
    with undisturbed(session.modules):
        for part in moments_of(taps, whole, forward, session.backbone, session.engine, probe.options):
            parts.append(part)
            step()
    moments = {tap: merged([moment for part in parts for moment in part[tap]]) for tap in taps}
    # tapped activations first: the space of a mapped one is the image of theirs
    for owner, site in sorted(kept, key=lambda pair: pair[1].activation.is_image):
        session.memory.absorb(owner, site, moments[site.activation.tap])
        step()
    for constraint in absorbing:
        for site in trained:
            constraint.absorb(site, moments[site.activation.tap], rules)
            step()


def _kept_sites(session: Session, context: TaskContext) -> list[tuple[int | None, Site]]:
    """Return the sites that the memory extends, with the set that owns them (None: shared)."""
    pool, baseline = session.pool, session.baseline
    owners = pool.ids if session.config.growth.protect == "visible" else (context.set_id,)
    own = [(owner, site) for owner in owners for site in baseline.sites(pool[owner])]
    return [*own, *((None, site) for site in baseline.shared_sites())]
