#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/device/arith/signed_policies.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/ntt/order.hpp>

#include <bit>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensafe::device {

/// The source of a transform's entries: any type with this member gives entries k and k + 1, k even, of a
/// limb, each in [0, q). `polynomial` counts from 0 within the launch.
///
/// This one reads a stack of polynomials, [polynomial][limb][N]; 16-byte aligned.
template <class Basis>
struct load_words {
    const word* words;

    template <int I>
    TENSAFE_HD_INLINE word_pair pair(std::size_t polynomial, std::size_t k) const {
        return load_pair(words + (limb_of<Basis, I>(polynomial) << Basis::log_n) + k);
    }
};

/// The sink of a transform's results: any type with this member takes entries k and k + 1, k even, each in
/// [0, q). This one writes a stack of polynomials, which may be the one that the same transform reads.
template <class Basis>
struct store_words {
    word* words;

    template <int I>
    TENSAFE_HD_INLINE void pair(std::size_t polynomial, std::size_t k, word_pair values) const {
        store_pair(words + (limb_of<Basis, I>(polynomial) << Basis::log_n) + k, values);
    }
};

/// The last stages of a forward transform, whose factors lie as neighbouring threads read them.
inline constexpr int leaf_stages = 4;

/// The least log2 of the degree that transforms are for.
inline constexpr int min_ntt_log_n = 10;
inline constexpr int max_ntt_log_n = 17;

namespace detail {

/// The place of the factor of block `index` of stage `stage`: at 2^stage + index as in ntt::plan, but in the
/// last four stages the first factors of all blocks of sixteen entries, then their second ones, and so on;
/// each time of the even blocks, then of the odd ones, since a thread has one block or two neighbours.
template <int LogN>
TENSAFE_HD_INLINE constexpr std::size_t factor_position(int stage, std::size_t index) noexcept {
    constexpr int first_leaf = LogN - leaf_stages;
    if (stage < first_leaf) {
        return (std::size_t{1} << stage) + index;
    }
    const int depth = stage - first_leaf;
    const std::size_t node = (std::size_t{1} << depth) + (index & ((std::size_t{1} << depth) - 1));
    const std::size_t block = index >> depth;
    return (node << first_leaf) + ((block & 1) << (first_leaf - 1)) + (block >> 1);
}

/// The tables of a basis in one piece of memory. Limb after limb, in factors of the limb's arithmetic: N
/// forward ones, N inverse ones, and sixteen for the end of the inverse: 1/N, and inverse factors 1 to 15
/// over N.
template <class Basis>
struct plan_tables {
    static constexpr std::size_t scaled_factors = 16;

    template <int I>
    using policy = arithmetic<Basis::template prime<I>>;

    template <int I>
    static constexpr std::size_t words_of = (2 * Basis::degree + scaled_factors) *
                                            static_cast<std::size_t>(policy<I>::factor_words);

    /// The place where limb I starts; the size of all for I = limbs.
    template <int I>
    TENSAFE_HOST_DEVICE static constexpr std::size_t offset() noexcept {
        if constexpr (I == 0) {
            return 0;
        } else {
            return offset<I - 1>() + words_of<I - 1>;
        }
    }
};

}  // namespace detail

/// The tables as kernels see them. Trivially copyable; valid while the plan lives.
template <class Basis>
class plan_view {
    using tables = detail::plan_tables<Basis>;

  public:
    plan_view() noexcept = default;
    explicit plan_view(const word* words) noexcept : words_(words) {}

    /// The forward factors of limb I; detail::factor_position says which is where.
    template <int I>
    TENSAFE_HD_INLINE const word* forward() const noexcept {
        constexpr std::size_t at = tables::template offset<I>();
        return words_ + at;
    }
    template <int I>
    TENSAFE_HD_INLINE const word* inverse() const noexcept {
        constexpr std::size_t at = tables::template offset<I>() +
                                   Basis::degree * std::size_t{tables::template policy<I>::factor_words};
        return words_ + at;
    }
    /// The scaled factors of limb I: 1/N, then inverse factors 1 to 15 in the order of their blocks, over N.
    template <int I>
    TENSAFE_HD_INLINE const word* scaled_inverse() const noexcept {
        constexpr std::size_t at = tables::template offset<I>() +
                                   2 * Basis::degree * std::size_t{tables::template policy<I>::factor_words};
        return words_ + at;
    }

  private:
    const word* words_ = nullptr;
};

/// The tables of the negacyclic NTT for all limbs of a basis, where kernels run: natural order in,
/// bit-reversed order out, psi the smallest primitive 2N-th root of unity, as in ntt::plan.
///
/// Immutable; safe to share between threads. 16 N bytes for each limb below 2^50, 32 N for each wider one.
/// @tparam Basis  any type with log_n in [10, 17], degree, limbs and `prime<I>`, such as rns::basis
template <class Basis, class Space>
class plan {
    static_assert(Basis::log_n >= min_ntt_log_n && Basis::log_n <= max_ntt_log_n,
                  "device::plan: log_n must be in [10, 17]");
    using tables = detail::plan_tables<Basis>;

  public:
    using basis = Basis;
    using view_type = plan_view<Basis>;

    /// Builds the tables and returns when they have arrived.
    /// @throws parameter_error if a modulus is not a prime that is 1 modulo 2N; std::bad_alloc; device_error
    template <execution Where>
    explicit plan(const Where& where)
        : words_(tables::template offset<Basis::limbs>(), memory::uninitialized) {
        static_assert(std::is_same_v<Space, typename Where::space>,
                      "device::plan: the plan's memory is not where the kernels run");
        std::vector<word> words(words_.size());
        [&]<int... I>(std::integer_sequence<int, I...>) {
            (fill<I>(words.data() + tables::template offset<I>()), ...);
        }
        (std::make_integer_sequence<int, Basis::limbs>{});
        where.upload(std::span<const word>(words), words_.data());
        where.wait();
    }

    view_type view() const noexcept { return view_type(words_.data()); }
    /// All tables, in the memory of the device, which every transform reads, for a device::l2_window.
    const memory::buffer<word, Space>& words() const noexcept { return words_; }

  private:
    template <int I>
    static void fill(word* words) {
        using policy = typename tables::template policy<I>;
        constexpr word q = Basis::template prime<I>;
        constexpr auto size = static_cast<std::size_t>(policy::factor_words);
        word* const forward = words;
        word* const inverse = forward + Basis::degree * size;
        word* const scaled = inverse + Basis::degree * size;
        const word psi = arith::smallest_primitive_root(q, Basis::log_n);
        const word psi_inverse = arith::inverse_mod(psi, q);
        const word degree_inverse = arith::inverse_mod(Basis::degree, q);
        word power = 1;
        word inverse_power = 1;
        for (std::size_t i = 0; i < Basis::degree; ++i) {
            // Factor 2^stage + index of ntt::plan; number 0 is used by no stage.
            const std::size_t number = ntt::bit_reverse(i, Basis::log_n);
            std::size_t position = 0;
            if (number != 0) {
                const int stage = static_cast<int>(std::bit_width(number)) - 1;
                position = detail::factor_position<Basis::log_n>(stage, number - (std::size_t{1} << stage));
            }
            policy::prepare(power, forward + position * size);
            policy::prepare(inverse_power, inverse + position * size);
            if (number < tables::scaled_factors) {
                policy::prepare(arith::multiply_mod(inverse_power, degree_inverse, q),
                                scaled + number * size);
            }
            power = arith::multiply_mod(power, psi, q);
            inverse_power = arith::multiply_mod(inverse_power, psi_inverse, q);
        }
    }

    memory::buffer<word, Space> words_;
};

}  // namespace tensafe::device
