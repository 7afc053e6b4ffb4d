"""The tool that records how small runs end tells every difference."""

from __future__ import annotations

import json

from golden import compare, record


def test_a_run_equals_its_record_until_something_moves(tmp_path, capsys, monkeypatch) -> None:
    """The same run ends in the same bits; a number, a decision and a run that was not recorded are told."""
    file, name = tmp_path / "golden.json", "simple-cil"
    record(file, [name])
    assert compare(file, [name])
    assert capsys.readouterr().out == f"{name}: equal to the bit\n"
    recorded, ended = json.loads(file.read_text()), json.loads(file.read_text())
    monkeypatch.setattr("golden._ending", ended.get)  # it has just ended so
    recorded[name]["metrics"]["faa"] += 0.5
    recorded[name]["accuracy_matrix"][0][0] -= 1e-9
    recorded[name]["decisions"][0]["decision"] = "reuse"
    file.write_text(json.dumps(recorded))
    assert not compare(file, [name])
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: differs",
        "    decisions/0/decision: 'reuse' became 'grow'",
        "    accuracy_matrix: differs by at most 1e-09 (accuracy_matrix/0/0; 1 in all)",
        "    metrics: differs by at most 0.5 (metrics/faa; 1 in all)",
    ]
    file.write_text("{}")
    assert not compare(file, [name])
    assert capsys.readouterr().out == f"{name}: differs\n    not recorded\n"
