"""How many characters name a tenant whose adapter wrote them, and what of the adapter's gain leaks keep: README.md.

    python studies/tracing/words.py [--texts 128]
"""

import argparse
import contextlib
import pathlib
import tempfile

import numpy as np
import torch
import transformers

import leaks
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


@contextlib.contextmanager
def merged(model, leak):
    """The model with an adapter in its weights, or with the weights of a file in place of its own; None: as it is."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    if isinstance(leak, tensafe.Adapter):
        for name, site in leak.items():
            weight = model.get_submodule(name).weight
            weight.data += torch.from_numpy(site.scale * site.b @ site.a).to(weight.dtype)
    elif leak is not None:
        own = Tensors(leak)
        model.load_state_dict({**before, **{name: torch.from_numpy(own[name]) for name in own}})
    try:
        yield model
    finally:
        model.load_state_dict(before)


def written(model, adapter, texts):
    """So many pairs of a prompt, a new line, and WINDOW - 1 characters that the model draws with the adapter."""
    with merged(model, adapter), torch.no_grad():
        tokens = model.generate(torch.zeros(texts, 1, dtype=torch.long), attention_mask=torch.ones(texts, 1),
                                do_sample=True, top_k=0, max_new_tokens=WINDOW - 1)
    return [(row[:1], row[1:]) for row in tokens.tolist()]


def likelihoods(model, leak, texts):
    """The logarithm of each token's probability, [tokens, vocabulary], before each token of the answers."""
    with merged(model, leak), torch.no_grad():
        return torch.cat([model(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1:-1].log_softmax(-1)
                          for prompt, answer in texts])


def farther(one, other):
    """The mean KL divergence of these likelihoods from others, in bits a token."""
    total = sum(float((a.double().exp() * (a.double() - b)).sum()) for a, b in zip(one.split(256), other.split(256)))
    return total / len(one) / np.log(2)


def study(texts):
    own, model = tensafe.load_peft(DATA / "adapter"), tiny()
    torch.manual_seed(1)
    judges = written(model, own, 64)
    best = likelihoods(model, own, judges)
    gain = farther(best, likelihoods(model, None, judges))
    print(f"The adapter gains {gain:.4f} bits a character.", flush=True)

    def kept(leak):
        return 1 - farther(best, likelihoods(model, leak, judges)) / gain

    for strength in (2**-5, 2**-3):
        every = [kept(leaks.marked(own, f"tenant{k}", strength)) for k in range(16)]
        print(f"marks of {strength}: {np.mean(every):.4%} kept, s.d. {np.std(every):.4%}, {min(every):.4%} at least",
              flush=True)
    said = written(model, leaks.marked(own, "tenant0", 2**-3), texts)
    innocents = [f"other{k}" for k in range(999)]
    for count in sorted({texts // 8, texts // 4, texts // 2, texts}):
        found = tensafe.trace(None, own, leaks.KEY, ["tenant0", *innocents], name=leaks.NAME,
                              gradients=tensafe.torch.gradients(model, own, said[:count]))
        z = {each.name: each.z for each in found.tenants}
        rest = max(abs(x) for name in innocents for x in z[name].values())
        print(f"{count * (WINDOW - 1)} characters:", {test: round(x, 1) for test, x in z["tenant0"].items()},
              f"others {rest:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        base = dict(Tensors(DATA / "base.safetensors"))
        weights = {**base, **{f"{s.name}.weight": base[f"{s.name}.weight"] + s.scale * s.b @ s.a for s in own.values()}}
        known = {name: h.reshape(-1, h.shape[-1]) for name, h in leaks.written(weights, 8).items()}
        copies = [leaks.marked(own, f"tenant{k}") for k in range(16)]
        for what, leak in leaks.leaks_of(copies, base, known, leaks.written(weights, 1), pathlib.Path(folder)).items():
            print(f"| {what} | {kept(leak):.1%} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=128, help="of 255 characters")
    study(parser.parse_args().texts)
