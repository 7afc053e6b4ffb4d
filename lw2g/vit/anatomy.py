"""What a timm model offers to injections and taps, and the refusals of what it lacks, one line each.

A model is never refused as a whole: features come from whatever timm can pool. An injection asks for what it
needs at a block, so that nothing is installed where it would have no effect.

What is written down here are classes whose forward was read: a class that is not named offers features alone,
because its forward may bypass a module that a hook is waiting at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import nn

from lw2g.errors import ConfigError

__all__ = [
    "Rung",
    "attention_of",
    "block_at",
    "blocks_of",
    "checked_blocks",
    "has_blocks",
    "is_plain_attention",
    "is_pre_norm",
    "linear_of",
    "linears_of",
    "merged_biases",
    "model_name",
    "num_tokens",
    "offers_prefixes",
    "projections_of",
    "require_rung",
    "rotates_or_norms",
    "timm_config",
]

Rung = Literal["low-rank updates", "adapters", "prefixes", "prompt tokens"]
"""Kinds of injections, by what they need of a block."""

# classes by their full names: timm is slow to import, and a plain ViT does not need it
_NAFLEX = "timm.models.naflexvit.NaFlexVit"
_TRANSFORMERS = (
    "lw2g.vit.plain.PlainViT",
    "timm.models.vision_transformer.VisionTransformer",
    "timm.models.deit.VisionTransformerDistilled",
    "timm.models.eva.Eva",
    "timm.models.beit.Beit",
    "timm.models.vision_transformer_relpos.VisionTransformerRelPos",
    _NAFLEX,
)
# norm1 and norm2 read the stream, and drop_path2 is the last module of the MLP's branch
_PRE_NORM = (
    "lw2g.vit.plain.PlainBlock",
    "timm.models.vision_transformer.Block",
    "timm.models.eva.EvaBlock",
    "timm.models.beit.Block",
    "timm.models.vision_transformer_relpos.RelPosBlock",
)
_POST_NORM = (
    "timm.models.vision_transformer.ResPostBlock",
    "timm.models.eva.EvaBlockPostNorm",
    "timm.models.vision_transformer_relpos.ResPostRelPosBlock",
)
_PLAIN_ATTENTION = (
    "lw2g.vit.plain.PlainAttention",
    "timm.layers.attention.Attention",
    # where older releases of timm have it
    "timm.models.vision_transformer.Attention",
)
_SOFTMAX_OVER_KEYS = (
    *_PLAIN_ATTENTION,
    "timm.layers.attention.AttentionRope",
    "timm.models.eva.EvaAttention",
    "timm.models.beit.Attention",
)
_TIED_TO_POSITIONS = ("timm.models.vision_transformer_relpos.RelPosAttention",)

_ELSE = "use a method on frozen features (simple-cil, or ranpac with baseline.adapt=none), or a ViT"


def model_name(model: nn.Module) -> str:
    """Return a model's name and class for a message: ``'resnet18' (ResNet)``."""
    kind = type(model).__name__
    architecture = timm_config(model).get("architecture")
    if not architecture:
        return repr(kind)
    return f"{architecture!r} ({kind})"


def timm_config(model: nn.Module) -> Mapping[str, Any]:
    """Return what timm wrote down about a model that it built; empty for a model from elsewhere."""
    config = getattr(model, "pretrained_cfg", None)
    # a module of somebody else's may use the name for anything
    if not isinstance(config, dict):
        return {}
    return config


def _class_of(module: object) -> str:
    """Return the full name of a module's class, under which it was defined."""
    kind = type(module)
    return f"{kind.__module__}.{kind.__qualname__}"


def blocks_of(model: nn.Module) -> Any:
    """Return the blocks of a transformer."""
    return model.blocks


def has_blocks(model: nn.Module) -> bool:
    """Whether the model is a transformer whose blocks of attention and MLP are known here."""
    # the class itself, not isinstance: a subclass may compute anything
    if _class_of(model) not in _TRANSFORMERS:
        return False
    return all(_class_of(block) in (*_PRE_NORM, *_POST_NORM) for block in blocks_of(model))


def block_at(model: nn.Module, index: int) -> Any:
    """Return block ``index`` of the model.

    Raises:
        ConfigError: The model has no such block, or no known blocks at all.
    """
    if not has_blocks(model):
        raise _no_blocks(model, "an injection or a tap")
    blocks = blocks_of(model)
    if not 0 <= index < len(blocks):
        raise ConfigError(
            f"block {index!r} does not exist", f"this backbone has blocks 0 to {len(blocks) - 1}"
        )
    return blocks[index]


def attention_of(block: nn.Module) -> Any:
    """Return the block's own timm attention, also if a wrapper holds it as ``base``.

    Raises:
        ConfigError: Its class is not known here, so that its linear layers may be bypassed.
    """
    attention = getattr(block, "attn", None)  # blocks of other networks may have none
    attention = getattr(attention, "base", attention)  # only a wrapper of lw2g has a base
    if _class_of(attention) not in (*_SOFTMAX_OVER_KEYS, *_TIED_TO_POSITIONS):
        raise ConfigError(
            f"attention {type(attention).__name__!r} is not supported",
            "use a ViT with an attention of timm's Attention, EvaAttention, AttentionRope or BEiT",
        )
    return attention


def projections_of(attention: Any) -> dict[str, nn.Linear]:
    """Return the projections of an attention: ``qkv``, or ``q_proj``, ``k_proj`` and ``v_proj``."""
    if attention.qkv is not None:
        return {"qkv": attention.qkv}
    return {name: getattr(attention, name) for name in ("q_proj", "k_proj", "v_proj")}


def linears_of(block: nn.Module) -> dict[str, nn.Linear]:
    """Return the linear layers of a block by name: projections, ``proj``, and those that its MLP has."""
    attention = attention_of(block)
    mlp: Any = block.mlp
    inner = {name: layer for name, layer in mlp.named_children() if isinstance(layer, nn.Linear)}
    return {**projections_of(attention), "proj": attention.proj, **inner}


def linear_of(model: nn.Module, index: int, name: str) -> nn.Linear:
    """Return a linear layer of a block.

    Raises:
        ConfigError: The block has no layer of that name.
    """
    linears = linears_of(block_at(model, index))
    if name not in linears:
        offered = ", ".join(linears)
        raise ConfigError(
            f"update of {name!r} at block {index}: the linear layers of {model_name(model)} are {offered}",
            "name one of them",
        )
    return linears[name]


def is_plain_attention(attention: object) -> bool:
    """Whether an attention is a ViT's own: one ``qkv``, and neither rotation nor a bias of positions."""
    return _class_of(attention) in _PLAIN_ATTENTION


def is_pre_norm(block: nn.Module) -> bool:
    """Whether the block's norms read the residual stream, and not what is added to it."""
    return _class_of(block) in _PRE_NORM


def rotates_or_norms(model: nn.Module, attention: Any) -> bool:
    """Whether the queries that meet the keys are not those that the projection returns."""
    normed = any(not isinstance(getattr(attention, name, None), nn.Identity | None) for name in _QK_NORMS)
    return normed or getattr(model, "rope", None) is not None


_QK_NORMS = ("q_norm", "k_norm")


def offers_prefixes(block: nn.Module) -> bool:
    """Whether prefixes are defined for the block's attention."""
    attention = attention_of(block)
    # only attentions with grouped queries say it: others have as many of both
    keys = getattr(attention, "num_kv_heads", attention.num_heads)
    return _class_of(attention) in _SOFTMAX_OVER_KEYS and bool(keys == attention.num_heads)


def num_tokens(model: nn.Module) -> int:
    """Return the number of tokens of the plain model: class token, registers if any, and patches.

    It is 0 for a model without tokens, and for one whose patches depend on the image (NaFlex).
    """
    if not has_blocks(model):
        return 0
    embed: Any = getattr(model, "patch_embed", None)
    if embed is None:  # NaFlex, whose embedding has another name and no number of patches
        return 0
    return int(embed.num_patches + _prefix_rows(model))


def require_rung(model: nn.Module, rung: Rung, blocks: Iterable[int] | None = None) -> None:
    """Refuse an injection that has no place in the model.

    Args:
        model: The timm model.
        rung: The kind of injection.
        blocks: Where; None for all blocks.

    Raises:
        ConfigError: A block lacks what the injection needs.
    """
    if not has_blocks(model):
        raise _no_blocks(model, rung)
    if rung == "prompt tokens":
        _require_exchangeable_rows(model)
    if blocks is None:
        blocks = range(len(blocks_of(model)))
    for index in blocks:
        block = block_at(model, index)
        attention = attention_of(block)
        if rung == "adapters" and not is_pre_norm(block):
            raise ConfigError(
                "an adapter sits beside an MLP that reads the stream through norm2, and "
                f"{type(block).__name__!r} normalises after it",
                "use low-rank updates",
            )
        if rung == "prefixes":
            _require_free_keys(attention, index)
        if rung == "low-rank updates":
            _require_equal_widths(attention, index)


def checked_blocks(
    model: nn.Module, depth: int, blocks: Sequence[int], path: str, rung: Rung | None = None
) -> tuple[int, ...]:
    """Return the blocks that an option names, after checking that they are there and offer an injection.

    Raises:
        ConfigError: A block is repeated or missing, or lacks what the injection needs.
    """
    if rung is not None:
        # first without blocks: of a backbone that has none, the error must not say that it lacks block 0
        require_rung(model, rung, ())
    if len(set(blocks)) != len(blocks):
        raise ConfigError(f"{path}: blocks {tuple(blocks)!r} repeat", "name each block once")
    outside = [block for block in blocks if not 0 <= block < depth]
    if outside:
        raise ConfigError(
            f"{path}: block {outside[0]!r} is outside the backbone's {depth} blocks",
            f"use 0 to {depth - 1}",
        )
    if rung is not None:
        require_rung(model, rung, blocks)
    return tuple(blocks)


def _require_free_keys(attention: Any, index: int) -> None:
    """Refuse an attention to which no keys can be added."""
    if _class_of(attention) not in _SOFTMAX_OVER_KEYS:
        raise ConfigError(
            f"prefixes need softmax attention over keys, and {type(attention).__name__!r} of block {index} "
            "ties them to positions",
            "use low-rank updates or adapters",
        )
    # only attentions with grouped queries say it: others have as many of both
    keys = getattr(attention, "num_kv_heads", attention.num_heads)
    if keys != attention.num_heads:
        raise ConfigError(
            f"block {index} has fewer key heads ({keys}) than query heads ({attention.num_heads}): prefixes "
            "are not defined for it",
            "choose other blocks",
        )


def _require_equal_widths(attention: Any, index: int) -> None:
    """Refuse an attention whose queries, keys and values differ in width."""
    widths = {layer.out_features for layer in projections_of(attention).values()}
    if len(widths) > 1:
        raise ConfigError(
            f"block {index} has narrower keys and values ({min(widths)}) than queries ({max(widths)}), and "
            "updates of q, k and v are of one width",
            "use adapters",
        )


def _require_exchangeable_rows(model: nn.Module) -> None:
    """Refuse prompt tokens where a row's place in the stream means something and it cannot be exempted."""
    for index, block in enumerate(blocks_of(model)):
        attention = attention_of(block)
        if _class_of(attention) in _TIED_TO_POSITIONS:
            raise ConfigError(
                f"prompt tokens have no position, and {type(attention).__name__!r} of block {index} ties "
                "every row to one",
                "use low-rank updates or adapters",
            )
    # most models have neither: a bias that all blocks share, or a rotation of all rows
    shared = getattr(model, "rel_pos_bias", None) is not None
    rotated_whole = getattr(model, "rope", None) is not None and not _prefix_rows(model)
    if _class_of(model) == _NAFLEX or shared or rotated_whole:
        raise ConfigError(
            f"prompt tokens have no place in {model_name(model)}, which ties every row to a position",
            "use prefixes, low-rank updates or adapters",
        )


@contextmanager
def merged_biases(model: nn.Module) -> Iterator[None]:
    """Let every fused ``qkv`` be called as a module within the context.

    With a bias for queries and values alone (EVA, BEiT, DINOv3 with bias) timm multiplies by ``qkv.weight``
    itself: hooks on ``qkv`` never run. With the bias in ``qkv``, which is bit-equal, they do. Enter it after
    injections that replace parameters. State-dict keys and their order are as before after the context.
    """
    if not has_blocks(model):
        yield
        return
    with ExitStack() as stack:
        for block in blocks_of(model):
            attention = attention_of(block)
            if getattr(attention, "q_bias", None) is not None and attention.qkv is not None:
                stack.enter_context(_merged(attention))
        yield


@contextmanager
def _merged(attention: Any) -> Iterator[None]:
    """Give BEiT's qkv layer its whole bias, which timm puts together in each forward, within the context."""
    qkv = attention.qkv
    bias = attention.q_bias
    qkv._parameters["bias"] = torch.cat((bias, attention.k_bias, attention.v_bias))
    # timm takes a missing q_bias as the sign that qkv has its bias in the module
    attention._parameters["q_bias"] = None
    try:
        yield
    finally:
        attention._parameters["q_bias"] = bias
        qkv._parameters["bias"] = None


def _prefix_rows(model: nn.Module) -> int:
    rows: Any = model.num_prefix_tokens
    return int(rows)


def _no_blocks(model: nn.Module, what: str) -> ConfigError:
    verb = "need" if what.endswith("s") else "needs"
    offered = f"backbone {model_name(model)} has none that are known"
    return ConfigError(
        f"{what} {verb} blocks of attention and MLP, and {offered}",
        _ELSE,
    )
