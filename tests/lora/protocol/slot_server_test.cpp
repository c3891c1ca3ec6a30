
#include <complex>

#include "../tiles_fixture.hpp"

using namespace tests;
namespace ckks = tensafe::ckks;
using namespace tensafe::lora;
using tiles_fixture::largest_difference;
using tiles_fixture::most_deviations;

namespace {

/// 1024 slots.
using small = ckks::parameters<11, ckks::limb_bits<60, 40, 40, 60>, 40, ckks::insecure_for_tests>;

template <class P, class Packing>
struct with {
    using parameters = P;
    using packing = Packing;
};
using paired = with<small, replicated_slots<paired_rows, unrescaled_replies>>;
using single = with<small, replicated_slots<single_rows, unrescaled_replies>>;
using paired_rescaled = with<small, replicated_slots<paired_rows, rescaled_replies>>;
using single_rescaled = with<small, replicated_slots<single_rows, rescaled_replies>>;
template <class P, class Packing = replicated_slots<>>
using slot_server = server<P, Packing, reveals_adapter_rows>;
using default_server = slot_server<small>;

/// A * h through encryption.
template <class P, class Packing, class Real>
std::vector<double> encrypted_product(client<P>& c, const slot_server<P, Packing>& s,
                                      const std::vector<Real>& h) {
    const auto query = c.encrypt(s.plan(), h);
    return c.decrypt(s.plan(), s.apply(query.request), query);
}

/// A * h by decrypting and decoding every slot and summing: the long way.
template <class Server, class Reply>
std::vector<double> decrypt_slots(const Server& s, const ckks::secret_key<small>& key, const Reply& r) {
    const auto slots_of = s.layout().slots();
    const std::size_t g = slots_of.stride;
    std::vector<double> answers(s.layout().rank);
    for (std::size_t o = 0; o < r.outputs.size(); ++o) {
        const auto slots = ckks::decode_slots(ckks::inverse(ckks::decrypt(key, r.outputs[o])));
        std::vector<std::complex<double>> sums(g);
        for (std::size_t j = 0; j < slots.size(); ++j) {
            sums[j % g] += slots[j];
        }
        slots_of.collect(o, sums, answers);
    }
    return answers;
}

/// The standard deviation of one answer's error: encryption noise times the rows, rounding of the weights
/// times h, and the rounding of a rescale times the secret. Slots of a polynomial with independent
/// coefficients of variance v have variance N v, half of it in the real part.
template <class P, class Packing>
double deviation(const layout<P, Packing, reveals_adapter_rows>& layout, double state_norm) {
    const auto n = static_cast<double>(P::degree);
    const double encryption = layout.row_norm * std::sqrt(n * (10.5 + 1.0 / 12)) / P::scale;
    const double rounding = state_norm * std::sqrt(n / 24) / Packing::template weight_scale<P>();
    double rescale = 0;
    if (Packing::rescales) {
        const double slots_of_a_sum = n / 2 / static_cast<double>(layout.slots().stride);
        rescale = std::sqrt(slots_of_a_sum * n / 2 * (1 + 2 * n / 3) / 12) / P::scale;
    }
    return std::sqrt(encryption * encryption + rounding * rounding + rescale * rescale);
}

/// The error of an encrypted product in standard deviations.
template <class P, class Packing>
double error_in_deviations(client<P>& c, const matrix& a, const std::vector<float>& h) {
    const slot_server<P, Packing> s(a);
    return largest_difference(encrypted_product(c, s, h), product(a, h)) / deviation(s.layout(), norm(h));
}

template <class P, int Level>
bool same(const ckks::ciphertext<P, Level>& a, const ckks::ciphertext<P, Level>& b) {
    return a.c0 == b.c0 && a.c1 == b.c1 && a.scale == b.scale;
}

template <class Reply>
bool same_replies(const Reply& a, const Reply& b) {
    return std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(),
                      [](const auto& x, const auto& y) { return same(x, y); });
}

}  // namespace

TEST_CASE_TEMPLATE("the encrypted product equals A*h up to the predicted noise, for shapes of every kind",
                   With, paired, single, paired_rescaled, single_rescaled) {
    client<small> c;
    for (const auto& s : tiles_fixture::slot_shapes) {
        INFO("s.rank := ", s.rank, ", s.d := ", s.d);
        const matrix a = random_matrix(s.rank, s.d, s.rank + 1000 * s.d);
        const std::vector<float> h = random_state(s.d, s.d);
        CHECK(error_in_deviations<typename With::parameters, typename With::packing>(c, a, h) <
              most_deviations);
    }
}

TEST_CASE_TEMPLATE("the predicted noise is no overestimate: over many answers it is what is measured", With,
                   paired, paired_rescaled) {
    client<small> c;
    const matrix a = random_matrix(400, 300, 1);
    const std::vector<float> h = random_state(300, 2);
    const slot_server<small, typename With::packing> s(a);
    std::vector<double> errors = encrypted_product(c, s, h);
    const std::vector<double> expected = product(a, h);
    for (std::size_t k = 0; k < errors.size(); ++k) {
        errors[k] -= expected[k];
    }
    // The prediction is for the longest row, the others are about a tenth shorter.
    const double ratio = norm(errors) / std::sqrt(400.0) / deviation(s.layout(), norm(h));
    CHECK(ratio > 0.7);
    CHECK(ratio < 1.15);
}

TEST_CASE("random shapes give A*h up to the predicted noise") {
    std::mt19937_64 generator(17);
    client<small> c;
    for (int round = 0; round < tests::trials(12); ++round) {
        const std::size_t rank = 1 + generator() % 40;
        const std::size_t d = 1 + generator() % 3000;
        INFO("rank := ", rank, ", d := ", d);
        CHECK(error_in_deviations<small, paired::packing>(c, random_matrix(rank, d, generator()),
                                                          random_state(d, generator())) < most_deviations);
    }
}

TEST_CASE_TEMPLATE("sets that protect something give A*h up to the predicted noise", P, ckks::n16384_l4,
                   ckks::n8192_l4) {
    client<P> c;
    const matrix a = random_matrix(32, 1536, 3);
    CHECK(error_in_deviations<P, replicated_slots<>>(c, a, random_state(1536, 4)) < most_deviations);
}

TEST_CASE("rows that select one entry return that entry, wherever it stands") {
    // Every position of a layout with several inputs, and of one with interleaved rows.
    for (const std::size_t d : {100U, 1500U}) {
        const std::size_t rank = 20;
        matrix a(rank, d);
        std::vector<double> expected(rank);
        const std::vector<float> h = random_state(d, 8);
        for (std::size_t r = 0; r < rank; ++r) {
            const std::size_t entry = r * (d - 1) / (rank - 1);
            a.row(r)[entry] = 1;
            expected[r] = static_cast<double>(h[entry]);
        }
        client<small> c;
        const default_server s(a);
        CHECK(largest_difference(encrypted_product(c, s, h), expected) <
              most_deviations * deviation(s.layout(), norm(h)));
    }
}

TEST_CASE_TEMPLATE("the trace equals decrypting and decoding every slot and summing", With, paired, single,
                   paired_rescaled, single_rescaled) {
    tensafe::random::seed seed;
    seed.bytes[0] = 7;
    const ckks::secret_key<small> key(seed);
    client<small> c{ckks::secret_key<small>(seed)};
    for (const std::size_t d : {1U, 60U, 300U, 1024U, 1400U}) {
        CAPTURE(d);
        const slot_server<small, typename With::packing> s(random_matrix(9, d, d));
        const auto query = c.encrypt(s.plan(), random_state(d, 2));
        const auto reply = s.apply(query.request);
        const std::vector<double> summed = decrypt_slots(s, key, reply);
        // Same numbers, noise included: only roundings of double precision differ.
        CHECK(largest_difference(c.decrypt(s.plan(), reply, query), summed) < 1e-12 * (1 + norm(summed)));
    }
}

TEST_CASE("hidden states in float and double give the same product") {
    client<small> c;
    const matrix a = random_matrix(5, 200, 1);
    const default_server s(a);
    const std::vector<float> h = random_state(200, 2);
    const std::vector<double> wide(h.begin(), h.end());
    CHECK(largest_difference(encrypted_product(c, s, wide), product(a, h)) <
          most_deviations * deviation(s.layout(), norm(h)));
}

TEST_CASE("zeros on either side give zeros up to the noise") {
    client<small> c;
    const default_server zero_rows(matrix(4, 300));
    CHECK(norm(encrypted_product(c, zero_rows, random_state(300, 1))) == 0);
    const default_server s(random_matrix(4, 300, 1));
    CHECK(norm(encrypted_product(c, s, std::vector<float>(300))) < 1e-8);
}

TEST_CASE("the largest norm that is let through still gives right answers, in the worst direction") {
    // Rows along h, with the signs for which all of a pair's amplitude, sqrt(2) of one answer, meets in one
    // of the four coefficients: the sums are 1 + i at one eighth of the circle and -(1 + i) at five eighths.
    for (const double row_scale : {0.02, 1.0, 50.0}) {
        CAPTURE(row_scale);
        matrix a(4, 300);
        for (std::size_t r = 0; r < 4; ++r) {
            std::fill(a.row(r).begin(), a.row(r).end(),
                      static_cast<float>(r % 2 == 0 ? row_scale : -row_scale));
        }
        client<small> c;
        const default_server s(a);
        const double limit = s.plan().budget().largest_norm;
        const std::vector<double> h(300, 0.9999 * limit / std::sqrt(300.0));
        const std::vector<double> expected = product(a, h);
        CHECK(expected[0] > 0x1p18);
        CHECK(largest_difference(encrypted_product(c, s, h), expected) < 1e-6 * expected[0]);
        const std::vector<double> opposite(300, -h[0]);
        CHECK(largest_difference(encrypted_product(c, s, opposite), product(a, opposite)) <
              1e-6 * expected[0]);
    }
}

TEST_CASE("a hidden state whose norm passes the limit is refused, and the message names the limit") {
    client<small> c;
    const default_server s(random_matrix(4, 300, 1));
    const double limit = s.plan().budget().largest_norm;
    const std::vector<double> h(300, 1.0001 * limit / std::sqrt(300.0));
    const std::string message = refusal<encoding_error>([&] { c.encrypt(s.plan(), h); });
    CHECK(contains(message, "passes " + tensafe::shortest_text(limit)));
    const std::vector<double> beyond_squares(300, 1e200);
    CHECK_THROWS_AS(c.encrypt(s.plan(), beyond_squares), encoding_error);
    const default_server zero_rows(matrix(4, 300));
    CHECK_THROWS_AS(c.encrypt(zero_rows.plan(), beyond_squares), encoding_error);
}

TEST_CASE("entries of h that are no numbers are refused by their place in h") {
    client<small> c;
    const default_server s(random_matrix(4, 2000, 1));  // two inputs
    std::vector<float> h = random_state(2000, 1);
    h[1500] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_WITH_AS(c.encrypt(s.plan(), h), Contains("entry 1500 of the hidden state is not a number"),
                         encoding_error);
    h[1500] = 0;
    h[7] = -std::numeric_limits<float>::infinity();
    CHECK_THROWS_WITH_AS(c.encrypt(s.plan(), h), Contains("entry 7 of the hidden state is infinite"),
                         encoding_error);
}

TEST_CASE(
    "weights that are no numbers are refused by row and column, and a matrix must have all its values") {
    matrix a = random_matrix(4, 50, 1);
    a.row(2)[13] = std::numeric_limits<float>::quiet_NaN();
    CHECK(contains(refusal<encoding_error>([&] { default_server s(a); }),
                   "row 2, column 13 of the matrix is not a number"));
    a.row(2)[13] = std::numeric_limits<float>::infinity();
    CHECK(contains(refusal<encoding_error>([&] { default_server s(a); }), "is infinite"));
    a.values.pop_back();
    CHECK(contains(refusal<shape_error>([&] { default_server s(a); }),
                   "got 199 values for a 4 x 50 matrix, expected 200"));
    CHECK_THROWS_AS(default_server(matrix(0, 5)), shape_error);
    CHECK_THROWS_AS(default_server(matrix(5, 0)), shape_error);
}

TEST_CASE("hidden states, requests and replies of the wrong size are refused") {
    client<small> c;
    const default_server one(random_matrix(8, 300, 1));   // 1 input, 2 products
    const default_server two(random_matrix(8, 1500, 1));  // 2 inputs, 4 products
    CHECK_THROWS_WITH_AS(c.encrypt(one.plan(), std::vector<float>(299)),
                         Contains("got a hidden state of 299 entries, expected 300"), shape_error);
    const auto query = c.encrypt(one.plan(), random_state(300, 1));
    CHECK_THROWS_WITH_AS(
        two.apply(query.request),
        Contains("got a request of 300 entries, 512 in each of 1 ciphertexts, expected 1500 entries, 1024 "
                 "in each of 2 "
                 "ciphertexts"),
        shape_error);
    const auto reply = one.apply(query.request);
    CHECK_THROWS_WITH_AS(
        c.decrypt(two.plan(), reply, query),
        Contains("got a reply for a 8 x 300 matrix in 2 products, expected a 8 x 1500 matrix in 4 products"),
        shape_error);
}

TEST_CASE("a request for another d is refused, though it has as many ciphertexts") {
    client<small> c;
    const default_server one(random_matrix(8, 300, 1));
    const default_server other(random_matrix(8, 301, 1));
    REQUIRE(one.plan().inputs() == other.plan().inputs());
    const auto query = c.encrypt(one.plan(), random_state(300, 1));
    CHECK_THROWS_AS(other.apply(query.request), shape_error);
}

TEST_CASE("requests and replies whose scale was changed are refused") {
    client<small> c;
    const default_server s(random_matrix(8, 300, 1));
    auto query = c.encrypt(s.plan(), random_state(300, 1));
    auto reply = s.apply(query.request);
    for (const double scale : {0.0, -1.0, 2 * small::scale, not_a_number}) {
        reply.outputs.back().scale = scale;
        CHECK_THROWS_AS(c.decrypt(s.plan(), reply, query), parameter_error);
        query.request.inputs.back().scale = scale;
        CHECK_THROWS_AS(s.apply(query.request), parameter_error);
    }
}

TEST_CASE("a layout that layout::of does not give makes no plan") {
    const default_server s(random_matrix(8, 300, 1));
    const auto wrong = [&](auto change) {
        auto layout = s.layout();
        change(layout);
        CHECK_THROWS_AS(packing_plan{layout}, tensafe::error);
    };
    wrong([](auto& l) { l.rank = 0; });
    wrong([](auto& l) { l.rank = std::numeric_limits<std::size_t>::max(); });
    wrong([](auto& l) { l.d = 0; });
    wrong([](auto& l) { l.row_norm = -1; });
    wrong([](auto& l) { l.row_norm = 2 * l.largest_row_norm(); });
    wrong([](auto& l) { l.row_norm = not_a_number; });
    wrong([](auto& l) { l = {}; });
}

TEST_CASE("a client with a stored key decrypts what another with that key encrypted") {
    tensafe::random::seed stored;
    stored.bytes[0] = 7;
    client<small> first{tensafe::ckks::secret_key<small>(stored)};
    const client<small> second{tensafe::ckks::secret_key<small>(stored)};
    const matrix a = random_matrix(8, 300, 1);
    const default_server s(a);
    const auto h = random_state(300, 1);
    const auto query = first.encrypt(s.plan(), h);
    const auto reply = s.apply(query.request);
    CHECK(second.decrypt(s.plan(), reply, query) == first.decrypt(s.plan(), reply, query));
    // Fresh randomness all the same.
    client<small> again{tensafe::ckks::secret_key<small>(stored)};
    CHECK_FALSE(again.encrypt(s.plan(), h).request.inputs[0].seed ==
                first.encrypt(s.plan(), h).request.inputs[0].seed);
}

TEST_CASE("one client serves two servers, in any order") {
    client<small> c;
    const matrix a = random_matrix(6, 300, 1);
    const matrix b = random_matrix(11, 1100, 2);
    const default_server first(a);
    const default_server second(b);
    const std::vector<float> g = random_state(300, 3);
    const std::vector<float> h = random_state(1100, 4);
    const auto to_first = c.encrypt(first.plan(), g);
    const auto to_second = c.encrypt(second.plan(), h);
    const auto from_second = second.apply(to_second.request);
    const auto from_first = first.apply(to_first.request);
    CHECK(largest_difference(c.decrypt(first.plan(), from_first, to_first), product(a, g)) <
          most_deviations * deviation(first.layout(), norm(g)));
    CHECK(largest_difference(c.decrypt(second.plan(), from_second, to_second), product(b, h)) <
          most_deviations * deviation(second.layout(), norm(h)));
}

TEST_CASE_TEMPLATE("a workspace and a reply that served other tokens and other shapes change no bit", With,
                   paired, paired_rescaled) {
    using server_type = slot_server<small, typename With::packing>;
    client<small> c;
    const std::vector<matrix> weights = {random_matrix(12, 300, 1), random_matrix(3, 1500, 2),
                                         random_matrix(1, 7, 3)};
    typename server_type::workspace work;
    typename server_type::reply_type reply;
    for (int round = 0; round < 2; ++round) {
        for (const matrix& a : weights) {
            const server_type s(a);
            for (std::uint64_t token = 0; token < 2; ++token) {
                const auto request = c.encrypt(s.plan(), random_state(a.columns, token)).request;
                s.apply(request, work, reply);
                CHECK(reply.outputs.size() == s.plan().outputs());
                CHECK(same_replies(reply, s.apply(request)));
            }
        }
    }
}

TEST_CASE("two threads apply one server at once, each with its own workspace, and change no bit") {
    client<small> c;
    const default_server s(random_matrix(16, 1100, 1));
    constexpr std::size_t tokens = 6;
    std::vector<default_server::request_type> requests;
    std::vector<default_server::reply_type> expected;
    for (std::size_t token = 0; token < tokens; ++token) {
        requests.push_back(c.encrypt(s.plan(), random_state(1100, token)).request);
        expected.push_back(s.apply(requests.back()));
    }
    std::vector<std::vector<default_server::reply_type>> got(2);
    on_threads(got.size(), [&](std::size_t t) {
        default_server::workspace work;
        for (const auto& r : requests) {
            got[t].emplace_back();
            s.apply(r, work, got[t].back());
        }
    });
    for (const auto& replies : got) {
        for (std::size_t token = 0; token < tokens; ++token) {
            CHECK(same_replies(replies[token], expected[token]));
        }
    }
}

TEST_CASE("encrypting one state twice shows different ciphertexts and different seeds") {
    client<small> c;
    const default_server s(random_matrix(2, 1500, 1));
    const std::vector<float> h = random_state(1500, 1);
    const auto first = c.encrypt(s.plan(), h).request;
    const auto second = c.encrypt(s.plan(), h).request;
    CHECK_FALSE(first.inputs[0].seed == second.inputs[0].seed);
    CHECK_FALSE(first.inputs[0].seed == first.inputs[1].seed);
    CHECK_FALSE(first.inputs[0].c0 == second.inputs[0].c0);
}

TEST_CASE("another client's key opens nothing") {
    client<small> c;
    const client<small> stranger;
    const default_server s(random_matrix(2, 300, 1));
    const std::vector<float> h = random_state(300, 1);
    const auto query = c.encrypt(s.plan(), h);
    const auto reply = s.apply(query.request);
    CHECK(largest_difference(stranger.decrypt(s.plan(), reply, query), c.decrypt(s.plan(), reply, query)) >
          100);
}

TEST_CASE("bytes is the length of a message: packed residues and seeds, and both polynomials of a reply") {
    client<small> c;
    const default_server s(random_matrix(8, 1500, 1));
    const auto request = c.encrypt(s.plan(), random_state(1500, 1)).request;
    constexpr std::size_t polynomial = 2048 / 8 * (60 + 40 + 40 + 60);
    CHECK(request.bytes() == 64 + 2 * (32 + polynomial));
    CHECK(s.apply(request).bytes() == 64 + 4 * (8 + 2 * polynomial));
}

static_assert(!std::is_constructible_v<slot_server<small>, const matrix&, const ckks::secret_key<small>&>,
              "a server must not take a secret key");
static_assert(!std::is_copy_constructible_v<client<small>>,
              "a client is not copied: two would share randomness");
