#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/shortest_text.hpp>
#include <tensafe/rns/poly.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/residues.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// The first 12 bytes of bodies that hold polynomials: level and scale, or level and zeros.

namespace tensafe::wire::detail {

inline constexpr std::size_t shape_bytes = 12;

/// @throws format_error unless the level is the expected one
inline void read_level(byte_reader& from, int wanted) {
    if (const auto got = from.number<std::uint32_t>(); got != static_cast<std::uint32_t>(wanted)) {
        throw format_error(std::string(from.what()) + ": level: got " + std::to_string(got) + ", expected " +
                           std::to_string(wanted));
    }
}

/// @throws format_error unless the bytes in the place of a scale are 0
inline void read_reserved(byte_reader& from) {
    if (const auto got = from.number<std::uint64_t>(); got != 0) {
        throw format_error(std::string(from.what()) + ": bytes 4 to 11 of its body: got " +
                           std::to_string(got) + ", expected 0");
    }
}

/// @throws Error unless the scale is one
template <class Error>
void check_scale(double scale, std::string_view what) {
    if (!(std::isfinite(scale) && scale > 0)) {
        throw Error(std::string(what) + ": scale: got " + tensafe::detail::shortest_text(scale) +
                    ", expected a finite number above 0");
    }
}

/// @throws Error if p is zero modulo one of its primes
template <class Error, class Basis>
void check_not_zero(const rns::poly<Basis, rns::evaluation_form>& p, std::string_view which,
                    std::string_view what) {
    if (const int limb = first_zero_limb(p); limb >= 0) {
        throw Error(std::string(what) + ": " + std::string(which) + ", limb " + std::to_string(limb) +
                    ": every residue is 0, expected random ones");
    }
}

}  // namespace tensafe::wire::detail
