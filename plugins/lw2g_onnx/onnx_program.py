"""From a module to the bytes of an ONNX file, by torch's exporter, and what onnxruntime makes of them."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError, DataError, first_line

__all__ = ["FOLDER", "IMAGE", "OPSET", "PROBABILITIES", "onnx_bytes", "onnx_differences", "require_exporter"]

OPSET = 18
"""What torch's exporter writes without converting, and every runtime of the last years reads."""
IMAGE = "image"
"""The input."""
PROBABILITIES = "probabilities"
"""The output."""
FOLDER = "export it as a folder: lw2g export RUN OUT"
"""What to do with a model that no ONNX file can hold."""

_LIBRARIES = ("onnx", "onnxscript", "onnxruntime")
_BATCHES = (1, 3)
"""Sizes of batches that are compared: that of the traced one is another."""
_LARGEST_BATCH = 2**16
_LARGEST_CONSTANT = 2**31
"""Elements of weights that are added up when the file is written, as those of updates are."""


def require_exporter() -> None:
    """Refuse an installation that cannot write ONNX files.

    Raises:
        ConfigError: A library of the extra ``onnx`` is missing.
    """
    for name in _LIBRARIES:
        try:
            import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"an ONNX file needs {name!r}, which cannot be imported here ({first_line(error)})",
                "pip install 'lw2g[onnx]'",
            ) from error


def onnx_bytes(module: nn.Module, size: int, metadata: Mapping[str, str]) -> bytes:
    """Return the ONNX file of a module that maps images to probabilities.

    Args:
        module: Takes ``[B, 3, S, S]`` float32 and returns ``[B, C]``.
        size: The side S.
        metadata: What the file says of itself.

    Raises:
        ConfigError: torch cannot trace the module, or not write what it computes.
    """
    # two images: torch takes a size of one for a constant
    images = torch.zeros(2, 3, size, size)
    # torch 2.6 wants to be told of a largest batch
    batch = torch.export.Dim("batch", max=_LARGEST_BATCH)
    with _quiet(), torch.no_grad():
        try:
            traced = torch.export.export(module, (images,), dynamic_shapes=({0: batch},), strict=False)
            program: Any = torch.onnx.export(
                traced,
                dynamo=True,
                opset_version=OPSET,
                input_names=[IMAGE],
                output_names=[PROBABILITIES],
                external_data=False,
                verbose=False,
            )
        except Exception as error:  # what a method does that cannot be traced shows as anything
            raise ConfigError(
                f"torch {torch.__version__} cannot write this model as an ONNX file ({_first_cause(error)})",
                FOLDER,
            ) from error
        return _as_bytes(program.model_proto, metadata)


def onnx_differences(content: bytes, module: nn.Module, size: int) -> float:
    """Return the largest difference of probabilities between onnxruntime and torch on drawn images.

    Raises:
        DataError: onnxruntime cannot run the file.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # warnings are of its own making
    options.intra_op_num_threads = torch.get_num_threads()
    draws = torch.Generator().manual_seed(0)
    largest = 0.0
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        for count in _BATCHES:
            images = torch.randn(count, 3, size, size, generator=draws)
            answers = torch.from_numpy(session.run([PROBABILITIES], {IMAGE: images.numpy()})[0])
            largest = max(largest, _largest_difference(answers, module, images))
    except Exception as error:  # its classes are made in C++ and have no name to import
        raise DataError(
            f"onnxruntime {onnxruntime.__version__} cannot run this model ({first_line(error)})", FOLDER
        ) from error
    return largest


@torch.no_grad()
def _largest_difference(answers: Tensor, module: nn.Module, images: Tensor) -> float:
    difference: Tensor = answers - module(images)
    return float(difference.abs().max())


def _as_bytes(model: Any, metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of an ONNX model that says what it is, and nothing of how it came about."""
    import onnx
    from onnxscript import optimizer

    # the weight of a layer that was adapted is a sum of constants: it is added up here, once
    model = optimizer.optimize(
        model,
        input_size_limit=_LARGEST_CONSTANT,
        output_size_limit=_LARGEST_CONSTANT,
        onnx_shape_inference=False,
    )
    for entry in (model, model.graph, *model.graph.node, *_values(model.graph)):
        # torch notes stack traces there, with the paths of this machine
        del entry.metadata_props[:]
        entry.doc_string = ""
    onnx.helper.set_model_props(model, dict(metadata))
    content: bytes = model.SerializeToString()
    return content


def _values(graph: Any) -> Iterator[Any]:
    yield from (*graph.input, *graph.output, *graph.value_info, *graph.initializer)


def _first_cause(error: BaseException) -> str:
    """Return in a sentence what an error of torch began with: later ones tell of the exporter's stages."""
    while error.__cause__ is not None:
        error = error.__cause__
    # advice to developers of torch follows
    return re.split(r"(?<=[.!]) ", first_line(error))[0].rstrip(".!")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch warns of its own code from a user, who cannot mend it."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
