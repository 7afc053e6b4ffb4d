"""Checks of a backbone: it is frozen, plain outside a call, and its fingerprint identifies its weights.

Checks download nothing: a backbone without weights on this machine is skipped with its own message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from lw2g.errors import ConfigError
from lw2g.vit.anatomy import Rung, is_pre_norm
from lw2g.vit.backbone import Backbone
from lw2g.vit.injection import Injection
from lw2g.vit.low_rank import LowRank, LowRankInjection
from lw2g.vit.prefix import PrefixInjection
from lw2g.vit.sizes import sizes_of
from lw2g.vit.taps import Tap, TapKind
from lw2g.vit.tokens import TokenInjection
from lw2g.vit.weights import state_sha256
from lw2g_testing.cases import ContractViolation, Subject, check
from lw2g_testing.changes import wiring
from lw2g_testing.guards import available, available_once, bearing, seeded

_IMAGES = 4
_TOLERANCE = 1e-4
"""Largest difference of a feature, relative to the largest feature, that another batch may cause."""


@check("backbone")
def check_is_frozen_and_as_large_as_it_states(subject: Subject) -> None:
    """It states the sizes of its timm model, requires no gradient, and stays in evaluation mode."""
    backbone = _backbone(subject)
    stated = backbone.fingerprint
    sizes = sizes_of(backbone.model, stated.image_size)
    for name in ("dim", "depth", "heads", "image_size", "patch_size"):
        value = getattr(sizes, name)
        if getattr(stated, name) != value:
            raise ContractViolation(
                f"it states {name} {getattr(stated, name)!r} and its model has {value!r}; build it with "
                "Backbone.wrap or load_backbone, which read the sizes off the model"
            )
    for name, parameter in backbone.named_parameters():
        if parameter.requires_grad:
            raise ContractViolation(
                f"{name!r} requires a gradient; call requires_grad_(False) after all changes to the model"
            )
    backbone.train()
    if any(module.training for module in backbone.modules()):
        raise ContractViolation(
            "train() puts it into train mode; use Backbone.wrap, and do not override train"
        )


@check("backbone")
def check_features_are_of_their_image_alone(subject: Subject) -> None:
    """Features are float32 [B, dim] and depend on their image alone: not on batch, seed or state."""
    backbone = _backbone(subject)
    images = _images(backbone)
    results = []
    for seed in (1, 2):
        with seeded(seed) as generators:
            results.append(backbone.features(images))
            generators.refuse_draws("a forward", "; switch off dropout, drop path and patch drop")
    together = results[0]
    if together.dtype != torch.float32 or tuple(together.shape) != (_IMAGES, backbone.dim):
        raise ContractViolation(
            f"its features are {together.dtype} {list(together.shape)}; they must be float32 [B, dim]"
        )
    if not torch.equal(*results):
        raise ContractViolation(
            "two forwards of the same images differ; a backbone must hold no moving state"
        )
    alone = torch.cat([backbone.features(image[None]) for image in images])
    difference = float((together - alone).abs().max() / together.abs().max())
    if not difference <= _TOLERANCE:  # NaN is no small difference
        raise ContractViolation(
            f"features of one image differ by {difference:.2g} (relative) with the batch; use no norm or "
            "statistic over the batch"
        )


@check("backbone")
def check_taps_fire(subject: Subject) -> None:
    """Every tap reads float32 [B, tokens, width]; the tap of the feature reads [B, dim]."""
    backbone = _backbone(subject)
    # injections publish activations, the backbone itself does not
    elsewhere: tuple[TapKind, ...] = ("feature", "published")
    if not all(is_pre_norm(block) for block in _blocks(backbone)):
        # where the norm comes after the branch there is no normed input of it
        elsewhere = (*elsewhere, "attn_in", "mlp_in", "block_mid")
    kinds: Sequence[TapKind] = [kind for kind in get_args(TapKind) if kind not in elsewhere]
    taps = [Tap(block, kind) for block in range(backbone.depth) for kind in kinds]
    taps.append(Tap(-1, "feature"))
    seen = backbone.activations(_images(backbone), taps)
    for tap in taps:
        got = seen.get(tap)
        wanted = _shape_at(backbone, tap)
        if got is not None and got.dtype == torch.float32 and tuple(got.shape) == wanted:
            continue
        found = "nothing" if got is None else f"{got.dtype} {list(got.shape)}"
        raise ContractViolation(
            f"tap {tap} reads {found} where float32 {list(wanted)} is due; let the forward call timm's "
            "own norm1, attn.qkv and norm modules, to which taps are hooked"
        )


def _shape_at(backbone: Backbone, tap: Tap) -> tuple[int, ...]:
    """Return the shape of what a tap reads of some images."""
    if tap.kind == "feature":
        return (_IMAGES, backbone.dim)
    if tap.kind == "mlp_hidden":
        return (_IMAGES, backbone.num_tokens, backbone.model.blocks[tap.block].mlp.fc2.in_features)
    return (_IMAGES, backbone.num_tokens, backbone.dim)


@check("backbone")
def check_injection_leaves_nothing_behind(subject: Subject) -> None:
    """Prompts act within a call alone: after it, weights, hooks and features are the same to the bit."""
    backbone = _backbone(subject)
    images = _images(backbone)
    plain = backbone.features(images)
    before = _wires_and_weights(backbone)
    for name, injection in _injections(backbone).items():
        with bearing(f"a forward with {name}", "it must be an unmodified timm model"):
            prompted = backbone.features(images, [injection])
        if torch.equal(prompted, plain):
            raise ContractViolation(
                f"{name} change no feature; let the forward call timm's own blocks, where they are hooked"
            )
        if _wires_and_weights(backbone) != before:
            raise ContractViolation(
                f"a forward with {name} leaves the model changed (weights, modules or hooks); keep no state "
                "between forwards"
            )
        if not torch.equal(backbone.features(images), plain):
            raise ContractViolation(
                f"features differ after a forward with {name}; keep no state between forwards"
            )


@check("backbone")
def check_fingerprint_names_the_weights(subject: Subject) -> None:
    """Built twice, it has the same weights and fingerprint; the SHA-256 is that of the weights."""
    first = _backbone(subject)
    with seeded(4321):
        second = _another(subject)
    same = state_sha256(first.model.state_dict()) == state_sha256(second.model.state_dict())
    if first.fingerprint != second.fingerprint:
        raise ContractViolation(
            "built twice it has two fingerprints; hash the weights alone (lw2g.vit.weights), no time or path"
        )
    if not same:
        raise ContractViolation(
            "built twice it has one fingerprint and different weights; load every weight, seed what is "
            "random, and hash the state dict (lw2g.vit.weights.state_sha256)"
        )
    stated = first.fingerprint
    if stated.source == "random" and stated.sha256 != state_sha256(first.model.state_dict()):
        raise ContractViolation(
            "its sha256 is not that of its weights; leave it out of Backbone.wrap, or wrap after all changes"
        )
    if len(stated.sha256) != 64:  # hexadecimal digits
        raise ContractViolation(
            f"its sha256 is {stated.sha256!r}; give the SHA-256 of the file or state dict"
        )


@check("backbone")
def check_image_size_can_be_chosen(subject: Subject) -> None:
    """Built for another image size, it takes images of that size: position embeddings are resampled."""
    plain = _backbone(subject)
    # without patches any size will do; a network halves its images several times
    wanted = plain.image_size + (plain.fingerprint.patch_size or plain.image_size)
    other = _another(subject, wanted)
    if other.image_size != wanted:
        raise ContractViolation(
            f"asked for images of {wanted} pixels it takes {other.image_size}; pass image_size on to the "
            "model and resample its position embeddings (lw2g.plugin.load_weights does)"
        )
    if not bool(other.features(_images(other)).isfinite().all()):
        raise ContractViolation(
            f"its features of images of {wanted} pixels are not finite; resample, do not pad"
        )


# -- building and inspecting --------------------------------------------------------------------------------


def _backbone(subject: Subject) -> Backbone:
    return available_once(subject, "backbone", lambda: _built(subject, image_size=None))


def _another(subject: Subject, image_size: int | None = None) -> Backbone:
    return available(lambda: _built(subject, image_size))


def _built(subject: Subject, image_size: int | None) -> Backbone:
    built = subject.component.build(subject.config, None, image_size)
    if not isinstance(built, Backbone):
        raise ContractViolation(
            f"build returns {type(built).__name__!r}; return a Backbone (lw2g.plugin.Backbone.wrap)"
        )
    return built


def _images(backbone: Backbone) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(_IMAGES, 3, backbone.image_size, backbone.image_size, generator=generator)


def _injections(backbone: Backbone) -> dict[Rung, Injection]:
    """Return one injection of each kind that the backbone offers."""
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(3, 4, backbone.dim, generator=generator)
    last = backbone.depth - 1
    injections: dict[Rung, Injection] = {
        "prefixes": PrefixInjection({0: (rows[0], rows[1]), last: (rows[1], rows[2])}),
        "prompt tokens": TokenInjection({0: rows[0], last: rows[2]}, keep=True),
        "low-rank updates": LowRankInjection({0: {"q": LowRank(down=rows[0], up=rows[1].T)}}),
    }
    return {rung: injection for rung, injection in injections.items() if _is_offered(backbone, rung)}


def _is_offered(backbone: Backbone, rung: Rung) -> bool:
    """Whether the backbone has a place for an injection: what it refuses in one line is no violation."""
    try:
        backbone.require(rung)
    except ConfigError:
        return False
    return True


def _blocks(backbone: Backbone) -> Sequence[Any]:
    if not backbone.depth:  # a network without blocks
        return []
    return list(backbone.model.blocks)


def _wires_and_weights(backbone: Backbone) -> tuple[dict[str, frozenset[str]], str]:
    return wiring(backbone.model), state_sha256(backbone.model.state_dict())
