"""The command `tensafe`."""

import os

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


def test_estimate(capsys):
    code, out, _ = run(capsys, "estimate", "32x2048x4096")
    assert code == 0 and "bytes_up              91,232" in out
    assert run(capsys, "estimate", QWEN)[0] == 0
    assert "nowhere" in run(capsys, "estimate", "/nowhere")[2]
    assert "RANKxD_INxD_OUT" in run(capsys, "estimate", "32x2048")[2]


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


def test_serve_without_a_server(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("TENSAFE_SPLIT_SERVER", raising=False)
    if (ROOT / "build" / "release" / "examples" / "split_server").exists():
        pytest.skip("split_server is built here")
    code, _, err = run(capsys, "serve", QWEN)
    assert code == 1 and "scripts/setup split" in err
