// Slots: where rows stand, and products of classic replies and of protected ones. Long, for classic ones have
// an error of their own.
#include <tensafe/lora/packing/replicated_slots.hpp>

#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

namespace {

template <class P, class Packing>
using bare_layout = layout<P, Packing, reveals_adapter_rows>;

using paired = replicated_slots<paired_rows>;
using single = replicated_slots<single_rows>;
using rescaled = replicated_slots<paired_rows, rescaled_replies>;
using single_rescaled = replicated_slots<single_rows, rescaled_replies>;
template <class Packing>
using hidden = server<small_slots, Packing, protects_adapter_rows<>>;
template <class Packing>
using classic = slot_server<small_slots, Packing>;

constexpr std::initializer_list<std::size_t> ranks = {1,  2,  3,  4,  5,  7,  8,  12,  15, 16,
                                                      17, 31, 32, 33, 48, 64, 96, 127, 128};
constexpr std::size_t largest_d = 5000;

/// Calls check(layout, rank, d) -> bool for every shape; the first shape for which it is false, as a text.
template <class P, class Packing, class Check>
std::string first_failure(Check check) {
    for (const std::size_t rank : ranks) {
        for (std::size_t d = 1; d <= largest_d; ++d) {
            if (!check(bare_layout<P, Packing>::of(rank, d, 1.0).slots(), rank, d)) {
                return "rank " + std::to_string(rank) + ", d " + std::to_string(d);
            }
        }
    }
    return "none";
}

}  // namespace

TEST_CASE_TEMPLATE("every row of A stands at exactly one place of exactly one product", Packing, paired,
                   single) {
    const std::string failure =
        first_failure<small_slots, Packing>([](const auto& layout, std::size_t rank, std::size_t) {
            std::vector<int> places(rank);
            for (std::size_t o = 0; o < layout.outputs; ++o) {
                for (std::size_t r = 0; r < layout.stride; ++r) {
                    for (std::size_t part = 0; part < Packing::rows_per_slot; ++part) {
                        if (layout.row(o, r, part) < rank) {
                            ++places[layout.row(o, r, part)];
                        }
                    }
                }
            }
            bool once = true;
            for (const int n : places) {
                once = once && n == 1;
            }
            return once;
        });
    CHECK(failure == "none");
}

TEST_CASE("known layouts come out as worked out by hand") {
    using P = ckks::n16384_l4;  // 8192 slots
    struct known {
        std::size_t rank, d, inputs, outputs, g;
    };
    for (const known& k :
         {known{32, 2048, 1, 4, 4}, known{32, 4096, 1, 8, 2}, known{32, 512, 1, 1, 16},
          known{96, 2048, 1, 12, 4}, known{32, 5120, 1, 16, 1}, known{16, 1536, 1, 2, 4},
          known{8, 8192, 1, 4, 1}, known{8, 8193, 2, 4, 1}, known{7, 17920, 3, 4, 1}, known{1, 1, 1, 1, 1}}) {
        const auto whole = bare_layout<P, paired>::of(k.rank, k.d, 1.0);
        const auto layout = whole.slots();
        INFO("k.rank := ", k.rank, ", k.d := ", k.d);
        CHECK(layout.inputs == k.inputs);
        CHECK(layout.outputs == k.outputs);
        CHECK(layout.stride == k.g);
        CHECK((std::size_t{1} << whole.subring_log_n()) == 2 * k.g);
    }
    CHECK(bare_layout<P, single>::of(32, 2048, 1.0).outputs() == 8);
}

TEST_CASE("rows are interleaved: slot r + g*t holds entry t for every r, and zeros follow the last entry") {
    for (const std::size_t d :
         {1U, 2U, 3U, 100U, 255U, 256U, 257U, 512U, 1000U, 1024U, 1025U, 2048U, 2500U}) {
        CAPTURE(d);
        const auto layout = bare_layout<small_slots, paired>::of(32, d, 1.0).slots();
        std::vector<float> h(d);
        for (std::size_t t = 0; t < d; ++t) {
            h[t] = static_cast<float>(t + 1);
        }
        std::vector<std::size_t> seen(d);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < layout.inputs; ++i) {
            std::vector<std::complex<double>> slots(small_slots::slots, {-1, -1});
            layout.replicate(std::span<const float>(h), i, ~std::uint64_t{0}, slots);
            for (std::size_t j = 0; j < slots.size(); ++j) {
                const std::size_t entry = i * layout.entries_per_input() + j / layout.stride;
                const double expected = entry < d ? static_cast<double>(entry + 1) : 0.0;
                wrong += slots[j] == std::complex<double>(expected, 0.0) ? 0U : 1U;
                if (entry < d) {
                    ++seen[entry];
                }
            }
        }
        CHECK(wrong == 0);
        CHECK(seen == std::vector<std::size_t>(d, layout.stride));
    }
}

TEST_CASE("unrescaled replies hold the squared scale in two limbs, rescaled ones the scale in one") {
    using P = ckks::n16384_l4;
    CHECK(paired::reply_level<P> == 3);
    CHECK(paired::reply_limbs<P> == 2);
    CHECK(paired::reply_scale<P> == 0x1p80);
    CHECK(rescaled::reply_level<P> == 2);
    CHECK(rescaled::reply_limbs<P> == 1);
    CHECK(rescaled::reply_scale<P> == 0x1p40);
    CHECK(rescaled::weight_scale<P>() == static_cast<double>(P::basis::primes[3]));
}

TEST_CASE_TEMPLATE(
    "at the largest norm a pair of answers and its noise fill half the reply's modulus, no more", Replies,
    unrescaled_replies, rescaled_replies) {
    using packing = replicated_slots<paired_rows, Replies>;
    double modulus = 1;
    for (int i = 0; i < packing::template reply_limbs<small_slots>; ++i) {
        modulus *= static_cast<double>(small_slots::basis::primes[static_cast<std::size_t>(i)]);
    }
    for (const double row_norm : {1e-6, 1.0, 30.0}) {
        const auto layout = bare_layout<small_slots, packing>::of(4, 300, row_norm);
        const double largest = std::sqrt(2.0) * row_norm * layout.budget().largest_norm *
                               packing::template reply_scale<small_slots>;
        CHECK(largest <= modulus / 2 * (63.0 / 64));
        CHECK(largest >= modulus / 2 * (62.0 / 64));
    }
}

TEST_CASE("rows that are zero or tiny still bound the norm, because rounding lengthens them") {
    const double zero = bare_layout<small_slots, paired>::of(4, 300, 0.0).budget().largest_norm;
    CHECK(zero > 0x1p40);
    CHECK(zero < 0x1p60);
    CHECK(bare_layout<small_slots, paired>::of(4, 300, 1e-30).budget().largest_norm <= zero);
}

TEST_CASE("an empty matrix and a norm that is none are refused") {
    using of_slots = bare_layout<small_slots, paired>;
    CHECK_THROWS_AS(of_slots::of(0, 5, 1.0), shape_error);
    CHECK_THROWS_AS(of_slots::of(5, 0, 1.0), shape_error);
    CHECK_THROWS_AS(of_slots::of(5, 5, -1.0), parameter_error);
    CHECK_THROWS_AS(of_slots::of(5, 5, not_a_number), parameter_error);
    CHECK_THROWS_AS(of_slots::of(5, 5, infinity), parameter_error);
}

TEST_CASE_TEMPLATE("the encrypted product equals A*h up to the predicted error, for shapes of every kind",
                   Server, classic<paired>, classic<single>, classic<rescaled>, classic<single_rescaled>,
                   hidden<paired>, hidden<single>) {
    client<small_slots> c;
    for (const auto& s : slot_shapes) {
        INFO("s.rank := ", s.rank, ", s.d := ", s.d);
        const matrix a = random_matrix(s.rank, s.d, s.rank + 1000 * s.d);
        const std::vector<float> h = random_state(s.d, s.d);
        const Server of_a(a);
        CHECK(error_in_deviations(encrypted_product(c, of_a, h), of_a, a, h) < most_deviations);
    }
}

TEST_CASE_TEMPLATE("the predicted error is no overestimate: over many answers it is what is measured", Server,
                   classic<paired>, classic<rescaled>, hidden<paired>) {
    client<small_slots> c;
    const matrix a = balanced(random_matrix(400, 300, 1));
    const std::vector<float> h = random_state(300, 2);
    const Server s(a);
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

TEST_CASE_TEMPLATE("sets that protect something give A*h up to the predicted error", P, ckks::n16384_l4,
                   ckks::n8192_l4) {
    client<P> c;
    const matrix a = random_matrix(32, 1536, 3);
    const std::vector<float> h = random_state(1536, 4);
    const slot_server<P> s(a);
    CHECK(error_in_deviations(encrypted_product(c, s, h), s, a, h) < most_deviations);
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
        client<small_slots> c;
        const classic<paired> s(a);
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
    client<small_slots> c;
    const classic<paired> s(random_matrix(4, 300, 1));
    const double limit = s.plan().budget().largest_norm;
    const std::vector<double> h(300, 1.0001 * limit / std::sqrt(300.0));
    const std::string message = refusal<encoding_error>([&] { c.encrypt(s.plan(), h); });
    CHECK(contains(message, "passes " + tensafe::shortest_text(limit)));
    const std::vector<double> beyond_squares(300, 1e200);
    CHECK_THROWS_AS(c.encrypt(s.plan(), beyond_squares), encoding_error);
    const classic<paired> zero_rows(matrix(4, 300));
    CHECK_THROWS_AS(c.encrypt(zero_rows.plan(), beyond_squares), encoding_error);
}

TEST_CASE_TEMPLATE("answers that fill the range do not wrap around, in the worst direction", Server,
                   hidden<paired>, hidden<single>) {
    // Rows along h, with the signs for which all of a pair's amplitude, sqrt(2) of one answer, meets in one
    // coefficient: see the largest norm above.
    client<small_slots> c;
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
