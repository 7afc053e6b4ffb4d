"""Guards around a component's code in checks: no network, watched generators, errors with a remedy."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import attrs
import numpy as np
import torch

from lw2g.errors import ConfigError, DataError
from lw2g.ground.network import without_network
from lw2g_testing.cases import ContractViolation, NotApplicable, Subject, error_line

__all__ = ["Generators", "available", "available_once", "bearing", "seeded"]

T = TypeVar("T")


def available(make: Callable[[], T]) -> T:
    """Return what ``make`` builds or loads without network.

    Raises:
        NotApplicable: An option, data, weights or a package is missing, and the component says so.
        ContractViolation: One is missing, and the component's error does not tell the user so.
    """
    try:
        with without_network():
            return make()
    # lw2g's own classes tell a user what to do; anything else is a crash, even for a good reason
    except (ConfigError, DataError) as error:
        raise NotApplicable(f"it cannot be had here: {error}") from error
    except (ImportError, OSError) as error:
        proper = "ConfigError" if isinstance(error, ImportError) else "DataError"
        raise ContractViolation(
            f"what it needs is missing, and it raises {type(error).__name__} ({error}); raise {proper} "
            "(lw2g.errors) with one line: what is missing, and what to do"
        ) from error


def available_once(subject: Subject, key: Hashable, make: Callable[[], T]) -> T:
    """Return the first result of ``make`` for a subject; a missing resource is looked for only once, too."""

    def attempt() -> T | NotApplicable:
        """Return what is made, or why not: an error would not be kept, and looked for again."""
        try:
            return available(make)
        except NotApplicable as reason:
            return reason

    result = subject.once(key, attempt)
    if isinstance(result, NotApplicable):
        raise NotApplicable(str(result))
    return result


@contextmanager
def bearing(what: str, remedy: str) -> Iterator[None]:
    """Turn an error of the component's code into a violation that names ``what`` and the ``remedy``."""
    try:
        yield
    except (ContractViolation, NotApplicable):
        raise
    except Exception as error:  # a plugin's code may raise anything
        raise ContractViolation(f"{what} raises {error_line(error)}; {remedy}") from error


@attrs.frozen(kw_only=True)
class Generators:
    """The states of the global generators of torch (CPU), numpy and Python at one moment.

    Attributes:
        states: The states by name.
    """

    states: dict[str, bytes] = attrs.field(factory=lambda: _states(), init=False)

    def refuse_draws(self, who: str, remedy: str, *allowed: str) -> None:
        """Raise a violation if a generator has advanced that is not allowed to.

        Args:
            who: What ran meanwhile, as the subject of the message.
            remedy: What its author must do.
            *allowed: Names of generators that it may draw from.
        """
        now = _states()
        drawn = [name for name in now if now[name] != self.states[name] and name not in allowed]
        if drawn:
            raise ContractViolation(f"{who} draws from the global generator of {' and '.join(drawn)}{remedy}")


def _states() -> dict[str, bytes]:
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy.random": pickle.dumps(np.random.get_state()),
        "random": pickle.dumps(random.getstate()),
    }


@contextmanager
def seeded(seed: int, *, others: int | None = None) -> Iterator[Generators]:
    """Seed all global generators within the context, and restore them after it.

    Args:
        seed: Seed of torch's CPU generator.
        others: Seed of numpy's and Python's; the same by default.
    """
    if others is None:
        others = seed
    numpy_state = np.random.get_state()
    python_state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(others)
        random.seed(others)
        try:
            yield Generators()
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)
