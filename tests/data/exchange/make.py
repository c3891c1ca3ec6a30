#!/usr/bin/env python3
"""Known answers of a whole exchange, computed as the documents say; nothing of the library runs here.

    tests/data/exchange/make.py      writes <set>.json and block_<set>.json beside itself, the same bytes each time

docs/design/random-streams.md says how seeds become numbers, docs/design/ntt.md what an evaluation form is,
docs/design/lora.md and noise.md what is computed, docs/wire-format.md the bytes. Only the standard library. Products
are products of long integers (Kronecker substitution) modulo Q: no NTT, no residues, no trace. The transform serves
where the documents speak of evaluation forms.

Fields: bytes are hexadecimal. A digest is D of tests/data/random_streams.json: of polynomials over all limbs in
evaluation form, of e1 and reply_c1 over their coefficients, of messages over their bytes. product_c0 and zero_c0 are
the target coefficients modulo each prime. Of a block zeros are the encryptions of zero in its target coefficients, for
each prime position after position.
"""
import hashlib
import json
import math
import pathlib
import re
import struct
from functools import lru_cache, partial
from itertools import accumulate, chain, repeat

# --- Random streams: docs/design/random-streams.md --------------------------------------------------------------

MASK = (1 << 64) - 1
PUBLIC_KEY, UPLINK, SECRET_KEY, ERROR, ZERO, FLOOD, DERIVE, JOINT_NONCE, _, HEDGE_POINTS, HEDGED = range(1, 12)


@lru_cache(maxsize=1 << 14)
def chacha20_block(key, nonce, counter):
    """RFC 8439, 2.3."""
    start = struct.unpack("<4I", b"expand 32-byte k") + struct.unpack("<8I", key) + (counter,) + nonce
    x = list(start)
    for _ in range(10):
        for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                           (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            for shift in (16, 12, 8, 7):
                x[a] = (x[a] + x[b]) & 0xFFFFFFFF
                mixed = x[d] ^ x[a]
                x[d] = (mixed << shift | mixed >> (32 - shift)) & 0xFFFFFFFF
                a, b, c, d = c, d, a, b
    return struct.pack("<16I", *((u + v) & 0xFFFFFFFF for u, v in zip(x, start)))


def stream(seed, domain, lane, start, count, third=0):
    """Bytes [start, start + count)."""
    first, last = start // 64, (start + count + 63) // 64
    blocks = b"".join(chacha20_block(seed, (domain, lane, third), i) for i in range(first, last))
    return blocks[start - 64 * first:][:count]


little = partial(int.from_bytes, byteorder="little")


def uniform(seed, domain, lane, q, count):
    width, mask = (q.bit_length() + 7) // 8, (1 << q.bit_length()) - 1
    data, values = stream(seed, domain, lane, 0, count * width), []
    for k in range(count):
        value, attempt = little(data[k * width:(k + 1) * width]) & mask, 0
        while value >= q:
            attempt += 1
            value = little(stream(seed, domain, lane, k * width, width, attempt)) & mask
        values.append(value)
    return values


def draw_errors(seed, lane, count):
    values = []
    for group in range((count + 63) // 64):
        words = struct.unpack("<12Q", stream(seed, ERROR, lane, 96 * group, 96))
        for j in range(64):
            b = [u >> j & 1 for u in words]
            values.append(2 * (sum(b[:5]) - sum(b[5:10])) + b[10] - b[11])
    return values[:count]


def ternary(seed, domain, count):
    values = []
    for (u,) in struct.iter_unpack("<Q", stream(seed, domain, 0, 0, 2 * count)):
        for _ in range(4):
            values.append((3 * u >> 64) - 1)
            u = 3 * u & MASK
    return values


def flood_sums(seed, lane, bits, count):
    draws = [little(stream(seed, FLOOD, lane, 16 * i, 16)) & ((1 << bits) - 1) for i in range(4 * count)]
    return [sum(draws[4 * k:4 * k + 4]) for k in range(count)]


def generator(key):
    n = 0
    while True:
        block = stream(key, DERIVE, n & 0xFFFFFFFF, 0, 64, n >> 32)
        key, n = block[:32], n + 1
        yield block[32:]


def hedged_seed(key, parts):
    prime = (1 << 61) - 1
    sums = []
    for i in (0, 1):
        point, h = little(stream(key, HEDGE_POINTS, 0, 8 * i, 8)) & prime, 1
        for part in parts:
            data = struct.pack("<Q", len(part)) + part + bytes(-len(part) % 4)
            for (word,) in struct.iter_unpack("<I", data):
                h = (h * point + word) % prime
        sums.append(h)
    block = (sums[0] >> 32 & 0xFFFF) + (sums[1] >> 32 & 0xFFFF) * 2**16
    return chacha20_block(key, (HEDGED, sums[0] & 0xFFFFFFFF, sums[1] & 0xFFFFFFFF), block)[:32]


def joint_seed(client, server):
    halves = (stream(client, JOINT_NONCE, 0, 0, 32), stream(server, JOINT_NONCE, 1, 0, 32))
    return bytes(x ^ y for x, y in zip(*halves))


# --- Primes, transforms, products -------------------------------------------------------------------------------

def is_prime(n):
    """Miller and Rabin; with these bases no composite number below 2^64 passes."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        powers = [pow(base, odd << i, n) for i in range(twos)]
        if powers[0] != 1 and n - 1 not in powers:
            return False
    return True


def primes_of(widths, degree):
    """Of each width the largest prime 1 modulo 2N that is not there yet."""
    primes = []
    for width in widths:
        q = (1 << width) + 1 - 2 * degree
        while q in primes or not is_prime(q):
            q -= 2 * degree
        primes.append(q)
    return primes


def powers(x, count, q):
    return list(accumulate(repeat(x, count - 1), lambda y, _: y * x % q, initial=1))


def smallest_root(q, degree):
    """The smallest primitive 2N-th root of unity."""
    g = 2
    while pow(g, (q - 1) // 2, q) == 1:
        g += 1
    root = pow(g, (q - 1) // (2 * degree), q)
    return min(powers(root, 2 * degree, q)[1::2])


def discrete_fourier(a, root, q):
    """a(root^i) for each i, natural order."""
    if len(a) == 1:
        return a
    even, odd = (discrete_fourier(a[i::2], root * root % q, q) for i in (0, 1))
    turned = [x * y % q for x, y in zip(odd, powers(root, len(odd), q))]
    return [(x + y) % q for x, y in zip(even, turned)] + [(x - y) % q for x, y in zip(even, turned)]


class Ring:
    """Polynomials modulo X^N + 1 and Q, the product of the primes: lists of N integers in [0, Q)."""

    def __init__(self, degree, widths):
        self.degree, self.primes = degree, primes_of(widths, degree)
        self.psi = [smallest_root(q, degree) for q in self.primes]
        self.modulus = math.prod(self.primes)
        bits = degree.bit_length() - 1
        self.reversed = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(degree)]

    def residues(self, values):
        return [list(limb) for limb in zip(*([x % q for q in self.primes] for x in values))]

    def evaluate(self, a):
        """The limbs of the evaluation form, bit-reversed."""
        limbs = []
        for q, psi in zip(self.primes, self.psi):
            twisted = [x * y % q for x, y in zip(a, powers(psi, self.degree, q))]
            values = discrete_fourier(twisted, psi * psi % q, q)
            limbs.append([values[i] for i in self.reversed])
        return limbs

    def interpolate(self, limbs):
        """The way back, and the Chinese remainder theorem."""
        result = [0] * self.degree
        for limb, q, psi in zip(limbs, self.primes, self.psi):
            back = pow(psi, -1, q)
            twisted = discrete_fourier([limb[i] for i in self.reversed], back * back % q, q)
            rest = self.modulus // q
            factor = rest * pow(rest * self.degree, -1, q)  # 1/N modulo q, 0 modulo the others
            result = [(r + x * y % q * factor) % self.modulus
                      for r, x, y in zip(result, twisted, powers(back, self.degree, q))]
        return result

    def uniform(self, seed, domain, lane):
        return self.interpolate([uniform(seed, domain, lane + i, q, self.degree)
                                 for i, q in enumerate(self.primes)])

    def multiply(self, a, b, modulus=None):
        modulus = modulus or self.modulus
        width = (2 * modulus.bit_length() + self.degree.bit_length() + 7) // 8
        a, b = (little(b"".join((x % modulus).to_bytes(width, "little") for x in p)) for p in (a, b))
        data = (a * b).to_bytes(2 * self.degree * width, "little")
        c = [little(data[k * width:(k + 1) * width]) for k in range(2 * self.degree)]
        return [(x - y) % modulus for x, y in zip(c, c[self.degree:])]

    def add(self, *polynomials, less=None):
        return [(sum(terms) - y) % self.modulus
                for *terms, y in zip(*polynomials, less or repeat(0))]


# --- Messages: docs/wire-format.md ------------------------------------------------------------------------------

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def pack(values, bits):
    digits = "".join(f"{x:0{bits}b}" for x in reversed(values))
    return int(digits, 2).to_bytes((len(digits) + 7) // 8, "little")


def pack_polynomial(limbs, ring):
    return b"".join(pack(limb, q.bit_length()) for limb, q in zip(limbs, ring.primes))


def set_id(ring, scale_bits):
    data = struct.pack("<2I", ring.degree.bit_length() - 1, len(ring.primes))
    data += struct.pack(f"<{len(ring.primes)}QI", *ring.primes, scale_bits)
    number = 0xCBF29CE484222325
    for byte in data:
        number = (number ^ byte) * 0x100000001B3 & MASK
    return number


def message(kind, of_set, scheme, body):
    header = struct.pack("<4s2BH3QQI", b"TSHE", 1, kind, 0, of_set, scheme, NUMBER, len(body), GROUP)
    return header + struct.pack("<I", crc32c(header)) + body + struct.pack("<I", crc32c(body))


NUMBER, GROUP = 0x0123456789ABCDEF, 0x02468ACE

# --- One exchange -----------------------------------------------------------------------------------------------

def digest(*lists):
    """D of random_streams.json, of one list after the other."""
    d = 0
    for x in chain(*lists):
        d = (d * 0x9E3779B97F4A7C15 + x) & MASK
    return f"{d:016x}"


def described(data):
    return {"bytes": len(data), "first": data[:160].hex(), "last": data[-32:].hex(), "digest": digest(data)}


def rounded(x):
    """The nearest integer. None is so close to a half that another order of operations would round otherwise."""
    assert abs(x) >= 2.0**52 or abs(abs(x) % 1 - 0.5) > 1e-6
    return round(x)


def checksum_weight(r, k):
    """noise.md: SplitMix64 of row and checksum row."""
    x = (86704 + 0x9E3779B97F4A7C15 * (4 * r + k + 1)) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    x ^= x >> 31
    return (-1 if x & 1 else 1) * (0.08 + 0.32 * (x >> 12) * 2.0**-52)


def plan_of(ring, shape, factor, precision, a, entries=None):
    """The table of noise.md. Doubles, as both ends compute them: H is compared bit by bit.

    entries: coefficients of an output's plaintexts that can differ from 0, where they are not all"""
    rank, d, rows = shape
    inputs = -(-d // (ring.degree // rows))
    checks = 0 if factor is None else -(-rank // 32) * 4
    root = math.sqrt(d)
    modulus = float(ring.modulus)
    alpha = float(int(root / (math.sqrt(12) * 0.45 * precision)) + 1)
    entries = float(entries or inputs * ring.degree)
    plaintext = math.sqrt(rows) * alpha + math.sqrt(entries) / 2
    ratio = root if factor is None else min(root, float(factor))
    seen = math.sqrt(ring.degree / 18 + 1 / 12)  # deviation of the rounding of c0 and c1
    bits = next(w for w in range(1, 60) if 2 * ratio * 2.0**-w * seen <= 0.8 * precision)
    check_bits = next(w for w in range(1, 60) if 6.5 * seen * 2.0**-w <= 1 / 58) if checks else 0
    rest = precision**2 - (seen * 2.0**-bits * 2 * ratio)**2 - (root / math.sqrt(12) / alpha)**2
    flood_deviation = math.sqrt(rest) * modulus / 2 / ratio
    flood_bits = max(b for b in range(1, 121) if math.sqrt(4 / 12 * (4.0**b - 1)) <= flood_deviation)
    worst = 21.5 * math.sqrt(entries) * ((2.5 if checks else 1) * plaintext)
    range_ = (modulus / 2 - worst - 21.0 * (2 * ring.degree + 1) - 4 * 2.0**(flood_bits - 1)
              - (ring.degree + 1) / 2 * modulus * 2.0**-bits)
    mantissa, exponent = math.frexp(max(math.sqrt(sum(x * x for x in row)) for row in a) * (1 - 2.0**-20))
    longest = plaintext / math.sqrt(rows)
    norm = range_ / longest if factor is None else max(range_ / longest, root * (range_ / ratio) / longest)
    return {"row_norm": math.ceil(mantissa * 1024) * 2.0**(exponent - 10), "weight_norm": alpha, "range": range_,
            "state_norm": norm, "reply_bits": bits, "checksum_bits": check_bits, "flood_bits": flood_bits,
            "inputs": inputs, "outputs": -(-rank // rows) + checks // min(rows, 4)}


def small_integers(label, count, limit):
    data = stream(hashlib.sha256(label.encode()).digest(), 0, 0, 0, 4 * count)
    return [x % (2 * limit + 1) - limit for (x,) in struct.iter_unpack("<I", data)]


def checksum_rows(a, plan):
    rank, d = len(a), len(a[0])
    checks = [[sum(checksum_weight(r % 32, k) * a[r][t] for r in range(first, min(first + 32, rank)))
               for t in range(d)] for first in range(0, rank, 32) for k in range(4)]
    assert math.sqrt(max(sum(x * x for x in row) for row in checks)) <= 2.5 * plan["row_norm"]
    return checks


def switched(ring, values, w):
    """The nearest integers. The library may round down a fraction this close above a half: rns.md has the bound."""
    q, close = ring.modulus, ring.modulus * 1536 * len(ring.primes) >> 64 - w
    assert all(not q < 2 * ((x << w) % q) <= q + 2 * close for x in values)
    return [((x << w) + q // 2) // q % (1 << w) for x in values]


def signed(x, w):
    return (x + (1 << w - 1)) % (1 << w) - (1 << w - 1)


def scheme_of(packing, rows, factor, precision):
    return little(struct.pack("<4Bf", packing, rows, 1 if factor is None else factor, 1, precision))


class Session:
    """Seeds and generators of both sides, A, and the key with which the server makes encryptions of zero."""

    def __init__(self, name, log_n, widths, scale_bits, rank, d):
        ring = self.ring = Ring(1 << log_n, widths)
        self.seeds = {who: hashlib.sha256(f"{name}, {who}".encode()).digest()
                      for who in ("secret_key", "server_nonce", "client", "pool", "server")}
        self.client, self.pool, self.server = (generator(self.seeds[who]) for who in ("client", "pool", "server"))
        # Small multiples of powers of two: exact as float, and so are their squares and sums as double.
        self.a_integers = [small_integers(f"{name}, row {r}", d, 99) for r in range(rank)]
        self.a = [[x / 1024 for x in row] for row in self.a_integers]
        # b = e - a s.
        self.s = ternary(self.seeds["secret_key"], SECRET_KEY, ring.degree)
        self.nonce, error_seed = next(self.client), next(self.client)
        self.joint = joint_seed(self.nonce, self.seeds["server_nonce"])
        self.key_a = ring.uniform(self.joint, PUBLIC_KEY, 0)
        self.key_b = ring.add(draw_errors(error_seed, 0, ring.degree), less=ring.multiply(self.key_a, self.s))
        self.set = set_id(ring, scale_bits)


def exchange(name, log_n, widths, scale_bits, shape, factor, precision):
    rank, d, rows = shape
    session = Session(name, log_n, widths, scale_bits, rank, d)
    ring, a, s, of_set = session.ring, session.a, session.s, session.set
    n, q = ring.degree, ring.modulus
    block = n // rows
    targets = range(0, n, block)
    h_integers = small_integers(f"{name}, h", d, 999)
    h = [x / 64 for x in h_integers]
    plan = plan_of(ring, shape, factor, precision, a)
    scale = plan.pop("state_norm") * (1 - 2.0**-19) / math.sqrt(sum(x * x for x in h))
    client, pool, server, key_a, key_b = session.client, session.pool, session.server, session.key_a, session.key_b
    b_limbs = ring.evaluate(key_b)
    key_message = message(2, of_set, 0, struct.pack("<IQ", len(widths) - 1, 0) + session.nonce
                          + session.seeds["server_nonce"] + pack_polynomial(b_limbs, ring))

    # The request: c0 = h + e - c1 s for each piece of h.
    request_seed = next(client)
    c0, c1, request_steps = [], [], []
    for i in range(plan["inputs"]):
        c1.append(ring.uniform(request_seed, UPLINK, i * len(widths)))
        piece = [rounded(x * scale) for x in h[i * block:(i + 1) * block]]
        piece += [0] * (n - len(piece))
        c0.append(ring.add(piece, draw_errors(next(client), 0, n), less=ring.multiply(c1[i], s)))
        request_steps.append({"c0": digest(*ring.evaluate(c0[i])), "c1": digest(*ring.evaluate(c1[i]))})
    scheme = scheme_of(1, rows.bit_length() - 1, factor, precision)
    request = message(16, of_set, scheme, struct.pack("<3I", d, block, 1) + request_seed
                      + b"".join(pack_polynomial(ring.evaluate(p), ring) for p in c0))

    # The rows that the products carry: those of A, then the checksum rows.
    per_output = [a[first:first + rows] for first in range(0, rank, rows)]
    if factor is not None:
        checks = checksum_rows(a, plan)
        per_output += [checks[first:first + min(rows, 4)] for first in range(0, len(checks), min(rows, 4))]
    assert len(per_output) == plan["outputs"]

    flood_seed, steps, payload, decrypted = next(server), [], b"", []
    for o, carried in enumerate(per_output):
        product_c0, product_c1 = [0] * n, [0] * n
        for i in range(plan["inputs"]):
            weights = [0] * n
            for k, row in enumerate(carried):
                for t, x in enumerate(row[i * block:(i + 1) * block]):
                    integer = rounded(x * (plan["weight_norm"] / plan["row_norm"]))
                    place = k * block - t
                    weights[place % n] = integer if place >= 0 else -integer
            product_c0 = ring.add(product_c0, ring.multiply(c0[i], weights))
            product_c1 = ring.add(product_c1, ring.multiply(c1[i], weights))

        zero_seed = next(pool)
        v = ternary(zero_seed, ZERO, n)
        bv, av = ring.multiply(key_b, v), ring.multiply(key_a, v)
        e0, e1 = draw_errors(zero_seed, 0, rows), draw_errors(zero_seed, 1, n)
        sums = flood_sums(flood_seed, o, plan["flood_bits"], rows)
        floods = [x - 4 * 2**(plan["flood_bits"] - 1) for x in sums]
        hidden_c1 = ring.add(product_c1, av, e1)
        hidden_c0 = [(product_c0[k] + bv[k] + e + f) % q for k, e, f in zip(targets, e0, floods)]

        w = plan["reply_bits"] if o < -(-rank // rows) else plan["checksum_bits"]
        sent_c1, sent_c0 = (switched(ring, p, w) for p in (hidden_c1, hidden_c0))
        sent_c0 = sent_c0[:len(carried)]
        payload += pack(sent_c0, w) + pack(sent_c1, w)

        seen = ring.multiply(sent_c1, s, 1 << w)
        opened = [signed(x + seen[k], w) for x, k in zip(sent_c0, targets)]
        decrypted += opened if o < -(-rank // rows) else []
        steps.append({"product_c0": ring.residues(product_c0[k] for k in targets),
                      "product_c1": digest(*ring.evaluate(product_c1)),
                      "zero_c0": ring.residues(bv[k] for k in targets), "zero_c1": digest(*ring.evaluate(av)),
                      "e0": e0, "e1": digest(e1),
                      "floods": digest(part for x in sums for part in (x & MASK, x >> 64)),
                      "hidden_c0": ring.residues(hidden_c0), "hidden_c1": digest(*ring.residues(hidden_c1)),
                      "reply_c0": sent_c0, "reply_c1": digest(sent_c1), "decrypted": opened})
    reply = message(17, of_set, scheme, struct.pack("<3I", rank, d, 1) + payload)

    # What the client reads is A h, to the precision that noise.md promises.
    unit = q / 2.0**plan["reply_bits"] * plan["row_norm"] / (plan["weight_norm"] * scale)
    answers = [sum(x * y for x, y in zip(row, h)) for row in a]
    typical = plan["row_norm"] * math.sqrt(sum(x * x for x in h) / d)
    errors = [abs(x * unit - y) / typical for x, y in zip(decrypted, answers)]
    assert max(errors) < 6 * precision
    print(f"{name}: largest error {max(errors):.2e} of an answer's root mean square, {precision} is the deviation")

    return {
        "from": "tests/data/exchange/make.py, which says what the fields are",
        "degree": n, "primes": ring.primes, "psi": ring.psi, "scale_bits": scale_bits,
        "rank": rank, "d": d, "rows": rows, "number": NUMBER, "group": GROUP,
        "seeds": {who: seed.hex() for who, seed in session.seeds.items()},
        "h_times_64": h_integers, "a_times_1024": session.a_integers, "plan": plan, "scale": scale,
        "client_nonce": session.nonce.hex(), "joint_seed": session.joint.hex(), "request_seed": request_seed.hex(),
        "s": digest(s), "a": digest(*ring.evaluate(key_a)), "b": digest(*b_limbs),
        "key": described(key_message), "inputs": request_steps, "request": described(request),
        "outputs": steps, "reply": described(reply), "answers": answers}


def block_exchange(name, log_n, widths, scale_bits, shape, factor, precision, asked):
    """A block of tokens, of which so many are asked."""
    rank, d, tokens = shape
    session = Session(f"block, {name}", log_n, widths, scale_bits, rank, d)
    ring, a, s = session.ring, session.a, session.s
    n, q = ring.degree, ring.modulus
    block = n // tokens  # entries of each state in one ciphertext
    inputs = -(-d // block)
    plan = plan_of(ring, (rank, d, 1), factor, precision, a, d)
    longest_state = plan.pop("state_norm")
    plan["inputs"] = inputs
    scheme = scheme_of(4, 0, factor, precision)
    place = [(k // block, k % block) for k in range(d)]  # of an entry of the first state

    request_seed = next(session.client)
    c1 = [ring.uniform(request_seed, UPLINK, i * len(widths)) for i in range(inputs)]
    masks = [ring.add(draw_errors(next(session.client), 0, n), less=ring.multiply(c, s)) for c in c1]
    request = message(22, session.set, scheme, struct.pack("<3I", d, tokens, 0) + request_seed)

    carried = a + ([] if factor is None else checksum_rows(a, plan))
    widths_of = [plan["reply_bits"] if o < rank else plan["checksum_bits"] for o in range(len(carried))]
    integers = [[rounded(x * (plan["weight_norm"] / plan["row_norm"])) for x in row] for row in carried]
    payload, zeros, sent_c1 = b"", [], []
    for row, w in zip(integers, widths_of):
        weights = [[0] * n for _ in range(inputs)]
        for (i, t), x in zip(place, row):
            weights[i][-t % n] = x if t == 0 else -x
        zero_seed = next(session.pool)
        v = ternary(zero_seed, ZERO, n)
        c1_of_row = ring.add(*(ring.multiply(c, p) for c, p in zip(c1, weights)), ring.multiply(session.key_a, v),
                             draw_errors(zero_seed, 1, n))
        bv, e0 = ring.multiply(session.key_b, v), draw_errors(zero_seed, 0, tokens)
        zeros.append([(bv[t * block] + e0[t]) % q for t in range(tokens)])
        sent_c1.append(switched(ring, c1_of_row, w))
        payload += pack(sent_c1[-1], w)
    ahead = message(23, session.set, scheme, struct.pack("<3I", rank, d, tokens) + payload)
    flood_secret = next(session.server)

    steps = []
    unit = q / 2.0**plan["reply_bits"] * plan["row_norm"] / plan["weight_norm"]
    for t in range(asked):
        h_integers = small_integers(f"block, {name}, h {t}", d, 999)
        h = [x / 64 for x in h_integers]
        scale = longest_state * (1 - 2.0**-19) / math.sqrt(sum(x * x for x in h))
        c0 = [(rounded(x * scale) + masks[i][t * block + k]) % q for x, (i, k) in zip(h, place)]
        up = message(24, session.set, scheme, struct.pack("<2IQ", d, t, NUMBER)
                     + b"".join(pack(limb, p.bit_length()) for limb, p in zip(ring.residues(c0), ring.primes)))
        sums = [(sum(x * y for x, y in zip(row, c0)) + zero[t]) % q for row, zero in zip(integers, zeros)]
        limbs = ring.residues(sums)
        seed = hedged_seed(flood_secret, [struct.pack("<Q", t)] + [struct.pack(f"<{len(x)}Q", *x) for x in limbs])
        floods = [x - 4 * 2**(plan["flood_bits"] - 1) for x in flood_sums(seed, t, plan["flood_bits"], len(sums))]
        sent = [switched(ring, [(x + f) % q], w)[0] for x, f, w in zip(sums, floods, widths_of)]
        down = message(25, session.set, scheme, struct.pack("<3I", rank, d, t)
                       + pack(sent[:rank], widths_of[0]) + (pack(sent[rank:], widths_of[-1]) if factor else b""))
        answers = [sum(x * y for x, y in zip(row, h)) for row in a]
        typical = plan["row_norm"] * math.sqrt(sum(x * x for x in h) / d)
        for o, y in enumerate(answers):
            w = widths_of[o]
            opened = signed(sent[o] + ring.multiply(sent_c1[o], s, 1 << w)[t * block], w)
            assert abs(opened * unit / scale - y) < 6 * precision * typical
        steps.append({"h_times_64": h_integers, "scale": scale, "request": described(up), "reply": described(down),
                      "answers": answers})

    return {
        "from": "tests/data/exchange/make.py, which says what the fields are",
        "rank": rank, "d": d, "tokens": tokens, "number": NUMBER, "group": GROUP,
        "seeds": {who: seed.hex() for who, seed in session.seeds.items()},
        "a_times_1024": session.a_integers, "plan": plan, "request": described(request), "reply": described(ahead),
        "zeros": ring.residues(zero[t] for t in range(tokens) for zero in zeros), "answered": steps}


def write(name, known):
    text = json.dumps(known, indent=1)
    text = re.sub(r"\[[^][{}]*\]", lambda numbers: re.sub(r"\s+", "", numbers[0]), text)  # one line for a list
    (pathlib.Path(__file__).parent / f"{name}.json").write_text(text + "\n")


SETS = {"private_n4096": (12, (45, 44), 40), "minimal_n2048": (11, (41,), 20)}
if __name__ == "__main__":
    for name, *rest in (("private_n4096", (6, 1500, 4), None, 1.2e-4),
                        ("minimal_n2048", (17, 600, 4), 5, 2.7e-4)):
        write(name, exchange(name, *SETS[name], *rest))
    for name, *rest in (("private_n4096", (3, 300, 16), None, 1.2e-4, 3),
                        ("minimal_n2048", (5, 200, 8), 5, 2.7e-4, 2)):
        write(f"block_{name}", block_exchange(name, *SETS[name], *rest))
