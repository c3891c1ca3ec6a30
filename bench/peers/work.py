"""The work that every peer does, and how it is timed. A file with_<peer>.py beside this one says how its peer does
it, and prints JSON in its last line:

    with_<peer>.py operations 8192|16384
    with_<peer>.py token WAY
    with_<peer>.py jobs                       what this one can do: a list of the arguments above

A **library of CKKS** is made of N, the widths in bits of the chain and of the special primes, and the steps of the
rotations. It has `encode`, `encrypt`, `multiply_plain`, `multiply` (relinearized and rescaled), `decrypt` and `size`
(bytes of a message); `rescale`, where `multiply_plain` does not do that; and for diagonals `add`,
`rotate` (left) and `rotate_all`.

Times are of the processor, since its core may be shared. Nothing is serialised meanwhile: sizes are those of messages
that are written afterwards.
"""
import functools
import json
import statistics
import sys
import time

import numpy as np

RANK, D = 32, 2048
SCALE = 2.0 ** 40
# By N: our sets n8192_depth2 and n16384_depth5, and what a token needs, one product.
CHAINS = {8192: ([47, 40, 40], [50]), 16384: ([50, 40, 40, 40, 40, 40], [48, 48, 48])}
TOKEN_N, TOKEN_CHAIN = 8192, ([50, 40], [50])


class base:
    """What a library of CKKS need not say."""

    def rescale(self, c):
        return c

    def rotate_all(self, c, steps):
        return [self.rotate(c, s) for s in steps]


def token():
    """A with rows of norm about 1, and a hidden state."""
    random = np.random.default_rng(1)
    return random.normal(size=(RANK, D)) / D ** 0.5, random.normal(size=D)


def milliseconds(job):
    """The median over 5 to 101 runs in about 0.4 s after a first one, which is the only one where it takes 3 s."""
    taken, begin = [], time.process_time()
    while len(taken) < 6 or (len(taken) < 102 and time.process_time() - begin < 0.4):
        start = time.process_time()
        job()
        taken.append(time.process_time() - start)
        if taken[0] > 3:
            return taken[0] * 1e3
    return statistics.median(taken[1:]) * 1e3


def operations(library, n):
    """The five operations on full slots at the top of the chain."""
    rotates = hasattr(library, "rotate")
    ckks = library(n, *CHAINS[n], [1] if rotates else [])
    random = np.random.default_rng(1)
    x, w = random.normal(size=n // 2), random.normal(size=n // 2)
    weights, a, b = ckks.encode(w), ckks.encrypt(x), ckks.encrypt(w)
    errors = [ckks.decrypt(a) - x, ckks.decrypt(ckks.rescale(ckks.multiply_plain(a, weights))) - x * w,
              ckks.decrypt(ckks.multiply(a, b)) - x * w]
    if rotates:
        errors.append(ckks.decrypt(ckks.rotate(a, 1)) - np.roll(x, -1))
    return {"ms": {"encode, encrypt": milliseconds(lambda: ckks.encrypt(x)),
                   "ct x pt": milliseconds(lambda: ckks.multiply_plain(a, weights)),
                   "ct x ct": milliseconds(lambda: ckks.multiply(a, b)),
                   "rotate": milliseconds(lambda: ckks.rotate(a, 1)) if rotates else None,
                   "decrypt, decode": milliseconds(lambda: ckks.decrypt(a))},
            "bytes": ckks.size(a), "error": float(np.max([np.abs(e).max() for e in errors]))}


class rows:
    """Rows of A beside each other in the slots: one product for each group of rows, no rotation; the client sums."""

    def __init__(self, library, a):
        self.ckks = library(TOKEN_N, *TOKEN_CHAIN, [])
        self.copies = TOKEN_N // 2 // D
        self.weights = [self.ckks.encode(a[r:r + self.copies].ravel()) for r in range(0, RANK, self.copies)]

    def request(self, h):
        return self.ckks.encrypt(np.tile(h, self.copies))

    def reply(self, request):
        return [self.ckks.rescale(self.ckks.multiply_plain(request, w)) for w in self.weights]

    def answers(self, reply):
        return np.concatenate([self.ckks.decrypt(c).reshape(self.copies, D).sum(axis=1) for c in reply])

    def sizes(self, request, reply):
        return self.ckks.size(request), sum(self.ckks.size(c) for c in reply)


class diagonals:
    """Diagonals of A, baby and giant steps, and rotations that fold: one ciphertext each way.

    Copy number c of h in the slots is turned left by c * steps, so that after a rotation by k < steps slot i has of h
    what belongs to row i mod 32, and all copies together meet each entry of A once.
    """

    BABY = 4

    def __init__(self, library, a):
        slots = TOKEN_N // 2
        copies = slots // D
        steps = RANK // copies
        folds = [RANK << i for i in range((slots // RANK).bit_length() - 1)]
        self.folds, self.babies, self.giants = folds, range(self.BABY), range(0, steps, self.BABY)
        self.entry = np.concatenate([(np.arange(D) + c * steps) % D for c in range(copies)])
        self.ckks = library(TOKEN_N, *TOKEN_CHAIN, sorted({*self.babies, *self.giants, *folds} - {0}))
        i = np.arange(slots)
        # A giant step follows the sum, so its plaintexts are turned back by as much.
        self.weights = {(g, b): self.ckks.encode(np.roll(a[i % RANK, self.entry[(i + g + b) % slots]], g))
                        for g in self.giants for b in self.babies}

    def request(self, h):
        return self.ckks.encrypt(h[self.entry])

    def reply(self, request):
        ckks = self.ckks
        turned = [request, *ckks.rotate_all(request, self.babies[1:])]
        parts = [functools.reduce(ckks.add, [ckks.multiply_plain(turned[b], self.weights[g, b]) for b in self.babies])
                 for g in self.giants]
        total = functools.reduce(ckks.add, [ckks.rotate(part, g) if g else part for g, part in zip(self.giants, parts)])
        total = ckks.rescale(total)
        for fold in self.folds:
            total = ckks.add(total, ckks.rotate(total, fold))
        return total

    def answers(self, reply):
        return self.ckks.decrypt(reply)[:RANK]

    def sizes(self, request, reply):
        return self.ckks.size(request), self.ckks.size(reply)


def measure_token(way):
    """What a token takes by one way: an object with `request`, `reply`, `answers` and `sizes`."""
    a, h = token()
    request = way.request(h)
    reply = way.reply(request)
    up, down = way.sizes(request, reply)
    client = milliseconds(lambda: way.request(h)) + milliseconds(lambda: way.answers(reply))
    return {"ms": {"client": client, "server": milliseconds(lambda: way.reply(request))},
            "bytes": {"up": up, "down": down}, "error": float(np.abs(way.answers(reply) - a @ h).max())}


def main(library=None, **ways):
    """Runs what the command line asks for. `ways` make what has the methods of `rows` of A, or a `measure` of its own; a
    library of CKKS has rows, and one that rotates diagonals."""
    if library is not None:
        ways["rows"] = lambda a: rows(library, a)
    if hasattr(library, "rotate"):
        ways["diagonals"] = lambda a: diagonals(library, a)
    match sys.argv[1:]:
        case ["operations", n] if library is not None and n in map(str, CHAINS):
            result = operations(library, int(n))
        case ["token", name] if name in ways:
            way = ways[name](token()[0])
            result = way.measure() if hasattr(way, "measure") else measure_token(way)
        case ["jobs"]:
            result = [["operations", str(n)] for n in CHAINS if library] + [["token", name] for name in ways]
        case _:
            sys.exit(f"{sys.argv[0]}: got '{' '.join(sys.argv[1:])}', expected jobs, or one of those that this prints")
    if isinstance(result, dict) and not result["error"] < 0.1:
        sys.exit(f"{sys.argv[0]}: wrong answers: got an error of {result['error']:.2g}, expected less than 0.1")
    print(json.dumps(result))
