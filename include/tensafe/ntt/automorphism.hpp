#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/ntt/order.hpp>
#include <tensafe/simd/dispatch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tensafe::ntt {

/// The automorphism X -> X^g of Z[X] / (X^N + 1), g odd, on values as a forward transform leaves them: it
/// moves them and changes none. Where entry i belongs to the root psi^(2 br(i) + 1), entry i of the result is
/// entry br(g br(i) + (g - 1) / 2 mod N); aligned blocks of eight come from such blocks.
///
/// N/8 numbers of four bytes. Immutable; thread-safe.
class automorphism {
  public:
    static constexpr std::size_t block_size = 8;

    /// @param log_n     N = 2^log_n, log_n in [3, 17]
    /// @param exponent  g, odd and below 2N
    /// @throws parameter_error for others
    automorphism(int log_n, arith::word exponent) : exponent_(exponent) {
        require<parameter_error>(log_n >= 3 && log_n <= 17,
                                 {"automorphism: log_n: got ", log_n, ", expected 3 to 17"});
        require<parameter_error>(
            exponent % 2 == 1 && exponent >> (log_n + 1) == 0,
            {"automorphism: got the exponent ", exponent, ", expected an odd one below 2N"});
        const int log_blocks = log_n - 3;
        const arith::word degree = arith::word{1} << log_n;
        blocks_.resize(std::size_t{1} << log_blocks);
        for (std::size_t block = 0; block < blocks_.size(); ++block) {
            const arith::word x =
                (exponent * bit_reverse(block, log_blocks) + (exponent - 1) / 2) & (degree - 1);
            const std::size_t from = bit_reverse(x & (blocks_.size() - 1), log_blocks);
            blocks_[block] = static_cast<std::uint32_t>(from * block_size + (x >> log_blocks));
        }
        for (std::size_t turn = 0; turn < block_size; ++turn) {
            for (std::size_t lane = 0; lane < block_size; ++lane) {
                orders_[turn][lane] = bit_reverse((exponent * bit_reverse(lane, 3) + turn) % block_size, 3);
            }
        }
    }

    /// The exponent g.
    arith::word exponent() const noexcept { return exponent_; }

    /// Writes the N values of a limb in their new order.
    /// @param stride  how many words after the beginning of a block of eight the next one goes
    /// @pre  `from` and `to` do not overlap
    void apply(const arith::word* from, arith::word* to, std::size_t stride = block_size) const noexcept {
        simd::on_active_target([&](auto target) {
            target.template kernel<&automorphism::permute<decltype(target)>>(
                blocks_.data(), orders_.data(), from, to, blocks_.size(), stride);
        });
    }

  private:
    using order = std::array<arith::word, block_size>;

    template <class Target>
    static TENSAFE_INLINE void permute(const std::uint32_t* blocks, const order* orders,
                                       const arith::word* from, arith::word* to, std::size_t count,
                                       std::size_t stride) noexcept {
        using words = typename Target::template vector<arith::word>;
        for (std::size_t k = 0; k < count; ++k) {
            const arith::word* const block = from + (blocks[k] & ~std::uint32_t{block_size - 1});
            const order& lanes = orders[blocks[k] % block_size];
            arith::word* const out = to + k * stride;
            if constexpr (words::width == block_size) {
                Target::permute(words::load(block), words::load(lanes.data())).store(out);
            } else {
                for (std::size_t lane = 0; lane < block_size; ++lane) {
                    out[lane] = block[lanes[lane]];
                }
            }
        }
    }

    arith::word exponent_;
    std::vector<std::uint32_t> blocks_;  ///< the first entry of the block to take, plus which order
    std::array<order, block_size> orders_{};
};

}  // namespace tensafe::ntt
