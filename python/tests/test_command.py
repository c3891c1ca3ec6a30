"""The command `tensafe`."""

import functools
import json
import os
import sysconfig

import numpy as np
import pytest

import tensafe
from conftest import QWEN, ROOT, small_adapter
from tensafe import cli, link


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


SMOL = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3,
        "num_hidden_layers": 30}
QWEN2_5 = {"hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "num_key_value_heads": 2,
           "num_hidden_layers": 28}


def costs(capsys, tmp_path, config, *options):
    """What `tensafe estimate` says of a link."""
    file = tmp_path / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    code, out, err = run(capsys, "estimate", "--model", file, *options)
    return {key: float(value.replace(",", "")) for key, value in map(str.split, out.splitlines())} if code == 0 else err


# Tokens a second without drafts and with so many, for milliseconds of a round trip and Mbit/s, and MB of a position: the
# table of the cost model when drafts were designed, which allowed more than four. It has rank 16, an acceptance of 0.8,
# and 12 and 60 ms for a forward of the two models; its two digits are off by up to 5 %.
LINKS = ((5, 100), (20, 100), (50, 100), (20, 20), (50, 20))
TABLE = [
    (SMOL, 12, None, "1.2 2.1 4  .38 1.0 7  .16 .57 10  .30 .48 3  .14 .32 6", 2.4),
    (SMOL, 12, 8, "4.4 7.1 3  1.4 3.7 7  .60 2.0 10  1.1 1.8 3  .54 1.2 5", 0.63),
    (SMOL, 12, 1, "26 32 2  10 20 4  4.6 12 6  8.1 12 3  4.1 8.2 5", 0.08),
    (QWEN2_5, 60, None, ".93 1.2 2  .36 .71 4  .16 .44 7  .22 .27 2  .13 .20 3", 5.5),
    (QWEN2_5, 60, 8, "2.9 3.4 2  1.2 2.1 4  .56 1.4 6  .75 .91 2  .44 .69 3", 1.6),
    (QWEN2_5, 60, 1, "10 10 1  6.4 7.9 2  3.6 5.9 3  4.6 5.1 1  3.0 4.0 2", 0.20),
]


@pytest.mark.parametrize("config, forward, layers, speeds, megabytes", TABLE)
def test_estimate_of_a_link(capsys, tmp_path, config, forward, layers, speeds, megabytes):
    options = [f"--forward={forward}", *([f"--layers={layers}"] if layers else [])]
    values = list(map(float, speeds.split()))
    for at, (round_trip, rate) in enumerate(LINKS):
        alone, fastest, drafts = values[3 * at:3 * at + 3]
        got = costs(capsys, tmp_path, config, *options, "--tokens-ahead=32", f"--round-trip={round_trip}",
                    f"--rate={rate}")
        assert got["tokens_ahead"] == 32 and got["inputs"] == 4 * (layers or config["num_hidden_layers"])
        assert (got["position_up"] + got["position_down"]) / 1e6 == pytest.approx(megabytes, rel=0.04)
        seconds = functools.partial(
            link.seconds_a_pass, round_trip=round_trip / 1e3, rate=rate * 1e6 / 8, groups=int(got["inputs"]),
            bytes_a_position=got["position_up"] + got["position_down"], forward=forward / 1e3)
        speed = [link.tokens_a_pass(0.8, k) / seconds(k) for k in range(11)]
        assert speed[0] == pytest.approx(alone, rel=0.06) and speed[int(drafts)] == pytest.approx(fastest, rel=0.06)
        # Of two numbers of drafts that are as good to 1 % either is the best one.
        assert speed[int(drafts)] > 0.99 * max(speed) and got["drafts"] <= link.MOST_DRAFTS
        assert got["tokens_a_second"] == pytest.approx(max(speed[:5]), rel=0.01)
        assert got["bytes_a_token"] == pytest.approx(
            got["positions_a_token"] * (got["position_up"] + got["position_down"]), rel=0.01)


# Measured at 20 ms and 100 Mbit/s (docs/benchmarks.md), which the numbers of link.py were fitted to.
@pytest.mark.parametrize("options, forward, tokens_a_second, prompt", [
    (["--layers=1"], 62, 5.56, 3.74), (["--layers=8", "--sites=q_proj,k_proj,v_proj"], 59, 3.84, 10.26),
    ([], 75, 0.33, 82.7)])
def test_estimate_of_what_was_measured(capsys, tmp_path, options, forward, tokens_a_second, prompt):
    got = costs(capsys, tmp_path, SMOL, *options, f"--forward={forward}", "--acceptance=0")
    assert got["tokens_a_second"] == pytest.approx(tokens_a_second, rel=0.22)
    assert got["prompt_seconds"] == pytest.approx(prompt, rel=0.15)


def test_estimate_of_a_link_with_other_sites(capsys, tmp_path):
    # The same source: 11 tokens a second of SmolLM2 and 6.0 of Qwen2.5.
    for config, forward, speed in ((SMOL, 12, 11), (QWEN2_5, 60, 6.0)):
        options = ["--layers=8", "--sites=v_proj,q_proj,k_proj", f"--forward={forward}"]
        got = costs(capsys, tmp_path, config, *options, "--tokens-ahead=32")
        assert got["inputs"] == 8 and got["tokens_a_second"] == pytest.approx(speed, rel=0.05)
        assert costs(capsys, tmp_path, config, *options, "--acceptance=0")["drafts"] == 0
        best = costs(capsys, tmp_path, config, *options)
        assert best["tokens_ahead"] == 38 and best["bytes_a_token"] < got["bytes_a_token"]
        less = costs(capsys, tmp_path, config, *options, f"--memory={got['client_memory'] / 1.5e6}")
        assert less["tokens_ahead"] == 21 and less["client_memory"] <= got["client_memory"] / 1.5
        assert less["bytes_a_token"] > got["bytes_a_token"]
        assert costs(capsys, tmp_path, config, *options, "--memory=0")["tokens_ahead"] == 0
        assert costs(capsys, tmp_path, config, *options, "--tokens-ahead=8")["tokens_ahead"] == 8


@pytest.mark.parametrize("config, options, said", [
    ({**SMOL, "hidden_size": 0}, [], "hidden_size: got '0', expected a whole number from 1 to 1048576"),
    ({**SMOL, "hidden_size": True}, [], "hidden_size: got 'True'"), ({**SMOL, "head_dim": 0}, [], "head_dim: got '0'"),
    ({**SMOL, "num_hidden_layers": 10**9}, [], "num_hidden_layers: got"),
    ({**SMOL, "intermediate_size": "9" * 99}, [], f"intermediate_size: got '{'9' * 32}', expected"),
    ({**SMOL, "num_attention_heads": 1.5}, [], "num_attention_heads: got"),
    ({}, [], "hidden_size: got 'None'"), ([], [], "expected a model's config.json"), ("{", [], "expected a model's"),
    ("[" * 100_000, [], "expected a model's"), ('{"a": "' + "a" * 2**20 + '"}', [], "more than 1048576 bytes"),
    ({**SMOL, "num_experts": 8}, [], "sites of attention"),
    ({**SMOL, "layer_types": ["linear_attention"] * 30}, ["--sites=q_proj"], "linear attention"),
    (SMOL, ["--layers=31"], "layers: got 31, expected 1 to 30"), (SMOL, ["--layers=0"], "layers: got 0"),
    (SMOL, ["--rank=0"], "rank: got 0"), (SMOL, ["--rank=-1"], "rank: got -1"),
    (SMOL, ["--sites="], "sites: got"), (SMOL, ["--sites=q_proj,lm_head"], "sites: got lm_head, expected of q_proj, k_"),
    (SMOL, ["--round-trip=-1"], "round_trip: got -0.001"), (SMOL, ["--rate=0"], "rate of 0"),
    (SMOL, ["--acceptance=2"], "acceptance 2"), (SMOL, ["--prompt=-1"], "prompt: got -1"),
    (SMOL, ["--tokens-ahead=64"], ""), (SMOL, ["32x2048x4096"], "expected either"),
])
def test_estimate_of_a_link_that_cannot_be(capsys, tmp_path, config, options, said):
    got = costs(capsys, tmp_path, config, *options)
    assert isinstance(got, str) and got.startswith("tensafe estimate: ") and said in got


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


def test_serve(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("TENSAFE_SPLIT_SERVER", raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    code, _, err = run(capsys, "serve", QWEN)
    assert code == 1 and "scripts/setup service" in err
    (tmp_path / "tensafe-server").touch(0o755)  # of a virtual environment that is not in PATH
    monkeypatch.setattr(os, "execv", lambda server, _: print(server))
    assert run(capsys, "serve", QWEN)[1] == f"{tmp_path}/tensafe-server\n"
    monkeypatch.setenv("TENSAFE_SPLIT_SERVER", "/server")
    monkeypatch.setattr(os, "execv", lambda _, words: print(*words[3:]))
    for after, passed in (("", "--anybody"), ("-- --clients=file --listen l:1", "--clients=file --listen l:1")):
        assert run(capsys, "serve", "DIR", "--name", "qwen", *after.split())[1] == f"--adapter qwen=DIR {passed}\n"
