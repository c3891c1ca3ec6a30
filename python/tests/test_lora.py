"""Adapter files, client, server and session."""

import array
import concurrent.futures
import copy
import json
import os
import pickle
import resource
import signal
import warnings

import numpy as np
import pytest

import tensafe
from conftest import QWEN, ROOT, connected, error, site, small_adapter, states, with_answers

Q, K, DOWN = "layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj", "layers.0.mlp.down_proj"


def test_adapter_of_a_file():
    adapter = tensafe.load_peft(QWEN)
    q = adapter["q_proj"]
    assert (q.rank, q.d_in) == (32, 2048) and q.a.shape == (32, 2048) and q.a.dtype == np.float32
    assert "q_proj" in adapter and "lm_head" not in adapter and len(adapter) == len(list(adapter))
    assert "rank=32, 2048 -> " in repr(adapter)
    h = states(4, 2048)
    for options in ({}, {"parameters": "quantum_n4096", "tokens_ahead": 32, "mode": "blind"}):  # of docs/python.md
        assert error(connected(adapter, **options).delta("q_proj", h), q.delta(h)) < 4e-4


@pytest.mark.parametrize("parameters", tensafe.parameter_sets)
@pytest.mark.parametrize("options", [{}, {"mode": "blind"}, {"rows": 32}])
def test_deltas_are_those_of_plain_lora(parameters, options):
    adapter = small_adapter()
    h = states(3, 64)
    session = connected(adapter, parameters, **options)
    for name, got in session.deltas(Q, h).items():
        assert error(got, adapter[name].delta(h)) < 2e-3
    assert error(session.delta("down_proj", states(96)), adapter[DOWN].delta(states(96))) < 2e-3


@pytest.mark.parametrize("tokens_ahead", [2, 8, 32])
def test_blocks_of_tokens(adapter, tokens_ahead):
    session = connected(adapter, tokens_ahead=tokens_ahead)
    h = states(2 * tokens_ahead + 1, 64)
    assert error(session.delta(Q, h), adapter[Q].delta(h)) < 1e-3
    assert error(session.delta(K, h[0]), adapter[K].delta(h[0])) < 2e-3


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-3), (np.float32, 1e-3), (np.float16, 3e-3)])
@pytest.mark.parametrize("shape", [(64,), (1, 64), (5, 64), (2, 3, 64), (0, 64)])
def test_types_and_shapes(adapter, session, dtype, tolerance, shape):
    h = states(*shape).astype(dtype)
    got = session.delta(Q, h)
    assert got.dtype == dtype and got.shape == shape[:-1] + (48,)
    if h.size:
        assert error(got, adapter[Q].delta(h)) < tolerance


def test_arrays_of_every_layout(adapter, session):
    wide = states(6, 128)
    read_only = states(2, 64)
    read_only.setflags(write=False)
    packed = np.zeros(3, np.dtype([("h", "f4", 64), ("byte", "u1")]))  # rows that are not in step
    packed["h"] = states(3, 64)
    for h in (packed["h"], wide[:, :64], wide[::2, ::2], wide[:, 63::-1], np.asfortranarray(states(4, 64)), read_only,
              states(3, 64).astype(">f4"), np.frombuffer(b"\0" + states(64).tobytes(), np.uint8)[1:].view(np.float32)):
        assert error(session.delta(Q, h), adapter[Q].delta(h)) < 1e-3
    for h in (memoryview(states(64)), array.array("f", states(64)), states(64).tolist()):
        assert error(session.delta(Q, h), adapter[Q].delta(np.asarray(h))) < 1e-3


def test_messages(adapter):
    client, answers = with_answers(adapter, tokens_ahead=4)
    h = states(64)
    query = client.encrypt(Q, h)
    deltas = client.decrypt(query, answers.answer(query.request))
    assert set(deltas) == {Q, K} and error(deltas[K], adapter[K].delta(h)) < 1e-3

    sent = []

    def carry(request):
        sent.append(len(request))
        return answers.answer(request)

    session = client.connect(carry)
    many = states(5, 64)
    assert error(session.delta(Q, many), adapter[Q].delta(many)) < 1e-3
    assert len(sent) == 7  # two blocks of four tokens, five tokens

    for bad in (b"", b"TSHE", query.request[:-1], query.request[:60] + b"x" + query.request[61:]):
        with pytest.raises(tensafe.FormatError):
            answers.answer(bad)
    with pytest.raises(TypeError, match="returned str, expected bytes"):
        client.connect(lambda request: "no").delta(Q, h)
    with pytest.raises(OSError, match="gone"):
        client.connect(lambda request: (_ for _ in ()).throw(OSError("gone"))).delta(Q, h)
    again = client.connect(lambda request: again.delta(Q, h))
    closing = client.connect(lambda request: closing.close())
    for using_itself in (again, closing):
        with pytest.raises(tensafe.ParameterError, match="its transport"):
            using_itself.delta(Q, h)
    assert "closed" not in repr(closing)
    with pytest.raises(tensafe.FormatError, match="got a reply to request"):
        late = answers.answer(client.encrypt(Q, h).request)
        client.connect(lambda request: late).delta(Q, h)
    with pytest.raises(tensafe.ParameterError, match="another server nonce"):
        tensafe.Server(adapter).open(tensafe.fresh_nonce(), client.rerandomization_key(tensafe.fresh_nonce()))
    assert error(session.delta(Q, h), adapter[Q].delta(h)) < 1e-3  # nothing was lost


@pytest.mark.parametrize("tokens_ahead", [0, 4])
def test_a_message_that_is_sent_again_gets_its_reply_again(adapter, tokens_ahead):
    client, answers = with_answers(adapter, tokens_ahead=tokens_ahead)

    def carry(request):  # which loses the first reply
        lost, again = answers.answer(request), answers.answer(request)
        assert again == lost
        return again

    session = client.connect(carry)
    h = states(6, 64)
    assert error(session.delta(Q, h), adapter[Q].delta(h)) < 1e-3
    requests = []

    def fails(request):  # when it was answered
        if len(requests) < 2:
            requests.append(request)
            answers.answer(request)
            raise OSError("gone")
        return answers.answer(request)

    session = client.connect(fails)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            session.delta(Q, h)
    assert (requests[0] == requests[1]) == (tokens_ahead > 0)  # a block's request is the same, a state's is not
    assert error(session.delta(Q, h), adapter[Q].delta(h)) < 1e-3
    with pytest.raises(tensafe.RefusedError, match="not above those") as caught:  # acknowledged long ago
        answers.answer(requests[0])
    assert caught.value.code == "replayed"


@pytest.mark.parametrize("tokens_ahead", [0, 4])
def test_sessions_of_one_client_share_a_server_session(adapter, tokens_ahead):
    client, answers = with_answers(adapter, tokens_ahead=tokens_ahead)
    sessions = [client.connect(answers) for _ in range(3)]
    for k in range(9):
        h = states(1 + k % 4, 64, seed=k)
        assert error(sessions[k % 3].delta(Q, h), adapter[Q].delta(h)) < 2e-3


def test_server_session_that_is_replaced(adapter):
    server = tensafe.Server(adapter, tokens_ahead=8)
    client = tensafe.Client(server.layout, server.held)

    def opened():
        nonce = tensafe.fresh_nonce()
        return server.open(nonce, client.rerandomization_key(nonce))

    now = opened()
    session = client.connect(lambda request: now.answer(request))
    h = states(3, 64)
    session.delta(Q, h)
    now = opened()  # which does not know the block
    assert error(session.delta(Q, h), adapter[Q].delta(h)) < 1e-3


def counting_out(answers, count):
    """A transport that answers so many requests, and then says that there are no more."""
    left = [count]

    def carry(request):
        left[0] -= 1
        if left[0] < 0:
            raise tensafe.QueryLimitError("no more")
        return answers.answer(request)

    return carry


def test_what_was_answered_before_an_error_is_kept(adapter):
    client, answers = with_answers(adapter)
    x = states(2, 3, 64)
    with pytest.raises(tensafe.QueryLimitError, match="no more") as caught:
        client.connect(counting_out(answers, 4)).deltas(Q, x)
    assert caught.value.answered.tolist() == [[True, True, True], [True, False, False]]
    assert caught.value.partial.keys() == {Q, K}
    for name, got in caught.value.partial.items():
        assert error(got[caught.value.answered], adapter[name].delta(x)[caught.value.answered]) < 2e-3
        assert np.isnan(got[~caught.value.answered]).all()

    for count, call in ((0, lambda s: s.delta(Q, x)), (9, lambda s: s.delta(Q, NAN))):  # nothing was answered
        with pytest.raises(tensafe.Error) as caught:
            call(client.connect(counting_out(answers, count)))
        assert caught.value.answered is None and caught.value.partial is None


@pytest.mark.parametrize("tokens_ahead", [0, 8])
def test_rows_before_one_that_passes_the_range_are_kept(tokens_ahead):
    adapter = tensafe.Adapter(tensafe.Site("q", np.ones((4, 256)), [[1] * 4]))
    session = connected(adapter, "minimal_n2048", tokens_ahead=tokens_ahead)
    x = states(4, 256).astype(np.float16)
    x[2] = 1
    with pytest.raises(tensafe.RangeExceededError, match="row 2 of 4") as caught:
        session.delta("q", x)
    assert caught.value.answered.tolist() == [True, True, False, False]
    assert caught.value.partial.dtype == np.float16 and np.isnan(caught.value.partial[2:]).all()
    assert error(caught.value.partial[:2], adapter["q"].delta(x[:2])) < 2e-2
    assert error(session.delta("q", x[2], overflow_margin=4), adapter["q"].delta(x[2])) < 2e-2


def test_what_was_answered_before_an_interrupt_is_kept(adapter):
    def interrupt(*_):
        raise KeyboardInterrupt

    session = connected(adapter)
    x = states(50_000, 64)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            session.delta(K, x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    answered = caught.value.answered
    assert 0 < (count := answered.sum()) < len(x) and answered[:count].all()
    assert error(caught.value.partial[:count], adapter[K].delta(x[:count])) < 2e-3
    assert np.isnan(caught.value.partial[count:]).all()
    assert error(session.delta(K, x[0]), adapter[K].delta(x[0])) < 2e-3  # the session goes on


NAN = states(3, 64)
NAN[1, 5] = np.nan


@pytest.mark.parametrize("call, kind, text", [
    (lambda s: s.delta(Q, np.zeros(64, np.int32)), TypeError, "got an array of int32, expected float16"),
    (lambda s: s.delta(Q, "words"), TypeError, "got an array of <U5"),
    (lambda s: s.delta(Q, np.float32(1)), tensafe.ShapeError, "got a single number"),
    (lambda s: s.delta(Q, states(63)), ValueError, "got 63 entries, expected 64"),
    (lambda s: s.delta(Q, NAN), tensafe.EncodingError, "entry 5 of row 1 of 3"),
    (lambda s: s.delta(Q, np.full(64, 1e300)), tensafe.EncodingError, "entry 0 of row 0"),
    (lambda s: connected(tensafe.Adapter(tensafe.Site("q", np.ones((4, 256)), [[1] * 4])), "minimal_n2048").delta(
        "q", np.ones(256)), tensafe.RangeExceededError, "with overflow_margin=2, then 4 and so on, or take the"),
    (lambda s: s.delta("o_proj", states(64)), KeyError, "'o_proj' is none of"),
    (lambda s: s.delta("proj", states(64)), KeyError, "none of"),
    (lambda s: s.delta(Q, states(64), overflow_margin=0), tensafe.ParameterError, "overflow margin"),
    (lambda s: tensafe.Server("adapter"), TypeError, "adapter: got str, expected a tensafe.Adapter"),
    (lambda s: tensafe.Server(small_adapter(), "n4096"), tensafe.ParameterError, "expected one of private_n4096"),
    (lambda s: tensafe.Server(small_adapter(), mode="open"), tensafe.ParameterError, "the mode 'open'"),
    (lambda s: tensafe.Server(small_adapter(), rows=3), tensafe.ParameterError, "expected 4 or 32"),
    (lambda s: tensafe.Server(small_adapter(), tokens_ahead=39), tensafe.ParameterError, "0 or 2 to 38"),
    (lambda s: tensafe.Server(small_adapter(), tokens_ahead=-1), tensafe.ParameterError, "tokens_ahead: got -1"),
    (lambda s: tensafe.Server(small_adapter(), protect=lambda s: False), tensafe.ShapeError, "protected"),
    (lambda s: tensafe.Site("q", np.ones((2, 8)), np.ones((8, 3))), tensafe.ShapeError, "site 'q': got A [2, 8] and B"),
    (lambda s: tensafe.Site("q", np.ones(8), [[1]]), tensafe.ShapeError, "A [8] and B [1, 1], expected [rank, d_in]"),
    (lambda s: tensafe.Site("q", [[1]], [[1], [2, 3]]), TypeError, "site 'q': b: got list, expected real numbers"),
    (lambda s: tensafe.Site("q", [[1j]], [[1]]), TypeError, "site 'q': a: got list, expected real numbers"),
    (lambda s: tensafe.Site("q", [[1]], [[1]], "2"), TypeError, "site 'q': scale: got str, expected a number"),
    (lambda s: tensafe.Site(2, [[1]], [[1]]), TypeError, "site: name: got int, expected str"),
    (lambda s: tensafe.Adapter([site("q"), site("q")]), tensafe.ParameterError, "two sites 'q'"),
    (lambda s: tensafe.Adapter({"q": site("q")}), TypeError, "adapter: got str, expected Sites (of a mapping, its val"),
    (lambda s: tensafe.Adapter(3), TypeError, "adapter: got int, expected Sites"),
    (lambda s: tensafe.Adapter([]), tensafe.ShapeError, "adapter: got no sites"),
    (lambda s: tensafe.estimate((32, 2048)), tensafe.ShapeError, "got 2 numbers, expected (rank, d_in, d_out)"),
    (lambda s: tensafe.estimate("1x2x3"), TypeError, "estimate: got str, expected an Adapter, a Site or (rank"),
    (lambda s: tensafe.connect("wss://localhost:1", "q"), tensafe.ParameterError, "expected ca="),
    (lambda s: tensafe.Client(b"not a layout", b""), tensafe.FormatError, "12"),
    (lambda s: tensafe.load_peft("/nowhere"), tensafe.FileError, "/nowhere"),
    (lambda s: tensafe.load_peft(os.path.dirname(__file__)), tensafe.FileError, "adapter_config.json"),
    (lambda s: pickle.dumps(s), TypeError, "Session holds secrets"),
    (lambda s: copy.copy(s), TypeError, "Session holds secrets"),
])
def test_bad_input(session, call, kind, text):
    with pytest.raises(kind) as caught:
        call(session)
    assert text in str(caught.value)


def gain_of(gain, name="q"):
    return tensafe.Adapter(tensafe.Site(name, np.eye(1, 64) * 2, np.eye(48, 1), gain / 2))


def test_a_tenant_gets_the_deltas_of_its_own_b():
    rng = np.random.default_rng(1)
    a, b, h = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 64), (256, 4), 64))
    adapter, key = tensafe.Adapter(tensafe.Site("q", a, b, 1.0)), bytes(range(32))
    marked = tensafe.Server(adapter, name="qwen", mark_key=key)
    deltas = [tensafe.Client(server.layout, server.held).connect(server).delta("q", h) for server in (
        tensafe.Server(adapter), *(marked.of(tenant) for tenant in ("acme", "acme", "emca")))]
    errors = [np.linalg.norm(delta - b @ (a @ h)) / np.linalg.norm(b @ (a @ h)) for delta in deltas]
    assert errors[0] < 0.002 and all(0.02 < error < 0.045 for error in errors[1:])
    assert np.linalg.norm(deltas[1] - deltas[2]) < 0.003 * np.linalg.norm(deltas[1])
    assert np.linalg.norm(deltas[1] - deltas[3]) > 0.02 * np.linalg.norm(deltas[1])
    another = tensafe.Server(adapter, name="qwena", mark_key=key).of("cme")
    assert marked.of("acme").held == marked.of("acme").held != another.held


def test_marks_are_those_of_the_known_answers():
    known = json.loads((ROOT / "tests/data/marks/answers.json").read_text())
    a, b = (np.frombuffer(bytes.fromhex(known[m]), np.float32).reshape(shape) for m, shape in (("a", (3, 4)), ("b", (5, 3))))
    site = tensafe.Site(known["site"], np.diag([1, 1, 1, 0])[:3].astype(np.float32), b, 1.0)  # rows of norm 1: B stays
    server = tensafe.Server(tensafe.Adapter(site), name="qwen", mark_key=bytes.fromhex(known["key"]))
    assert bytes.fromhex(known["marked_b"]) in server.of("acme").held


@pytest.mark.parametrize("mode", ["client_held_b", "blind"])
def test_a_gain_beyond_the_base_norm_is_refused(mode):
    server = tensafe.Server(gain_of(2.0**16), mode=mode)
    for made in ((server,), (server.layout, server.held)):
        for norms in (None, {}, {"q": 2.0**20}, {"q": np.float32(2.0**20), "k": 0}):
            tensafe.Client(*made, base_norms=norms)
        for norm in (1, -1, 2.0**15, float("nan")):
            with pytest.raises(tensafe.ParameterError, match="site 'q': got a gain of .*, the base layer's norm: with larger base_norms"):
                tensafe.Client(*made, base_norms={"q": norm})
        with pytest.raises(tensafe.ParameterError, match="got no site of the adapter, expected names as 'q'"):
            tensafe.Client(*made, base_norms={"model.q": 1})  # which would bound nothing
        for wrong in ([1], {"q": "1"}):
            with pytest.raises(TypeError, match="base_norms"):
                tensafe.Client(*made, base_norms=wrong)


@pytest.mark.parametrize("tokens_ahead", [0, 2])
def test_deltas_beyond_their_type_are_counted_and_told(tokens_ahead):
    session = connected(gain_of(2.0**17), tokens_ahead=tokens_ahead)
    h = np.zeros((3, 64))
    h[0, 0] = 1
    h[1, 0] = -2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in (np.float32, np.float64):
            session.delta("q", h.astype(dtype))
        session.delta("q", h.astype(np.float16) / 4, zeros_for_nan=True)  # a server must not see a difference
    assert session.clamped_deltas == 1
    with pytest.warns(RuntimeWarning, match="2 entries of deltas were beyond the largest number") as told:
        got = session.delta("q", h.astype(np.float16))
    assert told[0].filename == __file__
    assert session.clamped_deltas == 3 and got[:2, 0].tolist() == [65504, -65504] and not got[2].any()


def test_inputs_by_a_function_of_the_name():
    adapter = tensafe.Adapter(site(f"moe.{k}.first", seed=k) for k in range(3))
    h = states(64)
    assert len(connected(adapter).deltas("0.first", h)) == 1
    for of in (lambda a, **o: connected(a, **o), lambda a, **o: (made := with_answers(a, **o))[0].connect(made[1])):
        deltas = of(adapter, input_of=lambda name: "moe" if ".2." not in name else name).deltas("0.first", h)
        assert list(deltas) == [f"moe.{k}.first" for k in range(2)]
        for name, delta in deltas.items():
            assert error(delta, adapter[name].delta(h)) < 1e-3
    one = tensafe.estimate(adapter, input_of=lambda name: "moe")
    assert one["bytes_up"] == tensafe.estimate(adapter["0.first"])["bytes_up"] < tensafe.estimate(adapter)["bytes_up"]
    with pytest.raises(TypeError, match="input_of: got int, expected a name"):
        tensafe.Server(adapter, input_of=lambda name: 3)


def test_a_server_session_counts_nothing_and_answers_twice(adapter):
    client, answers = with_answers(adapter)
    query = client.encrypt(Q, h := states(64))
    first, second = (answers.answer(query.request) for _ in range(2))
    assert first != second
    for reply in (first, second):
        assert error(client.decrypt(query, reply)[Q], adapter[Q].delta(h)) < 1e-3


def test_no_limit(session):
    assert session.queries_left is None


def test_nan_as_zeros(session):
    before = session.bad_states
    got = session.delta(Q, NAN, zeros_for_nan=True)
    assert session.bad_states == before + 1 and not got[1].any() and got[0].any()


def test_closed(adapter):
    with connected(adapter) as session:
        session.delta(Q, states(64))
    for _ in range(2):
        for call in (lambda: session.delta(Q, states(64)), lambda: session.queries_left):
            with pytest.raises(tensafe.ClosedError, match="closed"):
                call()
        session.close()
    assert repr(session) == "Session(3 sites, closed)"


@pytest.mark.parametrize("options", [{}, {"tokens_ahead": 8}])
def test_child_of_a_fork(adapter, options):
    server = tensafe.Server(adapter, **options)
    client = tensafe.Client(server.layout, server.held)
    nonce = tensafe.fresh_nonce()
    answers = server.open(nonce, client.rerandomization_key(nonce))
    session = client.connect(server)
    session.delta(Q, states(64))
    answers.answer(client.encrypt(Q, states(64)).request)
    child = os.fork()
    if child == 0:
        code = 0
        for refused in (lambda: session.delta(Q, states(64)),
                        lambda: answers.answer(client.encrypt(Q, states(64)).request)):
            try:
                refused()
                code = 1
            except tensafe.UnsupportedError as e:
                code = code or ("after the fork" not in str(e)) * 2
        own = connected(adapter, **options).delta(Q, states(64))
        os._exit(code if error(own, adapter[Q].delta(states(64))) < 1e-3 else 3)
    assert os.waitpid(child, 0)[1] == 0
    session.delta(Q, states(64))


def test_threads_share_a_client(adapter):
    server = tensafe.Server(adapter, tokens_ahead=4)
    client = tensafe.Client(server.layout, server.held)

    def work(seed):
        session = client.connect(server)
        for k in range(20):
            h = states(64, seed=seed * 100 + k)
            assert error(session.delta(Q, h), adapter[Q].delta(h)) < 2e-3

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))  # raises what they raise


def test_memory_does_not_grow():
    session = connected(tensafe.Adapter([site("q", 1, 16, 8)]), "minimal_n2048")
    h = states(100, 16)
    many = [session.delta("q", h) for _ in range(20)]
    del many
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(980):
        session.delta("q", h)
    for k in range(2000):
        session.delta("q", h[k % 100])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096


@pytest.mark.parametrize("tokens_ahead", [0, 32])
def test_massive_activations(tokens_ahead):
    random = np.random.default_rng(7)
    x = random.normal(size=(8, 768)).astype(np.float32)
    x[:, 77], x[:, 400] = 12000, -4000
    a = random.normal(size=(32, 768)).astype(np.float32)
    a[:, 77] = a[:, 400] = 0
    q = tensafe.Adapter(tensafe.Site("q_proj", a, random.normal(size=(768, 32)).astype(np.float32)))
    expected = q["q_proj"].delta(x)
    with connected(q, tokens_ahead=tokens_ahead) as session:
        assert error(session.delta("q_proj", x), expected) > 0.01
    server = tensafe.Server(q, tokens_ahead=tokens_ahead, column_scales=True)
    client = tensafe.Client(server.layout, server.held)
    for session in (client.connect(server), tensafe.Client(server).connect(server)):
        with session:
            assert error(session.delta("q_proj", x), expected) < 2e-4


def test_estimate():
    shape = tensafe.estimate((32, 2048, 4096))
    assert shape["bytes_up"] == 91_232 and shape["bytes_down"] == 98_464
    q = site("model.layers.0.self_attn.q_proj", 32, 2048, 4096)
    assert tensafe.estimate(tensafe.Adapter([q]))["bytes_up"] == tensafe.estimate(q)["bytes_up"] == shape["bytes_up"]
    block = tensafe.estimate(q, tokens_ahead=32)
    assert block["online_up"] < shape["bytes_up"] < block["bytes_up"]
    for options in ({"parameters": "minimal_n2048", "mode": "blind", "tokens_ahead": 32}, {"tokens_ahead": 64}):
        for refuses in (tensafe.estimate, lambda what, **o: tensafe.Server(tensafe.Adapter(what), **o)):
            with pytest.raises(tensafe.ParameterError):
                refuses(q, **options)
    assert tensafe.estimate(q, tokens_ahead=64, trusts_clients=True)["online_up"] > 0


def test_adapters_of_arrays():
    made = tensafe.Adapter([tensafe.Site("x.q", [[1, 2]], [[3], [4], [5]], 2.0), site("x.k", 2, 3, 4)])
    np.testing.assert_array_equal(made["q"].delta([1, 1]), [18, 24, 30])
    assert list(tensafe.Adapter([s for n, s in made.items() if n.endswith("q")])) == ["x.q"]


def test_wrong_types_are_named_and_not_shown():
    server = tensafe.Server(tensafe.Adapter(site("q", 2, 16, 4)))
    client = tensafe.Client(server.layout, server.held)
    key = client.rerandomization_key(nonce := tensafe.fresh_nonce())
    session = client.connect(answers := server.open(nonce, key))
    session.delta("q", h := np.full(16, 123.0))
    for call, got in ((lambda: server.open("a" * 32, key), "nonce: got str, expected bytes"),
                      (lambda: tensafe.Client(server, server.held), "layout: got Server, expected Server.layout"),
                      (lambda: client.connect(3), "to: got int, expected a Server"),
                      (lambda: client.decrypt(key, key), "query: got bytes, expected what Client.encrypt gave"),
                      (lambda: answers.answer(client.encrypt("q", h)), "request: got Query, expected bytes"),
                      (lambda: session.delta(h, "q"), "site: got ndarray"),
                      (lambda: session.delta("q", h, overflow_margin="2"), "overflow_margin: got str, expected a num"),
                      (lambda: session.deltas("q", h, zeros_for_nan="no"), "zeros_for_nan: got str, expected True or"),
                      (lambda: client.encrypt("q", h, overflow_margin=None), "overflow_margin: got NoneType"),
                      (lambda: tensafe.estimate(site("q"), rows=4.0), "rows: got float, expected a whole number"),
                      (lambda: tensafe.connect("wss://localhost:1", server, ca="c"), "adapter: got Server")):
        with pytest.raises(TypeError, match=got) as info:
            call()
        assert len(str(info.value)) < 100 and "123" not in str(info.value)
    with pytest.raises(tensafe.ParameterError, match="take Server.held"):
        tensafe.Client(server.layout, b"")
