"""What concrete-ml does with a layer that a private LoRA sends out: 8 bits for an entry of h and of A, as it takes them
by default, by its own matrix product of GLWE; and the same product by a circuit of concrete-python."""
import concrete_ml_extensions as concrete
import work
from concrete import fhe

np = work.np


def quantize(x, low, high):
    """Integers from `low` to `high`, and the scale and the zero of each row."""
    least, most = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    scale = (most - least) / (high - low)
    zero = np.round(low - least / scale)
    return np.clip(np.round(x / scale) + zero, low, high).astype(np.int64), scale, zero


class integers:
    """h and A as integers, and back."""

    def __init__(self, a):
        self.a, self.a_scale, self.a_zero = quantize(a, -128, 127)

    def quantize(self, h):
        self.h, self.h_scale, self.h_zero = quantize(h[None, :], 0, 255)
        return self.h

    def real(self, raw):
        zero = self.a_zero[:, 0]
        exact = raw - zero * self.h.sum() - self.h_zero[0, 0] * (self.a.sum(axis=1) - zero * work.D)
        return exact * self.a_scale[:, 0] * self.h_scale[0, 0]

    def sizes(self, request, reply):
        return len(request.serialize()), len(reply.serialize())


class product(integers):
    def __init__(self, a):
        super().__init__(a)
        self.parameters = concrete.MatmulCryptoParameters.deserialize(concrete.default_params())
        self.secret, self.compression = concrete.create_private_key(self.parameters)
        self.clear = np.ascontiguousarray(self.a.T).astype(np.uint64)

    def request(self, h):
        return concrete.encrypt_matrix(pkey=self.secret, crypto_params=self.parameters,
                                       data=self.quantize(h).astype(np.uint64))

    def reply(self, request):
        return concrete.matrix_multiplication(encrypted_matrix=request, data=self.clear, compression_key=self.compression)

    def answers(self, reply):
        raw = concrete.decrypt_matrix(reply, self.secret, self.parameters, work.RANK)
        return self.real(raw.astype(np.int64)[0])


class circuit(integers):
    def __init__(self, a):
        super().__init__(a)
        clear = self.a.T
        self.circuit = fhe.Compiler(lambda h: h @ clear, {"h": "encrypted"}).compile(
            [np.full((1, work.D), x) for x in (0, 255)] + [np.where(clear[:, r] > 0, x, 255 - x)[None, :]
                                                           for r in range(work.RANK) for x in (0, 255)])
        self.circuit.keygen()

    def request(self, h):
        return self.circuit.encrypt(self.quantize(h))

    def reply(self, request):
        return self.circuit.run(request)

    def answers(self, reply):
        return self.real(self.circuit.decrypt(reply)[0])


work.main(product=product, circuit=circuit)
