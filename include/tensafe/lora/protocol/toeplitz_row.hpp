#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/lora/protocol/x86/ternary_dot.hpp>
#include <tensafe/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace tensafe::lora {

/// A ternary polynomial s, laid out so that single coefficients of products with it are inner products.
/// Secret: wiped on release, and neither branch nor index depends on it. Move-only; thread-safe for reads.
class toeplitz_row {
  public:
    /// Lays out a ternary polynomial.
    /// @param s  N coefficients in {-1, 0, 1}
    /// @throws shape_error unless N is a positive multiple of 32
    explicit toeplitz_row(std::span<const std::int8_t> s)
        : window_(2 * s.size(), memory::uninitialized), signs_(2 * window_.size() / 8), degree_(s.size()) {
        if (degree_ == 0 || degree_ % 32 != 0) {
            throw shape_error("toeplitz_row: got " + std::to_string(degree_) +
                              " coefficients, expected a positive multiple of 32");
        }
        // Entry N + j - p meets c[j] in coefficient p: it is s[p - j], or -s[N + p - j] past the wrap-around.
        window_[0] = 0;
        for (std::size_t i = 0; i < degree_; ++i) {
            window_[degree_ - i] = s[i];
        }
        for (std::size_t i = 1; i < degree_; ++i) {
            window_[2 * degree_ - i] = static_cast<std::int8_t>(-s[i]);
        }
        for (std::size_t i = 0; i < window_.size(); ++i) {
            const auto entry = static_cast<std::uint8_t>(window_[i]);  // 0, 1 or 255
            signs_[i / 8] |= static_cast<std::uint8_t>((entry & 1 & ~(entry >> 7)) << i % 8);
            signs_[(window_.size() + i) / 8] |= static_cast<std::uint8_t>(entry >> 7 << i % 8);
        }
    }

    toeplitz_row(toeplitz_row&&) noexcept = default;
    toeplitz_row& operator=(toeplitz_row&&) noexcept = default;
    toeplitz_row(const toeplitz_row&) = delete;
    toeplitz_row& operator=(const toeplitz_row&) = delete;

    /// The coefficient of X^p of c*s modulo X^N + 1 and 2^32. N additions.
    /// @pre  c.size() == N, p < N
    std::uint32_t coefficient_of_product(std::span<const std::uint32_t> c, std::size_t p) const noexcept {
        TENSAFE_PRECONDITION(c.size() == degree_ && p < degree_);
        const std::int8_t* const t = window_.data() + (degree_ - p);
#if TENSAFE_X86_64
        if (exec::active_backend() != exec::backend::portable) {
            return avx2::ternary_dot(c.data(), t, degree_);
        }
#endif
        std::uint32_t sum = 0;
        for (std::size_t j = 0; j < degree_; ++j) {
            sum += c[j] * static_cast<std::uint32_t>(std::int32_t{t[j]});
        }
        return sum;
    }

    /// Computes the coefficients of X^(k * step) of c*s modulo X^N + 1 and 2^32: out[k] gets number k. Four
    /// at a time where step is a multiple of 8.
    /// @pre  c.size() == N, (out.size() - 1) * step < N
    void coefficients_of_product(std::span<const std::uint32_t> c, std::size_t step,
                                 std::span<std::uint64_t> out) const noexcept {
        TENSAFE_PRECONDITION(c.size() == degree_ && (out.empty() || (out.size() - 1) * step < degree_));
        std::size_t k = 0;
#if TENSAFE_X86_64
        if (exec::active_backend() == exec::backend::avx512 && step % 8 == 0) {
            const auto dots = [&](auto targets) {
                const std::uint8_t* const ones = signs_.data() + (degree_ - k * step) / 8;
                avx512::ternary_dots(c.data(), ones, ones + window_.size() / 8, step / 8, degree_, &out[k],
                                     targets);
                k += targets.size();
            };
            while (k + 4 <= out.size()) {
                dots(std::make_index_sequence<4>());
            }
            while (k < out.size()) {
                dots(std::make_index_sequence<1>());
            }
        }
#endif
        for (; k < out.size(); ++k) {
            out[k] = coefficient_of_product(c, k * step);
        }
    }

    /// All 2N entries of the layout; a copy of them is as secret as s.
    std::span<const std::int8_t> entries() const noexcept {
        return window_.span();
    }

  private:
    memory::secret_buffer<std::int8_t> window_;
    memory::secret_buffer<std::uint8_t> signs_;  ///< a bit for each entry that is 1, then for each that is -1
    std::size_t degree_;
};

}  // namespace tensafe::lora
