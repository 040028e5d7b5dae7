"""Errors that are meant to be read by the person who runs the tool."""


class ScaledIdempotenceError(Exception):
    """Base of every error that this package raises about its input or surroundings.

    The message says what was got, what was expected and what to do; the command line prints it
    without a traceback.
    """


class CheckpointError(ScaledIdempotenceError, ValueError):
    """A checkpoint cannot be opened or does not hold what its configuration promises."""


class FetchError(ScaledIdempotenceError, OSError):
    """Weights could not be brought to the cache folder."""


class NotebookError(ScaledIdempotenceError, ValueError):
    """A notebook, or a parameter of one, does not exist."""


class CannotRun(ScaledIdempotenceError):
    """A model's factors can be read, but the model itself cannot be run here."""
