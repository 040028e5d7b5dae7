"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(
    path: Path, *, mode: int = 0o644, scratch: Path | None = None, prefix: str = ".part-"
) -> Iterator[Path]:
    """Give the path of an empty file, which takes a place in one step if all goes well.

    Parameters
    ----------
    path : Path
        The place; its folder must be there.
    mode : int
        Permissions. The default lets a group read; `tempfile`'s own would not.
    scratch : Path, optional
        Folder of the unfinished file, on the same disk; the place's own if left out. What is
        killed in the middle leaves that file behind.
    prefix : str
        Of the unfinished file's name.

    Yields
    ------
    Path
        To be written. After an error it is gone, and the place is as it was.
    """
    descriptor, name = tempfile.mkstemp(dir=scratch or path.parent, prefix=prefix)
    os.close(descriptor)
    unfinished = Path(name)
    try:
        yield unfinished
        unfinished.chmod(mode)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
