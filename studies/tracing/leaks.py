"""What `tensafe trace` finds in leaks of the tiny language model's adapter, and how long a large one takes: README.md.

    python studies/tracing/leaks.py             the table
    python studies/tracing/leaks.py --time      2048 x 280 sites of rank 32, 1,000,000 tenants, or as --tenants says
"""

import argparse
import hmac
import importlib.util
import json
import pathlib
import struct
import sys
import tempfile
import time

import numpy as np

import tensafe
from tensafe._safetensors import Tensors
from tensafe.trace import TESTS, TESTS_OF_B

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "examples" / "data" / "tiny_lm"
spec = importlib.util.spec_from_file_location("marks", ROOT / "tests" / "data" / "marks" / "make.py")
marks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(marks)

HEADS, WINDOW, LAYERS = 4, 256, 3
KEY, NAME = bytes(range(32)), "tiny"
random = np.random.default_rng(1)


# --- The tiny language model in numpy, for its hidden states -----------------------------------------------------

def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight


def rotated(x):
    """x: [..., positions, d_head]"""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[-2])[:, None] * 10000.0 ** (np.arange(half) * (-1.0 / half))
    c, s, a, b = np.cos(angles), np.sin(angles), x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def forward(weights, tokens):
    """Returns logits of the last position and the inputs of the linear layers, by site. tokens: [texts, positions]"""
    inputs, x = {}, weights["model.embed_tokens.weight"][tokens]

    def linear(name, h):
        inputs[name] = h
        return h @ weights[f"{name}.weight"].T

    for layer in (f"model.layers.{k}." for k in range(LAYERS)):
        h = norm(x, weights[layer + "input_layernorm.weight"])
        q, k, v = (linear(f"{layer}self_attn.{p}_proj", h).reshape(*tokens.shape, HEADS, -1).swapaxes(1, 2) for p in "qkv")
        scores = rotated(q) @ rotated(k).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        scores = np.exp(np.where(np.tri(tokens.shape[1], dtype=bool), scores, -np.inf))
        h = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(x.shape)
        x = x + linear(layer + "self_attn.o_proj", h)
        h = linear(layer + "mlp.up_proj", norm(x, weights[layer + "post_attention_layernorm.weight"]))
        h = h * 0.5 * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h**3)))
        x = x + linear(layer + "mlp.down_proj", h)
    return norm(x[:, -1], weights["model.norm.weight"]) @ weights["lm_head.weight"].T, inputs


def written(weights, texts):
    """Texts of the model, drawn, [texts, WINDOW]; and the inputs of its linear layers."""
    tokens = np.zeros((texts, 1), int)
    while tokens.shape[1] < WINDOW:
        logits, _ = forward(weights, tokens)
        tokens = np.hstack([tokens, np.argmax(logits + random.gumbel(size=logits.shape), axis=1)[:, None]])
    return forward(weights, tokens)[1]


# --- Marks and leaks ---------------------------------------------------------------------------------------------

TABLE = np.array([*marks.magnitudes(), *(-m for m in marks.magnitudes())]) / 32


def marked(adapter, tenant, strength=marks.STRENGTH):
    """What a tenant has: marks in B and A, as docs/design/random-streams.md says."""
    seed, sites = hmac.digest(KEY, b"tensafe mark 1\n" + b"".join(
        struct.pack("<Q", len(text)) + text for text in (NAME.encode(), tenant.encode())), "sha256"), []
    for site in adapter.values():
        of_site = marks.exchange.hedged_seed(seed, [site.name.encode()])
        b, a = (x + strength * np.sqrt((x * x).mean(axis, keepdims=True)) * TABLE[np.frombuffer(
            marks.exchange.stream(of_site, marks.MARK, lane, 0, x.size), np.uint8)].reshape(x.shape)
            for x, axis, lane in ((site.b, 0, marks.B), (site.a, 1, marks.A)))
        sites.append(tensafe.Site(site.name, a, b, site.scale))
    return tensafe.Adapter(sites)


def changed(adapter, b=lambda site: site.b, a=lambda site: site.a):
    return tensafe.Adapter(tensafe.Site(s.name, a(s), b(s), s.scale) for s in adapter.values())


def noisy(adapter, part, by_row=True):
    """Noise of this part of the root mean square of each column of B and row of A, or of the whole matrix."""
    def add(x, axis):
        return x + part * np.sqrt((x * x).mean(axis, keepdims=True)) * random.normal(size=x.shape)
    return changed(adapter, lambda s: add(s.b, 0 if by_row else None), lambda s: add(s.a, 1 if by_row else None))


def solved(adapter, states, tokens, ridge=1e-6):
    """The tenant's B, with A as it follows from answers for so many tokens."""
    def solve(site):
        h = states[site.name][:, :tokens].reshape(-1, site.d_in)
        gram = h @ h.T
        return (site.a @ h.T) @ np.linalg.solve(gram + ridge * np.trace(gram) / len(h) * np.eye(len(h)), h)
    return changed(adapter, a=solve)


def rounded(x, bits, axis=1):
    step = np.abs(x).max(axis, keepdims=True) / (2 ** (bits - 1) - 1)
    return np.round(x / step) * step


def bfloat16(x):
    return (((x.astype(np.float32).view(np.uint32) + 0x8000) >> 16) << 16).view(np.float32)


def turned(adapter):
    def turn(site):
        return np.random.default_rng(len(site.name)).normal(size=(site.rank, site.rank))
    return changed(adapter, lambda s: bfloat16(s.b @ np.linalg.inv(turn(s))), lambda s: bfloat16(turn(s) @ s.a))


def halved(adapter):
    sites = []
    for s in adapter.values():
        u, values, v = np.linalg.svd(s.b @ s.a, full_matrices=False)
        sites.append(tensafe.Site(s.name, v[:s.rank // 2], u[:, :s.rank // 2] * values[:s.rank // 2], s.scale))
    return tensafe.Adapter(sites)


def merged(adapter, base, bits, folder, group=64):
    """Merged weights, with a scale for so many of a row."""
    def matrix(site):
        w = base[f"{site.name}.weight"] + site.scale * site.b @ site.a
        return rounded(w.reshape(-1, group), bits).reshape(w.shape)
    return save(folder / f"merged{bits}", {f"{s.name}.weight": matrix(s) for s in adapter.values()})


def save(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        content = value.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": value.shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.with_suffix(".safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path.with_suffix(".safetensors")


def averaged(adapters):
    return changed(adapters[0], lambda s: np.mean([x[s.name].b for x in adapters], 0),
                   lambda s: np.mean([x[s.name].a for x in adapters], 0))


def quiet_noise(adapter, states):
    """Noise, as large as B A, in that half of the directions in which hidden states are smallest."""
    sites = []
    for s in adapter.values():
        axes = np.linalg.eigh(states[s.name].T @ states[s.name])[1][:, :s.d_in // 2]
        noise = random.normal(size=(s.rank, axes.shape[1])) @ axes.T
        away = random.normal(size=(s.d_out, s.rank))
        size = np.linalg.norm(s.b @ s.a) / np.linalg.norm(away @ noise)
        sites.append(tensafe.Site(s.name, np.vstack([s.a, noise]), np.hstack([s.b, size * away]), s.scale))
    return tensafe.Adapter(sites)


def leaks_of(copies, base, known, asked, folder):
    """Maps what was done to the leak. copies: of 16 tenants; the first is the thief of those without others."""
    mine = copies[0]
    return {
        "exact": mine, "other factors, bfloat16": turned(mine),
        **{f"ridge, {n} tokens": solved(mine, asked, n) for n in (16, 64, 256)},
        "ridge, 64 tokens, noise 10 %": noisy(solved(mine, asked, 64), 0.1),
        "ridge, 64 tokens, noise 50 %": noisy(solved(mine, asked, 64), 0.5),
        "noise 50 %": noisy(mine, 0.5), "random change, 30 %": noisy(mine, 0.3, by_row=False),
        **{f"int{bits}": changed(mine, lambda s: rounded(s.b, bits), lambda s: rounded(s.a, bits))
           for bits in (8, 4, 3)},
        **{f"merged, int{bits}": merged(mine, base, bits, folder) for bits in (8, 4)},
        "half of the rank": halved(mine), "average of 4": averaged(copies[:4]), "average of 16": averaged(copies),
        "noise where states are still": quiet_noise(mine, known),
    }


HEAD = "| Leak | z, B | z, A | named | largest of innocents | along A and B |\n|---|---|---|---|---|---|"


def report(what, guilty, found):
    """Prints the row of a leak. All tenants but the guilty are innocent."""
    of = {suspect.name: suspect for suspect in found.tenants}
    largest = max(abs(z) for name in of.keys() - set(guilty) for z in of[name].z.values())
    z = [min(max((abs(of[name].z[test]), test[2:]) for test in tests) for name in guilty)
         for tests in (TESTS_OF_B, TESTS[len(TESTS_OF_B):])]
    print(f"| {what} |", *(f"{size:.1f} ({test}) |" for size, test in z),
          f"{sum(of[name].named for name in guilty)} of {len(guilty)} | {largest:.2f} | {found.along:.1%} |", flush=True)


def table(innocents):
    base, adapter = dict(Tensors(DATA / "base.safetensors")), tensafe.load_peft(DATA / "adapter")
    lora = {**base, **{f"{s.name}.weight": base[f"{s.name}.weight"] + s.scale * s.b @ s.a for s in adapter.values()}}
    known = {name: h.reshape(-1, h.shape[-1]) for name, h in written(lora, 8).items()}
    asked = written(lora, 1)
    copies = [marked(adapter, f"tenant{k}") for k in range(16)]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        leaks = leaks_of(copies, base, known, asked, folder)
        others = [f"other{k}" for k in range(innocents)]
        sys.modules["tensafe.trace"].FIRST = 10**6  # all of them in all sites
        print(HEAD)
        for what, leak in leaks.items():
            guilty = [f"tenant{k}" for k in range(int(what[11:]) if what.startswith("average") else 1)]
            report(what, guilty, tensafe.trace(leak, adapter, KEY, guilty + others, name=NAME,
                                               base=DATA / "base.safetensors", states=known))


def large(sites=280, width=2048, rank=32, tenants=1_000_000):
    def matrix(*shape):
        return random.standard_normal(size=shape, dtype=np.float32)
    adapter = tensafe.Adapter(tensafe.Site(f"layers.{k}", matrix(rank, width), matrix(width, rank)) for k in range(sites))
    leak = noisy(adapter, 0.5)
    begin, cpu = time.perf_counter(), time.process_time()
    print(tensafe.trace(leak, adapter, KEY, [f"tenant{k}" for k in range(tenants)], name=NAME))
    print(f"{time.perf_counter() - begin:.1f} s, of processors {time.process_time() - cpu:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--innocents", type=int, default=12_000)
    parser.add_argument("--tenants", type=int, default=1_000_000)
    options = parser.parse_args()
    large(tenants=options.tenants) if options.time else table(options.innocents)
