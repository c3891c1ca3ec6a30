#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/prime.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/switch_modulus_share.hpp>

#include <cstddef>
#include <cstdint>

namespace tensafe::device {

/// The last prime of a chain alone: the one that a rescale drops.
template <class Basis>
using last_limb = rns::basis<Basis::log_n, Basis::template prime<Basis::limbs - 1>>;

namespace detail {

template <word P, word Q>
inline constexpr word inverse_of_prime = arith::inverse_mod(P % Q, Q);

template <class Basis>
struct load_dropped_limb {
    stack_view from;

    template <int I>
    TENSAFE_HD_INLINE word_pair pair(std::size_t polynomial, std::size_t k) const {
        constexpr std::size_t start = static_cast<std::size_t>(Basis::limbs - 1) * Basis::degree;
        return load_pair(from.polynomial(static_cast<std::uint32_t>(polynomial)) + start + k);
    }
};

/// Writes remainders, shifted by half the dropped prime: centred, r + half is in [0, q_last) exactly when r
/// is in its upper half.
template <class Basis>
struct store_shifted {
    word* remainders;

    template <int I>
    TENSAFE_HD_INLINE void pair(std::size_t polynomial, std::size_t k, word_pair values) const {
        constexpr word dropped = Basis::template prime<Basis::limbs - 1>;
        constexpr word half = dropped / 2;
        store_pair(remainders + polynomial * Basis::degree + k,
                   {arith::subtract_if_not_below(values.first + half, dropped),
                    arith::subtract_if_not_below(values.second + half, dropped)});
    }
};

/// Reads shifted remainders modulo a prime that stays, and takes the shift away.
template <class Basis>
struct load_remainder {
    const word* remainders;

    template <int I>
    TENSAFE_HD_INLINE word_pair pair(std::size_t polynomial, std::size_t k) const {
        const word_pair shifted = load_pair(remainders + polynomial * Basis::degree + k);
        return {lifted<I>(shifted.first), lifted<I>(shifted.second)};
    }

    template <int I>
    TENSAFE_HD_INLINE static word lifted(word shifted) noexcept {
        constexpr word dropped = Basis::template prime<Basis::limbs - 1>;
        constexpr word q = Basis::template prime<I>;
        constexpr word shift = dropped / 2 % q;
        if constexpr (dropped < 2 * q) {
            // The centred remainder is within q of zero already.
            return arith::subtract_if_not_below(shifted + (q - shift), q);
        } else {
            constexpr arith::shoup<arith::fixed_modulus<q>> policy{};
            constexpr auto one = policy.prepare(1);
            const word r = arith::reduce<1>(policy.modulus(), policy.reduce_word(shifted, one)).value;
            return arith::subtract_if_not_below(r + (q - shift), q);
        }
    }
};

template <class Basis>
struct store_quotient {
    stack_view from;
    word* out;

    template <int I>
    TENSAFE_HD_INLINE void pair(std::size_t polynomial, std::size_t k, word_pair remainder) const {
        constexpr std::size_t start = static_cast<std::size_t>(I) * Basis::degree;
        constexpr std::size_t stride = words_of_poly<rns::prefix<Basis, Basis::limbs - 1>>;
        const word_pair p = load_pair(from.polynomial(static_cast<std::uint32_t>(polynomial)) + start + k);
        store_pair(out + polynomial * stride + start + k,
                   {quotient<I>(p.first, remainder.first), quotient<I>(p.second, remainder.second)});
    }

    template <int I>
    TENSAFE_HD_INLINE static word quotient(word p, word remainder) noexcept {
        constexpr word dropped = Basis::template prime<Basis::limbs - 1>;
        constexpr word q = Basis::template prime<I>;
        constexpr arith::shoup<arith::fixed_modulus<q>> policy{};
        constexpr auto inverse = policy.prepare(inverse_of_prime<dropped, q>);
        return arith::reduce<1>(policy.modulus(), policy.multiply_word(p + q - remainder, inverse)).value;
    }
};

}  // namespace detail

/// The tables of a rescale that drops the last prime of a chain. Immutable; shared by any number of calls.
template <class Basis, class Space>
struct rescale_plans {
    static_assert(Basis::limbs >= 2, "device::rescale_plans: the chain has no level left");

    template <class Where>
    explicit rescale_plans(const Where& where) : dropped(where), kept(where) {}

    plan<last_limb<Basis>, Space> dropped;
    plan<rns::prefix<Basis, Basis::limbs - 1>, Space> kept;
};

/// Rounds p / q_last modulo the shorter chain for each of `polynomials` polynomials, in evaluation form on
/// both sides: the words that rns::rescale gives. An inverse transform of the dropped limb, then a forward
/// transform of the others, with the rest in front of them and behind.
/// @param p          polynomials of the whole chain
/// @param out        [polynomial][limb][N] of the shorter chain; not the memory of p
/// @param remainders polynomials * N words of work; keeps the dropped limbs' coefficients
/// @pre  pointers are 16-byte aligned; words in [0, q)
/// @throws shape_error if there are more polynomials than a grid has room for
template <class Basis, class Schedule = schedule::tuned, class Where>
requires(Basis::limbs >=
         2) void rescale(const Where& where, const rescale_plans<Basis, typename Where::space>& plans,
                         const stack_view& p, word* out, std::size_t polynomials, word* remainders) {
    if (polynomials == 0) {
        return;
    }
    inverse<last_limb<Basis>, Schedule>(where, plans.dropped, detail::load_dropped_limb<Basis>{p},
                                        detail::store_shifted<Basis>{remainders}, polynomials, remainders);
    forward<rns::prefix<Basis, Basis::limbs - 1>, Schedule>(
        where, plans.kept, detail::load_remainder<Basis>{remainders}, detail::store_quotient<Basis>{p, out},
        polynomials, out);
}

/// Rescales a whole stack. Allocates the result and, during the call, N words for each polynomial.
template <class Schedule = schedule::tuned, class Where, class Basis, class R>
requires(Basis::limbs >=
         2) auto rescale(const Where& where, const rescale_plans<Basis, typename Where::space>& plans,
                         const poly_stack<Basis, rns::evaluation_form, typename Where::space, R>& p) {
    using shorter = rns::prefix<Basis, Basis::limbs - 1>;
    memory::buffer<word, typename Where::space, R> remainders(p.count() * Basis::degree,
                                                              memory::uninitialized);
    poly_stack<shorter, rns::evaluation_form, typename Where::space, R> result(p.count(),
                                                                               memory::uninitialized);
    rescale<Basis, Schedule>(where, plans, view_of(p), result.data(), p.count(), remainders.data());
    where.wait();  // the remainders go back
    return result;
}

/// The sum of all limbs' shares (rns::detail::share_of) as an integer of [0, 2^bits): the last step of
/// rns::switch_modulus, which rounds.
/// @pre  bits in [1, 32]
TENSAFE_HD_INLINE std::uint32_t round_shares(word shares, std::uint32_t bits) noexcept {
    const std::uint32_t dropped = 64 - bits;
    return static_cast<std::uint32_t>((shares + (word{1} << (dropped - 1))) >> dropped);
}

}  // namespace tensafe::device
