#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/protocol/cost.hpp>

#include "../../random_values.hpp"
#include "../../sides.hpp"
#include "../../test.hpp"

using namespace tests;
namespace ckks = tensafe::ckks;
using namespace tensafe::lora;

namespace {

constexpr std::size_t limbs = 2;

template <class Packing, class Protection>
struct served_by {
    using packing = Packing;
    using protection = Protection;
};
using tiles = served_by<coefficient_tiles<4>, protects_adapter_rows<>>;
using narrow_tiles =
    served_by<coefficient_tiles<4>, protects_adapter_rows<average_case<5>, reduced_precision>>;
using bare_tiles = served_by<coefficient_tiles<4>, reveals_adapter_rows>;
using slots = served_by<replicated_slots<>, protects_adapter_rows<>>;
using blocks = served_by<token_blocks, protects_adapter_rows<>>;
using narrow_blocks = served_by<token_blocks, protects_adapter_rows<average_case<5>, reduced_precision>>;

constexpr std::size_t tokens = 32;  // of a block

/// What one request and its reply were, or all messages of a block, with a fresh workspace and an empty pool.
struct measured {
    work_count work;
    std::size_t bytes_up;
    std::size_t bytes_down;
    std::size_t inputs;
    std::size_t outputs;
    std::size_t targets;      ///< coefficients of c0 in the reply
    std::size_t transformed;  ///< outputs of which the client wants more than a few coefficients
    reply_budget budget;
    std::size_t online_up = 0;
    std::size_t online_down = 0;
};

template <class With>
measured run_block(const matrix& a) {
    using server_type = server<small, token_blocks, typename With::protection>;
    const server_type s(a, tokens);
    block_sides block(s);
    std::size_t up = block.of_client.request().bytes();
    std::size_t down = block.ahead.bytes();
    token_query query;
    token_reply reply;
    for (std::size_t t = 0; t < tokens; ++t) {
        query = block.encrypt(random_state(a.columns, t));
        reply = block.answer(query.request);
        up += query.request.bytes();
        down += reply.bytes();
    }
    const std::size_t outputs = block.ahead.c1.size();
    return {block.work.work,
            up,
            down,
            s.plan().inputs(),
            outputs,
            tokens * outputs,
            outputs,
            s.layout().budget(),
            query.request.bytes(),
            reply.bytes()};
}

template <class With>
measured run(const matrix& a) {
    constexpr bool protects = With::protection::protects;
    using server_type = server<small, typename With::packing, typename With::protection>;
    const server_type s(a);
    sides<small> with(s.layout().subring_log_n());
    typename server_type::workspace work;
    typename server_type::reply_type reply;
    const request<small> sent = with.client.encrypt(s.plan(), random_state(a.columns, 1)).request;
    if constexpr (protects) {
        s.apply(sent, with.pool, work, reply);
    } else {
        s.apply(sent, work, reply);
    }
    std::size_t targets = 0;
    std::size_t transformed = 0;
    for (std::size_t o = 0; o < reply.outputs.size(); ++o) {
        targets += protects ? s.layout().targets(o) : 0;
        transformed += s.layout().targets(o) > 16 ? 1U : 0U;
    }
    return {work.work, sent.bytes(), reply.bytes(),      s.plan().inputs(), reply.outputs.size(),
            targets,   transformed,  s.layout().budget()};
}

/// What the client transforms: the code counts nothing there, so this follows from what it sends and gets.
/// ckks::encrypt_c0 makes one transform for each limb of an input. decrypt_output makes one, modulo the first
/// prime, to multiply c1 by the secret, unless c1 comes in evaluation form or so few coefficients are needed
/// that they are inner products.
template <class With>
std::size_t client_transforms(const measured& m) {
    return m.inputs * limbs + (With::protection::protects ? m.transformed : 0);
}

/// The sizes, for rank 32 and d = 2048, request and reply together.
constexpr site_shape qwen{32, 2048, 2048};
static_assert(cost_of<ckks::private_n4096, coefficient_tiles<4>>(qwen).bytes() <= 190000);
static_assert(cost_of<ckks::quantum_n4096, coefficient_tiles<4>>(qwen).bytes() <= 181000);
static_assert(cost_of<ckks::compact_n4096, coefficient_tiles<4>, protects_adapter_rows<average_case<6>>>(qwen)
                  .bytes() <= 165000);
static_assert(cost_of<ckks::minimal_n2048, coefficient_tiles<4>,
                      protects_adapter_rows<average_case<5>, reduced_precision>>(qwen)
                  .bytes() <= 85000);
// For less than 10^-8 of anything to be learned from a million replies.
static_assert(cost_of<ckks::private_n4096, coefficient_tiles<4>>(qwen).statistical_distance < 1e-8);
static_assert(
    cost_of<ckks::private_n4096, coefficient_tiles<4>, reveals_adapter_rows>(qwen).statistical_distance == 1);

}  // namespace

TEST_CASE_TEMPLATE("the cost of a site is what its request and its reply then are", With, tiles, narrow_tiles,
                   bare_tiles, slots, blocks, narrow_blocks) {
    struct example {
        site_shape shape;
        mode how;
    };
    for (const example& e :
         {example{{6, 300, 0}, mode::client_held_b}, example{{1, 40, 0}, mode::client_held_b},
          example{{9, 257, 0}, mode::client_held_b}, example{{2, 60, 13}, mode::blind}}) {
        const site_shape& shape = e.shape;
        INFO("shape.rank := ", shape.rank, ", shape.d_in := ", shape.d_in);
        const std::size_t rows = served_rows(e.how, shape.rank, shape.d_out);
        CHECK(rows == (e.how == mode::blind ? shape.d_out : shape.rank));

        constexpr bool in_blocks = std::is_same_v<typename With::packing, token_blocks>;
        const token_cost cost =
            cost_of<small, typename With::packing, typename With::protection>(shape, e.how, tokens);
        // Unbalanced on purpose: no number of the cost may depend on the norms.
        const matrix a = random_matrix(rows, shape.d_in, 1);
        const measured got = [&] {
            if constexpr (in_blocks) {
                return run_block<With>(a);
            } else {
                return run<With>(a);
            }
        }();
        CHECK(cost.server == got.work);
        CHECK(cost.inputs == got.inputs);
        CHECK(cost.outputs == got.outputs);
        CHECK(cost.bytes_up == got.bytes_up);
        CHECK(cost.bytes_down == got.bytes_down);
        CHECK(cost.bytes() == got.bytes_up + got.bytes_down);
        CHECK(cost.client_transforms == client_transforms<With>(got));
        CHECK(cost.budget.flood.bits == got.budget.flood.bits);
        CHECK(cost.budget.reply_bits == got.budget.reply_bits);
        CHECK(cost.budget.checksum_bits == got.budget.checksum_bits);
        CHECK(cost.budget.weight_norm == got.budget.weight_norm);
        CHECK(cost.budget.range == got.budget.range);
        CHECK(cost.relative_error == got.budget.relative_error);
        CHECK(cost.targets == got.targets);
        CHECK(cost.online_up == got.online_up);
        CHECK(cost.online_down == got.online_down);
        CHECK(cost.hidden_states == (in_blocks ? tokens : 1));
    }
}

TEST_CASE("a filled pool saves the server the transforms that the cost names") {
    // The pool makes zeros in advance, one transform for each limb: the cost of protected replies less this
    // is what bare replies lack, the way back of c1.
    constexpr token_cost with = cost_of<small, coefficient_tiles<4>>({6, 300});
    constexpr token_cost bare = cost_of<small, coefficient_tiles<4>, reveals_adapter_rows>({6, 300});
    CHECK(with.pooled_transforms == limbs * 2);
    CHECK(with.server.transforms - with.pooled_transforms == limbs * 2);
    CHECK(bare.server.transforms == 0);
    CHECK(bare.pooled_transforms == 0);
    CHECK(bare.session_bytes == 0);
    // The nonces, and b bit-packed, in two messages.
    CHECK(with.session_bytes == 3 * 32 + 1024 / 8 * (45 + 44) + 2 * 64);
}

namespace {

/// The best of 1, 2, 4, ... 128 rows by trying all, the first of equals.
template <class P, class Objective, class Protection, mode Mode>
int best_by_trying(site_shape shape) {
    int best = 0;
    double least = 0;
    const auto one = [&](auto of_rows) {
        constexpr int rows = decltype(of_rows)::value;
        try {
            const double value = Objective::of(cost_of<P, coefficient_tiles<rows>, Protection>(shape, Mode));
            if (best == 0 || value < least) {
                best = rows;
                least = value;
            }
        } catch (const parameter_error&) {
            // This set cannot hold so many rows in one plaintext.
        }
    };
    one(std::integral_constant<int, 1>());
    one(std::integral_constant<int, 2>());
    one(std::integral_constant<int, 4>());
    one(std::integral_constant<int, 8>());
    one(std::integral_constant<int, 16>());
    one(std::integral_constant<int, 32>());
    one(std::integral_constant<int, 64>());
    one(std::integral_constant<int, 128>());
    return best;
}

template <site_shape Shape, class P, class Objective, class Protection = protects_adapter_rows<>,
          mode Mode = mode::client_held_b>
bool chooses_the_best() {
    return best_tiling<Shape, P, Objective, Protection, Mode> ==
           best_by_trying<P, Objective, Protection, Mode>(Shape);
}

using narrow_and_coarse = protects_adapter_rows<average_case<5>, reduced_precision>;
constexpr site_shape wide_site{8, 8192, 256};

}  // namespace

TEST_CASE("best_tiling is the best of all tilings, for each objective, set and mode") {
    using nanoseconds = weighted<1000, 1>;
    CHECK(chooses_the_best<qwen, ckks::private_n4096, least_bytes>());
    CHECK(chooses_the_best<qwen, ckks::private_n4096, least_compute>());
    CHECK(chooses_the_best<qwen, ckks::private_n4096, nanoseconds>());
    CHECK(chooses_the_best<wide_site, ckks::private_n4096, least_bytes>());
    CHECK(chooses_the_best<qwen, ckks::minimal_n2048, least_bytes, narrow_and_coarse>());
    CHECK(chooses_the_best<qwen, ckks::minimal_n2048, least_compute, narrow_and_coarse>());
    CHECK(chooses_the_best<qwen, ckks::private_n4096, least_bytes, protects_adapter_rows<>, mode::blind>());
    CHECK(chooses_the_best<qwen, ckks::private_n4096, least_compute, protects_adapter_rows<>, mode::blind>());
}

TEST_CASE("best_tokens_ahead is the best block for what is sent, of those that memory and the server allow") {
    constexpr std::array<site_shape, 2> shapes{qwen, wide_site};
    using set = ckks::private_n4096;
    using nanoseconds = weighted<1000, 1>;
    const auto check = [&]<class Objective>(Objective, std::size_t tokens, std::size_t most) {
        const auto value_of = [&](std::size_t t) {
            double sum = 0;
            for (const site_shape& shape : shapes) {
                sum += static_cast<double>((tokens + t - 1) / t) *
                       Objective::of(cost_of<set, token_blocks>(shape, mode::client_held_b, t));
            }
            return sum;
        };
        const std::size_t best = best_tokens_ahead<set, protects_adapter_rows<>, Objective>(
            shapes, tokens, std::numeric_limits<std::size_t>::max(), mode::client_held_b, most);
        REQUIRE(best >= 2);
        CHECK(best <= most);
        for (std::size_t t = 2; t <= most; ++t) {
            CHECK(value_of(best) <= value_of(t));
        }
    };
    for (const std::size_t tokens : {3U, 32U, 33U, 156U, 1000U, 1296U}) {
        check(least_bytes{}, tokens, most_targets<set, protects_adapter_rows<>>);
        check(nanoseconds{}, tokens, 256);
    }
    const std::array<site_shape, 1> one{qwen};
    CHECK(best_tokens_ahead<set>(one, 2) == 0);  // a block costs as much as two tokens more
    CHECK(best_tokens_ahead<set>(one, 3) == 3);
    CHECK(best_tokens_ahead<set>(one, 39) == 20);    // two blocks, alike
    CHECK(best_tokens_ahead<set>(one, 1000) == 36);  // 28 blocks: 27 of 38 have more unused positions
    CHECK(best_tokens_ahead<set>(one, 1026) == most_targets<set, protects_adapter_rows<>>);
    const std::size_t of_sixteen = 16 * 8 * (2 * 2048 + 32);
    CHECK(best_tokens_ahead<set>(one, 1000, of_sixteen) == 16);
    CHECK(best_tokens_ahead<set>(one, 1000, of_sixteen - 1) == 15);
}

TEST_CASE("a token of a block takes a fifth of the bytes of a single one") {
    const auto bytes_of = []<class P>(const P&, std::size_t tokens) {
        const token_cost cost = cost_of<P, token_blocks>(qwen, mode::client_held_b, tokens);
        return static_cast<double>(cost.bytes()) / static_cast<double>(tokens);
    };
    CHECK(bytes_of(ckks::private_n4096{}, 32) <= 35'500);
    CHECK(bytes_of(ckks::private_n4096{}, 128) <= 26'300);
    const token_cost cost = cost_of<ckks::private_n4096, token_blocks>(qwen);
    CHECK(cost.online_up <= 22'900);
    CHECK(cost.online_down <= 200);
    using coarse = protects_adapter_rows<average_case<5>, reduced_precision>;
    CHECK(cost_of<ckks::minimal_n2048, token_blocks, coarse>(site_shape{qwen}).bytes() <= 32 * 16'200);
    const token_cost blind = cost_of<ckks::private_n4096, token_blocks>(
        {.rank = 32, .d_in = 2048, .d_out = 2048}, mode::blind, 128);
    CHECK(static_cast<double>(blind.bytes()) / 128 <= 229'000);
}
