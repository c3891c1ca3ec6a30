#pragma once

#include <tensafe/core/built_once.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/encoding/slot_stages.hpp>
#include <tensafe/encoding/slot_tables.hpp>
#include <tensafe/memory/wipe.hpp>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <span>
#include <string>

namespace tensafe::encoding {

/// The canonical embedding of R[X]/(X^N + 1), in double precision, both ways: with zeta = exp(i pi / N), slot
/// j (0 <= j < N/2) of a polynomial m is m(zeta^(5^j mod 2N)). N real coefficients and N/2 complex slots
/// determine each other.
///
/// Error, Euclidean norm relative to the exact result, u = 2^-53: at most (2.8 log2(N) + 2) u for N >= 64 and
/// (N + 2) sqrt(N) u below (docs/design/encoding.md); random inputs show 0.5 to 3 u. Overflow, infinities and
/// NaN spread as in any sum. All back-ends give the same bits.
///
/// Cost: 2.1 N log2(N) floating-point operations each way, no allocation; the tables take 8 N bytes. No
/// branch and no index depends on a value; the one copy kept on the stack is wiped. Immutable; thread-safe. A
/// moved-from transform may only be assigned to or destroyed.
///
/// The decimation of Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier series"
/// (1965), applied to the points zeta^(5^j) themselves.
class slot_transform {
    friend const slot_transform& shared_slot_transform(int log_n);

  public:
    static constexpr int min_log_n = 1;
    static constexpr int max_log_n = 17;

    /// Builds the tables for N = 2^log_n.
    /// @throws parameter_error unless 1 <= log_n <= 17
    explicit slot_transform(int log_n) : tables_(checked(log_n) - 1) {}

    /// N, the number of coefficients.
    std::size_t degree() const noexcept { return tables_.degree(); }
    /// N/2, the number of slots.
    std::size_t slots() const noexcept { return tables_.slots(); }

    /// Evaluates: slots[j] = sum over k of coefficients[k] * zeta^(5^j k).
    /// @pre N coefficients, natural order; N/2 slots, natural order of powers of 5; they do not overlap
    /// @throws shape_error if a size is not N or N/2; nothing is written then
    void to_slots(std::span<const double> coefficients, std::span<std::complex<double>> slots) const {
        check_sizes("slot_transform::to_slots", coefficients.size(), slots.size());
        // The standard lets an array of std::complex be read and written as pairs of reals.
        double* const work = reinterpret_cast<double*>(slots.data());
        if (tables_.is_direct()) {
            detail::evaluate_directly(tables_, coefficients.data(), work);
            return;
        }
        detail::on_target_for(tables_, [&](auto target) {
            detail::to_slots<decltype(target)>(tables_, coefficients.data(), work);
        });
    }

    /// Interpolates the one real polynomial of degree below N with the given slots: coefficients[k] = 2/N *
    /// Re(sum over j of slots[j] * zeta^(-5^j k)).
    /// @pre N/2 slots, natural order of powers of 5; N coefficients, natural order; they do not overlap
    /// @throws shape_error if a size is not N or N/2; nothing is written then
    void to_coefficients(std::span<const std::complex<double>> slots, std::span<double> coefficients) const {
        check_sizes("slot_transform::to_coefficients", coefficients.size(), slots.size());
        interpolate(reinterpret_cast<const double*>(slots.data()), coefficients.data());
    }

    /// Interpolates like to_coefficients, in place.
    /// @param values N values: on entry N/2 slots, real and imaginary part in turn; on return N coefficients
    /// @throws shape_error if there are not N of them; nothing is written then
    void to_coefficients_in_place(std::span<double> values) const {
        check_sizes("slot_transform::to_coefficients_in_place", values.size(), tables_.slots());
        interpolate(values.data(), values.data());
    }

  private:
    static int checked(int log_n) {
        if (log_n < min_log_n || log_n > max_log_n) {
            throw parameter_error("slot_transform: log_n: got " + std::to_string(log_n) + ", expected " +
                                  std::to_string(min_log_n) + " to " + std::to_string(max_log_n));
        }
        return log_n;
    }

    void check_sizes(const char* where, std::size_t coefficients, std::size_t slots) const {
        if (coefficients != degree()) {
            throw shape_error(std::string(where) + ": coefficients: got " + std::to_string(coefficients) +
                              ", expected " + std::to_string(degree()));
        }
        if (slots != tables_.slots()) {
            throw shape_error(std::string(where) + ": slots: got " + std::to_string(slots) + ", expected " +
                              std::to_string(tables_.slots()));
        }
    }

    /// Interpolates `slots`, which may be `work` itself.
    void interpolate(const double* slots, double* work) const {
        if (tables_.is_direct()) {
            std::array<double, 2 * detail::slot_tables::direct_slots> copy;
            const memory::wipe_guard guard(copy);
            // The smaller of the two, so that compilers see that it fits.
            std::copy_n(slots, std::min(degree(), copy.size()), copy.begin());
            detail::interpolate_directly(tables_, copy.data(), work);
            return;
        }
        detail::on_target_for(
            tables_, [&](auto target) { detail::to_coefficients<decltype(target)>(tables_, slots, work); });
    }

    detail::slot_tables tables_;
};

/// The transform for N = 2^log_n that the whole process shares, built on its first use. Thread-safe.
/// @throws parameter_error unless 1 <= log_n <= 17
inline const slot_transform& shared_slot_transform(int log_n) {
    static std::array<built_once<slot_transform>, slot_transform::max_log_n + 1> transforms;
    return transforms[static_cast<std::size_t>(slot_transform::checked(log_n))].get(
        [log_n] { return slot_transform(log_n); });
}

}  // namespace tensafe::encoding
