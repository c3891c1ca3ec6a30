"""What marks cost a real language model's adapter, and what leaks of it show: README.md.

    python studies/tracing/real.py [qkv8] [all]
"""

import collections
import pathlib
import sys
import tempfile

import numpy as np
import torch

import leaks
import tensafe
from tensafe import _core
from words import farther, likelihoods

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "language_model"))
import made  # noqa: E402
import train  # noqa: E402

TENANTS = [f"tenant{k}" for k in range(4)]


def inputs(model, adapter, texts):
    """What the adapter's sites get, [tokens, d_in], under the names of inputs that they share."""
    seen, hooks = collections.defaultdict(list), []
    for shared, name in {_core.shared_input(name): name for name in adapter}.items():
        hooks.append(model.get_submodule(name).register_forward_hook(
            lambda _, given, __, shared=shared: seen[shared].append(given[0][0])))
    likelihoods(model, adapter, texts)
    for hook in hooks:
        hook.remove()
    return {name: torch.cat(h).numpy() for name, h in seen.items()}


def study(name):
    own, model = tensafe.load_peft(made.adapter(name)), made.model()
    learned, held_out = train.examples()
    judges = held_out[:24]
    answers = torch.tensor([token for _, answer in judges for token in answer])

    def judged(leak):
        said = likelihoods(model, leak, judges)
        return float(torch.nn.functional.nll_loss(said, answers)) / np.log(2), said

    (without, base), (loss, best) = judged(None), judged(own)
    gain = farther(best, base)
    print(f"{name}: {without:.4f} bits a token without the adapter, {loss:.4f} with it; KL {gain:.4f}", flush=True)
    copies = [leaks.marked(own, tenant) for tenant in TENANTS]
    for what, of in (("B", lambda copy: leaks.changed(own, b=lambda site: copy[site.name].b)), ("B and A", lambda copy: copy)):
        costs = []
        for copy in copies:
            marked, said = judged(of(copy))
            costs.append(((without - marked) / (without - loss), 1 - farther(best, said) / gain))
        print(f"{name}: marks in {what}: of the gain " + ", ".join(f"{x:.4%}" for x, _ in costs) + "; by KL "
              + ", ".join(f"{x:.4%}" for _, x in costs), flush=True)
    known, asked, mine = inputs(model, own, learned[:16]), inputs(model, own, judges[:1]), copies[0]
    base = {f"{site}.weight": model.get_submodule(site).weight.numpy() for site in own}
    asked = {site: asked[_core.shared_input(site)][None] for site in own}
    print(leaks.HEAD)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for what, leak in {
            "exact": mine, "other factors, bfloat16": leaks.turned(mine), "ridge, 64 tokens": leaks.solved(mine, asked, 64),
            "int4": leaks.changed(mine, lambda s: leaks.rounded(s.b, 4), lambda s: leaks.rounded(s.a, 4)),
            "merged, int8": leaks.merged(mine, base, 8, folder),
        }.items():
            found = tensafe.trace(leak, own, leaks.KEY, [TENANTS[0], *(f"other{k}" for k in range(999))], name=leaks.NAME,
                                  base=made.BUILD / "model" / "model.safetensors", states=known)
            leaks.report(what, TENANTS[:1], found)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    for name in sys.argv[1:] or ("qkv8", "all"):
        study(name)
