"""Soft routing: several sets answer for an image, and their answers become one.

Hard routing evaluates the retrieved set alone, so that a wrong guess of the task is final. Here the ``k``
most probable *sets* (not tasks: tasks that share a set share its forward) each give logits over all seen
classes, and an image's class is the best of

    log p(c) = log sum_s softmax(u)_s softmax(z_s / tau)_c  +  beta log q(c)

with the logits ``z_s`` under set s, ``u_s = w log p(s) + ...`` from the posterior of retrieval and whatever
set-conditional measures are asked for, and retrieval's own opinion ``q`` of the class. The constants are
fitted to training images that nothing was trained on.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.set_measures import entropy, log_mass, log_sum
from lw2g.config.settings import RoutingConfig
from lw2g.interfaces.calibration import best_of
from lw2g.interfaces.retrieval import RetrievalStrategy

__all__ = ["Mixer", "log_prior", "owned_classes"]

_IMPOSSIBLE = -1e4
"""Log probability of the classes that are not a set's own."""

_BOUNDS = ((0.0, 10.0), (math.log(0.05), math.log(100.0)), (0.0, 10.0))
"""Of posterior, log temperature and prior; what is measured counts at most as much, in either direction."""
_OF_MEASURES = (-10.0, 10.0)

_INERTIA = 0.01
"""Weight of the constants' squared change relative to the mean loss: few images must not throw them about."""


def log_prior(
    retrieval: RetrievalStrategy, query: Tensor, task_of_class: Tensor, log_tasks: Tensor
) -> Tensor:
    """Return retrieval's own log probability of each seen class, ``[B, C]`` float64.

    A strategy that knows only tasks spreads the probability of each evenly over its classes.
    """
    scores = retrieval.class_scores(query, len(task_of_class))
    if scores is None:
        num_classes = torch.bincount(task_of_class)  # of each task
        return log_tasks[:, task_of_class] - num_classes[task_of_class].double().log()
    return (scores.double() / retrieval.temperature.value).log_softmax(dim=1)


class Mixer(nn.Module):
    """Which sets answer for an image, and how their answers become one.

    Args:
        config: The options of the section ``routing``.

    Attributes:
        constants: ``w``, ``log tau``, ``beta`` and the weight of each measure, ``[3 + M]`` float64. They
            begin with 1, 0, 0 and zeros: the posterior-weighted mixture.
    """

    constants: Tensor

    def __init__(self, config: RoutingConfig) -> None:
        super().__init__()
        self.config = config
        start = [1.0, 0.0, 0.0] + [0.0] * len(config.evidence)
        self.register_buffer("constants", torch.tensor(start, dtype=torch.float64))

    def named_constants(self) -> dict[str, float]:
        """Return the constants by name, as the record tells them."""
        weight, log_tau, beta, *measures = self.constants.tolist()
        named = {"posterior": weight, "temperature": math.exp(log_tau), "prior": beta}
        return named | dict(zip(self.config.evidence, measures, strict=True))

    def passes(self, sets: int) -> int:
        """Return how many of ``sets`` sets answer for an image."""
        return sets if self.config.mix == "all" else min(self.config.mix, sets)

    def choose(self, log_tasks: Tensor, task_to_set: Tensor, sets: int) -> tuple[Tensor, Tensor]:
        """Return the sets that answer for each image, ascending, and their log probabilities.

        The first choice is always the set that hard routing would take.

        Args:
            log_tasks: Log probabilities of the tasks, ``[B, T]``.
            task_to_set: The set of each task, ``[T]``.
            sets: Number of sets.

        Returns:
            ``[B, k]`` int64 and ``[B, k]``.
        """
        # a set is as good as the best of its tasks: the best set is then that of the best task
        best = best_of(log_tasks, task_to_set, sets)
        # a stable sort: of equals the first, as in hard routing
        ranked = best.sort(dim=1, descending=True, stable=True).indices
        chosen = ranked[:, : self.passes(sets)].sort(dim=1).values
        return chosen, _total_of_set(log_tasks, task_to_set, best).gather(1, chosen)

    def combine(self, logits: Tensor, log_sets: Tensor, owned: Tensor, prior: Tensor) -> Tensor:
        """Return the log probability of each seen class, ``[B, C]`` float64.

        Args:
            logits: Of the seen classes under each set, ``[B, k, C]``.
            log_sets: Log probabilities of these sets, ``[B, k]``.
            owned: Whether a class is one of a set's own, ``[B, k, C]``.
            prior: What :func:`log_prior` returned.
        """
        constants = self.constants.to(logits.device)
        scores: Tensor = self._combined(constants, logits.double(), log_sets.double(), owned, prior)
        return scores

    def _combined(
        self, constants: Tensor, logits: Tensor, log_sets: Tensor, owned: Tensor, prior: Tensor
    ) -> Tensor:
        """Return :meth:`combine` for some constants, so that their gradients can be asked for.

        ``log sum_s softmax_s(w log p_s + e_s) softmax_c(z_s / tau)`` plus ``beta`` times the prior, made to
        add up to 1: z_s are the logits of set s, p_s its probability, e_s its evidence, weighted measures.

        Args:
            constants: w, log tau, beta, and the weight of each measure of evidence, ``[3 + M]``.
            logits: As for :meth:`combine`, in float64; likewise the next three.
            log_sets: Log probabilities of the sets.
            owned: Whether a class is a set's own.
            prior: Retrieval's own opinion.
        """
        weight, log_tau, beta = constants[:3]
        opinion = logits * (-log_tau).exp()
        if self.config.combine == "hierarchical":
            # a set speaks of its own classes alone; finite, since gradients pass
            opinion = opinion.masked_fill(~owned, _IMPOSSIBLE)
        opinion = opinion.log_softmax(dim=2)
        evidence = torch.zeros_like(log_sets)
        for constant, name in zip(constants[3:], self.config.evidence, strict=True):
            evidence = evidence + constant * _measure(name, logits, owned)
        trust = weight * log_sets + evidence
        mixed = (trust.log_softmax(dim=1)[..., None] + opinion).logsumexp(dim=1)
        scores: Tensor = (mixed + beta * prior).log_softmax(dim=1)
        return scores

    def fit(self, logits: Tensor, log_sets: Tensor, owned: Tensor, prior: Tensor, labels: Tensor) -> None:
        """Fit the constants to held-back images by the least mean log loss.

        The fit starts from the constants of the task before; a small penalty holds them there.

        Args:
            logits: As for :meth:`combine`; likewise the next three.
            log_sets: Log probabilities of the sets.
            owned: Whether a class is a set's own.
            prior: Retrieval's own opinion.
            labels: The true classes, ``[B]``.
        """
        # scipy takes a while to import, which hard routing must not pay
        from scipy.optimize import minimize

        # fitted on the CPU, where the optimizer runs: a few hundred images and five constants
        logits = logits.cpu().double()
        log_sets = log_sets.cpu().double()
        owned = owned.cpu()
        prior = prior.cpu().double()
        labels = labels.cpu()
        before = self.constants.cpu().clone()

        def loss(values: Any) -> tuple[float, Any]:
            """Return the penalised mean log loss of some constants, and its gradient, as scipy takes them."""
            constants = torch.from_numpy(values.copy()).requires_grad_()
            scores = self._combined(constants, logits, log_sets, owned, prior)
            # A class that none of the sets owns is impossible under "hierarchical": nothing can be learned of
            # its images. Their score is about _IMPOSSIBLE, and no other one is anywhere near: half of it
            # tells them apart, and what is clamped has no gradient.
            picked = scores.gather(1, labels[:, None])[:, 0]
            inertia = _INERTIA * (constants - before).square().sum()
            value = inertia - picked.clamp(min=_IMPOSSIBLE / 2).mean()
            (gradient,) = torch.autograd.grad(value, constants)
            return float(value.detach()), gradient.numpy()

        with torch.enable_grad():
            bounds = [*_BOUNDS] + [_OF_MEASURES] * len(self.config.evidence)
            fit = minimize(loss, before.numpy(), jac=True, method="L-BFGS-B", bounds=bounds)
        self.constants.copy_(torch.from_numpy(fit.x))


def _total_of_set(log_tasks: Tensor, owner: Tensor, best: Tensor) -> Tensor:
    """Return the log of each set's summed probability ``[B, sets]``, given the best log of its tasks."""
    best = best.clamp(min=torch.finfo(best.dtype).min)  # of a set without a task it is -inf
    relative = (log_tasks - best[:, owner]).exp()  # exponents up to 0: the sum cannot overflow
    return best + (relative @ functional.one_hot(owner, best.shape[1]).to(relative)).log()


def _measure(name: str, logits: Tensor, owned: Tensor) -> Tensor:
    """Return the set-conditional measures of each set's answer, ``[B, k]``."""
    if name == "mass":
        return log_mass(logits, owned)
    return entropy(logits) if name == "entropy" else log_sum(logits)


def owned_classes(sets: Tensor, task_to_set: Tensor, task_of_class: Tensor) -> Tensor:
    """Return whether each class was learned in each image's sets, ``[B, k, C]`` bool.

    Args:
        sets: ``[B, k]``.
        task_to_set: The set of each task, ``[T]``.
        task_of_class: The task of each class, ``[C]``.
    """
    return sets[..., None] == task_to_set[task_of_class]
