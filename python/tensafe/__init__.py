"""LoRA adapters applied to encrypted hidden states: the server that holds A never sees a hidden state.

>>> adapter = tensafe.load_peft("path/to/peft_directory")
>>> server = tensafe.Server(adapter)
>>> session = tensafe.Client(server).connect(server)
>>> delta = session.delta("self_attn.q_proj", h)       # h: [d] or [tokens, d]
"""

from . import errors
from ._core import __version__
from .adapter import Adapter, Site, load_peft
from .errors import (AdapterChangedError, ClosedError, ConnectionLost, EncodingError, Error, FileError, FormatError,
                     ParameterError, QueryLimitError, RangeExceededError, RateLimitError, RefusedError, ShapeError,
                     SignatureError, UnsupportedError)
from .model import (Client, Query, Server, ServerSession, Session, connect, estimate, fresh_nonce,
                    parameter_sets)
from .trace import trace

__all__ = ["Adapter", "AdapterChangedError", "Client", "ClosedError", "ConnectionLost", "EncodingError", "Error",
           "FileError", "FormatError", "ParameterError", "Query", "QueryLimitError", "RangeExceededError",
           "RateLimitError", "RefusedError", "Server", "ServerSession", "Session", "ShapeError", "SignatureError", "Site",
           "UnsupportedError", "__version__", "connect", "errors", "estimate", "fresh_nonce", "load_peft",
           "parameter_sets", "trace"]
