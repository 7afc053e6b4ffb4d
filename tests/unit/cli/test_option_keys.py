"""An option of an experiment has one form on its way to the configuration: its dotted key and a value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from lw2g.api.arguments import as_options, with_short
from lw2g.cli.main import main
from lw2g.cli.shared_options import experiment_options, typed_options
from lw2g.config.layers import SHORT
from lw2g.config.resolve import resolve
from lw2g.config.toml import to_toml
from lw2g.errors import ConfigError
from lw2g.registry.catalogue import load_catalogue


def parsed(*words: str) -> dict[str, Any]:
    """Return what a command line says by dotted keys."""
    command = experiment_options(click.Command("run", callback=lambda **values: values))
    return typed_options(command.main(list(words), standalone_mode=False))


def test_a_command_line_and_a_call_say_the_same_by_keys():
    """What is typed and what a program gives become equal options, before anything is resolved."""
    line = "--policy one --constraint pgp --tracker mlflow --weights w.npz --devices 2"
    line += " --set baseline.epochs=3"
    called = as_options({"policy": "one", "benchmark": None}, {"devices": 2, "epochs": 3})
    further = {"constraints": ("pgp",), "trackers": ["mlflow"], "weights": Path("w.npz")}
    expected = {
        "policy.name": "one",
        "constraints": ("pgp",),
        "trackers.mlflow": {},
        "backbone.weights": Path("w.npz"),
        "run.devices": 2,
        "baseline.epochs": 3,
    }
    assert parsed(*line.split()) == with_short(called, further) == expected


def test_every_short_option_can_be_typed_and_sets_its_key():
    """No option that stands alone in a file is missing on the command line."""
    values = {"seed": "3", "devices": "2", "device": "cpu", "protocol": "official", "precision": "32-true"}
    for name, key in SHORT.items():
        value = values.get(name, "x")
        assert list(parsed(f"--{name}", value)) == [key]


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ("--recommended", "baseline.name", "simple-cil"),
        ("--trained", "baseline.name", "slca-plus-plus"),
        ("--recommended --set baseline.head=ridge", "baseline.head", "ridge"),
    ],
)
def test_set_overrides_what_a_word_of_a_method_stands_for(words, key, value):
    """``--recommended`` and ``--trained`` name a baseline and some of its options."""
    assert parsed(*words.split())[key] == value


def test_names_of_constraints_are_an_option_like_others():
    """As arguments and among the options they resolve to the same; a text that is no list is told."""
    catalogue = load_catalogue()
    named = resolve(catalogue, constraints=["pgp"]).config
    keyed = resolve(catalogue, overrides={"constraints": ["pgp"]}).config
    assert to_toml(named) == to_toml(keyed)
    for wrong in ("pgp", [1]):
        with pytest.raises(ConfigError, match=r"constraints: expected a key of the form constraints\.NAME"):
            resolve(catalogue, overrides={"constraints": wrong})


def test_completion_knows_what_set_has_said():
    """An earlier ``--set`` chooses the head whose options come next."""
    words = "run --baseline dual-prompt --set baseline.head=ridge --set head."
    environment = {"_LW2G_COMPLETE": "bash_complete", "COMP_WORDS": f"lw2g {words}"}
    environment["COMP_CWORD"] = str(len(words.split()))
    done = CliRunner().invoke(main, [], env=environment, prog_name="lw2g")
    offered = {line.partition(",")[2].partition("=")[0] for line in done.output.splitlines()}
    assert offered
    assert all(key.startswith("head.ridge.") for key in offered)
