"""lw2g new-plugin: what it writes installs, passes the contract of its kind, and is a real component."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from packaging.version import Version
from safetensors.torch import save_file

import lw2g
from installed import load_instead
from lw2g.api.scaffold.package import GRID, SCAFFOLDED, Scaffold, write_package
from lw2g.cli.main import main
from lw2g.config.resolve import resolve
from lw2g.config.toml import parse_value
from lw2g.errors import ConfigError
from lw2g.interfaces.defaults import TRAINED
from lw2g.interfaces.growth import Evidence, Grow, Reuse
from lw2g.interfaces.tracker import Stepped, Warned
from lw2g.lifecycle.runner import start
from lw2g.registry.catalogue import load_catalogue
from lw2g.sweeps.grid import read_grid
from lw2g_testing import contract_cases, tiny_backbone, tiny_catalogue
from lw2g_testing.made_evidence import measured_set
from tasks import build_of, retrieved

KINDS = tuple(SCAFFOLDED)
WITH_GRID = ("baseline", "head", "carry")
SECTIONS_OF_SEVERAL = {"constraint": "constraints", "tracker": "trackers"}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Write a package of each kind, make them importable, and return their folders by kind."""
    root = tmp_path_factory.mktemp("packages")
    folders = {kind: root / kind for kind in (*KINDS, "command")}
    for kind, folder in folders.items():
        write_package(Scaffold(name=f"fresh-{kind}", kind=kind), folder)
    with pytest.MonkeyPatch.context() as patch:
        for folder in folders.values():
            patch.syspath_prepend(folder / "src")
        yield folders
    for name in [name for name in sys.modules if name.startswith("fresh_")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def module_of(packages):
    """Import the module with the code of a kind."""
    return lambda kind: importlib.import_module(f"fresh_{kind}.{kind}")


@pytest.fixture(scope="module")
def fresh(packages):
    """A catalogue of everything, with the packages as plugins."""
    return tiny_catalogue(*(importlib.import_module(f"fresh_{kind}.plugin") for kind in KINDS))


@pytest.fixture
def context():
    """What is known before the first task, with a tiny backbone."""
    return build_of(tiny_backbone(), num_tasks=3, num_classes=6)


# -- what is written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_placeholder_is_filled_in(packages, kind):
    """No file holds a placeholder, and the project file names package, plugin and extra."""
    texts = {path: path.read_text(encoding="utf-8") for path in packages[kind].rglob("*.*") if path.is_file()}
    left = {str(path): found for path, text in texts.items() if (found := re.findall(r"\$\{?[a-z_]+", text))}
    assert left == {}
    project = tomllib.loads((packages[kind] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["name"] == f"fresh-{kind}"
    assert project["project"]["entry-points"]["lw2g"] == {f"fresh_{kind}": f"fresh_{kind}.plugin"}
    assert "pytest>=8" in project["project"]["optional-dependencies"]["test"]
    assert (packages[kind] / "src" / f"fresh_{kind}" / "py.typed").is_file()


def test_the_code_that_is_written_is_in_good_style(packages):
    """Linter and formatter have nothing to say under the rules that the package itself states."""
    ruff = shutil.which("ruff", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if ruff is None:
        pytest.skip("ruff is not installed")
    for folder in packages.values():
        for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
            done = subprocess.run(
                [ruff, *command, "."], cwd=folder, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout


def test_the_plugins_register_without_a_problem(fresh):
    """Each hook offers its component under the wanted name, beside everything installed."""
    assert [problem for problem in fresh.problems if problem.plugin.startswith("fresh_")] == []
    for kind in KINDS:
        assert fresh.get(kind, f"fresh-{kind}").summary == SCAFFOLDED[kind].summary


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_component_passes_its_contract(fresh, kind):
    """Every check of its kind passes or says nothing about it."""
    results = [case.result() for case in contract_cases(fresh.get(kind, f"fresh-{kind}"))]
    assert "passed" in {one.status for one in results}
    assert [f"{one.check}: {one.message}" for one in results if one.status == "failed"] == []


# -- what the components do ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_baseline_learns_and_grows_under_the_paper_s_rule(fresh, tmp_path):
    """A whole run with evidence, both constraints and retrieval ends above chance, with measured sites."""
    overrides = {"run.device": "cpu", "growth.images": 16, "benchmark.tasks": 2, "baseline.batch_size": 8}
    resolved = resolve(
        fresh, overrides=overrides, baseline="fresh-baseline", benchmark="tiny", backbone="tiny"
    )
    record = start(resolved, fresh, tmp_path / "run")
    assert record["metrics"]["faa"] > 25
    (candidate,) = record["decisions"][1]["candidates"]
    measured = candidate["measures"]["hindrance"]
    assert list(measured["sites"]) == [f"blocks.{i}.prefix_key" for i in range(6)]
    assert measured["value"] is not None


def evidence(*candidates):
    """Return the evidence of candidates given as (z, error)."""
    return Evidence(
        task=len(candidates),
        candidates=tuple(
            measured_set(number, z, error, excluded=None if z is not None else "full")
            for number, (z, error) in enumerate(candidates)
        ),
    )


@pytest.mark.parametrize(
    ("options", "candidates", "decision"),
    [
        ({}, [], Grow()),
        ({}, [(2.0, 0.5)], Grow()),
        ({}, [(2.0, 0.5), (-1.0, 0.5)], Reuse(1)),
        ({}, [(0.0, 0.5)], Reuse(0)),
        ({"max_sets": 2}, [(3.0, 0.5), (2.0, 0.5)], Reuse(1)),
        ({"max_sets": 1}, [(None, None)], Grow()),
        ({"margin": 2.0}, [(2.0, 1.5)], Reuse(0)),
        ({"margin": 1.0}, [(2.0, 1.5)], Grow()),
        ({"margin": 1.0}, [(2.0, None)], Reuse(0)),
        ({"margin": 1.0}, [(2.0, 0.5), (3.0, 4.0)], Reuse(0)),
    ],
)
def test_the_policy_is_the_paper_s_rule_with_a_bound(module_of, options, candidates, decision):
    """It grows iff every set hinders and there is room, and reuses the set that hinders least."""
    module = module_of("policy")
    policy = module.FreshPolicy(module.FreshPolicyConfig(**options))
    assert policy.decide(evidence(*candidates), np.random.default_rng(0)) == decision


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_retrieval_names_the_task_of_the_nearest_mean(module_of, context, metric):
    """The choice among the seen tasks equals a search by hand."""
    module = module_of("retrieval")
    strategy = module.FreshRetrieval(module.FreshRetrievalConfig(metric=metric), context)
    strategy.mean.copy_(torch.randn(3, 32, generator=torch.Generator().manual_seed(1)))
    query = torch.randn(20, 32, generator=torch.Generator().manual_seed(2))
    found = retrieved(strategy, query, (0, 2), torch.tensor([0, 0, 1, 1, 2, 2]))

    def distance(row, task):
        mean = strategy.mean[task]
        if metric == "cosine":
            return -float(row @ mean / row.norm() / mean.norm())
        return float((row - mean).norm())

    assert found.tolist() == [min((0, 2), key=lambda task, row=row: distance(row, task)) for row in query]


def test_the_constraint_removes_its_share_inside_the_old_space(module_of, context):
    """A reused set's sites get the memory's space with the strength asked for; a new set's get nothing."""
    module = module_of("constraint")
    rule = module.FreshConstraint(module.FreshConstraintConfig(strength=0.25), context)
    spaces = {"a": object()}

    class World:
        grew, set_id = False, 0

        class memory:
            @staticmethod
            def space(set_id, site):
                return spaces.get(site.name)

    class site:
        name, owner, soft = "a", "set", True

    found = rule.restriction(site, World)
    assert (found.subspace, found.strength, rule.hard) == (spaces["a"], 0.25, False)
    site.soft = False
    assert rule.restriction(site, World) is None
    site.soft, World.grew = True, True
    assert rule.restriction(site, World) is None
    World.grew, site.name = False, "unknown"
    assert rule.restriction(site, World) is None


def test_the_benchmark_is_the_same_on_every_call_and_changes_with_its_seed(module_of):
    """Pixels and fingerprint follow the options; no test image is a training image."""
    module = module_of("benchmark")

    def pixels(**options):
        stream = module.FreshBenchmark(module.FreshBenchmarkConfig(**options)).stream()
        return stream.fingerprint, stream.tasks[1].train.source.images, stream.tasks[1].test.source.images

    first, again, other = pixels(), pixels(), pixels(seed=1)
    assert first[0] == again[0] != other[0]
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[1], other[1])
    train = {image.numpy().tobytes() for image in first[1]}
    assert not train & {image.numpy().tobytes() for image in first[2]}


def test_the_benchmark_s_transform_normalises(module_of):
    """A white image becomes (1 - mean) / std in every channel, at the size of the backbone."""
    module = module_of("benchmark")
    benchmark = module.FreshBenchmark(module.FreshBenchmarkConfig())
    transforms = benchmark.transforms(16, (0.5, 0.4, 0.0), (0.5, 0.2, 2.0))
    image = transforms.test(torch.full((3, 32, 32), 255, dtype=torch.uint8))
    assert image.shape == (3, 16, 16)
    expected = torch.tensor([1.0, 3.0, 0.5])[:, None, None].expand(3, 16, 16)
    torch.testing.assert_close(image, expected)
    with pytest.raises(ConfigError, match="3 does not divide 8 classes; choose another"):
        module.FreshBenchmark(module.FreshBenchmarkConfig(increment=3)).stream()


def test_the_backbone_takes_random_weights_or_a_file(module_of, tmp_path):
    """Random weights are the same each time and leave the generator alone; a file's weights replace them."""
    module = module_of("backbone")
    config = module.FreshBackboneConfig
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, again = (module.build(config(), None, 32) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert first.fingerprint == again.fingerprint
    assert (first.fingerprint.source, first.image_size) == ("random", 32)
    state = first.model.state_dict()
    state["norm.bias"] = state["norm.bias"] + 1
    # a file that holds random values is refused as untrained
    state["norm.weight"] = torch.rand_like(state["norm.weight"]) + 0.5
    save_file(state, tmp_path / "own.safetensors")
    loaded = module.build(config(), tmp_path / "own.safetensors", 32)
    assert loaded.fingerprint.source == "file"
    assert torch.equal(loaded.model.state_dict()["norm.bias"], state["norm.bias"])


def test_the_published_weights_of_the_backbone_are_fetched_or_named_as_missing(module_of, monkeypatch):
    """`source = hub` asks for the tag's weights, and a file given beside it needs no hub."""
    module = module_of("backbone")
    config = module.FreshBackboneConfig
    asked = []
    monkeypatch.setattr(module, "load_backbone", lambda name, **how: asked.append((name, how)))
    module.build(config(source="hub"), None, None)
    module.build(config(source="hub"), Path("own.safetensors"), None)
    assert asked == [
        (module.MODEL, {"weights": None, "pretrained": True, "image_size": None}),
        (module.MODEL, {"weights": Path("own.safetensors"), "pretrained": False, "image_size": None}),
    ]


@pytest.mark.parametrize(
    ("steps", "names"), [(False, ["Warned", "Warned"]), (True, ["Warned", "Stepped", "Warned"])]
)
def test_the_tracker_appends_events_to_its_file(module_of, tmp_path, steps, names):
    """A line per event, at the end of what an earlier run wrote; progress only if it is asked for."""
    module = module_of("tracker")
    config = module.FreshTrackerConfig
    step = Stepped(task=0, tasks=2, phase="train", done=1, total=2)
    for events in ([Warned(message="first"), step], [Warned(message="second")]):
        tracker = module.FreshTracker(config(steps=steps), tmp_path)
        for event in events:
            tracker.on_event(event)
        tracker.close()
    lines = [json.loads(line) for line in (tmp_path / "fresh-tracker.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == names
    assert (lines[0]["message"], lines[-1]["message"]) == ("first", "second")


def test_a_file_that_the_tracker_cannot_open_is_one_line(module_of, tmp_path):
    """The option, the path and what to do."""
    module = module_of("tracker")
    config = module.FreshTrackerConfig
    with pytest.raises(ConfigError, match=r"trackers.fresh-tracker.file: '.*missing.*'.*; name another file"):
        module.FreshTracker(config(file="missing/events.jsonl"), tmp_path)


@pytest.fixture
def loaded_once(catalogue, monkeypatch, tmp_path):
    """Let the command see the installed plugins without loading them anew, in an empty folder."""
    load_instead(monkeypatch, lambda **_: catalogue)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_says_what_to_do_next(loaded_once, tmp_path, kind):
    """Files, then commands to install, test, check and run, and the grid; the same again is refused."""
    command = ["new-plugin", "new-one", "--kind", kind]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    written, _, commands = result.stdout.partition("next:\n")
    files = [line.strip() for line in written.splitlines()]
    first, second, check, run, *then = [line.strip() for line in commands.splitlines()]
    assert all((tmp_path / file).is_file() for file in files)
    assert str(Path("new-one") / "src" / "new_one" / f"{kind}.py") in files
    assert first == 'python -m pip install -e "new-one[test]"'
    assert second == "python -m pytest -q new-one"
    assert check == "lw2g check new-one"
    assert run.startswith("lw2g run ")
    assert "--benchmark " in run, "the drawings of the default take longer"
    # an option names some kinds, and what every run computes is not named
    named = dict.fromkeys(("evidence", "head", "carry"), "=new-one") | {"metric": "--out runs/new-one"}
    assert named.get(kind, f"--{kind} new-one") in run
    grid = str(Path("new-one") / "grid.toml")
    assert (grid in files) == (kind in WITH_GRID)
    expected = [f'lw2g sweep "{grid}" --out runs/new-one'] * (kind in WITH_GRID)
    if kind == "metric":  # a run prints those of lw2g alone
        expected = ["lw2g report runs/new-one"]
    assert then == expected
    again = CliRunner().invoke(main, command)
    assert (again.exit_code, again.stderr) == (
        2,
        "error: 'new-one' is not empty; choose another --out\n",
    )


def test_the_command_takes_a_folder_and_refuses_a_bad_name(loaded_once, tmp_path):
    """--out is the package's own folder; a mistake leaves nothing behind."""
    result = CliRunner().invoke(main, ["new-plugin", "new-one", "--kind", "policy", "--out", "else/where"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "else" / "where" / "pyproject.toml").is_file()
    refused = CliRunner().invoke(main, ["new-plugin", "New", "--kind", "policy"])
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: plugin name 'New' is not kebab-case; use")
    assert not (tmp_path / "New").exists()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "metric"])
def test_the_suggested_run_is_a_real_command(fresh, kind):
    """What is printed as the third command resolves to an experiment with the component."""
    words = Scaffold(name=f"fresh-{kind}", kind=kind).run.split()[2:]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    names = {option.removeprefix("--"): value for option, value in pairs if option != "--set"}
    for one, section in SECTIONS_OF_SEVERAL.items():
        if one in names:
            names[section] = [names.pop(one)]
    texts = (value.split("=", 1) for option, value in pairs if option == "--set")
    settings = {key: parse_value(text) for key, text in texts}
    config = resolve(fresh, overrides=settings, **names).config
    chosen = getattr(config, SECTIONS_OF_SEVERAL.get(kind, kind))
    chosen = chosen[0] if isinstance(chosen, tuple) else chosen
    assert chosen.name == f"fresh-{kind}"


@pytest.mark.parametrize("kind", WITH_GRID)
def test_the_grid_has_the_standard_rows(packages, fresh, kind):
    """The new component and the three methods that it has to beat, in three orders of glyphs, resolve."""
    cells = read_grid(packages[kind] / GRID)
    rows = {}
    for cell in cells:
        config = resolve(fresh, file=cell.tables()).config
        assert (config.benchmark.name, config.backbone.name) == ("glyphs", "micro")
        rows.setdefault(cell.row, {})[config.benchmark.config.order_seed] = config
        assert config.benchmark.config.order == "seeded", "else the seed draws nothing"
    own, *others = rows
    assert own == f"fresh-{kind}"
    last = "gated" if kind == "carry" else "trained"
    assert others == ["frozen lda", "ranpac without its first phase", last]
    assert {tuple(orders) for orders in rows.values()} == {(1, 2, 3)}
    configs = {name: orders[1] for name, orders in rows.items()}
    chosen = configs[own].baseline
    named = {
        "baseline": chosen.name,
        "head": getattr(chosen.config, "head", None),
        "carry": getattr(chosen.config, "head_carry", None),
    }
    assert named[kind] == own
    # a method that nobody has given a rule gets a set a task, and nothing but its own code
    assert (configs[own].policy.name, configs[own].constraints) == ("always", ())
    frozen, ranpac = (configs[name].baseline for name in others[:2])
    assert (frozen.name, frozen.config.head) == ("simple-cil", "lda")
    assert (ranpac.name, ranpac.config.adapt) == ("ranpac", "none")


@pytest.mark.parametrize("kind", WITH_GRID)
def test_the_grid_s_lines_of_photographs_can_be_uncommented(packages, fresh, kind, tmp_path):
    """As its comments say: each stands for the line above them."""
    text = (packages[kind] / GRID).read_text(encoding="utf-8")
    for line in ('backbone = "micro"\n', 'name = "glyphs"\n'):
        assert line in text
        text = text.replace(line, "")
    base, axes, rest = text.partition("[axes]")
    base = re.sub(r"^# (?=[a-z_]+ = )", "", base, flags=re.MULTILINE)
    (tmp_path / GRID).write_text(base + axes + rest, encoding="utf-8")
    cell = read_grid(tmp_path / GRID)[0]
    config = resolve(fresh, file=cell.tables()).config
    assert (config.benchmark.name, config.backbone.name) == ("folder", "vit-tiny")
    assert (config.benchmark.config.root.name, config.benchmark.config.increment) == ("photos", 10)


@pytest.mark.parametrize("kind", WITH_GRID)
def test_the_grid_s_trained_row_is_what_the_option_stands_for(packages, kind):
    """The row sets what --trained sets; a carry, which that lacks, differs from its own in the carry."""
    rows = {cell.row: dict(cell.settings) for cell in read_grid(packages[kind] / GRID)}
    order = {"benchmark.order": "seeded", "benchmark.order_seed": 3}
    shared = {"benchmark.name": "glyphs", "backbone.name": "micro", **order}
    baseline, *options = TRAINED
    if kind == "carry":
        assert rows["fresh-carry"] == rows["gated"] | {"baseline.head_carry": "fresh-carry"}
        assert rows["gated"]["baseline.head_carry"] == "gated"
    else:
        wanted = {"baseline.name": TRAINED[baseline]} | {key: TRAINED[key] for key in options}
        assert rows["trained"] == shared | wanted


def test_a_fresh_command_lists_the_best_runs(packages, tmp_path, monkeypatch):
    """Its entry point leads to a record, the record to a command that works, and its name is taken then."""
    folder = packages["command"]
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ((group, points),) = project["entry-points"].items()
    assert (group, points) == ("lw2g.commands", {"fresh_command": "fresh_command.plugin"})
    info = tmp_path / "fresh_command-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fresh-command\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nfresh_command = {points['fresh_command']}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    runs = MagicMock()
    runs.rows.return_value = [{"run": "a", "faa": 50.0}, {"run": "b", "faa": None}, {"run": "c", "faa": 75.0}]
    monkeypatch.setattr(lw2g, "runs", lambda folder: runs)
    listed = CliRunner().invoke(main, ["fresh-command", str(tmp_path), "--json"])
    assert json.loads(listed.stdout) == [["c", 75.0], ["a", 50.0]]
    assert "How many runs to list." in CliRunner().invoke(main, ["fresh-command", "--help"]).stdout
    again = CliRunner().invoke(main, ["new-plugin", "fresh-command", "--kind", "command"])
    assert again.stderr == ("error: plugin name 'fresh-command' is taken by a command; choose another one\n")


# -- for real ------------------------------------------------------------------------------------------------


def _builds_editable_packages() -> bool:
    try:
        new_enough = Version(importlib.metadata.version("setuptools")) >= Version("70.1")
        importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return False
    return new_enough


@pytest.mark.slow
@pytest.mark.skipif(not _builds_editable_packages(), reason="needs pip and setuptools 70.1 beside the tests")
@pytest.mark.parametrize("kind", ["policy", "command"])
def test_a_fresh_package_installs_and_its_own_tests_pass(tmp_path, kind):
    """Written, installed editable in an environment of its own, found by its entry point, tested."""
    package, venv = tmp_path / "new-one", tmp_path / "venv"
    write_package(Scaffold(name="new-one", kind=kind), package)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=300)
    python = venv / "bin" / "python"
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(ask, check=True, capture_output=True, text=True, timeout=300).stdout.strip())
    # the new environment sees everything of this one, editable installations included
    lines = "".join(f"import site; site.addsitedir({place!r})\n" for place in sorted(places))
    (site / "everything.pth").write_text(lines, encoding="utf-8")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [*install, "--no-build-isolation", "-e", str(package)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    tested = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package)],
        cwd=package,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert tested.returncode == 0, tested.stdout
    assert " passed" in tested.stdout.splitlines()[-1]
    # this environment is as it was
    for group in ("lw2g", "lw2g.commands"):
        assert "new_one" not in importlib.metadata.entry_points(group=group).names
    assert load_catalogue().names("policy") == tiny_catalogue().names("policy")
