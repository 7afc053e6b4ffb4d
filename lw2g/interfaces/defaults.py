"""The components that lw2g itself names: what it takes where nobody chooses, and what needs one of a kind.

No other module of lw2g names one, as ``tests/unit/test_named_components.py`` sees to: what holds for some
components and not for others, these declare.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "CARRIED_HOST",
    "CHOSEN_HEAD",
    "CHOSEN_HEADS",
    "DEFAULT_BACKBONE",
    "DEFAULT_BASELINE",
    "DEFAULT_BENCHMARK",
    "DEFAULT_CARRY",
    "DEFAULT_CONSTRAINTS",
    "DEFAULT_FIXED_POLICY",
    "DEFAULT_HEAD",
    "DEFAULT_MEASURES",
    "DEFAULT_MOTION",
    "DEFAULT_POLICY",
    "FEATURES_BENCHMARK",
    "FOLDER_BENCHMARK",
    "FROZEN_BASELINE",
    "GIVEN_BENCHMARK",
    "HOST",
    "METHODS",
    "OWN_FAMILY",
    "PHOTO_BACKBONE",
    "RECOMMENDED",
    "REPLAY",
    "SHARING_HOST",
    "TIMM_BACKBONE",
    "TRAINED",
]

DEFAULT_BASELINE = "hide-prompt"
DEFAULT_BENCHMARK = "glyphs"
DEFAULT_BACKBONE = "micro"
PHOTO_BACKBONE = "vit-tiny"
"""What messages name for photographs: the smallest that knows them."""
DEFAULT_POLICY = "min"
DEFAULT_FIXED_POLICY = "always"
"""The policy of a baseline that does not grow."""
DEFAULT_MEASURES = ("hindrance",)
"""What a policy reads that declares nothing else."""
DEFAULT_CONSTRAINTS = ("orthogonal", "cpk")
"""The constraints of a policy that declares no others: those of the paper."""
DEFAULT_HEAD = "lda"
"""The head on the last layer that the others have to beat, and the one of rows without a backbone."""
CHOSEN_HEAD = "auto"
"""Stands for a head that is chosen, as a model's that starts from photographs."""
CHOSEN_HEADS = ("ridge", DEFAULT_HEAD)
"""The heads that are tried on features of several layers where one is chosen; of equal ones the first."""
DEFAULT_CARRY = "none"
"""How heads carry what they keep of old classes where nothing is chosen."""
DEFAULT_MOTION = "affine"
"""The motion that a carry wraps where nothing is chosen."""
FROZEN_BASELINE = "simple-cil"
"""The baseline that trains nothing: a head on frozen features."""
REPLAY = "replay"
"""The baseline that keeps images of old classes."""
RECOMMENDED: Mapping[str, str | int] = {"baseline": FROZEN_BASELINE, "baseline.head": CHOSEN_HEAD}
"""The method to try first, the frozen answer: a baseline and options by their dotted keys.

docs/frozen.md says what it is.
"""
TRAINED: Mapping[str, str | int] = {
    "baseline": "slca-plus-plus",
    "baseline.head": CHOSEN_HEAD,
    "baseline.trained_tasks": 1,
}
"""The method that trains, for where the frozen answer is not enough: on the first task, then as that answers.

docs/frozen_tables.md says by which rule it was chosen.
"""
METHODS: Mapping[str, Mapping[str, str | int]] = {"recommended": RECOMMENDED, "trained": TRAINED}
"""Words that stand for a method on the command line."""

TIMM_BACKBONE = "timm"
"""The backbone component whose option ``model`` takes any timm model name."""
FOLDER_BENCHMARK = "folder"
"""The benchmark that a folder of images stands for."""
FEATURES_BENCHMARK = "features"
"""The benchmark that a file of stored features stands for."""
GIVEN_BENCHMARK = "given"
"""The benchmark of images that are Python objects, or of the hub."""
OWN_FAMILY = "folder"
"""The family of benchmarks whose data are the user's own: the values that baselines have for these."""

HOST = "s-prompt-plus-plus"
"""The baseline with which the kit checks other components."""
SHARING_HOST = "dual-prompt"
"""The baseline with which the kit checks constraints: it has sites of sets and shared ones."""
CARRIED_HOST = "slca-plus-plus"
"""The baseline with which the kit checks carries: its tasks train one set."""
