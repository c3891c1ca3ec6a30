#include <tensafe/lora/packing/replicated_slots.hpp>

#include "../tiles_fixture.hpp"

using namespace tests;
namespace ckks = tensafe::ckks;
using namespace tensafe::lora;
using tiles_fixture::deviation;
using tiles_fixture::error_in_deviations;
using tiles_fixture::largest_difference;
using tiles_fixture::most_deviations;

namespace {

/// 1024 slots; requests use the first two limbs.
using small = ckks::parameters<11, ckks::limb_bits<60, 40, 40, 60>, 40, ckks::insecure_for_tests>;
using paired = server<small, replicated_slots<paired_rows>, protects_adapter_rows<>>;
using single = server<small, replicated_slots<single_rows>, protects_adapter_rows<>>;

template <class P, class Packing, class Protection, class Real>
std::vector<double> encrypted_product(client<P>& c, const server<P, Packing, Protection>& s,
                                      const std::vector<Real>& h) {
    const auto q = c.encrypt(s.plan(), h);
    const auto nonce = tensafe::random::fresh_seed();
    rerandomization_pool<P> zeros(nonce, c.rerandomization_key(nonce), s.layout().subring_log_n());
    return c.decrypt(s.plan(), s.apply(q.request, zeros), q);
}

}  // namespace

TEST_CASE_TEMPLATE("protected slots give A*h up to the predicted error, for shapes of every kind", Server,
                   paired, single) {
    client<small> c;
    for (const auto& s : tiles_fixture::slot_shapes) {
        INFO("s.rank := ", s.rank, ", s.d := ", s.d);
        const matrix a = random_matrix(s.rank, s.d, s.rank + 1000 * s.d);
        const std::vector<float> h = random_state(s.d, s.d);
        const Server of_a(a);
        CHECK(error_in_deviations(encrypted_product(c, of_a, h), of_a, a, h) < most_deviations);
    }
}

TEST_CASE(
    "the predicted error of paired slots is no overestimate: over many answers it is what is measured") {
    client<small> c;
    const std::size_t d = 300;
    matrix a = random_matrix(400, d, 1);
    for (std::size_t r = 0; r < a.rows; ++r) {
        const double length = norm(a.row(r));
        for (float& x : a.row(r)) {
            x = static_cast<float>(static_cast<double>(x) / length);
        }
    }
    const std::vector<float> h = random_state(d, 2);
    const paired s(a);
    std::vector<double> errors = encrypted_product(c, s, h);
    const std::vector<double> expected = product(a, h);
    for (std::size_t k = 0; k < errors.size(); ++k) {
        errors[k] -= expected[k];
    }
    // The root mean square of 400 errors spreads by 1/sqrt(800), 3.5 %: 4.2 times that.
    const double ratio = norm(errors) / std::sqrt(400.0) / deviation(s.layout(), norm(h));
    CHECK(ratio > 0.85);
    CHECK(ratio < 1.15);
}

TEST_CASE_TEMPLATE("answers that fill the range do not wrap around, in the worst direction", Server, paired,
                   single) {
    // Rows along h, with the signs for which all of a pair's amplitude, sqrt(2) of one answer, meets in one
    // coefficient: see the same test of slot_server.
    client<small> c;
    for (const std::size_t d : {60UL, 1024UL}) {
        for (const float pattern : {1.0F, -1.0F}) {
            matrix a(16, d);
            for (std::size_t r = 0; r < a.rows; ++r) {
                std::fill(a.row(r).begin(), a.row(r).end(), r % 2 == 0 ? 0.25F : 0.25F * pattern);
            }
            const Server s(a);
            for (const double size : {1e-6, -1.0, 1e6}) {
                INFO("d := ", d, ", pattern := ", pattern, ", size := ", size);
                const std::vector<double> h(d, size);
                CHECK(largest_difference(encrypted_product(c, s, h), product(a, h)) <
                      1e-4 * std::fabs(product(a, h)[0]));
            }
        }
    }
}

TEST_CASE("a set of four limbs serves protected slots with requests of two") {
    using P = ckks::n8192_l4;
    using server_type = server<P, replicated_slots<>, protects_adapter_rows<>>;
    static_assert(request_level<P> == 1);
    client<P> c;
    const matrix a = random_matrix(32, 1536, 3);
    const std::vector<float> h = random_state(1536, 4);
    const server_type s(a);
    CHECK(c.encrypt(s.plan(), h).request.bytes() == 64 + 32 + 8192 / 8 * (60 + 40));
    CHECK(error_in_deviations(encrypted_product(c, s, h), s, a, h) < most_deviations);
}

TEST_CASE("zeros on either side give zeros, and h may have any size") {
    client<small> c;
    CHECK(norm(encrypted_product(c, paired(matrix(4, 300)), random_state(300, 1))) == 0);
    const matrix a = random_matrix(4, 300, 1);
    const paired s(a);
    CHECK(norm(encrypted_product(c, s, std::vector<double>(300))) < 1e-100);
    for (const double size : {1e-30, 1e30}) {
        std::vector<double> h(300);
        const std::vector<float> direction = random_state(300, 2);
        std::transform(direction.begin(), direction.end(), h.begin(),
                       [&](float x) { return static_cast<double>(x) * size; });
        CHECK(error_in_deviations(encrypted_product(c, s, h), s, a, h) < most_deviations);
    }
}

TEST_CASE("messages for another layout are refused") {
    client<small> c;
    const paired s(random_matrix(8, 300, 1));
    const paired other(random_matrix(8, 1500, 1));
    const auto q = c.encrypt(s.plan(), random_state(300, 1));
    const auto nonce = tensafe::random::fresh_seed();
    const auto key = c.rerandomization_key(nonce);
    rerandomization_pool<small> zeros(nonce, key, s.layout().subring_log_n());
    rerandomization_pool<small> other_zeros(nonce, key, other.layout().subring_log_n());
    REQUIRE(s.layout().subring_log_n() != other.layout().subring_log_n());
    CHECK_THROWS_AS(other.apply(q.request, other_zeros), shape_error);
    CHECK_THROWS_AS(s.apply(q.request, other_zeros), parameter_error);
    const auto reply = s.apply(q.request, zeros);
    CHECK_THROWS_AS(c.decrypt(other.plan(), reply, q), shape_error);
    auto layout = s.layout();
    layout.row_norm = -1;
    CHECK_THROWS_AS(packing_plan{layout}, parameter_error);
    layout.rank = 0;
    CHECK_THROWS_AS(packing_plan{layout}, shape_error);
}
