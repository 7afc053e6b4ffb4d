"""What names of other libraries are here, for messages: options and methods of PILOT, Mammoth and Avalanche.

Command line, files and Python ask here, so that they say the same.
"""

from __future__ import annotations

import re

from lw2g.interfaces.defaults import REPLAY

__all__ = ["meant_by_others", "method_of_others"]

_SIZES = "a task has benchmark.increment classes; the first has benchmark.base, which digits and glyphs lack"
_IMAGES = f"baseline {REPLAY!r} keeps baseline.exemplars images of each old class, other methods keep none"
_SEEDED = "benchmark.order=seeded shuffles the classes, benchmark.order_seed is its seed"
_OPTIONS = {
    **dict.fromkeys(("method", "model", "model_name", "strategy"), "the method is --baseline NAME"),
    **dict.fromkeys(("dataset", "scenario"), "the data are --benchmark NAME"),
    **dict.fromkeys(("convnet_type", "backbone_type"), "the network is --backbone NAME"),
    **dict.fromkeys(("init_cls", "n_experiences"), _SIZES),
    "base": _SIZES,  # asked for where a benchmark has no such option
    **dict.fromkeys(("memory_size", "memory_per_class", "fixed_memory", "buffer_size", "mem_size"), _IMAGES),
    **dict.fromkeys(("shuffle", "permute_classes"), _SEEDED),
    **dict.fromkeys(("fixed_class_order", "custom_class_order"), "benchmark.class_order says the order"),
    **dict.fromkeys(
        ("tuned_epoch", "init_epoch", "n_epochs", "nb_epochs", "train_epochs"),
        "epochs of each task are baseline.epochs",
    ),
    **dict.fromkeys(("init_lr", "lrate", "learning_rate"), "the learning rate is baseline.lr"),
    **dict.fromkeys(("minibatch_size", "train_mb_size"), "images of a step are baseline.batch_size"),
    "prefix": "the folder of a run is --out DIR",
}

_KEEP_IMAGES = {
    *("agem", "beef", "bic", "clser", "coil", "der", "derpp", "eeil", "er", "erace", "foster", "gdumb"),
    *("gem", "icarl", "lucir", "memo", "mir", "podnet", "tagfex", "wa", "xder"),
}
"""Published methods that keep images of old classes, in small letters alone."""
_METHODS = {
    "slca": "'slca-plus-plus' is its successor, which trains low-rank updates, norms and biases; SLCA trains "
    "all weights",
    **dict.fromkeys(
        ("aper", "adam", "aperfinetune", "aperssf", "adamfinetune", "adamssf", "adamadapter"),
        "of APER there are 'aper-adapter' and 'aper-vpt-deep'",
    ),
    "adamvptdeep": "it is 'aper-vpt-deep'",
    **dict.fromkeys(("naive", "sgd"), "sequential training is 'finetune'"),
    **dict.fromkeys(("cumulative", "jointtraining"), "training on all tasks at once is 'joint'"),
    "ewcon": "it is 'ewc'",
    "codap": "it is 'coda-prompt'",
    "hide": "it is 'hide-prompt', or 'hide-lora'",
    **dict.fromkeys(_KEEP_IMAGES, f"methods that keep old images: {REPLAY}"),
}


def meant_by_others(option: str) -> str:
    """Return what an option of another library is here; nothing for any other name.

    >>> meant_by_others("convnet-type"), meant_by_others("epochs")
    ('the network is --backbone NAME', '')
    """
    return _OPTIONS.get(option.replace("-", "_").lower(), "")


def method_of_others(name: str) -> str:
    """Return which baseline a method of another library is here; nothing for any other name.

    >>> method_of_others("Joint_Training"), method_of_others("l2p")
    ("training on all tasks at once is 'joint'", '')
    """
    return _METHODS.get(re.sub(r"[\W_]", "", name.lower()), "")
