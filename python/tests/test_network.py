"""tensafe.connect against tensafe-server, which TENSAFE_SPLIT_SERVER names."""

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tensafe
from conftest import QWEN, ROOT, error, states

SERVER = os.environ.get("TENSAFE_SPLIT_SERVER", "")
os.environ["no_proxy"] = "*"  # the servers are here
pytestmark = pytest.mark.skipif(not SERVER, reason="no tensafe-server: TENSAFE_SPLIT_SERVER is not set")


class Service:
    def __init__(self, folder, *options, port=0):
        self.folder = folder
        self.log = folder / "log"
        self.process = subprocess.Popen(
            [SERVER, "--listen", f"localhost:{port}", "--state", str(folder / "state"), "--adapter", f"qwen={QWEN}", *options],
            stdout=subprocess.PIPE, stderr=self.log.open("a"), text=True)
        line = self.process.stdout.readline()
        assert line.startswith("listening on wss://"), line
        self.port = int(line.split(",")[0].rsplit(":", 1)[1])

    def connect(self, adapter="qwen", port=0, **options):
        options.setdefault("ca", self.folder / "state" / "certificate.pem")
        return tensafe.connect(f"wss://localhost:{port or self.port}", adapter, **options)

    def stop(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = Service(tmp_path_factory.mktemp("service"), "--anybody")
    yield made
    made.stop()


@pytest.mark.parametrize("tokens_ahead", [1, 128])
def test_deltas(service, tokens_ahead):
    site = tensafe.load_peft(QWEN)["q_proj"]
    h = states(20, 2048)
    with service.connect(tokens_ahead=tokens_ahead) as session:
        assert error(session.delta("q_proj", h), site.delta(h)) < 4e-4
        with pytest.raises(tensafe.EncodingError):
            session.delta("q_proj", np.full(2048, np.nan))
        with pytest.raises(tensafe.ShapeError, match="expected 2048"):
            session.delta("q_proj", h[0, 1:])
    with pytest.raises(tensafe.ClosedError):
        session.delta("q_proj", h)


def test_child_of_a_fork(service):
    with service.connect() as session:
        session.delta("q_proj", h := states(2048))
        said = service.log.read_text()
        if (child := os.fork()) == 0:
            try:
                session.delta("q_proj", h)
            except tensafe.UnsupportedError as e:
                session.close()  # says nothing to the server
                os._exit("after the fork" not in str(e))
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        session.delta("q_proj", h)
        since = service.log.read_text()[len(said):]  # nothing of a lost connection
        assert "session_opened" in said and not any(word in since for word in ("session_opened", "session_resumed", "resume_failed"))


def test_traceparent(service):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    service.connect(traceparent=trace).close()
    assert trace in service.log.read_text()
    with pytest.raises(tensafe.ParameterError, match="traceparent"):
        service.connect(traceparent=trace + "x")


def test_refusals(service, tmp_path):
    with pytest.raises(tensafe.RefusedError, match="unknown_adapter") as caught:
        service.connect("other")
    assert caught.value.code == "unknown_adapter"
    with pytest.raises(tensafe.ConnectionLost):
        tensafe.connect("wss://localhost:1", "qwen", ca=service.folder / "state" / "certificate.pem", total_timeout=0.3)
    with pytest.raises(tensafe.ParameterError, match="insecure_plaintext"):
        tensafe.connect(f"ws://localhost:{service.port}", "qwen")
    for options, kind, text in (({"ca": tmp_path / "none.pem"}, tensafe.FileError, "(ca=)"),
                                ({"publisher": "ab" * 32}, tensafe.SignatureError, ""),  # the server shows no pin
                                ({"oldest_revision": 1}, tensafe.SignatureError, "got no pin"),
                                ({"publisher": ""}, tensafe.ParameterError, "connect: publisher: got nothing"),
                                ({"pin": ""}, tensafe.ParameterError, "connect: pin: got nothing"),
                                ({"timeout": 0}, tensafe.ParameterError, "got a timeout of 0 s"),
                                ({"total_timeout": float("nan")}, tensafe.ParameterError, "total_timeout")):
        with pytest.raises(kind, match=re.escape(text)):
            service.connect(**options)


def test_a_proxy_that_ends_tls_is_named(service):
    state = service.folder / "state"
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(state / "certificate.pem", state / "certificate_key.pem")
    outside = ssl.create_default_context(cafile=state / "certificate.pem")
    listener = socket.create_server(("localhost", 0))

    def forward():
        with inside.wrap_socket(listener.accept()[0], server_side=True) as near, outside.wrap_socket(
                socket.create_connection(("localhost", service.port)), server_hostname="localhost") as far:
            near.settimeout(0.05)
            far.settimeout(0.05)
            while True:
                for end, other in ((near, far), (far, near)):
                    try:
                        if not (data := end.recv(65536)):
                            return
                        other.sendall(data)
                    except socket.timeout:
                        pass

    proxy = threading.Thread(target=forward)
    proxy.start()
    with pytest.raises(tensafe.RefusedError, match=r"\(a proxy that ends TLS makes another\).*, if any\"; ") as caught:
        tensafe.connect(f"wss://localhost:{listener.getsockname()[1]}", "qwen", ca=state / "certificate.pem")
    assert caught.value.code == "not_authorised"
    proxy.join()
    listener.close()


@pytest.mark.parametrize("tokens_ahead", [1, 128])
def test_identity_and_query_limit(tmp_path, tokens_ahead):
    service = Service(tmp_path, "--anybody", "--client-share", "0.01")
    identity = tmp_path / "identity.pem"
    with service.connect(identity=identity, tokens_ahead=tokens_ahead) as session:
        limit = session.queries_left
        assert 0 < limit < 100
        with pytest.raises(tensafe.QueryLimitError, match=f"100 hidden states, expected at most {limit}") as caught:
            session.delta("q_proj", states(100, 2048))
        assert caught.value.code == "query_limit" and caught.value.answered is None
        assert session.queries_left == limit  # a call that cannot be paid spends nothing
        session.delta("q_proj", states(limit - 1, 2048))
        assert session.queries_left == 1
    with service.connect(identity=identity) as session:
        assert session.queries_left == 1
        session.delta("q_proj", states(2048))
        with pytest.raises(tensafe.QueryLimitError, match="expected at most 0"):
            session.delta("q_proj", states(2048))
    service.stop()


def test_a_gain_beyond_the_base_norm_is_refused(service):
    with service.connect() as session:
        name = session.sites[0]
    service.connect(base_norms={name: 1e5, "lm_head": 1}).close()
    with pytest.raises(tensafe.ParameterError, match=f"connect: site '{name}': got a gain of .*, expected at most 0.001"):
        service.connect(base_norms={name: 0.001})
    with pytest.raises(tensafe.ParameterError, match="got no site of the adapter"):
        service.connect(base_norms={"lm_head": 1})


def test_an_attached_prompt_that_cannot_be_paid_spends_nothing(tmp_path):
    torch = pytest.importorskip("torch")
    import tensafe.torch
    service = Service(tmp_path, "--anybody", "--client-share", "0.01")
    site = tensafe.load_peft(QWEN)["q_proj"]
    model = torch.nn.Module()
    model.q_proj = torch.nn.Linear(site.d_in, site.d_out)
    h = states(100, 2048)
    with service.connect() as session, torch.no_grad():
        limit = session.queries_left
        with tensafe.torch.attach(model, session, partial=True):
            with pytest.raises(tensafe.QueryLimitError, match=f"100 hidden states, expected at most {limit}"):
                model.q_proj(torch.from_numpy(h))
            assert session.queries_left == limit
            x = torch.from_numpy(h[:limit])
            got = model.q_proj(x) - model.q_proj.base(x)
        assert error(got, site.delta(h[:limit])) < 2e-3 and session.queries_left == 0
    service.stop()


def test_interrupt(tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    service = Service(tmp_path, "--anybody", *(f"--{whose}-share=none" for whose in ("client", "tenant", "adapter")))
    with service.connect() as session:
        assert session.queries_left is None
        x = states(3000, 2048)
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            with pytest.raises(KeyboardInterrupt) as caught:
                session.delta("q_proj", x)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        answered = caught.value.answered
        assert 0 < answered.sum() < len(x)
        site = tensafe.load_peft(QWEN)["q_proj"]
        assert error(caught.value.partial[answered], site.delta(x)[answered]) < 4e-4
        assert error(session.delta("q_proj", x[0]), site.delta(x[0])) < 4e-4  # the session goes on
    service.stop()


def test_server_that_comes_back(tmp_path):
    service = Service(tmp_path, "--anybody")
    session = service.connect()
    h = states(4, 2048)
    before = session.delta("q_proj", h)
    service.stop()
    again = Service(tmp_path, "--anybody", port=service.port)
    assert error(session.delta("q_proj", h), before) < 1e-3
    again.stop()
    begin = time.monotonic()
    with pytest.raises(tensafe.ConnectionLost, match=re.escape("no connection within 1 s (total_timeout=): ")):
        service.connect(total_timeout=1)
    assert time.monotonic() - begin < 30


def test_the_first_connection_waits_for_a_server_that_starts(tmp_path, caplog):
    service = Service(tmp_path, "--anybody")
    service.stop()
    made = []
    starting = threading.Timer(0.5, lambda: made.append(Service(tmp_path, "--anybody", port=service.port)))
    starting.start()
    with service.connect() as session:
        assert session.queries_left > 0
    assert "Connection refused (does the server run, and is this its port?)" in caplog.text
    starting.join()
    made[0].stop()


@pytest.mark.parametrize("of", ["a server that is not there", "a silent server", "a reply"])
def test_ctrl_c_ends_whatever_is_waited_for(tmp_path, of):
    """In a process of its own, whose main thread has the signal."""
    service = Service(tmp_path, "--anybody")
    program = f"""if True:
        import os, sys, time, numpy as np, tensafe
        url, ca = "wss://localhost:{service.port}", {str(tmp_path / "state" / "certificate.pem")!r}
        is_reply = {of == "a reply"}
        session = tensafe.connect(url, "qwen", ca=ca) if is_reply else None
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            print("asking", flush=True)
            if is_reply:
                session.delta("q_proj", np.ones(2048, np.float32))
            else:
                tensafe.connect(url, "qwen", ca=ca)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            os._exit(0)
        """
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    service.process.send_signal(signal.SIGKILL if "not there" in of else signal.SIGSTOP)
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "asking\n"
    time.sleep(0.5)
    begin = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    assert time.monotonic() - begin < 20  # of 60 and 180; about 0.05 on a machine that does nothing else
    child.wait()
    child.stdin.close()
    child.stdout.close()
    service.stop()


def test_round_trip(service):
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    link = subprocess.Popen([sys.executable, ROOT / "bench/slow_link.py", str(port), str(service.port),
                             "--delay", "50"])
    try:
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("localhost", port)):
                break
            time.sleep(0.01)
        with service.connect() as near, service.connect(port=port) as far:
            assert 0 < near.round_trip < far.round_trip < 5 and far.round_trip >= 0.1
    finally:
        link.kill()
        link.wait()
