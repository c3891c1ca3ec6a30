#pragma once

#include <concepts>

namespace tensafe::lora {

// What a reply gives away, as types: a template argument of server, reply and layout.

/// The range that no answer can pass: by Cauchy-Schwarz, whatever h is.
struct worst_case {
    static constexpr bool can_overflow = false;
};

/// The range of `Factor` times the root mean square of an answer, norm(row) * norm(h) / sqrt(d), which is
/// less than the worst-case one where d > Factor^2: replies are smaller. An answer that passes it wraps
/// around; checksum rows in the reply show that to the client, which then throws range_exceeded_error. They
/// show every wrap of one or two rows, and all but one in a million of more at once (docs/design/noise.md).
template <int Factor = 6>
struct average_case {
    static_assert(Factor >= 3 && Factor <= 64, "lora::average_case: the range factor must be in [3, 64]");
    static constexpr bool can_overflow = true;
    static constexpr int factor = Factor;
};

/// The precision of answers: the deviation of an answer's error, relative to the root mean square of an
/// answer, norm(row) * norm(h) / sqrt(d). The flood, the width of a reply and the integers that stand for A
/// follow from it.
struct standard_precision {
    static constexpr double relative_error = 1.2e-4;
};
/// The precision for the smallest messages.
struct reduced_precision {
    static constexpr double relative_error = 2.7e-4;
};

/// A precision of about `Bits` bits of an answer and no more: what the flood adds is a deviation of 2^-Bits,
/// half of it if the next whole width is too wide. The server adds it, so a client that cheats cannot leave
/// it out, and draws it anew for each answer: only asking again averages it, and each time counts against a
/// query limit. What that costs a model and what it takes from a thief: docs/security.md. An average-case
/// range of factor 6 takes 7 bits and more: its checksum rows could not tell a wider flood from an overflow.
template <int Bits>
struct answer_bits {
    static_assert(Bits >= 2 && Bits <= 12, "lora::answer_bits: the bits of an answer must be in [2, 12]");
    static constexpr double relative_error = 1.0 / (1 << Bits);
};

/// Replies that show their answers and nothing else of A: hidden under a fresh encryption of zero, flooded,
/// switched to a small modulus, without the coefficients that carry no answer. docs/security.md says against
/// whom and how well.
template <class Range = worst_case, class Precision = standard_precision>
struct protects_adapter_rows {
    static constexpr bool protects = true;
    using range = Range;
    using precision = Precision;
};

/// Replies from which whoever decrypts them, knowing h, can compute A; even the ciphertexts alone show it.
/// They exist to measure against other systems and for adapters that are no secret.
struct reveals_adapter_rows {
    static constexpr bool protects = false;
    using range = worst_case;
    using precision = standard_precision;
};

/// A kind of protection: protects_adapter_rows or reveals_adapter_rows.
template <class T>
concept reply_protection = requires {
    typename T::range;
    typename T::precision;
    { T::protects } -> std::convertible_to<bool>;
};

}  // namespace tensafe::lora
