"""How bash is answered that asks for completions; importing this module makes click do so."""

from __future__ import annotations

import os

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

__all__: list[str] = []


class _Bash(BashComplete):
    """Bash, which splits words at ``=`` and replaces only what follows it; no space follows ``KEY=``."""

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", "COMPREPLY+=($value)\n            [[ $value == *= ]] && compopt -o nospace"
    )
    _kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the current one, and the beginning of this one, joined at ``=``."""
        words = split_arg_string(os.environ["COMP_WORDS"])
        current = int(os.environ["COMP_CWORD"])
        joined: list[str] = []
        # without "lw2g" itself, and without what stands behind the cursor
        for word in words[1 : current + 1]:
            if joined and (word == "=" or joined[-1].endswith("=")):
                joined[-1] += word
                self._kept = joined[-1].rpartition("=")[0] + "="
            else:
                joined.append(word)
                self._kept = ""
        if current >= len(words):
            # a new word has been begun and has no letter yet: bash counts it and does not list it
            joined.append("")
            self._kept = ""
        return joined[:-1], joined[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return a completion without what the shell keeps."""
        item.value = item.value.removeprefix(self._kept)
        return super().format_completion(item)


add_completion_class(_Bash)
