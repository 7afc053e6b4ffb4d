"""A world for language guidance: tasks that arrive, an encoder that remembers, and what a step hands over."""

from __future__ import annotations

from types import SimpleNamespace

import attrs
import torch
from hypothesis import strategies as st
from torch.nn import functional

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.phase import StepOutput
from lw2g.interfaces.pool import Pool
from lw2g.pixels.text_vectors import class_sentence, task_sentence
from lw2g_constraints.lgcl import LanguageGuidance
from lw2g_constraints.options import LgclConfig
from lw2g_constraints.plugin import lw2g_constraints
from lw2g_constraints.text import HashEncoder
from lw2g_retrieval.key_cosine import KeyCosine
from lw2g_retrieval.options import KeyCosineConfig
from tasks import build_of, given_set, task_context, tasks_of

DIM = 8
BUILD = build_of(dim=DIM)
NAMES = ("apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle")
SEEDS = st.integers(0, 2**31 - 1)


class Recorder(HashEncoder):
    """Remembers what it was asked, and reads so many words; vectors have a length of their own."""

    def __init__(self, dim=DIM, limit=10**6, scale=1.0):
        super().__init__(dim)
        self.asked, self.limit, self.scale = [], limit, scale

    def fits(self, sentence):
        return len(sentence.split()) <= self.limit

    def encode(self, sentences):
        self.asked += sentences
        return self.scale * super().encode(sentences)


@attrs.define
class World:
    """Four tasks of two classes, of which some have begun."""

    retrieval: object = None
    pool: Pool = attrs.field(factory=Pool)

    def begin(self, guidance, *, reuse=None):
        """Give the next task its set and tell everybody; return its context."""
        index = len(self.pool.task_to_set)
        given_set(self.pool, reuse)
        history = tasks_of([2] * (index + 1), names=NAMES)
        context = task_context(self.pool, history, retrieval=self.retrieval, backbone=BUILD.backbone)
        if self.retrieval is not None:
            self.retrieval.begin_task(context)
        guidance.begin_task(context)
        return context


def guided(encoder=None, dim=DIM, **options):
    """Return language guidance with both weights 1 unless said otherwise."""
    weights = {"task_weight": 1.0, "class_weight": 1.0} | options
    context = attrs.evolve(BUILD, backbone=SimpleNamespace(dim=dim))
    return LanguageGuidance(LgclConfig(**weights), context, encoder or Recorder())


def keyed(**options):
    """Return a world with learned prompt keys."""
    torch.manual_seed(3)
    return World(KeyCosine(KeyCosineConfig(**options), BUILD))


def batch_of(context, size=6):
    """Return labels of the task's classes in turn."""
    labels = torch.arange(size) % 2 + context.task.classes[0]
    return Batch(labels=labels, samples=torch.arange(size), images=None, query=None)


def features_of(size=6, seed=1, dim=DIM):
    """Return features that want a gradient."""
    return torch.randn(size, dim, generator=torch.Generator().manual_seed(seed)).requires_grad_(True)


def loss_of(guidance, context, features=None, seed=0):
    """Return what guidance adds to a step."""
    torch.manual_seed(seed)
    output = StepOutput(loss=torch.zeros(()), features=features_of() if features is None else features)
    return guidance.extra_loss(batch_of(context), output, context)


def units(sentences):
    """Return the unit vectors of sentences, computed apart."""
    return functional.normalize(HashEncoder(DIM).encode(sentences), dim=1)


CLASSES = units([class_sentence(name) for name in NAMES])
TASKS = units([task_sentence(NAMES[start : start + 2]) for start in range(0, 8, 2)])


def cosine(left, right):
    """Return the cosine by torch's own function."""
    return functional.cosine_similarity(left, right, dim=-1)


def built(encoder="hash", **options):
    """Build the registered constraint."""
    component = next(item for item in lw2g_constraints() if item.name == "lgcl")
    return component.build(component.config(encoder=encoder, **options), BUILD)
