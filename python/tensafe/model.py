"""Holds client, server and the session between them."""

import collections.abc
import copy
import functools
import os
import re
import threading
import warnings
from typing import Any, Callable, Mapping, Optional, Union

from . import _core
from ._arrays import as_array
from .adapter import Adapter, Site, count, expect, find, flag, number, values_of
from .errors import ParameterError, ShapeError, UnsupportedError
from .trace import key_of, mark_seed

parameter_sets: tuple = _core.parameter_sets
_MODES = ("client_held_b", "blind")
CLAMPED = "{} entries of deltas were beyond the largest number of their type, and became that"


def _options(parameters, rows, tokens_ahead, mode, trusts_clients):
    for what, got, known in (("parameter set", parameters, parameter_sets), ("mode", mode, _MODES)):
        if expect(got, str, what, "a name") not in known:
            raise ParameterError(f"got the {what} {got!r}, expected one of {', '.join(known)}")
    return (parameter_sets.index(parameters), count(0 if rows is None else rows, "rows"),
            count(tokens_ahead, "tokens_ahead"), mode == "blind", flag(trusts_clients, "trusts_clients"))


def check_gains(who, groups, base_norms):
    """Raises ParameterError for a site whose gain passes its norm in `base_norms`; that of others is at most 2^20."""
    gains = {name: gain for *_, sites in groups for name, *_, gain in sites}
    norms = expect(base_norms or {}, collections.abc.Mapping, "base_norms", "a mapping from sites to norms")
    if norms and not norms.keys() & gains.keys():
        raise ParameterError(f"{who}: base_norms: got no site of the adapter, expected names as {next(iter(gains))!r}")
    for name, gain in gains.items():
        if not gain <= (most := number(norms.get(name, gain), f"base_norms of site {name!r}")):
            raise ParameterError(f"{who}: site {name!r}: got a gain of {gain:.6g}, expected at most {most:.6g}, the "
                                 "base layer's norm: with larger base_norms it passes")


class _Secret:
    """Base of keys and sessions, which stay in their process."""

    __slots__ = ()

    def __reduce__(self):
        raise TypeError(f"{type(self).__name__} holds secrets, which are not pickled or copied")


class Server:
    """A packed adapter, ready to answer encrypted hidden states. Thread-safe; cannot hold a secret key.

    adapter: the adapter as it was read.
    parameters: one of `tensafe.parameter_sets`.
    mode: "client_held_b" (the client multiplies by B) or "blind" (the server holds B too).
    rows: the rows of A in a plaintext, 4 or 32; by default 4, and 32 in mode "blind".
    tokens_ahead: the tokens of a block, whose answers are prepared before the tokens exist, or 0.
    protect: a function of a site that says whether the server keeps it to itself; the client gets others whole.
    input_of: a function of a site's name that names its input, whose sites share requests; by default what names tell.
    trusts_clients: whether `tokens_ahead` may pass what protects A from clients that cheat.
    column_scales: whether columns of A are scaled by powers of two, which clients see, so that huge entries of hidden
        states that A hardly reads (massive activations) cost no precision.
    mark_key: the owner's 32 secret random bytes, or the file that `tensafe-server --mark-key` takes. Then each tenant has
        marks of its own in B, by which a copy names it (docs/security.md), and is served by what `of` returns.
    name: with mark_key, the adapter's name, on which marks depend: the same in all its versions.
    mark_memory: the MiB for packed rows of tenants' A, which then has marks too (docs/service.md, "Whose copy it is").
    Raises ParameterError, ShapeError or EncodingError for an adapter or options that cannot be packed or marked, and
    FileError or FormatError for a mark_key that cannot be read.
    """

    def __init__(self, adapter: Adapter, parameters: str = "private_n4096", *, mode: str = "client_held_b",
                 rows: Optional[int] = None, tokens_ahead: int = 0,
                 protect: Optional[Callable[[Site], bool]] = None, input_of: Optional[Callable[[str], str]] = None,
                 trusts_clients: bool = False, column_scales: bool = False, name: Optional[str] = None,
                 mark_key: "Union[bytes, str, os.PathLike[str], None]" = None, mark_memory: Optional[int] = None) -> None:
        if mark_key is None and (name is not None or mark_memory is not None):
            raise ParameterError(f"Server: got {'name' if mark_memory is None else 'mark_memory'} without mark_key, "
                                 "expected both: marks come from the key")
        if mark_key is not None and mode == "blind":
            raise ParameterError("Server: got a mark_key and the mode 'blind', expected 'client_held_b': marks are in B, "
                                 "which clients hold, and in A's rows")
        if mark_memory is not None and not count(mark_memory, "mark_memory"):
            raise ParameterError("mark_memory: got 0, expected 1 MiB or more; without it A has no marks")
        self._seed_of = None if mark_key is None else functools.partial(
            mark_seed, key_of(mark_key, None)[0], expect(name, str, "name", "the adapter's name, with mark_key"))
        sites = values_of(adapter)
        names = None if protect is None else [name for name, site in adapter.items() if protect(site)]
        inputs = {name: expect((input_of or _core.shared_input)(name), str, "input_of", "a name") for name in adapter}
        self._core = _core.Server(sites, *_options(parameters, rows, tokens_ahead, mode, trusts_clients), names, inputs,
                                  flag(column_scales, "column_scales"), mark_key is not None, (mark_memory or 0) << 20)
        self.mode = mode

    @property
    def parameters(self) -> str:
        """The name of the parameter set."""
        return self._core.parameters

    @property
    def layout(self) -> bytes:
        """The shapes and names of the sites, as a message for the client."""
        return self._core.layout_message()

    @property
    def held(self) -> bytes:
        """The client's part of the adapter (B, unless the mode is "blind"), as a message."""
        return self._core.held_message()

    def of(self, tenant: str) -> "Server":
        """Returns the server of a tenant, who answers for a copy. It is light, and shares all memory with this one.

        tenant: its name, or the 64 digits of the key of a client without one, as in the list that `tensafe-server` takes.
        Raises ParameterError for another name, without mark_key, and for the server of a tenant.
        """
        if self._seed_of is None:
            raise ParameterError("of: got no mark_key, expected a Server with one, and not a tenant's")
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}|key [0-9a-f]{64}", expect(tenant, str, "tenant", "a name")):
            raise ParameterError(f"of: got the tenant {tenant!r}, expected 1 to 64 letters, digits, -, _ and .")
        made, owner = copy.copy(self), f"key {tenant}" if re.fullmatch("[0-9a-f]{64}", tenant) else tenant
        made._core, made._seed_of = self._core.of(self._seed_of(owner)), None
        return made

    def open(self, nonce: bytes, key: bytes) -> "ServerSession":
        """Opens a session for one client.

        nonce: the 32 bytes of `tensafe.fresh_nonce()` that the server drew for this client and session.
        key: the client's `rerandomization_key(nonce)`.
        Raises ParameterError for the key of another nonce, FormatError for a malformed one.
        """
        expect(nonce, bytes, "nonce", "bytes")
        return ServerSession(self._core.open(nonce, expect(key, bytes, "key", "bytes")))

    def __repr__(self):
        sites = sum(len(sites) for _, _, sites in self._core.groups)
        ahead = self._core.tokens_ahead
        return (f"Server({sites} sites, {self.parameters}, {self.mode}, {self._core.memory / 1e6:.1f} MB"
                + (f", {ahead} tokens ahead)" if ahead else ")"))


class ServerSession(_Secret):
    """Answers the requests of one client, in any thread, one at a time.

    It limits nothing: count before `answer`. A request of `Client.encrypt` that comes twice is answered twice, with
    what two answers tell of A; one of a `Session` gets the same reply.
    """

    __slots__ = ("_core", "_lock")

    def __init__(self, core):
        self._core = core
        self._lock = threading.Lock()

    def answer(self, request: bytes) -> bytes:
        """Returns the reply to a request. Raises for one that is malformed or another set's; nothing is lost then."""
        with self._lock:
            return self._core.answer(expect(request, bytes, "request", "bytes"))


class Query(_Secret):
    """An encrypted hidden state: `request` goes to the server, and the query reads the reply."""

    __slots__ = ("_core", "sites")

    def __init__(self, core, sites):
        self._core = core
        self.sites = sites

    @property
    def request(self) -> bytes:
        """The message for the server."""
        return self._core.request()


class _Sites:
    """Finds group and place of a model's sites by name."""

    def __init__(self, groups):
        self.groups = [tuple(name for name, *_ in sites) for _, _, sites in groups]
        self.places = {name: (g, s) for g, names in enumerate(self.groups) for s, name in enumerate(names)}

    def place(self, name):
        return self.places[find(name, self.places)]


class Client(_Secret):
    """Owns a fresh secret key, which cannot be read.

    layout, held: the server's messages `Server.layout` and `Server.held`, or a `Server` of this process alone.
    base_norms: by site the Frobenius norm of its base layer's weight, which the site's gain, about how much longer than
        a hidden state its delta may be, must not pass; of other sites 2^20 (docs/security.md).
    Raises FormatError for malformed messages, ParameterError or ShapeError for those of no server.
    """

    __slots__ = ("_core", "_sites")

    def __init__(self, layout: Union[bytes, Server], held: Optional[bytes] = None, *,
                 base_norms: Optional[Mapping[str, float]] = None) -> None:
        self._core = (layout._core.client() if isinstance(layout, Server) and held is None else
                      _core.Client(expect(layout, bytes, "layout", "Server.layout"),
                                   expect(held, bytes, "held", "Server.held")))
        check_gains("client", self._core.groups, base_norms)
        self._sites = _Sites(self._core.groups)

    @property
    def parameters(self) -> str:
        """The name of the parameter set."""
        return self._core.parameters

    @property
    def sites(self) -> tuple:
        """The names of the sites."""
        return tuple(self._sites.places)

    def rerandomization_key(self, nonce: bytes) -> bytes:
        """Makes the key with which the server makes encryptions of zero that hide A, once for each session."""
        return self._core.rerandomization_key(expect(nonce, bytes, "nonce", "bytes"))

    def encrypt(self, site: str, h: Any, *, overflow_margin: float = 1.0) -> Query:
        """Encrypts one hidden state, shape [d], for the site and those that share its input.

        Never send a request twice: encrypt again. Raises KeyError, TypeError, ShapeError or EncodingError.
        """
        group, _ = self._sites.place(site)
        array, bfloat16, _ = as_array(h)
        margin = number(overflow_margin, "overflow_margin")
        return Query(self._core.encrypt(group, array, bfloat16, margin), self._sites.groups[group])

    def decrypt(self, query: Query, reply: bytes) -> dict:
        """Returns the deltas by site from the reply to this query: float64, shape [d_out]."""
        expect(query, Query, "query", "what Client.encrypt gave")
        return dict(zip(query.sites, self._core.decrypt(query._core, expect(reply, bytes, "reply", "bytes"))))

    def connect(self, to: Union[Server, ServerSession, Callable[[bytes], bytes]]) -> "Session":
        """Opens a session with a `Server` of this process, or with one that is elsewhere.

        to: a Server; a ServerSession, which must be this client's; or a function that sends a request (bytes) to a
            `ServerSession.answer` and returns its reply (bytes). It is called once for each message, and the next one
            waits for the reply. What it raises comes through, except a RefusedError with a `code` after which the
            session encrypts anew (docs/python.md).
        """
        to = to.answer if isinstance(to, ServerSession) else to
        expect(to, (Server, collections.abc.Callable), "to", "a Server, a ServerSession or a function")
        return Session(self._core.connect(to._core if isinstance(to, Server) else to))

    def __repr__(self):
        return f"Client({len(self.sites)} sites, {self.parameters})"


class Session(_Secret):
    """Turns hidden states into deltas with an encrypted adapter. Threads may share it; one is served at a time.

    A session does not work in the child of a fork and raises UnsupportedError there.
    """

    __slots__ = ("_core", "_sites", "_is_closed")

    def __init__(self, core):
        self._core = core
        self._sites = _Sites(core.groups)
        self._is_closed = False

    @property
    def sites(self) -> tuple:
        """The names of the sites."""
        return tuple(self._sites.places)

    @property
    def bad_states(self) -> int:
        """The number of hidden states so far for which 0 was sent, with `zeros_for_nan`."""
        return self._core.bad_states

    @property
    def clamped_deltas(self) -> int:
        """The number of entries of deltas so far beyond the largest number of their type, which they became."""
        return self._core.clamped_deltas

    @property
    def queries_left(self) -> Optional[int]:
        """The number of hidden states that limits of this client alone leave, of the input with the fewest.

        None if there are no limits, in process, and over a transport of your own, whatever its server limits. Limits of
        an address or of all clients are not counted here.
        """
        return self._core.queries_left

    @property
    def traffic(self) -> Optional[tuple]:
        """The bytes (up, down) of all connections of this session so far, frames and handshakes included.

        None in process and over a transport of your own.
        """
        return self._core.traffic

    @property
    def round_trip(self) -> Optional[float]:
        """The seconds of the newest connection's first round trip, more if the server is busy; None as of `traffic`."""
        return self._core.round_trip

    def delta(self, site: str, x: Any, *, overflow_margin: float = 1.0, zeros_for_nan: bool = False) -> Any:
        """Returns what the adapter adds to the site's output for x.

        site: the name of a site, or its last parts.
        x: hidden states, shape [..., d], of numpy or torch (CPU), or in whatever numpy reads; floats only: float16,
           bfloat16, float32, or float64, which is rounded to float32.
        overflow_margin: 2, 4 and so on for another try after RangeExceededError.
        zeros_for_nan: whether a row with NaN or infinity is no error: 0 is sent, so that the server sees no difference,
           and its delta is 0.
        The deltas have shape [..., d_out] and the kind and type of x. An entry of A x is off by about
        1e-4 norm(row of A) norm(x) / sqrt(d) (`tensafe.estimate`), so a few huge entries of x cost precision unless the
        server has `column_scales`; docs/security.md says what must not be shown to the server.
        Raises TypeError, ShapeError, EncodingError, and QueryLimitError if limits of this client leave the site's
        input fewer than the rows of x, all before anything is sent; RangeExceededError, ClosedError. What is raised
        after rows were answered, KeyboardInterrupt too, has `answered`, a bool array of shape [...], and `partial`:
        what the call would have returned, with NaN in all other rows.
        Warns (RuntimeWarning) if `clamped_deltas` rose, but not with zeros_for_nan: no server may see a difference.
        """
        group, place = self._sites.place(site)
        return self._ask(group, place, 1, x, zeros_for_nan, overflow_margin, lambda deltas: deltas[0])

    def deltas(self, site: str, x: Any, *, overflow_margin: float = 1.0, zeros_for_nan: bool = False) -> dict:
        """Returns the deltas by name of all sites that share this one's input, as q, k and v do: x goes up once."""
        group, _ = self._sites.place(site)
        names = self._sites.groups[group]
        return self._ask(group, 0, len(names), x, zeros_for_nan, overflow_margin,
                         lambda deltas: dict(zip(names, deltas)))

    def _ask(self, group, first, sites, x, zeros_for_nan, overflow_margin, result):
        array, bfloat16, back = as_array(x)
        partial: list = []
        before = self.clamped_deltas
        try:
            deltas = self._core.deltas(group, first, sites, array, bfloat16, flag(zeros_for_nan, "zeros_for_nan"),
                                       number(overflow_margin, "overflow_margin"), partial)
        except BaseException as e:
            if partial:
                e.answered, e.partial = partial[0], result([back(delta) for delta in partial[1]])  # type: ignore
            raise
        if (clamped := self.clamped_deltas - before) and not zeros_for_nan:
            warnings.warn(CLAMPED.format(clamped), RuntimeWarning, stacklevel=3)
        return result([back(delta) for delta in deltas])

    def _shapes(self):
        return {name: (d, d_out, group) for group, (_, d, sites) in enumerate(self._core.groups)
                for name, _, d_out, _ in sites}

    def close(self) -> None:
        """Ends the session; calls after it raise ClosedError."""
        self._core.close()
        self._is_closed = True

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"Session({len(self._sites.places)} sites{', closed' if self._is_closed else ''})"


def fresh_nonce() -> bytes:
    """Returns 32 fresh random bytes, which the server draws for each session of a client."""
    return _core.fresh_nonce()


_Path = Union[str, "os.PathLike[str]"]


def connect(url: str, adapter: str, *, ca: _Path = "", identity: Optional[_Path] = None,
            pin: Optional[_Path] = None, publisher: Optional[str] = None, oldest_revision: int = 0,
            tokens_ahead: int = 128, timeout: float = 60.0,
            total_timeout: float = 180.0, insecure_plaintext: bool = False, traceparent: str = "",
            base_norms: Optional[Mapping[str, float]] = None) -> Session:
    """Opens a session with a `tensafe-server`, with a fresh secret key, and fetches the client's part of the adapter.

    The session goes on over connections that break.
    url: the address, "wss://host:port", which is reached through the proxy of HTTPS_PROXY unless NO_PROXY has the host.
    adapter: the adapter's name on the server.
    ca: the file of the certificates that are trusted, and no others.
    identity: the file of this client's Ed25519 key, made if there is none; by default a fresh key.
    pin, publisher, oldest_revision: what the server must show of the adapter (docs/keys.md).
    tokens_ahead: the most hidden states of a block that is used; 1: each hidden state goes alone.
    total_timeout: the seconds for all that `connect`, or a call from one answer to the next, may wait for: a server that
        starts again, limits of rates, silence. The logger "tensafe" says what is waited for.
    timeout: the seconds of them for connecting once, and for a request with its reply: then another connection is tried.
    insecure_plaintext: whether "ws://" is allowed.
    traceparent: what the server's log shall have with this session, as W3C Trace Context has it, version 00.
    base_norms: as for `Client`.
    Raises ConnectionLost, RefusedError, SignatureError, ParameterError; calls of the session also raise RateLimitError,
    QueryLimitError, AdapterChangedError.
    """
    if not hasattr(_core, "connect"):
        raise UnsupportedError("connect: this build has no network: it was made without OpenSSL 3 or Boost")
    for name, value in (("url", url), ("adapter", adapter), ("publisher", publisher or ""), ("traceparent", traceparent)):
        expect(value, str, name, "str")
    given = {"identity": identity, "pin": pin, "publisher": publisher}
    for name, value in given.items():
        if value is not None and not os.fspath(value):
            raise ParameterError(f"connect: {name}: got nothing, expected a value, or None")
    if not ca and url.startswith("wss:"):
        raise ParameterError(f"connect: {url}: got no ca, expected ca= with the server's certificate.pem")
    session = Session(_core.connect(url, adapter, os.fspath(ca or ""), *(os.fspath(each or "") for each in given.values()),
                                    count(oldest_revision, "oldest_revision"),
                                    flag(insecure_plaintext, "insecure_plaintext"),
                                    count(tokens_ahead, "tokens_ahead"), number(timeout, "timeout"),
                                    number(total_timeout, "total_timeout"), traceparent))
    check_gains("connect", session._core.groups, base_norms)
    return session


def estimate(what: Union[Adapter, Site, tuple], parameters: str = "private_n4096", *, mode: str = "client_held_b",
             rows: Optional[int] = None, tokens_ahead: int = 0, input_of: Optional[Callable[[str], str]] = None,
             trusts_clients: bool = False) -> dict:
    """Returns the cost of one hidden state, or with `tokens_ahead` of one whole block of them.

    what: an Adapter or Site, or a shape (rank, d_in, d_out). For an Adapter, bytes are sums over inputs, each of which
        goes up once for the sites that share it, and errors are the largest.
    The result has bytes_up and bytes_down, online_up and online_down (of a token of a block once it is prepared),
    relative_error, and statistical_distance (between 2^20 replies and replies that show A h alone).
    Raises ParameterError for what a Server refuses.
    """
    if isinstance(what, Adapter):
        shapes = {}
        for site in what.values():
            rows_of, d_in, d_out = shapes.get(key := (input_of or _core.shared_input)(site.name), (0, site.d_in, 0))
            shapes[key] = (rows_of + site.rank, d_in, d_out + site.d_out)
        shapes = list(shapes.values())
    else:
        shapes = [(what.rank, what.d_in, what.d_out) if isinstance(what, Site) else expect(
            what, (tuple, list), "estimate", "an Adapter, a Site or (rank, d_in, d_out)")]
        if len(shapes[0]) != 3:
            raise ShapeError(f"estimate: got {len(shapes[0])} numbers, expected (rank, d_in, d_out)")
    total = {}
    options = _options(parameters, rows, tokens_ahead, mode, trusts_clients)
    for shape in shapes:
        cost = _core.cost(*(count(size, "size") for size in shape), *options)
        for key, value in cost.items():
            is_error = key in ("relative_error", "statistical_distance")
            total[key] = max(total.get(key, 0), value) if is_error else total.get(key, 0) + value
    return total
