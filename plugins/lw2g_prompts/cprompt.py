"""CPrompt: pairs of prepended prompts, trained so that training looks like testing.

Gao, Cen, Chang, "Consistent Prompting for Rehearsal-Free Continual Learning", CVPR 2024. Its multi-key
selection is the retrieval strategy ``class-keys``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    Activation,
    Baseline,
    Batch,
    BuildContext,
    ParameterGroup,
    Phase,
    Pool,
    Routing,
    Site,
    StepOutput,
    Tap,
    TaskContext,
    TaskInfo,
    TokenInjection,
    TrainingPhase,
    cosine,
)
from lw2g_prompts.options import CPromptConfig

__all__ = ["CPrompt", "TokenSet", "smoothing_loss"]


class TokenSet(nn.Module):
    """Prompt tokens for some blocks, drawn from U(-1, 1) / sqrt(dim).

    Args:
        num_blocks: Number of blocks before which tokens enter.
        length: Tokens per block.
        dim: Width of the backbone.

    Attributes:
        rows: ``[num_blocks, length, dim]``.
    """

    def __init__(self, num_blocks: int, length: int, dim: int) -> None:
        super().__init__()
        # torch's default for the weights of a linear layer
        self.rows = nn.Parameter(torch.empty(num_blocks, length, dim).uniform_(-1, 1) / dim**0.5)


def smoothing_loss(logits: Tensor, confidence: Tensor, temperature: float, margin: float) -> Tensor:
    """Return classifier consistency for one old classifier: cross-entropy with its own flattened output.

    Its gradient at the logits is ``(softmax(l) - softmax(l / tau)) / B``: zero for samples on which the new
    classifier is more certain by the margin (tau = 1), flattening for the others.

    Args:
        logits: Of the old classifier on new images, ``[B, c]``.
        confidence: Highest logit of the new classifier, ``[B]``.
        temperature: tau of the samples that need it.
        margin: By how much the new classifier must be more certain.
    """
    violated = confidence <= logits.detach().amax(dim=1) + margin
    tau = torch.where(violated, temperature, 1.0)[:, None]
    # a constant: where tau is 1 the term is an entropy, which a gradient of the target would lower
    target = (logits.detach() / tau).softmax(dim=1)
    return -(target * logits.log_softmax(dim=1)).sum(dim=1).mean()


class CPrompt(Baseline):
    """A set is one prompt per block; classifiers belong to tasks and keys to classes, also in a shared set.

    Three terms train a task: an auxiliary classifier, thrown away afterwards, on features under the task's
    set; consistency of the frozen old classifiers on the same features; and the task's own classifier on
    features under a set drawn at random for each image, because at test time retrieval may err.
    Features are class tokens *before* the final norm.
    """

    takes_copies = True

    def __init__(self, config: CPromptConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.config = config
        context.backbone.require("prompt tokens")
        context.backbone.require_class_token("a feature before the final norm")
        self.blocks = context.backbone.check_blocks(config.blocks, "baseline.blocks")
        self.classifiers = nn.ModuleList()
        self.auxiliary: nn.Module = nn.Identity()

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return new prompts: a copy of ``source``, or random ones."""
        tokens = TokenSet(len(self.blocks), self.config.length, self.context.backbone.dim)
        if source is not None:
            tokens.load_state_dict(source.state_dict())
        return tokens.to(self.context.device)

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return the most recently trained set if new sets start from it, None if they start at random."""
        if self.config.init_from == "previous":
            return pool.newest
        return None

    def begin_task(self, task: TaskInfo) -> None:
        """Add the task's classifier and replace the auxiliary one."""
        self.classifiers.append(self._classifier(len(task.classes)))
        self.auxiliary = self._classifier(len(task.classes))

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return prompted class tokens before the final norm, ``[B, dim]``."""
        return self.embed(batch.images, routing.select(lambda item: cast(TokenSet, item).rows))

    def embed(self, images: Tensor, rows: Tensor) -> Tensor:
        """Return class tokens ``[B, dim]`` under prompts ``[num_blocks, L, dim]``, or one such per image."""
        tokens = {block: rows[..., i, :, :] for i, block in enumerate(self.blocks)}
        # keep: a prompt stays in the sequence, so that deeper blocks see those of all blocks before them
        injection = TokenInjection(tokens, keep=True)
        return self.context.backbone.features(images, (injection,), norm=False)

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of all classifiers side by side, minus infinity where there is none yet."""
        known = [classifier(features) for classifier in self.classifiers]
        missing = self.context.num_classes - sum(part.shape[1] for part in known)
        return torch.cat([*known, features.new_full((len(features), missing), float("-inf"))], dim=1)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: prompts, the task's classifier and the auxiliary one."""
        config = self.config
        heads = (*self.classifiers[context.task.index].parameters(), *self.auxiliary.parameters())
        # decay would pull a shared set towards zero, also inside the space that gradients are kept out of
        decay = config.weight_decay if context.grew else 0.0
        prompts = tuple(context.parameters.parameters())
        phase = TrainingPhase(
            name="prompts",
            groups=(
                ParameterGroup(parameters=prompts, lr=config.lr, weight_decay=decay),
                ParameterGroup(parameters=heads, lr=config.lr, weight_decay=config.weight_decay),
            ),
            step=lambda batch: self.step(batch, context),
            epochs=config.epochs,
            batch_size=config.batch_size,
            optimizer="sgd",
            momentum=0.9,
            schedule=cosine(),
            host=True,
        )
        return (phase,)

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return auxiliary cross-entropy, classifier consistency and prompt consistency."""
        index = context.task.index
        labels = batch.labels - context.task.classes[0]
        features = self.features(batch, context.pool.force(context.set_id))
        drawn = self.embed(batch.images, self.random_rows(context, batch))
        # the auxiliary classifier makes the set fit its task; the one that stays must fit any set
        loss = functional.cross_entropy(self.auxiliary(features), labels)
        loss = loss + functional.cross_entropy(self.classifiers[index](drawn), labels)
        if index and self.config.smoothing:
            loss = loss + self.config.smoothing * self.consistency(features, index)
        return StepOutput(loss=loss, features=features)

    def random_rows(self, context: TaskContext, batch: Batch) -> Tensor:
        """Return the prompts of a set drawn for each image; only the task's own get gradient.

        The draw is uniform over the sets of the pool, which are what retrieval can return.
        """
        pool = context.pool
        by_set: list[Tensor] = []
        for set_id in pool.ids:
            rows = cast(TokenSet, pool[set_id]).rows
            by_set.append(rows if set_id == context.set_id else rows.detach())
        stacked = torch.stack(by_set)
        # drawn on the CPU, so that the draw does not depend on the device
        drawn = torch.randint(len(pool), (len(batch),))
        return stacked[drawn.to(stacked.device, non_blocking=True)]

    def consistency(self, features: Tensor, index: int) -> Tensor:
        """Return the mean of :func:`smoothing_loss` over the classifiers before task ``index``."""
        config = self.config
        with torch.no_grad():
            confidence = self.classifiers[index](features).amax(dim=1)
        terms = []
        for classifier in cast(Sequence[nn.Linear], self.classifiers[:index]):
            # detached: the old classifiers stay; what moves are the features, by the task's prompts
            logits = functional.linear(features, classifier.weight.detach(), classifier.bias.detach())
            terms.append(smoothing_loss(logits, confidence, config.temperature, config.margin))
        return torch.stack(terms).mean()

    def probe_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return both cross-entropies with the candidate in both roles; no term looks at old classifiers."""
        labels = batch.labels - task.classes[0]
        auxiliary = functional.cross_entropy(self.auxiliary(features), labels)
        return auxiliary + functional.cross_entropy(self.classifiers[task.index](features), labels)

    def draw_head(self, task: TaskInfo) -> None:
        """Draw the task's classifier and the auxiliary one anew."""
        for classifier in (self.classifiers[task.index], self.auxiliary):
            _start(cast(nn.Linear, classifier))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return each block's prompt against the image tokens that it joins.

        A norm lies between prompt and attention, so what is protected is their product on token embeddings;
        attention logits are kept approximately.
        """
        rows = cast(TokenSet, parameters).rows
        sites = []
        for position, block in enumerate(self.blocks):
            activation = Activation(tap=Tap(block=block, kind="block_in"), exact=False)
            name = f"blocks.{block}.tokens"
            sites.append(Site(name=name, parameter=rows, index=(position,), activation=activation))
        return tuple(sites)

    def _classifier(self, width: int) -> nn.Linear:
        classifier = nn.Linear(self.context.backbone.dim, width)
        _start(classifier)
        return classifier.to(self.context.device)


def _start(classifier: nn.Linear) -> None:
    """Draw what a classifier begins with."""
    nn.init.kaiming_uniform_(classifier.weight, nonlinearity="linear")
    nn.init.zeros_(classifier.bias)
