"""Versions of lw2g and of what it needs, read from metadata alone: nothing is imported."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata, requires, version

import attrs
from packaging.requirements import Requirement

from lw2g.doctor.finding import Finding, note, ok, problem

__all__ = ["Installed", "package_findings"]

_LW2G = "lw2g"


@attrs.frozen(kw_only=True)
class Installed:
    """What metadata say of installed distributions.

    Attributes:
        version: The version of a distribution, None where it is not installed.
        requires: The requirements that an installed distribution states.
        extras: The names of lw2g's extras.
        python: The Python versions that lw2g supports, as a specifier.
    """

    version: Callable[[str], str | None]
    requires: Callable[[str], Sequence[str]]
    extras: Sequence[str] = ()
    python: str = ""

    @classmethod
    def here(cls) -> Installed:
        """Return what is installed in this environment."""
        try:
            about = metadata(_LW2G)
        except PackageNotFoundError:
            return cls(version=_version, requires=lambda name: ())
        return cls(
            version=_version,
            requires=lambda name: requires(name) or (),
            extras=about.get_all("Provides-Extra") or (),
            python=(about.get_all("Requires-Python") or [""])[0],
        )


def package_findings(installed: Installed | None = None) -> Iterator[Finding]:
    """Yield what is to be said of lw2g, its dependencies, its extras, and torch beside torchvision."""
    installed = installed or Installed.here()
    own = installed.version(_LW2G)
    if own is None:
        yield problem(
            "packages",
            "lw2g is not installed, so no plugin can be found",
            "pip install . in the checkout, or pip install lw2g",
        )
        return
    yield ok("packages", f"lw2g {own}")
    yield from _python(installed)
    stated = [Requirement(text) for text in installed.requires(_LW2G)]
    base = [one for one in stated if one.marker is None or one.marker.evaluate({"extra": ""})]
    yield from _dependencies(base, installed)
    for extra in installed.extras:
        members = [one for one in stated if one not in base and _belongs(one, extra)]
        yield _extra(extra, members, installed)
    yield from _pair(installed)


def _python(installed: Installed) -> Iterator[Finding]:
    here = platform.python_version()
    if installed.python and not Requirement(f"python{installed.python}").specifier.contains(
        here, prereleases=True
    ):
        yield problem(
            "packages",
            f"Python {here} does not fit lw2g, which needs {installed.python}",
            f"make an environment with Python {installed.python} and install lw2g there",
        )


def _dependencies(base: Sequence[Requirement], installed: Installed) -> Iterator[Finding]:
    fitting = []
    for one in base:
        there = installed.version(one.name)
        if there is None:
            yield problem("packages", f"{one.name} is not installed", f'pip install "{_plain(one)}"')
        elif not one.specifier.contains(there, prereleases=True):
            yield problem(
                "packages",
                f"{one.name} {there} does not fit lw2g, which needs {_plain(one)}",
                f'pip install "{_plain(one)}"',
            )
        else:
            fitting.append(f"{one.name} {there}")
    yield ok("packages", f"{len(fitting)} of {len(base)} dependencies fit: {', '.join(fitting)}")


def _extra(extra: str, members: Sequence[Requirement], installed: Installed) -> Finding:
    versions = {one.name: installed.version(one.name) for one in members}
    unfit = [
        _plain(one)
        for one in members
        if (there := versions[one.name]) is None or not one.specifier.contains(there, prereleases=True)
    ]
    if unfit:
        text = f"extra {extra!r} is not complete, it lacks {', '.join(unfit)}"
        return note("packages", text, f'pip install "lw2g[{extra}]" where it is wanted')
    there_are = ", ".join(f"{name} {there}" for name, there in versions.items())
    return ok("packages", f"extra {extra!r}: {there_are}")


def _pair(installed: Installed) -> Iterator[Finding]:
    """Compare torch with what the installed torchvision was built for."""
    torch, torchvision = installed.version("torch"), installed.version("torchvision")
    if torch is None or torchvision is None:
        return
    wanted = [Requirement(text) for text in installed.requires("torchvision")]
    wanted = [one for one in wanted if one.name == "torch" and one.marker is None]
    if all(one.specifier.contains(torch, prereleases=True) for one in wanted):
        yield ok("packages", f"torchvision {torchvision} takes torch {torch}")
    else:
        needs = ", ".join(_plain(one) for one in wanted)
        yield problem(
            "packages",
            f"torchvision {torchvision} does not take torch {torch} but {needs}",
            f"pip install --force-reinstall torch=={torch.partition('+')[0]} torchvision, from one index",
        )


def _belongs(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})


def _plain(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
