"""The command `tensafe`."""

import os

import numpy as np
import pytest

import tensafe
from conftest import QWEN, ROOT, small_adapter
from tensafe import cli


def run(capsys, *arguments):
    code = cli.main([os.fspath(a) for a in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_demo(capsys):
    code, out, _ = run(capsys, "demo", "--tokens", "4", "--tokens-ahead", "4")
    assert code == 0 and "rank=32, 2048 -> 2048" in out
    assert float(out.split("relative error  ")[1].split()[0]) < 4e-4
    for tokens in ("-1", "0"):
        assert run(capsys, "demo", "--tokens", tokens)[2].endswith(f"--tokens: got {tokens}, expected 1 to 100000\n")
    assert "adapter_config.json: is no directory, exp" in run(capsys, "demo", QWEN / "adapter_config.json")[2]


@pytest.mark.parametrize("a, b", [(1, 0), (0, 1), (0, 0)])
def test_demo_of_a_delta_that_is_0(capsys, monkeypatch, a, b):
    monkeypatch.setattr(tensafe, "load_peft", lambda _: tensafe.Adapter(
        tensafe.Site("q", np.full((2, 16), a), np.full((8, 2), b))))
    code, out, _ = run(capsys, "demo", "DIR", "--tokens", "2")
    assert code == 0 and float(out.split("relative error  ")[1].split(",")[0]) < 1e-3 and "absolute: the delta is 0" in out


def test_estimate(capsys):
    code, out, _ = run(capsys, "estimate", "32x2048x4096")
    assert code == 0 and "bytes_up              91,232" in out
    assert run(capsys, "estimate", QWEN)[0] == 0
    assert "tokens_ahead: got -3" in run(capsys, "estimate", "32x2048x4096", "--tokens-ahead", "-3")[2]
    for what in ("/nowhere", "32x2048", "²x3x4", QWEN / "adapter_config.json"):
        assert f"got {what}, expected a PEFT directory, or RANKxD_INxD_OUT" in run(capsys, "estimate", what)[2]


def test_inspect(capsys, tmp_path):
    code, out, _ = run(capsys, "inspect", QWEN)
    assert code == 0 and "rank=32, 2048 -> " in out
    file = tmp_path / "layout"
    file.write_bytes(tensafe.Server(small_adapter()).layout)
    code, out, _ = run(capsys, "inspect", file)
    assert code == 0 and "model layout" in out and "private_n4096" in out
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    code, out, err = run(capsys, "inspect", file)
    assert code == 1 and "checksum" in err and not out
    assert "neither an adapter" in run(capsys, "inspect", ROOT / "README.md")[2]


def test_serve(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("TENSAFE_SPLIT_SERVER", raising=False)
    code, _, err = run(capsys, "serve", QWEN)
    assert code == 1 and "scripts/setup service" in err
    monkeypatch.setenv("TENSAFE_SPLIT_SERVER", "/server")
    monkeypatch.setattr(os, "execv", lambda _, words: print(*words[3:]))
    for after, passed in (("", "--anybody"), ("-- --clients=file --listen l:1", "--clients=file --listen l:1")):
        assert run(capsys, "serve", "DIR", "--name", "qwen", *after.split())[1] == f"--adapter qwen=DIR {passed}\n"
