#!/usr/bin/env python3
"""Trains LoRA adapters by PEFT to say what words mean as the Jargon File does, and measures them by words that they
never saw.

    studies/language_model/train.py [qkv8] [all] [one]       those that are not there yet
"""

import json
import math
import sys
import time

import peft
import torch

import made

ANSWER, BATCH, RATE = 64, 4, 2e-3  # tokens of an answer
HELD_OUT = 48  # entries


def examples():
    """Token ids of questions and their answers: to learn, and of every twentieth entry, which is held out."""
    tokenizer, parts = made.tokenizer(), ([], [])
    for i, entry in enumerate(made.entries()):
        asked = tokenizer(made.asked(tokenizer, entry.split(":")[0])).input_ids
        parts[i % 20 == 19].append((asked, tokenizer(f":{entry}{tokenizer.eos_token}").input_ids[:ANSWER]))
    return parts


def batch_of(rows):
    """Ids and labels, which are those of answers alone."""
    pad = torch.nn.utils.rnn.pad_sequence
    return (pad([torch.tensor(asked + answer) for asked, answer in rows], batch_first=True),
            pad([torch.tensor([-100] * len(asked) + answer) for asked, answer in rows], batch_first=True,
                padding_value=-100))


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
        ids, labels = batch_of([rows[i] for i in order[step * BATCH:(step + 1) * BATCH]])
        loss = model(ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            print(f"{name}: step {step + 1} of {steps}, loss {loss.item():.3f}, {time.time() - began:.0f} s",
                  flush=True)
    model.save_pretrained(made.BUILD / name)


@torch.no_grad()
def judged(name, rows):
    """Held-out loss of base and adapter in nats a token, and KL of the adapter's distribution to the base's in bits."""
    model = peft.PeftModel.from_pretrained(made.model(), made.adapter(name)).eval()
    totals, tokens = torch.zeros(3, dtype=torch.float64), 0
    for row in rows[:HELD_OUT]:
        ids, labels = batch_of([row])
        answer = labels[0, 1:] >= 0
        adapted = model(ids).logits[0, :-1][answer].log_softmax(-1)
        with model.disable_adapter():
            base = model(ids).logits[0, :-1][answer].log_softmax(-1)
        kl = (adapted.exp() * (adapted - base)).sum() / math.log(2)
        losses = (-x.gather(1, labels[0, 1:][answer, None]).sum() for x in (base, adapted))
        totals, tokens = totals + torch.stack([*losses, kl]), tokens + len(adapted)
    return (totals / tokens).tolist()


def main():
    torch.set_num_threads(2)
    learned, held_out = examples()
    for name in sys.argv[1:] or made.ADAPTERS:
        if not (made.BUILD / name / "adapter_model.safetensors").exists():
            train(name, learned)
        file = made.BUILD / name / "held_out.json"
        if not file.exists():
            file.write_text(json.dumps(judged(name, held_out)))
        base, adapted, kl = json.loads(file.read_text())
        print(f"{name}: held-out loss {base:.3f} -> {adapted:.3f} nats a token "
              f"({100 * (1 - adapted / base):.1f} % less), KL {kl:.2f} bits a token")
        if adapted > 0.85 * base or kl < 0.2:
            raise SystemExit(f"{name}: expected at least 15 % less and 0.2 bits")


if __name__ == "__main__":
    main()
