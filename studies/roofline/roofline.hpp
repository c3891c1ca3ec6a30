#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/real.hpp>

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

// How many tokens a second a language model gives when its adapters are encrypted: the throughput model of
// the published analyses (February 2026), as constant expressions. Times are milliseconds, sizes bytes, rates
// tokens a second. The published figures themselves are in published_throughput.hpp.
//
// Errors: parameter_error for a negative, infinite or missing number; in a constant expression it does not
// compile. Thread safety: no function has a state.
namespace roofline {

/// What the model needs to know of a GPU.
struct gpu {
    std::string_view name;
    double terabytes_per_second = 0;  ///< of its memory: 10^12 bytes a second
};

/// A language model as its makers describe it; 0 where a number does not apply.
struct language_model {
    std::string_view name;
    double total_parameters = 0;
    double active_parameters = 0;  ///< that one token reads: all of them unless it is a mixture of experts
    std::size_t d_model = 0;       ///< entries of a hidden state
    std::size_t layers = 0;
    std::size_t vocabulary = 0;
    std::size_t experts = 0;
    std::size_t active_experts = 0;  ///< those chosen for a token and those that every token uses
};

/// How weights are kept.
enum class precision { bf16, q4 };

/// Between the memories of client and GPU.
enum class interconnect { pcie4, pcie5, gh200, gb200, m4_max };

namespace detail {

/// `value`, if it is a number in [least, infinity).  @throws parameter_error naming `what`
constexpr double checked(double value, double least, const char* what) {
    if (!(value >= least && value <= std::numeric_limits<double>::max())) {
        throw tensafe::parameter_error(std::string("roofline: ") + what + ": got " + std::to_string(value) +
                                       ", expected a finite number of at least " + std::to_string(least));
    }
    return value;
}

/// The same, and not 0, by which the caller divides.
constexpr double divisor(double value, const char* what) {
    if (!(value > 0 && value <= std::numeric_limits<double>::max())) {
        throw tensafe::parameter_error(std::string("roofline: ") + what + ": got " + std::to_string(value) +
                                       ", expected a finite number above 0");
    }
    return value;
}

constexpr bool within(double value, double expected, double distance) noexcept {
    return value - expected <= distance && expected - value <= distance;
}

}  // namespace detail

/// 2 for BF16; half a byte for Q4, without the scales of its groups.
constexpr double bytes_per_parameter(precision kept_as) noexcept {
    return kept_as == precision::bf16 ? 2.0 : 0.5;
}

/// Bytes that one token reads: active parameters x bytes of each.
constexpr double weight_bytes(const language_model& model, precision kept_as) {
    return detail::divisor(model.active_parameters, "active parameters") * bytes_per_parameter(kept_as);
}

/// The least time of one token of one sequence: its weights are read once, and nothing else takes time (no
/// attention cache, no launches). The analyses write 2 x active x bytes / bandwidth, which is twice as long;
/// their tables follow this.
constexpr double decode_milliseconds(const language_model& model, precision kept_as, const gpu& device) {
    return weight_bytes(model, kept_as) /
           (detail::divisor(device.terabytes_per_second, "terabytes a second") * 1e9);
}

/// The time that `bytes` need on a wire, latency apart.
constexpr double transfer_milliseconds(double bytes, double gigabytes_per_second) {
    return detail::checked(bytes, 0, "bytes") /
           (detail::divisor(gigabytes_per_second, "gigabytes a second") * 1e6);
}

/// The published time of the "bulk copy" of a token. It is the wait for queued kernels rather than a copy:
/// transfer_milliseconds tells what the wire takes.
constexpr double published_transfer_milliseconds(interconnect between) {
    switch (between) {
        case interconnect::pcie4:
            return 28;
        case interconnect::pcie5:
            return 14;
        case interconnect::gh200:
            return 1.5;
        case interconnect::gb200:
            return 0.8;
        case interconnect::m4_max:
            return 0;
    }
    throw tensafe::parameter_error("roofline: interconnect: got number " +
                                   std::to_string(static_cast<int>(between)) +
                                   ", expected one that is named");
}

/// Rows of A in one plaintext of replicated slots, as published: slots / d_model.
/// (This library rounds it down to a power of two: lora::replicated_slots.)
constexpr std::size_t columns_per_ciphertext(std::size_t slots, std::size_t d_model) {
    if (d_model == 0 || slots < d_model) {
        throw tensafe::parameter_error("roofline: slots: got " + std::to_string(slots) + " for d_model = " +
                                       std::to_string(d_model) + ", expected d_model >= 1 and as many slots");
    }
    return slots / d_model;
}

/// Products of a token, as published: ceil(rank / columns_per_ciphertext).
constexpr std::size_t batches(std::size_t rank, std::size_t slots, std::size_t d_model) {
    const std::size_t columns = columns_per_ciphertext(slots, d_model);
    return rank / columns + (rank % columns != 0 ? 1 : 0);
}

/// The published phases of one encrypted adapter and token.
struct encrypted_phases {
    double encrypt = 0;
    double multiply = 0;  ///< of each batch
    double decrypt = 0;   ///< of each batch
    double transfer = 0;  ///< of all batches together
    double b = 0;         ///< the product with B, in the clear
    std::size_t batches = 0;

    /// T_HE: one after another.
    constexpr double total() const noexcept {
        return encrypt + static_cast<double>(batches) * (multiply + decrypt) + transfer + b;
    }
};

/// What this project measures of one encrypted token at one site: the phases of rank32_pipeline.
struct measured_phases {
    double encrypt = 0;   ///< client
    double expand = 0;    ///< server: the request's uniform half from its seed
    double multiply = 0;  ///< server
    double protect = 0;   ///< server; encryptions of zero included, unless a pool had them
    double pack = 0;      ///< server
    double decrypt = 0;   ///< client
    double b = 0;         ///< the product with B in the clear: client

    constexpr double client() const noexcept { return encrypt + decrypt + b; }
    constexpr double server() const noexcept { return expand + multiply + protect + pack; }
    constexpr double total() const noexcept { return client() + server(); }
};

/// One after another: latency() of a token, T_model + T_HE.
constexpr double latency(double model_milliseconds, double encrypted_milliseconds) {
    return detail::checked(model_milliseconds, 0, "milliseconds of the model") +
           detail::checked(encrypted_milliseconds, 0, "encrypted milliseconds");
}

/// 1000 / (T_model + T_HE): the published formula.
constexpr double serial_tokens_per_second(double model_milliseconds, double encrypted_milliseconds) {
    return 1000 / detail::divisor(latency(model_milliseconds, encrypted_milliseconds), "T_model + T_HE");
}

/// Something that every token passes: a GPU, some cores. Each worker has one token at a time.
struct stage {
    double milliseconds = 0;  ///< of one token, all its visits together
    std::size_t workers = 1;
};

/// The most tokens a second that `sequences` autoregressive sequences can get from `stages` together: none
/// starts a token before its last one is done, and no stage is faster than its workers. This is
/// min(sequences / (sum + waiting), workers / milliseconds of each stage), the asymptotic bounds of
/// operational analysis (Denning and Buzen, 1978). One sequence gets 1000 / sum: it cannot overlap with
/// itself. Two on two stages of one worker: 1000 / max.
/// A bound from above: uneven visits cost more. Sequences that a GPU reads its weights for together are
/// one token here, so batching can pass it.
/// @param waiting  milliseconds of a token in which nothing is busy: the network
constexpr double tokens_per_second(std::initializer_list<stage> stages, std::size_t sequences,
                                   double waiting = 0) {
    detail::divisor(static_cast<double>(sequences), "sequences");
    double alone = detail::checked(waiting, 0, "milliseconds of waiting");
    for (const stage& one : stages) {
        alone += detail::checked(one.milliseconds, 0, "milliseconds of a stage");
    }
    double most = static_cast<double>(sequences) * 1000 / detail::divisor(alone, "milliseconds of a token");
    for (const stage& one : stages) {
        const double workers = detail::divisor(static_cast<double>(one.workers), "workers of a stage");
        if (one.milliseconds > 0 && workers * 1000 / one.milliseconds < most) {
            most = workers * 1000 / one.milliseconds;
        }
    }
    return most;
}

/// A language model with encrypted adapters, client and server on cores beside its GPU.
struct deployment {
    double model_milliseconds = 0;  ///< the forward pass of a token
    measured_phases phases;         ///< of one site
    std::size_t sites = 1;          ///< that a token passes, all like the measured one, one after another
    std::size_t sequences = 1;      ///< served at a time
    std::size_t cores = 1;          ///< for client and server together; each takes a whole token
    double round_trip = 0;          ///< milliseconds of network for each site
};

/// What a deployment gives at best.
struct deployment_forecast {
    double encrypted_milliseconds = 0;  ///< a token's, all sites
    double latency = 0;                 ///< milliseconds between two tokens of one sequence
    double tokens_per_second = 0;       ///< of all sequences together
    bool bound_by_model = false;        ///< the GPU is busy all the time
};

/// tokens_per_second() of a deployment; the latency follows by Little's law. O(1).
constexpr deployment_forecast forecast(const deployment& what) {
    deployment_forecast result;
    result.encrypted_milliseconds = static_cast<double>(what.sites) * what.phases.total();
    const stage model{what.model_milliseconds, 1};
    const stage encrypted{result.encrypted_milliseconds, what.cores};
    result.tokens_per_second =
        tokens_per_second({model, encrypted}, what.sequences,
                          static_cast<double>(what.sites) *
                              detail::checked(what.round_trip, 0, "milliseconds of a round trip"));
    result.latency = static_cast<double>(what.sequences) * 1000 / result.tokens_per_second;
    result.bound_by_model = result.tokens_per_second * what.model_milliseconds >= 1000 * (1 - 1e-12);
    return result;
}

/// Launches of a transform of 2^log_n coefficients, a launch for each stage but for those that are fused into
/// one; `extra` for what stands beside stages, as the inverse's scaling.
constexpr int transform_launches(int log_n, int fused_stages, int extra = 0) {
    if (log_n < 0 || fused_stages < 0 || fused_stages > log_n || extra < 0) {
        throw tensafe::parameter_error("roofline: launches: got " + std::to_string(fused_stages) +
                                       " fused stages of " + std::to_string(log_n) + " and " +
                                       std::to_string(extra) +
                                       " more, expected none below 0 and at most all fused");
    }
    return log_n - fused_stages + (fused_stages > 0 ? 1 : 0) + extra;
}

/// Launches of a ciphertext times a plaintext as published: two transforms and two back for each limb, with
/// `pointwise` launches between.
constexpr int product_launches(int limbs, int forward, int inverse, int pointwise) noexcept {
    return limbs * (2 * forward + 2 * inverse + pointwise);
}

/// The largest relative error, in the Frobenius norm, of a truncation that keeps this part of the variance
/// (the sum of squared singular values).  @pre kept in [0, 1]
constexpr double relative_error_of_variance(double kept) {
    if (!(kept >= 0 && kept <= 1)) {
        throw tensafe::parameter_error("roofline: variance kept: got " + std::to_string(kept) +
                                       ", expected 0 to 1");
    }
    return tensafe::square_root(1 - kept);
}

// The formulas by numbers that were worked out by hand.
static_assert(detail::within(decode_milliseconds({"", 0, 3e9}, precision::bf16, {"", 3.0}), 2.0, 1e-12));
static_assert(detail::within(decode_milliseconds({"", 0, 3e9}, precision::q4, {"", 3.0}), 0.5, 1e-12));
static_assert(detail::within(serial_tokens_per_second(2.9, 9.3), 81.967, 1e-3));
static_assert(detail::within(tokens_per_second({{2.9}, {9.3}}, 1), 81.967, 1e-3));
static_assert(detail::within(tokens_per_second({{2.9}, {9.3}}, 2), 107.527, 1e-3));
static_assert(tokens_per_second({{2.9}, {9.3}}, 2) == tokens_per_second({{2.9}, {9.3}}, 100));
static_assert(batches(32, 16384, 2048) == 4 && batches(16, 16384, 2048) == 2 &&
              batches(33, 16384, 2048) == 5);
static_assert(transform_launches(14, 8) == 7 && transform_launches(14, 9, 1) == 7);
static_assert(product_launches(4, 7, 7, 1) == 116);

}  // namespace roofline
