#pragma once

#include <tensafe/ckks/x86/toeplitz_row_avx2.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tensafe::ckks {

/// A ternary polynomial s, laid out so that single coefficients of products with it are inner products.
/// Secret: wiped on release, and neither branch nor index depends on it. Move-only; thread-safe for reads.
class toeplitz_row {
  public:
    /// @param s  N coefficients in {-1, 0, 1}
    /// @throws shape_error unless N is a positive multiple of 32
    explicit toeplitz_row(std::span<const std::int8_t> s)
        : window_(2 * s.size(), memory::uninitialized), degree_(s.size()) {
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

    /// All 2N entries; a copy of them is as secret as s.
    std::span<const std::int8_t> entries() const noexcept {
        return window_.span();
    }

  private:
    memory::secret_buffer<std::int8_t> window_;
    std::size_t degree_;
};

}  // namespace tensafe::ckks
