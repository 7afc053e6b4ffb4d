"""A transformer of scikit-learn: images in, features of a frozen backbone out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Any, Self

import attrs
import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, DataError, no_image, shown
from lw2g.ground.spelling import expanded
from lw2g.interfaces.defaults import FOLDER_BENCHMARK, FROZEN_BASELINE
from lw2g.interfaces.stream import ImageTransform
from lw2g.model.parts import open_backbone
from lw2g.pixels.decoding import chunks
from lw2g.pixels.image_files import examine_images, pixels_of
from lw2g.pixels.stamps import stamp_of
from lw2g.registry.catalogue import load_catalogue
from lw2g.runtime.engine import Engine
from lw2g.runtime.returned import transforms_of
from lw2g.runtime.threads import suited_threads
from lw2g.vit.backbone import Backbone
from lw2g.vit.pool_words import Layers

__all__ = ["FeatureExtractor"]

Features = npt.NDArray[np.float32]


@attrs.frozen(kw_only=True, eq=False)
class _Opened:
    """A backbone that is ready to compute.

    Attributes:
        engine: Where it computes.
        backbone: It.
        transform: The test transform of photographs for its input.
        batch_size: Images of a forward where nobody names a number.
        turn: Lets one thread compute at a time.
    """

    engine: Engine
    backbone: Backbone
    transform: ImageTransform
    batch_size: int
    turn: RLock = attrs.field(factory=RLock)


@lru_cache(maxsize=1)
def _open(
    backbone: str,
    weights: str | None,
    stamp: Any,
    layers: Layers | None,
    pool: str | None,
    image_size: int | None,
    device: str | None,
) -> _Opened:
    """Return a backbone; the last one stays open, because a grid search asks for it with every clone.

    Args:
        backbone: As for :class:`FeatureExtractor`; likewise the others.
        weights: Likewise.
        stamp: What changes with the file of the weights.
        layers: Likewise.
        pool: Likewise.
        image_size: Likewise.
        device: Likewise.
    """
    catalogue = load_catalogue()
    options = {
        "backbone.layers": layers,
        "backbone.pool": pool,
        "backbone.image_size": image_size,
        "run.device": device,
    }
    config = resolve(
        catalogue,
        overrides={key: value for key, value in options.items() if value is not None},
        baseline=FROZEN_BASELINE,
        benchmark=FOLDER_BENCHMARK,
        backbone=backbone,
        weights=weights,
    ).config
    chosen = config.backbone
    component = catalogue.get("backbone", chosen.name)
    config, engine, _, opened = open_backbone(
        config, lambda: component.build(chosen.config, chosen.weights, chosen.image_size)
    )
    benchmark = catalogue.get("benchmark", config.benchmark.name).build(config.benchmark.config)
    return _Opened(
        engine=engine,
        backbone=opened,
        transform=transforms_of(benchmark, config.benchmark.name, opened.fingerprint).test,
        batch_size=config.run.evaluation_batch,
    )


class FeatureExtractor(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Features of images by a frozen backbone, for a classifier in a ``Pipeline``.

    It learns nothing: ``fit`` opens the backbone. Images go through the test transform that the folder
    benchmark has for the backbone. The backbone that was opened last stays in memory, and clones share it.

    Args:
        backbone: A backbone of lw2g (``lw2g plugins`` lists them) or any model of timm. ``"micro"`` is inside
            the package, and knows drawings of 32 x 32 pixels alone.
        weights: A file with its weights; None fetches those that belong to the name, once.
        layers: Of how many of its last layers the features are joined, or ``"all"``; None for one.
        pool: What becomes a feature, such as ``"token"``, ``"avg"`` or ``"both"``; None for the backbone's
            own.
        image_size: Side of its input in pixels; None for its own.
        batch_size: Images of a forward; None for 32.
        device: Such as ``"cpu"`` or ``"cuda"``; None for the fastest one.
    """

    def __init__(
        self,
        backbone: str = "vit-tiny",
        *,
        weights: str | Path | None = None,
        layers: Layers | None = None,
        pool: str | None = None,
        image_size: int | None = None,
        batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        self.backbone = backbone
        self.weights = weights
        self.layers = layers
        self.pool = pool
        self.image_size = image_size
        self.batch_size = batch_size
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Open the backbone; no image is looked at.

        Raises:
            ConfigError: There is no such backbone, or it cannot compute as asked.
            DataError: Its weights are missing.
        """
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"batch_size: {self.batch_size!r} is below 1", "give 1 or more, or None")
        self._opened()
        return self

    def transform(self, X: Any) -> Features:
        """Return the features of images, ``[n, width]`` float32.

        Args:
            X: Paths of files, PIL images, arrays ``[H, W, 3]`` or ``[H, W]``, or tensors ``[3, H, W]``, one
                after another: in a list, in a column of a data frame, or as one array ``[n, H, W, 3]`` or
                ``[n, H, W]``. Arrays hold uint8, or floats from 0 to 1.

        Raises:
            DataError: Something is no image; of files, all that cannot be read are named.
        """
        images = _one_by_one(X)
        examine_images([Path(image) for image in images if isinstance(image, str | Path)])
        self.fit(X)
        opened = self._opened()
        rows = []
        with opened.turn, suited_threads(opened.backbone, opened.engine.device), torch.no_grad():
            for part in chunks(range(len(images)), self.batch_size or opened.batch_size):
                batch = torch.stack([opened.transform(pixels_of(images[place])) for place in part])
                with opened.engine.autocast(), opened.backbone.joining():
                    rows.append(opened.backbone.features(batch.to(opened.engine.device)).float().cpu())
        features: Features = torch.cat(rows).numpy()
        return features

    @property
    def _n_features_out(self) -> int:
        """Width of the features, which ``set_output`` and ``get_feature_names_out`` ask for."""
        return self._opened().backbone.width

    def _opened(self) -> _Opened:
        """Return the backbone."""
        weights = None if self.weights is None else str(expanded(self.weights))
        stamp = None
        if weights is not None and Path(weights).is_file():
            stamp = stamp_of(Path(weights))
        return _open(self.backbone, weights, stamp, self.layers, self.pool, self.image_size, self.device)

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: there is nothing to learn."""
        return True

    def _more_tags(self) -> dict[str, Any]:
        """Return what scikit-learn before 1.6 wants to know."""
        return {"X_types": ["3darray"], "no_validation": True, "requires_fit": False, "stateless": True}

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know: images are no rows of numbers, and nothing is fitted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.no_validation = True
        tags.requires_fit = False
        return tags


def _one_by_one(given: Any) -> Sequence[Any]:
    """Return images one by one.

    Raises:
        DataError: There is none, or something else is given.
    """
    if isinstance(given, str | Path) and not expanded(given).exists():
        raise DataError(no_image(given), "give a list of images")
    if isinstance(given, str | Path) and expanded(given).is_dir():
        given = [given]  # refused as any folder in a list is
    if isinstance(given, str | bytes | Path):
        raise DataError(f"{shown(given)} is one image, and a list of them is expected", "give [IMAGE]")
    if hasattr(given, "to_numpy"):  # a data frame, or a column of one
        given = given.to_numpy()
    if isinstance(given, np.ndarray) and given.dtype.kind in "OSU":
        if given.ndim == 2 and given.shape[1] == 1:  # a column of a data frame
            given = given[:, 0]
        given = given.tolist()
    if hasattr(given, "ndim") and given.ndim < 3:
        raise DataError(
            f"an array of shape {list(given.shape)} is no batch of images", "give paths, or [n, H, W, 3]"
        )
    images = list(given)
    if not images:
        raise DataError("no image was given", "give at least one")
    for image in images:
        if isinstance(image, str | Path) and expanded(image).is_dir():
            raise DataError(f"{str(image)!r} is a folder", "name the images in it one by one")
    return images
