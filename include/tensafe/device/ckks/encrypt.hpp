#pragma once

#include <tensafe/arith/small.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/device/ckks/keys.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/random/samplers.hpp>
#include <tensafe/device/rns/pointwise.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/stream_domain.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tensafe::ckks {

namespace detail {

/// Two neighbouring small integers of a polynomial.
struct alignas(2) small_pair {
    std::int8_t first;
    std::int8_t second;
};

/// Entries k, k + 1 of polynomial p of a stack of small polynomials, modulo Q.
template <arith::word Q, std::size_t Degree>
TENSAFE_HOST_DEVICE TENSAFE_INLINE ntt::word_pair residues_of_small(const std::int8_t* small, std::size_t p,
                                                                    std::size_t k) noexcept {
    const small_pair x = *reinterpret_cast<const small_pair*>(small + p * Degree + k);
    return {arith::residue_of_small<Q>(x.first), arith::residue_of_small<Q>(x.second)};
}

template <arith::word Q>
TENSAFE_HOST_DEVICE TENSAFE_INLINE ntt::word_pair add_pairs(ntt::word_pair a, ntt::word_pair b) noexcept {
    return rns::detail::apply_to_pairs<Q, rns::pointwise::add>(a, b, {});
}

/// The message, with its error added.
template <class Basis, class Message>
struct load_with_error {
    Message message;
    const std::int8_t* errors;

    template <int I>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE ntt::word_pair pair(std::size_t polynomial, std::size_t k) const {
        constexpr arith::word q = Basis::template prime<I>;
        return add_pairs<q>(message.template pair<I>(polynomial, k),
                            residues_of_small<q, Basis::degree>(errors, polynomial, k));
    }
};

/// Writes c0 = value - c1*s. keys.polynomial(p) is the key of message p.
template <class Basis, class Keys = rns::stack_view>
struct store_hidden {
    arith::word* c0;
    const arith::word* c1;
    Keys key;

    template <int I>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE void pair(std::size_t polynomial, std::size_t k,
                                                 ntt::word_pair values) const {
        constexpr std::size_t start = static_cast<std::size_t>(I) * Basis::degree;
        const std::size_t at = polynomial * rns::words_of_poly<Basis> + start + k;
        const ntt::word_pair uniform = rns::detail::load_pair(c1 + at);
        const ntt::word_pair s =
            rns::detail::load_pair(key.polynomial(static_cast<std::uint32_t>(polynomial)) + start + k);
        rns::detail::store_pair(
            c0 + at, rns::detail::apply_to_pairs<Basis::template prime<I>, rns::pointwise::subtract_product>(
                         uniform, s, values));
    }
};

/// What a public-key encryption of M messages transforms: v of each, then m + e0 of each, then e1 of each.
template <class Basis, class Message>
struct load_public_parts {
    Message message;
    const std::int8_t* small;  ///< v, e0 and e1: [part][message][N]
    std::uint32_t messages;

    template <int I>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE ntt::word_pair pair(std::size_t polynomial, std::size_t k) const {
        constexpr arith::word q = Basis::template prime<I>;
        const ntt::word_pair x = residues_of_small<q, Basis::degree>(small, polynomial, k);
        const std::uint32_t number = static_cast<std::uint32_t>(polynomial) - messages;
        if (number >= messages) {  // the same for a whole polynomial
            return x;
        }
        return add_pairs<q>(message.template pair<I>(number, k), x);
    }
};

inline void check_capacity(std::size_t messages, std::size_t capacity) {
    if (messages > capacity) {
        throw shape_error("encrypt_blocks: got " + std::to_string(messages) +
                          " messages, expected at most the workspace's " + std::to_string(capacity));
    }
}

}  // namespace detail

/// A message that is zero: an ntt Load functor.
struct zero_message {
    template <int I>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE ntt::word_pair pair(std::size_t, std::size_t) const {
        return {0, 0};
    }
};

/// Memory for secret-key encryptions of up to capacity() messages at once, kept by the caller: N bytes each.
/// Holds the errors of the last call, which are secret, until the next one, `clear` or its release, which
/// wipes it. One call at a time.
template <parameter_set P, class Space>
class block_encryption_workspace {
  public:
    explicit block_encryption_workspace(std::size_t messages)
        : errors_(messages * P::degree, memory::uninitialized), capacity_(messages) {}

    std::size_t capacity() const noexcept { return capacity_; }
    /// [message][N].
    std::int8_t* errors() noexcept { return errors_.data(); }

    /// Writes zeros over the secrets, in the order of `where`.
    template <class Where>
    void clear(const Where& where) {
        where.fill_zero(errors_.data(), errors_.size());
    }

  private:
    memory::buffer<std::int8_t, Space, memory::wipe_on_release> errors_;
    std::size_t capacity_;
};

/// The same for public-key encryptions at a level: 3N bytes and 3N words for each limb, for each message.
template <parameter_set P, class Space, int Level = P::max_level>
class block_public_encryption_workspace {
  public:
    using basis = typename P::template basis_at<Level>;

    explicit block_public_encryption_workspace(std::size_t messages)
        : small_(3 * messages * P::degree, memory::uninitialized),
          transformed_(3 * messages * rns::words_of_poly<basis>, memory::uninitialized),
          capacity_(messages) {}

    std::size_t capacity() const noexcept { return capacity_; }
    /// Room for v, e0 and e1 of each message.
    std::int8_t* small() noexcept { return small_.data(); }
    arith::word* transformed() noexcept { return transformed_.data(); }

    /// Writes zeros over the secrets, in the order of `where`.
    template <class Where>
    void clear(const Where& where) {
        where.fill_zero(small_.data(), small_.size());
        where.fill_zero(transformed_.data(), transformed_.size());
    }

  private:
    memory::buffer<std::int8_t, Space, memory::wipe_on_release> small_;
    memory::buffer<arith::word, Space, memory::wipe_on_release> transformed_;
    std::size_t capacity_;
};

/// Seeds of secret-key encryptions, in the memory of the device; each fresh, from random::generator.
struct block_encryption_seeds {
    const random::seed* errors;  ///< secret: one for each message
    const random::seed* c1;      ///< public: one for each group of messages
    /// Messages of a group: message i of it has the lanes i * limbs on. An encryption on its own has 1, a
    /// request of encrypted LoRA as many as it has inputs.
    std::uint32_t messages_of_c1_seed = 1;
};

/// Secret-key encryptions of many messages: c0 = m + e - c1*s, the words that ckks::encrypt_c0 gives for the
/// same seeds, and c1, those of ckks::expand.
///
/// One launch draws errors and c1; then one transform, with message and error in front of it and c1*s behind
/// it.
/// @param keys     whose polynomial(p) are the words of the key of message p: a rns::stack_view, or a type of
///                 the caller's
/// @param message  an ntt Load functor, message p as its polynomial p: ntt::load_words,
/// encoding::load_rounded
///                 without errors, or zero_message
/// @param c0, c1   [message][limb][N], 16-byte aligned. Until the work is done, and if a launch fails, c0
/// holds what
///                 is not encrypted yet
/// @throws shape_error if there are more messages than the workspace has room for, or not as many for each
///         seed
template <parameter_set P, int Level = P::max_level, class Schedule = ntt::tuned, class Where, class Keys,
          class Message>
void encrypt_blocks_under(
    const Where& where,
    const ntt::block_plan<typename P::template basis_at<Level>, typename Where::space>& plan,
    const Keys& keys, const Message& message, std::size_t messages, const block_encryption_seeds& seeds,
    arith::word* c0, arith::word* c1, block_encryption_workspace<P, typename Where::space>& work) {
    using basis = typename P::template basis_at<Level>;
    static_assert(basis::limbs <= 8, "ckks::encrypt_blocks: one launch draws at most eight limbs");
    constexpr auto limbs = static_cast<std::uint32_t>(basis::limbs);
    detail::check_capacity(messages, work.capacity());
    if (seeds.messages_of_c1_seed == 0 || messages % seeds.messages_of_c1_seed != 0) {
        throw shape_error("encrypt_blocks: got " + std::to_string(messages) +
                          " messages, expected groups of " + std::to_string(seeds.messages_of_c1_seed));
    }
    if (messages == 0) {
        return;
    }
    std::array<random::block_draws, 2> draws{};
    draws[0].kind = random::drawn::uniform;
    draws[0].domain = random::stream_domain::uplink;
    draws[0].lanes = seeds.messages_of_c1_seed * limbs;
    draws[0].polynomials = static_cast<std::uint32_t>(messages) * limbs;
    draws[0].size = static_cast<std::uint32_t>(P::degree);
    draws[0].seeds = seeds.c1;
    draws[0].out = c1;
    draws[0].moduli_count = limbs;
    rns::for_each_limb<basis>([&]<int I>() { draws[0].moduli[I] = basis::template prime<I>; });
    draws[1].kind = random::drawn::centred_binomial;
    draws[1].domain = random::stream_domain::error;
    draws[1].lanes = 1;
    draws[1].polynomials = static_cast<std::uint32_t>(messages);
    draws[1].size = static_cast<std::uint32_t>(P::degree);
    draws[1].seeds = seeds.errors;
    draws[1].out = work.errors();
    random::draw_blocks(where, std::span<const random::block_draws>(draws));

    ntt::forward_blocks<basis, Schedule>(where, plan,
                                         detail::load_with_error<basis, Message>{message, work.errors()},
                                         detail::store_hidden<basis, Keys>{c0, c1, keys}, messages, c0);
}

/// The same under one key, or under those of many clients, in client order.
/// @throws as above; shape_error also if there are not as many messages for each key
template <parameter_set P, int Level = P::max_level, class Schedule = ntt::tuned, class Where, class Message>
void encrypt_blocks(const Where& where,
                    const ntt::block_plan<typename P::template basis_at<Level>, typename Where::space>& plan,
                    const block_secret_key<P, typename Where::space>& keys, const Message& message,
                    std::size_t messages, const block_encryption_seeds& seeds, arith::word* c0,
                    arith::word* c1, block_encryption_workspace<P, typename Where::space>& work) {
    encrypt_blocks_under<P, Level, Schedule>(where, plan, keys.shared_by(messages), message, messages, seeds,
                                             c0, c1, work);
}

/// Public-key encryptions of many messages under one key: (b*v + e0 + m, a*v + e1), the words that
/// ckks::encrypt gives for the same seeds.
///
/// One launch draws v, e0 and e1, one transform takes v, m + e0 and e1 of all messages, one launch multiplies
/// and adds.
/// @param message  as above
/// @param seeds    one fresh secret seed for each message, in the memory of the device
/// @param c        [c0 and c1][message][limb][N]: first c0 of all messages, then their c1; 16-byte aligned
/// @throws shape_error if there are more messages than the workspace has room for
template <parameter_set P, int Level = P::max_level, class Schedule = ntt::tuned, class Where, class Message>
void encrypt_blocks(const Where& where,
                    const ntt::block_plan<typename P::template basis_at<Level>, typename Where::space>& plan,
                    const block_public_key<P, typename Where::space>& key, const Message& message,
                    std::size_t messages, const random::seed* seeds, arith::word* c,
                    block_public_encryption_workspace<P, typename Where::space, Level>& work) {
    using basis = typename P::template basis_at<Level>;
    detail::check_capacity(messages, work.capacity());
    if (messages == 0) {
        return;
    }
    const auto count = static_cast<std::uint32_t>(messages);
    std::array<random::block_draws, 3> draws{};
    for (std::size_t part = 0; part < draws.size(); ++part) {
        random::block_draws& draw = draws[part];
        draw.kind = part == 0 ? random::drawn::ternary : random::drawn::centred_binomial;
        draw.domain = part == 0 ? random::stream_domain::zero : random::stream_domain::error;
        draw.first_lane = part == 2 ? 1 : 0;
        draw.lanes = 1;
        draw.polynomials = count;
        draw.size = static_cast<std::uint32_t>(P::degree);
        draw.seeds = seeds;
        draw.out = work.small() + part * messages * P::degree;
    }
    random::draw_blocks(where, std::span<const random::block_draws>(draws));

    arith::word* const v = work.transformed();
    ntt::forward_blocks<basis, Schedule>(
        where, plan, detail::load_public_parts<basis, Message>{message, work.small(), count},
        ntt::store_words<basis>{v}, 3 * messages, v);
    rns::pointwise_blocks<basis>(where, rns::pointwise::multiply_add{}, 2 * messages, c,
                                 rns::words_of_poly<basis>, rns::view_of(key.halves(), count),
                                 rns::view_of<basis>(v, 1, count),
                                 rns::view_of<basis>(v + messages * rns::words_of_poly<basis>));
}

}  // namespace tensafe::ckks
