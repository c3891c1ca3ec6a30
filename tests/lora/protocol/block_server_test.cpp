#include <tensafe/lora/model/model_server.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include "../../backends.hpp"
#include "../block_products.hpp"
#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

namespace {

using tensafe::arith::uint128;
using tensafe::arith::word;
using basis = traced_product<small>::basis;

template <class Protection = protects_adapter_rows<>>
using block_server = server<small, token_blocks, Protection>;

template <class Server>
struct owned {
    Server s;
};
/// Both sides of a block, and its last token.
template <class Protection = protects_adapter_rows<>>
struct prepared_block : owned<block_server<Protection>>, block_sides<small, Protection> {
    prepared_block(const matrix& a, std::size_t tokens)
        : owned<block_server<Protection>>{{a, tokens, trusts_clients()}},
          block_sides<small, Protection>(this->s) {}
    template <class State>
    std::vector<double> answers(const State& h) {
        this->of_client.encrypt(h, query);
        reply = this->answer(query.request);
        return decrypted();
    }
    std::vector<double> decrypted() { return this->decrypt(query, reply); }

    token_query query;
    token_reply reply;
};

/// Both sides of a block of 21 outputs, of which the server prepares one part after the other.
struct block_in_parts {
    block_request part(std::size_t first, std::size_t outputs) const {
        block_request r = of_client.request();
        r.first = first;
        r.outputs = outputs;
        return r;
    }
    void prepare(std::size_t first, std::size_t outputs) {
        s.prepare(part(first, outputs), with.pool, work, of_server, reply);
    }

    matrix a = random_matrix(21, 200, 1);
    block_server<> s{a, 4};
    sides<small> with{7, s.plan().subring_log_n()};
    client_block<small, protects_adapter_rows<>> of_client = with.client.prepare(s.plan());
    tensafe::lora::block_workspace<small> work = [this] {
        tensafe::lora::block_workspace<small> result;
        result.generator = numbered_generator(with.number + 5);
        return result;
    }();
    server_block<small> of_server;
    block_reply reply;
};

template <class Protection = protects_adapter_rows<>>
void check_answers(std::size_t tokens, std::size_t rank, std::size_t d) {
    INFO("tokens := ", tokens, ", rank := ", rank, ", d := ", d);
    const matrix a = random_matrix(rank, d, rank + d);
    prepared_block<Protection> block(a, tokens);
    CHECK(block.of_client.left() == tokens);
    double worst = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
        auto h = random_state(d, t);
        scale(std::span(h), std::pow(10.0F, static_cast<float>(t % 5) * 10 - 20));
        worst = worse(worst, error_in_deviations(block.answers(h), block.s, a, h));
    }
    CHECK(worst < most_deviations);
    CHECK(block.of_client.left() == 0);
    CHECK(block.of_server.left() == 0);
}

double root_mean_square(const std::vector<double>& values) {
    return norm(values) / std::sqrt(static_cast<double>(values.size()));
}

// What blocks keep: an explicit instantiation may name private members. As they are declared here they are
// wiped on release.
using secret_words = std::array<tensafe::memory::secret_buffer<word>, 2>;
template <class Tag, typename Tag::type Member>
struct opened {
    friend typename Tag::type member_of(Tag) { return Member; }
};
struct masks_tag {
    using type = secret_words client_block<small, protects_adapter_rows<>>::*;
    friend type member_of(masks_tag);
};
struct zeros_tag {
    using type = secret_words server_block<small>::*;
    friend type member_of(zeros_tag);
};
struct flood_tag {
    using type = tensafe::memory::secret_buffer<random_source::seed> server_block<small>::*;
    friend type member_of(flood_tag);
};
template struct opened<flood_tag, &server_block<small>::flood_secret_>;
template struct opened<masks_tag, &client_block<small, protects_adapter_rows<>>::masks_>;
template struct opened<zeros_tag, &server_block<small>::c0_>;

using polynomial = rns::poly<basis, rns::coefficient_form>;

polynomial times_key(const polynomial& p, const ckks::secret_key<small>& key) {
    auto product = rns::forward(p);
    rns::for_each_limb<basis>([&]<int I>() {
        const auto limb = product.limb<I>();
        rns::limb::multiply(rns::variable_arithmetic<basis::prime<I>>, limb, limb, key.value().limb<I>());
    });
    return rns::inverse(std::move(product));
}

/// Of so many residues a limb, as clients pack them.
std::array<std::vector<word>, 2> unpacked(std::span<const std::uint8_t> bytes, std::size_t count) {
    std::array<std::vector<word>, 2> result;
    rns::for_each_limb<basis>([&]<int I>() {
        constexpr int bits = std::bit_width(basis::prime<I>);
        result[I].resize(count);
        const std::size_t of_limb = tensafe::memory::packed_bytes(count, bits);
        tensafe::memory::unpack_bits(bytes.first(of_limb), bits, std::span(result[I]));
        bytes = bytes.subspan(of_limb);
    });
    return result;
}

/// Which of the positions are zeros, in all limbs.
std::vector<bool> wiped_positions(const secret_words& words, std::size_t tokens) {
    std::vector<bool> result(tokens, true);
    for (const auto& limb : words) {
        REQUIRE(limb.size() % tokens == 0);
        for (std::size_t k = 0; k < limb.size(); ++k) {
            result[k / (limb.size() / tokens)] = result[k / (limb.size() / tokens)] && limb[k] == 0;
        }
    }
    return result;
}

}  // namespace

TEST_CASE("every position of a block gives A*h, for any number of tokens and shape") {
    for_each_backend([](tensafe::exec::backend) {
        check_answers(2, 3, 700);
        check_answers(8, 1, 1);
        check_answers(8, 5, 128);
        check_answers(3, 5, 700);
        check_answers(17, 9, 130);
        check_answers(32, 33, 500);
        check_answers(32, 4, 33);
        check_answers(128, 2, 70);
        check_answers(1024, 2, 3);
    });
    check_answers(2, 1030, 5);  // more rows than a polynomial has coefficients,
    check_answers(8, 130, 40);  // more products than are made together,
    check_answers(1023, 1, 3);
    if (trials(8) == 8) {
        check_answers(512, 1, 2050);  // and more ciphertexts: seconds with sanitizers
    }
}

TEST_CASE("an answer is its product and zero, and a flood of its own at each position") {
    constexpr std::size_t tokens = 64;
    constexpr std::size_t rank = 8;
    prepared_block<> block(random_matrix(rank, 200, 1), tokens);
    const auto& plan = block.s.plan();
    const int bits = plan.reply_bits(0);
    const auto h = random_state(200, 1);
    std::vector<double> floods;
    double between = 0;  // of one position and the next
    for (std::size_t t = 0; t < tokens; ++t) {
        block.of_client.encrypt(h, block.query);
        auto sums = bare_token(block.s, unpacked(block.query.request.c0, h.size()));
        rns::residue_spans<basis> of_sums;
        rns::for_each_limb<basis>([&]<int I>() {
            const auto& zeros = (block.of_server.*member_of(zeros_tag()))[I];
            for (std::size_t o = 0; o < rank; ++o) {
                sums[I][o] = (sums[I][o] + zeros[t * rank + o]) % basis::prime<I>;
            }
            of_sums[I] = sums[I];
        });
        std::vector<std::uint32_t> bare(rank);
        rns::switch_modulus<basis>(of_sums, bits, bare);
        block.reply = block.answer(block.query.request);
        std::vector<std::uint32_t> answer(rank);
        tensafe::memory::unpack_bits(block.reply.c0, bits, std::span(answer));
        for (std::size_t o = 0; o < rank; ++o) {
            const auto difference =
                static_cast<std::int32_t>((answer[o] - bare[o]) << (32 - bits)) >> (32 - bits);
            floods.push_back(static_cast<double>(difference) * std::ldexp(plan.budget().modulus, -bits) /
                             plan.budget().flood.deviation());
            if (t > 0) {
                between += floods[floods.size() - 1] * floods[floods.size() - 1 - rank];
            }
        }
    }
    // Of 512 values: the deviation spreads by 3 %, a sum of products of strangers by 4.4 % of its terms.
    CHECK(std::fabs(root_mean_square(floods) - 1) < 0.2);
    CHECK(std::fabs(between) / static_cast<double>(floods.size()) < 0.25);
}

TEST_CASE("what hides a state are samples of RLWE, each with an error of its own") {
    constexpr std::size_t tokens = 8;
    constexpr std::size_t d = 300;
    const ckks::secret_key<small> key(numbered_seed(1));
    client<small> c(ckks::secret_key<small>(numbered_seed(1)));
    const block_server<>::plan_type plan(block_server<>::layout_type::of(2, d, 1, tokens));
    const std::size_t columns = plan.entries_per_input();
    // Of each ciphertext of two blocks: at coefficient after coefficient.
    std::vector<std::vector<double>> errors;
    for (int b = 0; b < 2; ++b) {
        auto block = c.prepare(plan);
        std::vector<polynomial> c1_times_s;
        for (std::size_t i = 0; i < plan.inputs(); ++i) {
            rns::poly<basis, rns::evaluation_form> c1(tensafe::memory::uninitialized);
            ckks::expand_uniform(block.request().seed, random_source::stream_domain::uplink, c1,
                                 static_cast<std::uint32_t>(2 * i));
            c1_times_s.push_back(times_key(rns::inverse(std::move(c1)), key));
            errors.emplace_back();
        }
        for (std::size_t t = 0; t < tokens; ++t) {
            token_query query;
            block.encrypt(std::vector<float>(d), query);
            const auto masks = unpacked(query.request.c0, d);
            for (std::size_t k = 0; k < d; ++k) {
                const polynomial& product = c1_times_s[k / columns];
                const std::size_t at = t * columns + k % columns;
                errors[errors.size() - plan.inputs() + k / columns].push_back(rns::to_double<basis>(
                    std::array{(masks[0][k] + product.limb<0>()[at]) % basis::prime<0>,
                               (masks[1][k] + product.limb<1>()[at]) % basis::prime<1>}));
            }
        }
    }
    const double deviation = std::sqrt(random_source::error_variance);
    for (std::size_t i = 0; i < errors.size(); ++i) {
        CAPTURE(i);
        // Of 352 values, which the last ciphertext has, it spreads by 4 %.
        CHECK(root_mean_square(errors[i]) > 0.7 * deviation);
        CHECK(root_mean_square(errors[i]) < 1.4 * deviation);
        CHECK(std::ranges::all_of(errors[i],
                                  [](double x) { return std::fabs(x) <= random_source::largest_error; }));
        for (std::size_t j = 0; j < i; ++j) {
            std::size_t same = 0;
            const std::size_t count = std::min(errors[i].size(), errors[j].size());
            for (std::size_t k = 0; k < count; ++k) {
                same += errors[i][k] == errors[j][k] ? 1U : 0U;
            }
            CHECK(same < count / 3);  // of independent ones 12 %
        }
    }
}

TEST_CASE("answers that fill the range do not wrap around, and nothing of the range is given away") {
    const std::size_t d = 60;
    const std::vector<float> h = random_state(d, 1);
    matrix a(2, d);
    for (std::size_t k = 0; k < d; ++k) {
        a.row(0)[k] = h[k];
        a.row(1)[k] = -h[k];
    }
    prepared_block<> block(a, 4);
    const auto& budget = block.s.plan().budget();
    for (const float factor : {1.0F, -1e9F, 1e-9F}) {
        auto state = h;
        scale(std::span(state), factor);
        CHECK(error_in_deviations(block.answers(state), block.s, a, state) < most_deviations);
        CHECK(budget.weight_norm * block.query.scale * norm(state) > 0.98 * budget.modulus / 2);
    }
}

TEST_CASE("zeros on either side give zeros") {
    prepared_block<> nothing(matrix(3, 20), 4);
    CHECK(norm(nothing.answers(random_state(20, 1))) == 0);
    prepared_block<> block(random_matrix(3, 20, 1), 4);
    CHECK(norm(block.answers(std::vector<float>(20))) < 1e-100);
}

TEST_CASE("answers of an average-case range come with checksum rows, which show an overflow") {
    check_answers<protects_adapter_rows<average_case<6>>>(16, 33, 600);
    const matrix a = random_matrix(8, 800, 1);
    prepared_block<protects_adapter_rows<average_case<6>>> block(a, 16);
    const auto h = row_of(a, 3);  // its own answer is far above the others
    CHECK_THROWS_AS(block.answers(h), range_exceeded_error);
    block.of_client.encrypt(h, block.query, 64);
    CHECK(block.query.request.position == 1);  // a retry takes a new position
    block.reply = block.answer(block.query.request);
    CHECK(largest_difference(block.decrypted(), product(a, h)) <
          64 * most_deviations * deviation(block.s.layout(), norm(h)));
}

TEST_CASE("positions are answered in any order, and a lost message is sent again as its bytes") {
    const matrix a = random_matrix(3, 200, 1);
    prepared_block<> block(a, 8);
    std::vector<token_query> queries(8);
    for (std::size_t t = 0; t < 8; ++t) {
        block.of_client.encrypt(random_state(200, t), queries[t]);
    }
    for (const std::size_t t : {7UL, 2UL, 0UL, 3UL, 6UL, 1UL, 5UL, 4UL}) {
        block.query = queries[t];
        block.s.answer(block.of_server, queries[t].request, block.work, block.reply);
        const auto h = random_state(200, t);
        CHECK(error_in_deviations(block.decrypted(), block.s, a, h) < most_deviations);
    }
}

TEST_CASE("a position is answered once, and hides one state") {
    prepared_block<> block(random_matrix(3, 200, 1), 4);
    const auto h = random_state(200, 1);
    static_cast<void>(block.answers(h));
    const auto answered = block.query.request;
    const auto again = [&] { block.s.answer(block.of_server, answered, block.work, block.reply); };
    CHECK(contains(refusal<parameter_error>(again), "position 0 of this block was answered already"));
    CHECK(block.of_server.left() == 3);
    for (std::size_t t = 1; t < 4; ++t) {
        block.of_client.encrypt(h, block.query);
        CHECK(block.query.request.position == t);
        CHECK(block.query.request.c0 != answered.c0);
    }
    CHECK(contains(refusal<parameter_error>([&] { block.of_client.encrypt(h, block.query); }),
                   "no position is left of 4"));
    prepared_block<> other(random_matrix(3, 200, 1), 4);
    auto moved = std::move(other.of_client);
    CHECK(moved.left() == 4);
    CHECK(other.of_client.left() == 0);
    CHECK_THROWS_AS(other.of_client.encrypt(h, block.query), parameter_error);
    static_assert(!std::is_copy_constructible_v<server_block<small>>);
    static_assert(!std::is_copy_constructible_v<client_block<small, protects_adapter_rows<>>>);
}

TEST_CASE("tokens of many blocks are answered at once, all or none") {
    const matrix a = random_matrix(11, 200, 1);
    prepared_block<> first(a, 4);
    block_sides second(first.s);
    using token = block_token<small>;
    std::array<token_query, 3> queries;
    std::array<token_reply, 3> replies;
    std::vector<std::vector<float>> states;
    for (std::size_t k = 0; k < 3; ++k) {
        states.push_back(random_state(200, k));
        (k == 1 ? second.of_client : first.of_client).encrypt(states[k], queries[k]);
    }
    const std::array<token, 3> tokens{token{&first.of_server, &queries[0].request, &replies[0]},
                                      token{&second.of_server, &queries[1].request, &replies[1]},
                                      token{&first.of_server, &queries[2].request, &replies[2]}};
    auto twice = tokens;
    twice[1] = tokens[2];
    CHECK(contains(refusal<parameter_error>([&] { first.s.answer(twice, first.work); }),
                   "got position 1 of a block twice"));
    token_request shorter = queries[2].request;
    shorter.c0.pop_back();
    auto malformed = tokens;
    malformed[2].request = &shorter;
    CHECK_THROWS_AS(first.s.answer(malformed, first.work), tensafe::error);
    CHECK(first.of_server.left() == 4);
    CHECK(second.of_server.left() == 4);

    first.s.answer(tokens, first.work);
    CHECK(first.of_server.left() == 2);
    CHECK(second.of_server.left() == 3);
    for (std::size_t k = 0; k < 3; ++k) {
        std::vector<double> answers(11);
        (k == 1 ? second.of_client : first.of_client).decrypt(replies[k], queries[k], answers);
        CHECK(error_in_deviations(answers, first.s, a, states[k]) < most_deviations);
    }
}

TEST_CASE("what is refused uses up no position") {
    prepared_block<> block(random_matrix(3, 200, 1), 4);
    auto bad = random_state(200, 1);
    bad[17] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_AS(block.of_client.encrypt(random_state(199, 1), block.query), shape_error);
    CHECK_THROWS_AS(block.of_client.encrypt(random_state(200, 1), block.query, 0.5), parameter_error);
    CHECK_THROWS_WITH_AS(block.of_client.encrypt(bad, block.query),
                         Contains("entry 17 of the hidden state is not a number"), encoding_error);
    CHECK(block.of_client.left() == 4);
    block.of_client.encrypt(random_state(200, 1), block.query);
    const auto refused = [&](auto change) {
        token_request r = block.query.request;
        change(r);
        CHECK_THROWS_AS(block.s.answer(block.of_server, r, block.work, block.reply), tensafe::error);
        CHECK(block.of_server.is_open(0));
    };
    refused([](auto& r) { r.position = 4; });
    refused([](auto& r) { r.d = 201; });
    refused([](auto& r) { r.c0.pop_back(); });
    refused([](auto& r) { std::fill(r.c0.begin(), r.c0.end(), 255); });
    block.reply = block.answer(block.query.request);

    // Zeros in the place of such a state are a state: they take a position, and look like any other.
    CHECK(!block.of_client.encrypt_or_zeros(bad, block.query));
    CHECK(block.query.request.position == 1);
    block.reply = block.answer(block.query.request);
    CHECK(norm(block.decrypted()) < 1e-100);
}

TEST_CASE("blocks of other sizes, and zeros of another degree, are refused before a zero is taken") {
    const matrix a = random_matrix(3, 200, 1);
    for (const std::size_t tokens : {0UL, 1UL, 1025UL, 2048UL}) {
        CHECK(contains(refusal<shape_error>([&] { block_server<>(a, tokens, trusts_clients()); }),
                       "expected 2 to N = 1024"));
    }
    const block_server<> s(a, 4);
    sides<small> with(s.plan().subring_log_n());
    with.pool.fill(3);
    sides<small> other(s.plan().subring_log_n() + 1);
    const auto of_client = with.client.prepare(s.plan());
    block_server<>::workspace work;
    server_block<small> of_server;
    block_reply reply;
    const auto refused = [&](auto change) {
        block_request r = of_client.request();
        change(r);
        CHECK_THROWS_AS(s.prepare(r, with.pool, work, of_server, reply), shape_error);
    };
    refused([](auto& r) { r.d = 201; });
    refused([](auto& r) { r.tokens = 8; });
    refused([](auto& r) { r = {}; });
    CHECK(contains(
        refusal<parameter_error>([&] { s.prepare(of_client.request(), other.pool, work, of_server, reply); }),
        "traced to degree 2^3, expected 2^2"));
    CHECK(with.pool.size() == 3);
    CHECK(of_server.tokens() == 0);
    matrix infinite = a;
    infinite.row(1)[2] = std::numeric_limits<float>::infinity();
    CHECK(contains(refusal<encoding_error>([&] { block_server<>(infinite, 4); }), "row 1, column 2"));
}

TEST_CASE("a block takes encryptions of zero of its own, also if the same request comes again") {
    const matrix a = random_matrix(3, 200, 1);
    const block_server<> s(a, 4);
    sides<small> with(s.plan().subring_log_n());
    with.pool.fill(6);
    const auto of_client = with.client.prepare(s.plan());
    block_server<>::workspace work;
    server_block<small> first;
    server_block<small> second;
    block_reply of_first;
    block_reply of_second;
    s.prepare(of_client.request(), with.pool, work, first, of_first);
    CHECK(with.pool.size() == 3);
    s.prepare(of_client.request(), with.pool, work, second, of_second);
    CHECK(with.pool.size() == 0);
    const auto& zeros_of_first = first.*member_of(zeros_tag());
    const auto& zeros_of_second = second.*member_of(zeros_tag());
    for (std::size_t o = 0; o < 3; ++o) {
        CHECK(of_first.c1[o] != of_second.c1[o]);
        CHECK(zeros_of_first[0][o] != zeros_of_second[0][o]);
        for (std::size_t p = 0; p < o; ++p) {  // one for each product
            CHECK(of_first.c1[o] != of_first.c1[p]);
            CHECK(zeros_of_first[0][o] != zeros_of_first[0][p]);
        }
    }
}

TEST_CASE_FIXTURE(block_in_parts,
                  "parts of a block come one after the other, once, and tokens behind the last") {
    token_query query;
    token_reply answer;
    std::vector<double> answers(21);
    of_client.encrypt(random_state(200, 1), query);
    CHECK_THROWS_AS(prepare(8, 8), shape_error);  // there is no block yet
    CHECK_THROWS_AS(prepare(0, 22), shape_error);
    prepare(0, 8);
    CHECK(of_server.prepared() == 8);
    CHECK_THROWS_AS(of_client.decrypt(answer, query, answers), parameter_error);
    with.client.accept(of_client, reply);
    CHECK_THROWS_AS(of_client.decrypt(answer, query, answers), parameter_error);
    const auto of_first = reply;
    for (const std::size_t outputs : {0U, 8U}) {
        block_in_parts other;
        s.prepare(part(0, outputs), with.pool, work, other.of_server, reply);  // another block of this seed
        CHECK(reply.c1[0] != of_first.c1[0]);
    }
    CHECK_THROWS_AS(prepare(16, 5), shape_error);  // not the next one
    CHECK_THROWS_AS(prepare(8, 14), shape_error);
    auto of_another = part(8, 8);
    of_another.seed.bytes[0] ^= 1;
    CHECK_THROWS_AS(s.prepare(of_another, with.pool, work, of_server, reply), shape_error);
    CHECK(contains(refusal<parameter_error>([&] { s.answer(of_server, query.request, work, answer); }),
                   "of which 8 outputs are prepared, expected all 21"));
    CHECK(of_server.is_open(0));
    prepare(8, 12);
    CHECK_THROWS_AS(prepare(20, 1), shape_error);  // not from a multiple of eight on
    CHECK(of_server.prepared() == 20);
    auto moved = std::move(of_client);
    CHECK_FALSE(of_client.is_accepted());  // NOLINT: what is left of it
}

TEST_CASE_FIXTURE(block_in_parts, "a block in parts gives what it gives at once") {
    // Inputs are transformed for the first part, and for others where no room is left to keep them.
    constexpr std::size_t limbs = 2;
    const std::size_t of_inputs = limbs * s.plan().inputs();
    block_in_parts crowd;
    std::vector<server_block<small>> begun;
    bool has_room = true;
    SUBCASE("inputs are kept") {}
    SUBCASE("there is no room for them") {
        for (has_room = true; has_room && begun.size() < 10'000;) {
            s.prepare(crowd.part(0, 8), crowd.with.pool, crowd.work, begun.emplace_back(), reply);
            server_block<small> next;
            s.prepare(crowd.part(0, 8), crowd.with.pool, crowd.work, next, reply);
            const auto before = crowd.work.work.transforms;
            s.prepare(crowd.part(8, 8), crowd.with.pool, crowd.work, next, reply);
            has_room = crowd.work.work.transforms - before == limbs * 2 * 8;
        }
        CHECK(begun.size() > 10);
    }
    const auto before = work.work.transforms;
    block_sides<small> whole(s, 7);
    std::vector<block_reply> replies;
    std::vector<std::vector<std::uint8_t>> c1;
    for (const std::size_t first : {0U, 8U, 16U}) {
        prepare(first, std::min<std::size_t>(8, 21 - first));
        replies.push_back(reply);
        c1.insert(c1.end(), reply.c1.begin(), reply.c1.end());
    }
    for (const std::size_t of : {1U, 1U, 0U, 2U}) {  // as they come
        CHECK_FALSE(of_client.is_accepted());
        with.client.accept(of_client, replies[of]);
    }
    CHECK(of_client.is_accepted());
    CHECK(work.work.transforms - before == limbs * 2 * 21 + (has_room ? 1 : 3) * of_inputs);
    CHECK(c1 == whole.ahead.c1);  // numbered generators draw the same zeros in the same order
    for (std::uint64_t t = 0; t < 4; ++t) {
        const auto h = random_state(200, t);
        token_query query;
        of_client.encrypt(h, query);
        token_reply answer;
        s.answer(of_server, query.request, work, answer);
        CHECK(answer.c0 == whole.answer(whole.encrypt(h).request).c0);
        std::vector<double> answers(21);
        of_client.decrypt(answer, query, answers);
        CHECK(error_in_deviations(answers, s, a, h) < most_deviations);
    }
}

TEST_CASE("a mask is gone when it was read, and so is what hid an answer") {
    prepared_block<> block(random_matrix(3, 200, 1), 4);
    const auto& masks = block.of_client.*member_of(masks_tag());
    const auto& zeros = block.of_server.*member_of(zeros_tag());
    CHECK(wiped_positions(masks, 4) == std::vector<bool>{false, false, false, false});
    static_cast<void>(block.answers(random_state(200, 1)));
    CHECK(wiped_positions(masks, 4) == std::vector<bool>{true, false, false, false});
    CHECK(wiped_positions(zeros, 4) == std::vector<bool>{true, false, false, false});
    block.of_client.encrypt(random_state(200, 2), block.query);
    block.of_client.encrypt(random_state(200, 3), block.query);
    block.reply = block.answer(block.query.request);
    CHECK(wiped_positions(masks, 4) == std::vector<bool>{true, true, true, false});
    CHECK(wiped_positions(zeros, 4) == std::vector<bool>{true, false, true, false});
}

TEST_CASE("a block belongs to the server that prepared it, and to its process") {
    const matrix a = random_matrix(3, 200, 1);
    prepared_block<> block(a, 4);
    const block_server<> later(a, 4);
    block.of_client.encrypt(random_state(200, 1), block.query);
    const auto by_later = [&] {
        later.answer(block.of_server, block.query.request, block.work, block.reply);
    };
    CHECK(contains(refusal<parameter_error>(by_later), "that this server did not prepare"));
    // Servers of one type are counted with those of others.
    using other_protection = protects_adapter_rows<worst_case, reduced_precision>;
    std::vector<block_server<other_protection>> others;
    for (int k = 0; k < 8; ++k) {
        others.emplace_back(a, 4);
    }
    for (const auto& other : others) {
        CHECK(contains(refusal<parameter_error>([&] {
                           other.answer(block.of_server, block.query.request, block.work, block.reply);
                       }),
                       "did not prepare"));
    }
    const pid_t child = ::fork();
    if (child == 0) {
        bool refuses = block.of_client.left() == 0;
        try {
            block.reply = block.answer(block.query.request);
            refuses = false;
        } catch (const parameter_error&) {
        }
        try {
            block.of_client.encrypt(random_state(200, 1), block.query);
            refuses = false;
        } catch (const parameter_error&) {
        }
        ::_exit(refuses ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    block.reply = block.answer(block.query.request);
}

TEST_CASE("replies that do not fit are refused, and a block without its server's part reads none") {
    const matrix a = random_matrix(3, 200, 1);
    prepared_block<> block(a, 4);
    static_cast<void>(block.answers(random_state(200, 1)));
    const auto refused = [&](auto change) {
        token_reply r = block.reply;
        change(r);
        std::vector<double> answers(3);
        CHECK_THROWS_AS(block.of_client.decrypt(r, block.query, answers), tensafe::error);
    };
    refused([](auto& r) { r.position = 1; });
    refused([](auto& r) { r.rank = 4; });
    refused([](auto& r) { r.c0.push_back(0); });
    auto query = block.query;
    query.scale = 0;  // of no query
    std::vector<double> room(3);
    CHECK_THROWS_AS(block.of_client.decrypt(block.reply, query, room), parameter_error);
    room.pop_back();
    CHECK_THROWS_AS(block.of_client.decrypt(block.reply, block.query, room), shape_error);
    auto fresh = block.client.prepare(block.s.plan());
    std::vector<double> answers(3);
    CHECK(contains(refusal<parameter_error>([&] { fresh.decrypt(block.reply, block.query, answers); }),
                   "call client::accept first"));
    const auto refused_block = [&](auto change) {
        block_reply r = block.ahead;
        change(r);
        CHECK_THROWS_AS(block.client.accept(fresh, r), tensafe::error);
    };
    refused_block([](auto& r) { r.tokens = 8; });
    refused_block([](auto& r) { r.c1.push_back(r.c1.back()); });
    refused_block([](auto& r) { r.first = 1; });
    refused_block([](auto& r) { r.c1[1].pop_back(); });
    refused_block([](auto& r) { std::fill(r.c1[1].begin(), r.c1[1].end(), 0); });
}

TEST_CASE("unused bits of a reply are zero") {
    prepared_block<> block(random_matrix(3, 200, 1), 4);
    static_cast<void>(block.answers(random_state(200, 1)));
    const int bits = block.s.plan().reply_bits(0);
    REQUIRE(3 * bits % 8 != 0);
    block.reply.c0.back() |= 0x80U;
    CHECK_THROWS_AS(block.decrypted(), format_error);
}

TEST_CASE("more targets under one zero than leave RLWE at 128 bits are refused, but with trusts_clients") {
    static_assert(most_targets<ckks::private_n4096, protects_adapter_rows<>> == 38);
    static_assert(most_targets<ckks::quantum_n4096, protects_adapter_rows<>> == 59);
    static_assert(most_targets<ckks::compact_n4096, protects_adapter_rows<average_case<6>>> == 126);
    static_assert(
        most_targets<ckks::minimal_n2048, protects_adapter_rows<average_case<5>, reduced_precision>> == 46);
    using blocks = server<ckks::private_n4096, token_blocks>;
    using rows = server<ckks::private_n4096, coefficient_tiles<64>>;
    const matrix a = random_matrix(64, 2, 1);
    CHECK_NOTHROW(blocks(a, 38));
    CHECK_THROWS_WITH_AS(blocks(a, 39),
                         Contains("got 39 tokens of a block under one encryption of zero, "
                                  "expected at most 38; pass lora::trusts_clients"),
                         parameter_error);
    CHECK_NOTHROW(blocks(a, 64, trusts_clients{}));
    CHECK_THROWS_WITH_AS(rows{a}, Contains("got 64 target coefficients"), parameter_error);
    CHECK_NOTHROW(rows(a, trusts_clients{}));
    CHECK_NOTHROW(rows(random_matrix(38, 2, 1)));
}

TEST_CASE_TEMPLATE("no shape makes a target coefficient tell more of v than most_targets counts with",
                   Protection, protects_adapter_rows<>, protects_adapter_rows<average_case<6>>,
                   protects_adapter_rows<worst_case, answer_bits<6>>) {
    const auto most_of = []<class P>(P) {
        double most = 0;
        const auto look = [&](const reply_geometry& geometry) {
            const auto [budget, problem] = tensafe::lora::detail::compute_budget<P, Protection>(geometry);
            most = problem == nullptr ? std::fmax(most, budget.channel_bits() / std::log2(3.0)) : most;
        };
        for (double d = 0x1p24; d >= 1; d /= 1.1) {
            const auto columns = static_cast<std::size_t>(d);
            look(layout<P, coefficient_tiles<4>, Protection>::geometry(32, columns));
            look(layout<P, token_blocks, Protection>::geometry(1, columns));
            if constexpr (!Protection::range::can_overflow) {
                look(layout<P, replicated_slots<>, Protection>{32, columns, 1}.geometry());
                look(layout<P, replicated_slots<>, Protection>{512, columns, 1}.geometry());
            }
        }
        return most;
    };
    constexpr int counted = tensafe::lora::detail::most_digits<Protection>;
    const double of_short = most_of(ckks::private_n4096());
    CHECK(of_short <= counted);
    CHECK(of_short > counted - 2);
    CHECK(most_of(ckks::n8192_l4()) <= counted);
    CHECK(most_of(ckks::n16384_l4()) <= counted);
}
