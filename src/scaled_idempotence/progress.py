"""One progress bar for everything that takes long."""

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
    return tqdm(items, desc=description, unit=unit, **({} if show else {"disable": True}))
