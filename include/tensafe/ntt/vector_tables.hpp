#pragma once

#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/built_once.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/ntt/order.hpp>
#include <tensafe/ntt/x86/transform_avx2.hpp>
#include <tensafe/ntt/x86/transform_avx512.hpp>

#include <type_traits>

namespace tensafe::ntt {

/// The tables of the SIMD back-ends for one degree and policy: none, and portable transforms, for policies
/// that they do not know.
template <class Policy>
class vector_tables {
  public:
    constexpr vector_tables(arith::word, int, arith::word) noexcept {}
    template <direction, class From>
    constexpr bool transform(const From*, arith::word*) const noexcept {
        return false;
    }
};

/// The tables for Shoup's arithmetic. Those of the active back-end are built with the object; those of
/// another one when it is first used after a switch. A back-end without tables for a degree or width leaves
/// it to the next one, as ntt::forward says. Thread-safe.
template <class Modulus>
class vector_tables<arith::shoup<Modulus>> {
    static constexpr int bits = Modulus::bits;

  public:
    /// @pre  psi is a primitive 2N-th root of unity modulo the prime q, N = 2^log_n
    /// @throws parameter_error if TENSAFE_BACKEND names no back-end of this machine
    vector_tables(arith::word q, int log_n, arith::word psi) : q_(q), log_n_(log_n), psi_(psi) {
        exec::check_environment();
#if TENSAFE_X86_64
        if (active_avx512() == nullptr) {
            active_avx2();
        }
#endif
    }

    /// Transforms the words at `limb`, which `from` points to as well, or small signed numbers forward, with
    /// the active back-end. Returns false, with nothing done, if that back-end leaves it to others.
    template <direction to, class From>
    bool transform([[maybe_unused]] const From* from, [[maybe_unused]] arith::word* limb) const noexcept {
#if TENSAFE_X86_64
        if constexpr (bits <= avx512::max_bits) {
            if (const auto* tables = active_avx512()) {
                avx512::transform<bits, to>(*tables, from, limb);
                return true;
            }
        }
        if constexpr (std::is_same_v<From, arith::word>) {
            if (const auto* tables = active_avx2()) {
                avx2::transform<bits, to>(*tables, limb);
                return true;
            }
        }
#endif
        return false;
    }

  private:
    arith::word q_;
    int log_n_;
    arith::word psi_;
#if TENSAFE_X86_64
    const avx2::tables_for<bits>* active_avx2() const {
        const bool used = exec::active_backend() != exec::backend::portable && log_n_ >= avx2::min_log_n;
        return used ? &avx2_.get([this] { return avx2::tables_for<bits>(q_, log_n_, psi_); }) : nullptr;
    }
    const avx512::tables_for<bits>* active_avx512() const {
        const bool used = exec::active_backend() == exec::backend::avx512 && log_n_ >= avx512::min_log_n &&
                          bits <= avx512::max_bits;
        return used ? &avx512_.get([this] { return avx512::tables_for<bits>(q_, log_n_, psi_); }) : nullptr;
    }

    built_once<avx2::tables_for<bits>> avx2_;
    built_once<avx512::tables_for<bits>> avx512_;
#endif
};

}  // namespace tensafe::ntt
