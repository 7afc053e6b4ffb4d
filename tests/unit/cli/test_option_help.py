"""Where options are told: in listings, in an experiment's TOML, in completion, and when misplaced."""

from __future__ import annotations

import json
import tomllib

import attrs
import pytest
from click.testing import CliRunner

from lw2g.cli.main import main
from lw2g.config.describe import describe_experiment
from lw2g.config.explain import explain_resolved
from lw2g.config.resolve import load_resolved, resolve
from lw2g.config.settings import GrowthConfig, RunConfig
from lw2g.registry.catalogue import load_catalogue


@pytest.fixture(scope="module")
def catalogue():
    """All installed components."""
    return load_catalogue()


def told(*arguments):
    """Return exit code and everything a command says, on one line."""
    done = CliRunner().invoke(main, list(arguments))
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize(("name", "config"), [("growth", GrowthConfig), ("run", RunConfig)])
def test_sections_of_no_component_are_described(name, config):
    """``growth`` and ``run`` are told like a component: every option with type, default, range and help."""
    code, text = told("plugins", name)
    assert (code, f"section {name}: " in text) == (0, True)
    (entry,) = json.loads(CliRunner().invoke(main, ["plugins", name, "--json"]).output)
    assert (entry["kind"], entry["name"]) == ("section", name)
    assert [option["name"] for option in entry["options"]] == [field.name for field in attrs.fields(config)]
    assert all(option["help"] and option["name"] in text for option in entry["options"])


def test_a_benchmark_is_described_by_its_name():
    """Its options are found where those of the other components are."""
    code, text = told("plugins", "glyphs")
    assert (code, "train_per_class" in text, "training images per class" in text) == (0, True, True)


@pytest.mark.parametrize("baseline", ["hide-prompt", "coda-prompt", "inflora", "joint"])
def test_an_explained_experiment_reads_back_equal(tmp_path, catalogue, baseline):
    """Every option has its meaning, what it takes and its default above it, and the file means the same."""
    resolved = resolve(catalogue, baseline=baseline, trackers=["mlflow"])
    text = explain_resolved(resolved)
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    assert load_resolved(path, catalogue).config == resolved.config
    lines = text.splitlines()
    assert max(map(len, lines)) <= 110
    flat = " ".join(line.removeprefix("#").strip() for line in lines)
    options = describe_experiment(resolved.config)
    assert [key for key, one in options.items() if f"{one.sentence()} {one.name} = " not in flat] == []
    written = [line for line in lines if " = " in line and line[0].isalpha() and not line.startswith("name")]
    assert len(written) == len(options)


def test_config_prints_the_explained_experiment():
    """Meaning, range and default stand above the value."""
    code, text = told("config", "--set", "growth.energy=0.9")
    assert code == 0
    meaning = "# share of the energy that the space of a finished task must reach"
    assert f"{meaning} (float, > 0 and <= 1; default: 0.95) energy = 0.9" in text


@pytest.mark.parametrize(
    ("words", "expected", "absent"),
    [
        ("run --set growth.energy", {"growth.energy=", "growth.energy_pre="}, "growth.rule="),
        ("run --baseline l2p --set baseline.", {"baseline.pool_size="}, "baseline.contrastive="),
        ("config --constraint pgp --set con", {"constraints.pgp.energy="}, "constraints.cpk.phi="),
        ("run --tracker mlflow --set tr", {"trackers.mlflow.uri="}, "growth.rule="),
        ("run --baseline dual-prompt --set baseline.head=l", {"baseline.head=lda"}, "baseline.head=ridge"),
        # as bash splits it
        ("run --baseline dual-prompt --set baseline.head =", {"lda", "ridge"}, "baseline.head=lda"),
        ("run --baseline dual-prompt --set baseline.head = r", {"ridge"}, "lda"),
        ("run --set growth.energy = .9 --set routing.mix=", {"routing.mix=all"}, "routing.mix=none"),
        ("run --set growth.energy=", {"growth.energy=0.95"}, "growth.energy=none"),
        ("run --baseline no-such --set growth.", set(), "growth.rule="),
        ("run --tracker ten", {"tensorboard"}, "mlflow"),
        ("plugins gro", {"growth"}, "run"),
    ],
)
def test_completion_knows_the_options_in_use(words, expected, absent):
    """Keys of ``--set`` are those of the components that the command line names so far."""
    environment = {
        "_LW2G_COMPLETE": "bash_complete",
        "COMP_WORDS": f"lw2g {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    done = CliRunner().invoke(main, [], env=environment, prog_name="lw2g")
    offered = {line.partition(",")[2] for line in done.output.splitlines()}
    assert expected <= offered
    assert absent not in offered


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--epochs", "3"], "no such option: --epochs; did you mean --set baseline.epochs=VALUE"),
        (["--batch-size=8"], "no such option: --batch-size; did you mean --set baseline.batch_size=VALUE"),
        (["--epoch", "3"], "no such option: --epoch; did you mean --set baseline.epochs=VALUE"),
        (["--batchsize=8"], "no such option: --batchsize; did you mean --set baseline.batch_size=VALUE"),
        (["--set", "epoch=1"], "epoch: expected a key with its section (did you mean 'baseline.epochs'"),
        (["--polcy", "min"], "no such option '--polcy'; did you mean '--policy'?"),
        (["-policy=min"], "no such option '-policy'; did you mean '--policy'?"),
        (["--energy-pre", "0.9"], "did you mean --set growth.energy_pre=VALUE?"),
        (["--baseline", "dual-prompt", "--lr=1"], "--lr; did you mean --set baseline.lr=VALUE?"),
        (
            ["--lr", "1", "--baseline", "simple-cil"],
            "--lr; nothing that is chosen here has it; of others:",
        ),
        (["--recommended", "--phi", "1"], "has it; of others: --set constraints.cpk.phi=VALUE"),
        (["--set", "epochs=1"], "epochs: expected a key with its section (did you mean 'baseline.epochs'"),
        (["--set", "image_memory=1"], "(did you mean 'run.image_memory'?)"),
        (["--set", "phi=1"], "(did you mean 'constraints.cpk.phi'?)"),
        (["--set", "grwth.energy=1"], "no such section (did you mean 'growth'?)"),
        (["--method", "l2p"], "no such option: --method; the method is --baseline NAME"),
        (["--dataset", "digits"], "no such option: --dataset; the data are --benchmark NAME"),
        (["--set", "run.tasks=3"], "error: tasks is no setting: lw2g run --tasks N"),
        (["--no-such-thing"], "no such option"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_an_option_in_the_wrong_place_is_told_its_place(arguments, says):
    """Options of components and sections are found under their dotted key, those in use first."""
    code, text = told("config", *arguments)
    assert (code, says in text) == (2, True), text


def test_a_fork_says_why_it_names_no_method():
    """It begins with what the run's own method has learned."""
    code, text = told("fork", "RUN", "--at-task", "1", "--baseline", "l2p")
    assert code == 2
    assert text == "error: no such option: --baseline; a fork keeps its method; start a new run"
    code, text = told("fork", "RUN", "--task", "1")
    assert (code, "--task; the last task that is taken over is --at-task K" in text) == (2, True)


def test_an_option_without_its_section_in_a_file_is_told_its_place(tmp_path):
    """A file's top-level keys are sections."""
    path = tmp_path / "experiment.toml"
    path.write_text("epochs = 1\n")
    code, text = told("config", str(path))
    assert (code, "did you mean 'baseline.epochs'" in text) == (2, True)


def test_trackers_are_named_like_constraints(tmp_path):
    """``--tracker`` is repeatable and comes beside those of the file; ``--set`` sets their options."""
    path = tmp_path / "experiment.toml"
    path.write_text('[trackers.mlflow]\nexperiment = "mine"\n')
    named = ["--tracker", "tensorboard", "--tracker", "mlflow", "--set", "trackers.mlflow.uri=here"]
    output = CliRunner().invoke(main, ["config", str(path), *named]).stdout
    assert tomllib.loads(output)["trackers"] == {
        "mlflow": {"uri": "here", "experiment": "mine"},
        "tensorboard": {},
    }
    code, text = told("config", "--tracker", "tensorbord")
    assert (code, "did you mean 'tensorboard'?" in text) == (2, True)
