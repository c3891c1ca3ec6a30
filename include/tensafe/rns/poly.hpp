#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/ntt/transform.hpp>
#include <tensafe/rns/basis.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace tensafe::rns {

/// The tag of coefficients in natural order, before the NTT.
struct coefficient_form {};
/// The tag of values at the odd powers of psi, bit-reversed, after the NTT: products are entry by entry.
struct evaluation_form {};

/// A polynomial of Z_Q[X] / (X^N + 1): `limbs` residue polynomials of N words, one after the other, every
/// word in [0, q). Chain, form and space are part of the type: mixing them does not compile.
///
/// Owns its memory (64-byte aligned); with `Release = memory::wipe_on_release` it is overwritten when
/// released. Value semantics; thread and exception safety of a standard container.
template <class Basis, class Form, class Space = memory::host_space, class Release = memory::keep_on_release>
class poly {
    static_assert(std::is_same_v<Form, coefficient_form> || std::is_same_v<Form, evaluation_form>,
                  "rns::poly: the form is coefficient_form or evaluation_form");

  public:
    using basis_type = Basis;
    using release_type = Release;
    using storage = memory::buffer<arith::word, Space, Release>;

    static constexpr std::size_t degree = Basis::degree;

    /// Makes the polynomial 0.
    poly() : words_(degree * static_cast<std::size_t>(Basis::limbs)) {}
    /// Makes a polynomial whose words the caller will write before reading them.
    explicit poly(memory::uninitialized_t)
        : words_(degree * static_cast<std::size_t>(Basis::limbs), memory::uninitialized) {}
    /// Takes over words that already have this chain and form, each in [0, q); moving a transformed buffer
    /// costs nothing.  @throws shape_error unless there are limbs * N of them
    explicit poly(storage words) : words_(std::move(words)) {
        check_count("rns::poly: got ", words_.size(), " words, expected ",
                    degree * static_cast<std::size_t>(Basis::limbs));
    }

    /// Limb I: the residues modulo Basis::prime<I>.
    template <int I>
    std::span<arith::word, degree> limb() noexcept {
        static_assert(I >= 0 && I < Basis::limbs, "rns::poly::limb: the chain has no such limb");
        return std::span<arith::word, degree>(words_.data() + static_cast<std::size_t>(I) * degree, degree);
    }
    template <int I>
    std::span<const arith::word, degree> limb() const noexcept {
        static_assert(I >= 0 && I < Basis::limbs, "rns::poly::limb: the chain has no such limb");
        return std::span<const arith::word, degree>(words_.data() + static_cast<std::size_t>(I) * degree,
                                                    degree);
    }

    std::span<const arith::word> words() const noexcept { return words_.span(); }
    /// All limbs, to be written by code that does not know their number: each word below its prime.
    std::span<arith::word> mutable_words() noexcept { return words_.span(); }
    void set_zero() noexcept { std::fill(words_.begin(), words_.end(), arith::word{0}); }
    /// Gives the memory away; the polynomial may then only be assigned to or destroyed.
    storage take() && noexcept { return std::move(words_); }

    friend bool operator==(const poly& a, const poly& b) noexcept {
        return std::equal(a.words_.begin(), a.words_.end(), b.words_.begin(), b.words_.end());
    }

  private:
    storage words_;
};

/// A polynomial whose words are secret: wiped on release.
template <class Basis, class Form>
using secret_poly = poly<Basis, Form, memory::host_space, memory::wipe_on_release>;

/// NTT of every limb; the memory is reused.
template <class Basis, class Space, class Release>
poly<Basis, evaluation_form, Space, Release> forward(poly<Basis, coefficient_form, Space, Release> p) {
    for_each_limb<Basis>([&]<int I>() {
        ntt::forward(shared_plan<Basis::log_n, Basis::template prime<I>>(), p.template limb<I>());
    });
    return poly<Basis, evaluation_form, Space, Release>(std::move(p).take());
}

/// Inverse NTT of every limb; the memory is reused.
template <class Basis, class Space, class Release>
poly<Basis, coefficient_form, Space, Release> inverse(poly<Basis, evaluation_form, Space, Release> p) {
    for_each_limb<Basis>([&]<int I>() {
        ntt::inverse(shared_plan<Basis::log_n, Basis::template prime<I>>(), p.template limb<I>());
    });
    return poly<Basis, coefficient_form, Space, Release>(std::move(p).take());
}

}  // namespace tensafe::rns
