#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/packing/plan.hpp>

#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

TEST_CASE("a layout that layout::of does not give makes no plan") {
    const auto wrong = []<class Layout>(const Layout& right, auto change) {
        Layout layout = right;
        change(layout);
        CHECK_THROWS_AS(packing_plan{layout}, tensafe::error);
    };
    const auto check = [&](const auto& right) {
        wrong(right, [](auto& l) { l.rank = 0; });
        wrong(right, [](auto& l) { l.rank = std::numeric_limits<std::size_t>::max(); });
        wrong(right, [](auto& l) { l.d = 0; });
        wrong(right, [](auto& l) { l.d = std::numeric_limits<std::size_t>::max(); });
        wrong(right, [](auto& l) { l.row_norm = -1; });
        wrong(right, [](auto& l) { l.row_norm = not_a_number; });
        wrong(right, [](auto& l) { l = {}; });
    };
    const auto of_slots = slot_server<>(random_matrix(8, 300, 1)).layout();
    check(of_slots);
    check(tiles<4>(random_matrix(6, 300, 1)).layout());
    wrong(of_slots, [](auto& l) { l.row_norm = 2 * l.largest_row_norm(); });
}

TEST_CASE("plans of blocks are checked, and sets whose integers would overflow have none") {
    using plan_type = packing_plan<small, token_blocks>;
    for (const std::size_t tokens : {0UL, 1UL, 1025UL, 2048UL}) {
        plan_type::layout_type l{{3, 200, 1}};
        l.tokens = tokens;
        CHECK_THROWS_AS(plan_type{l}, shape_error);
    }
    const auto refused = []<class P>(P, const char* why) {
        CHECK(!offers_blocks<P, protects_adapter_rows<>>);
        using layout_type = typename packing_plan<P, token_blocks>::layout_type;
        CHECK(contains(refusal<parameter_error>([] { layout_type::of(3, 200, 1, 4); }), why));
        server<P, coefficient_tiles<4>>(random_matrix(3, 200, 1));  // single tokens have room
    };
    refused(ckks::parameters<10, ckks::limb_bits<40, 39, 60>, 30, ckks::insecure_for_tests>(),
            "hidden states below 2^112");
    refused(ckks::parameters<10, ckks::limb_bits<45, 27, 26>, 20, ckks::insecure_for_tests>(),
            "primes above 2^28");
}

TEST_CASE("a layout that no matrix has makes no plan") {
    using layout = tiles<4>::layout_type;
    for (const auto& l : {layout{}, layout{6, 0, 1}, layout{6, ~std::size_t{0}, 1}}) {
        CHECK_THROWS_AS(lora::packing_plan{l}, shape_error);
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
