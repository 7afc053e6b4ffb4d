"""What an ONNX file computes, as a module that torch can trace: normalised images in, probabilities out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError, counted
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.pool import Routing
from lw2g.model.frozen_expert import expert_of
from lw2g.model.trained import TrainedModel
from lw2g.pixels.preprocessing import Preprocessing
from lw2g_onnx.onnx_program import FOLDER

__all__ = ["Probabilities", "require_exportable"]

_MOST_BYTES = 2**31 - 2**26
"""What the weights may take: a message of protobuf, which an ONNX file is, ends at 2 GiB."""


def require_exportable(model: TrainedModel) -> None:
    """Refuse a model that answers by more than one forward and a head in closed form.

    Raises:
        ConfigError: It does.
    """
    problem = _problem_of(model)
    if problem is not None:
        what, remedy = problem
        raise ConfigError(f"this model cannot become an ONNX file: {what}", remedy)


def _problem_of(model: TrainedModel) -> tuple[str, str] | None:
    """Return why a model cannot be exported, and what to do; None where it can."""
    parts = model.parts
    name, retrieval = parts.names
    sets = len(parts.pool)
    weights = sum(tensor.numel() * 4 for tensor in model.backbone.parameters())
    if model.backbone.takes_vectors:
        return "it takes stored features and no images", "make one of images: lw2g start FOLDER MODEL"
    if parts.mixer is not None or parts.baseline.scope.each:
        return f"{name} joins the answers of {counted(sets, 'set')}", FOLDER
    if parts.baseline.closed_form is None:
        return f"the head of {name} is trained by gradients", "run it with baseline.head=lda"
    if expert_of(parts.baseline) is not None:
        return "a frozen expert answers beside its head", "run it with routing.expert=none"
    if parts.retrieval is not None and sets > 1:
        return f"{retrieval} chooses among the {sets} sets of {name} for each image", FOLDER
    if not isinstance(parts.still, Preprocessing):
        return "its test transform is made of functions, which no number tells", FOLDER
    if weights > _MOST_BYTES:
        return f"its weights take {weights / 1e9:.1f} GB, and an ONNX file ends at 2 GB", FOLDER
    return None


class Probabilities(nn.Module):
    """Normalised images ``[B, 3, S, S]`` to probabilities of the known classes ``[B, C]``.

    The head is solved here, and computes in float64 as it does in lw2g: what all classes have in common makes
    scores large, and in float32 little would be left of their differences. A runtime that has float64 on its
    CPU alone computes these last products there.

    Args:
        model: An exportable model, on the CPU and in float32.
    """

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        parts = model.parts
        closed = parts.baseline.closed_form
        assert closed is not None  # :func:`require_exportable`
        self.backbone = model.backbone
        self.baseline = parts.baseline
        self.sets = nn.ModuleList(parts.pool.sets)
        self.temperature = model.temperature or 1.0
        self._routing = _routing_of(model)
        # solved here: the file has the solution, and not the sums that it follows from
        self._score = closed.score
        self._solution = closed.solution(parts.infos[model.task - 1].seen)
        self.eval()

    def forward(self, image: Tensor) -> Tensor:
        """Return the probabilities."""

        def query() -> Tensor:
            with self.backbone.joining():
                return self.backbone.features(image)

        batch = Batch(
            labels=image.new_zeros(image.shape[0], dtype=torch.int64),
            samples=torch.arange(image.shape[0]),
            images=lambda: image,
            query=query,
        )
        features = self.baseline.head_features(batch, self._routing).float()
        scores = self._score(features.double(), *self._solution)
        return (scores / self.temperature).softmax(dim=1).float()


def _routing_of(model: TrainedModel) -> Routing:
    """Return the routing of every image: to the sets as they are, or to the only one."""
    parts = model.parts
    scope = parts.baseline.scope
    if parts.retrieval is None:
        return scope.route(parts.pool, None, parts.baseline.beside())
    return scope.force(parts.pool, parts.pool.ids[0])
