#!/usr/bin/env python3
"""Says what many users of encrypted adapters need, and how well it foretells a run of two servers.
    studies/capacity/capacity.py [FILE]       default: inputs.json beside it, which measure.py fills in
"""

import json
import math
import pathlib
import sys

import queueing


def read(file):
    """Numbers by their names, "work" being what queueing takes, and runs of two servers. Ends with what is wrong."""
    def number(name, value):
        if type(value) not in (int, float) or not 0 < value < math.inf or (value > 1 and name.endswith(("share", "at_most"))):
            sys.exit(f"capacity: {file}: got {value!r} for {name}, expected a number above 0, and a share of 1 at most")
        return value
    try:
        inputs = json.loads(pathlib.Path(file).read_text())
        measured = inputs["measured"]
        found = {name: number(name, each["value"]) for of in ("cited", "assumed") for name, each in inputs[of].items()}
        found |= {name: number(name, measured[name]) for name in ("login_ms", "session_mb", "adapter_mb", "packing_ms")}
        found |= {name: number(name, measured["one"][name]) for name in ("server_ms", "client_ms", "up", "down")}
        work = {name: number(name, measured["parts"][name + "_ms"]) for name in ("first_part", "part")}
        work |= {"block": int(found["block"]), "parts": int(found["parts"]), "token": 0}
        work["token"] = number("token", found["server_ms"] - queueing.answer_ms(work))
        row(found | {"work": work}, 1000, False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as e:
        sys.exit(f"capacity: {file}: got {type(e).__name__} {e}, expected a JSON file with what inputs.json has")
    runs = {2 * int(name.split("_")[2]): each for name, each in measured.items() if name.startswith("two_servers_")}
    return found | {"work": work}, runs


def row(n, users, is_model):
    """What so many users need, each with one input of an adapter, or with a whole model."""
    inputs, products = (160, n["products"]) if is_model else (1, 1)
    session, adapter = (n["model_session_mb"], n["model_adapter_mb"]) if is_model else (n["session_mb"], n["adapter_mb"] / 2)
    active = users * n["active_share"]
    tokens = active * (n["prompt_tokens"] + n["written_tokens"]) / (n["writing_s"] + n["think_s"])  # a second
    product = n["work"]["part"] * n["work"]["parts"] / n["work"]["block"]  # ms of an answer; the rest is an input's
    logins_ms = active * n["logins_an_hour"] / 3600 * n["login_ms"]
    busy = (tokens * (inputs * (n["server_ms"] - product) + products * product) + logins_ms) / 1e3
    up, down = (8e-9 * tokens * each for each in (inputs * n["up"], products * n["down"]))  # Gbit/s
    adapters, half = math.ceil(users / n["users_an_adapter"]), n["memory_gb"] * 500  # MB
    cells = math.ceil(adapters * adapter / half)  # groups of servers that serve the same adapters
    needs = {"cores": busy / n["cores"] / n["used_at_most"], "lines": max(up, down) / n["line_gbit"] / n["used_at_most"],
             "sessions": active / n["sessions"], "memory": active * session / half, "adapters": cells}
    binds = max(needs, key=needs.get)
    servers = math.ceil(needs[binds]) + cells  # one to spare in each cell
    scripts = tokens * inputs / n["answers_a_script"] + servers * n["scripts_a_server"]
    egress = n["days"] * n["busy_hours_a_day"] * 3600 * down / 8 * n["gb_egress"]  # USD
    us, limit = scripts * n["redis_script_us"], n["redis_used_at_most"] * 1e6  # a script reads a number of each server
    masters = math.ceil((us + math.sqrt(us**2 + 4 * limit * scripts * n["redis_server_us"] * servers)) / 2 / limit)
    memory = (adapters * adapter * servers / cells + active * session) / 1e3  # GB
    money = egress + n["days"] * 24 * servers * (n["cores"] * n["core_hour"] + n["memory_gb"] * n["gb_hour"])
    return {"answers": tokens * inputs, "busy": busy, "servers": servers, "cells": cells, "binds": binds, "up": up, "down": down,
            "scripts": scripts, "masters": max(masters, cells), "memory": memory, "money": money, "egress": egress}


def short(x):
    return f"{float(f'{x:.2g}'):,.{max(1 - math.floor(math.log10(x)), 0)}f}" if x > 0 else "0"


def main(n, runs):
    print("| Users | Inputs | Answers/s | Cores busy | Servers (cells), for | Scripts/s (masters) | Gbit/s up, down | Memory, "
          "GB | USD a month (egress) |\n|---|---|---|---|---|---|---|---|---|")
    for power in range(3, 8):
        for is_model in (False, True):
            r = {name: each if type(each) is str else short(each) if type(each) is float else f"{each:,}"
                 for name, each in row(n, 10**power, is_model).items()}
            print(f"| 10^{power} | {160 if is_model else 1} | {r['answers']} | {r['busy']} | {r['servers']} ({r['cells']}), "
                  f"{r['binds']} | {r['scripts']} ({r['masters']}) | {r['up']}, {r['down']} | {r['memory']} | {r['money']} "
                  f"({r['egress']}) |")
    per_ms = n["cores"] * n["used_at_most"] / n["server_ms"]
    print(f"\nA server at {n['used_at_most']:.0%} of its cores gives {short(per_ms * 1e3)} answers/s, and a token waits "
          f"{short(1e3 * queueing.token_wait_ms(n['cores'], per_ms, n['work']))} us in the mean.\n\n| Clients of two servers "
          "| Others had | Answers/s: measured, foretold | p50, ms | p99, ms |\n|---|---|---|---|---|")
    for users, is_ in runs.items():
        was = queueing.simulate(n["work"], 2, 3, users, servers=2, client=n["client_ms"], speed=1 - is_["others"],
                                together=True)
        pairs = (is_["answers_per_s"], was["per_ms"] * 1e3), (is_["p50_ms"], was["p50"]), (is_["p99_ms"], was["p99"])
        print(f"| {users} | {is_['others']:.0%} |", *(f"{short(a)}, {short(b)}: {b / a - 1:+.0%} |" for a, b in pairs))


if __name__ == "__main__":
    main(*read((sys.argv + [pathlib.Path(__file__).with_name("inputs.json")])[1]))
