#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/version.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/column_batched.hpp>
#include <tensafe/lora/packing/protection.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>

#include <bit>
#include <cstdint>
#include <string>

namespace tensafe::lora {

/// The name of a packing in the identity of a stored form: one specialisation for each packing, and for no
/// two the same text.
template <class Packing>
struct packing_name;

template <int Rows>
struct packing_name<coefficient_tiles<Rows>> {
    static std::string text() { return "coefficient_tiles " + std::to_string(Rows); }
};
template <>
struct packing_name<column_batched> {
    static std::string text() { return "column_batched"; }
};
template <class Rows, class Replies>
struct packing_name<replicated_slots<Rows, Replies>> {
    static std::string text() {
        return "replicated_slots " + std::to_string(Rows::rows_per_slot) +
               (replicated_slots<Rows, Replies>::rescales ? " rescaled" : " unrescaled");
    }
};

/// A text that is the same for two server types only if they pack every matrix into the same words: version
/// of the library, degree and primes of the parameter set, packing, protection. Another release may choose
/// other integers for the same matrix, so the version counts. Between releases the number after "stored form"
/// does: tests/lora/stored_form_test.cpp asks to raise it when the words of tiles or columns change.
template <ckks::parameter_set P, class Packing, class Protection>
std::string stored_identity() {
    std::string text = "tensafe " + std::to_string(TENSAFE_VERSION_MAJOR) + "." +
                       std::to_string(TENSAFE_VERSION_MINOR) + "." + std::to_string(TENSAFE_VERSION_PATCH) +
                       ", stored form 1\nlog_n " + std::to_string(P::log_n) + ", primes";
    for (const arith::word q : P::basis::primes) {
        text += " " + std::to_string(q);
    }
    text += "\n" + packing_name<Packing>::text() + "\n";
    if constexpr (Protection::protects) {
        text += "protects_adapter_rows, ";
    } else {
        text += "reveals_adapter_rows, ";
    }
    if constexpr (Protection::range::can_wrap) {
        text += "calibrated " + std::to_string(Protection::range::factor);
    } else {
        text += "rigorous";
    }
    // Its bits: a decimal would be rounded.
    return text + ", precision " +
           std::to_string(std::bit_cast<std::uint64_t>(double{Protection::precision::relative_error})) + "\n";
}

}  // namespace tensafe::lora
