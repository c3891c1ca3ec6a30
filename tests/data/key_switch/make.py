#!/usr/bin/env python3
"""Known answers of key switching, by integers and schoolbook rules; nothing of the library runs here.

    tests/data/key_switch/make.py      writes answers.json beside itself, the same bytes each time

docs/design/key-switching.md says what is computed, docs/design/random-streams.md how seeds become numbers. Streams,
transforms and products of polynomials (long integers, modulo Q P) are those of exchange/make.py beside this.

The ring has N = 1024; x and y are two ciphertexts of uniform residues, from two seeds of `uplink` streams. Digests are
D of tests/data/random_streams.json over all limbs in evaluation form, of a key digit after digit: b, then a.
"""
import importlib.util
import json
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("exchange", HERE.parent / "exchange/make.py")
exchange = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exchange)

DEGREE, EVALUATION_KEY = 1024, 13
# Chain, special primes, primes of a digit, and limbs of ciphertexts and of the keys that they are switched with.
SETS = {"two_a_digit": ((50, 41, 40, 39, 41), (48, 47), 2, ((5, 5), (3, 3), (1, 1), (3, 5))),  # a last digit of one
        "wide": ((60, 40, 51), (61,), 1, ((3, 3), (2, 3)))}
SEEDS = {name: bytes([i + 1]) * 32 for i, name in enumerate(("secret", "relinearization", "galois", "x", "y"))}


class Ring(exchange.Ring):
    """A ring with primes of the caller's choice."""

    def __init__(self, primes):
        super().__init__(DEGREE, ())
        self.primes = list(primes)
        self.psi = [exchange.smallest_root(q, DEGREE) for q in primes]
        self.modulus = math.prod(primes)


def centred(x, q):
    return x - q if x > q // 2 else x


def lifted(x, primes):
    """The integers that the conversion gives: each residue of x q / D, centred, times D / q."""
    d = math.prod(primes)
    return [sum(centred(c * pow(d // q, -1, q) % q, q) * (d // q) for q in primes) for c in x]


def moved(a, exponent, modulus):
    """a(X^g)."""
    result = [0] * DEGREE
    for i, c in enumerate(a):
        place = i * exponent % (2 * DEGREE)
        result[place % DEGREE] = c if place < DEGREE else -c % modulus
    return result


class Keys:
    """Keys for ciphertexts of the first `limbs` primes."""

    def __init__(self, chain, special, per_digit, limbs):
        self.chain, self.special, self.limbs = chain, special, limbs
        self.q, self.qp = Ring(chain[:limbs]), Ring(chain[:limbs] + special)
        self.p = math.prod(special)
        self.digits = [chain[i:min(i + per_digit, limbs)] for i in range(0, limbs, per_digit)]

    def make(self, seed, secret, source):
        """b and a of each digit, from the seed of a generator."""
        draws, lanes = exchange.generator(seed), len(self.chain) + len(self.special)
        public, modulus, keys = next(draws), self.qp.modulus, []
        for d, digit in enumerate(self.digits):
            error = exchange.draw_errors(next(draws), 0, DEGREE)
            numbers = list(range(self.limbs)) + [len(self.chain) + j for j in range(len(self.special))]
            a = self.qp.interpolate([exchange.uniform(public, EVALUATION_KEY, d * lanes + i, q, DEGREE)
                                     for i, q in zip(numbers, self.qp.primes)])
            # P modulo the primes of the digit, 0 modulo all others.
            others = modulus // math.prod(digit)
            gadget = others * pow(others, -1, math.prod(digit)) * self.p % modulus
            product = self.qp.multiply(a, secret)
            keys.append(([(e + gadget * s - y) % modulus for e, s, y in zip(error, source, product)], a))
        return keys

    def switch(self, x, keys, more=(None, None), rescales=False):
        """What x times the source of the keys is under their secret: two polynomials, `more` in them."""
        q, p, result = self.q, self.p, []
        for half in (0, 1):
            total = [0] * DEGREE
            for digit, key in zip(self.digits, keys):
                product = self.qp.multiply(lifted([c % math.prod(digit) for c in x], digit), key[half])
                total = [(s + t) % self.qp.modulus for s, t in zip(total, product)]
            if more[half] is not None:  # times P modulo Q, and 0 modulo P
                unit = p * pow(p, -1, q.modulus) * p % self.qp.modulus
                total = [(s + unit * t) % self.qp.modulus for s, t in zip(total, more[half])]
            by = ([self.chain[self.limbs - 1]] if rescales else []) + self.special
            divisor, left = math.prod(by), q.modulus // (by[0] if rescales else 1)
            rest = lifted([c % divisor for c in total], by)
            result.append([(c - r) // divisor % left for c, r in zip(total, rest)])
            assert all((c - r) % divisor == 0 for c, r in zip(total, rest))
        return result


def known(widths, special_widths, per_digit, levels):
    primes = exchange.primes_of(widths + special_widths, DEGREE)
    chain, special = primes[:len(widths)], primes[len(widths):]
    secret = exchange.ternary(SEEDS["secret"], exchange.SECRET_KEY, DEGREE)
    exponent = pow(5, 3, 2 * DEGREE)
    inverse = pow(exponent, -1, 2 * DEGREE)

    def digest(ring, *polynomials):
        return exchange.digest(*(limb for p in polynomials for limb in ring.evaluate(p)))

    def level(limbs, key_limbs):
        made = Keys(chain, special, per_digit, key_limbs)
        relinearization = made.make(SEEDS["relinearization"], secret, made.qp.multiply(secret, secret))
        galois = made.make(SEEDS["galois"], moved(secret, inverse, made.qp.modulus), secret)
        of = Keys(chain, special, per_digit, limbs)  # a product with keys of more limbs is modulo these
        (x0, x1), (y0, y1) = [
            [of.q.interpolate([exchange.uniform(SEEDS[name], exchange.UPLINK, half * limbs + i, q, DEGREE)
                               for i, q in enumerate(of.q.primes)]) for half in (0, 1)] for name in "xy"]
        u = of.switch(x1, galois)
        product = [of.q.multiply(x0, y0), of.q.add(of.q.multiply(x0, y1), of.q.multiply(x1, y0)),
                   of.q.multiply(x1, y1)]
        v = of.switch(product[2], relinearization)
        answers = {
            "limbs": limbs, "key_limbs": key_limbs,
            "relinearization_key": digest(made.qp, *(half for key in relinearization for half in key)),
            "galois_key": digest(made.qp, *(half for key in galois for half in key)),
            "rotated_by_3": digest(of.q, moved(of.q.add(x0, u[0]), exponent, of.q.modulus),
                                   moved(u[1], exponent, of.q.modulus)),
            "relinearized": digest(of.q, of.q.add(product[0], v[0]), of.q.add(product[1], v[1]))}
        if limbs > 1:
            answers["multiplied_and_rescaled"] = digest(
                Ring(chain[:limbs - 1]), *of.switch(product[2], relinearization, product[:2], rescales=True))
        return answers

    return {"chain": chain, "special": special, "levels": [level(*limbs) for limbs in levels]}


def main():
    answers = {"from": "tests/data/key_switch/make.py, which says what the fields are",
               "seeds": {name: seed.hex() for name, seed in SEEDS.items()},
               **{name: known(*of) for name, of in SETS.items()}}
    (HERE / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
