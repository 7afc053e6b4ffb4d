"""``--recommended``: one word for the method that the pages recommend."""

from __future__ import annotations

import tomllib
from pathlib import Path

from click.testing import CliRunner

from lw2g.cli.main import main

PHOTOS = ["--benchmark", "glyphs"]


def resolved(*words: str) -> dict:
    done = CliRunner().invoke(main, ["config", *PHOTOS, *words])
    assert done.exit_code == 0, done.output
    return tomllib.loads(done.stdout)


def test_it_is_what_it_stands_for() -> None:
    """The configuration is that of the long command, so the record has it in full."""
    long = ["--baseline", "slca-plus-plus", "--set", "baseline.head=lda", "--set"]
    long += ["baseline.head_carry=gated", "--set", "routing.expert=frozen"]
    assert resolved("--recommended") == resolved(*long)


def test_options_win_over_it() -> None:
    """One part can be changed, as in any comparison."""
    assert (
        resolved("--recommended", "--set", "baseline.head_carry=affine")["baseline"]["head_carry"] == "affine"
    )


def test_it_names_the_baseline() -> None:
    """A second one is refused."""
    done = CliRunner().invoke(main, ["run", *PHOTOS, "--recommended", "--baseline", "l2p"])
    assert done.exit_code == 2
    assert "--recommended names the baseline" in done.stderr


def test_a_run_says_what_it_stands_for() -> None:
    """In full, as one would type it."""
    done = CliRunner().invoke(main, ["run", *PHOTOS, "--recommended", "--dry-run"])
    assert done.exit_code == 0, done.output
    said = "--baseline slca-plus-plus --set baseline.head=lda --set baseline.head_carry=gated"
    assert f"note: --recommended is: {said} --set routing.expert=frozen" in done.stderr


def test_pages_recommend_it() -> None:
    """README and the page of what to use name the same word."""
    root = Path(__file__).resolve().parents[3]
    for page in ("README.md", "docs/use.md", "docs/carries.md"):
        assert "--recommended" in (root / page).read_text(encoding="utf-8"), page
