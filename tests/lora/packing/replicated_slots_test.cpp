#include <tensafe/ckks/parameters.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>

#include <initializer_list>

#include "../../test.hpp"

using namespace tests;
using namespace tensafe::lora;

namespace {

template <class P, class Packing>
using bare_layout = tensafe::lora::layout<P, Packing, tensafe::lora::reveals_adapter_rows>;

/// 1024 slots.
using small = ckks::parameters<11, ckks::limb_bits<60, 40, 40, 60>, 40, ckks::insecure_for_tests>;
using paired = replicated_slots<paired_rows>;
using single = replicated_slots<single_rows>;

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
        first_failure<small, Packing>([](const auto& layout, std::size_t rank, std::size_t) {
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

TEST_CASE_TEMPLATE("every product carries at least one row, and no input is without an entry", Packing,
                   paired, single) {
    const std::string failure =
        first_failure<small, Packing>([](const auto& layout, std::size_t rank, std::size_t d) {
            return layout.row(layout.outputs - 1, 0, 0) < rank &&
                   (layout.inputs - 1) * layout.entries_per_input() < d &&
                   layout.inputs * layout.entries_per_input() >= d;
        });
    CHECK(failure == "none");
}

TEST_CASE_TEMPLATE("the number of products is the rank over the rows that fit, rounded up", Packing, paired,
                   single) {
    // Counted in another way than the layout does: one power of two after the other.
    const std::string failure =
        first_failure<small, Packing>([](const auto& layout, std::size_t rank, std::size_t d) {
            std::size_t fit = 1;
            while (2 * fit * d <= small::slots) {
                fit *= 2;
            }
            std::size_t products = 0;
            for (std::size_t served = 0; served < rank; served += fit * Packing::rows_per_slot) {
                ++products;
            }
            return layout.outputs == products && layout.stride <= fit;
        });
    CHECK(failure == "none");
}

TEST_CASE("no smaller power of two would serve a single product's rows") {
    const std::string failure =
        first_failure<small, paired>([](const auto& layout, std::size_t rank, std::size_t) {
            const std::size_t g = layout.stride;
            return std::has_single_bit(g) && (g == 1 || layout.outputs > 1 || g < rank);
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
        const auto layout = bare_layout<small, paired>::of(32, d, 1.0).slots();
        std::vector<float> h(d);
        for (std::size_t t = 0; t < d; ++t) {
            h[t] = static_cast<float>(t + 1);
        }
        std::vector<std::size_t> seen(d);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < layout.inputs; ++i) {
            std::vector<std::complex<double>> slots(small::slots, {-1, -1});
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
    using unrescaled = replicated_slots<paired_rows, unrescaled_replies>;
    using rescaled = replicated_slots<paired_rows, rescaled_replies>;
    using P = ckks::n16384_l4;
    CHECK(unrescaled::reply_level<P> == 3);
    CHECK(unrescaled::reply_limbs<P> == 2);
    CHECK(unrescaled::reply_scale<P> == 0x1p80);
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
    for (int i = 0; i < packing::template reply_limbs<small>; ++i) {
        modulus *= static_cast<double>(small::basis::primes[static_cast<std::size_t>(i)]);
    }
    for (const double row_norm : {1e-6, 1.0, 30.0}) {
        const auto layout = bare_layout<small, packing>::of(4, 300, row_norm);
        const double largest =
            std::sqrt(2.0) * row_norm * layout.budget().largest_norm * packing::template reply_scale<small>;
        CHECK(largest <= modulus / 2 * (63.0 / 64));
        CHECK(largest >= modulus / 2 * (62.0 / 64));
    }
}

TEST_CASE("rows that are zero or tiny still bound the norm, because rounding lengthens them") {
    const double zero = bare_layout<small, paired>::of(4, 300, 0.0).budget().largest_norm;
    CHECK(zero > 0x1p40);
    CHECK(zero < 0x1p60);
    CHECK(bare_layout<small, paired>::of(4, 300, 1e-30).budget().largest_norm <= zero);
}

TEST_CASE("an empty matrix and a norm that is none are refused") {
    using layout = bare_layout<small, paired>;
    CHECK_THROWS_AS(layout::of(0, 5, 1.0), shape_error);
    CHECK_THROWS_AS(layout::of(5, 0, 1.0), shape_error);
    CHECK_THROWS_AS(layout::of(5, 5, -1.0), parameter_error);
    CHECK_THROWS_AS(layout::of(5, 5, not_a_number), parameter_error);
    CHECK_THROWS_AS(layout::of(5, 5, infinity), parameter_error);
}
