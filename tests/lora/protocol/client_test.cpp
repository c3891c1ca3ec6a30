#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

TEST_CASE("hidden states in float and double give the same product") {
    client<small_slots> c;
    const matrix a = random_matrix(5, 200, 1);
    const slot_server<> s(a);
    const std::vector<float> h = random_state(200, 2);
    const std::vector<double> wide(h.begin(), h.end());
    CHECK(largest_difference(encrypted_product(c, s, wide), product(a, h)) <
          most_deviations * deviation(s.layout(), norm(h)));
}

TEST_CASE("a client with a stored key decrypts what another with that key encrypted") {
    const tensafe::random::seed stored = numbered_seed(7);
    client<small_slots> first{tensafe::ckks::secret_key<small_slots>(stored)};
    const client<small_slots> second{tensafe::ckks::secret_key<small_slots>(stored)};
    const matrix a = random_matrix(8, 300, 1);
    const slot_server<> s(a);
    const auto h = random_state(300, 1);
    const auto query = first.encrypt(s.plan(), h);
    const auto reply = s.apply(query.request);
    CHECK(second.decrypt(s.plan(), reply, query) == first.decrypt(s.plan(), reply, query));
    // Fresh randomness all the same.
    client<small_slots> again{tensafe::ckks::secret_key<small_slots>(stored)};
    CHECK_FALSE(again.encrypt(s.plan(), h).request.inputs[0].seed ==
                first.encrypt(s.plan(), h).request.inputs[0].seed);
}

TEST_CASE("one client serves two servers, in any order") {
    client<small_slots> c;
    const matrix a = random_matrix(6, 300, 1);
    const matrix b = random_matrix(11, 1100, 2);
    const slot_server<> first(a);
    const slot_server<> second(b);
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

TEST_CASE("encrypting one state twice shows different ciphertexts and different seeds") {
    client<small_slots> c;
    const slot_server<> s(random_matrix(2, 1500, 1));
    const std::vector<float> h = random_state(1500, 1);
    const auto first = c.encrypt(s.plan(), h).request;
    const auto second = c.encrypt(s.plan(), h).request;
    CHECK_FALSE(first.inputs[0].seed == second.inputs[0].seed);
    CHECK_FALSE(first.inputs[0].seed == first.inputs[1].seed);
    CHECK_FALSE(first.inputs[0].c0 == second.inputs[0].c0);
}

TEST_CASE("a scale that no query has is refused") {
    sides<small> with = sides_for<narrow>();
    const narrow s(random_matrix(4, 300, 1));
    const auto query = with.client.encrypt(s.plan(), random_state(300, 1));
    const auto reply = s.apply(query.request, with.pool);
    for (const double scale : {0.0, -1.0, infinity, not_a_number}) {
        auto other = query;
        other.scale = scale;
        CHECK_THROWS_AS(with.client.decrypt(s.plan(), reply, other), parameter_error);
    }
}

static_assert(!std::is_copy_constructible_v<client<small_slots>>,
              "a client is not copied: two would share randomness");
