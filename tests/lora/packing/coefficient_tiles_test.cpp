#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

TEST_CASE_TEMPLATE("the encrypted product equals A*h up to the predicted error, at the edges of every shape",
                   Server, tiles<1>, tiles<4>, tiles<32>, bare) {
    session with = session_for<Server>();
    constexpr std::size_t block = Server::layout_type::block;
    constexpr std::size_t rows = Server::layout_type::rows;
    for (const std::size_t d : {std::size_t{1}, block - 1, block, block + 1, 2 * block, 2 * block + 1}) {
        for (const std::size_t rank : {std::size_t{1}, rows - 1, rows, rows + 1}) {
            if (rank == 0) {
                continue;
            }
            INFO("d := ", d, ", rank := ", rank);
            const matrix a = random_matrix(rank, d, rank + 1000 * d);
            CHECK(error_in_deviations(with, Server(a), a, random_state(d, d)) < most_deviations);
        }
    }
}

TEST_CASE_TEMPLATE("random shapes give A*h up to the predicted error, in float and in double", Server,
                   tiles<1>, tiles<4>, tiles<32>, bare) {
    std::mt19937_64 generator(17);
    session with = session_for<Server>();
    for (int round = 0; round < trials(8); ++round) {
        const std::size_t rank = 1 + generator() % 128;
        const std::size_t d = 1 + generator() % 5000;
        INFO("rank := ", rank, ", d := ", d);
        const matrix a = random_matrix(rank, d, generator());
        const Server s(a);
        const std::vector<float> h = random_state(d, generator());
        CHECK(error_in_deviations(with, s, a, h) < most_deviations);
        std::vector<double> wide(h.begin(), h.end());
        for (double& x : wide) {
            x *= 1 + 0x1p-30;  // no float
        }
        CHECK(error_in_deviations(with, s, a, wide) < most_deviations);
    }
}

namespace {

using tensafe::arith::uint128;

/// The nearest integer as a signed one of 128 bits.
uint128 rounded(double x) {
    const auto magnitude = static_cast<uint128>(std::round(std::fabs(x)));
    return x < 0 ? 0 - magnitude : magnitude;
}

}  // namespace

TEST_CASE("the product of the encoded polynomials holds the integer inner products where they are read") {
    const auto check = [](auto of_rows) {
        constexpr int rows = decltype(of_rows)::value;
        using layout_type = layout<small, coefficient_tiles<rows>, protects_adapter_rows<>>;
        using basis = small::basis;
        const std::size_t d = layout_type::block + 3;
        const matrix a = random_matrix(rows + 1, d, 1);
        const std::vector<float> h = random_state(d, 2);
        const auto l = layout_type::of(a.rows, d, norm(a.row(0)) * 2);
        const reply_budget budget = l.budget();
        const double scale = l.message_scale(budget, norm(h));

        // In 128 bits, signed: |weight| < 2^18, |message| < 2^72.
        std::vector<uint128> expected(l.outputs() * layout_type::rows);
        for (std::size_t r = 0; r < a.rows; ++r) {
            for (std::size_t t = 0; t < d; ++t) {
                expected[r] += rounded(static_cast<double>(a.row(r)[t]) * (budget.weight_norm / l.row_norm)) *
                               rounded(static_cast<double>(h[t]) * scale);
            }
        }
        const auto compare = [&]<int I>() {
            constexpr tensafe::arith::word q = basis::prime<I>;
            for (std::size_t o = 0; o < l.outputs(); ++o) {
                std::vector<tensafe::arith::word> sum(small::degree);
                for (std::size_t i = 0; i < l.inputs(); ++i) {
                    const auto weights = l.encode_weights(a, budget, o, i);
                    message_workspace<small> work;
                    l.encode_message(view(h), i, scale, ~std::uint64_t{0}, work);
                    const auto product = tests::reference_multiply(weights.value.template limb<I>(),
                                                                   work.message.template limb<I>(), q);
                    for (std::size_t k = 0; k < sum.size(); ++k) {
                        sum[k] = (sum[k] + product[k]) % q;
                    }
                }
                for (std::size_t k = 0; k < layout_type::rows; ++k) {
                    const uint128 x = expected[o * layout_type::rows + k];
                    const bool negative = x >> 127 != 0;
                    const auto magnitude = static_cast<tensafe::arith::word>((negative ? 0 - x : x) % q);
                    INFO("rows := ", rows, ", o := ", o, ", k := ", k);
                    CHECK(sum[k * layout_type::block] ==
                          (negative && magnitude != 0 ? q - magnitude : magnitude));
                }
            }
        };
        compare.template operator()<0>();
        compare.template operator()<1>();
    };
    check(std::integral_constant<int, 1>());
    check(std::integral_constant<int, 4>());
    check(std::integral_constant<int, 32>());
}

TEST_CASE_TEMPLATE("rows that select one entry return that entry, at every border of a block", Server,
                   tiles<1>, tiles<4>, tiles<32>) {
    constexpr std::size_t block = Server::layout_type::block;
    const std::size_t d = 2 * block + 5;
    session with = session_for<Server>();
    const std::vector<float> h = random_state(d, 3);
    for (const std::size_t entry :
         {std::size_t{0}, std::size_t{1}, block - 1, block, block + 1, 2 * block - 1, 2 * block, d - 1}) {
        CAPTURE(entry);
        // Each row in turn alone, then with another sign in every row.
        const std::size_t rank = Server::layout_type::rows + 2;
        matrix a(rank, d);
        for (std::size_t r = 0; r < rank; ++r) {
            a.row(r)[entry] = r % 2 == 0 ? 1.0F : -1.0F;
            a.row(r)[(entry + r + 1) % d] = 0.5F;
        }
        CHECK(error_in_deviations(with, Server(a), a, h) < most_deviations);
        for (const std::size_t alone : {std::size_t{0}, rank / 2, rank - 1}) {
            matrix single(rank, d);
            single.row(alone)[entry] = 1;
            const Server s(single);
            const std::vector<double> got = encrypted_product(with, s, h);
            std::vector<double> expected(rank);
            expected[alone] = static_cast<double>(h[entry]);
            CHECK(largest_difference(got, expected) < most_deviations * deviation(s.layout(), norm(h)));
        }
    }
}

TEST_CASE("the relative error does not depend on the size of h or of A, nor on the direction of h") {
    session with = session_for<tiles<4>>();
    const matrix a = random_matrix(9, 700, 1);
    const tiles<4> s(a);
    for (const double size : {1e-30, 1e-3, 1.0, 1e30}) {
        CAPTURE(size);
        std::vector<float> h = random_state(700, 4);
        for (float& x : h) {
            x = static_cast<float>(static_cast<double>(x) * size);
        }
        CHECK(error_in_deviations(with, s, a, h) < most_deviations);
        std::vector<double> few(700);
        few[0] = size;
        few[255] = -3 * size;
        few[256] = size / 7;
        CHECK(error_in_deviations(with, s, a, few) < most_deviations);
        matrix scaled = a;
        for (float& x : scaled.values) {
            x = static_cast<float>(static_cast<double>(x) * std::fmin(size, 1e25));
        }
        CHECK(error_in_deviations(with, tiles<4>(scaled), scaled, random_state(700, 5)) < most_deviations);
    }
}

TEST_CASE("rows of very different norms err by the same amount, that of the longest") {
    session with = session_for<tiles<4>>();
    matrix a = random_matrix(12, 700, 1);
    for (std::size_t r = 0; r < a.rows; ++r) {
        scale(a.row(r), std::pow(10.0F, -static_cast<float>(r)));
    }
    CHECK(error_in_deviations(with, tiles<4>(a), a, random_state(700, 2)) < most_deviations);
}

TEST_CASE("zeros on either side give zeros") {
    session with = session_for<tiles<4>>();
    CHECK(norm(encrypted_product(with, tiles<4>(matrix(6, 300)), random_state(300, 1))) == 0);
    const tiles<4> s(random_matrix(6, 300, 1));
    CHECK(norm(encrypted_product(with, s, std::vector<float>(300))) < 1e-100);
}

TEST_CASE("answers that fill the range do not wrap around, with either sign") {
    session with = session_for<tiles<4>>();
    for (const std::size_t d : {1UL, 300UL, 3000UL}) {
        CAPTURE(d);
        const std::vector<float> h = random_state(d, d);
        matrix a(6, d);
        for (std::size_t r = 0; r < a.rows; ++r) {
            for (std::size_t t = 0; t < d; ++t) {
                a.row(r)[t] = r % 2 == 0 ? h[t] : -h[t];
            }
        }
        const tiles<4> s(a);
        const reply_budget budget = s.layout().budget();
        // More than 98 % of Q/2, so that nothing of the range is given away either.
        const double coefficient = budget.weight_norm * s.layout().message_scale(budget, norm(h)) * norm(h);
        CHECK(coefficient > 0.98 * budget.modulus / 2);
        CHECK(coefficient < budget.range);
        CHECK(error_in_deviations(with, s, a, h) < most_deviations);
        std::vector<double> opposite(h.begin(), h.end());
        for (double& x : opposite) {
            x = -x;
        }
        CHECK(error_in_deviations(with, s, a, opposite) < most_deviations);
    }
}

TEST_CASE("layouts of impossible shapes and norms are refused") {
    using layout_type = tiles<4>::layout_type;
    constexpr std::size_t most = tensafe::lora::detail::largest_dimension;
    for (const auto& [rank, d] :
         {std::pair<std::size_t, std::size_t>{0, 5}, {5, 0}, {most + 1, 5}, {5, most + 1}}) {
        CHECK_THROWS_AS(layout_type::of(rank, d, 1), shape_error);
    }
    CHECK(layout_type::of(most, most, 1).inputs() == (most + 255) / 256);
    for (const double bad : {-1.0, not_a_number, infinity, 0x1.1p100}) {
        CHECK_THROWS_AS(layout_type::of(5, 5, bad), parameter_error);
    }
    CHECK(layout_type::of(5, 5, 0) == layout_type{5, 5, 0});
    CHECK_THROWS_AS(tiles<4>(matrix(0, 5)), shape_error);
    CHECK_THROWS_AS(tiles<4>(matrix(5, 0)), shape_error);
    matrix short_of_one = random_matrix(4, 50, 1);
    short_of_one.values.pop_back();
    CHECK_THROWS_AS(tiles<4>{short_of_one}, shape_error);
}

namespace {
struct coarse_precision {
    static constexpr double relative_error = 0.1;
};
}  // namespace

TEST_CASE("a set that cannot hold the replies is refused, and the message says why") {
    using one_limb = ckks::parameters<11, ckks::limb_bits<42>, 20, ckks::insecure_for_tests>;
    using tiny = ckks::parameters<10, ckks::limb_bits<30>, 20, ckks::insecure_for_tests>;
    const auto message = [](auto layout, std::size_t d) {
        return refusal<parameter_error>([&] { decltype(layout)::of(3, d, 1); });
    };
    const std::string short_modulus =
        message(layout<one_limb, coefficient_tiles<4>, protects_adapter_rows<>>(), 2048);
    CHECK(contains(short_modulus, "degree 2048, cannot hold replies for a 3 x 2048 matrix"));
    CHECK(contains(short_modulus, "too short to hide the noise"));
    CHECK(contains(message(layout<tiny, coefficient_tiles<4>, protects_adapter_rows<>>(), 1000),
                   "more bits than the client's arithmetic has room for"));
    CHECK(contains(
        message(layout<small, coefficient_tiles<4>, protects_adapter_rows<worst_case, coarse_precision>>(),
                1),
        "noise would fill its modulus"));
}

TEST_CASE("entries that are no numbers are refused by their place") {
    matrix a = random_matrix(4, 50, 1);
    a.row(2)[13] = std::numeric_limits<float>::quiet_NaN();
    CHECK(contains(refusal<encoding_error>([&] { tiles<4> s(a); }),
                   "row 2, column 13 of the matrix is not a number"));
    a.row(2)[13] = -std::numeric_limits<float>::infinity();
    CHECK(contains(refusal<encoding_error>([&] { tiles<4> s(a); }), "is infinite"));
    client<small> c;
    const tiles<4> s(random_matrix(4, 300, 1));
    std::vector<double> h(300, 1);
    h[257] = infinity;
    CHECK_THROWS_WITH_AS(c.encrypt(s.plan(), h), Contains("entry 257 of the hidden state is infinite"),
                         encoding_error);
    h[257] = 1e200;
    CHECK_THROWS_WITH_AS(c.encrypt(s.plan(), h), Contains("passes the range of double"), encoding_error);
    h.pop_back();
    CHECK_THROWS_AS(c.encrypt(s.plan(), h), shape_error);
    h.push_back(1);
    h[257] = 1;
    for (const double overflow_margin : {0.5, 0.0, -1.0, 0x1p21, not_a_number}) {
        CHECK_THROWS_AS(c.encrypt(s.plan(), h, overflow_margin), parameter_error);
    }
}

TEST_CASE("bare replies need no room for a flood") {
    using tiny = ckks::parameters<11, ckks::limb_bits<41>, 20>;
    const server<tiny, coefficient_tiles<4>, reveals_adapter_rows> s(random_matrix(8, 2048, 1));
    CHECK(s.layout().budget().flood.deviation() == 0);
    CHECK_THROWS_AS((server<tiny, coefficient_tiles<4>>(random_matrix(8, 2048, 1))), parameter_error);
}
