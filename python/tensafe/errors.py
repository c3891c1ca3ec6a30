"""Defines what this package raises. Each of its errors is an `Error` and the built-in exception that fits."""

from typing import Any


class Error(Exception):
    """Base of all errors of this package.

    answered, partial: the answers that a call for several hidden states had before it failed (`Session.delta`).
    """

    answered: Any = None
    partial: Any = None


class ParameterError(Error, ValueError):
    """The operation cannot work with a parameter set, name or option."""


class ShapeError(Error, ValueError):
    """A number of entries, rows or columns does not fit its counterpart."""


class EncodingError(Error, ValueError):
    """A value is NaN or infinite and cannot be encrypted."""


class FormatError(Error, ValueError):
    """A file or message is malformed."""


class RangeExceededError(Error, ArithmeticError):
    """An answer passed an average-case range: its value is lost. Ask again with a larger `overflow_margin`."""


class FileError(Error, OSError):
    """The operating system refused to open, read or write a file."""


class UnsupportedError(Error, RuntimeError):
    """Well-formed input asks for what this package does not do."""


class SignatureError(Error, RuntimeError):
    """A signature is missing, does not fit, or is not by somebody who is trusted."""


class ClosedError(Error, RuntimeError):
    """The session is closed."""


class ConnectionLost(Error, ConnectionError):
    """The server cannot be reached, or went away, and did not come back in time."""


class RefusedError(Error, RuntimeError):
    """The server refused a request; the session goes on, if there was one.

    code: the reason, as in docs/service.md.
    retry_after: the seconds until it is worth trying again, or None.
    """

    code = "internal"
    retry_after = None


class RateLimitError(RefusedError):
    """This client sent too many requests in too short a time, or (`unavailable`) the server cannot count them now."""

    code = "rate_limit"


class QueryLimitError(RefusedError):
    """This client may ask this adapter no more, or fewer answers are left than a call asks for."""

    code = "query_limit"


class AdapterChangedError(Error, RuntimeError):
    """The server has another adapter under this name after a reconnection: begin again."""
