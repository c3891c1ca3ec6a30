#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

TEST_CASE_TEMPLATE("the encrypted product equals A*h up to the predicted error, at the edges of every shape",
                   Server, tiles<1>, tiles<4>, tiles<32>, bare) {
    sides<small> with = sides_for<Server>();
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

TEST_CASE("the relative error does not depend on the size of h or of A, nor on the direction of h") {
    sides<small> with = sides_for<tiles<4>>();
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
    sides<small> with = sides_for<tiles<4>>();
    matrix a = random_matrix(12, 700, 1);
    for (std::size_t r = 0; r < a.rows; ++r) {
        scale(a.row(r), std::pow(10.0F, -static_cast<float>(r)));
    }
    CHECK(error_in_deviations(with, tiles<4>(a), a, random_state(700, 2)) < most_deviations);
}

TEST_CASE("answers that fill the range do not wrap around, with either sign") {
    sides<small> with = sides_for<tiles<4>>();
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

// Average-case ranges: what passes them shows in checksum rows.

namespace {

enum class outcome { right, refused, wrong };

template <class Server>
outcome outcome_of(sides<small>& with, const Server& s, const matrix& a, const std::vector<float>& h) {
    try {
        return error_in_deviations(with, s, a, h) < most_deviations ? outcome::right : outcome::wrong;
    } catch (const range_exceeded_error&) {
        return outcome::refused;
    }
}

/// x in units of the modulus, after reduction modulo it.
double wrapped(double x) {
    return x - std::round(x);
}

/// Whether the client refuses a reply in which some answers, in units of Q, have these values and the others
/// are zero, when the noise of the checksum rows is 6 deviations to one side.
template <int Rows, int Factor>
bool is_refused(std::size_t rank, std::size_t d, const std::vector<std::pair<std::size_t, double>>& answers,
                double noise) {
    using layout_type = layout<small, coefficient_tiles<Rows>, protects_adapter_rows<average_case<Factor>>>;
    const layout_type l{rank, d, 1};
    const reply_budget budget = l.budget();
    std::vector<double> coefficients(l.outputs() * layout_type::rows);
    for (const auto& [row, answer] : answers) {
        coefficients[row] = wrapped(answer) * budget.modulus;
    }
    const double rounding = lora::detail::switch_deviation(static_cast<double>(small::degree)) *
                            tensafe::power_of_two(-budget.checksum_bits);
    const std::size_t row_outputs = (rank + layout_type::rows - 1) / layout_type::rows;
    const std::size_t in_output = std::min<std::size_t>(layout_type::rows, 4);
    for (std::size_t j = 0; j < (rank + 31) / 32 * 4; ++j) {
        double check = noise * rounding;
        for (const auto& [row, answer] : answers) {
            check += row / 32 == j / 4 ? lora::detail::checksum_weight(row % 32, j % 4) * answer : 0;
        }
        coefficients[(row_outputs + j / in_output) * layout_type::rows + j % in_output] =
            wrapped(check) * budget.modulus;
    }
    try {
        decryption_workspace<small> work;
        work.coefficients = tensafe::memory::secret_buffer<double>(coefficients.size());
        std::copy(coefficients.begin(), coefficients.end(), work.coefficients.begin());
        std::vector<double> answers_read(rank);
        l.collect(budget, work, 1, answers_read);
    } catch (const range_exceeded_error&) {
        return true;
    }
    return false;
}

/// The same for all single rows and pairs of rows, and many sizes of answers: how many were judged wrongly.
template <int Rows, int Factor>
int wrong_verdicts(std::size_t rank, std::size_t d) {
    using layout_type = layout<small, coefficient_tiles<Rows>, protects_adapter_rows<average_case<Factor>>>;
    const reply_budget budget = layout_type{rank, d, 1}.budget();
    // Of a row parallel to h.
    const double largest = std::sqrt(static_cast<double>(d)) * budget.typical / budget.modulus;
    const auto judge = [&](const std::vector<std::pair<std::size_t, double>>& answers) {
        bool wraps = false;
        for (const auto& [row, answer] : answers) {
            // Closer to Q/2 than a thousandth it may be either.
            if (std::fabs(std::fabs(wrapped(answer)) - 0.5) < 1e-3) {
                return 0;
            }
            wraps |= std::fabs(answer) > 0.5;
        }
        return static_cast<int>(is_refused<Rows, Factor>(rank, d, answers, 6) != wraps) +
               static_cast<int>(is_refused<Rows, Factor>(rank, d, answers, -6) != wraps);
    };
    int wrong = 0;
    for (std::size_t r = 0; r < rank; ++r) {
        for (double part = 1; part > 0; part -= 0.02) {
            wrong += judge({{r, part * largest}});
        }
        for (std::size_t other = 0; other < r; ++other) {
            for (const double part : {1.0, 0.9, 0.8, 0.6}) {
                for (const double ratio : {1.0, -1.0, 0.9, 0.7, -0.5, 0.1}) {
                    wrong += judge({{r, part * largest}, {other, part * ratio * largest}});
                }
            }
        }
    }
    return wrong;
}

}  // namespace

TEST_CASE(
    "an answer that passes an average-case range is refused, whichever row it is, and with overflow margin "
    "right") {
    sides<small> with = sides_for<narrow>();
    const std::size_t d = 400;  // a row parallel to h has 20 / 6 times the range
    const matrix a = balanced(random_matrix(40, d, 1));
    const narrow s(a);
    for (std::size_t r = 0; r < a.rows; ++r) {
        for (const float sign : {1.0F, -1.0F}) {
            INFO("r := ", r, ", sign := ", sign);
            std::vector<float> h = row_of(a, r);
            scale(h, sign);
            CHECK(outcome_of(with, s, a, h) == outcome::refused);
            // The others follow from the type.
            if (r % 10 == 0) {
                const std::vector<double> got = encrypted_product(with, s, h, 4);
                CHECK(largest_difference(got, product(a, h)) <
                      4 * most_deviations * deviation(s.layout(), norm(h)));
            }
        }
    }
}

TEST_CASE("what one or two rows lose shows in a checksum row, and nothing else does, whatever the shape") {
    CHECK(wrong_verdicts<4, 6>(40, 300) == 0);
    CHECK(wrong_verdicts<4, 6>(26, 2048) == 0);
    CHECK(wrong_verdicts<4, 6>(40, 2048) == 0);
    CHECK(wrong_verdicts<4, 6>(4, 1815) == 0);
    CHECK(wrong_verdicts<1, 3>(1, 2662) == 0);
    CHECK(wrong_verdicts<4, 3>(20, 2662) == 0);
    CHECK(wrong_verdicts<4, 3>(20, 3900) == 0);
    CHECK(wrong_verdicts<4, 6>(70, 2048) == 0);
    CHECK(wrong_verdicts<8, 6>(60, 2048) == 0);
}

TEST_CASE("usual hidden states pass an average-case range without an alarm and with the predicted error") {
    sides<small> with = sides_for<narrow>();
    for (const std::size_t d : {100UL, 1500UL}) {
        const matrix a = balanced(random_matrix(31, d, d));
        const narrow s(a);
        for (std::uint64_t token = 0; token < trials(60UL); ++token) {
            CAPTURE(token);
            CHECK(outcome_of(with, s, a, random_state(d, token)) == outcome::right);
        }
    }
}

TEST_CASE(
    "answers of few bits are decrypted where checksum rows can tell their flood from a wrap, else refused") {
    const auto weights = [](std::size_t k) {
        double sum = 0;
        for (std::size_t r = 0; r < lora::detail::rows_per_checksum; ++r) {
            sum += lora::detail::checksum_weight(r, k) * lora::detail::checksum_weight(r, k);
        }
        return sum;
    };
    CHECK(std::max({weights(0), weights(1), weights(2), weights(3)}) <= lora::detail::checksum_weights);

    const std::size_t d = 1000;
    const matrix a = balanced(random_matrix(32, d, 1));
    using fewest =
        server<small, coefficient_tiles<4>, protects_adapter_rows<average_case<6>, answer_bits<7>>>;
    using fewer = server<small, coefficient_tiles<4>, protects_adapter_rows<average_case<6>, answer_bits<6>>>;
    using fewer_by_factor =
        server<small, coefficient_tiles<4>, protects_adapter_rows<average_case<12>, answer_bits<6>>>;
    CHECK(contains(refusal<parameter_error>([&] { fewer{a}; }), "use more answer_bits, a larger factor"));
    const auto all_right = [&]<class Server>(const Server& s) {
        sides<small> with = sides_for<Server>();
        for (std::uint64_t token = 0; token < trials(40UL); ++token) {
            CAPTURE(token);
            CHECK(outcome_of(with, s, a, random_state(d, 1000 + token)) == outcome::right);
        }
    };
    all_right(fewest(a));
    all_right(fewer_by_factor(a));
}

TEST_CASE("what up to two rows lose is far from a multiple of Q in one of their checksum rows") {
    // Up to lora::detail::most_wraps multiples each; further than the tolerance on top of the noise of a
    // checksum row, which is less than the tolerance.
    const auto distance = [](std::size_t r, int z, std::size_t other, int y) {
        double most = 0;
        for (std::size_t k = 0; k < lora::detail::checksums_per_group; ++k) {
            const double lost =
                z * lora::detail::checksum_weight(r, k) + y * lora::detail::checksum_weight(other, k);
            most = worse(most, std::fabs(wrapped(lost)));
        }
        return most;
    };
    const int most_wraps = static_cast<int>(lora::detail::most_wraps);
    double least = 1;
    for (std::size_t r = 0; r < lora::detail::rows_per_checksum; ++r) {
        for (int z = 1; z <= most_wraps; ++z) {
            least = std::fmin(least, distance(r, z, r, 0));
            for (std::size_t other = 0; other < r; ++other) {
                for (int y = -most_wraps; y <= most_wraps; ++y) {
                    least = std::fmin(least, y == 0 ? 1 : distance(r, z, other, y));
                }
            }
        }
    }
    CHECK(least > 2 * lora::detail::checksum_tolerance);
}

TEST_CASE("what many rows lose goes unseen once in a million times, or less") {
    // 2 * tolerance of the circle in each of four sums: 1.4e-6, so 5.7 of 4 million; 30 is ten deviations
    // more.
    random_numbers engine(5);
    int unseen = 0;
    for (int draw = 0; draw < trials(4'000'000); ++draw) {
        std::array<double, lora::detail::checksums_per_group> lost{};
        const std::size_t rows = 3 + engine() % 6;
        for (std::size_t i = 0; i < rows; ++i) {
            const std::size_t r = engine() % lora::detail::rows_per_checksum;
            const double z = engine() % 2 == 0 ? 1 : -1;
            for (std::size_t k = 0; k < lost.size(); ++k) {
                lost[k] += z * lora::detail::checksum_weight(r, k);
            }
        }
        bool seen = false;
        bool any = false;
        for (const double x : lost) {
            seen |= std::fabs(wrapped(x)) >= lora::detail::checksum_tolerance;
            any |= std::fabs(x) > 1e-9;  // draws of one row with both signs lose nothing
        }
        unseen += !seen && any ? 1 : 0;
    }
    CHECK(unseen < 30);
}

TEST_CASE("an outlier entry that wraps three rows and more at once is refused") {
    // Rows with one entry in common that outweighs all others, and h on that entry: with signs that a sum of
    // rows with small integer factors would not see.
    sides<small> with = sides_for<narrow>();
    matrix a = random_matrix(32, 2048, 1);
    const std::vector<std::size_t> rows = {0, 2, 3, 9, 30};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        a.row(rows[i])[100] = i == 2 ? -3.0F : 3.0F;
    }
    a = balanced(a);
    const narrow s(a);
    std::vector<float> h(2048);
    h[100] = 1;
    CHECK(outcome_of(with, s, a, h) == outcome::refused);
}

TEST_CASE(
    "a matrix whose rows are all alike is refused for an average-case range, and the message says what to "
    "use") {
    matrix a(40, 500);
    const std::vector<float> row = random_state(500, 1);
    for (std::size_t r = 0; r < a.rows; ++r) {
        // Alike up to signs, those with which they count in a checksum row.
        const float sign = lora::detail::checksum_weight(r % 32, 0) < 0 ? -1.0F : 1.0F;
        std::transform(row.begin(), row.end(), a.row(r).begin(), [&](float x) { return sign * x; });
    }
    const std::string message = refusal<parameter_error>([&] { narrow s(a); });
    CHECK(contains(message, "too much alike"));
    CHECK(contains(message, "use the range policy lora::worst_case"));
    sides<small> with = sides_for<tiles<4>>();
    CHECK(error_in_deviations(with, tiles<4>(a), a, random_state(500, 2)) < most_deviations);
}
