"""What is misspelt is refused at once: before torch is imported, which takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import sys
from lw2g.cli.main import main
try:
    main(sys.argv[1:], prog_name="lw2g")
finally:
    sys.stdout.write("torch" if "torch" in sys.modules else "")
"""
REFUSED = {
    "check nope": "no component is called 'nope'",
    "check ridge --kind policy": "no policy is called 'ridge'",
    "check lda --kind head --set ridg=1": "ridg: no such option",
    "check": "nothing to check",
    "run --baseline nope": "no baseline is called 'nope'",
    "run --recommended --trained": "--recommended and --trained name a method each",
    "run --backbone vit-tinny": "no backbone is called 'vit-tinny' (did you mean 'vit-tiny'?)",
    "teach --backbone vit-tinny": "no backbone is called 'vit-tinny' (did you mean 'vit-tiny'?)",
    "start PHOTOS model --backbone vit-tinny": "no backbone is called 'vit-tinny' (did you mean 'vit-tiny'?)",
    "start PHOTOS model --backbone vit_tiny": "no backbone is called 'vit_tiny' (did you mean 'vit-tiny'?)",
    "run nope.toml": "'nope.toml' cannot be read",
    "predict nope photo.jpg": "no image file at 'photo.jpg'",
    "report nope": "no folder 'nope'",
}
"""Commands and what each says."""


@pytest.mark.parametrize("words", REFUSED)
def test_a_wrong_name_is_refused_before_torch_is_imported(
    words: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In one line, with exit code 2, and nothing is written."""
    photos = tmp_path_factory.mktemp("photos")
    (photos / "cat").mkdir()
    (photos / "cat" / "0.png").touch()
    command = [sys.executable, "-c", RUN, *words.replace("PHOTOS", str(photos)).split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert REFUSED[words] in line
    assert list(tmp_path.iterdir()) == []
