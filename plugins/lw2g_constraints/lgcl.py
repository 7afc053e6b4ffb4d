"""Language guidance (Khan et al., ICCV 2023): keys and features are pulled to text vectors of class names.

Two losses join the host's. At the task level selected prompt keys are pulled to the vector of the task's
sentence and pushed from those of earlier tasks; at the class level the features are pulled to the vector of
their class and pushed from those of old classes. No parameter is added, and nothing happens at inference.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Literal

import attrs
import torch
from torch import Tensor
from torch.nn import functional

from lw2g.plugin import (
    Batch,
    BuildContext,
    ConfigError,
    Constraint,
    DataError,
    StepOutput,
    TaskContext,
    TaskInfo,
    class_sentence,
    nearest,
    task_sentence,
)
from lw2g_constraints.options import LgclConfig
from lw2g_constraints.text import (
    ClipEncoder,
    HashEncoder,
    TextEncoder,
    VectorFile,
    orthogonal_map,
    read_names,
)

__all__ = ["LanguageGuidance", "class_loss", "task_loss"]


def task_loss(keys: Tensor, positive: Tensor, negatives: Tensor | None) -> Tensor:
    """Return ``1 - sum_k cos(k, positive) + mean over negatives of sum_k cos(k, negative)``.

    Args:
        keys: Keys that the batch selects, ``[K, d]`` of any length; the sum over them is not divided by K. Or
            those that each sample selects, ``[B, K, d]``: the mean over samples.
        positive: Unit vector of the task, ``[d]``.
        negatives: Unit vectors of other tasks, ``[n, d]``; None without any.
    """
    unit = functional.normalize(keys.float(), dim=-1)
    loss = 1 - (unit @ positive).sum(dim=-1).mean()
    if negatives is None:
        return loss
    return loss + (unit @ negatives.mT).sum(dim=-2).mean()


def class_loss(features: Tensor, positive: Tensor, negative: Tensor | None) -> Tensor:
    """Return the mean over samples of ``1 - cos(f, positive) + cos(f, negative)``.

    Args:
        features: What the head is fed, ``[B, d]`` of any length.
        positive: Unit vectors of the samples' classes, ``[B, d]``.
        negative: Unit vectors of old classes, one per sample; or ``[1, d]``, the mean of all of them, which
            gives the mean cosine; None without any.
    """
    unit = functional.normalize(features.float(), dim=-1)
    loss = 1 - (unit * positive).sum(dim=1)
    if negative is not None:
        loss = loss + (unit * negative).sum(dim=1)
    return loss.mean()


class LanguageGuidance(Constraint):
    """Adds the two losses to the host's phase; gradients are left to other constraints.

    Sentences are encoded when their task arrives, never before. Negatives are drawn from torch's global
    generator after the host's own draws of the step, so the host draws what it would draw alone. Where all
    tasks of a set share one key, that key is not pushed from the set's own earlier tasks.
    """

    hard = False
    needs_memory = False

    def __init__(self, config: LgclConfig, context: BuildContext, encoder: TextEncoder | None = None) -> None:
        """Guide a host of the backbone's width.

        Args:
            config: How the losses are formed, and where text vectors come from.
            context: The width of keys and features.
            encoder: Turns sentences into vectors; None for the configured one.

        Raises:
            ConfigError: The encoder's width differs and nothing aligns it, or it has no file.
        """
        # of the levels "task", "class" and "both" the last has both losses
        task_weight = config.task_weight
        class_weight = config.class_weight
        if config.levels == "class":
            task_weight = 0.0
        if config.levels == "task":
            class_weight = 0.0
        self._options = attrs.evolve(config, task_weight=task_weight, class_weight=class_weight)
        # where neither loss has a weight, no text model has to be there
        if encoder is None and (task_weight or class_weight):
            encoder = _encoder(config, context.backbone.dim)
        # no module: its weights are neither trained nor written into checkpoints
        self._encoder = encoder
        self._names: Mapping[str, str] | None = None
        if config.names is not None:
            self._names = read_names(config.names)
        # Rows are unit vectors on the CPU: classes by position, tasks by index.
        width = 0 if encoder is None else encoder.dim
        self._classes = torch.zeros(0, width)
        self._tasks = torch.zeros(0, width)
        # the same in the width of keys or of features, on the device
        self._fitted: dict[tuple[str, int], Tensor] = {}
        # old tasks with other keys than the task's; those that share its key, itself the last of them
        self._others: tuple[int, ...] = ()
        self._together: tuple[int, ...] = ()
        self._warned: set[str] = set()
        if self._encoder is not None:
            self._check_width(self._encoder.dim, context.backbone.dim)

    # -- tables ----------------------------------------------------------------------------------------

    def begin_task(self, context: TaskContext) -> None:
        """Encode the task's sentences, and note which tasks its key may be pushed from."""
        self._fitted = {}
        if self._encoder is None:
            return
        # task by task: the authors encode all tasks at once, and so read names of classes yet to come
        for info in context.history:
            if info.classes[-1] >= len(self._classes):
                self._add(info, self._encoder)
        if self._options.task_weight:
            self._note_negatives(context)

    def _add(self, info: TaskInfo, encoder: TextEncoder) -> None:
        """Append the vectors of a new task: one for each class, and one for all of them together."""
        names = [self._words(name) for name in info.class_names]
        classes = _unit(encoder.encode([class_sentence(name) for name in names]))
        self._classes = torch.cat([self._classes, classes])
        if not self._options.task_weight:
            return
        sentence = task_sentence(names)
        mean = self._options.task_text == "mean"
        # CLIP reads 77 tokens: twenty class names nearly fill them
        if not mean and not encoder.fits(sentence):
            if self._options.overflow == "error":
                raise ConfigError(
                    f"constraints.lgcl.overflow: the sentence of task {info.index + 1} with its "
                    f"{len(names)} classes is too long for the encoder",
                    "use 'mean' or 'truncate'",
                )
            mean = self._options.overflow == "mean"  # "truncate": the encoder cuts the sentence
        if mean:
            whole = classes.mean(dim=0, keepdim=True)
        else:
            whole = encoder.encode([sentence])
        self._tasks = torch.cat([self._tasks, _unit(whole)])

    def _words(self, name: str) -> str:
        """Return what a class is called in sentences: its name, unless the options give a table of names."""
        if self._names is None:
            return name
        if name not in self._names:
            raise DataError(
                f"constraints.lgcl.names: no words for class {name!r}{nearest(name, self._names)}",
                "add it to the table",
            )
        return self._names[name]

    def _note_negatives(self, context: TaskContext) -> None:
        """Leave out earlier tasks that share the key which this task trains."""
        index = context.task.index
        keys = _keys(context)
        shared = []
        if keys is not None:
            for task in context.pool.tasks_of(context.set_id):
                if task < index and _same(keys, _keys(context, task)):
                    shared.append(task)
        self._others = tuple(task for task in range(index) if task not in shared)
        self._together = (*shared, index)

    def _table(self, name: Literal["classes", "tasks"], like: Tensor) -> Tensor:
        """Return a table in the width and on the device of ``like``."""
        width = like.shape[-1]
        if (name, width) not in self._fitted:
            table = self._classes if name == "classes" else self._tasks
            if table.shape[1] != width:
                self._check_width(table.shape[1], width)
                table = _unit(table @ orthogonal_map(table.shape[1], width))
            self._fitted[name, width] = table.to(like.device)
        return self._fitted[name, width]

    def _check_width(self, width: int, wanted: int) -> None:
        if width != wanted and self._options.align == "none":
            raise ConfigError(
                f"constraints.lgcl.align: text vectors of width {width} cannot be compared with features of "
                f"width {wanted}",
                "set it to 'orthogonal', or take an encoder of that width",
            )

    # -- losses ----------------------------------------------------------------------------------------

    def extra_loss(self, batch: Batch, output: StepOutput, context: TaskContext) -> Tensor | None:
        """Return the weighted sum of both losses, None where neither applies."""
        options = self._options
        parts: list[Tensor] = []
        # a cosine in half precision has three digits, and these losses are differences of cosines
        with torch.autocast(batch.labels.device.type, enabled=False):
            if options.task_weight:
                keys = output.keys
                if keys is None:  # the step does not say which: those that the task selects
                    keys = _keys(context)
                if keys is None:
                    self._warn("there are no learned prompt keys: the task loss is left out")
                else:
                    parts.append(options.task_weight * self._task_loss(keys, batch))
            if options.class_weight and (context.task.index or options.class_loss_first_task):
                if output.features is None:
                    self._warn("the baseline's step gives no features: the class loss is left out")
                else:
                    value = self._class_loss(output.features, batch, context.task)
                    parts.append(options.class_weight * value)
        if not parts:
            return None
        return torch.stack(parts).sum()

    def _task_loss(self, keys: Tensor, batch: Batch) -> Tensor:
        """Return the loss that draws keys to the text of their task and away from other tasks' texts.

        Args:
            keys: The keys that the batch trains, ``[k, dim]``.
            batch: The batch.
        """
        table = self._table("tasks", keys)
        texts = self._together[-1:]  # the task's own
        if self._options.set_text == "union":  # a shared key stands for all tasks of its set
            texts = self._together
        positive = _unit(table[list(texts)].mean(dim=0))
        if not self._others:
            return task_loss(keys, positive, negatives=None)
        others = table[list(self._others)]
        if self._options.negatives == "sampled":
            # drawn on the CPU, so that the draw does not depend on the device
            drawn = torch.randint(len(others), (len(batch),))
            others = others[drawn.to(others.device, non_blocking=True)]
        return task_loss(keys, positive, others)

    def _class_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the loss that draws features ``[B, dim]`` to their classes' texts, away from old ones."""
        table = self._table("classes", features)
        positive = table[batch.labels]
        old = table[: task.classes[0]]  # rows lie by position, so these are all classes before the task
        if not len(old):
            return class_loss(features, positive, negative=None)
        if self._options.negatives == "mean":
            return class_loss(features, positive, old.mean(dim=0, keepdim=True))
        # "sampled": on the CPU, so that the draw does not depend on the device
        drawn = torch.randint(len(old), (len(batch),))
        return class_loss(features, positive, old[drawn.to(old.device, non_blocking=True)])

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(f"lgcl: {message}", stacklevel=3)

    # -- checkpoints -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tables, so that old tasks keep their vectors even if the encoder changes."""
        state = {}
        if len(self._classes):
            state["classes"] = self._classes
        if len(self._tasks):
            state["tasks"] = self._tasks
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._classes = state.get("classes", self._classes).cpu()
        self._tasks = state.get("tasks", self._tasks).cpu()


def _unit(rows: Tensor) -> Tensor:
    return functional.normalize(rows.float(), dim=-1)


def _keys(context: TaskContext, task: int | None = None) -> Tensor | None:
    """Return the keys that a batch of the current task selects, or of an earlier one of the same set."""
    if context.retrieval is None:
        return None
    of_task = context
    if task is not None:
        of_task = attrs.evolve(context, task=context.history[task])
    return context.retrieval.keys(of_task)


def _same(keys: Tensor, other: Tensor | None) -> bool:
    """Whether two selections are the same memory; equal values are not enough, keys may be copies."""
    return other is not None and keys.shape == other.shape and keys.data_ptr() == other.data_ptr()


def _encoder(config: LgclConfig, dim: int) -> TextEncoder:
    """Return the text encoder that the options choose, for features of width ``dim``."""
    match config.encoder:
        case "hash":
            return HashEncoder(dim)
        case "hf-clip":
            return ClipEncoder(config.model)
        case "precomputed":
            if config.file is None:
                raise ConfigError(
                    "constraints.lgcl.file: encoder 'precomputed' needs a file of text vectors",
                    "write one with python -m lw2g_constraints.export, or use encoder 'hf-clip'",
                )
            return VectorFile(config.file)
