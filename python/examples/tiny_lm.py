"""The tiny language model of docs/tiny-lm.md in torch's Python, with an adapter that is merged or encrypted.

    python python/examples/tiny_lm.py [--prompt "And he said"] [--characters 300] [--way base|merged|encrypted]
"""

import argparse
import json
import math
import pathlib

import numpy as np
import torch
from torch import nn

import tensafe
import tensafe.torch

DATA = pathlib.Path(__file__).resolve().parents[2] / "examples" / "data" / "tiny_lm"
WIDTH, LAYERS, HEADS, HIDDEN, WINDOW, VOCABULARY = 256, 3, 4, 1024, 256, 96


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, True) + 1e-6) * self.weight


def rotated(x, position):
    """Rotary positions. x: [heads, 1, d_head], turned in halves."""
    half = x.shape[-1] // 2
    angles = position * 10000.0 ** (torch.arange(half, dtype=torch.float64) * (-1.0 / half))
    c, s = angles.cos().float(), angles.sin().float()
    a, b = x.chunk(2, -1)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


class Attention(nn.Module):
    """Of one position with those before it in the window. x: [1, WIDTH]."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.keys = torch.zeros(HEADS, WINDOW, WIDTH // HEADS)
        self.values = torch.zeros(HEADS, WINDOW, WIDTH // HEADS)

    def forward(self, x, position):
        q, k, v = (p(x).view(HEADS, 1, -1) for p in (self.q_proj, self.k_proj, self.v_proj))
        place, known = position % WINDOW, min(position + 1, WINDOW)
        self.keys[:, place:place + 1] = rotated(k, position)
        self.values[:, place:place + 1] = v
        scores = rotated(q, position) @ self.keys[:, :known].transpose(1, 2) / math.sqrt(WIDTH // HEADS)
        return self.o_proj((torch.softmax(scores, -1) @ self.values[:, :known]).reshape(x.shape))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down_proj = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.gelu(self.up_proj(x)))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(), RMSNorm()
        self.self_attn, self.mlp = Attention(), MLP()

    def forward(self, x, position):
        x = x + self.self_attn(self.input_layernorm(x), position)
        return x + self.mlp(self.post_attention_layernorm(x))


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.model.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.model.norm = RMSNorm()
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, token, position):
        """Logits [VOCABULARY] of the character after this one."""
        x = self.model.embed_tokens(torch.tensor([token]))
        for layer in self.model.layers:
            x = layer(x, position)
        return self.lm_head(self.model.norm(x))[0]


def load():
    content = (DATA / "base.safetensors").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header.pop("__metadata__", None)
    model = TinyLM()
    model.load_state_dict({
        name: torch.from_numpy(np.frombuffer(content[end:][slice(*entry["data_offsets"])], np.float16)
                               .astype(np.float32).reshape(entry["shape"])) for name, entry in header.items()})
    return model


def generate(model, prompt="In the beginning", characters=300):
    """The likeliest text after the prompt."""
    tokens = [0 if c == "\n" else ord(c) - 31 for c in prompt]
    text = ""
    with torch.no_grad():
        for position in range(len(prompt) + characters - 1):
            logits = model(tokens[position], position)
            if position + 1 == len(tokens):
                tokens.append(int(logits.argmax()))
                text += "\n" if tokens[-1] == 0 else chr(tokens[-1] + 31)
    return text


def merge(model, adapter):
    modules = dict(model.named_modules())
    for name, site in adapter.items():
        modules[name].weight.data += torch.from_numpy(site.scale * (site.b @ site.a))
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", default="In the beginning")
    parser.add_argument("--characters", type=int, default=300)
    parser.add_argument("--way", choices=["base", "merged", "encrypted"], default="encrypted")
    options = parser.parse_args()
    model, adapter = load(), tensafe.load_peft(DATA / "adapter")
    if options.way == "merged":
        merge(model, adapter)
    elif options.way == "encrypted":
        tensafe.torch.attach(model, adapter, tokens_ahead=32)
    print(options.prompt + generate(model, options.prompt, options.characters))


if __name__ == "__main__":
    main()
