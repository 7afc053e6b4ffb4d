"""SEMA: adapters that are added block by block where a task is novel to all descriptors.

Wang et al., "Self-Expansion of Pre-trained Models with Mixture of Adapters for Continual Learning", CVPR
2025. Each of the last blocks has modules: an adapter, a row of the router that mixes them, and a descriptor,
whose error in reconstructing the mean token says how unlike the adapter's own task an image is. A module is
frozen after its task. No set is chosen: the baseline itself grows, and no growth policy applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from lw2g.plugin import (
    SET_SHARED,
    AdapterInjection,
    AdapterSet,
    Batch,
    BuildContext,
    ComputePhase,
    ConfigError,
    HeadedBaseline,
    ParameterGroup,
    Phase,
    Routing,
    StepOutput,
    Tap,
    TaskContext,
    TaskInfo,
    TrainingPhase,
    bottlenecks,
    cosine,
)
from lw2g_adapters.options import SemaConfig

__all__ = ["Descriptor", "Module", "Modules", "Sema", "is_novel"]

_SCAN = 128
"""Images per batch where single batches may be novel."""

_LEAST_SPREAD = 1e-12
"""Least standard deviation of a descriptor's own errors."""


class Descriptor(nn.Module):
    """An affine map through a narrow middle, without a non-linearity: at best the principal components.

    Attributes:
        mean: Mean of its own errors, over the images that it was trained on.
        spread: Their standard deviation.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, dim: int, latent: int) -> None:
        super().__init__()
        self.encode = nn.Linear(dim, latent)
        self.decode = nn.Linear(latent, dim)
        for layer in (self.encode, self.decode):
            nn.init.zeros_(layer.bias)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("spread", torch.ones(()))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the mean squared error of mean tokens, ``[B, dim]`` -> ``[B]``."""
        rebuilt: Tensor = self.decode(self.encode(tokens))
        return (rebuilt - tokens).square().mean(dim=-1)

    def settle(self, errors: Tensor) -> None:
        """Store mean and spread of its own errors ``[n]``."""
        errors_of_own = errors.double()
        self.mean.copy_(errors_of_own.mean())
        # the deviation of a single image is 0, and undefined with Bessel's correction
        self.spread.copy_(errors_of_own.std(correction=int(len(errors_of_own) > 1)).clamp(min=_LEAST_SPREAD))

    def distance(self, errors: Tensor) -> Tensor:
        """Return errors in deviations from its own ones, ``[n]``."""
        return (errors - self.mean) / self.spread


class Module(nn.Module):
    """An adapter of one block with its row of the router and its descriptor."""

    def __init__(self, dim: int, bottleneck: int, latent: int) -> None:
        super().__init__()
        self.adapter = AdapterSet(1, dim, bottleneck)
        self.router = nn.Linear(dim, 1)
        self.descriptor = Descriptor(dim, latent)


class Modules(nn.ModuleDict):
    """Modules by ``"<block>-<number>"``, and by ``"<block>-new"`` those a task may add.

    Loading a state adds and drops modules, so that they are those of the state.

    Args:
        make: Makes a module.
    """

    def __init__(self, make: Callable[[], Module]) -> None:
        super().__init__()
        self._make = make

    def of_block(self, block: int) -> list[Module]:
        """Return the modules of a block, in the order in which they were added."""
        modules: list[Module] = []
        while f"{block}-{len(modules)}" in self:
            modules.append(cast(Module, self[f"{block}-{len(modules)}"]))
        return modules

    def offer(self, block: int) -> None:
        """Draw a module that the block may adopt."""
        self[f"{block}-new"] = self._make()

    def adopt(self, block: int) -> None:
        """Add the offered module to the block's."""
        self[f"{block}-{len(self.of_block(block))}"] = self.pop(f"{block}-new")

    def withdraw(self) -> None:
        """Drop what was offered and not adopted."""
        for name in list(self):
            if name.endswith("-new"):
                del self[name]

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *others: Any) -> None:
        """Take a state of other modules than are here: drop what it lacks, make what it has besides."""
        wanted = {key.removeprefix(prefix).split(".")[0] for key in state if key.startswith(prefix)}
        for name in list(self):
            if name not in wanted:
                del self[name]
        for name in sorted(wanted - self.keys()):
            self[name] = self._make()
        super()._load_from_state_dict(state, prefix, *others)


def is_novel(distances: Tensor, threshold: float) -> bool:
    """Return whether some batch lies beyond the threshold for every descriptor.

    Args:
        distances: ``[batches, descriptors]``, means over the images of a batch.
        threshold: In deviations.

    >>> is_novel(torch.tensor([[3.0, 1.0], [2.5, 4.0]]), 2.0), is_novel(torch.tensor([[3.0, 1.0]]), 2.0)
    (True, False)
    """
    return bool((distances.amin(dim=1) > threshold).any())


class Sema(HeadedBaseline):
    """One network for all images: adapters of all blocks, mixed by a router where a block has several.

    The blocks below the growing ones have one adapter each, trained on the first task.

    Attributes:
        shallow: The adapters of the blocks below.
        grown: The modules of the growing blocks.
        growing: The indices of these blocks.
    """

    scope = SET_SHARED

    def __init__(self, config: SemaConfig, context: BuildContext) -> None:
        context.backbone.require("adapters")
        depth = context.backbone.depth
        dim = context.backbone.dim
        if config.growing > depth:
            raise ConfigError(
                f"baseline.growing: {config.growing!r} blocks cannot grow in a backbone of {depth}",
                "lower it",
            )
        super().__init__(config, context)
        self.config = config
        self.growing = tuple(range(depth - config.growing, depth))
        self.shallow = AdapterSet(depth - config.growing, dim, config.bottleneck)
        self.grown = Modules(lambda: Module(dim, config.bottleneck, config.latent).to(context.device))
        for block in self.growing:
            self.grown.offer(block)
            self.grown.adopt(block)
        self.to(context.device)

    def new_head(self) -> nn.Linear:
        """Return a head that starts as torch's linear layers do, without bias."""
        head = nn.Linear(self.context.backbone.dim, self.context.num_classes)
        nn.init.zeros_(head.bias)
        return head

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return a module without parameters: what grows belongs to the baseline."""
        return nn.Module()

    def begin_task(self, task: TaskInfo) -> None:
        """Offer every growing block a module, except in the first task, which starts with one."""
        if task.index:
            for block in self.growing:
                self.grown.offer(block)

    def findings(self) -> dict[str, Any]:
        """Return how many modules each growing block has."""
        modules = {}
        for block in self.growing:
            modules[str(block)] = len(self.grown.of_block(block))
        return {**super().findings(), "modules": modules}

    # -- forward ---------------------------------------------------------------------------------------

    def injection(self) -> AdapterInjection:
        """Return the branches of all blocks."""
        to_shallow = Routing(sets=(self.shallow,), chosen=0)
        # scale 1 and no dropout: the released code passes 0.1 and 0.1 to adapters that use neither
        below = bottlenecks(to_shallow, len(self.shallow.down), scale=1.0)
        branches: dict[int, Callable[[Tensor], Tensor]] = dict(enumerate(below))
        for block in self.growing:
            branches[block] = self._mixture(self.grown.of_block(block))
        return AdapterInjection(branches, whole=True)

    def _mixture(self, modules: Sequence[Module]) -> Callable[[Tensor], Tensor]:
        """Return the branch of a block: its adapters, weighted by a softmax over its mean token."""
        adapters = []
        for module in modules:
            adapters += bottlenecks(Routing(sets=(module.adapter,), chosen=0), 1, scale=1.0)

        def branch(stream: Tensor) -> Tensor:
            """Return the adapters' outputs for a stream, ``[B, N, dim]``, weighted by each image's router."""
            mean = stream.mean(dim=1)
            rows = [module.router(mean) for module in modules]
            if self.config.router == "zero":
                # the weight of the zero is that of no adapter at all
                rows.append(torch.zeros_like(rows[0]))
            # of one module alone the weight is 1, and its row gets no gradient in its own task
            weights = torch.cat(rows, dim=1).softmax(dim=1)
            outputs = []
            for number, adapter in enumerate(adapters):
                outputs.append(weights[:, number, None, None] * adapter(stream))
            return torch.stack(outputs).sum(dim=0)

        return branch

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the adapted network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(),))

    def means(self, batch: Batch, blocks: Sequence[int]) -> list[Tensor]:
        """Return the mean token after attention at some blocks, ``[B, dim]`` each, without gradient."""
        taps = [Tap(block=block, kind="block_mid") for block in blocks]
        read = self.context.backbone.activations(batch.images, taps, (self.injection(),))
        return [read[tap].mean(dim=1) for tap in taps]

    # -- learning --------------------------------------------------------------------------------------

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return phases block by block: a scan, and if it finds the task novel an adapter and a descriptor.

        The shallowest block comes first: its new module changes deeper inputs. Where nothing is added
        the head alone is trained. In the first task all adapters are trained together, then all descriptors.
        """

        def nothing_grew() -> bool:
            return not any(map(self._adopted, self.growing))

        if not context.task.index:
            newest = {}
            first = list(self.shallow.parameters())
            for block in self.growing:
                newest[block] = self.grown.of_block(block)[-1]
                first += _function(newest[block])
            phases: list[Phase] = [
                self._function_phase("adapters", context, first),
                *self._descriptor_phases("descriptors", context, newest),
            ]
            return self.with_head(context, *phases)
        phases = []
        for block in self.growing:
            phases += self._block_phases(block, context)
        phases.append(self._function_phase("head-alone", context, (), nothing_grew))
        # drops the modules that were offered at the task's beginning, and that no block has taken
        phases.append(ComputePhase(name="withdraw", run=lambda progress: self.grown.withdraw()))
        return self.with_head(context, *phases)

    def _adopted(self, block: int) -> bool:
        """Whether a block has taken the module that this task offered it."""
        return f"{block}-new" not in self.grown

    def _block_phases(self, block: int, context: TaskContext) -> list[Phase]:
        """Return the phases that look for novelty at a block, and train its new module if there is any."""
        if self._adopted(block):  # a run resumed after the block has grown
            module = self.grown.of_block(block)[-1]
        else:
            module = cast(Module, self.grown[f"{block}-new"])

        def grew() -> bool:
            return self._adopted(block)

        def scan(progress: Callable[[int, int], None]) -> None:
            if self.is_novel(block, context):
                self.grown.adopt(block)

        return [
            ComputePhase(name=f"scan-{block}", run=scan),
            self._function_phase(f"adapter-{block}", context, _function(module), grew),
            *self._descriptor_phases(f"descriptor-{block}", context, {block: module}, grew),
        ]

    def is_novel(self, block: int, context: TaskContext) -> bool:
        """Return whether a task is novel to all descriptors of a block."""
        config = self.config
        # The transform and the order below share a purpose, each with a generator of its own. Their
        # seeds may be the same: which image comes when says nothing about how it was cropped.
        purpose = f"scan-{block}"
        means = self._means_of(context, purpose, block)
        by_descriptor = []
        for module in self.grown.of_block(block):
            descriptor = module.descriptor
            by_descriptor.append(descriptor.distance(descriptor(means)))
        distances = torch.stack(by_descriptor, dim=1)  # [images, descriptors]
        if config.distance == "absolute":
            # as released, where images that are rebuilt unusually well are novel, too
            distances = distances.abs()
        parts: Iterable[Tensor] = [distances]  # "task": the mean is over all its images
        if config.unit == "batch":
            # images may come class by class, and a batch of one class tells of that class alone
            order = torch.randperm(len(means), generator=context.generator(purpose))
            parts = torch.split(distances[order.to(distances.device)], _SCAN)
        return is_novel(torch.stack([part.mean(dim=0) for part in parts]), config.threshold)

    @torch.no_grad()
    def _means_of(self, context: TaskContext, purpose: str, block: int) -> Tensor:
        """Return the mean tokens of the task's images under the training transform, ``[n, dim]``."""
        images = context.training_images(self.config.batch_size, purpose)
        return torch.cat([self.means(batch, [block])[0] for batch in images])

    def _function_phase(
        self,
        name: str,
        context: TaskContext,
        parameters: Sequence[nn.Parameter],
        wanted: Callable[[], bool] = lambda: True,
    ) -> TrainingPhase:
        """Return the phase that trains adapters with their rows of the router, and the head."""
        config = self.config
        trained = (*parameters, *self.head.parameters())

        def step(batch: Batch) -> StepOutput:
            return self.step(batch, context)

        return self._phase(name, trained, step, config.epochs, config.lr, wanted, host=True)

    def _descriptor_phases(
        self,
        name: str,
        context: TaskContext,
        modules: Mapping[int, Module],
        wanted: Callable[[], bool] = lambda: True,
    ) -> list[Phase]:
        """Return the phases that train descriptors, one per block, and remember their own errors."""

        def step(batch: Batch) -> StepOutput:
            losses = []
            for module, mean in zip(modules.values(), self.means(batch, list(modules)), strict=True):
                losses.append(module.descriptor(mean).mean())
            return StepOutput(loss=torch.stack(losses).sum())

        @torch.no_grad()
        def settle(progress: Callable[[int, int], None]) -> None:
            if not wanted():
                return
            for block, module in modules.items():
                # over all images: the release keeps the last 500 errors of a descriptor still in training
                means = self._means_of(context, f"{name}-errors", block)
                module.descriptor.settle(module.descriptor(means))

        config = self.config
        trained: list[nn.Parameter] = []
        for module in modules.values():
            trained += module.descriptor.parameters()
        return [
            self._phase(name, tuple(trained), step, config.descriptor_epochs, config.descriptor_lr, wanted),
            ComputePhase(name=f"{name}-errors", run=settle),
        ]

    def _phase(
        self,
        name: str,
        trained: tuple[nn.Parameter, ...],
        step: Callable[[Batch], StepOutput],
        epochs: int,
        lr: float,
        wanted: Callable[[], bool],
        *,
        host: bool = False,
    ) -> TrainingPhase:
        """Return a phase that trains parameters by SGD with momentum 0.9 and half a cosine, if ``wanted``."""
        group = ParameterGroup(parameters=trained, lr=lr, weight_decay=self.config.weight_decay)
        return TrainingPhase(
            name=name,
            groups=(group,),
            step=step,
            epochs=epochs,
            batch_size=self.config.batch_size,
            optimizer="sgd",
            momentum=0.9,
            schedule=cosine(),
            host=host,
            wanted=wanted,
        )


def _function(module: Module) -> tuple[nn.Parameter, ...]:
    """Return the parameters of a module's adapter and of its row of the router."""
    return (*module.adapter.parameters(), *module.router.parameters())
