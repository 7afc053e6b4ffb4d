"""Absorbing a finished task: its activations extend the spaces that protect it from later tasks.

There are two kinds of spaces: those of the memory, by set, and those that a constraint keeps for itself. Each
is built only if a component reads it, from one pass over the task's sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lw2g.errors import ContractError
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.site import Site
from lw2g.learning.evidence.evidence_sample import EvidenceSample, merged, moments_of, undisturbed
from lw2g.learning.evidence.space_rows import Rows
from lw2g.learning.session_parts import RunParts
from lw2g.maths.moments import SecondMoment
from lw2g.runtime.progress import Steps
from lw2g.runtime.returned import require_width
from lw2g.vit.stopping import NotRunError
from lw2g.vit.taps import Tap

__all__ = ["absorb_task"]


def absorb_task(
    parts: RunParts,
    context: TaskContext,
    evidence_sample: EvidenceSample,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Extend spaces by the activations of the finished task's images under the task's set.

    Under ``protect = "visible"`` the task extends the memory's spaces of every live set, because where sets
    are summed, or each of them answers, it passes through all of them.

    Args:
        parts: The run.
        context: The finished task.
        evidence_sample: Its sample of images.
        progress: Called with the number of images that have passed through a set, and their total.

    Raises:
        ContractError: A site is not as wide as its activation.
    """
    baseline = parts.baseline
    trained = (*baseline.sites(context.parameters), *baseline.shared_sites())
    kept: list[tuple[int | None, Site]] = []
    if parts.keeps_memory:
        kept = _kept_sites(parts, context)
    # the sites to read under each set: where each set answers, those of others under their own
    under: dict[int, list[Site]] = {context.set_id: [*trained]}
    for owner, site in kept:
        reader = context.set_id
        if owner is not None:
            reader = baseline.scope.reader(owner, context.set_id)
        under.setdefault(reader, []).append(site)
    if not any(under.values()):
        return
    absorbing = [constraint for constraint in parts.constraints.values() if constraint.absorbs]
    step = Steps(len(under) * sum(map(len, evidence_sample.space_chunks)), progress)
    moments: dict[int, dict[Tap, SecondMoment]] = {}
    for set_id, sites in under.items():
        taps = [site.activation.tap for site in sites]
        moments[set_id] = _moments(parts, evidence_sample, set_id, taps, step)
    moments_of_set = moments[context.set_id]
    for site in trained:
        width = moments_of_set[site.activation.tap].dim
        if site.activation.map is not None:
            width = len(site.activation.map())
        require_width(site, width, parts.names[0])
    # tapped activations first: the space of a mapped one is the image of theirs
    for owner, site in sorted(kept, key=lambda pair: pair[1].activation.is_image):
        # shared sites, and sets that do not answer alone, are read under the task's set
        seen = moments_of_set if owner is None else moments.get(owner, moments_of_set)
        parts.memory.absorb(owner, site, seen[site.activation.tap])
    for constraint in absorbing:
        for site in trained:
            constraint.absorb(site, moments_of_set[site.activation.tap], context)


def _moments(
    parts: RunParts,
    evidence_sample: EvidenceSample,
    set_id: int,
    taps: Sequence[Tap],
    step: Callable[[int], None],
) -> dict[Tap, SecondMoment]:
    """Return the second moments of a task's sample at some taps under a set.

    Raises:
        ContractError: The baseline's features do not run the backbone, and it declares sites.
    """
    routing = parts.pool.force(set_id)
    wanted = list(dict.fromkeys(taps))

    def forward(batch: Batch) -> object:
        return parts.baseline.features(batch, routing)

    options = evidence_sample.options
    whole = ((batch, [len(batch)]) for batch in evidence_sample.space_batches())  # each batch as one part
    read: dict[Tap, list[SecondMoment]] = {tap: [] for tap in wanted}
    with undisturbed(parts.modules):
        read_of_chunks = moments_of(
            wanted,
            whole,
            forward,
            parts.backbone,
            parts.engine,
            options,
            Rows.of_finished(options),
            evidence_sample.generator("rows"),
        )
        try:
            for chunk, part in zip(evidence_sample.space_chunks, read_of_chunks, strict=True):
                for tap in wanted:
                    read[tap] += part[tap]
                step(len(chunk))
        except NotRunError as error:
            whose = f"baseline {parts.config.baseline.name!r}"
            raise ContractError(
                f"{whose}, features: did not run the backbone, which is read at the sites that it declares",
                "run the backbone in it with what the set injects; where features are those of the frozen"
                " backbone, say scope = BACKBONE and declare no sites",
                whose,
            ) from error
    totals = {tap: merged(moments) for tap, moments in read.items()}
    if options.centre_old:
        return {tap: total.centred() for tap, total in totals.items()}
    return totals


def _kept_sites(parts: RunParts, context: TaskContext) -> list[tuple[int | None, Site]]:
    """Return the sites that the memory extends, with the set that owns them (None: shared)."""
    owners = parts.pool.ids if parts.config.growth.protect == "visible" else (context.set_id,)
    kept: list[tuple[int | None, Site]] = []
    for owner in owners:
        for site in parts.baseline.sites(parts.pool[owner]):
            kept.append((owner, site))
    for site in parts.baseline.shared_sites():
        kept.append((None, site))
    return kept
