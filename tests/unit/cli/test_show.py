"""What a record looks like when it is shown, and what is said where there is none."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

import written_runs
from lw2g import report
from lw2g.api.recorded import by_domain, interval_of
from lw2g.cli.execute import tell
from lw2g.cli.main import main
from lw2g.disk.lock import one_writer
from lw2g.disk.sealed import seal_json, unseal_json
from lw2g_testing.made_evidence import measured_set
from written_runs import catalogue, write_full

RECORD = {
    "lw2g_version": "0.1.0",
    "protocol": "like-for-like",
    "protocol_changes": [{"option": "benchmark.normalise", "value": "unit", "protocol": "native"}],
    "config": {
        "baseline": {"name": "hide-prompt"},
        "retrieval": {"name": "classifier"},
        "policy": {"name": "min"},
        "constraints": {"orthogonal": {}, "cpk": {}},
        "benchmark": {"name": "glyphs"},
        "backbone": {"name": "micro"},
        "run": {"precision": "32-true"},
    },
    "seed": 42,
    "fingerprints": {"benchmark": "b" * 64, "backbone": "c" * 64},
    "backbone": {"timm_name": "micro", "sha256": "c" * 64},
    "class_order": [0, 1],
    "class_names": ["ant", "bee"],
    "files": {},
    "accuracy_matrix": [[91.5, 83.25], [None, 88.0]],
    "retrieval_matrix": [[100.0, 71.125], [None, 64.0]],
    "decisions": [
        {"task": 0, "candidates": [], "decision": "grow", "set": 0, "margin": 0.0, "ranks_after": {}},
        {
            "task": 1,
            "candidates": [
                measured_set(
                    0,
                    -2.25,
                    0.5,
                    null=0.0125,
                    n=256,
                    rank=17,
                    parts={"hfc": 41.25, "hfc_pre": 43.5},
                    replicates=(0.625, -0.375),
                ).as_mapping(),
                measured_set(2, -2.0, 0.5, replicates=(0.5, -0.5)).as_mapping(),
                measured_set(1, None, excluded="its space is full").as_mapping(),
            ],
            "decision": "reuse",
            "set": 0,
            "margin": 0.0,
            "burden": "grow",
            "confidence": 0.875,
            "ranks_after": {},
        },
    ],
    "task_to_set": [0, 0],
    "metrics": {"faa": 85.625, "pra": None, "ssp": 1},
    "planted_groups": [0, 1],
    "adjusted_rand_index": -0.125,
    "feature_drift": [[], [0.0625]],
    "flops": {"training_per_image": 82630144.0, "inference_per_image": None},
    "storage": {"prompt_vectors": 40, "basis_vectors": 17, "parameters": 1000},
    "seconds": {"evidence": 1.5, "training": 2.5, "subspace": 0.5, "evaluation": 1.0, "total": 6.0},
    "images_per_second": 123.45,
    "deviations": [{"option": "baseline.epochs", "value": 5, "published": 40, "note": "differs"}],
}


def invoke(*arguments):
    """Run the command line."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_show_tells_a_run_in_a_few_lines(tmp_path):
    """What was run, what it reached and cost, what is unusual, and where the rest is."""
    motions = [
        {"task": 1, "new": 4.5, "old": 0.5, "times": 3.0, "alarming": True, "held": [], "carried": 1},
    ]
    tried = [{"head": "ridge", "layers": 12, "accuracy": 90.0, "images": 20}]
    choice = {**tried[0], "standard_error": 6.0, "tried": tried}
    (tmp_path / "record.json").write_bytes(
        seal_json(RECORD | {"findings": {"motions": motions, "choice": choice}})
    )
    lines = invoke("show", tmp_path).stdout.splitlines()
    assert lines[1:-1] == [
        "final accuracy 85.6 % (FAA)",
        "1 set for 2 tasks",
        "after each task: 91.5 █▇ 85.6",
        "head chosen: ridge on 12 layers (90.0 % of 20 learned images, each left out as its task came, among "
        "the classes so far: for the choice alone)",
        "6 s; 1,000 numbers kept beside the backbone",
        "tasks that moved features unusually far: 2",
    ]
    assert (
        lines[-1] == f"1 setting differs from the published method; all numbers: lw2g show {tmp_path} --all"
    )
    again = {"name": "glyphs", "stream": "repetition"}
    meant = {"baseline": {"name": "simple-cil", "head": "auto"}, "benchmark": again}
    content = seal_json(RECORD | {"config": RECORD["config"] | meant})
    (tmp_path / "record.json").write_bytes(content)
    for every in ([], ["--all"]):
        shown = invoke("show", tmp_path, *every).stdout
        assert " on glyphs, 2 tasks of repetition, backbone micro, " in shown
    assert (
        "\nmethod: --recommended, of lw2g and published nowhere as a whole; all"
        in invoke("show", tmp_path).stdout
    )


@pytest.mark.parametrize(
    ("faa", "classes", "told"),
    [
        (20.0, [[0], [1]], ["below chance: a guess among the classes gets 50.0 %"]),
        (20.0, [[0, 1], [0, 1]], ["below chance: a guess among the classes gets 50.0 %"]),
        (50.0, [[0], [1]], []),
        (0.0, [[0], [0]], []),
    ],
)
def test_an_accuracy_below_chance_is_told(tmp_path, faa, classes, told):
    """A guess is among the distinct classes; of one class there is none."""
    changes = {"task_classes": classes, "metrics": RECORD["metrics"] | {"faa": faa}}
    (tmp_path / "record.json").write_bytes(seal_json(RECORD | changes))
    lines = invoke("show", tmp_path).stdout.splitlines()
    assert [line for line in lines if line.startswith("below chance")] == told


@pytest.mark.parametrize("faa", [200 / 3, 60.0])
def test_a_run_and_show_tell_the_interval_of_the_accuracy(tmp_path, capsys, faa):
    """Over its test images, and that few tell little; nothing where no predictions go with the record."""
    run = write_full(tmp_path / "run", {"metrics.faa": faa})
    tell({run.path: run.record}, run.path, catalogue())
    told = [capsys.readouterr().out, invoke("show", run.path).stdout]
    interval = "; 95 % interval 39.1 to 86.2 over images of this one order: too few to tell much\n"
    known = faa > 60
    assert [interval in text for text in told] == [known, known]
    assert ["interval" in text for text in told] == [known, known]
    twin = write_full(tmp_path / "twin", {"metrics.faa": faa, "seed": 1})
    tell({run.path: run.record, twin.path: twin.record}, tmp_path, catalogue())
    same = ", the same with each of 2 seeds of one class order; 95 % interval 39.1 to 86.2 over images:"
    assert (same in capsys.readouterr().out) == known
    (predictions,) = (run.path / "predictions").iterdir()
    predictions.write_bytes(b"edited")
    tell({run.path: run.record, twin.path: twin.record}, tmp_path, catalogue())
    told = capsys.readouterr()
    assert told.out.splitlines()[-1].startswith(f"runs: {tmp_path} ")
    assert told.err.startswith("warning: predictions/task-002.safetensors of the run ")
    shutil.rmtree(predictions.parent)  # as a copy of the record alone
    shown = invoke("show", run.path)
    assert "interval" not in shown.stdout
    assert shown.stderr == ""


@pytest.mark.parametrize(
    ("wrong", "both", "second", "alike"),
    [
        (2, {}, {}, True),
        (3, {}, {}, False),
        (2, {"image_hashes": ["a", "b"]}, {"image_hashes": ["b", "a"]}, True),
        (2, {"image_hashes": ["a", "b"]}, {"image_hashes": ["a", "c"]}, False),
        (2, {}, {"fingerprints.benchmark": "d" * 64}, True),
        (2, {"config.benchmark.test_share": 0.2}, {"fingerprints.benchmark": "d" * 64}, False),
    ],
    ids=["equal", "wrong otherwise", "another order", "other images", "another order, no hashes", "drawn"],
)
def test_runs_are_alike_by_their_answers_and_images(tmp_path, monkeypatch, wrong, both, second, alike):
    """Two wrong answers may differ, and two images may have one place in their class."""
    first = write_full(tmp_path / "first", both)
    samples = written_runs.SAMPLES.copy()
    samples[3, 2] = wrong  # of class 1
    monkeypatch.setattr(written_runs, "SAMPLES", samples)
    other = write_full(tmp_path / "other", both | second | {"seed": 1})
    told = interval_of({run.path: run.record for run in (first, other)})
    start = ", the same with each of 2 seeds of one class order; 95 % interval"
    assert told.startswith(start) == alike
    assert alike or "over 2 seeds of one class order and test images (2 seeds tell little of others" in told


def test_several_runs_tell_what_their_row_of_a_report_has(tmp_path, capsys):
    """Mean and deviation are over class orders, each the mean of its seeds, with the report's digits."""
    values = {(0, 0): 60.0, (1, 0): 62.0, (0, 1): 65.0, (1, 1): 69.0}
    records = {}
    for (seed, order), faa in values.items():
        changes = {"seed": seed, "metrics.faa": faa, "class_order": list(range(6))[:: -1 if order else 1]}
        run = write_full(tmp_path / f"{seed}-{order}", changes, overrides={"run.seed": seed})
        records[run.path] = run.record
    tell(records, tmp_path, catalogue())
    told = capsys.readouterr().out
    row = report(tmp_path).rows()[0]
    shown = f"{row['mean']:.2f} ± {row['std']:.2f}"
    assert shown == "64.00 ± 4.24"
    assert told.startswith(f"final accuracy {shown} % (FAA)")
    assert f"| {shown} |" in str(report(tmp_path))


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("min", "from the published method, of which 2 are of policy min and its constraints; "),
        ("always", "3 settings differ from the published method; "),  # it measures no tasks
    ],
)
def test_what_the_policy_does_otherwise_is_not_the_methods(tmp_path, policy, told):
    """Nor what somebody has set: the settings that differ are counted apart."""
    options = ("baseline.epochs", "growth.heads", "constraints.cpk.on")
    deviations = [{"option": option, "value": 1, "published": 2, "note": ""} for option in options]
    config = RECORD["config"] | {"policy": {"name": policy}}
    (tmp_path / "record.json").write_bytes(seal_json(RECORD | {"deviations": deviations, "config": config}))
    assert told in invoke("show", tmp_path).stdout


@pytest.mark.parametrize(
    ("domains", "told"),
    [
        (["photo", "art", "sketch"], "by domain: photo 50.0 %, art 50.0 %, sketch 100.0 %"),
        (["photo", "art", "photo"], "by domain, each the mean of its tasks: photo 75.0 %, art 50.0 %"),
        (["photo", "photo", "photo"], ""),
        (None, ""),
    ],
)
def test_a_run_on_domains_tells_each(tmp_path, domains, told):
    """The accuracy of the final model on each, over the tasks that bring it; of two runs the mean."""
    record = write_full(tmp_path / "run", {"domains": domains}).record
    assert by_domain([record]) == by_domain([record, record]) == told
    printed = invoke("show", str(tmp_path / "run")).stdout
    assert ("by domain" in printed) == bool(told)
    assert told in printed


def test_a_run_says_what_of_its_stream_was_changed(tmp_path):
    """As the titles of reports do; a stream as by default is the name of its data alone."""
    for changed, told in (({}, "digits, backbone"), ({"benchmark.shots": 5}, "digits, shots 5, backbone")):
        path = tmp_path / str(len(changed))
        write_full(path, {}, overrides=changed)
        assert f" on {told}" in invoke("show", str(path)).stdout.splitlines()[0]


@pytest.mark.parametrize(("stream", "told"), [("domains", False), ("classes", True)])
def test_show_tells_no_metric_that_is_so_by_construction(tmp_path, stream, told):
    """Where each task has all classes, each answer is of its own task."""
    config = {**RECORD["config"], "benchmark": {**RECORD["config"]["benchmark"], "stream": stream}}
    metrics = {**RECORD["metrics"], "task_accuracy": 100.0}
    (tmp_path / "record.json").write_bytes(seal_json({**RECORD, "config": config, "metrics": metrics}))
    assert ("task_accuracy" in invoke("show", tmp_path, "--all").stdout) == told


def test_show_prints_decisions_matrices_and_metrics(tmp_path):
    """Evidence of every candidate, both matrices, metrics and deviations come from the record alone."""
    (tmp_path / "record.json").write_bytes(seal_json(RECORD))
    text = invoke("show", tmp_path, "--all").stdout
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "grow", "#0", *"----------"] in rows
    numbers = ("-2.25", "0.5", "0.0125", "-", "+", "256", "17")
    assert ["2", "reuse", "#0", "88%", "#0", "hindrance", *numbers] in rows
    assert ["#1", *"-------", "0", "its", "space", "is", "full"] in rows
    assert ["2", "#0", "hindrance", "hfc", "41.25,", "hfc_pre", "43.50"] in rows
    assert ["2", "#2", "hindrance", "above", "#0", "0.25", "±", "0.125"] in rows
    assert ["1", "91.50", "83.25"] in rows
    assert ["2", "64.00"] in rows
    assert ["faa", "85.62"] in [[row[0], row[-1]] for row in rows if row]
    assert "final average accuracy (elsewhere last accuracy, A_T)" in text
    assert "pra" not in [row[0] for row in rows if row]  # it has none, and no row
    assert ["adjusted_rand_index", "agreement"] in [row[:2] for row in rows]
    assert text.index("final average accuracy") < text.index("decisions")
    assert ["1", "6.25"] in rows
    assert ["training_per_image", "82.6", "MFLOP"] in rows
    assert ["inference_per_image", "-"] in rows
    assert ["baseline.epochs", "5", "40", "differs"] in rows
    assert text.startswith("hide-prompt x min on glyphs, backbone micro, retrieval classifier, constraints ")
    assert "protocol like-for-like (changed: benchmark.normalise)" in text


def test_show_names_a_method_as_reports_do(tmp_path):
    """With the options that are not its preset's, but those of benchmark, backbone and run."""
    simple = {"baseline": {"name": "simple-cil", "head": "lda"}, "policy": {"name": "always"}}
    simple |= {"constraints": {}, "retrieval": None}
    hide = {"growth": {"energy": 0.5}}
    for changed, method in (
        (simple, "simple-cil[head=lda]"),
        (hide, "hide-prompt x min, growth[energy=0.5]"),
    ):
        config = RECORD["config"] | changed | {"run": {"precision": "bf16-mixed"}}
        (tmp_path / "record.json").write_bytes(seal_json(RECORD | {"config": config}))
        for every in ([], ["--all"]):
            assert invoke("show", tmp_path, *every).stdout.startswith(f"{method} on glyphs, ")


@pytest.mark.parametrize(
    ("baseline", "told"), [("simple-cil", True), ("no-prompt", False), ("local-mine", False), ("gone", True)]
)
def test_show_compares_with_nothing_where_nothing_is_published(tmp_path, baseline, told):
    """The line that no setting differs stands where a method is cited, or one of its options.

    What does differ is no difference from a method that nobody has published, but from what else is.
    """
    changed = {"config": RECORD["config"] | {"baseline": {"name": baseline}}, "deviations": []}
    (tmp_path / "record.json").write_bytes(seal_json(RECORD | changed))
    for every in ([], ["--all"]):
        assert ("no setting differs" in invoke("show", tmp_path, *every).stdout) == told
    assert f"ll numbers: lw2g show {tmp_path} --all" in invoke("show", tmp_path).stdout
    (tmp_path / "record.json").write_bytes(seal_json(RECORD | {"config": changed["config"]}))
    heading = f"the published {baseline}" if told else "what is published"
    assert f"what differs from {heading}" in " ".join(invoke("show", tmp_path, "--all").stdout.split())
    whole = "the published method" if told else "what is published"
    assert f"\n1 setting differs from {whole}; all" in invoke("show", tmp_path).stdout


@pytest.mark.parametrize(("codes", "told"), [(["1.0 0a", "1.0 0b"], True), (["1.0 0a"], False)])
def test_show_tells_that_a_run_is_of_several_codes(tmp_path, codes, told):
    """As reports do of rows."""
    (tmp_path / "record.json").write_bytes(seal_json(RECORD))
    mine = {"kind": "policy", "name": "mine", "plugin": "mine", "distribution": "mine-dist", "version": "1.0"}
    (tmp_path / "plugins.json").write_bytes(seal_json({"components": [mine], "code": {"mine-dist": codes}}))
    line = "\ntasks of this run are learned by different code of a plugin: mine-dist 1.0 0a and 1.0 0b\n"
    assert (line in invoke("show", tmp_path, "--all").stdout) == told


def test_show_tells_that_a_run_is_unfinished(finished, tmp_path):
    """Whatever ended its process: how far it is, and how it goes on; a finished run says nothing of it."""
    (tmp_path / "record.json").write_bytes(seal_json({**RECORD, "tasks": 5}))
    assert "unfinished: 2 of 5 tasks learned\n" in invoke("show", tmp_path).stdout
    run = shutil.copytree(finished[0], tmp_path / "run")
    assert "unfinished" not in invoke("show", run).stdout
    record = unseal_json(run / "record.json")
    total = len(record["accuracy_matrix"])
    (run / "record.json").write_bytes(seal_json(record | {"tasks": total + 1}))
    told = f"unfinished: {total} of {total + 1} tasks learned (interrupted); go on: lw2g resume {run}"
    assert told in invoke("show", run).stdout


def test_show_of_a_run_that_is_being_written_does_not_resume_it(finished, tmp_path):
    """Neither before the end of its first task nor later: the lock's holder goes on by itself."""
    path = tmp_path / "run"
    shutil.copytree(finished[0], path)
    record = unseal_json(path / "record.json")
    (path / "record.json").write_bytes(seal_json({**record, "tasks": 10}))
    done = len(record["accuracy_matrix"])
    with one_writer(path):
        assert f"\nrunning: task {done + 1} of 10, {done} learned\n" in invoke("show", path).stdout
        (path / "record.json").unlink()
        shutil.rmtree(path / "checkpoints", ignore_errors=True)
        shown = invoke("show", path)
    assert (shown.exit_code, shown.stdout) == (2, "")
    told = "has finished no task yet; it is running: task 1 of ?, 0 learned\n"
    assert shown.stderr == f"error: the run {str(path)!r} {told}"


def test_show_tells_motions_and_what_an_expert_costs(tmp_path):
    """A row per task that moved old classes, an alarm where the new ones went far, and who was held."""
    motion = {"task": 1, "new": 4.5, "old": 0.5, "times": 3.0, "held": [0], "carried": 1, "alarming": True}
    told = {
        "findings": {"motions": [motion], "carry_forwards": 9},
        "expert": {"kind": "frozen", "forwards_per_image": 1, "numbers": 29184, "temperature": 0.5},
        "flops": {"expert_per_image": 2e6},
    }
    (tmp_path / "record.json").write_bytes(seal_json(RECORD | told))
    rows = [line.split() for line in invoke("show", tmp_path, "--all").stdout.splitlines()]
    assert ["2", "4.5", "0.5", "3.0", "!", "1", "of", "1:", "ant"] in rows
    assert ["expert's", "forwards", "per", "test", "image", "1"] in rows
    assert ["expert's", "numbers", "29184"] in rows
    assert ["head's", "temperature", "0.5"] in rows
    assert ["expert_per_image", "2.0", "MFLOP"] in rows
    damaged = RECORD | {"findings": {"motions": [motion | {"held": "all"}]}}
    (tmp_path / "record.json").write_bytes(seal_json(damaged))
    assert invoke("show", tmp_path).exit_code == 2


def test_show_explains_every_number_it_prints(finished):
    """Each column, metric and cost of a real record has a meaning beside it, what it lacks has none."""
    text = invoke("show", finished[0], "--explain").stdout
    shown, definitions = text.split("\ndefinitions")
    explained = {line.strip().split("  ")[0] for line in definitions.splitlines()}
    assert {
        "sure",
        "measure",
        "error",
        "null",
        "own",
        "hfc",
        "energy_null_hfc",
        "above #N",
        "feature drift",
        "A[i,t]",
    } <= explained
    metrics = {name for name, value in finished[1]["metrics"].items() if value is not None}
    numbers = metrics | set(finished[1]["flops"]) | set(finished[1]["storage"])
    clocks = {f"{part} (s)" for part in finished[1]["seconds"] if part != "per_test_image"}
    assert numbers | clocks | {"passes per test image", "ms per test image"} <= explained
    assert not {"faa_domains", "times", "expert's numbers"} & explained  # the run has none of these
    assert "mean over tasks i of A[i,T]" in definitions
    assert invoke("show", finished[0], "--all").stdout.rstrip() == shown.rstrip()


def test_show_json_is_the_record_itself(tmp_path):
    """Nothing is lost or rounded."""
    (tmp_path / "record.json").write_bytes(seal_json(RECORD))
    printed = json.loads(invoke("show", tmp_path, "--json").stdout)
    assert printed == RECORD | {"sha256": printed["sha256"]}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no run at"),
        ({"a/config.toml": "", "b/config.toml": ""}, "holds 2 runs; give one of them: lw2g runs "),
        ({"a/config.toml": ""}, "holds 1 run; give that one: "),
        ({"a/sweep.json": "", "a/b/config.toml": "", "a/.c/config.toml": ""}, "holds 1 run; give that one: "),
        ({"a/config.toml": "", "b/c/config.toml": "", "b/c/d/config.toml": ""}, "holds 2 runs; give one of "),
        ({"lock": ""}, "is starting, or was killed as it started; wait for its first task, or start it"),
        ({"config.toml": ""}, "has finished no task yet; resume it: lw2g resume"),
        (
            {"config.toml": "", "checkpoints/task-000.safetensors": ""},
            "is missing; write it anew: lw2g resume",
        ),
        ({"record.json": "{"}, "is no JSON"),
        ({"record.json": '{"faa": 80.0}'}, "has no checksum"),
        (
            {"record.json": seal_json(RECORD).decode().replace("41.25", "14.25")},
            "does not match its checksum",
        ),
    ],
)
def test_show_without_a_record_says_why(tmp_path, files, message):
    """A directory without a readable record is explained."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = invoke("show", tmp_path)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_long_stream_fits_on_a_screen(tmp_path):
    """Of 60 tasks every third one is shown, the last among them, and sets of no interest share a row."""
    tasks = 60
    candidates = [measured_set(7, -1.5, 0.5).as_mapping()]
    candidates += [
        {"set": one, "measures": {}, "rank": 5, "captured": 0.9, "excluded": f"screened out: captures {one}%"}
        for one in range(40, 60)
    ]
    candidates.append({"set": 3, "measures": {}, "rank": 9, "captured": None, "excluded": "space is full"})
    matrix = [[None] * task + [float(task)] * (tasks - task) for task in range(tasks)]
    decisions = [{**RECORD["decisions"][1], "candidates": candidates}]
    changed = {"accuracy_matrix": matrix, "retrieval_matrix": None, "decisions": decisions}
    changed |= {"task_to_set": [0] * tasks, "feature_drift": [], "planted_groups": [0] * tasks}
    (tmp_path / "record.json").write_bytes(seal_json({**RECORD, **changed}))
    shown = invoke("show", tmp_path, "--all")
    assert shown.exit_code == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert any(line.startswith("accuracy by task (percent), one task in 3") for line in lines)
    rows = [line.split() for line in lines]
    assert ["60", "59.00"] in rows
    assert not any(row[:1] == ["59"] for row in rows)
    assert sum("screened out" in line for line in lines) == 1
    (shared,) = (row for row in rows if "screened" in row)
    assert shared[:2] == ["20", "others"]
    assert sum("space is full" in line for line in lines) == 1


@pytest.mark.parametrize("width", [40, 60, 80, 110])
@pytest.mark.parametrize("whole", [False, True], ids=["some columns are empty", "no column is empty"])
def test_no_table_of_a_run_breaks_a_word_or_number(tmp_path, monkeypatch, whole, width):
    """A narrow terminal shows the words and numbers of a wide one, whichever tables a run has."""
    first, second = RECORD["decisions"]
    candidates = [
        {**measured_set(at, -0.382 * at, 0.336, null=3.47, own=1.5, n=256 + at).as_mapping(), "rank": 198}
        for at in range(1, 4)
    ]
    if whole:
        candidates[1]["excluded"] = "its space is full"
        candidates[2]["measures"] |= {"another": {**candidates[2]["measures"]["hindrance"], "alike": -1}}
    decided = {**second, "candidates": candidates, "held": True, "weight": 0.12, "lost": 0.032}
    motion = {"task": 1, "new": 4.5, "old": 0.5, "times": 13.0, "alarming": True, "held": [0], "carried": 1}
    record = RECORD | {"decisions": [first, decided], "findings": {"motions": [motion]}}
    record |= {"task_classes": [[0], [0, 1]], "domains": ["photographs", "charcoal"]}
    (tmp_path / "record.json").write_bytes(seal_json(record))
    words = []
    for columns in (1000, width):
        monkeypatch.setenv("COLUMNS", str(columns))
        shown = invoke("show", tmp_path, "--all", "--explain").stdout
        words.append({word.strip(";,") for word in shown.split() if "─" not in word})
    assert words[1] - words[0] <= {"the", "same", "in", "all", "rows", "that", "have", "it:"}


@pytest.mark.parametrize(
    ("width", "tasks", "cell", "title"),
    [
        (80, 5, "97.14", ""),
        (80, 20, "97.1", ", one task in 2 (--json: all)"),
        (80, 60, "97.1", ", one task in 6 (--json: all)"),
        (110, 20, "97.14", ", one task in 2 (--json: all)"),
        (150, 20, "97.1", ""),
        (170, 20, "97.14", ""),
    ],
)
def test_no_cell_of_a_matrix_is_broken(tmp_path, monkeypatch, width, tasks, cell, title):
    """Where it does not fit there are fewer decimals, then fewer tasks."""
    monkeypatch.setenv("COLUMNS", str(width))
    matrix = [[None] * task + [97.14] * (tasks - task) for task in range(tasks)]
    matrix[-1][-1] = 100.0  # the last task is always shown
    changed = {"accuracy_matrix": matrix, "retrieval_matrix": None, "feature_drift": []}
    changed |= {"decisions": [], "task_to_set": [0] * tasks, "planted_groups": [0] * tasks}
    (tmp_path / "record.json").write_bytes(seal_json({**RECORD, **changed}))
    text = invoke("show", tmp_path, "--all").stdout
    begin = text.index("accuracy by task")
    heading, *lines = text[begin : text.index("costs")].splitlines()
    assert heading.strip() == f"accuracy by task (percent){title}"
    words = {word for line in lines for word in line.split() if not word.startswith("─")}
    numbers = {str(number) for number in range(1, tasks + 1)}
    full = f"100.{'0' * (len(cell) - 3)}"
    assert words - numbers - {full} == {"task", "after", cell}


NAMES = ["ant", "bee", "cat", "dog", "elk", "fox"]


@pytest.mark.parametrize(
    ("noted", "told"),
    [
        ({"task_classes": [[1], [0, 5]]}, ["task classes", "1 bee", "2 ant, fox"]),
        (
            {"task_classes": [[0, 1]] * 3, "domains": ["photo", "sketch", "oil"]},  # the third is to come
            ["task domain classes", "1 photo ant, bee", "2 sketch ant, bee"],
        ),
        (
            {"task_classes": [[5, 4, 3, 2], [0, 1, 2, 3, 4, 5]]},
            ["task classes", "1 fox, elk, dog, cat", "2 ant, bee, cat, dog and 2 more"],
        ),
        ({}, None),
    ],
)
def test_show_names_what_each_task_brought(tmp_path, noted, told):
    """The domain and the first classes of each task that was learned, where the record has them."""
    (tmp_path / "record.json").write_bytes(seal_json({**RECORD, "class_names": NAMES, **noted}))
    shown = invoke("show", tmp_path, "--all").stdout
    _, titled, below = shown.partition("\ntasks ")
    assert bool(titled) == (told is not None)
    if told is not None:
        lines = [" ".join(line.split()) for line in below[: below.index("accuracy by task")].splitlines()]
        assert [line for line in lines if line.strip("─ ")] == told


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({"faa": 60.4, "task_accuracy": 60.4 + 1e-13}, True),
        ({"faa": 60.4, "task_accuracy": 60.5}, False),
        ({"faa": 100.0, "task_accuracy": 100.0}, False),
        ({"faa": 60.4, "task_accuracy": None}, False),
        ({"faa": 60.4}, False),
    ],
)
def test_show_says_when_all_errors_are_between_tasks(tmp_path, metrics, told):
    """Where each image with the right task has the right class, and some have neither."""
    said = "all errors are between tasks: no test image is taken for another class of its own task"
    several = {"metrics": metrics, "class_names": NAMES, "task_classes": [[0, 1], [2, 3]]}
    (tmp_path / "record.json").write_bytes(seal_json(RECORD | several))
    assert (said in " ".join(invoke("show", tmp_path, "--all").stdout.split())) == told
    # tasks of one class have no other errors
    (tmp_path / "record.json").write_bytes(
        seal_json(RECORD | {"metrics": metrics, "task_classes": [[0], [1]]})
    )
    assert said not in " ".join(invoke("show", tmp_path, "--all").stdout.split())


def test_show_says_why_there_are_no_numbers(tmp_path):
    """Of a task without new classes in the matrix of accuracies, and of drift where nothing moved."""
    again = {"accuracy_matrix": [[91.5, 83.25], [None, None]], "retrieval_matrix": None}
    again |= {"task_classes": [[0, 1], [1]], "image_hashes": ["677fc634"] * 1_200, "tasks": 2}
    (tmp_path / "record.json").write_bytes(seal_json(RECORD | again | {"feature_drift": [[], [0.0]]}))
    shown = invoke("show", tmp_path, "--all").stdout
    assert "\nno numbers in a row: the task brought no new class; FAA is over 1 of 2 tasks\n" in shown
    assert "\nno feature of an old task drifted\n" in shown
    assert "feature drift by task" not in shown
    few = invoke("show", tmp_path).stdout
    assert "on 1,200 test images of 2 classes, over 1 of 2 tasks: the others brought no new class\n" in few
    (tmp_path / "record.json").write_bytes(seal_json(RECORD))
    shown = invoke("show", tmp_path, "--all").stdout
    assert "no numbers in a row" not in shown
    assert "feature drift by task" in shown


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\xff", b"some words", b"{"])
def test_a_file_that_is_no_json_is_no_record(tmp_path, content):
    """A picture or a text is not damaged: what to give is a folder."""
    (tmp_path / "x.png").write_bytes(content)
    done = CliRunner().invoke(main, ["show", str(tmp_path / "x.png")])
    assert done.exit_code == 2
    assert (
        done.output
        == f"error: {str(tmp_path / 'x.png')!r} is no record of a run; give a run's or a model's folder\n"
    )
