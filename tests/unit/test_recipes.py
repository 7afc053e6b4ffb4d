"""Recipes: the phases of a task, what they train and how fast, and what a new set starts from."""

from __future__ import annotations

import pytest
import torch

from bits import same, state
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.pool import Pool
from lw2g.registry.catalogue import load_catalogue
from lw2g_testing.tiny import tiny_backbone

ADAM, CLIPPED, SGD = ("adam", 0.0, None), ("adam", 0.0, 1.0), ("sgd", 0.9, None)
"""Optimizer, momentum, bound of the gradient norm."""
LATE, EXACT = (1.0, 1.0, 0.9967, 0.0974), (1.0, 0.9967, 0.9866, 0.0157)
CONSTANT, HALF = (1.0, 1.0, 1.0, 1.0), (1.0, 0.9938, 0.9755, 0.0062)
"""Factors of epochs 0, 1, 2 and 19 of 20: CODA's cosine one epoch late and exact, none, a cosine to zero."""
BOTH = "down up"
ADAPTER = "down down_bias up up_bias"
RECIPES = [
    # baseline, its options, the set that task 2 reuses; of task 2 the phases; of the first that trains the
    # optimizer, images a step, epochs, factors, and the groups: what is trained, rate, decay
    ("coda-prompt", {}, None, "prompts", ADAM, 128, 20, LATE,
        [("head key mask prefix_key prefix_value", 1e-3, 0.0)]),
    ("coda-prompt", {"stepping": "exact", "keys_on_reuse": "free"}, 0, "prompts", ADAM, 128, 20, EXACT,
        [("head key mask prefix_key prefix_value", 1e-3, 0.0)]),
    ("coda-prompt", {}, 0, "prompts", ADAM, 128, 20, LATE, [("head prefix_key prefix_value", 1e-3, 0.0)]),
    ("coda-prompt", {"values_on_reuse": "freeze"}, 0, "prompts", ADAM, 128, 20, LATE,
        [("head prefix_key", 1e-3, 0.0)]),
    ("os-prompt", {}, None, "prompts", ADAM, 128, 20, LATE,
        [("head key prefix_key prefix_value", 1e-3, 0.0)]),
    ("dual-prompt", {}, None, "prompts", CLIPPED, 24, 40, CONSTANT,
        [("head key shared_prompt value", 2.8125e-3, 0.0)]),
    ("l2p", {}, 0, "prompts", CLIPPED, 24, 5, CONSTANT, [("head key prompt", 2.8125e-3, 0.0)]),
    ("no-prompt", {}, 0, "head", CLIPPED, 24, 20, CONSTANT, [("head", 2.8125e-3, 0.0)]),
    ("hide-prompt", {}, None, "prompts prompt-ensemble statistics replay", CLIPPED, 24, 50, CONSTANT,
        [("key value", 2.8125e-3, 0.0), ("head", 2.8125e-4, 0.0)]),
    ("cprompt", {"epochs": 20}, None, "prompts", SGD, 16, 20, HALF,
        [("rows", 0.01, 5e-4), ("auxiliary classifiers", 0.01, 5e-4)]),
    ("cprompt", {"epochs": 20}, 0, "prompts", SGD, 16, 20, HALF,  # decay moves a set in the protected space
        [("rows", 0.01, 0.0), ("auxiliary classifiers", 0.01, 5e-4)]),
    ("one-prompt", {"epochs": 20}, 0, "prompts", ADAM, 128, 20, LATE, [("deep head shallow", 1e-3, 0.0)]),
    ("vpt-nsp2", {}, 0, "prompts activations", ADAM, 256, 100, CONSTANT,
        [("token", 0.01, 5e-5), ("head", 0.01, 0.0)]),
    ("hide-lora", {"rank": 4}, None, "lora lora-ensemble statistics replay", ("adam", 0.0, 2.0), 24, 20,
        CONSTANT, [(BOTH, 9.375e-4, 0.0), ("head", 9.375e-4, 0.0)]),
    ("c-lora", {"rank": 4}, None, "lora-start lora", ADAM, 128, 20, LATE,
        [(BOTH, 1e-3, 0.0), ("head", 1e-3, 0.0)]),
    ("c-lora", {"rank": 4, "up_on_reuse": "freeze", "head_factor": 20.0}, 0, "lora-start lora", ADAM, 128, 20,
        LATE, [("down", 1e-3, 0.0), ("head", 0.02, 0.0)]),
    ("inflora", {"rank": 4}, None, "lora-design lora lora-memory", ADAM, 128, 20, LATE,
        [("up", 1e-3, 0.0), ("head", 1e-3, 0.0)]),
    ("inflora", {"rank": 4, "head_factor": 20.0}, 0, "lora lora-memory", ADAM, 128, 20, LATE,
        [("up", 1e-3, 0.0), ("head", 0.02, 0.0)]),
    ("sd-lora", {"rank": 4}, None, "lora-start lora", SGD, 128, 20, CONSTANT,
        [(BOTH, 8e-3, 0.0), ("magnitudes", 8e-3, 0.0), ("head", 8e-3, 0.0)]),
    ("sd-lora", {"rank": 4, "magnitudes": "ones"}, None, "lora-start lora", SGD, 128, 20, CONSTANT,
        [(BOTH, 8e-3, 0.0), ("head", 8e-3, 0.0)]),
    ("sd-lora", {"rank": 4, "directions": "first"}, None, "lora-start lora", SGD, 128, 20, CONSTANT,
        [("magnitudes", 8e-3, 0.0), ("head", 8e-3, 0.0)]),
    ("sd-lora", {"rank": 4, "optimizer": "adam", "later_lr": 0.004}, None, "lora-start lora",
        ("adam", 0.9, None), 128, 20, CONSTANT,
        [(BOTH, 4e-3, 0.0), ("magnitudes", 4e-3, 0.0), ("head", 4e-3, 0.0)]),
    ("finetune", {"rank": 4}, 0, "lora", ADAM, 128, 20, HALF, [(BOTH, 5e-4, 0.0), ("head", 5e-3, 0.0)]),
    ("lwf", {"rank": 4, "weight_decay": 0.1}, 0, "teacher lora", ADAM, 128, 20, HALF,
        [(BOTH, 5e-4, 0.1), ("head", 5e-3, 0.1)]),
    ("ewc", {"rank": 4}, 0, "boundary lora fisher", ADAM, 128, 20, HALF,
        [(BOTH, 5e-4, 0.0), ("head", 5e-3, 0.0)]),
    ("replay", {"rank": 4}, 0, "lora exemplars", ADAM, 128, 20, HALF,
        [(BOTH, 5e-4, 0.0), ("head", 5e-3, 0.0)]),
    ("ease", {}, None, "adapters prototypes", SGD, 48, 20, HALF, [(f"classifier {ADAPTER}", 0.025, 5e-4)]),
    # biases multiply 1, which no space leaves out: they are frozen, unless old outputs may move
    ("ease", {"up_on_reuse": "freeze"}, 0, "adapters prototypes", SGD, 48, 20, HALF,
        [("classifier down", 0.025, 5e-4)]),
    ("ease", {"up_on_reuse": "project"}, 0, "adapters prototypes", SGD, 48, 20, HALF,
        [("classifier down up", 0.025, 5e-4)]),
    ("ease", {"up_on_reuse": "free"}, 0, "adapters prototypes", SGD, 48, 20, HALF,
        [(f"classifier {ADAPTER}", 0.025, 5e-4)]),
    ("mos", {}, None, "adapters class-means statistics alignment", SGD, 48, 20, HALF,
        [(ADAPTER, 0.03, 5e-4), ("head", 3e-3, 5e-4)]),
    ("tuna", {"epochs": 20}, None, "adapters merge statistics alignment", SGD, 16, 20, HALF,
        [(f"{ADAPTER} head", 0.01, 5e-4)]),
    ("ssiat", {}, 0, "head-before adapters head-carry statistics alignment", SGD, 48, 10, HALF,
        [(f"{ADAPTER} head", 0.01, 5e-4)]),
    # adapted in the first task alone
    ("aper-adapter", {}, "first", "adaptation class-means", SGD, 48, 20, HALF,
        [(f"classifier {ADAPTER}", 0.01, 5e-4)]),
    ("aper-vpt-deep", {}, "first", "adaptation class-means", SGD, 48, 20, HALF,
        [("classifier token", 0.01, 5e-4)]),
    ("ranpac", {"features": 10}, "first", "adaptation ridge", SGD, 48, 20, HALF,
        [(f"classifier {ADAPTER}", 0.01, 5e-4)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "reuse", "phases", "descent", "size", "epochs", "factors", "groups"),
    RECIPES,
    ids=[f"{name}-{options}-{reuse}" for name, options, reuse, *_ in RECIPES],
)
def test_recipes_are_the_published_ones(
    bench_of, name, options, reuse, phases, descent, size, epochs, factors, groups
):
    """What is left out of the groups is not trained; a reused set may hold parts that are frozen."""
    bench, pool = bench_of(tiny_backbone(spread=0.1)), Pool()
    component = load_catalogue().get("baseline", name)
    baseline = component.build(component.config(**options), bench.build)
    for index in range(1 if reuse == "first" else 2):
        context = bench.begin(baseline, pool, index, reuse=reuse if index else None)
    planned = baseline.phases(context)
    assert [phase.name for phase in planned] == phases.split()
    train = next(phase for phase in planned if isinstance(phase, TrainingPhase))
    assert train.host
    assert (train.optimizer, train.momentum, train.clip_norm) == descent
    assert (train.batch_size, train.epochs, train.betas) == (size, epochs, (0.9, 0.999))
    assert train.drop_last == (name in {"coda-prompt", "os-prompt"})
    names = {
        id(value): key.partition(".")[0]
        for owner in (baseline, context.parameters)
        for key, value in owner.named_parameters()
    }
    found = [{names[id(one)] for one in group.parameters} for group in train.groups]
    assert found == [set(trained.split()) for trained, _, _ in groups]
    for group, (_, rate, decay) in zip(train.groups, groups, strict=True):
        assert (group.lr, group.weight_decay) == (pytest.approx(rate), decay)
        rates = [train.schedule(group.lr, epoch, 20) / group.lr for epoch in (0, 1, 2, 19)]
        assert rates == pytest.approx(factors, abs=5e-5)


@pytest.mark.parametrize(
    ("name", "init"),
    [
        *(
            (name, init)
            for name in ("dual-prompt", "hide-prompt", "cprompt", "hide-lora")
            for init in ("previous", "random")
        ),
        ("tuna", None),
    ],
)
def test_a_new_set_starts_from_the_one_trained_last(bench_of, name, init):
    """After a reuse that is the reused set and not the newest one; the copy has values of its own."""
    bench, component, pool = bench_of(tiny_backbone()), load_catalogue().get("baseline", name), Pool()
    config = component.config(**({} if init is None else {"init_from": init}))
    baseline = component.build(config, bench.build)
    for index, reuse in enumerate((None, None, 0)):
        bench.begin(baseline, pool, index, reuse=reuse)
        with torch.no_grad():
            for parameter in pool[index % 2].parameters():
                parameter.normal_()
    made = baseline.new_set(baseline.source_of(pool))
    assert same(state(pool[0]), state(made)) == (init != "random")
    assert not same(state(pool[1]), state(made))
    assert not {id(one) for one in made.parameters()} & {id(one) for one in pool[0].parameters()}
