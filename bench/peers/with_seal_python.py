"""SEAL through seal-python: secret-key encryption, and messages compressed as SEAL does by default, without a seed."""
import os
import tempfile

import seal
import work


class library(work.base):
    def __init__(self, n, chain, special, steps):
        parameters = seal.EncryptionParameters(seal.scheme_type.ckks)
        parameters.set_poly_modulus_degree(n)
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(n, [*chain, max(chain[0], special[0])]))
        context = seal.SEALContext(parameters)
        generator = seal.KeyGenerator(context)
        secret = generator.secret_key()
        self.relinearization = generator.create_relin_keys()
        self.galois = seal.GaloisKeys()
        if steps:
            generator.create_galois_keys(steps, self.galois)
        self.encoder = seal.CKKSEncoder(context)
        self.encryptor = seal.Encryptor(context, secret)
        self.decryptor = seal.Decryptor(context, secret)
        self.evaluator = seal.Evaluator(context)

    def encode(self, x):
        return self.encoder.encode(x, work.SCALE)

    def encrypt(self, x):
        return self.encryptor.encrypt_symmetric(self.encode(x))

    def multiply_plain(self, c, p):
        return self.evaluator.multiply_plain(c, p)

    def rescale(self, c):
        return self.evaluator.rescale_to_next(c)

    def multiply(self, a, b):
        product = self.evaluator.multiply(a, b)
        self.evaluator.relinearize_inplace(product, self.relinearization)
        self.evaluator.rescale_to_next_inplace(product)
        return product

    def add(self, a, b):
        return self.evaluator.add(a, b)

    def rotate(self, c, steps):
        return self.evaluator.rotate_vector(c, steps, self.galois)

    def decrypt(self, c):
        return self.encoder.decode(self.decryptor.decrypt(c))

    def size(self, c):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "message")
            c.save(path)
            return os.path.getsize(path)


work.main(library)
