"""A hub of the tests' own on 127.0.0.1, for the real client; it counts bytes and can misbehave.

It speaks what the client asks of a model repository: the revision's commit and files, and
``resolve`` with HEAD, Range and the redirect that large files take to another host. Errors carry
the headers by which the client tells them apart.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

# A test that asks more often than this has run wild.
MAX_REQUESTS = 2_000
LARGE = (".safetensors", ".bin")


def etag(content) -> str:
    """Etag of a file: its hash, or what a file that is made when it is asked for says itself."""
    return getattr(content, "etag", None) or hashlib.sha256(content).hexdigest()


@dataclass
class Repository:
    """Commits by sha, each a mapping of paths to contents, and branches."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    token: str = ""  # if set, whoever does not send it sees no repository


@dataclass
class Request:
    """One request as it was answered."""

    method: str
    file: str
    range: str
    status: int
    authorization: str
    sha: str = ""


@dataclass
class Fault:
    """How to misbehave on requests whose path fits; `act` may answer and then gives True."""

    pattern: re.Pattern
    times: int
    act: Callable


class HubServer:
    """The server; use it as a context. All its state may be changed by a test at any time."""

    def __init__(self):
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.sent: Counter[str] = Counter()  # bytes of bodies, by file or API
        self.faults: list[Fault] = []
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> HubServer:
        self._thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def push(self, repo: str, source: Path | dict[str, bytes], revision: str = "main") -> str:
        """Put a folder or files as a new commit that a branch points to; give its sha."""
        if isinstance(source, Path):
            source = {path.name: path.read_bytes() for path in source.iterdir() if path.is_file()}
        digest = hashlib.sha1(repr(sorted(source)).encode())
        for name in sorted(source):
            digest.update(source[name])
        repository = self.repositories.setdefault(repo, Repository())
        repository.commits[digest.hexdigest()] = dict(source)
        repository.refs[revision] = digest.hexdigest()
        return digest.hexdigest()

    def forget(self) -> None:
        """Begin counting anew."""
        self.requests.clear()
        self.sent.clear()

    def break_status(self, pattern: str, status: int, times: int = 1, **headers: str) -> None:
        """Answer with an error."""

        def act(handler, send):
            body = b'{"error": "as a test wants it"}'
            handler.answer(status, body, {k.replace("_", "-"): v for k, v in headers.items()})
            return True

        self.faults.append(Fault(re.compile(pattern), times, act))

    def cut_after(self, pattern: str, n_bytes: int, times: int = 1) -> None:
        """Announce a whole range, send a part of it, and hang up."""

        def act(handler, send):
            send(body_limit=n_bytes)
            return True

        self.faults.append(Fault(re.compile(pattern), times, act))

    def tamper(self, pattern: str, times: int = 1, **changes) -> None:
        """Change what is sent: `status`, `content_range`, `body` (a function), `length`."""

        def act(handler, send):
            send(**changes)
            return True

        self.faults.append(Fault(re.compile(pattern), times, act))


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"
    timeout = 10

    def log_message(self, *arguments) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if len(self.hub.requests) >= MAX_REQUESTS:
            self.answer(400, b"too many requests of one test")
            return
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", path):
            self.revision(unquote(found[1]), unquote(found[2]))
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.resolve(unquote(found[1]), unquote(found[2]), unquote(found[3]))
        elif found := re.fullmatch(r"/cdn/([^/]+/[^/]+)/([0-9a-f]{40})/(.+)", path):
            repo, sha, file = map(unquote, found.groups())
            self.content(repo, sha, file)
        else:
            self.answer(404, b'{"error": "no such page"}')

    def find(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """Find a commit, or answer why not as the hub does."""
        repository = self.hub.repositories.get(repo)
        given = self.headers.get("Authorization", "")
        if repository is None or (repository.token and given != f"Bearer {repository.token}"):
            status = 404 if given else 401
            self.answer(status, b'{"error": "Repository not found"}', code="RepoNotFound")
            return None
        if repository.gated and not given:
            self.answer(401, b'{"error": "Access is restricted"}', code="GatedRepo")
            return None
        sha = repository.refs.get(revision, revision)
        if sha not in repository.commits:
            self.answer(404, b'{"error": "Invalid rev id"}', code="RevisionNotFound")
            return None
        return sha, repository.commits[sha]

    def revision(self, repo: str, revision: str) -> None:
        if self.misbehave("api", lambda **_: None) or (found := self.find(repo, revision)) is None:
            return
        sha, files = found
        answer = {
            "id": repo,
            "sha": sha,
            "private": False,
            "siblings": [{"rfilename": name} for name in files],
        }
        self.answer(200, json.dumps(answer).encode(), file="api", sha=sha)

    def resolve(self, repo: str, revision: str, file: str) -> None:
        if (found := self.find(repo, revision)) is None:
            return
        sha, files = found
        if file not in files:
            self.answer(404, b"Entry not found", code="EntryNotFound", file=file, sha=sha)
            return
        if not file.endswith(LARGE):
            self.content(repo, sha, file)
            return
        # Large files are elsewhere; another name of the same host is another host to the client.
        headers = {
            "Location": f"http://localhost:{self.hub.port}/cdn/{repo}/{sha}/{file}",
            "X-Repo-Commit": sha,
            "X-Linked-Size": str(len(files[file])),
            "X-Linked-Etag": f'"{etag(files[file])}"',
        }
        self.answer(302, b"", headers, file=file, sha=sha)

    def content(self, repo: str, sha: str, file: str) -> None:
        whole = self.hub.repositories[repo].commits[sha][file]
        start, stop, status = 0, len(whole), 200
        headers = {
            "X-Repo-Commit": sha,
            "ETag": f'"{etag(whole)}"',
            "Accept-Ranges": "bytes",
        }
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, stop = int(found[1]), min(len(whole), int(found[2] or len(whole) - 1) + 1)
            if start >= stop:
                self.answer(416, b"", {"Content-Range": f"bytes */{len(whole)}"}, file=file)
                return
            status = 206
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(whole)}"

        def send(status=status, content_range=None, body=bytes, length=None, body_limit=None):
            if content_range is not None:
                headers["Content-Range"] = content_range
            content = body(whole if status == 200 else whole[start:stop])
            self.answer(
                status, content, headers, file=file, sha=sha, limit=body_limit, length=length
            )

        if not self.misbehave(file, send):
            send()

    def misbehave(self, file: str, send: Callable) -> bool:
        with self.hub.lock:
            chosen = next(
                (f for f in self.hub.faults if f.times > 0 and f.pattern.fullmatch(file)), None
            )
            if chosen is None:
                return False
            chosen.times -= 1
        return chosen.act(self, send)

    def answer(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        code: str = "",
        file: str = "",
        sha: str = "",
        limit: int | None = None,
        length: int | None = None,
    ) -> None:
        sent = b"" if self.command == "HEAD" else body[:limit]
        with self.hub.lock:
            self.hub.requests.append(
                Request(
                    self.command,
                    file,
                    self.headers.get("Range", ""),
                    status,
                    self.headers.get("Authorization", ""),
                    sha,
                )
            )
            self.hub.sent[file] += len(sent)
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(sent)
        if limit is not None or length is not None:
            self.close_connection = True
