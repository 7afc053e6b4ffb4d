"""Counter-based random numbers for the glyph benchmark: the same bits on every platform and numpy version.

A number is a hash of (key, counter), so a sample does not depend on how many were drawn before it, and
rendering can be split over processes. The mixing function is the finaliser of splitmix64 (Steele, Lea and
Flood, OOPSLA 2014), in unsigned 64-bit integer arithmetic that wraps.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Draws", "Floats", "Keys", "class_key", "mix", "sample_keys"]

Keys: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float32]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: the step of splitmix64's counter
_SPLITS = {"train": 1, "test": 2, "fresh": 3}


def mix(values: Keys) -> Keys:
    """Hash each element of a uint64 array (at least one-dimensional) to 64 well-mixed bits."""
    z = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def class_key(namespace: str, seed: int, family: str, index: int) -> int:
    """Return the 64-bit key of a class; classes of two namespaces never share a key."""
    text = f"{namespace}/{seed}/{family}/{index}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def sample_keys(key: int, split: str, count: int) -> Keys:
    """Return the keys of samples 0..count-1 of a class in one split, uint64 [count].

    The splits are ``train``, ``test`` and ``fresh-SEED`` for a seed below 2**31.
    """
    name, _, seed = split.partition("-")
    number = _SPLITS[name] + int(seed or 0)
    # the split in the upper half: no two splits share a counter while a class has fewer than 2**32 samples
    counters = np.arange(count, dtype=np.uint64) + np.uint64(number << 32)
    return mix(mix(counters) ^ np.full(count, key, dtype=np.uint64))


class Draws:
    """Uniform numbers for a batch of keys; every call advances a counter shared by all keys."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._counter = 0

    def _bits(self, count: int) -> Keys:
        steps = np.arange(self._counter + 1, self._counter + count + 1, dtype=np.uint64) * _GOLDEN
        self._counter += count
        return mix(self._keys[:, None] + steps)

    def uniform(self, count: int, low: float = 0.0, high: float = 1.0) -> Floats:
        """Return numbers in [low, high), float32 [keys, count]; exact multiples of 2**-24 when [0, 1)."""
        # the upper 24 bits, as many as a float32 holds exactly
        unit = (self._bits(count) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
        return unit * np.float32(high - low) + np.float32(low)

    def plane(self, low: float = 0.0, high: float = 1.0) -> Floats:
        """Return one number per key, shaped [keys, 1, 1] to broadcast over an image plane."""
        return self.uniform(1, low, high)[:, :, None]

    def below(self, probability: float) -> npt.NDArray[np.bool_]:
        """Return one event of the given probability per key, bool [keys, 1, 1]."""
        return self.plane() < np.float32(probability)

    def pixel_noise(self, size: int) -> Floats:
        """Return independent noise in [-0.5, 0.5) for three channels, float32 [keys, 3, size, size]."""
        # three channels of 16 bits from one number of 64: a third of the hashing, and noise needs no more
        bits = self._bits(size * size)
        channels = [(bits >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32)]
        noise = np.stack(channels, axis=1).astype(np.float32) * np.float32(2.0**-16) - np.float32(0.5)
        return noise.reshape(len(self._keys), 3, size, size)
