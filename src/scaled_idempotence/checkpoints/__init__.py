"""Where factors come from: layouts, one reader a file format, and the bundled models."""

import warnings

from tqdm import TqdmWarning

# transformers and the hub's client import tqdm.auto, which in a notebook without ipywidgets warns
# of it, once. That first import is here: a remark on bars that the page does not have is noise.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", TqdmWarning)
    import tqdm.auto  # noqa: F401
