"""TenSEAL's vectors under a secret key. A product encodes its plaintext each time and is rescaled at once; users
cannot rotate."""
import tenseal
import work


def context_of(n, chain, special):
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, n, coeff_mod_bit_sizes=[*chain, max(chain[0], special[0])],
                              encryption_type=tenseal.ENCRYPTION_TYPE.SYMMETRIC)
    context.global_scale = work.SCALE
    return context


class library(work.base):
    def __init__(self, n, chain, special, steps):
        self.context = context_of(n, chain, special)

    def encode(self, x):
        return tenseal.plain_tensor(x)

    def encrypt(self, x):
        return tenseal.ckks_vector(self.context, x)

    def multiply_plain(self, c, p):
        return c.mul(p)

    def multiply(self, a, b):
        return a.mul(b)

    def decrypt(self, c):
        return work.np.array(c.decrypt())

    def size(self, c):
        return len(c.serialize())


class matrix:
    """TenSEAL's product of a vector and a matrix."""

    def __init__(self, a):
        self.context = context_of(work.TOKEN_N, *work.TOKEN_CHAIN)
        self.context.generate_galois_keys()
        self.a = a.T.tolist()

    def request(self, h):
        return tenseal.ckks_vector(self.context, h)

    def reply(self, request):
        return request.mm(self.a)

    def answers(self, reply):
        return work.np.array(reply.decrypt())

    def sizes(self, request, reply):
        return len(request.serialize()), len(reply.serialize())


work.main(library, matrix=matrix)
