#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/evaluation_key.hpp>
#include <tensafe/ckks/key_switch.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/ntt/automorphism.hpp>
#include <tensafe/rns/limb_table.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::ckks {

/// A list of rotations: by how many slots to the left, negative ones to the right.
template <int... Steps>
struct rotations {};
/// The conjugation of all slots, in the list of a set of keys.
struct conjugation {};

namespace detail {

/// A rotation as one to the left, in [0, N/2).
template <parameter_set P>
constexpr std::size_t left_steps(long long step) noexcept {
    const auto slots = static_cast<long long>(P::slots);
    return static_cast<std::size_t>((step % slots + slots) % slots);
}
/// The exponent g of the automorphism that moves slots: 5^step modulo 2N.
template <parameter_set P>
constexpr arith::word rotation_exponent(std::size_t step) noexcept {
    return arith::power_mod(5, step, 2 * P::degree);
}

/// The rotation as users write it: in [-N/4, N/4].
template <parameter_set P>
constexpr long long signed_step(std::size_t left) noexcept {
    const auto step = static_cast<long long>(left);
    return left > P::slots / 2 ? step - static_cast<long long>(P::slots) : step;
}
/// What errors call the key of X -> X^g.
template <parameter_set P>
std::string key_name(arith::word exponent) {
    if (exponent == 2 * P::degree - 1) {
        return "the conjugation";
    }
    arith::word g = 5;
    for (std::size_t left = 1; left < P::slots; ++left, g = g * 5 % (2 * P::degree)) {
        if (g == exponent) {
            return "the rotation by " + std::to_string(signed_step<P>(left));
        }
    }
    return "X^" + std::to_string(exponent);
}

template <class List>
struct steps_of {
    static_assert(sizeof(List) == 0, "ckks::galois_keys: the lists are rotations<...> and conjugation");
};
template <int... Steps>
struct steps_of<rotations<Steps...>> {
    static constexpr std::array<long long, sizeof...(Steps)> list{Steps...};
    static constexpr bool conjugates = false;
};
template <>
struct steps_of<conjugation> {
    static constexpr std::array<long long, 0> list{};
    static constexpr bool conjugates = true;
};

template <std::size_t Stride, std::size_t... I>
auto doubled_steps(std::index_sequence<I...>) -> rotations<static_cast<int>(Stride << I)...>;
template <std::size_t Stride, std::size_t End>
constexpr std::size_t doublings() noexcept {
    static_assert(Stride >= 1 && Stride <= End && End % Stride == 0 && std::has_single_bit(End / Stride),
                  "ckks::inner_sum: End must be Stride times a power of two");
    return static_cast<std::size_t>(std::countr_zero(End / Stride));
}

/// The rotations of lists as ones to the left, each once and without whole turns, and their number.
template <parameter_set P, class... Lists>
constexpr auto distinct_steps() noexcept {
    std::array<std::size_t, (steps_of<Lists>::list.size() + ... + 0)> steps{};
    std::size_t count = 0;
    const auto add = [&](const auto& list) {
        for (const long long each : list) {
            const std::size_t step = left_steps<P>(each);
            const auto end = steps.begin() + count;
            if (step != 0 && std::find(steps.begin(), end, step) == end) {
                steps[count++] = step;
            }
        }
    };
    (add(steps_of<Lists>::list), ...);
    return std::pair(steps, count);
}

}  // namespace detail

/// The rotations that inner_sum<Stride, End> takes: by Stride, 2 Stride, ..., End/2. By default 1 to N/4.
template <parameter_set P, std::size_t Stride = 1, std::size_t End = P::slots>
using inner_sum_rotations =
    decltype(detail::doubled_steps<Stride>(std::make_index_sequence<detail::doublings<Stride, End>()>()));

/// The keys of some rotations, and of the conjugation if the list has it, for ciphertexts of up to `Level`.
/// Immutable; thread-safe.
/// @tparam Lists  rotations<...> and conjugation
template <parameter_set P, int Level, class... Lists>
class galois_keys_at {
    static constexpr auto distinct = detail::distinct_steps<P, Lists...>();

  public:
    /// Draws a key for each rotation that is no whole turn, in the order of the lists, then the
    /// conjugation's.
    galois_keys_at(const secret_key<P>& s, random::generator& generator)
        : galois_keys_at([&](arith::word exponent) { return switched(s, exponent, generator); }) {}
    /// Makes the keys that were sent; wire::read_galois_keys reads them from bytes.
    /// @param key_of  called as key_of(g) for each, in that order: returns the evaluation_key of X -> X^g
    template <std::invocable<arith::word> KeyOf>
    explicit galois_keys_at(KeyOf key_of) {
        keys_.reserve(count);
        const auto add = [&](arith::word exponent) { keys_.emplace_back(exponent, key_of(exponent)); };
        for (const std::size_t step : steps()) {
            add(detail::rotation_exponent<P>(step));
        }
        if constexpr (conjugates) {
            add(2 * P::degree - 1);
        }
    }

    static constexpr bool conjugates = (detail::steps_of<Lists>::conjugates || ...);
    /// The rotations with a key, in [1, N/2), in the order of their keys.
    static constexpr std::span<const std::size_t> steps() noexcept {
        return std::span(distinct.first).first(distinct.second);
    }
    /// The number of keys, with that of the conjugation.
    static constexpr std::size_t count = distinct.second + (conjugates ? 1 : 0);
    /// Whether there is a key for this rotation, or none is needed.
    static constexpr bool rotates_by(long long step) noexcept {
        const std::size_t left = detail::left_steps<P>(step);
        return left == 0 || std::find(steps().begin(), steps().end(), left) != steps().end();
    }

    /// The key of X -> X^g: from s to the secret that the automorphism makes s of.
    struct galois_key {
        galois_key(arith::word exponent, evaluation_key<P, Level> its_key)
            : move(P::log_n, exponent), key(std::move(its_key)) {}

        ntt::automorphism move;
        evaluation_key<P, Level> key;
    };
    /// The key of a rotation, in [1, N/2), or null.
    const galois_key* find(std::size_t step) const noexcept {
        const auto place = std::find(steps().begin(), steps().end(), step);
        return place == steps().end() ? nullptr : &keys_[static_cast<std::size_t>(place - steps().begin())];
    }
    const galois_key& of_conjugation() const noexcept requires(conjugates) { return keys_.back(); }
    /// All keys: of the rotations, then of the conjugation.
    std::span<const galois_key> keys() const noexcept { return keys_; }

  private:
    static evaluation_key<P, Level> switched(const secret_key<P>& s, arith::word exponent,
                                             random::generator& generator) {
        // The coefficients of s at X^h, h the inverse of g modulo 2N: place and sign are public.
        const arith::word inverse = arith::power_mod(exponent, P::degree / 2 - 1, 2 * P::degree);
        memory::secret_buffer<std::int8_t> moved(P::degree, memory::uninitialized);
        for (std::size_t i = 0; i < P::degree; ++i) {
            const std::size_t place = i * inverse % (2 * P::degree);
            const std::int8_t t = s.coefficients()[i];
            moved[place % P::degree] = place < P::degree ? t : static_cast<std::int8_t>(-t);
        }
        return evaluation_key<P, Level>(s, exponent, moved.span(), generator,
                                        [&](const rns::limb_operations& limb, std::span<arith::word> out) {
                                            detail::lift_secret(limb, s.coefficients(), out);
                                        });
    }

    std::vector<galois_key> keys_;
};

/// The keys of some rotations for ciphertexts of all levels.
template <parameter_set P, class... Lists>
using galois_keys = galois_keys_at<P, P::max_level, Lists...>;

/// A ciphertext whose digits are raised and transformed, once for many rotations of it with keys for
/// ciphertexts of up to KeyLevel: of the (digits + 2) (limbs + special primes) transforms of a rotation,
/// 2 (limbs + special primes) are left to each. Immutable; thread-safe.
template <parameter_set P, int Level, int KeyLevel>
class hoisted_ciphertext {
  public:
    explicit hoisted_ciphertext(ckks::ciphertext<P, Level> c)
        : c_(std::move(c)), digits_(detail::shared_key_switch<P, KeyLevel, Level>().raise(c_.c1.words())) {}

    const ckks::ciphertext<P, Level>& ciphertext() const noexcept { return c_; }
    /// The digits of c1, as detail::key_switch::raise leaves them.
    const detail::key_switch::buffer& digits() const noexcept { return digits_; }

  private:
    ckks::ciphertext<P, Level> c_;
    detail::key_switch::buffer digits_;
};

/// Prepares a ciphertext for many rotations with these keys: `rotate` and `conjugate` take the result as they
/// take the ciphertext, and give the same, bit for bit.
template <parameter_set P, int Level, int KeyLevel, class... Lists>
[[nodiscard]] hoisted_ciphertext<P, Level, KeyLevel> hoist(ciphertext<P, Level> c,
                                                           const galois_keys_at<P, KeyLevel, Lists...>&) {
    return hoisted_ciphertext<P, Level, KeyLevel>(std::move(c));
}

namespace detail {

/// Applies an automorphism: values move, and the key leads back to s.
/// @param digits  those of a hoisted ciphertext, or null
template <parameter_set P, int Level, int KeyLevel>
ciphertext<P, Level> apply(const ciphertext<P, Level>& c, const key_switch::buffer* digits,
                           const ntt::automorphism& move, const evaluation_key<P, KeyLevel>& with) {
    using form = rns::poly<typename P::template basis_at<Level>, rns::evaluation_form>;
    const key_switch& to_s = shared_key_switch<P, KeyLevel, Level>();
    const key_words key = with.words();
    ciphertext<P, Level> result{form(memory::uninitialized), form(memory::uninitialized), c.scale, c.largest};
    const std::array<std::span<arith::word>, 2> to{result.c0.mutable_words(), result.c1.mutable_words()};
    const key_switch::addends more{{c.c0.words(), {}}};
    const auto finish = [&](std::size_t i, std::size_t half, std::span<const arith::word> words) {
        move.apply(words.data(), to[half].data() + i * P::degree);
    };
    if (digits == nullptr) {
        to_s.template run<false>(c.c1.words(), key, more, to, finish);
    } else {
        const auto read = [&](std::size_t m, const auto& sums) {
            to_s.sum_products(m, c.c1.words(), *digits, key, more, sums);
        };
        to_s.template divide<false>(to, read, finish);
    }
    return result;
}

template <parameter_set P, int Level, int KeyLevel, class... Lists>
ciphertext<P, Level> rotated(const ciphertext<P, Level>& c, const key_switch::buffer* digits, long long step,
                             const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    const std::size_t left = left_steps<P>(step);
    if (left == 0) {
        return c;
    }
    const auto* const with = keys.find(left);
    if (with == nullptr) {
        std::string known;
        for (const std::size_t each : keys.steps()) {
            known += (known.empty() ? "" : ", ") + std::to_string(signed_step<P>(each));
        }
        throw parameter_error("rotate: got a step of " + std::to_string(step) +
                              ", expected one with a key: " + (known.empty() ? "none" : known));
    }
    return apply(c, digits, with->move, with->key);
}
template <int Step, parameter_set P, int Level, int KeyLevel, class... Lists>
ciphertext<P, Level> rotated(const ciphertext<P, Level>& c, const key_switch::buffer* digits,
                             const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    static_assert(galois_keys_at<P, KeyLevel, Lists...>::rotates_by(Step),
                  "ckks::rotate: no key for this step; add it to the keys' rotations<...>");
    return rotated(c, digits, Step, keys);
}
template <parameter_set P, int Level, int KeyLevel, class... Lists>
ciphertext<P, Level> conjugated(const ciphertext<P, Level>& c, const key_switch::buffer* digits,
                                const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    static_assert(galois_keys_at<P, KeyLevel, Lists...>::conjugates,
                  "ckks::conjugate: no key; add conjugation to the keys' lists");
    const auto& with = keys.of_conjugation();
    return apply(c, digits, with.move, with.key);
}

}  // namespace detail

/// Rotates the slots to the left: slot j of the result is slot j + Step. Costs a key switch.
template <int Step, parameter_set P, int Level, int KeyLevel, class... Lists>
[[nodiscard]] ciphertext<P, Level> rotate(const ciphertext<P, Level>& c,
                                          const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    return detail::rotated<Step>(c, nullptr, keys);
}
template <int Step, parameter_set P, int Level, int KeyLevel, class... Lists>
[[nodiscard]] ciphertext<P, Level> rotate(const hoisted_ciphertext<P, Level, KeyLevel>& c,
                                          const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    return detail::rotated<Step>(c.ciphertext(), &c.digits(), keys);
}

/// Rotates the slots to the left by a number of steps that is known at run time.
/// @throws parameter_error if there is no key for it; the message lists those there are
template <parameter_set P, int Level, int KeyLevel, class... Lists>
[[nodiscard]] ciphertext<P, Level> rotate(const ciphertext<P, Level>& c, long long step,
                                          const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    return detail::rotated(c, nullptr, step, keys);
}
template <parameter_set P, int Level, int KeyLevel, class... Lists>
[[nodiscard]] ciphertext<P, Level> rotate(const hoisted_ciphertext<P, Level, KeyLevel>& c, long long step,
                                          const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    return detail::rotated(c.ciphertext(), &c.digits(), step, keys);
}

/// Conjugates all slots. Costs a key switch.
template <parameter_set P, int Level, int KeyLevel, class... Lists>
[[nodiscard]] ciphertext<P, Level> conjugate(const ciphertext<P, Level>& c,
                                             const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    return detail::conjugated(c, nullptr, keys);
}
template <parameter_set P, int Level, int KeyLevel, class... Lists>
[[nodiscard]] ciphertext<P, Level> conjugate(const hoisted_ciphertext<P, Level, KeyLevel>& c,
                                             const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    return detail::conjugated(c.ciphertext(), &c.digits(), keys);
}

template <int Step, parameter_set P, int Level, int A, int B, class... Lists>
void rotate(  // hoist() it with these keys
    const hoisted_ciphertext<P, Level, A>&, const galois_keys_at<P, B, Lists...>&) = delete;

/// Adds slots up: slot j of the result is the sum of the slots j + k Stride with k Stride < End, by default
/// of all. Costs a key switch for each doubling, log2(End / Stride).
/// @throws as add of ciphertexts
template <std::size_t Stride = 1, std::size_t End = 0, parameter_set P, int Level, int KeyLevel,
          class... Lists>
[[nodiscard]] ciphertext<P, Level> inner_sum(ciphertext<P, Level> c,
                                             const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    constexpr std::size_t end = End == 0 ? P::slots : End;
    [&]<int... Steps>(rotations<Steps...>) {
        static_assert((galois_keys_at<P, KeyLevel, Lists...>::rotates_by(Steps) && ...),
                      "ckks::inner_sum: keys are missing; add inner_sum_rotations<P> to their lists");
        (add(c, rotate<Steps>(c, keys)), ...);
    }
    (inner_sum_rotations<P, Stride, end>());
    return c;
}

}  // namespace tensafe::ckks
