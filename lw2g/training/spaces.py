"""Absorbing a finished task: its activations extend the spaces that protect it from later tasks."""

from __future__ import annotations

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.constraint import ConstraintContext
from lw2g.interfaces.context import TaskContext
from lw2g.training.probe import Probe, merged, moments_of, undisturbed
from lw2g.training.session import Session

__all__ = ["absorb_task"]


def absorb_task(session: Session, context: TaskContext, probe: Probe, rules: ConstraintContext) -> None:
    """Extend the memory by what the finished task's images activate, with the task's set in force.

    Under ``protect = "visible"`` the task extends the spaces of every live set, because where sets are summed
    it passes through all of them.

    Args:
        session: The run.
        context: The finished task.
        probe: Its sample of images.
        rules: What constraints with spaces of their own are told.
    """
    pool, baseline = session.pool, session.baseline
    owners = pool.ids if session.config.growth.protect == "visible" else (context.set_id,)
    own = [(owner, site) for owner in owners for site in baseline.sites(pool[owner])]
    shared = [(None, site) for site in baseline.shared_sites()]
    taps = list(dict.fromkeys(site.tap for _, site in (*own, *shared)))
    if not taps:
        return
    routing = pool.force(context.set_id)

    def forward(batch: Batch) -> object:
        return baseline.features(batch, routing)

    with undisturbed(session.modules):
        parts = list(
            moments_of(taps, probe.batches(), forward, session.backbone, session.engine, probe.options)
        )
    moments = {tap: merged([part[tap] for part in parts]) for tap in taps}
    # plain sites first: the space of a derived activation is the image of theirs
    for owner, site in sorted((*own, *shared), key=lambda pair: pair[1].derive is not None):
        session.memory.absorb(owner, site, moments[site.tap])
    for site in (*baseline.sites(context.parameters), *baseline.shared_sites()):
        for constraint in session.constraints.values():
            constraint.absorb(site, moments[site.tap], rules)
