"""What attacks on the named parameter sets cost, by the lattice estimator (malb/lattice-estimator); needs SageMath.

    sage estimate.py <checkout of the estimator> [set...]      all sets where none is named
"""
import sys
from math import log2

from sage.all import ZZ, is_prime, oo, prod

# The sets of include/tensafe/ckks/parameters.hpp: log2 N, widths of the primes.
SETS = {
    "minimal_n2048": (11, [41]),
    "compact_n4096": (12, [35, 35]),
    "quantum_n4096": (12, [45, 35]),
    "private_n4096": (12, [45, 44]),
    "n8192_l4": (13, [60, 40, 40, 60]),
    "n16384_l4": (14, [60, 40, 40, 60]),
    "n16384_l5": (14, [60, 40, 40, 40, 60]),
    "n32768_l4": (15, [60, 40, 40, 60]),
    "n32768_l5": (15, [60, 40, 40, 40, 60]),
}
# Bits of Q in the columns of Bossuat et al. (2024) for ternary secrets and 128 bits, classical and quantum, by log2 N.
LIMITS = {10: (26, 20), 11: (53, 40), 12: (106, 80), 13: (214, 161), 14: (430, 322), 15: (868, 644)}


def modulus(log_n, widths):
    """The product of the largest primes of these widths that are 1 modulo 2N, each used once."""
    step = 2 << log_n
    primes = []
    for width in widths:
        q = ZZ(2) ** width - step + 1
        while q in primes or not is_prime(q):
            q -= step
        primes.append(q)
    return prod(primes)


def main():
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(SETS):
        sys.exit(__doc__ + "\nSets: " + " ".join(SETS))
    sys.path.insert(0, sys.argv[1])
    from estimator import LWE, ND, RC
    from estimator.reduction import ADPS16

    def bits(cost):
        # Infinite where no block size that the estimator looks at is enough.
        return f"{log2(cost['rop']):.1f}" if cost["rop"] < oo else "-"

    print("| Set | N | log2 Q | Limit | Quantum limit | uSVP | Dual hybrid | Core-SVP | Quantum core-SVP | beta |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in sys.argv[2:] or SETS:
        log_n, widths = SETS[name]
        q = modulus(log_n, widths)
        problem = LWE.Parameters(n=1 << log_n, q=q, Xs=ND.Uniform(-1, 1), Xe=ND.CenteredBinomial(21), m=oo)
        core = LWE.primal_usvp(problem, red_cost_model=ADPS16("classical"))
        row = [f"`{name}`", str(1 << log_n), f"{log2(q):.3f}"]
        row += [f"{limit}" if q < ZZ(2) ** limit else f"{limit}, exceeded" for limit in LIMITS[log_n]]
        row.append(bits(LWE.primal_usvp(problem, red_cost_model=RC.MATZOV)))
        row.append(bits(LWE.dual_hybrid(problem, red_cost_model=RC.MATZOV)))
        row.append(bits(core))
        row.append(bits(LWE.primal_usvp(problem, red_cost_model=ADPS16("quantum"))))
        row.append(str(core.get("beta", "-")))
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
