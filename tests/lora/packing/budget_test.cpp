#include <tensafe/ckks/keys.hpp>
#include <tensafe/lora/adapter/normalize.hpp>

#include "../attacks/attack.hpp"

using namespace tests;
using namespace tensafe::lora;

namespace {

constexpr std::size_t rank = 32;
constexpr std::size_t d = 2048;

/// All rows at norm 1, as the budget assumes of the longest.
matrix balanced_rows(std::uint64_t seed) {
    return normalize_rows({"", random_matrix(rank, d, seed), matrix(1, rank), 1}).a;
}

using P = ckks::private_n4096;

template <class Set, class Kind>
struct with {
    using set = Set;
    using protection = Kind;
};
using compact = with<ckks::compact_n4096, protects_adapter_rows<average_case<6>>>;
using minimal = with<ckks::minimal_n2048, protects_adapter_rows<average_case<5>, reduced_precision>>;

template <class Set, class Protection>
constexpr reply_budget budget_of(std::size_t rows, std::size_t columns) {
    return layout<Set, coefficient_tiles<4>, Protection>{rows, columns, 1}.budget();
}

}  // namespace

TEST_CASE_TEMPLATE("the predicted error of average-case ranges is what is measured", With, compact, minimal) {
    using set = typename With::set;
    using server_type = server<set, coefficient_tiles<4>, typename With::protection>;
    const matrix a = balanced_rows(2);
    const server_type s(a);
    sides<set> with(s.layout().subring_log_n());
    attacks::statistics errors;
    for (std::uint64_t token = 0; token < 60; ++token) {
        const std::vector<float> h = random_state(d, 1000 + token);  // not the numbers of A
        const auto q = with.client.encrypt(s.plan(), h);
        const std::vector<double> got = with.client.decrypt(s.plan(), s.apply(q.request, with.pool), q);
        const std::vector<double> expected = product(a, h);
        const double typical = norm(h) / std::sqrt(static_cast<double>(d));
        for (std::size_t r = 0; r < rank; ++r) {
            errors.add((got[r] - expected[r]) / typical);
        }
    }
    const double ratio = errors.root_mean_square() / s.layout().budget().relative_error;
    INFO("answers: ", ratio, " of the predicted error");
    CHECK(ratio > 0.85);
    CHECK(ratio < 1.15);
    // The prediction keeps what the precision policy promises.
    CHECK(s.layout().budget().relative_error <= With::protection::precision::relative_error);
}

TEST_CASE("the predicted error passes the precision for one d in fifty, and by two percent at most") {
    const auto passes = [](auto kind, double share, double most) {
        using With = decltype(kind);
        std::size_t count = 0;
        std::size_t beyond = 0;
        double largest = 0;
        for (std::size_t columns = 1; columns <= 1U << 14; ++columns) {
            const auto [budget, problem] =
                lora::detail::compute_budget<typename With::set, typename With::protection>(
                    layout<typename With::set, coefficient_tiles<4>, typename With::protection>::geometry(
                        rank, columns));
            const double ratio = budget.relative_error / With::protection::precision::relative_error;
            count += problem == nullptr ? 1 : 0;
            beyond += problem == nullptr && ratio > 1 ? 1 : 0;
            largest = std::fmax(largest, problem == nullptr ? ratio : 0);
        }
        CHECK(static_cast<double>(beyond) <= share * static_cast<double>(count));
        CHECK(largest == doctest::Approx(most).epsilon(0.0005));
    };
    passes(with<P, protects_adapter_rows<>>(), 0.02, 1.007);
    passes(minimal(), 0.001, 1.016);
    CHECK(budget_of<minimal::set, minimal::protection>(rank, 5).relative_error >
          1.0155 * reduced_precision::relative_error);
}

TEST_CASE("the statistical distance grows with the replies, linearly or as their root, and stops at 1") {
    constexpr reply_budget budget = budget_of<P, protects_adapter_rows<>>(rank, d);
    double last = 0;
    for (double replies = 1; replies < 0x1p100; replies *= 2) {
        const double distance = budget.statistical_distance(rank, replies);
        CHECK(distance >= last);
        CHECK(distance <= std::fmax(2.01 * last, 1e-9));
        last = distance;
    }
    CHECK(last == 1);
    CHECK(budget.statistical_distance(rank) == budget.statistical_distance(rank, 0x1p20));
    CHECK(budget.statistical_distance(rank, 0) == 0);
    CHECK(budget.statistical_distance(2 * rank, 100) == budget.statistical_distance(rank, 200));
    // docs/design/protocol.md: after a quarter of d, and after 2^20 replies.
    CHECK(std::log2(budget.statistical_distance(rank, d / 4)) == doctest::Approx(-41.6).epsilon(0.001));
    CHECK(std::log2(budget.statistical_distance(rank)) == doctest::Approx(-36.1).epsilon(0.001));
    // The longest s and e_pk instead of average ones.
    const double longest = (2.0 / 3 * 21 * 21 + 10.5) * 4096 + 10.5;
    CHECK(std::hypot(budget.noise_deviation, std::sqrt(longest)) < (1 + 0x1p-19) * budget.leak_deviation());
}

TEST_CASE(
    "a target coefficient carries what the flood leaves of the modulus: less for wider floods and shorter "
    "replies") {
    const reply_budget b = budget_of<P, protects_adapter_rows<>>(32, 2048);
    CHECK(b.channel_bits() == doctest::Approx(18.75).epsilon(0.001));
    // What a random message of the whole modulus tells: its entropy less that of the flood, sampled.
    const tensafe::random::seed seed = tensafe::random::fresh_seed();
    std::vector<tensafe::arith::uint128> draws(std::size_t{1} << 20);
    b.flood.sample({seed, tensafe::random::stream_domain::flood, 0}, 0, draws);
    constexpr int bins = 10;
    std::vector<double> counts(std::size_t{4} << bins);
    for (const auto x : draws) {
        counts[static_cast<std::size_t>(x >> (b.flood.bits - bins))] += 1;
    }
    double entropy = b.flood.bits - bins;
    for (const double count : counts) {
        const double share = count / static_cast<double>(draws.size());
        entropy -= count > 0 ? share * std::log2(share) : 0;
    }
    const double carried = std::log2(b.modulus) - entropy;
    CHECK(b.channel_bits() >= carried - 0.005);
    CHECK(b.channel_bits() < carried + 0.01);

    CHECK(budget_of<compact::set, compact::protection>(32, 2048).channel_bits() ==
          doctest::Approx(15.75).epsilon(0.001));
    CHECK(budget_of<P, protects_adapter_rows<worst_case, reduced_precision>>(32, 2048).channel_bits() <
          b.channel_bits());
    CHECK(budget_of<P, reveals_adapter_rows>(32, 2048).channel_bits() ==
          doctest::Approx(std::log2(b.modulus)));
}

TEST_CASE("answers, noises, flood and rounding together stay within half the modulus") {
    const auto check = [](const reply_budget& b, double degree) {
        const double rounding = (degree + 1) / 2 * b.modulus * std::exp2(-b.reply_bits);
        CHECK(b.range + b.noise_worst + b.zero_worst + b.flood.largest() + rounding <=
              b.modulus / 2 * (1 + 1e-12));
        CHECK(b.range > 0.9 * b.modulus / 2);
        CHECK(b.flood.deviation() > 10 * b.leak_deviation());
        const double leak = b.leak_deviation() * b.leak_deviation();
        CHECK(std::fabs(leak - b.leak_share * b.noise_deviation * b.noise_deviation -
                        b.zero_deviation * b.zero_deviation) < 1e-9 * leak);
    };
    for (const std::size_t columns : {std::size_t{1}, std::size_t{100}, d, std::size_t{10000}}) {
        CAPTURE(columns);
        check(budget_of<P, protects_adapter_rows<>>(rank, columns), 4096);
        check(budget_of<ckks::quantum_n4096, protects_adapter_rows<>>(rank, columns), 4096);
        check(budget_of<compact::set, compact::protection>(rank, columns), 4096);
        check(budget_of<minimal::set, minimal::protection>(rank, std::min(columns, d)), 2048);
    }
}

TEST_CASE("an average-case range makes replies shorter and floods wider, and adds checksum rows") {
    constexpr reply_budget wide_range = budget_of<P, protects_adapter_rows<>>(rank, d);
    constexpr reply_budget narrow = budget_of<P, protects_adapter_rows<average_case<6>>>(rank, d);
    constexpr reply_budget narrower = budget_of<P, protects_adapter_rows<average_case<3>>>(rank, d);
    CHECK(narrow.reply_bits < wide_range.reply_bits);
    CHECK(narrower.reply_bits < narrow.reply_bits);
    CHECK(narrow.flood.bits > wide_range.flood.bits);
    CHECK(narrow.typical > 7 * wide_range.typical);  // sqrt(2048) / 6
    CHECK(narrow.weight_norm == wide_range.weight_norm);
    CHECK(narrow.statistical_distance(rank + 4) < wide_range.statistical_distance(rank));
    CHECK(wide_range.checksum_bits == 0);
    CHECK(narrow.checksum_bits > 0);
    CHECK(narrow.checksum_bits < narrow.reply_bits);
    // Where no answer can pass the factor, both ranges are one.
    CHECK(budget_of<P, protects_adapter_rows<average_case<6>>>(rank, 36).reply_bits ==
          budget_of<P, protects_adapter_rows<>>(rank, 36).reply_bits);
}

TEST_CASE("a lower precision makes replies shorter, floods wider and weights smaller") {
    constexpr reply_budget standard = budget_of<P, protects_adapter_rows<>>(rank, d);
    constexpr reply_budget reduced =
        budget_of<P, protects_adapter_rows<worst_case, reduced_precision>>(rank, d);
    CHECK(reduced.reply_bits < standard.reply_bits);
    CHECK(reduced.flood.bits > standard.flood.bits);
    CHECK(reduced.weight_norm < standard.weight_norm / 2);
    CHECK(reduced.noise_deviation < standard.noise_deviation / 2);
    CHECK(reduced.relative_error > standard.relative_error);
    CHECK(reduced.relative_error <= reduced_precision::relative_error);
    CHECK(standard.relative_error <= standard_precision::relative_error);
    CHECK(reduced.statistical_distance(rank) < standard.statistical_distance(rank));
}

TEST_CASE("answer_bits widens the flood and nothing else: each bit less is a bit of the channel") {
    const reply_budget eight = budget_of<P, protects_adapter_rows<worst_case, answer_bits<8>>>(rank, d);
    const reply_budget standard = budget_of<P, protects_adapter_rows<>>(rank, d);
    CHECK(eight.reply_bits < standard.reply_bits);
    CHECK(eight.weight_norm < standard.weight_norm);
    const auto check = [&]<int Bits>(std::integral_constant<int, Bits>) {
        CAPTURE(Bits);
        const reply_budget b = budget_of<P, protects_adapter_rows<worst_case, answer_bits<Bits>>>(rank, d);
        CHECK(b.relative_error <= answer_bits<Bits>::relative_error);
        CHECK(b.relative_error > answer_bits<Bits>::relative_error / 2);
        CHECK(b.weight_norm == eight.weight_norm);
        CHECK(b.reply_bits == eight.reply_bits);
        CHECK(b.flood.bits >= eight.flood.bits + 8 - Bits);
        CHECK(b.channel_bits() <= eight.channel_bits() - (8 - Bits) + 1e-9);
        CHECK(b.range > 0.9 * b.modulus / 2);
        CHECK(b.flood.deviation() > 0.8 * b.relative_error * b.typical);
        CHECK(b.statistical_distance(rank) < standard.statistical_distance(rank));
    };
    check(std::integral_constant<int, 6>{});
    check(std::integral_constant<int, 4>{});
    check(std::integral_constant<int, 3>{});
    check(std::integral_constant<int, 2>{});
    // Finer than standard's half are rounded as before.
    const reply_budget twelve = budget_of<P, protects_adapter_rows<worst_case, answer_bits<12>>>(rank, d);
    CHECK(twelve.weight_norm > eight.weight_norm);
}

TEST_CASE("answers of few bits err by what is predicted, anew for each request, and not by more than asked") {
    using server_type = server<P, coefficient_tiles<4>, protects_adapter_rows<worst_case, answer_bits<4>>>;
    const matrix a = balanced_rows(3);
    const server_type s(a);
    sides<P> with(70, s.layout().subring_log_n());
    server_type::reply_type reply;
    const std::vector<float> h = random_state(d, 1003);
    const std::vector<double> expected = product(a, h);
    const double typical = norm(h) / std::sqrt(static_cast<double>(d));
    attacks::statistics errors;
    std::vector<double> sums(rank);
    constexpr int times = 100;
    for (int t = 0; t < times; ++t) {
        const auto q = with.client.encrypt(s.plan(), h);
        s.apply(q.request, with.pool, with.work, reply);
        const std::vector<double> got = with.client.decrypt(s.plan(), reply, q);
        for (std::size_t r = 0; r < rank; ++r) {
            errors.add((got[r] - expected[r]) / typical);
            sums[r] += (got[r] - expected[r]) / typical;
        }
    }
    const double predicted = s.layout().budget().relative_error;
    CHECK(predicted <= 1.0 / 16);
    CHECK(std::fabs(errors.root_mean_square() / predicted - 1) < 0.06);  // of 3200: four deviations are 5 %
    // The mean of a hundred answers is ten times as good, which is what asking again is worth.
    attacks::statistics means;
    for (const double sum : sums) {
        means.add(sum / times);
    }
    CHECK(means.root_mean_square() < predicted / 10 * 1.6);
    CHECK(means.root_mean_square() > predicted / 10 * 0.5);
}

TEST_CASE("requests use the fewest limbs that have 80 bits, or all") {
    CHECK(request_level<ckks::private_n4096> == 1);
    CHECK(request_level<ckks::quantum_n4096> == 1);
    CHECK(request_level<ckks::compact_n4096> == 1);
    CHECK(request_level<ckks::minimal_n2048> == 0);
    CHECK(request_level<ckks::n16384_l5> == 1);
}
