#pragma once

#include <tensafe/arith/word.hpp>

#include <concepts>
#include <span>

namespace tensafe::lora {

// Packed matrices on their way out of a server and back into one: a sequence of 8-byte words, which stand in
// the order in which the server keeps them.

/// Tag: made from what `store()` of an object of the same type wrote, instead of being packed.
struct from_stored_t {
    explicit from_stored_t() = default;
};
inline constexpr from_stored_t from_stored{};

/// Takes the next words of a stored form. It may throw.
template <class F>
concept word_sink = std::invocable<F&, std::span<const arith::word>>;

/// Fills the span with the next words of a stored form, or throws. Whoever calls it checks the words: they
/// come from outside.
template <class F>
concept word_source = std::invocable<F&, std::span<arith::word>>;

}  // namespace tensafe::lora
