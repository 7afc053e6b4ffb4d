"""``--recommended`` and ``--trained``: a word each for the method that the pages recommend."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from lw2g.cli.main import main

GLYPHS = ["--benchmark", "glyphs"]
MEANT = {
    "recommended": "--baseline simple-cil --set baseline.head=auto",
    "trained": "--baseline slca-plus-plus --set baseline.head=auto --set baseline.trained_tasks=1",
}


def resolved(*words: str) -> dict:
    done = CliRunner().invoke(main, ["config", *GLYPHS, *words])
    assert done.exit_code == 0, done.output
    return tomllib.loads(done.stdout)


@pytest.mark.parametrize("word", MEANT)
def test_a_word_is_what_it_stands_for(word: str) -> None:
    """The configuration is that of the long command, so the record has it in full."""
    assert resolved(f"--{word}") == resolved(*MEANT[word].split())


def test_the_frozen_answer_reads_several_layers() -> None:
    """The head that is chosen brings them along, where nobody says how features are made."""
    assert resolved("--recommended")["backbone"]["layers"] == "auto"
    assert resolved("--recommended", "--set", "backbone.pool=token")["backbone"]["layers"] == 1
    assert resolved("--recommended", "--set", "backbone.layers=3")["backbone"]["layers"] == 3
    assert resolved("--trained")["backbone"]["layers"] == "auto"


@pytest.mark.parametrize(
    ("word", "option", "value"), [("recommended", "head", "lda"), ("trained", "trained_tasks", 2)]
)
def test_options_win_over_it(word: str, option: str, value: str) -> None:
    """One part can be changed, as in any comparison."""
    assert resolved(f"--{word}", "--set", f"baseline.{option}={value}")["baseline"][option] == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--recommended", "--baseline", "l2p"], "--recommended names the baseline"),
        (["--trained", "--baseline", "l2p"], "--trained names the baseline"),
        (["--trained", "--recommended"], "--recommended and --trained name a method each"),
    ],
)
def test_it_names_the_baseline(words: list[str], message: str) -> None:
    """A second one is refused."""
    done = CliRunner().invoke(main, ["run", *GLYPHS, *words])
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize("word", MEANT)
def test_a_run_says_what_it_stands_for(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In full, as one would type it."""
    monkeypatch.setattr("lw2g.cli.run_command.tell_cost", lambda *_, **__: None)  # takes seconds
    done = CliRunner().invoke(main, ["run", *GLYPHS, f"--{word}", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert f"note: --{word} is: {MEANT[word]}" in done.stderr
    # an option beside it overrides a part: what is run is no longer what the word stands for
    done = CliRunner().invoke(main, ["run", *GLYPHS, f"--{word}", "--set", "baseline.head=lda", "--dry-run"])
    told = f"note: --{word} is: {MEANT[word]}; overridden by --set baseline.head=lda\n"
    assert told in done.stderr


def test_pages_recommend_it() -> None:
    """The page of what to use has both words, that of the frozen answer its own."""
    docs = Path(__file__).resolve().parents[3] / "docs"
    pages = {"use.md": MEANT, "frozen.md": ["recommended"]}
    for page, words in pages.items():
        text = (docs / page).read_text(encoding="utf-8")
        for word in words:
            assert f"--{word}" in text, page
