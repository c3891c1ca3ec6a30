#!/usr/bin/env python3
"""Measures what the capacity study needs, on this machine, and writes it into "measured" of inputs.json.

    studies/capacity/measure.py BUILD [MINUTES]      where tensafe-server and service_load are; to wait for quiet rounds

One server and one client, from which the study foretells, and two servers with more clients, which it is compared with.
"""

import atexit
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else sys.exit(__doc__)
QUIET = 0.1  # of all cores that others may take in a round, and in the second before it


def machine():
    """Seconds that all cores were busy, and all seconds of all cores."""
    times = [int(each) / 100 for each in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)


class Server:
    """A tensafe-server without limits, in a folder of its own."""

    def __init__(self, adapters=1):
        self.folder, self.port = tempfile.TemporaryDirectory(), socket.create_server(("127.0.0.1", 0)).getsockname()[1]
        self.state = pathlib.Path(self.folder.name) / "state"
        options = "--anybody --block-memory 8192 --work-rate none --rate 1e6 --handshake-rate 1e6 --client-share none " \
                  "--tenant-share none --adapter-share none".split()
        named = [f"--adapter=qwen{i or ''}={HERE}/../../examples/data/qwen_rank32" for i in range(adapters)]
        self.process = subprocess.Popen([BUILD / "service/tensafe-server", "--listen", f"127.0.0.1:{self.port}", "--state",
                                         self.state, *options, *named], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        atexit.register(self.process.kill)
        while b"serving" not in (line := self.process.stdout.readline()):
            if not line:
                sys.exit("measure: the server ended, expected one that serves")

    def cpu_ms(self):
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in tasks) / 1e6

    def memory_mb(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1e3


def load(servers, clients, *options, seconds=2, port=None):
    """One round of so many clients at each server, all at once. CPU is of an answer, log-ins included."""
    (busy, of), before = machine(), sum(each.cpu_ms() for each in servers)
    runs = [subprocess.Popen([BUILD / "bench/service_load", "--server", f"wss://localhost:{port or each.port}", "--trust",
                              each.state / "certificate.pem", "--adapter", "qwen", "--clients", str(clients), "--rounds",
                              "1", "--seconds", str(seconds), *options], stdout=subprocess.PIPE, text=True)
            for each in servers]
    rows = [each.stdout.read().split("wire, binary")[1].split() for each in runs]
    _, rate, p50, p99, up, down = (statistics.mean(float(row[i]) for row in rows) for i in range(6))
    clients_ms = sum(sum(os.wait4(each.pid, 0)[2][:2]) for each in runs) * 1e3
    servers_ms = sum(each.cpu_ms() for each in servers) - before
    rate *= len(servers)
    answers = rate * (seconds + min(0.3, seconds))  # it warms up for so long
    now = machine()
    others = max(now[0] - busy - (clients_ms + servers_ms) / 1e3, 0) / (now[1] - of)
    return {"answers_per_s": rate, "p50_ms": p50, "p99_ms": p99, "up": up, "down": down, "others": others,
            "server_ms": servers_ms / answers, "client_ms": clients_ms / answers, "answers": answers}


def parts(server):
    """How long a client waits, behind the answer of a token, for the first part of a block and for a later one."""
    notes, listener = [], socket.create_server(("127.0.0.1", 0))

    def carry(source, target, note):
        with contextlib.suppress(OSError):  # one side has gone
            while got := source.recv(1 << 20):
                note((time.perf_counter() * 1e3, len(got)))
                target.sendall(got)
            target.shutdown(socket.SHUT_WR)

    def tap():
        client, there = listener.accept()[0], socket.create_connection(("127.0.0.1", server.port))
        for each in (client, there):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=carry, args=(client, there, lambda _: None), daemon=True).start()
        carry(there, client, notes.append)
    threading.Thread(target=tap, daemon=True).start()
    others = load([server], 1, port=listener.getsockname()[1])["others"]
    first, later, answered, got, tokens = [], [], 0, 0, 0
    for at, size in notes[60:]:  # behind the log-in
        if got == 0 and size < 2000:  # an answer of a token has some 200 bytes
            answered, tokens = at, tokens + 1
        elif (got := got + size) > 90_000:  # a part has 98 kB
            (first if tokens > 1 else later).append(at - answered)
            got = tokens = 0
    return {"first_part_ms": statistics.median(first), "part_ms": statistics.median(later), "others": others}


def medians(measures, until, wanted=5):
    """Of quiet rounds of each measure; when the time is over, of the quietest: "others" says how quiet they were."""
    rounds = {name: [] for name in measures}

    def done(name):
        return len(rounds[name]) if time.monotonic() > until else sum(r["others"] < QUIET for r in rounds[name])
    while done(name := min(measures, key=done)) < wanted:
        busy, of = machine()
        time.sleep(1)
        now = machine()
        if (now[0] - busy) / (now[1] - of) < QUIET or time.monotonic() > until:
            rounds[name].append(measures[name]())
    best = {name: sorted(all_of, key=lambda each: each["others"])[:wanted] for name, all_of in rounds.items()}
    return {name: {key: round(statistics.median(each[key] for each in of), 4) for key in of[0]} for name, of in best.items()}


if __name__ == "__main__":
    model = pathlib.Path("/proc/cpuinfo").read_text().split("model name")[1].split("\n")[0].strip("\t :")
    result = {"machine": f"{os.cpu_count()} cores of an {model}, of both sides", "date": time.strftime("%Y-%m-%d"),
              "command": "studies/capacity/measure.py build/release", "load": round(os.getloadavg()[0], 1)}
    server, left, right = Server(), Server(), Server()
    empty = server.memory_mb()
    many = load([server], 64, "--tokens-ahead", "1", seconds=0.01)
    load([server], 64, seconds=1)
    result["session_mb"] = round((server.memory_mb() - empty) / 64, 2)
    measures = {"one": lambda: load([server], 1), "parts": lambda: parts(server),
                "alone": lambda: load([server], 1, "--tokens-ahead", "1")}
    measures |= {f"two_servers_{n}": lambda n=n: load([left, right], n) for n in (2, 4, 16)}
    result |= medians(measures, time.monotonic() + 60 * float((sys.argv + ["5"])[2]))
    result["login_ms"] = round(many["answers"] * (many["server_ms"] - result["alone"]["server_ms"]) / 64, 2)
    full = Server(41)
    result |= {"adapter_mb": round((full.memory_mb() - empty) / 40, 2), "packing_ms": round(full.cpu_ms() / 41, 1)}
    inputs = json.loads((HERE / "inputs.json").read_text())
    (HERE / "inputs.json").write_text(json.dumps({**inputs, "measured": result}, indent=1) + "\n")
