"""A tensafe-server with this study's adapters, and a link of a delay and a rate before it."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import made
import tensafe

ROOT = made.HERE.parents[1]
# Measurements lift the limits: 500 tokens exceed all that A is worth at d = 576.
LIFTED = ["--client-share", "none", "--tenant-share", "none", "--adapter-share", "none", "--rate", "1e9"]


def _program():
    for path in (os.environ.get("TENSAFE_SPLIT_SERVER", ""), ROOT / "build/release/service/tensafe-server"):
        if path and pathlib.Path(path).exists():
            return str(path)
    raise SystemExit("no tensafe-server: build it (docs/service.md), or name one by TENSAFE_SPLIT_SERVER")


@dataclasses.dataclass
class Link:
    process: subprocess.Popen
    port: int

    def bytes(self):
        """What went up and down so far."""
        self.process.send_signal(signal.SIGUSR1)
        return [int(word) for word in self.process.stdout.readline().split()]


class Served(contextlib.ExitStack):
    """The server's process, as long as a `with` block lasts."""

    def __init__(self, *names, options=("--column-scales",)):
        super().__init__()
        self.folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
        adapters = [word for name in names for word in ("--adapter", f"{name}={made.adapter(name)}")]
        self.log = self.enter_context((self.folder / "log").open("w"))
        self.process = self._start([_program(), "--listen", "localhost:0", "--state", self.folder / "state",
                                    "--anybody", *adapters, *LIFTED, *options],
                                   stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.callback(self.process.stdout.close)
        line = self.process.stdout.readline()
        if not line.startswith("listening on wss://"):
            raise SystemExit(f"tensafe-server: {(self.folder / 'log').read_text()}")
        self.port = int(line.split(",")[0].rsplit(":", 1)[1])

    def _start(self, command, **options):
        process = subprocess.Popen(command, **options)
        self.callback(process.wait)
        self.callback(process.kill)
        return process

    def link(self, round_trip, rate):
        """Returns a new link to the server: the round trip in ms, Mbit/s (0: no limit)."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = self._start([sys.executable, ROOT / "bench/slow_link.py", str(port), str(self.port), "--delay",
                               str(round_trip / 2), *(["--rate", str(rate)] if rate else [])],
                              stdout=subprocess.PIPE, text=True)
        self.callback(process.stdout.close)
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return Link(process, port)
            time.sleep(0.01)
        raise SystemExit("bench/slow_link.py does not listen")

    def connect(self, name, port=0, **options):
        os.environ["no_proxy"] = "*"
        return tensafe.connect(f"wss://localhost:{port or self.port}", name, ca=self.folder / "state/certificate.pem",
                               timeout=600, **options)
