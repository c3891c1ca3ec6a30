"""How many characters name a tenant whose adapter wrote them, and what of the adapter's gain leaks keep: README.md.

    python studies/tracing/words.py [--characters 32640]
"""

import argparse
import importlib.util
import pathlib

import numpy as np
import torch
import transformers

import tensafe
import tensafe.torch
from tensafe._safetensors import Tensors

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parents[1] / "examples" / "data" / "tiny_lm"
WINDOW = 256


def tiny():
    """The tiny language model in transformers: Arcee's layers are its own."""
    base = {name: torch.from_numpy(value) for name, value in Tensors(DATA / "base.safetensors").items()}
    model = transformers.ArceeForCausalLM(transformers.ArceeConfig(
        vocab_size=96, hidden_size=256, intermediate_size=1024, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=4, hidden_act="gelu_pytorch_tanh", rms_norm_eps=1e-6, max_position_embeddings=WINDOW,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, bos_token_id=0, eos_token_id=None,
        pad_token_id=0, tie_word_embeddings=False)).eval()
    model.load_state_dict(base)
    return model


class merged:
    """The model with an adapter in its weights, within a `with`."""

    def __init__(self, model, adapter):
        self._model, self._adapter = model, adapter

    def __enter__(self):
        self._before = {name: value.clone() for name, value in self._model.state_dict().items()}
        for name, site in self._adapter.items():
            weight = self._model.get_submodule(name).weight
            weight.data += torch.from_numpy(site.scale * site.b @ site.a).to(weight.dtype)
        return self._model

    def __exit__(self, *_):
        self._model.load_state_dict(self._before)


def written(model, adapter, texts):
    """So many pairs of a prompt, a new line, and WINDOW - 1 characters that the model draws with the adapter."""
    with merged(model, adapter), torch.no_grad():
        tokens = model.generate(torch.zeros(texts, 1, dtype=torch.long), attention_mask=torch.ones(texts, 1),
                                do_sample=True, top_k=0, max_new_tokens=WINDOW - 1)
    return [(row[:1], row[1:]) for row in tokens.tolist()]
