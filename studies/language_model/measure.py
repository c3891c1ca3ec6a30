#!/usr/bin/env python3
"""Measures text from models with encrypted adapters behind links of several delays and rates, beside plain PEFT.

    studies/language_model/measure.py [--quick] [NAME...]

What was measured is kept in build/language_model/measured.json, and not measured again; the tables go to measured.md
beside it. Query limits are lifted: 500 tokens exceed all that A is worth at d = 576.
"""

import argparse
import json
import pathlib
import statistics
import time

import peft
import torch

import made
import tensafe.torch
from served import Served

ROUND_TRIPS, RATES, DRAFTS = (0, 5, 20, 50), (100, 20), (0, 4)  # ms, Mbit/s
PROMPT, TOKENS, LONG = 20, 57, 500  # 20 + 56 positions are two blocks of 38
PASSES = (1, 5, 9)  # positions


def memory(process="self"):
    """MB in memory now."""
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


class Clock(list):
    """Notes when a text has how many tokens, as a stopping criterion that never stops."""

    def __call__(self, ids, scores, **_):
        self.append((time.perf_counter(), ids.shape[1]))
        return torch.zeros(ids.shape[0], dtype=torch.bool)


def written(model, ids, tokens, **options):
    """Seconds to the first token, tokens/s from it on, and tokens after it."""
    clock, began = Clock(), time.perf_counter()
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens,
                   do_sample=False, stopping_criteria=[clock], pad_token_id=0, **options)
    (first, length), (last, end) = clock[0], clock[-1]
    return {"first_s": first - began, "tokens_per_s": (end - length) / (last - first) if end > length else None,
            "tokens": end - length}


def plain(name, prompt):
    model = peft.PeftModel.from_pretrained(made.model(), made.adapter(name)).eval()
    written(model, prompt[:, :PROMPT], 2)
    result = written(model, prompt[:, :PROMPT], TOKENS)
    return {**result, "first_long_s": written(model, prompt, 1)["first_s"]}


def behind_a_link(served, name, prompt, round_trip, rate, drafts, quick):
    """One text, and where there are no drafts also passes of several positions and, unless quick, a long prompt."""
    link, model = served.link(round_trip, rate), made.model()
    written(model, prompt[:, :PROMPT], 2)  # its weights come into memory
    before, began, result = memory(), time.perf_counter(), {}

    def session():
        return served.connect(name, link.port)

    with session() as first:
        result["open_s"], opened = time.perf_counter() - began, link.bytes()
        with tensafe.torch.attach(model, first) as attached:
            positions = []
            hook = model.get_submodule(first.sites[0]).register_forward_pre_hook(
                lambda module, args: positions.append(args[0].shape[:-1].numel()))
            assistant = {"assistant_model": attached.base_model(drafts)} if drafts else {}
            result |= written(model, prompt[:, :PROMPT], TOKENS, **assistant)
            hook.remove()
            up, down = (now - then for now, then in zip(link.bytes(), opened))
            result |= {"positions_per_token": (sum(positions) - positions[0]) / result["tokens"],
                       "passes": len(positions), "up": up / sum(positions), "down": down / sum(positions),
                       "client_mb": memory() - before, "server_mb": memory(served.process.pid)}
            if not drafts:
                for m in PASSES:
                    times = []
                    for _ in range(3):
                        start = time.perf_counter()
                        model(prompt[:, :m])
                        times.append(time.perf_counter() - start)
                    result[f"pass_{m}_s"] = statistics.median(times)
    if not drafts and not quick:
        with session() as fresh, tensafe.torch.attach(model, fresh):
            result["first_long_s"] = written(model, prompt, 1)["first_s"]
    return result


def tables(measured):
    def number(row, key, digits=2):
        return "" if row.get(key) is None else f"{row[key]:.{digits}f}"

    yield (f"Prompts of {PROMPT} and {LONG} tokens, then {TOKENS} tokens; seconds; bytes of a position, without the "
           "opening of the session; memory that a session adds, and that of the server, MB.\n")
    yield ("| adapter | round trip, ms | Mbit/s | drafts | tokens/s | positions a token | first token | of "
           f"{LONG} | pass of {' | of '.join(map(str, PASSES))} | kB up | down | opened in | client | server |")
    yield "|" + "---|" * (12 + len(PASSES))
    for key, row in measured.items():
        name, *link = key.split("/")
        cells = [name, *(link or ["plain PEFT", "", ""]), number(row, "tokens_per_s"),
                 number(row, "positions_per_token"), number(row, "first_s"), number(row, "first_long_s"),
                 *(number(row, f"pass_{m}_s") for m in PASSES),
                 *(f"{row[way] / 1e3:.1f}" if way in row else "" for way in ("up", "down")), number(row, "open_s"),
                 number(row, "client_mb", 0), number(row, "server_mb", 0)]
        yield "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(made.ADAPTERS)}; default: all of them")
    parser.add_argument("--quick", action="store_true", help="one layer and eight, two links, no long prompt: minutes")
    options = parser.parse_args()
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    names = options.names or (["one", "qkv8"] if options.quick else ["one", "qkv8", "all"])
    links = [(0, 100), (20, 100)] if options.quick else [(ms, rate) for rate in RATES for ms in ROUND_TRIPS]
    file = made.BUILD / ("measured_quick.json" if options.quick else "measured.json")
    measured = json.loads(file.read_text()) if file.exists() else {}
    prompt = made.tokenizer()("".join(made.entries()[100:110]), return_tensors="pt").input_ids[:, :LONG]

    def note(key, measure, *args):
        if key not in measured:
            measured[key] = measure(*args)
            file.write_text(json.dumps(measured, indent=1))
            print(key, json.dumps(measured[key]), flush=True)

    for name in names:
        note(name, plain, name, prompt)
        with Served(name) as served:
            for round_trip, rate in links:
                for drafts in DRAFTS:
                    note(f"{name}/{round_trip}/{rate}/{drafts}", behind_a_link, served, name, prompt, round_trip, rate,
                         drafts, options.quick or name == "all" and rate < 100)  # a prompt of 500 is 1 GB
    text = "\n".join(tables(measured))
    file.with_suffix(".md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
