#pragma once

#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/ntt/x86/transform_avx2.hpp>
#include <tensafe/ntt/x86/transform_avx512.hpp>

#include <optional>
#include <type_traits>

namespace tensafe::ntt {

/// The tables of the SIMD back-ends that this machine runs, for one degree and a prime of `Bits` bits.
/// Immutable; safe to share between threads.
///
/// A back-end without tables for a degree or width leaves it to the next one: see `forward`.
template <int Bits>
class vector_tables {
  public:
    /// @pre  psi is a primitive 2N-th root of unity modulo the prime q, N = 2^log_n
    /// @throws parameter_error if TENSAFE_BACKEND names no back-end of this machine
    vector_tables([[maybe_unused]] arith::word q, [[maybe_unused]] int log_n,
                  [[maybe_unused]] arith::word psi) {
        exec::check_environment();
#if TENSAFE_X86_64
        if (exec::is_supported(exec::backend::avx2) && log_n >= avx2::min_log_n) {
            avx2_.emplace(q, log_n, psi);
        }
        if constexpr (Bits <= avx512::max_bits) {
            if (exec::is_supported(exec::backend::avx512) && log_n >= avx512::min_log_n) {
                avx512_.emplace(q, log_n, psi);
            }
        }
#endif
    }

    /// Transforms with the active back-end; false if it leaves that to portable code.
    bool forward([[maybe_unused]] arith::word* limb) const noexcept {
#if TENSAFE_X86_64
        const exec::backend active = exec::active_backend();
        if (active == exec::backend::avx512 && avx512_) {
            avx512::forward(*avx512_, limb);
            return true;
        }
        if (active != exec::backend::portable && avx2_) {
            avx2::forward(*avx2_, limb);
            return true;
        }
#endif
        return false;
    }
    bool inverse([[maybe_unused]] arith::word* limb) const noexcept {
#if TENSAFE_X86_64
        const exec::backend active = exec::active_backend();
        if (active == exec::backend::avx512 && avx512_) {
            avx512::inverse(*avx512_, limb);
            return true;
        }
        if (active != exec::backend::portable && avx2_) {
            avx2::inverse(*avx2_, limb);
            return true;
        }
#endif
        return false;
    }

  private:
#if TENSAFE_X86_64
    static constexpr bool is_narrow = Bits <= 50;

    std::optional<std::conditional_t<is_narrow, avx2::narrow_tables, avx2::wide_tables>> avx2_;
    std::optional<std::conditional_t<is_narrow, avx512::narrow_tables, avx512::wide_tables>> avx512_;
#endif
};

/// For policies that the SIMD back-ends do not know: their transforms are portable.
struct no_vector_tables {
    constexpr no_vector_tables(arith::word, int, arith::word) noexcept {}
    constexpr bool forward(arith::word*) const noexcept { return false; }
    constexpr bool inverse(arith::word*) const noexcept { return false; }
};

namespace detail {

template <class Policy>
struct vector_tables_of {
    using type = no_vector_tables;
};
template <class Modulus>
struct vector_tables_of<arith::shoup<Modulus>> {
    using type = vector_tables<Modulus::bits>;
};

}  // namespace detail

}  // namespace tensafe::ntt
