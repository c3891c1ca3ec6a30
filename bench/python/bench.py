"""Python beside C++ (`token`), in turns on one core; import; two threads.

    g++ -O2 -DNDEBUG -std=c++20 -I include bench/python/token.cpp -o build/token
    taskset -c 0 build/python/bin/python bench/python/bench.py build/token
    build/python/bin/python bench/python/bench.py threads
"""

import statistics
import subprocess
import sys
import threading
import time

import numpy as np

import tensafe

D, RANK = 2048, 32


def adapter():
    random = np.random.default_rng(1)
    return tensafe.Adapter([tensafe.Site("q_proj", random.normal(size=(RANK, D)).astype(np.float32) / 32,
                                         random.normal(size=(D, RANK)).astype(np.float32) / 32)])


def times(session, h, count):
    taken = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        session.delta("q_proj", h)
        taken.append(time.perf_counter_ns() - begin)
    return taken


def against_cpp(token, rounds, rows, count):
    server = tensafe.Server(adapter())
    session = tensafe.Client(server).connect(server)
    h = np.random.default_rng(2).normal(size=(rows, D) if rows > 1 else D).astype(np.float32)
    times(session, h, 1)
    cpp, python = [], []
    for _ in range(rounds):
        out = subprocess.run([token, str(count), str(rows)], capture_output=True, text=True, check=True).stdout
        cpp.append(statistics.median(map(int, out.split())) / rows / 1e3)
        python.append(statistics.median(times(session, h, count)) / rows / 1e3)
    ratio = statistics.median(p / c for p, c in zip(python, cpp))
    print(f"{rows} hidden states: C++ {statistics.median(cpp):.1f} us each, Python {statistics.median(python):.1f} us, "
          f"ratio {ratio:.3f}")


def importing(rounds):
    def took(statement):
        code = f"import numpy, time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
        return statistics.median(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                                      check=True).stdout) for _ in range(rounds))

    print(f"import tensafe after numpy: {took('import tensafe') * 1e3:.1f} ms")


def two_threads(rounds):
    server = tensafe.Server(adapter())
    h = np.random.default_rng(2).normal(size=(500, D)).astype(np.float32)

    def took(count):
        sessions = [tensafe.Client(server).connect(server) for _ in range(count)]
        threads = [threading.Thread(target=session.delta, args=("q_proj", h)) for session in sessions]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begin

    print(f"two threads: {statistics.median(2 * took(1) / took(2) for _ in range(rounds)):.2f} times as fast as one")


if __name__ == "__main__":
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    if sys.argv[1] == "threads":
        two_threads(runs)
    else:
        importing(runs)
        against_cpp(sys.argv[1], runs, 1, 300)
        against_cpp(sys.argv[1], runs, 512, 1)
