#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

TEST_CASE("one encrypted state serves the stacked and balanced q, k and v sites") {
    const std::vector<adapter_site> originals = {random_site(64, 8, 300, 1), random_site(16, 5, 300, 2),
                                                 random_site(16, 8, 300, 3)};
    std::vector<adapter_site> sites;
    for (const adapter_site& site : originals) {
        sites.push_back(normalize_rows(site));
    }
    const std::vector<std::reference_wrapper<const adapter_site>> references(sites.begin(), sites.end());
    const site_stack stack(references);
    sides<small> with = sides_for<tiles<4>>();
    const tiles<4> s(stack.rows());
    CHECK(std::fabs(s.layout().row_norm - 1) < 1e-6);
    const std::vector<float> h = random_state(300, 4);
    const std::vector<double> answers = encrypted_product(with, s, h);
    for (std::size_t i = 0; i < sites.size(); ++i) {
        const std::vector<double> got = apply_b(sites[i], stack.part(answers, i));
        const std::vector<double> expected = plain_delta(originals[i], h);
        // An entry of a delta adds up rank errors, times entries of B; and what normalize_rows() rounds.
        double longest_row = 0;
        for (std::size_t k = 0; k < sites[i].d_out(); ++k) {
            longest_row = std::fmax(longest_row, norm(sites[i].b.row(k)));
        }
        CHECK(largest_difference(got, expected) <
              sites[i].scale * longest_row * most_deviations * deviation(s.layout(), norm(h)) +
                  1e-6 * norm(expected));
    }
}

TEST_CASE("in mode blind the reply is the delta") {
    const adapter_site site = random_site(24, 4, 300, 1);
    const matrix merged = merge(site);
    CHECK(merged.rows == served_rows(mode::blind, site.rank(), site.d_out()));
    CHECK(merged.columns == 300);
    sides<small> with = sides_for<tiles<4>>();
    const tiles<4> s(merged);
    const std::vector<float> h = random_state(300, 2);
    const std::vector<double> expected = plain_delta(site, h);
    CHECK(largest_difference(product(merged, h), expected) < 1e-6 * norm(expected));
    CHECK(largest_difference(encrypted_product(with, s, h), expected) <
          most_deviations * deviation(s.layout(), norm(h)) + 1e-6 * norm(expected));
}

TEST_CASE("balancing gives every row of A the norm 1, keeps deltas, and leaves rows of zeros") {
    adapter_site site = random_site(12, 6, 200, 1);
    scale(site.a.row(1), 1000);
    for (float& x : site.a.row(2)) {
        x = 0;
    }
    const adapter_site result = normalize_rows(site);
    for (std::size_t r = 0; r < site.rank(); ++r) {
        const double length = norm(result.a.row(r));
        CHECK(std::fabs(length - (r == 2 ? 0 : 1)) < 1e-6);
    }
    for (std::size_t k = 0; k < site.d_out(); ++k) {
        CHECK(result.b.row(k)[2] == site.b.row(k)[2]);
    }
    const std::vector<float> h = random_state(200, 2);
    const std::vector<double> expected = plain_delta(site, h);
    CHECK(largest_difference(plain_delta(result, h), expected) < 1e-6 * norm(expected));
    CHECK(served_rows(mode::client_held_b, site.rank(), site.d_out()) == 6);
}

TEST_CASE("sites whose matrices do not fit each other are neither balanced nor merged") {
    adapter_site site = random_site(12, 6, 200, 1);
    site.b = random_matrix(12, 5, 2);
    CHECK_THROWS_WITH_AS(normalize_rows(site), Contains("a B of 5 columns, expected 6"), shape_error);
    CHECK_THROWS_WITH_AS(merge(site), Contains("a B of 5 columns, expected 6"), shape_error);
    site = random_site(12, 6, 200, 1);
    site.a.values.pop_back();
    CHECK_THROWS_AS(normalize_rows(site), shape_error);
    CHECK_THROWS_AS(merge(site), shape_error);
    site = random_site(12, 6, 200, 1);
    site.b.values.pop_back();
    CHECK_THROWS_AS(normalize_rows(site), shape_error);
    CHECK_THROWS_AS(merge(site), shape_error);
}
