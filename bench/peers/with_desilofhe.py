"""DESILO FHE: one core, primes that it chooses. A product with a plaintext is rescaled at once."""
import desilofhe
import work


class library(work.base):
    def __init__(self, n, chain, special, steps):
        self.engine = desilofhe.Engine(max_level=len(chain) - 1, mode="cpu", thread_count=1)
        if self.engine.slot_count != n // 2:
            raise ValueError(f"desilofhe: got {self.engine.slot_count} slots, expected {n // 2}")
        self.secret = self.engine.create_secret_key()
        self.relinearization = self.engine.create_relinearization_key(self.secret)
        self.rotations = {s: self.engine.create_fixed_rotation_key(self.secret, s) for s in steps}

    def encode(self, x):
        return self.engine.encode(x)

    def encrypt(self, x):
        return self.engine.encrypt(x, self.secret)

    def multiply_plain(self, c, p):
        return self.engine.multiply(c, p)

    def multiply(self, a, b):
        return self.engine.multiply(a, b, self.relinearization)

    def add(self, a, b):
        return self.engine.add(a, b)

    def rotate(self, c, steps):
        return self.engine.rotate(c, self.rotations[steps])

    def rotate_all(self, c, steps):
        return self.engine.rotate_many(c, [self.rotations[s] for s in steps])

    def decrypt(self, c):
        return self.engine.decrypt(c, self.secret)

    def size(self, c):
        return len(self.engine.serialize_ciphertext(c))


work.main(library)
