"""Registers the constraints; their code is imported when one is built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs
from attrs.validators import and_, ge, gt, in_, le

from lw2g.errors import ConfigError
from lw2g.interfaces.component import ConstraintComponent
from lw2g.interfaces.deviations import PLAIN_IMAGES
from lw2g.interfaces.options import option
from lw2g.registry.markers import hookimpl

if TYPE_CHECKING:
    from lw2g.interfaces.constraint import Constraint
    from lw2g.interfaces.context import BuildContext
    from lw2g_constraints.text import TextEncoder

__all__ = ["CpkConfig", "LgclConfig", "OrthogonalConfig", "PgpConfig", "lw2g_constraints"]

_LW2G = "LW2G: Learning Whether to Grow for Prompt-based Continual Learning"
_PGP = "Prompt Gradient Projection for Continual Learning, ICLR 2024"
_LGCL = "Introducing Language Guidance in Prompt-based Continual Learning, ICCV 2023"
_ON = "update: after the optimizer step, exact; gradient: before it, from which Adam leaks"


@attrs.frozen(kw_only=True)
class OrthogonalConfig:
    """Options of ``orthogonal``.

    Attributes:
        on: When the rule acts.
    """

    on: Literal["update", "gradient"] = option(
        "update", _ON, validator=in_(("update", "gradient")), published="gradient"
    )


@attrs.frozen(kw_only=True)
class CpkConfig:
    """Options of ``cpk``.

    Attributes:
        phi: Share kept of the component inside the pre-trained space.
        on: When the rule acts.
    """

    phi: float = option(
        0.5,
        "share kept of the component inside the pre-trained space; 1 switches the rule off",
        validator=and_(ge(0.0), le(1.0)),
    )
    on: Literal["update", "gradient"] = option(
        "update", _ON, validator=in_(("update", "gradient")), published="gradient"
    )


@attrs.frozen(kw_only=True)
class PgpConfig:
    """Options of ``pgp``.

    Attributes:
        energy: Share of the energy that a space must reach.
        power: Power of the singular values that counts as energy.
        rule: Rank of a new space: least that reaches the energy, or one less; extensions reach it.
        on: When the rule acts.
    """

    energy: float = option(
        0.5, "share of the energy that a space must reach", validator=and_(gt(0.0), le(1.0)), published=0.5
    )
    power: Literal[2, 4] = option(
        2,
        "power of the singular values that counts as energy",
        validator=in_((2, 4)),
        literal={4: "the released code squares the energies"},
    )
    rule: Literal["reach", "below"] = option(
        "reach",
        "rank of a new space: the least that reaches the energy, or one less; extensions reach it",
        validator=in_(("reach", "below")),
        literal={"below": "the released code's new spaces stop one direction short"},
    )
    on: Literal["update", "gradient"] = option(
        "update", _ON, validator=in_(("update", "gradient")), published="gradient"
    )


@attrs.frozen(kw_only=True)
class FreezeConfig:
    """A constraint without options."""


@attrs.frozen(kw_only=True)
class LgclConfig:
    """Options of ``lgcl``.

    Attributes:
        encoder: Where text vectors come from.
        file: The file of ``precomputed``.
        model: The model of ``hf-clip``.
        names: What classes are called in text.
        levels: Which losses join.
        task_weight: Weight of the task loss.
        class_weight: Weight of the class loss.
        negatives: How negatives are taken.
        class_loss_first_task: Whether the class loss begins with the first task.
        task_text: What stands for a task.
        overflow: What becomes of a sentence that is too long.
        set_text: What the one key of a shared set is pulled to.
        align: What is done about vectors of another width.
    """

    encoder: Literal["precomputed", "hf-clip", "hash"] = option(
        "precomputed",
        "where text vectors come from: a file, a CLIP model on this machine, or (tests) a hash",
        validator=in_(("precomputed", "hf-clip", "hash")),
        literal={"hash": "text vectors are random and mean nothing: for tests only"},
    )
    file: Path | None = option(None, "precomputed: file of text vectors (.safetensors or .npz)")
    model: str = option(
        "openai/clip-vit-large-patch14",
        "hf-clip: folder of a CLIP model, or its name in the local cache; never downloaded",
        published="openai/clip-vit-large-patch14",
    )
    names: Path | None = option(
        None, "JSON table of what classes are called in text; empty: by their names in the benchmark"
    )
    levels: Literal["task", "class", "both"] = option(
        "both",
        "task: guide prompt keys; class: guide features",
        validator=in_(("task", "class", "both")),
        published="both",
    )
    task_weight: float = option(
        0.3, "weight of the task loss (CIFAR-100: 0.323, ImageNet-R: 0.3)", validator=ge(0.0)
    )
    class_weight: float = option(
        0.15, "weight of the class loss (CIFAR-100: 0.137, ImageNet-R: 0.7)", validator=ge(0.0)
    )
    negatives: Literal["sampled", "mean"] = option(
        "sampled",
        "sampled: one negative per image; mean: all of them",
        validator=in_(("sampled", "mean")),
        published="sampled",
    )
    class_loss_first_task: bool = option(
        False, "whether features are guided in the first task already", published=False
    )
    task_text: Literal["sentence", "mean"] = option(
        "sentence",
        "what stands for a task: the sentence that names its classes, or the mean of their vectors",
        validator=in_(("sentence", "mean")),
        published="sentence",
    )
    overflow: Literal["mean", "truncate", "error"] = option(
        "mean",
        "what becomes of a task's sentence that is too long for the encoder: mean of the classes' vectors",
        validator=in_(("mean", "truncate", "error")),
    )
    set_text: Literal["current", "union"] = option(
        "current",
        "what a key that a set's tasks share is pulled to: the current task's text, or the mean of all",
        validator=in_(("current", "union")),
    )
    align: Literal["none", "orthogonal"] = option(
        "none",
        "orthogonal: turn text vectors of another width into the features' by a fixed orthogonal map",
        validator=in_(("none", "orthogonal")),
        literal={"orthogonal": "text vectors pass through a fixed map, which the paper does not have"},
    )


def _orthogonal(config: OrthogonalConfig, context: BuildContext) -> Constraint:
    from lw2g_constraints.orthogonal import Orthogonal

    return Orthogonal(on=config.on)


def _cpk(config: CpkConfig, context: BuildContext) -> Constraint:
    from lw2g_constraints.cpk import PretrainedKnowledge

    return PretrainedKnowledge(phi=config.phi, on=config.on)


def _pgp(config: PgpConfig, context: BuildContext) -> Constraint:
    from lw2g.interfaces.memory import SpaceOptions
    from lw2g_constraints.pgp import PromptGradientProjection

    spaces = SpaceOptions(energy=config.energy, power=config.power, rule=config.rule)
    return PromptGradientProjection(spaces=spaces, device=context.device, on=config.on)


def _freeze(config: FreezeConfig, context: BuildContext) -> Constraint:
    from lw2g_constraints.freeze import Freeze

    return Freeze()


def _lgcl(config: LgclConfig, context: BuildContext) -> Constraint:
    from lw2g_constraints.lgcl import GuidanceOptions, LanguageGuidance
    from lw2g_constraints.text import read_names

    options = GuidanceOptions(
        task_weight=0.0 if config.levels == "class" else config.task_weight,
        class_weight=0.0 if config.levels == "task" else config.class_weight,
        negatives=config.negatives,
        class_loss_first_task=config.class_loss_first_task,
        task_text=config.task_text,
        overflow=config.overflow,
        set_text=config.set_text,
        align=config.align,
    )
    acts = options.task_weight or options.class_weight
    encoder = _encoder(config, context) if acts else None
    names = None if config.names is None else read_names(config.names)
    return LanguageGuidance(options, encoder, dim=context.backbone.dim, names=names)


def _encoder(config: LgclConfig, context: BuildContext) -> TextEncoder:
    from lw2g_constraints.text import ClipEncoder, HashEncoder, VectorFile

    match config.encoder:
        case "hash":
            return HashEncoder(context.backbone.dim)
        case "hf-clip":
            return ClipEncoder(config.model)
        case "precomputed":
            if config.file is None:
                raise ConfigError(
                    "constraints.lgcl.file: encoder 'precomputed' needs a file of text vectors; write one "
                    "with python -m lw2g_constraints.export, or use encoder 'hf-clip'"
                )
            return VectorFile(config.file)


@hookimpl
def lw2g_constraints() -> list[ConstraintComponent]:
    """Offer orthogonal, cpk, pgp, freeze and lgcl."""
    return [
        ConstraintComponent(
            name="orthogonal",
            config=OrthogonalConfig,
            summary="a reused set moves only outside the space of its old tasks",
            citation=_LW2G,
            build=_orthogonal,
            deviations=(PLAIN_IMAGES,),
        ),
        ConstraintComponent(
            name="cpk",
            config=CpkConfig,
            summary="every task gives up part of its motion inside the pre-trained space",
            citation=_LW2G,
            build=_cpk,
            deviations=(PLAIN_IMAGES,),
        ),
        ConstraintComponent(
            name="pgp",
            config=PgpConfig,
            summary="every set moves only outside the space of all old tasks",
            citation=_PGP,
            build=_pgp,
            deviations=(PLAIN_IMAGES,),
        ),
        ConstraintComponent(
            name="freeze",
            config=FreezeConfig,
            summary="a reused set stays as it is: only heads, keys and shared parameters learn",
            build=_freeze,
        ),
        ConstraintComponent(
            name="lgcl",
            config=LgclConfig,
            summary="keys and features are drawn to text vectors of their tasks and classes",
            citation=_LGCL,
            build=_lgcl,
        ),
    ]
