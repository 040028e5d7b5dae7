"""Progress bars for everything that takes long."""

from __future__ import annotations

from collections.abc import Iterable

from tqdm import tqdm


def progress_bar(items: Iterable, description: str, unit: str, show: bool) -> tqdm:
    """Wrap items in a bar on the error stream.

    Parameters
    ----------
    items : iterable
        With a length.
    description, unit : str
    show : bool
        False hides the bar. True leaves it to tqdm, whose ``TQDM_DISABLE`` then still counts: in a
        page of the book a bar would be noise.

    Returns
    -------
    tqdm
    """
    # Plain text and not tqdm.auto: notebooks without ipywidgets would print a warning instead.
    return _bar(show, iterable=items, desc=description, unit=unit)


def byte_bar(total: int, description: str, show: bool) -> tqdm:
    """Make a bar that counts bytes; work that ends within a second shows none.

    Parameters
    ----------
    total : int
        Bytes.
    description : str
    show : bool
        As for `progress_bar`.

    Returns
    -------
    tqdm
        To be used as a context, and told of bytes with ``update``.
    """
    shape = {"unit": "B", "unit_scale": True, "leave": False, "delay": 1}
    return _bar(show, total=total, desc=description, **shape)


def _bar(show: bool, **options) -> tqdm:
    if not show:
        options["disable"] = True  # False is never handed on: it would overrule the environment
    return tqdm(**options)
