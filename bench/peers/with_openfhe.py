"""OpenFHE: as many digits of a key switch as we have, and the special primes that it chooses."""
import openfhe
import work


class library(work.base):
    def __init__(self, n, chain, special, steps):
        parameters = openfhe.CCParamsCKKSRNS()
        parameters.SetSecurityLevel(openfhe.HEStd_128_classic)
        parameters.SetSecretKeyDist(openfhe.UNIFORM_TERNARY)
        parameters.SetRingDim(n)
        parameters.SetBatchSize(n // 2)
        parameters.SetMultiplicativeDepth(len(chain) - 1)
        parameters.SetFirstModSize(chain[0])
        parameters.SetScalingModSize(40)
        parameters.SetScalingTechnique(openfhe.FIXEDMANUAL)
        parameters.SetKeySwitchTechnique(openfhe.HYBRID)
        parameters.SetNumLargeDigits(len(chain) // len(special))
        self.context = openfhe.GenCryptoContext(parameters)
        for feature in (openfhe.PKE, openfhe.KEYSWITCH, openfhe.LEVELEDSHE):
            self.context.Enable(feature)
        self.keys = self.context.KeyGen()
        self.context.EvalMultKeyGen(self.keys.secretKey)
        if steps:
            self.context.EvalRotateKeyGen(self.keys.secretKey, steps)

    def encode(self, x):
        return self.context.MakeCKKSPackedPlaintext(x.tolist())

    def encrypt(self, x):
        return self.context.Encrypt(self.keys.secretKey, self.encode(x))

    def multiply_plain(self, c, p):
        return self.context.EvalMult(c, p)

    def rescale(self, c):
        return self.context.Rescale(c)

    def multiply(self, a, b):
        return self.context.Rescale(self.context.EvalMult(a, b))

    def add(self, a, b):
        return self.context.EvalAdd(a, b)

    def rotate(self, c, steps):
        return self.context.EvalRotate(c, steps)

    def rotate_all(self, c, steps):
        order, ahead = 2 * self.context.GetRingDimension(), self.context.EvalFastRotationPrecompute(c)
        return [self.context.EvalFastRotation(c, s, order, ahead) for s in steps]

    def decrypt(self, c):
        return work.np.array(self.context.Decrypt(c, self.keys.secretKey).GetRealPackedValue())

    def size(self, c):
        return len(openfhe.Serialize(c, openfhe.BINARY))


work.main(library)
