#pragma once

#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

namespace tensafe::lora {

/// The cost of one request and its reply: known at compile time, and what the code then does and sends.
struct token_cost {
    std::size_t inputs = 0;   ///< ciphertexts of the request
    std::size_t outputs = 0;  ///< products in the reply
    work_count server;        ///< the server's work, encryptions of zero made on the spot included
    /// The transforms of the server's that a filled pool has done before.
    std::size_t pooled_transforms = 0;
    std::size_t client_transforms = 0;
    std::size_t bytes_up = 0;
    std::size_t bytes_down = 0;
    std::size_t online_up = 0;  ///< bytes of one token of a block, once it is prepared
    std::size_t online_down = 0;
    std::size_t session_bytes = 0;  ///< bytes of the server's nonce and the re-randomization key, once
    std::size_t hidden_states = 1;  ///< the hidden states that all this serves
    std::size_t targets = 0;        ///< coefficients that a reply shows, for budget.statistical_distance
    reply_budget budget{};
    double relative_error = 0;  ///< the typical one of an answer: budget.relative_error
    /// The distance of `default_replies` replies from replies that are made of the answers alone.
    double statistical_distance = 0;
    double word_multiplications = 0;  ///< products of two words, butterflies included, both sides

    constexpr std::size_t bytes() const noexcept { return bytes_up + bytes_down; }
};

/// The cost of a token; for token_blocks that of a block, all its tokens and phases.
template <ckks::parameter_set P, class Packing, class Protection>
constexpr token_cost cost_of(const packing_plan<P, Packing, Protection>& plan) {
    constexpr auto limbs = static_cast<std::size_t>(request_level<P>) + 1;
    constexpr bool in_blocks = std::is_same_v<Packing, token_blocks>;
    std::size_t tokens = 1;
    if constexpr (in_blocks) {
        tokens = plan.layout().tokens;
    }
    token_cost cost;
    cost.budget = plan.budget();
    cost.relative_error = cost.budget.relative_error;
    cost.inputs = plan.inputs();
    cost.outputs = plan.outputs();
    cost.server.products = cost.inputs * cost.outputs;
    cost.client_transforms = plan.inputs() * limbs;
    cost.bytes_up = message_overhead_bytes + random::seed_bytes;
    cost.bytes_down = message_overhead_bytes;
    if constexpr (in_blocks) {
        cost.online_up = token_request{}.bytes() + packed_residues_bytes<P>(plan.d());
        cost.online_down = message_overhead_bytes + plan.token_reply_bytes();
        cost.bytes_up += tokens * cost.online_up;
        cost.bytes_down += tokens * cost.online_down;
    } else {
        cost.bytes_up += plan.inputs() * packed_residues_bytes<P>(P::degree);
    }
    for (std::size_t o = 0; o < plan.outputs(); ++o) {
        if constexpr (Protection::protects) {
            const int bits = plan.reply_bits(o);
            const std::size_t targets = plan.targets(o);
            cost.targets += targets;
            cost.client_transforms += targets > most_inner_products ? 1 : 0;
            cost.bytes_down +=
                (in_blocks ? 0 : memory::packed_bytes(targets, bits)) + memory::packed_bytes(P::degree, bits);
        } else {
            cost.bytes_down +=
                packed_residues_bytes<P>(plan.subring_degree()) + packed_residues_bytes<P>(P::degree);
        }
    }
    if constexpr (Protection::protects) {
        cost.pooled_transforms = plan.outputs() * limbs;
        cost.server.transforms =
            cost.pooled_transforms + (plan.outputs() + (in_blocks ? plan.inputs() : 0)) * limbs;
        cost.statistical_distance = cost.budget.statistical_distance(cost.targets);
        cost.session_bytes =
            3 * random::seed_bytes + packed_residues_bytes<P>(P::degree) + 2 * message_overhead_bytes;
    } else {
        cost.statistical_distance = 1;
    }
    cost.hidden_states = tokens;
    const std::size_t zero_products = Protection::protects ? plan.outputs() * 2 * limbs : 0;
    const auto polynomials = zero_products + plan.outputs() + plan.inputs() * limbs;
    cost.word_multiplications =
        static_cast<double>((2 * cost.server.products * limbs + polynomials) * P::degree) +
        static_cast<double>((cost.server.transforms + cost.client_transforms) * P::degree / 2 *
                            static_cast<std::size_t>(P::log_n));
    if constexpr (in_blocks) {
        // Of pieces, rows and their products at twice the degree of a piece; and the inner products of c0.
        const std::size_t points = 2 * plan.entries_per_input();
        const std::size_t butterflies =
            (plan.inputs() + plan.outputs()) * P::degree + plan.inputs() * plan.outputs() * points / 2;
        cost.word_multiplications +=
            static_cast<double>(limbs * (butterflies * static_cast<std::size_t>(std::countr_zero(points)) +
                                         tokens * plan.outputs() * plan.d()));
    }
    return cost;
}

/// The cost of serving a site of this shape.
/// @param tokens  of a block, for token_blocks
/// @throws parameter_error if the set cannot hold the replies
template <ckks::parameter_set P, class Packing, class Protection = protects_adapter_rows<>>
constexpr token_cost cost_of(site_shape shape, mode m = mode::client_held_b,
                             [[maybe_unused]] std::size_t tokens = 32) {
    layout<P, Packing, Protection> l{{served_rows(m, shape.rank, shape.d_out), shape.d_in, 1}};
    if constexpr (std::is_same_v<Packing, token_blocks>) {
        l.tokens = tokens;
    }
    return cost_of(packing_plan<P, Packing, Protection>(l));
}

/// An objective of `best_tiling`, a weighted sum: for example nanoseconds of a byte sent and picoseconds of a
/// multiplication.
template <int PerByte, int PerMultiplication>
struct weighted {
    static constexpr double of(const token_cost& cost) noexcept {
        return PerByte * static_cast<double>(cost.bytes()) + PerMultiplication * cost.word_multiplications;
    }
};
using least_bytes = weighted<1, 0>;
using least_compute = weighted<0, 1>;

namespace detail {
template <ckks::parameter_set P, class Objective, class Protection, int Rows>
constexpr void try_rows(std::span<const site_shape> shapes, mode m, int& best, double& least) {
    using packing = coefficient_tiles<Rows>;
    double value = 0;
    bool fits = true;
    for (const site_shape& shape : shapes) {
        const std::size_t rows = served_rows(m, shape.rank, shape.d_out);
        const auto geometry = layout<P, packing, Protection>::geometry(rows, shape.d_in);
        fits = fits && compute_budget<P, Protection>(geometry).problem == nullptr;
        value += fits ? Objective::of(cost_of<P, packing, Protection>(shape, m)) : 0;
    }
    if (fits && (best == 0 || value < least)) {
        best = Rows;
        least = value;
    }
}

/// The best number of rows from 1 to 2^MostLog; 0 if the set can hold the replies with none.
template <ckks::parameter_set P, class Objective, class Protection, int MostLog>
constexpr int best_rows(std::span<const site_shape> shapes, mode m) {
    int best = 0;
    double least = 0;
    [&]<int... Log>(std::integer_sequence<int, Log...>) {
        (try_rows<P, Objective, Protection, 1 << Log>(shapes, m, best, least), ...);
    }
    (std::make_integer_sequence<int, MostLog + 1>{});
    return best;
}
}  // namespace detail

/// The number of rows, 1 to 128, with which coefficient_tiles serve this shape best:
/// `coefficient_tiles<best_tiling<site_shape{32, 2048}, ckks::private_n4096, least_bytes>>`. Chosen at
/// compile time; does not compile if the set can hold the replies with none.
template <site_shape Shape, ckks::parameter_set P, class Objective = least_bytes,
          class Protection = protects_adapter_rows<>, mode Mode = mode::client_held_b>
inline constexpr int best_tiling = [] {
    constexpr int rows =
        detail::best_rows<P, Objective, Protection, 7>(std::array<site_shape, 1>{Shape}, Mode);
    static_assert(
        rows > 0,
        "lora::best_tiling: this set cannot hold replies of this shape at this protection; use a set "
        "with a longer modulus, lora::average_case or lora::reduced_precision");
    return rows;
}();

/// Finds at run time, for shapes from a file, the number of rows, 1 to 32, with the least sum over all.
/// @throws parameter_error if the set can hold the replies with none
template <ckks::parameter_set P, class Protection = protects_adapter_rows<>, class Objective = least_bytes>
int best_tiling_of(std::span<const site_shape> shapes, mode m = mode::client_held_b) {
    const int rows = detail::best_rows<P, Objective, Protection, 5>(shapes, m);
    require<parameter_error>(rows != 0, {"best_tiling_of: this parameter set, of degree ", P::degree,
                                         ", cannot hold replies for these ", shapes.size(),
                                         " shapes with any number of rows from 1 to 32"});
    return rows;
}

/// The tokens of a block with which `tokens` tokens at sites of these shapes cost the least:
/// `model_options::tokens_ahead`. Blocks that are not used up count whole. 0 if single
/// tokens cost less, as two do.
/// @param memory  bytes of the client's, for a block of each site
/// @param most    tokens of a block: more than the default only for a server that trusts its clients
template <ckks::parameter_set P, class Protection = protects_adapter_rows<>, class Objective = least_bytes>
std::size_t best_tokens_ahead(std::span<const site_shape> shapes, std::size_t tokens,
                              std::size_t memory = std::numeric_limits<std::size_t>::max(),
                              mode m = mode::client_held_b, std::size_t most = most_targets<P, Protection>) {
    constexpr std::size_t limbs = static_cast<std::size_t>(request_level<P>) + 1;
    const auto sum = [&](auto value) {
        double result = 0;
        for (const site_shape& shape : shapes) {
            result += value(shape);
        }
        return result;
    };
    std::size_t best = 0;
    double least =
        with_tiling(best_tiling_of<P, Protection, Objective>(shapes, m), [&]<class Packing>(Packing) {
            return static_cast<double>(tokens) * sum([&](const site_shape& shape) {
                       return Objective::of(cost_of<P, Packing, Protection>(shape, m));
                   });
        });
    const double of_token = sum([&](const site_shape& shape) {
        return static_cast<double>(sizeof(arith::word) *
                                   (limbs * shape.d_in + served_rows(m, shape.rank, shape.d_out)));
    });
    const std::size_t longest = std::min({most, P::degree, tokens});
    const auto room = static_cast<std::size_t>(
        std::min(static_cast<double>(longest), static_cast<double>(memory) / of_token));
    for (std::size_t t = 2; t <= room; ++t) {
        const double value =
            static_cast<double>(detail::ceil_divide(tokens, t)) * sum([&](const site_shape& shape) {
                return Objective::of(cost_of<P, token_blocks, Protection>(shape, m, t));
            });
        if (value < least) {
            best = t;
            least = value;
        }
    }
    return best;
}

/// Returns f(coefficient_tiles<rows>{}): rows are part of the type, so f is compiled for each of these
/// numbers.
/// `with_tiling(best_tiling_of<params>(shapes), [&]<int Rows>(lora::coefficient_tiles<Rows>) {...})`
/// @throws parameter_error unless rows is a power of two from 1 to 32
template <int Rows = 1, class F>
decltype(auto) with_tiling(int rows, F&& f) {
    if (rows == Rows) {
        return f(coefficient_tiles<Rows>{});
    }
    if constexpr (Rows < 32) {
        return with_tiling<2 * Rows>(rows, f);
    }
    throw parameter_error({"with_tiling: got ", rows, " rows, expected a power of two from 1 to 32"});
}

}  // namespace tensafe::lora
