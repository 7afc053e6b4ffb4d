"""The baseline keeps the promises that lw2g relies on, as installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from lw2g_peft_adapters.plugin import PEFT_LORA

from lw2g.testing import ContractCase, contract_cases, load_catalogue


@pytest.mark.parametrize("case", contract_cases("peft-lora"), ids=str)
def test_contract(case: ContractCase) -> None:
    """Each case is one promise; a failure says what to do."""
    case.run()


def test_the_installed_plugin_registers_it() -> None:
    """The entry point leads to this record, from this distribution, and nothing is wrong with the plugin."""
    catalogue = load_catalogue()
    assert catalogue.get("baseline", "peft-lora") is PEFT_LORA
    (origin,) = [entry.origin for entry in catalogue.components() if entry.component is PEFT_LORA]
    assert (origin.plugin, origin.distribution) == ("peft_adapters", "lw2g-peft-adapters")
    assert [str(problem) for problem in catalogue.problems if problem.plugin == origin.plugin] == []


def test_listing_plugins_does_not_import_peft() -> None:
    """peft takes seconds to import, and every lw2g command imports every plugin."""
    script = (
        "import sys; from lw2g.registry.catalogue import load_catalogue; "
        "print(load_catalogue().get('baseline', 'peft-lora').name, 'peft' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["peft-lora", "False"]
