"""Files of the cache: safetensors with their own sha256, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open

from ...errors import CheckpointError
from ...files import replacing


def write_atomically(
    path: Path, content: bytes, check: Callable[[Path], object] | None = None
) -> None:
    """Write a file whole or not at all.

    Parameters
    ----------
    path : Path
    content : bytes
    check : callable, optional
        Is given the written file before it takes its place, and raises if it is not good.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Weights behind a licence stay their user's own.
    with replacing(path, mode=0o600) as unfinished:
        unfinished.write_bytes(content)
        if check is not None:
            check(unfinished)


def pack(entries: Mapping[str, tuple[str, Sequence[int], bytes]]) -> bytes:
    """Make a safetensors file of bytes that are of any type, known to torch or not.

    Parameters
    ----------
    entries : mapping
        Type as safetensors calls it, shape and bytes, by name.

    Returns
    -------
    bytes
        With the sha256 of its tensors in its metadata.
    """
    header: dict[str, dict] = {}
    position = 0
    body = bytearray()
    for name, (dtype, shape, content) in entries.items():
        end = position + len(content)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
        body += content
    header["__metadata__"] = {"sha256": hashlib.sha256(body).hexdigest()}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight
    return len(text).to_bytes(8, "little") + text + bytes(body)


def open_packed(path: Path) -> safe_open:
    """Open a file of `pack`.

    Parameters
    ----------
    path : Path

    Returns
    -------
    safe_open

    Raises
    ------
    CheckpointError
        If it is not what `pack` made.
    """
    try:
        handle = safe_open(path, framework="pt")
        promised = (handle.metadata() or {}).get("sha256")
        with path.open("rb") as file:
            file.seek(int.from_bytes(file.read(8), "little"), os.SEEK_CUR)
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if found != promised:
        raise CheckpointError(f"{path} is damaged: sha256 {found}, expected {promised}")
    return handle
