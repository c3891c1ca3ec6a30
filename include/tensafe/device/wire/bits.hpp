#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/ntt/plan.hpp>
#include <tensafe/memory/bits.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tensafe::device {

namespace detail {

/// Where limbs stand in the bytes of a polynomial: one after the other, bit_width(q) bits for each residue.
template <class Basis>
struct residue_places {
    template <int I>
    static constexpr std::uint32_t bits =
        static_cast<std::uint32_t>(std::bit_width(Basis::template prime<I>));

    /// Of limb I; of all limbs for I = limbs.
    template <int I>
    static constexpr std::size_t offset = [] {
        std::size_t bytes = 0;
        for (int i = 0; i < I; ++i) {
            bytes += memory::packed_bytes(
                Basis::degree, static_cast<int>(std::bit_width(Basis::primes[static_cast<std::size_t>(i)])));
        }
        return bytes;
    }();

    /// Residues of one thread block: two for each. Their packed bytes are whole words.
    static constexpr int threads = 256;
    static constexpr std::uint32_t at_once = 2 * threads;
    static constexpr std::uint32_t blocks = static_cast<std::uint32_t>(Basis::degree / at_once);
    static_assert(Basis::degree % at_once == 0, "wire: blocks pack polynomials of degree 512 and more");
};

template <class Basis>
struct pack_kernel {
    using places = residue_places<Basis>;
    static constexpr int threads = places::threads;
    struct shared_type {
        arith::word values[places::at_once];
    };

    const arith::word* words;
    std::uint8_t* bytes;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            const std::uint32_t polynomial = ctx.block().x / places::blocks;
            const std::uint32_t block = ctx.block().x % places::blocks;
            constexpr std::uint32_t bits = places::template bits<I>;
            constexpr std::size_t offset = places::template offset<I>;
            constexpr std::size_t stride = places::template offset<Basis::limbs>;
            auto& values = ctx.shared().values;
            ctx.each([&](int t) {
                const std::size_t limb = std::size_t{polynomial} * static_cast<std::size_t>(Basis::limbs) +
                                         static_cast<std::size_t>(I);
                const arith::word* const from =
                    words + limb * Basis::degree + block * places::at_once + 2 * static_cast<std::size_t>(t);
                store_pair(values + 2 * t, load_pair(from));
            });
            ctx.last([&](int t) {
                auto* const to = reinterpret_cast<arith::word*>(bytes + polynomial * stride + offset) +
                                 std::size_t{block} * (places::at_once / 64 * bits);
                for (std::uint32_t w = static_cast<std::uint32_t>(t); w < places::at_once / 64 * bits;
                     w += threads) {
                    std::uint32_t k = 64 * w / bits;
                    arith::word word = values[k] >> (64 * w - k * bits);
                    for (std::uint32_t filled = (k + 1) * bits - 64 * w; filled < 64; filled += bits) {
                        word |= values[++k] << filled;
                    }
                    to[w] = word;
                }
            });
        });
    }
};

template <class Basis>
struct unpack_kernel {
    using places = residue_places<Basis>;
    static constexpr int threads = places::threads;
    struct shared_type {
        arith::word packed[places::at_once + 1];
    };

    const std::uint8_t* bytes;
    arith::word* words;
    std::uint32_t* status;
    std::uint32_t per_status;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            const std::uint32_t polynomial = ctx.block().x / places::blocks;
            const std::uint32_t block = ctx.block().x % places::blocks;
            constexpr arith::word q = Basis::template prime<I>;
            constexpr std::uint32_t bits = places::template bits<I>;
            constexpr std::size_t offset = places::template offset<I>;
            constexpr std::size_t stride = places::template offset<Basis::limbs>;
            auto& packed = ctx.shared().packed;
            ctx.each([&](int t) {
                const auto* const from =
                    reinterpret_cast<const arith::word*>(bytes + polynomial * stride + offset) +
                    std::size_t{block} * (places::at_once / 64 * bits);
                for (std::uint32_t w = static_cast<std::uint32_t>(t); w < places::at_once / 64 * bits;
                     w += threads) {
                    packed[w] = from[w];
                }
            });
            ctx.last([&](int t) {
                const std::uint32_t k = 2 * static_cast<std::uint32_t>(t);
                const word_pair pair{value<bits>(packed, k), value<bits>(packed, k + 1)};
                const std::size_t limb = std::size_t{polynomial} * static_cast<std::size_t>(Basis::limbs) +
                                         static_cast<std::size_t>(I);
                store_pair(words + limb * Basis::degree + block * places::at_once + k, pair);
                if (pair.first >= q || pair.second >= q) {  // what came from outside is public
                    ctx.atomic_or(status + polynomial / per_status, std::uint32_t{1} << I);
                }
            });
        });
    }

  private:
    template <std::uint32_t Bits>
    TENSAFE_HOST_DEVICE static arith::word value(const arith::word (&packed)[places::at_once + 1],
                                                 std::uint32_t k) {
        const std::uint32_t word = k * Bits / 64;
        const std::uint32_t shift = k * Bits % 64;
        arith::word joined = packed[word] >> shift;
        if (shift + Bits > 64) {
            joined |= packed[word + 1] << (64 - shift);
        }
        return joined & (~arith::word{0} >> (64 - Bits));
    }
};

}  // namespace detail

/// Bytes of a polynomial whose limbs are packed by pack_bits, bit_width(q) bits for each residue, limb after
/// limb: an input of lora::request.
template <class Basis>
inline constexpr std::size_t residue_bytes = detail::residue_places<Basis>::template offset<Basis::limbs>;

/// Packs a stack of polynomials [polynomial][limb][N] in one launch: residue_bytes<Basis> bytes for each, one
/// polynomial after the other, the same as memory::pack_bits limb by limb. 8 bytes read and bit_width(q) / 8
/// written for each residue, all of them in whole vectors.
/// @param bytes  16-byte aligned, as `words`
/// @pre  words below 2^bit_width(q);  N is a multiple of 512
template <class Basis, class Where>
void pack(const Where& where, const arith::word* words, std::size_t polynomials, std::uint8_t* bytes) {
    if (polynomials == 0) {
        return;
    }
    using places = detail::residue_places<Basis>;
    where.launch(detail::pack_kernel<Basis>{words, bytes},
                 grid_shape{static_cast<std::uint32_t>(polynomials) * places::blocks,
                            static_cast<std::uint32_t>(Basis::limbs)});
}

/// The way back, of bytes from outside. Residues that are not below their prime are written as they are, and
/// reported: bit I of status[polynomial / per_status] is set if limb I has one. The caller zeroes the status
/// words before and refuses the bytes (format_error) if one is not zero after.
/// @param bytes       16-byte aligned, as `words`
/// @param per_status  polynomials that share a status word, those of one request
/// @throws shape_error if per_status is 0
template <class Basis, class Where>
void unpack(const Where& where, const std::uint8_t* bytes, std::size_t polynomials, arith::word* words,
            std::uint32_t* status, std::uint32_t per_status) {
    static_assert(Basis::limbs <= 32, "device::unpack: a status word has a bit for each of 32 limbs");
    detail::throw_if<shape_error>(
        per_status == 0, "device::unpack: got 0 polynomials that share a status word, expected at least 1");
    if (polynomials == 0) {
        return;
    }
    using places = detail::residue_places<Basis>;
    where.launch(detail::unpack_kernel<Basis>{bytes, words, status, per_status},
                 grid_shape{static_cast<std::uint32_t>(polynomials) * places::blocks,
                            static_cast<std::uint32_t>(Basis::limbs)});
}

}  // namespace tensafe::device
