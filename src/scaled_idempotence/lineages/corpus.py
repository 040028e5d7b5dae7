"""Text that every CPython ships: the source of its own standard library."""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from ..errors import ScaledIdempotenceError

#: Every so many modules, one is held out of training.
HELD_OUT_EVERY = 16


@dataclass(frozen=True)
class Corpus:
    """Bytes to train on and bytes to test on.

    Attributes
    ----------
    training, held_out : (n,) ndarray of uint8
        Of different modules.
    sha256 : str
        Of both. Each release of Python has its own text.
    """

    training: np.ndarray
    held_out: np.ndarray
    sha256: str


def read_corpus(folder: str | Path | None = None) -> Corpus:
    """Read the top-level modules of the standard library, in the order of their names.

    Parameters
    ----------
    folder : str or Path, optional
        Another folder of modules.

    Returns
    -------
    Corpus

    Raises
    ------
    ScaledIdempotenceError
        If there are too few modules, as where the library is packed in an archive.
    """
    return _read(Path(folder or sysconfig.get_path("stdlib")))


@cache
def _read(folder: Path) -> Corpus:
    # These are written by the build, or by whoever packaged this Python: they differ between
    # installations of one release.
    modules = [
        path
        for path in sorted(folder.glob("*.py"), key=lambda path: path.name)
        if "sysconfig" not in path.name and path.name != "sitecustomize.py"
    ]
    if len(modules) < HELD_OUT_EVERY:
        raise ScaledIdempotenceError(
            f"{folder} holds {len(modules)} modules, expected the source of the standard library; "
            "this Python seems to keep it in an archive: use an ordinary installation"
        )
    contents = [path.read_bytes() for path in modules]
    held_out = b"".join(contents[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY])
    training = b"".join(text for n, text in enumerate(contents, 1) if n % HELD_OUT_EVERY)
    digest = hashlib.sha256(len(training).to_bytes(8, "little") + training + held_out)
    return Corpus(
        np.frombuffer(training, dtype=np.uint8),
        np.frombuffer(held_out, dtype=np.uint8),
        digest.hexdigest(),
    )
