#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/simd/x86/target_avx2.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensafe::dp {

namespace detail {

// The discrete Gaussian with P(x) proportional to 2^(-x^2 / 64): deviation 6.79. Threshold i, from 1 on, is
// P(|X| >= i) * 2^126, rounded to nearest: its upper and its lower 63 bits, so that a subtraction's top bit
// says which operand was smaller. A magnitude is the number of thresholds above a uniform integer of 126
// bits. The tests compute all of them again.

/// The number of thresholds that are not 0.
inline constexpr std::size_t gaussian_thresholds = 89;
/// The number of thresholds whose upper part is not 0; they come first.
inline constexpr std::size_t gaussian_wide_thresholds = 62;

inline constexpr std::uint64_t gaussian_upper[gaussian_wide_thresholds] = {
    0x787c084edabbecbaU, 0x699d8c199b5203e2U, 0x5b38c082d31a480eU, 0x4d96308f73887adcU, 0x40f279909852d124U,
    0x357b460623028c3dU, 0x2b4dbad4bfb6c965U, 0x22766153218ccaeeU, 0x1af269a1fc48b7a8U, 0x14b1fb95bbf08bdaU,
    0x0f9b35fd0a4aaa6eU, 0x0b8d75e3f3ce92f9U, 0x086488243d01288bU, 0x05fb7b52e393d992U, 0x042ee1e00a8ce217U,
    0x02de6ef2911ff2c2U, 0x01edeffc6c777059U, 0x0145b685afc0f8aeU, 0x00d29028f97f3ad0U, 0x00856e8ece5190f0U,
    0x0052dfb2d2e4ba49U, 0x003271b20a30d98eU, 0x001e169ba76a4208U, 0x001195bf8ee991b1U, 0x000a11c7ddc44d9dU,
    0x0005a61b1cf5389eU, 0x00031ab8509c65adU, 0x0001abd1df4dbba5U, 0x0000e1966f60084aU, 0x00007481efc50bbcU,
    0x00003aeec169eaddU, 0x00001d31c8ff6c09U, 0x00000e29d99d2181U, 0x000006ba9b8281ccU, 0x00000321689ccfbeU,
    0x0000016d169e63ccU, 0x000000a2db2e7618U, 0x000000472192226eU, 0x0000001e6b655ce1U, 0x0000000cbcb259a4U,
    0x0000000538baa87fU, 0x000000021883a25fU, 0x00000000d2d23c32U, 0x00000000511a3910U, 0x000000001e8b5d14U,
    0x000000000b42f689U, 0x00000000041090beU, 0x00000000016faae3U, 0x00000000007f2bedU, 0x00000000002b0f32U,
    0x00000000000e459aU, 0x000000000004a167U, 0x0000000000017879U, 0x0000000000007509U, 0x000000000000239dU,
    0x0000000000000a9bU, 0x0000000000000317U, 0x00000000000000e1U, 0x000000000000003fU, 0x0000000000000011U,
    0x0000000000000004U, 0x0000000000000001U,
};

inline constexpr std::uint64_t gaussian_lower[gaussian_thresholds] = {
    0x1158a2392ec659beU, 0x02ed73e95425b1cfU, 0x09619773b265e2baU, 0x095a36d9d1ae6a75U, 0x066adc7cd5ea1e87U,
    0x495a5372c4601791U, 0x7c0c550bba3e625aU, 0x2a7c8cfa4298fe85U, 0x3bd52f33715f5843U, 0x131ba0e122d1a910U,
    0x2c74a1ad9dc0ce74U, 0x4f6ccd1c14a74010U, 0x4eb0f684d5b62d15U, 0x0ba1f7d699410234U, 0x4c707c47e5090852U,
    0x113dabddde35f521U, 0x3368c025040ec059U, 0x55cf57f000a536c1U, 0x0602f90c53973848U, 0x6da119368c0892ecU,
    0x7d955bcd181981bcU, 0x2aad1d288bd0b549U, 0x5312812bbdbc71dfU, 0x04c10e0f191f5680U, 0x61d266b1524e1cdaU,
    0x43e99ecd49924a28U, 0x68f64b4dafcfc1bbU, 0x1a8ea93c8e8d907aU, 0x4cce7a46e8bdd435U, 0x18067a0be3eece7aU,
    0x205e93dc7218477aU, 0x3786770615789239U, 0x244099b759eaefc6U, 0x2a0a9281c2c30275U, 0x3290141ecba59a05U,
    0x15bcf41ddf925defU, 0x686f33eee9ec8e32U, 0x275b9a0665a43da6U, 0x0fd5ead12daaa17dU, 0x65d7732e0e1a7e8eU,
    0x43cdd03f66bcb7bdU, 0x2dc2dcab09f58e96U, 0x7906af316035c1b4U, 0x114537e5bf3b2f83U, 0x5ad9e475b37dc60fU,
    0x7524a88f9b05d09dU, 0x4316b99a9e3fe263U, 0x49a9ca4527da418fU, 0x37558910ca0555d6U, 0x0827eb261b38a1bbU,
    0x715fb36a47458a02U, 0x4eacd8cc54394e08U, 0x6ed172171d389231U, 0x6baea2942ea1503cU, 0x3ee915652342e5ccU,
    0x62d094b4cba642e6U, 0x66f80212c203543eU, 0x7bc7ce4d82345fdaU, 0x0f6e4333241da305U, 0x21072e488393d611U,
    0x4f2baedae8befa0eU, 0x1ad9b06ef68553ceU, 0x27b353b8b4c7752fU, 0x09f65b4e35f3a37eU, 0x0272639d10af9039U,
    0x0096941668c2531eU, 0x00236db9b280953fU, 0x00082899cbc171a5U, 0x0001d6be4c53d6d0U, 0x000067d7db052cc7U,
    0x0000166b817a1269U, 0x000004bcce76d615U, 0x000000fad29e4373U, 0x00000032c4dcbb68U, 0x0000000a0eaff5dbU,
    0x00000001f32fc3aeU, 0x000000005eb8e3d2U, 0x00000000119749a7U, 0x0000000003327e10U, 0x0000000000919835U,
    0x00000000001958baU, 0x000000000004518cU, 0x000000000000b859U, 0x0000000000001e15U, 0x00000000000004ceU,
    0x00000000000000c0U, 0x000000000000001dU, 0x0000000000000004U, 0x0000000000000001U,
};

/// The number of coefficients computed together: word 8 w + j of their 256 is word w of coefficient j.
inline constexpr std::size_t gaussian_group = 8;
/// The number of narrow values that make one wide one; two words of the stream each.
inline constexpr std::size_t gaussian_leaves = 16;
inline constexpr std::size_t gaussian_group_words = 2 * gaussian_leaves * gaussian_group;

/// The four steps that each join two values x and y to a x + (a + 1) y. docs/differential-privacy.md
/// says why these: each sum stays a discrete Gaussian to 2^-89 of every probability, and no leaf carries much
/// of the result.
inline constexpr std::uint64_t gaussian_steps[4] = {2, 9, 128, 16384};

/// The factor that leaf `leaf` is multiplied by: bit s of its number chooses the factor of step s.
constexpr std::uint64_t gaussian_factor(std::size_t leaf) noexcept {
    std::uint64_t factor = 1;
    for (std::size_t step = 0; step < 4; ++step) {
        factor *= gaussian_steps[step] + (leaf >> step & 1);
    }
    return factor;
}

inline constexpr std::uint64_t gaussian_word_mask = (std::uint64_t{1} << 63) - 1;

/// Converts groups on vectors of `Bytes` bytes, in additions, subtractions and shifts alone: no branch and no
/// address depends on a value.
template <std::size_t Bytes>
struct gaussian_lanes {
    using words __attribute__((vector_size(Bytes))) = std::uint64_t;
    static constexpr std::size_t count = Bytes / sizeof(std::uint64_t);
    static constexpr std::size_t vectors = gaussian_group / count;

    /// Adds `factor` times the narrow value of two words each to `sum`, for the coefficients of a group.
    static TENSAFE_INLINE void add_leaf(const std::uint64_t* from, std::uint64_t factor,
                                        words* sum) noexcept {
        words upper[vectors];
        words lower[vectors];
        words sign[vectors];
        words magnitude[vectors];
        for (std::size_t v = 0; v < vectors; ++v) {
            std::memcpy(&upper[v], from + v * count, sizeof(words));
            std::memcpy(&lower[v], from + gaussian_group + v * count, sizeof(words));
            sign[v] = words{} - (upper[v] >> 63);
            upper[v] &= gaussian_word_mask;
            lower[v] &= gaussian_word_mask;
            magnitude[v] = words{};
        }
        for (std::size_t i = 0; i < gaussian_wide_thresholds; ++i) {
            const words high = words{} + gaussian_upper[i];
            const words low = words{} + gaussian_lower[i];
            for (std::size_t v = 0; v < vectors; ++v) {
                const words borrow = (lower[v] - low) >> 63;
                magnitude[v] += (upper[v] - high - borrow) >> 63;
            }
        }
        for (std::size_t v = 0; v < vectors; ++v) {
            // The other thresholds have no upper part: whatever has one is above them all.
            const words some = (upper[v] + gaussian_word_mask) >> 63;
            lower[v] |= (words{} - some) >> 1;
        }
        for (std::size_t i = gaussian_wide_thresholds; i < gaussian_thresholds; ++i) {
            const words low = words{} + gaussian_lower[i];
            for (std::size_t v = 0; v < vectors; ++v) {
                magnitude[v] += (lower[v] - low) >> 63;
            }
        }
        for (std::size_t v = 0; v < vectors; ++v) {
            sum[v] += ((magnitude[v] ^ sign[v]) - sign[v]) * factor;
        }
    }

    static TENSAFE_INLINE void convert(const std::uint64_t* from, std::int64_t* out) noexcept {
        words sum[vectors] = {};
        for (std::size_t leaf = 0; leaf < gaussian_leaves; ++leaf) {
            add_leaf(from + 2 * gaussian_group * leaf, gaussian_factor(leaf), sum);
        }
        std::memcpy(out, sum, sizeof sum);
    }
};

/// Turns the words of `groups` groups into eight coefficients each: the body of a kernel.
template <std::size_t Bytes>
TENSAFE_INLINE void convert_gaussian_groups(const std::uint64_t* words, std::size_t groups,
                                            std::int64_t* out) noexcept {
    for (std::size_t g = 0; g < groups; ++g) {
        gaussian_lanes<Bytes>::convert(words + g * gaussian_group_words, out + g * gaussian_group);
    }
}
inline void discrete_gaussian_groups(const std::uint64_t* words, std::size_t groups,
                                     std::int64_t* out) noexcept {
#if TENSAFE_X86_64
    if (exec::active_backend() != exec::backend::portable) {
        return simd::avx2::kernel<&convert_gaussian_groups<32>>(words, groups, out);
    }
#endif
    convert_gaussian_groups<16>(words, groups, out);
}

}  // namespace detail

/// The deviation of sample_discrete_gaussian, about 2^30.4, to the last digit of a double: the square root of
/// 32 / ln 2 * 13 * 181 * 33025 * 536903681.
inline constexpr double discrete_gaussian_deviation = 1387850947.0970407;

/// The largest value of sample_discrete_gaussian: 51 deviations, less than 2^37.
inline constexpr std::int64_t discrete_gaussian_largest = 89 * (5LL * 19 * 257 * 32769);

/// Fills `out` with independent values of the discrete Gaussian on the integers with the deviation
/// discrete_gaussian_deviation and mean 0: P(x) proportional to exp(-x^2 / (2 deviation^2)), up to a
/// statistical distance below 2^-88 each. Constant time; the buffer in between is wiped, `out` is the
/// caller's to wipe.
///
/// It joins sixteen narrow values from a table of 126 bits as in Peikert, "An efficient and parallel Gaussian
/// sampler for lattices" (2010) and Micciancio, Walter, "Gaussian sampling over the integers" (2017).
/// docs/differential-privacy.md has the proof, random-streams.md the bytes.
/// @pre  out.size() <= 2^30
/// Cost: 256 bytes of key stream per value.
TENSAFE_COMPILED_INLINE void sample_discrete_gaussian(const random::seed& key, random::stream_domain domain,
                                                      std::uint32_t lane,
                                                      std::span<std::int64_t> out) noexcept {
    TENSAFE_PRECONDITION(out.size() <= std::uint64_t{1} << 30);
    constexpr std::size_t group = detail::gaussian_group;
    random::detail::for_each_chunk<detail::gaussian_group_words, 4>(
        random::chacha20_stream(key, domain, lane), 0, (out.size() + group - 1) / group,
        [&](const std::uint64_t* words, std::size_t first, std::size_t count) {
            const auto to = out.subspan(first * group);
            const std::size_t whole = std::min(count, to.size() / group);
            detail::discrete_gaussian_groups(words, whole, to.data());
            if (whole < count) {
                std::int64_t last[group];
                const memory::wipe_guard guard(last);
                detail::discrete_gaussian_groups(words + whole * detail::gaussian_group_words, 1, last);
                std::copy_n(last, to.size() % group, to.data() + whole * group);
            }
        });
}

}  // namespace tensafe::dp
