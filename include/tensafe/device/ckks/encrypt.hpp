#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/ckks/ciphertext.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/random/samplers.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/random/seed.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensafe::device {

namespace detail {

struct alignas(2) small_pair {
    std::int8_t first;
    std::int8_t second;
};

/// The residues modulo Q of entries k, k + 1 of polynomial p of a stack of small polynomials.
template <word Q, std::size_t Degree>
TENSAFE_HD_INLINE word_pair residues_of_small(const std::int8_t* small, std::size_t p,
                                              std::size_t k) noexcept {
    const small_pair x = *reinterpret_cast<const small_pair*>(small + p * Degree + k);
    return {arith::residue_of_small<Q>(x.first), arith::residue_of_small<Q>(x.second)};
}

template <word Q>
TENSAFE_HD_INLINE word_pair add_pairs(word_pair a, word_pair b) noexcept {
    return detail::apply_to_pairs<Q, pointwise::add>(a, b, {});
}

template <class Basis, class Message>
struct load_with_error {
    Message message;
    const std::int8_t* errors;

    template <int I>
    TENSAFE_HD_INLINE word_pair pair(std::size_t polynomial, std::size_t k) const {
        constexpr word q = Basis::template prime<I>;
        return add_pairs<q>(message.template pair<I>(polynomial, k),
                            residues_of_small<q, Basis::degree>(errors, polynomial, k));
    }
};

/// Writes c0 = value - c1*s. keys.polynomial(p) is the key of message p.
template <class Basis, class Keys = stack_view>
struct store_encrypted {
    word* c0;
    const word* c1;
    Keys key;

    template <int I>
    TENSAFE_HD_INLINE void pair(std::size_t polynomial, std::size_t k, word_pair values) const {
        constexpr std::size_t start = static_cast<std::size_t>(I) * Basis::degree;
        const std::size_t at = polynomial * words_of_poly<Basis> + start + k;
        const word_pair uniform = load_pair(c1 + at);
        const word_pair s = load_pair(key.polynomial(static_cast<std::uint32_t>(polynomial)) + start + k);
        store_pair(c0 + at, detail::apply_to_pairs<Basis::template prime<I>, pointwise::subtract_product>(
                                uniform, s, values));
    }
};

/// Loads what a public-key encryption of M messages transforms: v of each, then m + e0, then e1.
template <class Basis, class Message>
struct load_public_parts {
    Message message;
    const std::int8_t* small;  ///< v, e0 and e1: [part][message][N]
    std::uint32_t messages;

    template <int I>
    TENSAFE_HD_INLINE word_pair pair(std::size_t polynomial, std::size_t k) const {
        constexpr word q = Basis::template prime<I>;
        const word_pair x = residues_of_small<q, Basis::degree>(small, polynomial, k);
        const std::uint32_t number = static_cast<std::uint32_t>(polynomial) - messages;
        if (number >= messages) {  // the same for a whole polynomial
            return x;
        }
        return add_pairs<q>(message.template pair<I>(number, k), x);
    }
};

inline void check_capacity(std::size_t messages, std::size_t capacity) {
    require<shape_error>(messages <= capacity, {"device::encrypt: got ", messages,
                                                " messages, expected at most the workspace's ", capacity});
}

}  // namespace detail

/// Memory for secret-key encryptions of up to capacity() messages at once, kept by the caller: N bytes each.
/// Holds the secret errors of the last call until the next one, `clear` or its release. One call at a time.
template <ckks::parameter_set P, class Space>
class encryption_workspace {
  public:
    explicit encryption_workspace(std::size_t messages)
        : errors_(messages * P::degree, memory::uninitialized), capacity_(messages) {}

    std::size_t capacity() const noexcept { return capacity_; }
    /// The errors, [message][N].
    std::int8_t* errors() noexcept { return errors_.data(); }

    /// Overwrites the secrets with 0, in the order of `where`.
    template <class Where>
    void clear(const Where& where) {
        where.fill_zero(errors_.data(), errors_.size());
    }

  private:
    memory::buffer<std::int8_t, Space, memory::wipe_on_release> errors_;
    std::size_t capacity_;
};

/// Memory for public-key encryptions at a level: 3N bytes and 3N words for each limb, for each message.
template <ckks::parameter_set P, class Space, int Level = P::max_level>
class public_encryption_workspace {
  public:
    using basis = typename P::template basis_at<Level>;

    explicit public_encryption_workspace(std::size_t messages)
        : small_(3 * messages * P::degree, memory::uninitialized),
          transformed_(3 * messages * words_of_poly<basis>, memory::uninitialized),
          capacity_(messages) {}

    std::size_t capacity() const noexcept { return capacity_; }
    /// The room for v, e0 and e1 of each message.
    std::int8_t* small() noexcept { return small_.data(); }
    word* transformed() noexcept { return transformed_.data(); }

    /// Overwrites the secrets with 0, in the order of `where`.
    template <class Where>
    void clear(const Where& where) {
        where.fill_zero(small_.data(), small_.size());
        where.fill_zero(transformed_.data(), transformed_.size());
    }

  private:
    memory::buffer<std::int8_t, Space, memory::wipe_on_release> small_;
    memory::buffer<word, Space, memory::wipe_on_release> transformed_;
    std::size_t capacity_;
};

/// Seeds of secret-key encryptions, in the memory of the device; each fresh, from random::generator.
struct encryption_seeds {
    const random::seed* errors;  ///< secret: one for each message
    const random::seed* c1;      ///< public: one for each group of messages
    /// The messages of a group: message i of it has the lanes i * limbs on. An encryption on its own has 1, a
    /// request of encrypted LoRA as many as it has inputs.
    std::uint32_t messages_of_c1_seed = 1;
};

/// Encrypts many messages with secret keys: c0 = m + e - c1*s, the words that ckks::encrypt_c0 gives for the
/// same seeds, and c1, those of ckks::expand. One launch for the draws, and one transform.
/// @param keys     whose polynomial(p) are the words of the key of message p: stack_view or another type
/// @param message  gives message p as polynomial p: load_words, load_rounded without errors, or your own
/// @param c0, c1   [message][limb][N], 16-byte aligned. Until the work is done, and if a launch fails, c0
///                 holds what is not encrypted yet
/// @throws shape_error for more messages than the workspace has room for, or not as many for each seed
template <ckks::parameter_set P, int Level = P::max_level, class Schedule = schedule::tuned, class Where,
          class Keys, class Message>
void encrypt_under(const Where& where,
                   const plan<typename P::template basis_at<Level>, typename Where::space>& plan,
                   const Keys& keys, const Message& message, std::size_t messages,
                   const encryption_seeds& seeds, word* c0, word* c1,
                   encryption_workspace<P, typename Where::space>& work) {
    using basis = typename P::template basis_at<Level>;
    detail::check_capacity(messages, work.capacity());
    require<shape_error>(
        seeds.messages_of_c1_seed != 0 && messages % seeds.messages_of_c1_seed == 0,
        {"device::encrypt: got ", messages, " messages, expected groups of ", seeds.messages_of_c1_seed});
    if (messages == 0) {
        return;
    }
    const std::array<draw_group, 2> draws{
        uniform_polynomials<basis>(seeds.c1, seeds.messages_of_c1_seed, messages, c1),
        small_polynomials(distribution::error, random::stream_domain::error, 0, seeds.errors, messages,
                          P::degree, work.errors())};
    draw(where, std::span<const draw_group>(draws));

    forward<basis, Schedule>(where, plan, detail::load_with_error<basis, Message>{message, work.errors()},
                             detail::store_encrypted<basis, Keys>{c0, c1, keys}, messages, c0);
}

/// Encrypts like encrypt_under, under one key or under those of many clients, in client order.
/// @throws as encrypt_under; shape_error also if there are not as many messages for each key
template <ckks::parameter_set P, int Level = P::max_level, class Schedule = schedule::tuned, class Where,
          class Message>
void encrypt(const Where& where,
             const plan<typename P::template basis_at<Level>, typename Where::space>& plan,
             const secret_keys<P, typename Where::space>& keys, const Message& message, std::size_t messages,
             const encryption_seeds& seeds, word* c0, word* c1,
             encryption_workspace<P, typename Where::space>& work) {
    encrypt_under<P, Level, Schedule>(where, plan, keys.shared_by(messages), message, messages, seeds, c0, c1,
                                      work);
}

/// Encrypts many messages under one public key: (b*v + e0 + m, a*v + e1), the words that
/// ckks::encrypt gives for the same seeds. One launch for the draws, one transform, one launch of products.
/// @param message  gives message p as polynomial p, as for encrypt_under
/// @param seeds    one fresh secret seed for each message, in the memory of the device
/// @param c        [c0 and c1][message][limb][N]: first c0 of all messages, then their c1; 16-byte aligned
/// @throws shape_error if there are more messages than the workspace has room for
template <ckks::parameter_set P, int Level = P::max_level, class Schedule = schedule::tuned, class Where,
          class Message>
void encrypt(const Where& where,
             const plan<typename P::template basis_at<Level>, typename Where::space>& plan,
             const public_key<P, typename Where::space>& key, const Message& message, std::size_t messages,
             const random::seed* seeds, word* c,
             public_encryption_workspace<P, typename Where::space, Level>& work) {
    using basis = typename P::template basis_at<Level>;
    detail::check_capacity(messages, work.capacity());
    if (messages == 0) {
        return;
    }
    const auto count = static_cast<std::uint32_t>(messages);
    const auto draws_of = [&](std::size_t part, distribution kind, random::stream_domain domain) {
        return small_polynomials(kind, domain, part == 2 ? 1 : 0, seeds, messages, P::degree,
                                 work.small() + part * messages * P::degree);
    };
    const std::array<draw_group, 3> draws{draws_of(0, distribution::ternary, random::stream_domain::zero),
                                          draws_of(1, distribution::error, random::stream_domain::error),
                                          draws_of(2, distribution::error, random::stream_domain::error)};
    draw(where, std::span<const draw_group>(draws));

    word* const v = work.transformed();
    forward<basis, Schedule>(where, plan,
                             detail::load_public_parts<basis, Message>{message, work.small(), count},
                             store_words<basis>{v}, 3 * messages, v);
    apply_pointwise<basis>(where, pointwise::multiply_add{}, 2 * messages, c, words_of_poly<basis>,
                           view_of(key.halves(), count), view_of<basis>(v, 1, count),
                           view_of<basis>(v + messages * words_of_poly<basis>));
}

}  // namespace tensafe::device
