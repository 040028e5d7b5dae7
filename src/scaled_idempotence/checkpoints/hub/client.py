"""Requests to the Hugging Face hub: commits and byte ranges, with retries and plain errors.

Addresses, tokens, offline mode and back-off are ``huggingface_hub``'s own, so ``HF_ENDPOINT``,
``HF_TOKEN``, ``HF_HOME`` and ``HF_HUB_OFFLINE`` mean here what they mean there.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

from huggingface_hub import constants, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import (
    build_hf_headers,
    hf_raise_for_status,
    http_backoff,
    http_stream_backoff,
    httpx,
)

from ...errors import CheckpointError, FetchError
from .. import registry

#: Tries after the first, and seconds between them, which double from the first to the last value.
#: Where the hub says ``Retry-After``, it is obeyed instead.
MAX_RETRIES = 8
BASE_WAIT = 1.0
MAX_WAIT = 60.0

#: Without a network there is nothing to wait long for: the first request gives up earlier.
MAX_RETRIES_TO_CONNECT = 3

DEFAULT_REVISION = "main"
SHA = re.compile(r"[0-9a-f]{40}")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")

# The client's HTTP library is httpx or httpx2, by its version.
NETWORK_ERRORS = (httpx.HTTPError, OSError)


class Unreachable(FetchError):
    """The hub cannot be asked: there is no network, or it is not to be used."""


@dataclass(frozen=True)
class Commit:
    """One commit of a repository.

    Parameters
    ----------
    repo : str
        ``org/name``.
    sha : str
        40 hexadecimal digits.
    files : tuple of str
        Paths of all files.
    sha256 : mapping of str to str
        Of large files, where it was asked for.
    """

    repo: str
    sha: str
    files: tuple[str, ...] = ()
    sha256: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def where(self) -> str:
        """The commit in messages."""
        return f"{self.repo}@{self.sha[:12]}"


@contextmanager
def explained(repo: str, revision: str, what: str) -> Iterator[None]:
    """Turn the client's errors into a sentence that says the way out."""
    page = f"{constants.ENDPOINT}/{repo}"
    try:
        yield
    except LocalEntryNotFoundError as error:
        raise Unreachable(
            f"{what} of {repo} (revision {revision}) is not in the cache, and the hub cannot be "
            "asked: fetch the model where there is a network, without HF_HUB_OFFLINE"
        ) from error
    except OfflineModeIsEnabled as error:
        raise Unreachable(
            f"{what} of {repo} (revision {revision}) is not in the cache, and HF_HUB_OFFLINE "
            "forbids to ask the hub: unset it, or fetch the model where there is a network"
        ) from error
    except GatedRepoError as error:
        raise FetchError(
            f"{repo} is gated: accept its terms at {page}, then set HF_TOKEN to a token of that "
            "account, or run `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        lineage = registry.lineage_of(repo)
        hint = f"Its revisions are {lineage.revisions}" if lineage else f"See {page}/tree/main"
        raise CheckpointError(f"{repo} has no revision {revision!r}. {hint}") from error
    except RepositoryNotFoundError as error:
        raise CheckpointError(_missing(repo)) from error
    except EntryNotFoundError as error:
        raise CheckpointError(f"{repo} at revision {revision} has no file {what}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status == 401:
            raise CheckpointError(_missing(repo)) from error
        if status == 403:
            raise FetchError(
                f"the hub refuses {what} of {repo} (403): the token in HF_TOKEN, if any, may not "
                f"read it. Look at {page} what access needs, or take a token that may"
            ) from error
        if status == 404:
            raise CheckpointError(f"{repo} at revision {revision} has no {what} (404)") from error
        raise FetchError(
            f"the hub answered {status} for {what} of {repo}, also when asked again. What was "
            "fetched is kept; run the same again later"
        ) from error
    except NETWORK_ERRORS as error:
        if isinstance(error, FetchError):
            raise
        raise Unreachable(
            f"cannot reach {constants.ENDPOINT} for {what} of {repo}: "
            f"{error or type(error).__name__}. Where there is a network, what is missing is fetched"
        ) from error


def _missing(repo: str) -> str:
    return (
        f"the hub has no model {repo!r}, or it is private: check the spelling, or set HF_TOKEN to "
        f"a token that may read it (and if a local folder was meant, there is none at {repo!r})"
    )


def resolve(
    repo: str, revision: str, retry_connecting: bool = True, hashes: bool = False
) -> Commit:
    """Ask which commit a revision is.

    Parameters
    ----------
    repo, revision : str
    retry_connecting : bool
        False gives up at once where the hub cannot be reached.
    hashes : bool
        Also ask for the sha256 of large files, which the hub knows without sending them.

    Returns
    -------
    Commit

    Raises
    ------
    CheckpointError
        If the hub has no such repository or revision.
    FetchError
        If the repository is gated, or the hub does not answer; `Unreachable` if it cannot be
        asked.
    """
    path = f"{repo}/revision/{quote(revision, safe='')}{'?blobs=true' if hashes else ''}"
    answer = _ask(repo, revision, path, "the list of files", retry_connecting)
    with _understood(repo):
        sha = answer["sha"]
        files = tuple(str(entry["rfilename"]) for entry in answer["siblings"])
        sha256 = {
            str(entry["rfilename"]): str(entry["lfs"]["sha256"])
            for entry in answer["siblings"]
            if entry.get("lfs")
        }
    # It becomes a folder's name.
    if not isinstance(sha, str) or not SHA.fullmatch(sha):
        raise FetchError(f"the hub gave {sha!r} as the commit of {repo}, expected 40 hex digits")
    return Commit(repo, sha, files, sha256)


def list_revisions(repo: str) -> list[str]:
    """Ask which branches and tags a repository has.

    Parameters
    ----------
    repo : str

    Returns
    -------
    list of str

    Raises
    ------
    CheckpointError, FetchError
        As `resolve`.
    """
    answer = _ask(repo, DEFAULT_REVISION, f"{repo}/refs", "the list of revisions")
    with _understood(repo):
        return [str(ref["name"]) for kind in ("branches", "tags") for ref in answer[kind]]


def _ask(repo: str, revision: str, path: str, what: str, retry_connecting: bool = True) -> dict:
    patience = {} if retry_connecting else {"retry_on_exceptions": ()}
    with explained(repo, revision, what):
        response = http_backoff(
            "GET",
            f"{constants.ENDPOINT}/api/models/{path}",
            headers=build_hf_headers(),
            timeout=constants.HF_HUB_ETAG_TIMEOUT,
            max_retries=min(MAX_RETRIES, MAX_RETRIES_TO_CONNECT),
            base_wait_time=BASE_WAIT,
            max_wait_time=MAX_WAIT,
            **patience,
        )
        hf_raise_for_status(response)
    with _understood(repo):
        return response.json()


@contextmanager
def _understood(repo: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FetchError(
            f"{constants.ENDPOINT} did not answer as a hub does for {repo} "
            f"({type(error).__name__}: {error}); check HF_ENDPOINT and the proxy"
        ) from error


def read_range(
    commit: Commit,
    file: str,
    start: int,
    stop: int | None,
    report: Callable[[int], object] = lambda n: None,
) -> tuple[bytes, int]:
    """Read bytes ``[start, stop)`` of a file of a commit.

    Parameters
    ----------
    commit : Commit
    file : str
    start, stop : int
        The range is cut at the file's end; None reads to the end.
    report : callable
        Is told how many bytes came, as they come.

    Returns
    -------
    content : bytes
    size : int
        Of the whole file.

    Raises
    ------
    CheckpointError, FetchError
        As `resolve`; also where what comes is not what was asked for.

    Notes
    -----
    What the client's own cache already holds of the commit, because the whole file was downloaded
    for another purpose, is read there. A connection that is cut keeps what it brought, and the rest
    is asked for.
    """
    here = try_to_load_from_cache(commit.repo, file, revision=commit.sha)
    if isinstance(here, str):
        with open(here, "rb") as local:
            size = os.fstat(local.fileno()).st_size
            local.seek(start)
            read = local.read(max(0, (size if stop is None else min(stop, size)) - start))
        report(len(read))
        return read, size
    url = hf_hub_url(commit.repo, file, revision=commit.sha)
    content = bytearray()
    size = None
    failures = 0
    while size is None or stop is None or start + len(content) < stop:
        begin, before = start + len(content), len(content)
        last = "" if stop is None else stop - 1
        headers = build_hf_headers() | {
            "Range": f"bytes={begin}-{last}",
            "Accept-Encoding": "identity",  # ranges count stored bytes
        }
        with (
            explained(commit.repo, commit.sha, file),
            http_stream_backoff(
                "GET",
                url,
                headers=headers,
                timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
                max_retries=MAX_RETRIES,
                base_wait_time=BASE_WAIT,
                max_wait_time=MAX_WAIT,
            ) as response,
        ):
            hf_raise_for_status(response)
            # Checked before the body: a server that ignores ranges would send a whole shard.
            end, whole = _check_range(response, commit, file, begin, stop)
            if size not in (None, whole):
                raise CheckpointError(
                    f"{file} of {commit.where} had {size:,} bytes and now has {whole:,}: a commit "
                    "does not change, so something between here and the hub is broken"
                )
            size, stop = whole, end
            try:
                for chunk in response.iter_bytes():
                    content += chunk
                    report(len(chunk))
                    if start + len(content) > stop:
                        raise FetchError(
                            f"the hub sent more of {file} of {commit.where} than the "
                            f"{end - begin:,} bytes it announced; nothing of it is used. Try again"
                        )
            except FetchError:
                raise
            # Not left to the client, which would begin the whole range anew.
            except NETWORK_ERRORS:
                pass
        if len(content) > before:
            failures = 0
        elif start + len(content) < stop:
            failures += 1
            if failures > MAX_RETRIES:
                raise FetchError(
                    f"the connection for {file} of {commit.where} was cut {failures} times at byte "
                    f"{begin:,} of {size:,}. What was fetched is kept; run the same again later"
                )
            time.sleep(min(MAX_WAIT, BASE_WAIT * 2 ** (failures - 1)))
    return bytes(content), size


def _check_range(
    response, commit: Commit, file: str, begin: int, stop: int | None
) -> tuple[int, int]:
    """Compare what an answer announces with what was asked; give its end and the file's size."""
    announced = response.headers.get("Content-Range", "")
    if response.status_code == 206 and (found := _CONTENT_RANGE.fullmatch(announced)):
        first, last, size = map(int, found.groups())
        end = size if stop is None else min(stop, size)
        if first == begin and last == end - 1:
            return end, size
    # A proxy may answer the request for a whole small file with 200.
    if response.status_code == 200 and begin == 0 and stop is None:
        length = response.headers.get("Content-Length", "")
        if length.isdigit():
            return int(length), int(length)
    wanted = f"bytes {begin}-{'' if stop is None else stop - 1}"
    raise FetchError(
        f"asked for {wanted} of {file} of {commit.where}, got status {response.status_code} with "
        f"{announced or 'no Content-Range'}; nothing of it is used. The hub, or a proxy before it, "
        "does not serve ranges: try another network or HF_ENDPOINT"
    )
