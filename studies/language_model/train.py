#!/usr/bin/env python3
"""Trains this study's LoRA adapters on the Jargon File by PEFT, and says what they change in text that they never saw.

    studies/language_model/train.py [qkv8] [all] [one]       those that are not there yet
"""

import math
import pathlib
import sys
import time

import peft
import torch

import made

LENGTH, BATCH, RATE = 256, 2, 2e-3
HELD_OUT = 24  # sequences


def sequences():
    """Token ids [n, LENGTH] to learn, and those of every twentieth entry, which are held out."""
    file = made.BUILD / "tokens.pt"
    if not file.exists():
        tokenizer = made.tokenizer()
        ids = [tokenizer(f"\n\n   :{entry}").input_ids for entry in made.entries()]
        parts = [sum((x for i, x in enumerate(ids) if (i % 20 == 19) == held), []) for held in (False, True)]
        torch.save([torch.tensor(part[:len(part) // LENGTH * LENGTH]).view(-1, LENGTH) for part in parts], file)
    return torch.load(file)


def train(name, rows):
    sites, layers, steps = made.ADAPTERS[name]
    torch.manual_seed(1)
    config = peft.LoraConfig(r=16, lora_alpha=32, target_modules=sites, layers_to_transform=list(layers),
                             task_type="CAUSAL_LM")
    model = peft.get_peft_model(made.model(torch.bfloat16), config)  # A and B are float32
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 10) * (0.55 + 0.45 * math.cos(math.pi * step / steps)))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(2))
    began = time.time()
    for step in range(steps):
        batch = rows[order[step * BATCH:(step + 1) * BATCH]]
        loss = model(batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            print(f"{name}: step {step + 1} of {steps}, loss {loss.item():.3f}, {time.time() - began:.0f} s", flush=True)
    model.save_pretrained(made.BUILD / name)


@torch.no_grad()
def judged(name, rows):
    """Held-out loss of base and adapter in nats a token, and KL of the adapter's distribution to the base's in bits."""
    model = peft.PeftModel.from_pretrained(made.model(), made.adapter(name)).eval()
    totals = torch.zeros(3, dtype=torch.float64)
    for row in rows[:: max(1, len(rows) // HELD_OUT)][:HELD_OUT]:
        adapted = model(row[None]).logits[0, :-1].log_softmax(-1)
        with model.disable_adapter():
            base = model(row[None]).logits[0, :-1].log_softmax(-1)
        kl = (adapted.exp() * (adapted - base)).sum(-1) / math.log(2)
        losses = (-x.gather(1, row[1:, None]) for x in (base, adapted))
        totals += torch.stack([*(loss.mean() for loss in losses), kl.mean()])
    return (totals / HELD_OUT).tolist()


def main():
    torch.set_num_threads(2)
    learned, held_out = sequences()
    for name in sys.argv[1:] or made.ADAPTERS:
        if not (pathlib.Path(made.BUILD) / name / "adapter_model.safetensors").exists():
            train(name, learned)
        base, adapted, kl = judged(name, held_out)
        print(f"{name}: held-out loss {base:.3f} -> {adapted:.3f} nats a token ({100 * (1 - adapted / base):.1f} % less), "
              f"KL {kl:.2f} bits a token")
        if name != "one" and (adapted > 0.85 * base or kl < 0.2):
            raise SystemExit(f"{name}: expected at least 15 % less and 0.2 bits")


if __name__ == "__main__":
    main()
