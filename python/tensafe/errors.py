"""What this package raises. Every error of its own is an `Error`, and the built-in exception that fits."""

from typing import Any


class Error(Exception):
    """Base of all errors of this package.

    answered, partial: if a call for several hidden states had answers already, which and what (`Session.delta`).
    """

    answered: Any = None
    partial: Any = None


class ParameterError(Error, ValueError):
    """A parameter set, name or option that the operation cannot work with."""


class ShapeError(Error, ValueError):
    """A number of entries, rows or columns that does not fit its counterpart."""


class EncodingError(Error, ValueError):
    """A value that cannot be encrypted: NaN or infinite."""


class FormatError(Error, ValueError):
    """A file or message that is malformed."""


class RangeExceededError(Error, ArithmeticError):
    """An answer passed an average-case range: its value is lost. Ask again with a larger `overflow_margin`."""


class FileError(Error, OSError):
    """The operating system refused to open, read or write a file."""


class UnsupportedError(Error, RuntimeError):
    """Well-formed input that asks for what this package does not do."""


class SignatureError(Error, RuntimeError):
    """A signature that is missing, does not fit, or is not by somebody who is trusted."""


class ClosedError(Error, RuntimeError):
    """The session is closed."""


class ConnectionLost(Error, ConnectionError):
    """The server cannot be reached, or went away, and did not come back in time."""


class RefusedError(Error, RuntimeError):
    """The server said no; the session goes on, if there was one.

    code: why, as in docs/service.md.  retry_after: seconds until it is worth trying again, or None.
    """

    code = "internal"
    retry_after = None


class RateLimitError(RefusedError):
    """Too many requests in too short a time."""

    code = "rate_limit"


class QueryLimitError(RefusedError):
    """This client has had all the answers that it gets of this adapter, or fewer are left than a call asks for."""

    code = "query_limit"


class AdapterChangedError(Error, RuntimeError):
    """After a reconnection the server has another adapter under this name: begin again."""
