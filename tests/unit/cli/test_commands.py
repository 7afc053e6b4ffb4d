"""The command line parses and prints; mistakes end with one message and exit code 2."""

from __future__ import annotations

import gc
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import attrs
import numpy as np
import pytest
from attrs.validators import ge
from click.testing import CliRunner

import lw2g
from fake_components import CATALOGUE
from installed import load_instead
from lw2g.api.recorded import next_model
from lw2g.cli.main import main
from lw2g.errors import ConfigError, DataError, Interrupted, counted
from lw2g.interfaces.component import KINDS
from lw2g.interfaces.deviations import Deviation
from lw2g.interfaces.options import option
from lw2g.registry.catalogue import load_catalogue
from lw2g.registry.markers import hookimpl
from written_images import write_images


@attrs.frozen(kw_only=True)
class BaselineConfig:
    epochs: int = option(50, "passes over the images", validator=ge(1), published=40)


@pytest.fixture
def fake_catalogue(monkeypatch, tmp_path):
    """Make the commands see fake components alone, with the facts that they print, in an empty folder."""
    ours = Deviation(topic="a.b", value="ours", published="theirs", note="so", when="reuse")
    loaded = CATALOGUE
    for kind, name, facts in (
        (
            "baseline",
            "hide-prompt",
            {"config": BaselineConfig, "citation": "A 2023", "deviations": (ours,)},
        ),
        ("benchmark", "glyphs", {"embedded": True, "like_for_like": {"backbone.name": "micro"}}),
        ("backbone", "micro", {"embedded": True}),
    ):
        loaded = loaded.with_component(attrs.evolve(loaded.get(kind, name), **facts))
    load_instead(monkeypatch, lambda **_: loaded)
    monkeypatch.chdir(tmp_path)
    return loaded


@pytest.fixture
def runner_calls(monkeypatch):
    """Replace the runner by one that notes its calls, writes a record and may be told to fail."""
    calls, outcome = [], {}

    def go_on(call, directory):
        calls.append(call)
        if outcome.get("raises"):
            raise outcome["raises"]
        directory.mkdir(exist_ok=True)
        (directory / "config.toml").touch()
        seed = call["resolved"].config.run.seed if "resolved" in call else 0
        chosen = {"baseline": "hide-prompt", "benchmark": "glyphs", "backbone": "micro"}
        config = {kind: {"name": name} for kind, name in chosen.items()} | outcome.get("config", {})
        metrics = {"faa": 80.0 + seed, "ffm": 7.25, "pra": None, "chance_pra": None, "ssp": 1}
        return {
            "config": config | {"run": {"precision": "32-true"}},
            "sources": [{}],
            "seed": seed,
            "class_order": list(range(100)),
            "accuracy_matrix": [[80.0]] * outcome.get("done", 10),
            "tasks": 10,
            "task_classes": [list(range(10 * task, 10 * task + 10)) for task in range(10)],
            "image_hashes": ["677fc634"] * 2_000,
            "metrics": metrics | outcome.get("metrics", {}),
        }

    def start(resolved, catalogue, directory, listeners, *, tasks, settled=None):
        return go_on({"start": directory, "resolved": resolved}, directory)

    def proceed(directory, catalogue, listeners, *, tasks, devices=None, settings=None):
        return go_on({"continue": directory}, directory)

    def resume(directory, catalogue, listeners, *, devices, settings):
        return go_on({"resume": directory}, directory)

    runner = ModuleType("lw2g.lifecycle.runner")
    runner.start, runner.resume = start, resume
    continuing = ModuleType("lw2g.lifecycle.continuing")
    continuing.proceed = proceed
    monkeypatch.setitem(sys.modules, "lw2g.lifecycle.continuing", continuing)
    monkeypatch.setitem(sys.modules, "lw2g.lifecycle.runner", runner)
    calls_and_outcome = ModuleType("calls")
    calls_and_outcome.made, calls_and_outcome.outcome = calls, outcome
    return calls_and_outcome


def invoke(*arguments):
    """Run the command line."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_an_unknown_command_is_answered_with_the_nearest():
    """Usage errors suggest what was probably meant."""
    result = invoke("plugin")
    assert result.exit_code == 2
    assert "no command is called 'plugin' (did you mean 'plugins'?)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["show"], "error: missing argument 'RUN|MODEL'; see lw2g show --help"),
        (
            ["new-plugin", "x"],
            "error: missing option '--kind'; choose from: baseline, head, carry, retrieval, policy, "
            "evidence, constraint, benchmark, backbone, tracker, metric, command; see lw2g new-plugin --help",
        ),
        (["run", "--set"], "error: option '--set' requires an argument; see lw2g run --help"),
        (
            ["predict", "model", "image", "--top-k", "0"],
            "error: invalid value for '--top-k': 0 is not in the range x>=1; see lw2g predict --help",
        ),
        (
            ["predict", "model", "image", "--top-k", "many"],
            "error: invalid value for '--top-k': 'many' is no whole number; see lw2g predict --help",
        ),
        (
            ["predict", "model", "image", "--reject", "5"],
            "error: invalid value for '--reject': expected a rate between 0 and 1 but got 5; 0.05 rejects "
            "5 % of known; see lw2g predict --help",
        ),
        (
            ["--top-k", "3", "predict", "model", "image"],
            "error: options stand after the command: lw2g predict --top-k 3 ...",
        ),
        (
            ["run", "my photos", "model"],
            "error: lw2g run does a study, and takes options or one CONFIG.toml; "
            "a model of photos is made by: lw2g start 'my photos' model",
        ),
        (
            ["run", "a.toml", "b.toml"],
            "error: too many words: b.toml; expected [CONFIG.toml] (names with spaces in quotes); "
            "see lw2g run --help",
        ),
        (
            ["unlearn", "model", "cat", "--last"],
            "error: give a class or --last, not both; see lw2g unlearn --help",
        ),
        (
            ["test", "model", "folder", "--reject", "0.1"],
            "error: --reject is for --strangers; give these, too; see lw2g test --help",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(arguments, line):
    """What is wrong and where the options are told, without click's lines on usage."""
    result = CliRunner().invoke(main, arguments, prog_name="lw2g")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [line]


def test_class_folders_that_a_shell_named_are_given_by_the_one_above(tmp_path, monkeypatch):
    """``photos/*`` is many words; a word too many of another kind is named as before."""
    monkeypatch.chdir(tmp_path)
    named = [f"my photos/{name}" for name in ("a cat", "bee", "cow")]
    for name in (*named, "else/dog"):
        (tmp_path / name).mkdir(parents=True)
    told = "error: too many words: give the folder above: lw2g "
    for words, command in (
        (["start", *named, "m", "--head", "lda"], "start 'my photos' m --head lda"),
        (["start", "--head", "lda", *named[:2], "m"], "start --head lda 'my photos' m"),
        (["learn", "m", *named], "learn m 'my photos'"),
        (["test", "m", *named[1:]], "test m 'my photos'"),
    ):
        result = CliRunner().invoke(main, words, prog_name="lw2g")
        assert (result.exit_code, result.stderr) == (2, f"{told}{command}; see lw2g {words[0]} --help\n")
    for words in (["start", *named[:2], "else/dog", "m"], ["start", named[1], "m", "n"]):
        result = CliRunner().invoke(main, words, prog_name="lw2g")
        assert "expected FOLDER MODEL (names with spaces in quotes)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["show", "gone"],
            "no folder 'gone'; check the path, or make one: lw2g start (a model of photos), lw2g run",
        ),
        (["runs"], "no folder 'runs' (did you mean 'run'?); give a run's directory, or one with"),
        (["export", "a.txt", "x"], "'a.txt' is a file and no folder; give a folder as RUN"),
        (
            ["learn", "run", "x"],
            "'run' holds a run and no exported model; make one: lw2g export run MODEL --learnable",
        ),
        (["sweep", "run"], "'run' is a folder and no grid; give the path of a TOML file"),
        (
            ["report", "a.txt"],
            "'a.txt' is a file and no folder; give a run's directory, or one with runs bel",
        ),
        (["submit", "gone"], "no folder 'gone'; check the path"),
        (["teach", "a.txt"], "'a.txt' is a file and no folder; give a folder as MODEL"),
        (["store", "check", "a.txt"], "'a.txt' is a file and no folder; give a folder as DIR"),
        (["sweep", "grid.toml", "--out", "a.txt"], "'a.txt' is a file and no folder; give a folder as --out"),
        (["sweep", "grid.toml", "--out", "run"], "'run' holds a run; choose another --out"),
        (["run", "noise.toml"], "'noise.toml' is no TOML: it holds no text; correct it; `lw2g config` shows"),
        (
            ["sweep", "noise.toml"],
            "'noise.toml' is no TOML: it holds no text; correct it; `lw2g sweep --help` shows",
        ),
    ],
)
def test_a_wrong_place_is_told_as_what_it_is(tmp_path, monkeypatch, arguments, line):
    """A file for a folder, a run for a model and a folder that is not there: one line with a remedy."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    (tmp_path / "grid.toml").write_text("[axes]\nseed = [0, 1]\n")
    (tmp_path / "noise.toml").write_bytes(b"\x89PNG")
    result = invoke(*arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith(f"error: {line}")


def test_an_option_that_there_is_not_is_told_in_one_line():
    """With the one that is most like it."""
    result = CliRunner().invoke(main, ["--foo", "predict"], prog_name="lw2g")  # that has none such, either
    assert result.stderr == "error: no such option '--foo'; see lw2g --help\n"
    result = CliRunner().invoke(main, ["predict", "model", "image", "--tpo-k", "1"], prog_name="lw2g")
    told = "error: no such option '--tpo-k'; did you mean '--top-k'?; see lw2g predict --help\n"
    assert result.stderr == told
    assert result.exit_code == 2
    # what has a place of its own is named by it: --set is like --out, and was not meant
    for words, usage in (("start photos --out m", "MODEL"), ("start --folder a b", "FOLDER")):
        result = CliRunner().invoke(main, words.split(), prog_name="lw2g")
        option = words.partition("--")[2].split()[0]
        assert result.stderr == (
            f"error: no such option '--{option}': {usage} stands without one; lw2g start FOLDER MODEL; see "
            "lw2g start --help\n"
        )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("report runs --json", "'--json'; did you mean --format json?; see lw2g report --help"),
        ("report runs --latex", "'--latex'; did you mean --format latex?; see lw2g report --help"),
        ("report runs --splits", "'--splits'; did you mean --mix splits?; see lw2g report --help"),
        (
            "sweep grid.toml --slurm",
            "'--slurm'; did you mean --executor slurm?; see lw2g sweep GRID.toml --help",
        ),
        ("run --official", "'--official'; did you mean --protocol official?; see lw2g run --help"),
        ("run --config x.toml", "'--config'; a file is given alone: lw2g run x.toml; see lw2g run --help"),
        (
            "config --config=my/x.toml",
            "'--config'; a file is given alone: lw2g config my/x.toml; see lw2g config --help",
        ),
        ("run --config", "'--config'; a file is given alone: lw2g run CONFIG.toml; see lw2g run --help"),
        (
            "sweep --grid g.toml --jobs 2",
            "'--grid'; a file is given alone: lw2g sweep g.toml; see lw2g sweep GRID.toml --help",
        ),
        (
            "sweep --config g.toml",
            "'--config'; a file is given alone: lw2g sweep g.toml; see lw2g sweep GRID.toml --help",
        ),
    ],
)
def test_a_value_given_as_an_option_is_told_its_option(words, told):
    """Whatever is a choice of some option of the command."""
    result = CliRunner().invoke(main, words.split(), prog_name="lw2g")
    assert (result.exit_code, result.stderr) == (2, f"error: no such option {told}\n")


def test_a_group_without_a_command_shows_its_help():
    """Nothing is wrong there: the help says what can be done."""
    for group, heading in (([], "Studies:"), (["data"], "Commands:")):
        assert heading in invoke(*group).output


def test_config_prints_a_file_that_runs_again(fake_catalogue, tmp_path):
    """What `config` prints resolves to the same experiment."""
    first = invoke("config", "--set", "growth.energy=.9", "--seed", 7, "--constraint", "cpk")
    assert first.exit_code == 0, first.output
    assert tomllib.loads(first.stdout)["growth"]["energy"] == 0.9
    assert first.stdout.startswith("# preset: tuned glyphs\n")
    (tmp_path / "again.toml").write_text(first.stdout, encoding="utf-8")
    assert invoke("config", "again.toml").stdout == first.stdout


def test_mistakes_are_told_together_without_a_traceback(fake_catalogue):
    """One message on stderr, exit code 2."""
    result = invoke("run", "--policy", "mim", "--set", "growth.enrgy=1", "--set", "run.seed=x")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "error: 3 problems in the configuration:",
        "  policy: no policy is called 'mim' (did you mean 'min'?); `lw2g plugins policy` lists all",
        "  growth.enrgy: no such option (did you mean 'energy'?)",
        "  run.seed: expected a whole number but got 'x'",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "growth.energy"], "expected KEY=VALUE but got 'growth.energy'"),
        (["--seeds", "1,x"], "expected whole numbers such as 0,1,2 or 0-4 but got '1,x'"),
        (["--seeds", "4-0"], "or 0-4 but got '4-0'"),
        (["--seed", "1,2"], "expected a whole number but got '1,2'; for several seeds: --seeds 1,2"),
        (["--baseline", "icarl"], "called 'icarl'; methods that keep old images: replay; `lw2g plugins base"),
        (["--baseline", "DER++"], "called 'DER++'; methods that keep old images: replay; `lw2g plugins base"),
        (["--baseline", "er_ace"], "'er_ace'; methods that keep old images: replay; `lw2g plugins base"),
        (["--backbone", "rsnet"], "or a model of timm with its tag, such as"),
        (
            ["--set", "backbone.path=x"],
            "backbone.path: no such option (there are image_size, weights)",
        ),
        (["--seeds", "1,1"], "expected different seeds but got (1, 1)"),
        (["--seed", "1", "--seeds", "2"], "--seed and --seeds exclude each other"),
        (["--baselin", "x"], "--baseline"),
        (
            ["--seed", "1", "--set", "run.seed=2"],
            "run.seed is given twice: as --seed and as --set run.seed; leave one out",
        ),
        (
            ["--seeds", "1", "--set", "run.seed=2"],
            "run.seed is given twice: as --seeds and as --set run.seed",
        ),
        (
            ["--orders", "1,2", "--set", "benchmark.order=natural"],
            "--orders draws class orders, and --set benchmark.order=natural none; leave one out",
        ),
        (
            ["--set", "baseline.head=lda", "--set", "baseline.head=auto"],
            "baseline.head is given twice behind --set; leave one out",
        ),
        (["--policy", "one", "--set", "policy.name=min"], "policy.name is given twice: as --policy and as"),
        (["--set", "head=lda"], "head.NAME.OPTION (did you mean --set baseline.head=lda?)"),
    ],
)
def test_usage_errors_say_what_was_expected(fake_catalogue, arguments, message):
    """Misuse of an option ends with exit code 2 and the reason."""
    result = invoke("run", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_run_starts_the_resolved_experiment(fake_catalogue, runner_calls, tmp_path):
    """Names, settings and directory reach the runner; metrics and the directory are printed."""
    result = invoke(
        *("run", "--policy", "always", "--set", "baseline.epochs=2", "--device", "cpu", "--out", "here"),
        *("--protocol", "like-for-like"),
    )
    assert result.exit_code == 0, result.output
    (call,) = runner_calls.made
    config = call["resolved"].config
    assert call["start"] == Path("here")
    assert (config.policy.name, config.constraints, config.baseline.config.epochs) == ("always", (), 2)
    assert config.run.protocol == "like-for-like"
    assert "run: here (more: lw2g show here)" in result.stdout
    assert "final accuracy 122.0 % (FAA) on 2,000 test images of 100 classes" in result.stdout
    (told,) = result.stderr.splitlines()
    assert told.startswith("note: glyphs and micro: embedded defaults to learn and test with, never results")


FOUND = {"ssp": 3, "pra": 85.66, "chance_pra": 38.0}
RECOMMENDED = (
    "next, the recommended method: it trains nothing, and on most of our streams no training ended clearly "
    "above it: lw2g run --recommended"
)


@pytest.mark.parametrize(
    ("outcome", "lines"),
    [
        (
            {"metrics": FOUND},
            [
                "final accuracy 122.0 % (FAA) on 2,000 test images of 100 classes",
                "forgetting 7.2 points (FFM: best minus last accuracy, mean of old tasks)",
                "3 sets for 10 tasks",
                "right set found 85.7 %, by chance 38.0 % (PRA)",
                "run: here (more: lw2g show here)",
                RECOMMENDED,
            ],
        ),
        (
            {"done": 3, "config": {"backbone": {"name": "timm"}}},
            [
                "accuracy 122.0 % (FAA) on test images of 30 classes",
                "forgetting 7.2 points (FFM: best minus last accuracy, mean of old tasks)",
                "1 set for 3 tasks",
                "stopped after 3 of 10 tasks; go on with: lw2g continue here",
                "run: here (more: lw2g show here)",
            ],
        ),
        (
            {"config": {"baseline": {"name": "single"}, "benchmark": {"name": "digits"}}},
            [
                "final accuracy 122.0 % (FAA) on 2,000 test images of 100 classes",
                "forgetting 7.2 points (FFM: best minus last accuracy, mean of old tasks)",
                "run: here (more: lw2g show here)",
            ],
        ),
    ],
    ids=["sets", "stopped", "a method without sets"],
)
def test_a_run_ends_in_words(fake_catalogue, runner_calls, outcome, lines):
    """Metrics as sentences, sets where the method has them, and the next command."""
    runner_calls.outcome.update(outcome)
    assert invoke("run", "--out", "here").stdout.splitlines() == lines


def test_a_first_run_at_a_terminal_leads_to_photos(fake_catalogue, runner_calls, monkeypatch):
    """Beside the recommended method; not where a program reads, or the run has other data or is stopped."""
    photos = "next, a model of photos: lw2g start photos model --backbone vit-tiny"
    assert photos not in invoke("run", "--out", "here").stdout
    monkeypatch.setattr("lw2g.cli.execute.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    assert invoke("run", "--out", "there").stdout.splitlines()[-1] == photos
    runner_calls.outcome["done"] = 3
    assert photos not in invoke("run", "--out", "stopped").stdout


EXPORT = "the model of this run: lw2g export 'my run' MODEL, then lw2g predict MODEL PHOTO"


@pytest.mark.parametrize(
    ("changed", "made"),
    [
        ({}, "a model of these photos: lw2g start '/my photos' MODEL --backbone vit-tiny"),
        (
            {"backbone.weights": "w.pt"},
            "a model of these photos: lw2g start '/my photos' MODEL --backbone vit-tiny --weights w.pt",
        ),
        (
            {"benchmark.test_share": None, "backbone.name": "timm", "backbone.model": "vit.a"},
            "a model of these photos: lw2g start '/my photos/train' MODEL --backbone vit.a",
        ),
        ({"backbone.name": "local-mine"}, ""),
        ({"benchmark.name": "digits"}, ""),
        ({"baseline.name": "slca-plus-plus"}, EXPORT),
        ({"benchmark.stream": "domains"}, EXPORT),
        ({"benchmark.boxes": "boxes.csv"}, EXPORT),
        ({"sources": [{}, {}]}, EXPORT),
    ],
)
def test_a_run_on_photos_leads_to_a_model_of_them(changed, made):
    """Without training one command makes it of the user's images; else it is the run's own."""
    folder = {"name": "folder", "stream": "classes", "root": "/my photos", "test_share": 0.2, "boxes": None}
    config = {
        "baseline": {"name": "simple-cil"},
        "benchmark": folder | {"more_roots": []},
        "backbone": {"name": "vit-tiny", "weights": None},
    }
    record = {"config": config, "sources": [{}]}
    for key, value in changed.items():
        section, _, option = key.partition(".")
        if option:
            config[section][option] = value
        else:
            record[section] = value
    assert next_model(record, Path("my run")) == made


def test_a_run_on_photos_ends_with_that_command(fake_catalogue, runner_calls):
    """Once it has learned all tasks."""
    folder = {"name": "folder", "stream": "classes", "root": "photos", "test_share": 0.2, "boxes": None}
    runner_calls.outcome["config"] = {"benchmark": folder | {"more_roots": []}}
    next_line = "next, the model of this run: lw2g export here MODEL, then lw2g predict MODEL PHOTO\n"
    assert invoke("run", "--out", "here").stdout.endswith(f"(more: lw2g show here)\n{next_line}")
    runner_calls.outcome["done"] = 3
    assert "next" not in invoke("run", "--out", "there").stdout


def test_a_bug_keeps_its_traceback(fake_catalogue, runner_calls):
    """Only mistakes are turned into messages."""
    runner_calls.outcome["raises"] = ZeroDivisionError("a bug")
    result = invoke("run")
    assert isinstance(result.exception, ZeroDivisionError)


def test_a_refused_run_leaves_nothing_behind(fake_catalogue, runner_calls, tmp_path):
    """Missing data end the command with one message, and the directory made for the run is gone."""
    runner_calls.outcome["raises"] = DataError("no data", "get some")
    result = invoke("run")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, "error: no data; get some")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        (Interrupted(Path("here")), "; resume with: lw2g resume here"),
        (KeyboardInterrupt(), " before anything was learned"),
    ],
)
def test_an_interrupted_run_says_how_to_go_on(fake_catalogue, runner_calls, stop, said):
    """Ctrl-C ends with the command that resumes and the exit code of an interrupted program."""
    runner_calls.outcome["raises"] = stop
    result = invoke("run", "--out", "here")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1].startswith(f"interrupted{said}")


def test_resume_calls_the_runner_and_prints_the_metrics(fake_catalogue, runner_calls):
    """The directory goes to the runner, whose record is shown."""
    result = invoke("resume", "here")
    assert runner_calls.made == [{"resume": Path("here")}]
    assert "run: here" in result.stdout


@pytest.mark.parametrize("command", ["run", "resume", "continue"])
def test_plugins_are_loaded_once(fake_catalogue, runner_calls, monkeypatch, command):
    """What says that plugins have problems also builds the run and words its end."""
    loads = []

    def load(**arguments):
        loads.append(arguments)
        return fake_catalogue

    load_instead(monkeypatch, load)
    place = ["--out", "here"] if command == "run" else ["here"]
    assert invoke(command, *place).exit_code == 0
    assert len(loads) == 1


def test_plugins_lists_components_in_json(fake_catalogue):
    """The list has the promised keys, sorted by kind and name."""
    found = json.loads(invoke("plugins", "--json").stdout)
    assert [(entry["kind"], entry["name"]) for entry in found[:4]] == [
        ("baseline", "hide-prompt"),
        ("baseline", "misled"),
        ("baseline", "single"),
        ("baseline", "weighted"),
    ]
    assert found[0] == {
        "kind": "baseline",
        "name": "hide-prompt",
        "summary": "s",
        "plugin": "fakes",
        "distribution": None,
        "version": None,
        "citation": "A 2023",
    }


def test_plugins_prints_problems_with_remedies_at_the_end(monkeypatch):
    """What is wrong with a plugin is told after everything that works."""
    bad = ModuleType("bad")
    bad.lw2g_policy = hookimpl(lambda: [])
    loaded = attrs.evolve(CATALOGUE, problems=load_catalogue(plugins=[bad], entry_points=False).problems)
    load_instead(monkeypatch, lambda **_: loaded)
    result = invoke("plugins")
    assert result.exit_code == 0
    assert "hide-prompt" in result.stdout
    last = result.stdout.splitlines()[-1].strip()
    assert last.startswith("plugin 'bad' has 'lw2g_policy', which is no hook (did you mean 'lw2g_policies'?)")
    named = invoke("plugins", "bad")
    assert (named.exit_code, named.stderr) == (2, f"error: {last}\n")


def test_plugins_lists_kinds_a_line_each_and_one_kind_whole():
    """Every line has 100 columns at most; what has no room is counted, and no summary is cut off."""
    overview = invoke("plugins").stdout.splitlines()
    assert [line.split()[0] for line in overview[:3]] == ["baseline", "head", "carry"]
    baselines = [one for one in json.loads(invoke("plugins", "--json").stdout) if one["kind"] == "baseline"]
    assert overview[0].split()[1] == str(len(baselines))
    assert len(overview) <= 14
    assert re.search(r", dual-prompt and \d+ more$", overview[0])
    for kind in KINDS:
        listed = json.loads(invoke("plugins", kind, "--json").stdout)
        assert {one["kind"] for one in listed} == {kind}, kind
        assert invoke("plugins", counted(2, kind).removeprefix("2 ")).stdout == invoke("plugins", kind).stdout
        lines = invoke("plugins", kind).stdout.splitlines()
        assert max(map(len, [*overview, *lines])) <= 100
        whole = " ".join(" ".join(lines).split())
        assert [one["summary"] for one in listed if one["summary"] not in whole] == []
        named = [line.split()[0] for line in lines if line.strip() and not line.startswith(" ")]
        assert {one["name"] for one in listed} <= set(named)
    metrics = invoke("plugins", "metric").stdout
    assert {line.split(" ")[0] for line in metrics.splitlines()} >= {"faa", "pra"}
    assert "options" not in metrics  # a metric has none


def test_plugins_describes_one_component(fake_catalogue):
    """Options with default, range, published value and help; presets; citation."""
    text = invoke("plugins", "hide-prompt").stdout
    for part in (
        "baseline hide-prompt: s",
        "citation: A 2023",
        "retrieval: classifier",
        "passes over the images",
        "preset official cifar100: baseline.epochs=40",
        "preset tuned glyphs: baseline.epochs=5",
        "differs (where tasks share a set): a.b ours; published: theirs; so",
    ):
        assert part in text
    benchmark = invoke("plugins", "glyphs").stdout
    assert "no options" in benchmark
    assert "like-for-like: backbone.name=micro" in benchmark
    assert "    epochs: int, >= 1; default: 50; published: 40\n        passes over" in text
    detailed = json.loads(invoke("plugins", "hide-prompt", "--json").stdout)
    assert detailed[0]["options"][0]["default"] == 50


@pytest.mark.parametrize("name", ["l2p", "ranpac", "folder", "micro", "growth"])
def test_what_describes_a_component_fits_the_terminal(monkeypatch, name):
    """No line is wider than 80 columns, where presets have 500 letters; no word is lost or broken."""
    told = []
    for columns in (1000, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = invoke("plugins", name).stdout.splitlines()
        assert max(map(len, lines)) <= columns
        told.append(" ".join(lines).split())
    assert told[0] == told[1]


def test_a_folder_in_place_of_a_configuration_says_how_images_are_named(tmp_path):
    """As with `lw2g start`, somebody types the folder of images; its name may have a space."""
    (tmp_path / "my photos").mkdir()
    done = invoke("run", str(tmp_path / "my photos"))
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].endswith(
        f"/my photos' is a folder and no TOML file; for a model of photos: lw2g start '{tmp_path}/my photos' "
        f"MODEL; for a study of images: lw2g run --benchmark folder --set "
        f"benchmark.root='{tmp_path}/my photos' --backbone vit-tiny --set benchmark.test_share=0.2"
    )
    for name in "abcdefghijkl":
        (tmp_path / "my photos" / "train" / name).mkdir(parents=True)
    done = invoke("run", "--trained", str(tmp_path / "my photos"), "--backbone", "dino-vits16", "--seed", "3")
    assert done.stderr.splitlines()[-1].endswith(
        "my photos' --set benchmark.increment=6 --trained --backbone dino-vits16 --seed 3"
    )
    (tmp_path / "config.toml").touch()
    done = invoke("run", str(tmp_path))
    assert done.stderr.endswith(f"or run it anew: lw2g run {tmp_path}/config.toml\n")
    with pytest.raises(ConfigError, match=r"no TOML file; of images: benchmark='.*', backbone='vit-tiny'$"):
        lw2g.run(tmp_path / "my photos")


def test_an_interrupted_command_says_so_in_a_line(monkeypatch, tmp_path):
    """With the exit code of Ctrl-C, and without click's word for it."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lw2g.cli.predict_command.models.predict", stop)
    done = invoke("predict", str(tmp_path), str(tmp_path))
    assert (done.exit_code, done.stderr) == (130, "error: interrupted\n")


def test_plugins_with_an_unknown_name_suggests_one(fake_catalogue):
    """The nearest name over all kinds is offered."""
    assert "'polcy'; 'policy' is a kind; `lw2g plugins policy`" in invoke("plugins", "polcy").stderr
    assert "methods that keep old images: replay; " in invoke("plugins", "icarl").stderr
    result = invoke("plugins", "hide-promt")
    assert result.exit_code == 2
    assert "no component is called 'hide-promt' (did you mean 'hide-prompt'?)" in result.stderr


def test_predict_prints_classes_and_sets(fake_catalogue, monkeypatch, tmp_path):
    """Tasks count from 1 in text and from 0 in JSON; a named task is passed on as it is."""
    asked = []
    top = [{"class": "cat", "class_index": 3, "probability": 0.75}]
    top.append({"class": "dog", "class_index": 4, "probability": 0.25})

    class Saved:
        task_to_set = (0, 1)
        temperature = 20.0
        known = ("cat", "dog")

        def predict(self, paths, top_k, reject, *, partial):
            return [{"path": str(p), **top[0], "top": top[:top_k], "task": 1, "set": 0} for p in paths]

        def threshold(self, reject):
            raise ConfigError("it cannot tell")

    saved = ModuleType("lw2g.model.saved")
    saved.open_model = lambda directory, catalogue, task, **how: (
        asked.append((directory, task, *how.values())) or Saved()
    )
    monkeypatch.setitem(sys.modules, "lw2g.model.saved", saved)
    (tmp_path / "a.png").touch()
    text = invoke("predict", "here", "a.png", "--task", 2, "--top-k", 2, "--device", "cpu").stdout
    rows = [line.split() for line in text.splitlines()]
    assert ["a.png", "cat", "75.0", "%", "2", "#0"] in rows
    assert ["dog", "25.0", "%"] in rows
    found = json.loads(invoke("predict", "here", "a.png", "--json", "--batch-size", 1).stdout)
    assert found == [{"path": "a.png", **top[0], "top": top[:1], "task": 1, "set": 0}]
    assert asked[:2] == [(Path("here"), 2, "cpu", None, None), (Path("here"), None, None, 1, None)]
    Saved.task_to_set = (0, 0)  # nothing to choose from
    rows = [line.split() for line in invoke("predict", "here", "a.png").stdout.splitlines()]
    assert ["image", "class", "probability"] in rows
    assert ["a.png", "cat", "75.0", "%"] in rows
    Saved.temperature = None  # nothing was fitted to images set apart
    text = invoke("predict", "here", "a.png").stdout
    assert "uncalibrated probability" in text
    assert ["a.png", "cat", "0.750"] in [
        line.split() for line in text.splitlines()
    ]  # no promise, no per cent
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.toml").touch()
    for can_be_calibrated in (True, False):
        Saved.parts = SimpleNamespace(can_be_calibrated=can_be_calibrated)
        told = "lw2g export here MODEL --learnable" in invoke("predict", "here", "a.png").stderr
        assert told == can_be_calibrated
    Saved.parts = SimpleNamespace(can_be_calibrated=True)
    moved = invoke("predict", "here", "a.png", "--weights", "my w.pt").stderr
    assert moved.endswith("lw2g export here MODEL --learnable --weights 'my w.pt'\n")
    assert "lw2g export" not in invoke("predict", "here", "a.png", "--task", 1).stderr, "another model"
    missing = invoke("predict", "here", "gone.png")
    assert (missing.exit_code, missing.stderr) == (2, "error: no image file at 'gone.png'; check the paths\n")
    assert (
        "no image file at 'aa.png' (did you mean 'a.png'?); check"
        in invoke("predict", "here", "aa.png").stderr
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_the_shell(shell):
    """The script names the program and asks it for completions."""
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert "_LW2G_COMPLETE" in result.stdout


def test_component_names_complete(fake_catalogue):
    """Names come from the catalogue, of the kind that the option takes."""
    from click.shell_completion import ShellComplete

    found = ShellComplete(main, {}, "lw2g", "_LW2G_COMPLETE").get_completions(["run", "--policy"], "a")
    assert [item.value for item in found] == ["always"]


def test_python_names_and_options_do_what_the_command_line_does(fake_catalogue, runner_calls):
    """``lw2g.run`` takes the same names and dotted options and returns the record."""
    record = lw2g.run(policy="always", seed=3, out="here", **{"baseline.epochs": 2})
    (call,) = runner_calls.made
    config = call["resolved"].config
    assert (config.policy.name, config.run.seed, config.baseline.config.epochs) == ("always", 3, 2)
    assert record["metrics"]["faa"] == 83.0


def test_imports_are_out_of_the_collector_s_sight(fake_catalogue, runner_calls, monkeypatch):
    """What imports made is never looked at again; the collector itself goes on."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # as in a process that has only begun
    gc.unfreeze()
    assert invoke("run", "--out", "here").exit_code == 0
    assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    gc.unfreeze()


def test_photographs_need_a_backbone_that_knows_them(tmp_path):
    """As `lw2g start` refuses them; drawings, and who names the embedded backbone, go on."""
    for split in ("train", "test"):
        for name in ("ant", "bee"):
            draws = map(np.random.default_rng, range(2))
            images = (draw.integers(0, 255, (40, 33, 3), dtype=np.uint8) for draw in draws)
            write_images(tmp_path / split / name, images)
    words = ["--recommended", "--benchmark", "folder", "--set", f"benchmark.root={tmp_path}"]
    words += ["--set", "benchmark.increment=1", "--dry-run"]
    refused = invoke("run", *words)
    assert refused.exit_code == 2
    (line,) = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
    assert "has 33 x 40 pixels, and the embedded backbone knows drawings of up to 32 x 32 alone" in line
    assert line.endswith("for photos: --backbone vit-tiny (23 MB); to use it all the same: --backbone micro")
    assert "embedded backbone knows" not in invoke("run", *words, "--backbone", "micro").stderr
    run, grid = tmp_path / "run.toml", tmp_path / "grid.toml"
    run.write_text(f"[benchmark]\nname = 'folder'\nroot = '{tmp_path}'\nincrement = 1\n")
    grid.write_text(
        f"[base]\n{run.read_text().replace('benchmark', 'base.benchmark')}[axes]\nseed = [1, 2]\n"
    )
    for words, named in ((["run", str(run)], "--backbone "), (["sweep", str(grid)], "--set backbone.name=")):
        refused = invoke(*words, "--dry-run")
        assert (refused.exit_code, f"for photos: {named}vit-tiny" in refused.stderr) == (2, True)
    for refuses in (lambda: lw2g.run(run), lambda: lw2g.run(benchmark=tmp_path), lambda: lw2g.sweep(grid)):
        with pytest.raises(ConfigError, match="embedded backbone knows drawings"):
            refuses()


def test_a_command_is_found_by_the_word_of_others_and_an_option_by_its_command():
    """Whoever types `classify` learns `predict`; an option without its value names the help that has it."""
    assert "no command is called 'classify'; `lw2g predict` does that" in invoke("classify", "model").stderr
    trains = "no command is called 'train'; `lw2g start` does that for photos, `lw2g run` for a study"
    assert trains in invoke("train", "photos").stderr
    assert "no command is called 'help'; `lw2g --help` does that" in invoke("help", "start").stderr
    assert invoke("predict", "model", "photo.jpg", "--reject").stderr.endswith("; see lw2g predict --help\n")


def test_a_name_of_another_kind_or_spelling_is_told(tmp_path):
    """A head is none of the baselines, and lw2g's own backbone was meant before one of timm's."""
    for name in ("lda", "LDA"):
        assert invoke("run", "--baseline", name, "--dry-run").stderr.endswith(
            f"no baseline is called {name!r}, but a head; --baseline simple-cil --set baseline.head=lda\n"
        )
    assert invoke("run", "--baseline", "SLDA", "--dry-run").stderr.endswith(
        "; --baseline simple-cil --set baseline.head=lda --set head.lda.shrinkage=0.0001\n"
    )
    spelt = invoke("run", "--backbone", "vit_tiny", "--dry-run").stderr
    assert "no backbone is called 'vit_tiny' (did you mean 'vit-tiny'?)" in spelt
    assert spelt.count("did you mean") == 1, "it is one mistake"
    assert (
        "no backbone is called 'vit_tinny' (did you mean 'vit-tiny'?)"
        in invoke("run", "--backbone", "vit_tinny", "--dry-run").stderr
    )
    assert invoke("run", "--backbone", "vit-base", "--dry-run").stderr.endswith(
        "a model of timm with its tag (did you mean 'vit_base_patch16_224.augreg_in21k_ft_in1k'?)\n"
    )
    assert (
        "benchmark.test_share: expected a share, such as 0.2, but got 20.0"
        in invoke("run", "--benchmark", "folder", "--set", "benchmark.test_share=20", "--dry-run").stderr
    )
