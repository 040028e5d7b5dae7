"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import threading
import time


def end_with_parent(parent: int) -> None:
    """End this process within a second after its parent, however that one ended.

    Parameters
    ----------
    parent : int
        The parent's id, as the parent itself told: asked here, it might be gone already.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # what is half-written is in a file of its own, and what waits does not matter

    threading.Thread(target=watch, daemon=True).start()
