#!/usr/bin/env python3
"""Known answers of marks, computed as docs/design/random-streams.md says ("Marks"); nothing of the library runs here.

    tests/data/marks/make.py      writes answers.json beside itself, the same bytes each time

Streams and hedged seeds are those of exchange/make.py beside this. Bytes are hexadecimal, entries of matrices IEEE
singles, little-endian, row after row.
"""
import hashlib
import hmac
import importlib.util
import json
import math
import pathlib
import statistics
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("exchange", HERE.parent / "exchange/make.py")
exchange = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exchange)

MARK, B, A, STRENGTH = 14, 0, 1, 2**-5
KEY = bytes(range(32))
NAMES = ("qwen", "acme"), ("qwen", "key " + "0f" * 32), ("", ""), ("qwena", "cme"), ("org/ä@v2", "acme")


def magnitudes():
    """Centroids of 128 equal shares of |N(0, 1)|, times 32, rounded."""
    normal = statistics.NormalDist()
    density = [normal.pdf(normal.inv_cdf(0.5 + k / 256)) for k in range(128)] + [0]
    return [round(32 * 256 * (low - high)) for low, high in zip(density, density[1:])]


def seed_of(adapter, tenant):
    parts = [struct.pack("<Q", len(name.encode())) + name.encode() for name in (adapter, tenant)]
    return hmac.digest(KEY, b"tensafe mark 1\n" + b"".join(parts), "sha256")


def levels(seed, site, which, count):
    data = exchange.stream(exchange.hedged_seed(seed, [site.encode()]), MARK, which, 0, count)
    return [magnitudes()[byte & 127] * (-1 if byte & 128 else 1) for byte in data]


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def marked(seed, site, which, rows):
    """rows: lists of singles; B has a step for each column, A for each row."""
    lines = rows if which == A else list(zip(*rows))
    steps = [single(STRENGTH / 32 * math.sqrt(sum(x * x for x in line) / len(line))) for line in lines]
    each = iter(levels(seed, site, which, len(rows) * len(rows[0])))
    return [[single(x + steps[r if which == A else c] * next(each)) for c, x in enumerate(row)]
            for r, row in enumerate(rows)]


def text(rows):
    return b"".join(struct.pack("<f", x) for row in rows for x in row).hex()


def answers():
    seed, site = seed_of(*NAMES[0]), "model.layers.0.self_attn.q_proj"
    data = exchange.stream(KEY, MARK, 7, 0, 35)  # any numbers; the second column of B is 0
    b = [[0.0 if c == 1 else (data[3 * r + c] - 128) / 512 for c in range(3)] for r in range(5)]
    a = [[(data[15 + 5 * r + c] - 128) / 4096 for c in range(4)] for r in range(3)]
    streams = [{"site": name, "matrix": which, "first": bytes(x & 255 for x in all_of[:40]).hex(),
                "sum": sum(all_of)}
               for name in (site, "") for which in (B, A) for all_of in [levels(seed, name, which, 1000)]]
    return {
        "from": "tests/data/marks/make.py, which says what the fields are",
        "key": KEY.hex(),
        "commitment": hashlib.sha256(b"tensafe mark key 1\n" + KEY).hexdigest(),
        "seeds": [{"adapter": adapter, "tenant": tenant, "seed": seed_of(adapter, tenant).hex()}
                  for adapter, tenant in NAMES],
        "magnitudes": bytes(magnitudes()).hex(),
        "streams": streams,  # of the first of these seeds
        "site": site,
        "b": text(b), "marked_b": text(marked(seed, site, B, b)),
        "a": text(a), "marked_a": text(marked(seed, site, A, a)),
    }


if __name__ == "__main__":
    (HERE / "answers.json").write_text(json.dumps(answers(), indent=1, ensure_ascii=True) + "\n")
