#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter.hpp>
#include <tensafe/lora/client.hpp>
#include <tensafe/lora/coefficient_tiles.hpp>
#include <tensafe/lora/mode.hpp>
#include <tensafe/lora/plain.hpp>
#include <tensafe/lora/server.hpp>
#include <tensafe/lora/stack.hpp>
#include <tensafe/ntt/reference.hpp>
#include <tensafe/random/entropy.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "random_values.hpp"

namespace ckks = tensafe::ckks;
namespace random_source = tensafe::random;
using tensafe::encoding_error;
using tensafe::format_error;
using tensafe::parameter_error;
using tensafe::range_exceeded_error;
using tensafe::shape_error;
using tensafe::exec::host;
using namespace tensafe::lora;

namespace {

using small = ckks::parameters<10, ckks::limb_bits<45, 44>, 30, ckks::insecure_for_tests>;
using zeros_of_small = tensafe::lora::zero_pool<small>;

template <int Rows, class Protection = protects_adapter_rows<>>
using tiles = server<small, coefficient_tiles<Rows>, Protection>;
using bare = tiles<4, reveals_adapter_rows>;
using narrow = tiles<4, protects_adapter_rows<calibrated<6>>>;

template <class Real>
std::span<const Real> view(const std::vector<Real>& h) {
    return h;
}

/// A client, and one server's zeros for it.
struct session {
    explicit session(int fold_log_n) : session(fold_log_n, random_source::fresh_seed()) {}
    session(int fold_log_n, const random_source::seed& nonce)
        : zeros(nonce, key_holder.zero_key(host{}, nonce), fold_log_n) {}

    client<small> key_holder;
    zeros_of_small zeros;
};

template <class Server>
session session_for() {
    return session(Server::layout_type::fold_log_n());
}

/// A*h through encryption.
template <class Server, class Real>
std::vector<double> encrypted_product(session& with, const Server& s, const std::vector<Real>& h,
                                      double headroom = 1) {
    const auto q = with.key_holder.encrypt(host{}, s.layout(), view(h), headroom);
    if constexpr (std::is_same_v<Server, bare>) {
        return with.key_holder.decrypt(host{}, s.layout(), s.apply(host{}, q.request), q.scale);
    } else {
        return with.key_holder.decrypt(host{}, s.layout(), s.apply(host{}, q.request, with.zeros), q.scale);
    }
}

double largest_difference(std::span<const double> a, std::span<const double> b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (std::size_t k = 0; k < a.size(); ++k) {
        largest = std::fmax(largest, std::fabs(a[k] - b[k]));
    }
    return largest;
}

/// The budget's standard deviation of an answer's error.
template <class Layout>
double deviation(const Layout& layout, double state_norm) {
    return layout.budget().relative_error * layout.row_norm * state_norm /
           std::sqrt(static_cast<double>(layout.d));
}

/// The rounding of A, errors and floods are sums of many independent bounded terms, or of four uniform ones,
/// whose tails are thinner than a Gaussian's: one error in 4 * 10^11 passes seven deviations, and a test
/// looks at fewer than 10^5. The weights are generic in every test, so this holds for any direction of h.
constexpr double most_deviations = 7;

template <class Server, class Real>
double error_in_deviations(session& with, const Server& s, const matrix& a, const std::vector<Real>& h) {
    return largest_difference(encrypted_product(with, s, h), product(a, h)) /
           deviation(s.layout(), norm(view(h)));
}

matrix balanced(matrix a) {
    return balance({"", std::move(a), matrix(1, a.rows), 1}).a;
}

std::vector<float> row_of(const matrix& a, std::size_t r) {
    return {a.row(r).begin(), a.row(r).end()};
}

}  // namespace

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
            CAPTURE(d);
            CAPTURE(rank);
            const matrix a = random_matrix(rank, d, rank + 1000 * d);
            CHECK(error_in_deviations(with, Server(a), a, random_state(d, d)) < most_deviations);
        }
    }
}

TEST_CASE_TEMPLATE("random shapes give A*h up to the predicted error, in float and in double", Server,
                   tiles<1>, tiles<4>, tiles<32>, bare) {
    std::mt19937_64 generator(17);
    session with = session_for<Server>();
    for (int round = 0; round < 8; ++round) {
        const std::size_t rank = 1 + generator() % 128;
        const std::size_t d = 1 + generator() % 5000;
        CAPTURE(rank);
        CAPTURE(d);
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

using tensafe::arith::wide;

/// The nearest integer as a signed one of 128 bits.
wide rounded(double x) {
    const auto magnitude = static_cast<wide>(std::round(std::fabs(x)));
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
        const double scale = l.message_scale(budget, norm(view(h)));

        // In 128 bits, signed: |weight| < 2^18, |message| < 2^72.
        std::vector<wide> wanted(l.outputs() * layout_type::rows);
        for (std::size_t r = 0; r < a.rows; ++r) {
            for (std::size_t t = 0; t < d; ++t) {
                wanted[r] += rounded(static_cast<double>(a.row(r)[t]) * (budget.weight_norm / l.row_norm)) *
                             rounded(static_cast<double>(h[t]) * scale);
            }
        }
        const auto compare = [&]<int I>() {
            constexpr tensafe::arith::word q = basis::prime<I>;
            for (std::size_t o = 0; o < l.outputs(); ++o) {
                std::vector<tensafe::arith::word> sum(small::degree);
                for (std::size_t i = 0; i < l.inputs(); ++i) {
                    const auto weights = l.encode_weights(host{}, a, budget, o, i);
                    const auto message = l.encode_message(host{}, view(h), i, scale);
                    const auto product = tensafe::ntt::reference_multiply(
                        weights.value.template limb<I>(), message.value.template limb<I>(), q);
                    for (std::size_t k = 0; k < sum.size(); ++k) {
                        sum[k] = (sum[k] + product[k]) % q;
                    }
                }
                for (std::size_t k = 0; k < layout_type::rows; ++k) {
                    const wide x = wanted[o * layout_type::rows + k];
                    const bool negative = x >> 127 != 0;
                    const auto magnitude = static_cast<tensafe::arith::word>((negative ? 0 - x : x) % q);
                    CAPTURE(rows);
                    CAPTURE(o);
                    CAPTURE(k);
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
            std::vector<double> wanted(rank);
            wanted[alone] = static_cast<double>(h[entry]);
            CHECK(largest_difference(got, wanted) < most_deviations * deviation(s.layout(), norm(view(h))));
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
        for (float& x : a.row(r)) {
            x *= std::pow(10.0F, -static_cast<float>(r));
        }
    }
    CHECK(error_in_deviations(with, tiles<4>(a), a, random_state(700, 2)) < most_deviations);
}

TEST_CASE("zeros on either side give zeros") {
    session with = session_for<tiles<4>>();
    CHECK(norm(view(encrypted_product(with, tiles<4>(matrix(6, 300)), random_state(300, 1)))) == 0);
    const tiles<4> s(random_matrix(6, 300, 1));
    CHECK(norm(view(encrypted_product(with, s, std::vector<float>(300)))) < 1e-100);
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
        const double coefficient =
            budget.weight_norm * s.layout().message_scale(budget, norm(view(h))) * norm(view(h));
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

enum class outcome { right, refused, wrong };

template <class Server>
outcome outcome_of(session& with, const Server& s, const matrix& a, const std::vector<float>& h) {
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
/// are zero, when the noise of the check rows is 6 deviations to one side.
template <int Rows, int Factor>
bool is_refused(std::size_t rank, std::size_t d, const std::vector<std::pair<std::size_t, double>>& answers,
                double noise) {
    using layout_type = layout<small, coefficient_tiles<Rows>, protects_adapter_rows<calibrated<Factor>>>;
    const layout_type l{rank, d, 1};
    const reply_budget budget = l.budget();
    std::vector<double> coefficients(l.outputs() * layout_type::rows);
    for (const auto& [row, answer] : answers) {
        coefficients[row] = wrapped(answer) * budget.modulus;
    }
    const double rounding = detail::switch_deviation(static_cast<double>(small::degree)) *
                            detail::power_of_two(-budget.check_bits);
    const std::size_t row_outputs = (rank + layout_type::rows - 1) / layout_type::rows;
    const std::size_t in_output = std::min<std::size_t>(layout_type::rows, 4);
    for (std::size_t j = 0; j < (rank + 31) / 32 * 4; ++j) {
        double check = noise * rounding;
        for (const auto& [row, answer] : answers) {
            check += row / 32 == j / 4 ? detail::check_weight(row % 32, j % 4) * answer : 0;
        }
        coefficients[(row_outputs + j / in_output) * layout_type::rows + j % in_output] =
            wrapped(check) * budget.modulus;
    }
    try {
        static_cast<void>(l.collect(budget, coefficients, 1));
    } catch (const range_exceeded_error&) {
        return true;
    }
    return false;
}

/// The same for all single rows and pairs of rows, and many sizes of answers: how many were judged wrongly.
template <int Rows, int Factor>
int wrong_verdicts(std::size_t rank, std::size_t d) {
    using layout_type = layout<small, coefficient_tiles<Rows>, protects_adapter_rows<calibrated<Factor>>>;
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
    "an answer that passes a calibrated range is refused, whichever row it is, and with headroom right") {
    session with = session_for<narrow>();
    const std::size_t d = 400;  // a row parallel to h has 20 / 6 times the range
    const matrix a = balanced(random_matrix(40, d, 1));
    const narrow s(a);
    for (std::size_t r = 0; r < a.rows; ++r) {
        for (const float sign : {1.0F, -1.0F}) {
            CAPTURE(r);
            CAPTURE(sign);
            std::vector<float> h = row_of(a, r);
            for (float& x : h) {
                x *= sign;
            }
            CHECK(outcome_of(with, s, a, h) == outcome::refused);
            // The others follow from the type.
            if (r % 10 == 0) {
                const std::vector<double> got = encrypted_product(with, s, h, 4);
                CHECK(largest_difference(got, product(a, h)) <
                      4 * most_deviations * deviation(s.layout(), norm(view(h))));
            }
        }
    }
}

TEST_CASE("two answers that pass a calibrated range together never give a wrong result") {
    session with = session_for<narrow>();
    const matrix a = balanced(random_matrix(26, 2048, 1));
    const narrow s(a);
    int refused = 0;
    int pairs = 0;
    for (std::size_t r = 0; r < a.rows; ++r) {
        for (std::size_t other = 0; other < r; ++other) {
            const float sign = (r + other) % 4 < 2 ? 1.0F : -1.0F;
            std::vector<float> h = row_of(a, r);
            for (std::size_t t = 0; t < h.size(); ++t) {
                h[t] += sign * a.row(other)[t];
            }
            CAPTURE(r);
            CAPTURE(other);
            const outcome o = outcome_of(with, s, a, h);
            CHECK(o != outcome::wrong);
            refused += o == outcome::refused ? 1 : 0;
            ++pairs;
        }
    }
    CHECK(refused == pairs);  // all are 5.3 times the range
}

TEST_CASE("what one or two rows lose shows in a check row, and nothing else does, whatever the shape") {
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

TEST_CASE("usual hidden states pass a calibrated range without an alarm and with the predicted error") {
    session with = session_for<narrow>();
    for (const std::size_t d : {100UL, 1500UL}) {
        const matrix a = balanced(random_matrix(31, d, d));
        const narrow s(a);
        for (std::uint64_t token = 0; token < 60; ++token) {
            CAPTURE(token);
            CHECK(outcome_of(with, s, a, random_state(d, token)) == outcome::right);
        }
    }
}

TEST_CASE("what up to two rows lose is far from a multiple of Q in one of their check rows") {
    // Up to detail::most_wraps multiples each; further than the tolerance on top of the noise of a check row,
    // which is less than the tolerance.
    const auto distance = [](std::size_t r, int z, std::size_t other, int y) {
        double most = 0;
        for (std::size_t k = 0; k < detail::checks_per_group; ++k) {
            const double lost = z * detail::check_weight(r, k) + y * detail::check_weight(other, k);
            most = std::fmax(most, std::fabs(wrapped(lost)));
        }
        return most;
    };
    const int most_wraps = static_cast<int>(detail::most_wraps);
    double least = 1;
    for (std::size_t r = 0; r < detail::rows_per_check; ++r) {
        for (int z = 1; z <= most_wraps; ++z) {
            least = std::fmin(least, distance(r, z, r, 0));
            for (std::size_t other = 0; other < r; ++other) {
                for (int y = -most_wraps; y <= most_wraps; ++y) {
                    least = std::fmin(least, y == 0 ? 1 : distance(r, z, other, y));
                }
            }
        }
    }
    CHECK(least > 2 * detail::check_tolerance);
}

TEST_CASE("what many rows lose goes unseen once in a million times, or less") {
    // 2 * tolerance of the circle in each of four sums: 1.4e-6. The 4 million draws leave 5.7 expected; 30
    // would be ten deviations more.
    std::mt19937_64 engine(5);
    int unseen = 0;
    for (int draw = 0; draw < 4'000'000; ++draw) {
        std::array<double, detail::checks_per_group> lost{};
        const std::size_t rows = 3 + engine() % 6;
        for (std::size_t i = 0; i < rows; ++i) {
            const std::size_t r = engine() % detail::rows_per_check;
            const double z = engine() % 2 == 0 ? 1 : -1;
            for (std::size_t k = 0; k < lost.size(); ++k) {
                lost[k] += z * detail::check_weight(r, k);
            }
        }
        bool seen = false;
        bool any = false;
        for (const double x : lost) {
            seen |= std::fabs(wrapped(x)) >= detail::check_tolerance;
            any |= std::fabs(x) > 1e-9;  // draws of one row with both signs lose nothing
        }
        unseen += !seen && any ? 1 : 0;
    }
    CHECK(unseen < 30);
}

TEST_CASE("an outlier entry that wraps three rows and more at once is refused") {
    // Rows with one entry in common that outweighs all others, and h on that entry: with signs that a sum of
    // rows with small integer factors would not see.
    session with = session_for<narrow>();
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
    "a matrix whose rows are all alike is refused for a calibrated range, and the message says what to use") {
    matrix a(40, 500);
    const std::vector<float> row = random_state(500, 1);
    for (std::size_t r = 0; r < a.rows; ++r) {
        // Alike up to signs, those with which they count in a check row.
        const float sign = detail::check_weight(r % 32, 0) < 0 ? -1.0F : 1.0F;
        std::transform(row.begin(), row.end(), a.row(r).begin(), [&](float x) { return sign * x; });
    }
    const std::string message = message_of<parameter_error>([&] { narrow s(a); });
    CHECK(contains(message, "too much alike"));
    CHECK(contains(message, "use the range policy lora::rigorous"));
    session with = session_for<tiles<4>>();
    CHECK(error_in_deviations(with, tiles<4>(a), a, random_state(500, 2)) < most_deviations);
}

TEST_CASE("layouts of impossible shapes and norms are refused") {
    using layout_type = tiles<4>::layout_type;
    constexpr std::size_t most = std::size_t{1} << 24;
    for (const auto& [rank, d] :
         {std::pair<std::size_t, std::size_t>{0, 5}, {5, 0}, {most + 1, 5}, {5, most + 1}}) {
        CHECK_THROWS_AS(layout_type::of(rank, d, 1), shape_error);
    }
    CHECK(layout_type::of(most, most, 1).inputs() == most / 256);
    for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(), 0x1.1p100}) {
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
        return message_of<parameter_error>([&] { static_cast<void>(decltype(layout)::of(3, d, 1)); });
    };
    const std::string short_modulus =
        message(layout<one_limb, coefficient_tiles<4>, protects_adapter_rows<>>(), 2048);
    CHECK(contains(short_modulus, "degree 2048, cannot hold replies for a 3 x 2048 matrix"));
    CHECK(contains(short_modulus, "too short to hide the noise"));
    CHECK(contains(message(layout<tiny, coefficient_tiles<4>, protects_adapter_rows<>>(), 1000),
                   "more bits than the client's arithmetic has room for"));
    CHECK(contains(
        message(layout<small, coefficient_tiles<4>, protects_adapter_rows<rigorous, coarse_precision>>(), 1),
        "noise would fill its modulus"));
}

TEST_CASE("entries that are no numbers are refused by their place") {
    matrix a = random_matrix(4, 50, 1);
    a.row(2)[13] = std::numeric_limits<float>::quiet_NaN();
    CHECK(contains(message_of<encoding_error>([&] { tiles<4> s(a); }),
                   "row 2, column 13 of the matrix is not a number"));
    a.row(2)[13] = -std::numeric_limits<float>::infinity();
    CHECK(contains(message_of<encoding_error>([&] { tiles<4> s(a); }), "is infinite"));
    client<small> c;
    const tiles<4> s(random_matrix(4, 300, 1));
    std::vector<double> h(300, 1);
    h[257] = std::numeric_limits<double>::infinity();
    CHECK(contains(
        message_of<encoding_error>([&] { static_cast<void>(c.encrypt(host{}, s.layout(), view(h))); }),
        "entry 257 of the hidden state is infinite"));
    h[257] = 1e200;
    CHECK(contains(
        message_of<encoding_error>([&] { static_cast<void>(c.encrypt(host{}, s.layout(), view(h))); }),
        "passes the range of double"));
    h.pop_back();
    CHECK_THROWS_AS(static_cast<void>(c.encrypt(host{}, s.layout(), view(h))), shape_error);
    h.push_back(1);
    h[257] = 1;
    for (const double headroom : {0.5, 0.0, -1.0, 0x1p21, std::numeric_limits<double>::quiet_NaN()}) {
        CHECK_THROWS_AS(static_cast<void>(c.encrypt(host{}, s.layout(), view(h), headroom)), parameter_error);
    }
}

TEST_CASE("malformed requests are refused") {
    session with = session_for<tiles<4>>();
    const tiles<4> s(random_matrix(6, 300, 1));
    const request<small> good =
        with.key_holder.encrypt(host{}, s.layout(), view(random_state(300, 1))).request;
    const auto refused = [&](auto change) {
        request<small> r = good;
        change(r);
        CHECK_THROWS_AS(static_cast<void>(s.apply(host{}, r, with.zeros)), shape_error);
    };
    refused([](auto& r) { r.d = 299; });
    refused([](auto& r) { r.block = 255; });
    refused([](auto& r) { r.block = 0; });
    refused([](auto& r) { r.tokens = 0; });
    refused([](auto& r) { r.tokens = 2; });
    refused([](auto& r) { r.inputs.clear(); });
    refused([](auto& r) { r.inputs.pop_back(); });
    refused([](auto& r) { r.inputs.push_back(r.inputs[0]); });
    refused([](auto& r) { r.inputs[1].clear(); });
    refused([](auto& r) { r.inputs[1].pop_back(); });
    refused([](auto& r) { r.inputs[1].push_back(0); });
    refused([](auto& r) { r = {}; });

    // The first 48 bits one: no residue of 45 or 44 bits is all ones.
    const std::size_t first_limb = tensafe::wire::packed_bytes(small::degree, 45);
    for (const auto& [at, limb] :
         {std::pair<std::size_t, const char*>{0, "limb 0"}, {first_limb, "limb 1"}}) {
        request<small> r = good;
        std::fill_n(r.inputs[1].begin() + static_cast<std::ptrdiff_t>(at), 6, std::uint8_t{255});
        CHECK(contains(message_of<format_error>([&] { static_cast<void>(s.apply(host{}, r, with.zeros)); }),
                       limb));
    }
    // The prime itself, and one less.
    const auto first_residue = [&](tensafe::arith::word value) {
        request<small> r = good;
        for (std::size_t i = 0; i < 5; ++i) {
            r.inputs[0][i] = static_cast<std::uint8_t>(value >> (8 * i));
        }
        r.inputs[0][5] = static_cast<std::uint8_t>((r.inputs[0][5] & 0xE0U) | (value >> 40));
        return r;
    };
    constexpr tensafe::arith::word q = small::basis::prime<0>;
    CHECK_THROWS_AS(static_cast<void>(s.apply(host{}, first_residue(q), with.zeros)), format_error);
    CHECK_NOTHROW(static_cast<void>(s.apply(host{}, first_residue(q - 1), with.zeros)));
}

TEST_CASE("malformed replies and layouts are refused, and any bytes of the right number decrypt to numbers") {
    session with = session_for<tiles<4>>();
    const matrix a = random_matrix(6, 300, 1);
    const tiles<4> s(a);
    const auto q = with.key_holder.encrypt(host{}, s.layout(), view(random_state(300, 1)));
    const auto good = s.apply(host{}, q.request, with.zeros);
    const auto open = [&](const auto& layout, const auto& reply) {
        return with.key_holder.decrypt(host{}, layout, reply, q.scale);
    };
    const auto refused = [&](auto change) {
        auto r = good;
        change(r);
        CHECK_THROWS_AS(static_cast<void>(open(s.layout(), r)), shape_error);
    };
    refused([](auto& r) { r.rank = 5; });
    refused([](auto& r) { r.d = 301; });
    refused([](auto& r) { r.tokens = 0; });
    refused([](auto& r) { r.outputs.clear(); });
    refused([](auto& r) { r.outputs.push_back(r.outputs[0]); });
    refused([](auto& r) { r.outputs[1].c0.pop_back(); });
    refused([](auto& r) { r.outputs[1].c0.push_back(0); });
    refused([](auto& r) { r.outputs[0].c0.clear(); });
    refused([](auto& r) { r.outputs[1].c1.pop_back(); });
    refused([](auto& r) { r.outputs[0].c1.push_back(0); });
    refused([](auto& r) { std::swap(r.outputs[0], r.outputs[1]); });
    refused([](auto& r) { r = {}; });

    // The last output has two coefficients, whose bits do not fill their bytes.
    REQUIRE(2 * s.layout().budget().reply_bits % 8 != 0);
    auto padded = good;
    padded.outputs[1].c0.back() |= 0x80U;
    CHECK_THROWS_AS(static_cast<void>(open(s.layout(), padded)), format_error);

    const auto bad_layout = [&](auto change) {
        auto l = s.layout();
        change(l);
        CHECK_THROWS_AS(static_cast<void>(open(l, good)), tensafe::error);
        CHECK_THROWS_AS(static_cast<void>(with.key_holder.encrypt(host{}, l, view(random_state(300, 1)))),
                        tensafe::error);
    };
    bad_layout([](auto& l) { l.rank = 0; });
    bad_layout([](auto& l) { l.rank = std::numeric_limits<std::size_t>::max(); });
    bad_layout([](auto& l) { l.d = std::numeric_limits<std::size_t>::max(); });
    bad_layout([](auto& l) { l.row_norm = -1; });
    bad_layout([](auto& l) { l.row_norm = std::numeric_limits<double>::quiet_NaN(); });
    bad_layout([](auto& l) { l = {}; });

    std::mt19937_64 generator(1);
    auto noise = good;
    noise.outputs[1].c0.back() = 0;
    for (auto* bytes : {&noise.outputs[0].c0, &noise.outputs[0].c1, &noise.outputs[1].c1}) {
        for (std::uint8_t& byte : *bytes) {
            byte = static_cast<std::uint8_t>(generator());
        }
    }
    for (const double x : open(s.layout(), noise)) {
        CHECK(std::isfinite(x));
    }
}

TEST_CASE("malformed bare replies are refused") {
    session with = session_for<bare>();
    const bare s(random_matrix(6, 300, 1));
    const auto q = with.key_holder.encrypt(host{}, s.layout(), view(random_state(300, 1)));
    auto reply = s.apply(host{}, q.request);
    CHECK(reply.bytes() == 64 + 2 * (23 + 22 + 1024 / 8 * (45 + 44)));
    reply.outputs[1].c0[1] = tensafe::memory::buffer<tensafe::arith::word>(5);
    CHECK(contains(message_of<shape_error>([&] {
                       static_cast<void>(with.key_holder.decrypt(host{}, s.layout(), reply, q.scale));
                   }),
                   "got a product of 5 coefficients, wanted 4"));
    reply.outputs.pop_back();
    CHECK_THROWS_AS(static_cast<void>(with.key_holder.decrypt(host{}, s.layout(), reply, q.scale)),
                    shape_error);
}

TEST_CASE("zeros that are folded to another degree are refused") {
    session with(3);
    const tiles<4> s(random_matrix(6, 300, 1));
    const auto q = with.key_holder.encrypt(host{}, s.layout(), view(random_state(300, 1)));
    const std::string message =
        message_of<parameter_error>([&] { static_cast<void>(s.apply(host{}, q.request, with.zeros)); });
    CHECK(contains(message, "folded to degree 2^3, wanted 2^2"));
}

TEST_CASE("another client's key, or zeros for another client, open nothing") {
    session with = session_for<tiles<4>>();
    session other = session_for<tiles<4>>();
    const matrix a = random_matrix(6, 300, 1);
    const tiles<4> s(a);
    const std::vector<float> h = random_state(300, 1);
    const auto q = with.key_holder.encrypt(host{}, s.layout(), view(h));
    const double unit = deviation(s.layout(), norm(view(h)));
    const auto reply = s.apply(host{}, q.request, with.zeros);
    CHECK(largest_difference(other.key_holder.decrypt(host{}, s.layout(), reply, q.scale), product(a, h)) >
          1000 * unit);
    const auto wrong_zeros = s.apply(host{}, q.request, other.zeros);
    CHECK(largest_difference(with.key_holder.decrypt(host{}, s.layout(), wrong_zeros, q.scale),
                             product(a, h)) > 1000 * unit);
}

namespace {

random_source::seed numbered(std::uint8_t number) {
    random_source::seed seed;
    seed.bytes[0] = number;
    return seed;
}

template <class Reply>
bool same_replies(const Reply& a, const Reply& b) {
    return a.rank == b.rank && a.d == b.d &&
           std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(),
                      [](const auto& x, const auto& y) { return x.c0 == y.c0 && x.c1 == y.c1; });
}

}  // namespace

TEST_CASE("a workspace and a reply that served other tokens and other shapes change no bit") {
    client<small> c;
    const random_source::seed nonce = numbered(1);
    const auto key = c.zero_key(host{}, nonce);
    zeros_of_small first(nonce, key, 2, random_source::generator(numbered(2)));
    zeros_of_small second(nonce, key, 2, random_source::generator(numbered(2)));
    const std::vector<matrix> weights = {random_matrix(12, 300, 1), random_matrix(3, 1500, 2),
                                         random_matrix(1, 7, 3)};
    tiles<4>::workspace kept;
    tiles<4>::reply_type kept_reply;
    std::uint8_t number = 3;
    for (int round = 0; round < 2; ++round) {
        for (const matrix& a : weights) {
            const tiles<4> s(a);
            for (std::uint64_t token = 0; token < 2; ++token) {
                const auto q = c.encrypt(host{}, s.layout(), view(random_state(a.columns, token)));
                tiles<4>::workspace fresh;
                tiles<4>::reply_type fresh_reply;
                fresh.generator = random_source::generator(numbered(number));
                kept.generator = random_source::generator(numbered(number++));
                s.apply(host{}, q.request, first, kept, kept_reply);
                s.apply(host{}, q.request, second, fresh, fresh_reply);
                CHECK(same_replies(kept_reply, fresh_reply));
            }
        }
    }
}

TEST_CASE("two replies to one request share neither c1 nor c0") {
    session with = session_for<tiles<4>>();
    const tiles<4> s(random_matrix(4, 300, 1));
    const auto q = with.key_holder.encrypt(host{}, s.layout(), view(random_state(300, 1)));
    const auto first = s.apply(host{}, q.request, with.zeros);
    const auto second = s.apply(host{}, q.request, with.zeros);
    CHECK(first.outputs[0].c0 != second.outputs[0].c0);
    CHECK(first.outputs[0].c1 != second.outputs[0].c1);
}

TEST_CASE("one pool serves two servers in any order, filled or not, and a failure in between harms nothing") {
    session with = session_for<tiles<4>>();
    const matrix a = random_matrix(6, 300, 1);
    const matrix b = random_matrix(11, 1100, 2);
    const tiles<4> first(a);
    const tiles<4> second(b);
    const std::vector<float> g = random_state(300, 3);
    const std::vector<float> h = random_state(1100, 4);
    with.zeros.fill(host{}, 4);
    const auto to_first = with.key_holder.encrypt(host{}, first.layout(), view(g));
    const auto to_second = with.key_holder.encrypt(host{}, second.layout(), view(h));
    tiles<4>::workspace work;
    tiles<4>::reply_type from_second;
    tiles<4>::reply_type from_first;
    second.apply(host{}, to_second.request, with.zeros, work, from_second);
    CHECK(with.zeros.size() == 1);
    CHECK_THROWS_AS(first.apply(host{}, to_second.request, with.zeros, work, from_first), shape_error);
    first.apply(host{}, to_first.request, with.zeros, work, from_first);
    CHECK(with.zeros.size() == 0);
    CHECK(largest_difference(with.key_holder.decrypt(host{}, first.layout(), from_first, to_first.scale),
                             product(a, g)) < most_deviations * deviation(first.layout(), norm(view(g))));
    CHECK(largest_difference(with.key_holder.decrypt(host{}, second.layout(), from_second, to_second.scale),
                             product(b, h)) < most_deviations * deviation(second.layout(), norm(view(h))));
}

TEST_CASE("threads share one server and one pool, each with its own workspace") {
    session with = session_for<tiles<4>>();
    const matrix a = random_matrix(10, 600, 1);
    const tiles<4> s(a);
    constexpr std::size_t tokens = 12;
    std::vector<query<small>> queries;
    for (std::size_t token = 0; token < tokens; ++token) {
        queries.push_back(with.key_holder.encrypt(host{}, s.layout(), view(random_state(600, token))));
    }
    with.zeros.fill(host{}, 10);
    std::vector<std::vector<tiles<4>::reply_type>> replies(3, std::vector<tiles<4>::reply_type>(tokens));
    std::vector<std::thread> threads;
    for (auto& own : replies) {
        threads.emplace_back([&] {
            tiles<4>::workspace work;
            for (std::size_t token = 0; token < tokens; ++token) {
                s.apply(host{}, queries[token].request, with.zeros, work, own[token]);
            }
        });
    }
    for (std::thread& t : threads) {
        t.join();
    }
    for (const auto& own : replies) {
        for (std::size_t token = 0; token < tokens; ++token) {
            const std::vector<float> h = random_state(600, token);
            CHECK(largest_difference(
                      with.key_holder.decrypt(host{}, s.layout(), own[token], queries[token].scale),
                      product(a, h)) < most_deviations * deviation(s.layout(), norm(view(h))));
        }
    }
}

TEST_CASE("one encrypted state serves the stacked and balanced q, k and v sites") {
    const std::vector<adapter_site> originals = {random_site(64, 8, 300, 1), random_site(16, 5, 300, 2),
                                                 random_site(16, 8, 300, 3)};
    std::vector<adapter_site> sites;
    for (const adapter_site& site : originals) {
        sites.push_back(balance(site));
    }
    const std::vector<std::reference_wrapper<const adapter_site>> references(sites.begin(), sites.end());
    const site_stack stack(references);
    session with = session_for<tiles<4>>();
    const tiles<4> s(stack.rows());
    CHECK(std::fabs(s.layout().row_norm - 1) < 1e-6);
    const std::vector<float> h = random_state(300, 4);
    const std::vector<double> answers = encrypted_product(with, s, h);
    for (std::size_t i = 0; i < sites.size(); ++i) {
        const std::vector<double> got = apply_b(sites[i], stack.part(answers, i));
        const std::vector<double> wanted = plain_delta(originals[i], h);
        // An entry of a delta adds up rank errors, times entries of B; and what balance() rounds.
        double longest_row = 0;
        for (std::size_t k = 0; k < sites[i].d_out(); ++k) {
            longest_row = std::fmax(longest_row, norm(std::span<const float>(sites[i].b.row(k))));
        }
        CHECK(largest_difference(got, wanted) <
              sites[i].scale * longest_row * most_deviations * deviation(s.layout(), norm(view(h))) +
                  1e-6 * norm(view(wanted)));
    }
}

TEST_CASE("in mode blind the reply is the delta") {
    const adapter_site site = random_site(24, 4, 300, 1);
    const matrix merged = merge(site);
    CHECK(merged.rows == served_rows(mode::blind, site.rank(), site.d_out()));
    CHECK(merged.columns == 300);
    session with = session_for<tiles<4>>();
    const tiles<4> s(merged);
    const std::vector<float> h = random_state(300, 2);
    const std::vector<double> wanted = plain_delta(site, h);
    CHECK(largest_difference(product(merged, h), wanted) < 1e-6 * norm(view(wanted)));
    CHECK(largest_difference(encrypted_product(with, s, h), wanted) <
          most_deviations * deviation(s.layout(), norm(view(h))) + 1e-6 * norm(view(wanted)));
}

TEST_CASE("balancing gives every row of A the norm 1, keeps deltas, and leaves rows of zeros") {
    adapter_site site = random_site(12, 6, 200, 1);
    for (float& x : site.a.row(1)) {
        x *= 1000;
    }
    for (float& x : site.a.row(2)) {
        x = 0;
    }
    const adapter_site result = balance(site);
    for (std::size_t r = 0; r < site.rank(); ++r) {
        const double length = norm(std::span<const float>(result.a.row(r)));
        CHECK(std::fabs(length - (r == 2 ? 0 : 1)) < 1e-6);
    }
    for (std::size_t k = 0; k < site.d_out(); ++k) {
        CHECK(result.b.row(k)[2] == site.b.row(k)[2]);
    }
    const std::vector<float> h = random_state(200, 2);
    const std::vector<double> wanted = plain_delta(site, h);
    CHECK(largest_difference(plain_delta(result, h), wanted) < 1e-6 * norm(view(wanted)));
    CHECK(served_rows(mode::client_held_b, site.rank(), site.d_out()) == 6);
}

TEST_CASE("sites whose matrices do not fit each other are neither balanced nor merged") {
    adapter_site site = random_site(12, 6, 200, 1);
    site.b = random_matrix(12, 5, 2);
    CHECK(contains(message_of<shape_error>([&] { static_cast<void>(balance(site)); }),
                   "a B of 5 columns, wanted 6"));
    CHECK(contains(message_of<shape_error>([&] { static_cast<void>(merge(site)); }),
                   "a B of 5 columns, wanted 6"));
    site = random_site(12, 6, 200, 1);
    site.a.values.pop_back();
    CHECK_THROWS_AS(static_cast<void>(balance(site)), shape_error);
    CHECK_THROWS_AS(static_cast<void>(merge(site)), shape_error);
    site = random_site(12, 6, 200, 1);
    site.b.values.pop_back();
    CHECK_THROWS_AS(static_cast<void>(balance(site)), shape_error);
    CHECK_THROWS_AS(static_cast<void>(merge(site)), shape_error);
}

TEST_CASE("steps out of order, or of another server's workspace, are refused") {
    session with = session_for<narrow>();
    const matrix a = random_matrix(9, 300, 1);
    const narrow s(a);
    const narrow other(random_matrix(3, 900, 2));
    const auto query = with.key_holder.encrypt(host{}, s.layout(), view(random_state(300, 1)));
    const auto other_query = with.key_holder.encrypt(host{}, other.layout(), view(random_state(900, 1)));
    narrow::workspace work;
    narrow::reply_type reply;
    CHECK(contains(message_of<shape_error>([&] { s.finish(host{}, work, reply); }), "call protect()"));
    CHECK(contains(message_of<shape_error>([&] { s.protect(host{}, with.zeros, work); }), "call multiply()"));
    CHECK(
        contains(message_of<shape_error>([&] { s.multiply(host{}, query.request, work); }), "call expand()"));
    other.expand(host{}, other_query.request, work);
    CHECK_THROWS_AS(s.multiply(host{}, query.request, work), shape_error);
    s.expand(host{}, query.request, work);
    CHECK_THROWS_AS(s.multiply(host{}, other_query.request, work), shape_error);
    s.multiply(host{}, query.request, work);
    CHECK_THROWS_AS(other.protect(host{}, with.zeros, work), shape_error);
    s.protect(host{}, with.zeros, work);
    CHECK_THROWS_AS(s.protect(host{}, with.zeros, work), shape_error);
    s.finish(host{}, work, reply);
    CHECK_THROWS_AS(s.finish(host{}, work, reply), shape_error);
}

TEST_CASE("a protect that failed can be started again from multiply") {
    session with = session_for<narrow>();
    const narrow s(random_matrix(9, 300, 1));
    const auto query = with.key_holder.encrypt(host{}, s.layout(), view(random_state(300, 1)));
    narrow::workspace work;
    s.expand(host{}, query.request, work);
    s.multiply(host{}, query.request, work);
    // A generator that was moved from throws.
    const tensafe::random::generator taken = std::move(work.generator);
    CHECK_THROWS_AS(s.protect(host{}, with.zeros, work), tensafe::error);
    work.generator = tensafe::random::generator();
    s.multiply(host{}, query.request, work);
    s.protect(host{}, with.zeros, work);
    narrow::reply_type reply;
    CHECK_NOTHROW(s.finish(host{}, work, reply));
}

TEST_CASE("a scale that no query has is refused") {
    session with = session_for<narrow>();
    const narrow s(random_matrix(4, 300, 1));
    const auto query = with.key_holder.encrypt(host{}, s.layout(), view(random_state(300, 1)));
    const auto reply = s.apply(host{}, query.request, with.zeros);
    for (const double scale :
         {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        CHECK_THROWS_AS(static_cast<void>(with.key_holder.decrypt(host{}, s.layout(), reply, scale)),
                        parameter_error);
    }
}

TEST_CASE("bare replies need no room for a flood") {
    using tiny = ckks::parameters<11, ckks::limb_bits<41>, 20>;
    const server<tiny, coefficient_tiles<4>, reveals_adapter_rows> s(random_matrix(8, 2048, 1));
    CHECK(s.layout().budget().flood.deviation() == 0);
    CHECK_THROWS_AS((server<tiny, coefficient_tiles<4>>(random_matrix(8, 2048, 1))), parameter_error);
}
