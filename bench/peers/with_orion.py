"""Orion, on Lattigo: a public key, and no messages to write, so their bytes are counted. All products are rescaled at
once. Lattigo's secret has here as many entries as a random one of -1, 0 and 1."""
import orion
import orion.nn
import torch
import work

torch.set_default_dtype(torch.float64)


def start(n, chain, special):
    orion.init_scheme({"ckks_params": {"LogN": n.bit_length() - 1, "LogQ": chain, "LogP": special, "LogScale": 40,
                                       "H": 2 * n // 3, "RingType": "standard"},
                       "orion": {"backend": "lattigo", "debug": False, "io_mode": "none"}})


def size_of(c, n):
    return len(c.ids) * 2 * (c.level() + 1) * n * 8


class library(work.base):
    def __init__(self, n, chain, special, steps):
        self.n = n
        start(n, chain, special)

    def encode(self, x):
        return orion.encode(torch.from_numpy(x))

    def encrypt(self, x):
        return orion.encrypt(self.encode(x))

    def multiply_plain(self, c, p):
        return c * p

    def multiply(self, a, b):
        return a * b

    def add(self, a, b):
        return a + b

    def rotate(self, c, steps):
        return c.roll(steps)

    def decrypt(self, c):
        return orion.decode(orion.decrypt(c)).numpy()

    def size(self, c):
        return size_of(c, self.n)


class linear:
    """Orion's layer Linear, as it compiles it."""

    def __init__(self, a):
        start(work.TOKEN_N, *work.TOKEN_CHAIN)
        self.layer = orion.nn.Linear(work.D, work.RANK, bias=False)
        self.layer.weight.data = torch.from_numpy(a)
        orion.fit(self.layer, torch.randn(1, work.D))
        self.level = orion.compile(self.layer)
        self.layer.he()

    def request(self, h):
        return orion.encrypt(orion.encode(torch.from_numpy(h), self.level))

    def reply(self, request):
        return self.layer(request)

    def answers(self, reply):
        return orion.decode(orion.decrypt(reply)).numpy().ravel()

    def sizes(self, request, reply):
        return size_of(request, work.TOKEN_N), size_of(reply, work.TOKEN_N)


work.main(library, linear=linear)
