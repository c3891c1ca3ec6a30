#!/usr/bin/env python3
"""Compares models with encrypted adapters, by tensafe.torch.attach, with PEFT's own: texts and likeliest tokens.

    studies/language_model/judge.py [--tokens 500] [--in-process] [NAME...]

The exit status is 1 where one differs that must not.
"""

import argparse
import contextlib
import hashlib
import sys
import time

import peft
import torch

import made
import tensafe
import tensafe.torch
from served import Served

WORDS = {1: ["compiler"], 4: ["hack", "garbage collection", "bit", "a programmer who works at three in the morning"]}
NO_LOOPS = 6  # no six tokens twice: a text that goes in circles is soon equal


def generated(model, words, tokens):
    """Greedy text of so many tokens, as everybody has it written: ids and mask with the prompt."""
    tokenizer = made.tokenizer()
    batch = tokenizer([made.asked(tokenizer, word) for word in words], return_tensors="pt", padding=True)
    ids = model.generate(**batch, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                         no_repeat_ngram_size=NO_LOOPS, pad_token_id=tokenizer.pad_token_id)
    written = torch.ones(len(words), tokens, dtype=batch.attention_mask.dtype)
    return ids, torch.cat([batch.attention_mask, written], -1)


def logits(model, ids, mask, tokens):
    """Teacher-forced, float32: [batch, tokens, vocabulary] before each token that was written."""
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return model(ids, attention_mask=mask, position_ids=positions, logits_to_keep=tokens + 1).logits[:, :-1].float()


def truth(name, rows, tokens):
    """PEFT's own text and, on it, its likeliest tokens, margins and what bfloat16 costs; computed once."""
    code = hashlib.sha256((made.adapter(name) / "adapter_model.safetensors").read_bytes()).hexdigest()[:16]
    file = made.BUILD / f"truth-{name}-{rows}-{tokens}-{code}.pt"
    if not file.exists():
        model = peft.PeftModel.from_pretrained(made.model(), made.adapter(name)).eval()
        ids, mask = generated(model, WORDS[rows], tokens)
        exact = logits(model, ids, mask, tokens)
        model = peft.PeftModel.from_pretrained(made.model(torch.bfloat16), made.adapter(name)).eval()
        rounded = logits(model, ids, mask, tokens)
        best = exact.topk(2).values
        torch.save({"ids": ids, "mask": mask, "float32": exact.argmax(-1), "bfloat16": rounded.argmax(-1),
                    "margin": best[..., 0] - best[..., 1], "distance": (exact - rounded).abs().amax(-1)}, file)
    return torch.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(made.ADAPTERS)}; default: qkv8 all")
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--in-process", action="store_true", help="no server: Python serves in its own process")
    options = parser.parse_args()
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    names, tokens, failed = options.names or ["qkv8", "all"], options.tokens, False

    with contextlib.ExitStack() as stack:
        served = None if options.in_process else stack.enter_context(Served(*names))
        print("| adapter | batch | text, float32 | likeliest, float32 | smallest margin | likeliest, bfloat16 "
              "| of those where bfloat16 may differ | s |\n|---|---|---|---|---|---|---|---|")
        for name in names:
            def attached(model):
                if served:
                    return tensafe.torch.attach(model, stack.enter_context(served.connect(name, tokens_ahead=32)))
                return tensafe.torch.attach(model, tensafe.load_peft(made.adapter(name)), tokens_ahead=32,
                                            column_scales=True)

            for rows in WORDS:
                peft_said, began = truth(name, rows, tokens), time.time()
                ids, mask = peft_said["ids"], peft_said["mask"]
                model = made.model()
                with attached(model):
                    text = generated(model, WORDS[rows], tokens)[0]
                    exact = logits(model, ids, mask, tokens).argmax(-1)
                model = made.model(torch.bfloat16)
                with attached(model):
                    rounded = logits(model, ids, mask, tokens).argmax(-1)
                same, near = rounded == peft_said["bfloat16"], peft_said["distance"] > peft_said["margin"]
                all_of = exact.numel()
                text_is = (text == ids)[:, -tokens:].int().cumprod(-1).sum().item()  # before the first that differs
                exact_is = (exact == peft_said["float32"]).sum().item()
                print(f"| {name} | {rows} | {text_is} of {all_of} | {exact_is} of {all_of} "
                      f"| {peft_said['margin'].min():.1e} | {same.sum()} of {all_of} "
                      f"| {(same & near).sum()} of {near.sum()} | {time.time() - began:.0f} |", flush=True)
                failed |= text_is != all_of or exact_is != all_of or not (same | near).all()
    sys.exit(failed)


if __name__ == "__main__":
    main()
