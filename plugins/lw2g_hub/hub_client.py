"""What is asked of the hub, through its own client: a repository, a commit, files; a refusal is one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from lw2g import __version__
from lw2g.errors import ConfigError, DataError, first_line
from lw2g.ground.network import offline_by

__all__ = [
    "NoAnswerError",
    "Repository",
    "commit",
    "create",
    "file_of",
    "known_repository",
    "require_token",
    "snapshot",
]

_BROKEN = 500
"""From here on an answer says that the hub itself has failed."""
_LOG_IN = "log in with a token of your account on the hub: hf auth login, or HF_TOKEN=..."
# an answer that is no success, and what its client raises where there is no answer: which class that is
# depends on the client's release, and both are bases of the one for an answer
_FAILURES: tuple[type[Exception], ...] = (*HfHubHTTPError.__bases__, OSError, ValueError, RuntimeError)


@attrs.frozen(kw_only=True)
class Repository:
    """A repository as it stands.

    Attributes:
        repo: ``OWNER/NAME``.
        commit: Of the revision that was asked for, or its name.
        private: Whether others cannot see it.
        sizes: Bytes of each file.
    """

    repo: str
    commit: str
    private: bool
    sizes: Mapping[str, int]


def _api() -> HfApi:
    return HfApi(library_name="lw2g", library_version=__version__)


def require_token() -> None:
    """Refuse to push without a token, before anything is computed.

    Raises:
        ConfigError: There is none.
    """
    if get_token() is None:
        raise ConfigError("there is no token for the hub", _LOG_IN)


def known_repository(repo: str, revision: str | None = None) -> Repository | None:
    """Return a repository; None where there is none, or none that the token may see.

    Raises:
        DataError: It has no such revision, or the hub refuses or cannot be reached.
    """
    try:
        with _told(repo):
            info = _api().model_info(repo, revision=revision, files_metadata=True)
    except _NotThereError:
        return None
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    return Repository(repo=repo, commit=str(info.sha), private=bool(info.private), sizes=sizes)


def create(repo: str, *, public: bool) -> Repository:
    """Make an empty repository, and return it.

    Raises:
        DataError: The hub refuses or cannot be reached.
    """
    with _told(repo, "write to"):
        _api().create_repo(repo, private=not public)
    made = known_repository(repo)
    if made is None:
        raise DataError(f"the hub has made {repo!r} and does not show it", "run the command again")
    return made


def commit(before: Repository, files: Mapping[str, bytes], *, gone: Sequence[str] = ()) -> str:
    """Add files to a repository in one commit, which is there as a whole or not at all; return it.

    Args:
        before: The repository as it was when the files were made: if it has changed since, nothing is added.
        files: Contents by name.
        gone: Names of files that are taken away.

    Raises:
        DataError: The hub refuses or cannot be reached, or the connection broke.
    """
    operations: list[CommitOperationAdd | CommitOperationDelete] = []
    for name, content in files.items():
        operations.append(CommitOperationAdd(path_in_repo=name, path_or_fileobj=content))
    operations += [CommitOperationDelete(path_in_repo=name) for name in gone]
    with _told(before.repo, "write to", "; nothing was added to it"):
        made = _api().create_commit(
            before.repo,
            operations,
            commit_message=f"Model by lw2g {__version__}",
            parent_commit=before.commit,
        )
    return str(made.oid)


def file_of(repository: Repository, name: str) -> Path:
    """Return a file of a repository in the client's cache, fetched where it is not there.

    Raises:
        DataError: The hub does not give it.
    """
    with _told(repository.repo):
        return Path(_api().hf_hub_download(repository.repo, name, revision=repository.commit))


def snapshot(repo: str, revision: str | None, names: Sequence[str]) -> Path | None:
    """Return the folder of files that are in the client's cache already; None where one is missing.

    Args:
        repo: ``OWNER/NAME``.
        revision: A commit, or a branch or tag as it stood when it was last fetched.
        names: The files.
    """
    try:
        paths = [
            _api().hf_hub_download(repo, name, revision=revision, local_files_only=True) for name in names
        ]
    except (LocalEntryNotFoundError, ValueError):
        return None
    return Path(paths[0]).parent


class NoAnswerError(DataError):
    """The hub cannot be reached, or has failed."""


class _NotThereError(DataError):
    """A repository that is not there, or not for this token."""


@contextmanager
def _told(repo: str, does: str = "read", remains: str = "") -> Iterator[None]:
    """Tell what the hub refuses, and that it cannot be reached, in a line each.

    Args:
        repo: ``OWNER/NAME``.
        does: What is done with it.
        remains: What is said of the state that is left.
    """
    try:
        yield
    except GatedRepoError as error:
        raise DataError(f"the hub gives {repo!r} to those alone who have asked", "ask on its page") from error
    except RevisionNotFoundError as error:
        raise DataError(
            f"{repo!r} has no such revision on the hub", "name a branch, a tag or a commit of it"
        ) from error
    except RepositoryNotFoundError as error:
        raise _NotThereError(
            f"the hub has no model {repo!r} that you may see{remains}",
            f"check the name; for a private one {_LOG_IN}",
        ) from error
    except LocalEntryNotFoundError as error:  # nothing in the cache either
        raise NoAnswerError(*_no_answer(error, remains)) from error
    except EntryNotFoundError as error:
        raise DataError(f"{repo!r} lacks a file on the hub ({first_line(error)})", "push it anew") from error
    except HfHubHTTPError as error:
        kind = NoAnswerError if error.response.status_code >= _BROKEN else DataError
        raise kind(*_refusal(error, repo, does, remains)) from error
    except _FAILURES as error:
        raise NoAnswerError(*_no_answer(error, remains)) from error


def _no_answer(error: BaseException, remains: str) -> tuple[str, str]:
    """Return that the hub did not answer, or was not asked, and why."""
    variable = offline_by()
    if variable is not None:
        what = f"the hub was not asked: {variable} keeps lw2g offline{remains}"
        return what, "unset it, and run the command again"
    # a thread that uploads, or the look through the cache, has its reason as the cause of what is raised
    reason = first_line(error.__cause__ or error)
    return f"the hub did not answer ({reason}){remains}", "check the connection, and run the command again"


def _refusal(error: Any, repo: str, does: str, remains: str) -> tuple[str, str]:
    """Return what an answer of the hub says, and what to do about it."""
    status = error.response.status_code
    if status == 401:
        return f"the hub does not take the token (401){remains}", _LOG_IN
    if status == 403:
        return f"the token may not {does} {repo!r} (403){remains}", "use a token with that right"
    if status == 409:
        return (
            f"{repo!r} is there already, and the token may not see it (409){remains}",
            "choose another name",
        )
    if status == 412:
        return f"{repo!r} has changed meanwhile (412){remains}", "run the command again"
    said = error.server_message or first_line(error)
    return (
        f"the hub answers {status} ({' '.join(str(said).split()):.200}){remains}",
        "run the command again later",
    )
