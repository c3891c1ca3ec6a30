#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/random/samplers.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/rns/poly.hpp>

#include <cstdint>
#include <limits>
#include <utility>

namespace tensafe::ckks {

/// An encryption (c0, c1) of m * scale: c0 + c1*s = m * scale + noise modulo Q, both in evaluation form.
///
/// Value semantics; thread and exception safety of a standard container.
template <parameter_set P, int Level = P::max_level>
struct ciphertext {
    static_assert(Level >= 0 && Level <= P::max_level,
                  "ckks::ciphertext: the parameter set has no such level");
    using basis = typename P::template basis_at<Level>;

    rns::poly<basis, rns::evaluation_form> c0;
    rns::poly<basis, rns::evaluation_form> c1;
    double scale = P::scale;
    /// An optional bound on the absolute values in the slots, noise included: whoever sets it
    /// (`c.largest = 1e6`) has it followed through the operations of evaluate.hpp, which then refuse what
    /// could wrap modulo Q. Messages and devices do not keep it.
    double largest = std::numeric_limits<double>::quiet_NaN();
};

/// Fills every limb with uniform residues: lane first_lane + I of the seed's stream gives limb I.
template <class Basis>
void expand_uniform(const random::seed& seed, random::stream_domain domain,
                    rns::poly<Basis, rns::evaluation_form>& out, std::uint32_t first_lane = 0) noexcept {
    rns::for_each_limb<Basis>([&]<int I>() {
        random::sample_uniform<Basis::template prime<I>>(
            seed, domain, first_lane + static_cast<std::uint32_t>(I), out.template limb<I>());
    });
}

/// A fresh secret-key encryption before expansion: c1 is the uniform polynomial that 32 public bytes stand
/// for, so half of the ciphertext need not travel.
template <parameter_set P, int Level = P::max_level>
struct seeded_ciphertext {
    using basis = typename P::template basis_at<Level>;

    rns::poly<basis, rns::evaluation_form> c0;
    random::seed seed;
    double scale = P::scale;
};

/// Writes the uniform half c1 that the seed of `c` stands for.
template <parameter_set P, int Level>
void expand_c1(const seeded_ciphertext<P, Level>& c,
               rns::poly<typename P::template basis_at<Level>, rns::evaluation_form>& c1) noexcept {
    expand_uniform(c.seed, random::stream_domain::uplink, c1);
}

/// Returns the whole ciphertext: c0 as it is, and c1 from its seed.
template <parameter_set P, int Level>
ciphertext<P, Level> expand(seeded_ciphertext<P, Level> c) {
    rns::poly<typename P::template basis_at<Level>, rns::evaluation_form> c1(memory::uninitialized);
    expand_c1(c, c1);
    return {std::move(c.c0), std::move(c1), c.scale};
}

}  // namespace tensafe::ckks
