import pathlib
import sys

import numpy as np
import pytest

import tensafe

ROOT = pathlib.Path(__file__).resolve().parents[2]
QWEN = ROOT / "examples" / "data" / "qwen_rank32"
EXAMPLES = ROOT / "python" / "examples"
sys.path.append(str(EXAMPLES))


def site(name, rank=4, d_in=64, d_out=48, seed=0):
    random = np.random.default_rng(seed)
    return tensafe.Site(name, random.normal(size=(rank, d_in)).astype(np.float32) / 8,
                        random.normal(size=(d_out, rank)).astype(np.float32) / 2, 2.0)


def small_adapter(d_in=64):
    return tensafe.Adapter([site("layers.0.self_attn.q_proj", 4, d_in, 48, 1),
                            site("layers.0.self_attn.k_proj", 3, d_in, 16, 2),
                            site("layers.0.mlp.down_proj", 2, 96, d_in, 3)])


def states(*shape, seed=7):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def error(got, expected):
    expected = np.asarray(expected, np.float64)
    return np.linalg.norm(np.asarray(got, np.float64) - expected) / np.linalg.norm(expected)


def connected(adapter, *args, **options):
    server = tensafe.Server(adapter, *args, **options)
    return tensafe.Client(server).connect(server)


def with_answers(adapter, *args, **options):
    """A client, and the session of a server that answers it by messages."""
    server = tensafe.Server(adapter, *args, **options)
    client = tensafe.Client(server.layout, server.held)
    nonce = tensafe.fresh_nonce()
    return client, server.open(nonce, client.rerandomization_key(nonce))


@pytest.fixture(scope="module")
def adapter():
    return small_adapter()


@pytest.fixture(scope="module")
def session(adapter):
    return connected(adapter)
