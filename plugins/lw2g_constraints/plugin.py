"""Registers the constraints; their code is imported when one is built."""

from __future__ import annotations

from lw2g.plugin import PLAIN_IMAGES, ConstraintComponent, hookimpl, lazy
from lw2g_constraints import options

__all__ = ["lw2g_constraints"]

_LW2G = "LW2G: Learning Whether to Grow for Prompt-based Continual Learning"
_PGP = "Prompt Gradient Projection for Continual Learning, ICLR 2024"
_LGCL = "Introducing Language Guidance in Prompt-based Continual Learning, ICCV 2023"


def _lacks_vectors(config: options.LgclConfig) -> tuple[str, str] | None:
    """Return the option that names text vectors, and how to make them; None where nothing is lacking.

    Only the encoder ``precomputed`` reads a file.
    """
    if config.encoder != "precomputed" or config.file is not None:
        return None
    return "file", "python -m lw2g_constraints.export NAMES.json FILE --model CLIP_FOLDER --increment N"


@hookimpl
def lw2g_constraints() -> list[ConstraintComponent]:
    """Offer orthogonal, cpk, pgp, freeze and lgcl."""
    return [
        ConstraintComponent(
            name="orthogonal",
            config=options.OrthogonalConfig,
            summary="a reused set moves only outside the space of its old tasks",
            citation=_LW2G,
            build=lazy("lw2g_constraints.orthogonal:Orthogonal"),
            needs_sites=True,
            needs_old_tasks=True,
            deviations=(PLAIN_IMAGES,),
        ),
        ConstraintComponent(
            name="cpk",
            config=options.CpkConfig,
            summary="every task gives up part of its motion inside the pre-trained space",
            citation=_LW2G,
            build=lazy("lw2g_constraints.cpk:PretrainedKnowledge"),
            needs_sites=True,
            deviations=(PLAIN_IMAGES,),
        ),
        ConstraintComponent(
            name="pgp",
            config=options.PgpConfig,
            summary="every set moves only outside the space of all old tasks",
            citation=_PGP,
            build=lazy("lw2g_constraints.pgp:PromptGradientProjection"),
            needs_sites=True,
            needs_old_tasks=True,
            deviations=(PLAIN_IMAGES,),
        ),
        ConstraintComponent(
            name="freeze",
            config=options.FreezeConfig,
            summary="a reused set stays as it is: only heads, keys and shared parameters learn",
            build=lazy("lw2g_constraints.freeze:Freeze"),
            needs_old_tasks=True,
        ),
        ConstraintComponent(
            name="lgcl",
            config=options.LgclConfig,
            summary="keys and features are pulled to text vectors of their tasks and classes",
            citation=_LGCL,
            build=lazy("lw2g_constraints.lgcl:LanguageGuidance"),
            rehearsal={"encoder": "hash"},
            lacks=_lacks_vectors,
        ),
    ]
