#pragma once

#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/lora/messages.hpp>
#include <tensafe/lora/packing/budget.hpp>
#include <tensafe/lora/packing/messages.hpp>

#include <cstddef>
#include <cstdint>

namespace tensafe::device {

namespace detail {

/// Decrypts one output of one token in each thread block: a few inner products with the key's window at a
/// time.
template <class Basis>
struct decrypt_replies_kernel {
    static constexpr int threads = 256;
    static constexpr int at_once = 8;  // inner products
    static constexpr std::uint32_t most = 64;
    static constexpr auto degree = static_cast<std::uint32_t>(Basis::degree);
    struct alignas(16) four {
        std::uint32_t x[4];
    };
    struct shared_type {
        four c1[degree / 4];
        std::uint32_t partial[at_once][threads];
        std::uint32_t rows[at_once][threads / 32];
        std::uint32_t any[threads];  // bits that a thread has seen in c1
        std::uint32_t products[most];
    };

    const std::uint8_t* replies;
    std::size_t stride;
    const output_place* places;
    const std::int8_t* windows;      // 2N for each client
    const std::uint32_t* client_of;  // of each token
    double* values;
    std::uint32_t* status;    // of each token, or none
    std::uint32_t malformed;  // the bit
    std::uint32_t outputs;
    std::uint32_t log_n;
    double modulus;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::uint32_t token = ctx.block().x / outputs;
        const std::uint32_t o = ctx.block().x - token * outputs;
        const std::uint32_t bits = places[o].bits;
        const std::uint32_t wanted = places[o].wanted;
        const std::uint8_t* const reply = replies + token * stride;
        auto& shared = ctx.shared();
        ctx.each([&](int t) {
            const auto* const packed = reinterpret_cast<const std::uint32_t*>(reply + places[o].c1_offset);
            std::uint32_t any = 0;
            for (std::uint32_t k = static_cast<std::uint32_t>(t); k < degree; k += threads) {
                const std::uint32_t at = k * bits / 32;
                const std::uint32_t shift = k * bits % 32;
                std::uint32_t value = packed[at] >> shift;
                if (shift + bits > 32) {
                    value |= packed[at + 1] << (32 - shift);
                }
                value &= ~std::uint32_t{0} >> (32 - bits);
                shared.c1[k / 4].x[k % 4] = value;
                any |= value;
            }
            shared.any[t] = any;
        });
        // Coefficient p of c1*s meets c1[j] with entry N + j - p of the window.
        const std::int8_t* const window = windows + std::size_t{client_of[token]} * (2 * degree) + degree;
        const std::uint32_t step = degree >> log_n;
        for (std::uint32_t first = 0; first < wanted; first += at_once) {
            const std::uint32_t count = wanted - first < at_once ? wanted - first : at_once;
            ctx.each([&](int t) {
                std::uint32_t sums[at_once] = {};
                for (std::uint32_t j = 4 * static_cast<std::uint32_t>(t); j < degree; j += 4 * threads) {
                    const four c = shared.c1[j / 4];
                    for (std::uint32_t k = 0; k < at_once; ++k) {
                        // A few too many are as good as a shorter loop, which would not stay in registers.
                        const std::uint32_t p = (first + (k < count ? k : 0)) * step;
                        const std::uint32_t s = *reinterpret_cast<const std::uint32_t*>(window + j - p);
                        for (int i = 0; i < 4; ++i) {
                            sums[k] += c.x[i] * signed_byte(s, i);
                        }
                    }
                }
                for (int k = 0; k < at_once; ++k) {
                    shared.partial[k][t] = sums[k];
                }
            });
            ctx.each([&](int t) {  // 32 threads for each product: 8 rows of 32
                std::uint32_t sum = 0;
                for (int i = 0; i < threads / 32; ++i) {
                    sum += shared.partial[t / 32][t % 32 + 32 * i];
                }
                shared.partial[t / 32][t % 32] = sum;
            });
            ctx.each([&](int t) {
                if (t < at_once * 8) {
                    std::uint32_t sum = 0;
                    for (int i = 0; i < 4; ++i) {
                        sum += shared.partial[t / 8][t % 8 + 8 * i];
                    }
                    shared.rows[t / 8][t % 8] = sum;
                }
            });
            ctx.each([&](int t) {
                if (static_cast<std::uint32_t>(t) < count) {
                    std::uint32_t sum = 0;
                    for (int i = 0; i < 8; ++i) {
                        sum += shared.rows[t][i];
                    }
                    shared.products[first + static_cast<std::uint32_t>(t)] = sum;
                }
            });
        }
        ctx.last([&](int t) {
            const auto k = static_cast<std::uint32_t>(t);
            const std::uint32_t n = std::uint32_t{1} << log_n;
            if (k < n) {
                double value = 0;
                if (k < wanted) {
                    const std::uint32_t c0 = unpack(reply + places[o].c0_offset, k, bits);
                    // The lowest bits as a signed number, in units of Q / 2^bits, which are exact.
                    const auto centred = static_cast<std::int64_t>(
                        static_cast<std::int32_t>((c0 + shared.products[k]) << (32 - bits)) >> (32 - bits));
                    const std::uint32_t noise_bits = places[o].noise_bits;
                    const std::int64_t half = (std::int64_t{1} << noise_bits) / 2;
                    value = static_cast<double>((centred + half) >> noise_bits) *
                            (modulus * power_of_two_minus(bits - noise_bits));
                }
                values[std::size_t{ctx.block().x} * n + k] = value;
            }
            // Replies are public.
            const std::uint32_t last_bits = wanted * bits % 8;
            if (t == 0 && status != nullptr &&
                (is_zero(shared.any) ||
                 (last_bits != 0 && reply[places[o].c0_offset + wanted * bits / 8] >> last_bits != 0))) {
                ctx.atomic_or(status + token, malformed);
            }
        });
    }

  private:
    /// Whether c1 is 0, which is no encryption: a server erases replies that must not leave it.
    TENSAFE_HOST_DEVICE static bool is_zero(const std::uint32_t (&any)[threads]) {
        std::uint32_t all = 0;
        for (int t = 0; t < threads; ++t) {
            all |= any[t];
        }
        return all == 0;
    }
    TENSAFE_HOST_DEVICE static std::uint32_t signed_byte(std::uint32_t bytes, int i) {
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(bytes << (24 - 8 * i)) >> 24);
    }
    /// Unpacks value k byte by byte: no more than the value's own bytes are there for certain.
    TENSAFE_HOST_DEVICE static std::uint32_t unpack(const std::uint8_t* packed, std::uint32_t k,
                                                    std::uint32_t bits) {
        std::uint64_t joined = 0;
        const std::uint32_t first = k * bits / 8;
        const std::uint32_t end = ((k + 1) * bits + 7) / 8;
        for (std::uint32_t i = first; i < end; ++i) {
            joined |= std::uint64_t{packed[i]} << (8 * (i - first));
        }
        return static_cast<std::uint32_t>(joined >> (k * bits % 8)) & (~std::uint32_t{0} >> (32 - bits));
    }
    TENSAFE_HOST_DEVICE static double power_of_two_minus(std::uint32_t bits) {
        return __builtin_bit_cast(double, std::uint64_t{1023 - bits} << 52);
    }
};

}  // namespace detail

/// Decrypts protected replies to several tokens, the client's side, in one launch: for each token and output
/// what lora::decrypt_output gives, bit for bit: 2^subring_log_n values, those beyond `wanted` 0. As
/// additions of c1 selected by a ternary key: no transform. No branch or index depends on key or result.
/// @param replies    one for each token, `stride` bytes apart, 16-byte aligned
/// @param places     of each output; wanted <= 2^subring_log_n, bits in [1, 32]
/// @param windows    2N bytes for each client, as lora::toeplitz_row lays them out; 4-byte aligned
/// @param client_of  of each token
/// @param values     [token][output][2^subring_log_n], secret; wiped by the caller
/// @param status     a word for each token, in which the bits `malformed` are set if unused bits of its reply
///                   are, or its c1 is 0 (format_error on the host); or null
/// @throws parameter_error unless subring_log_n is in [0, 6]; shape_error if `stride` is no multiple of 16
template <ckks::parameter_set P, class Where>
void decrypt_replies(const Where& where, const std::uint8_t* replies, std::size_t stride,
                     const output_place* places, std::uint32_t outputs, std::size_t tokens,
                     const std::int8_t* windows, const std::uint32_t* client_of, int subring_log_n,
                     double* values, std::uint32_t* status = nullptr, std::uint32_t malformed = 1) {
    using basis = typename lora::traced_product<P>::basis;
    using kernel = detail::decrypt_replies_kernel<basis>;
    require<parameter_error>(
        subring_log_n >= 0 && subring_log_n <= 6,
        {"device::decrypt_replies: subring_log_n: got ", subring_log_n, ", expected 0 to 6"});
    require<shape_error>(stride % 16 == 0, {"device::decrypt_replies: got replies of ", stride,
                                            " bytes, expected a multiple of 16"});
    if (tokens == 0 || outputs == 0) {
        return;
    }
    where.launch(kernel{replies, stride, places, windows, client_of, values, status, malformed, outputs,
                        static_cast<std::uint32_t>(subring_log_n), lora::detail::modulus_of_basis<basis>()},
                 grid_shape{static_cast<std::uint32_t>(tokens) * outputs});
}

}  // namespace tensafe::device
