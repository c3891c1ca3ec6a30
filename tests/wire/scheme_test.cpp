#include <tensafe/lora/packing/replicated_slots.hpp>
#include <tensafe/wire/scheme.hpp>

#include "../random_values.hpp"
#include "../test.hpp"

using namespace tests;

namespace {

template <class Range = lora::worst_case, class Precision = lora::standard_precision>
using protects = lora::protects_adapter_rows<Range, Precision>;
using bare = lora::reveals_adapter_rows;

}  // namespace

TEST_CASE("the scheme ids of version 1 are these numbers, for ever") {
    CHECK(wire::scheme_id<lora::coefficient_tiles<4>, protects<>> == 0x38fba88201010201U);
    CHECK(wire::scheme_id<lora::coefficient_tiles<4>, bare> == 0x38fba88201000201U);
    CHECK(wire::scheme_id<lora::coefficient_tiles<32>, protects<lora::average_case<6>>> ==
          0x38fba88201060501U);
    CHECK(wire::scheme_id<lora::coefficient_tiles<32>,
                          protects<lora::average_case<5>, lora::reduced_precision>> == 0x398d8ec901050501U);
    CHECK(wire::scheme_id<lora::token_blocks, protects<>> == 0x38fba88201010004U);
    CHECK(wire::scheme_id<lora::replicated_slots<>, bare> == 0x38fba88201000203U);
    CHECK(wire::scheme_id<lora::replicated_slots<lora::single_rows, lora::rescaled_replies>, bare> ==
          0x38fba88201001103U);
}

TEST_CASE("schemes that differ in anything have different ids") {
    std::set<std::uint64_t> ids;
    std::size_t count = 0;
    const auto add = [&](std::uint64_t id) {
        ids.insert(id);
        ++count;
        CHECK(id != 0);
    };
    const auto with = [&]<class Packing>(Packing) {
        add(wire::scheme_id<Packing, bare>);
        add(wire::scheme_id<Packing, protects<>>);
        add(wire::scheme_id<Packing, protects<lora::average_case<3>>>);
        add(wire::scheme_id<Packing, protects<lora::average_case<64>>>);
        add(wire::scheme_id<Packing, protects<lora::worst_case, lora::reduced_precision>>);
        add(wire::scheme_id<Packing, protects<lora::average_case<3>, lora::reduced_precision>>);
        add(wire::scheme_id<Packing, protects<lora::worst_case, lora::answer_bits<6>>>);
        add(wire::scheme_id<Packing, protects<lora::worst_case, lora::answer_bits<7>>>);
        add(wire::scheme_id<Packing, protects<lora::average_case<3>, lora::answer_bits<6>>>);
    };
    with(lora::coefficient_tiles<1>{});
    with(lora::coefficient_tiles<2>{});
    with(lora::coefficient_tiles<128>{});
    with(lora::token_blocks{});
    with(lora::replicated_slots<>{});
    with(lora::replicated_slots<lora::single_rows>{});
    with(lora::replicated_slots<lora::paired_rows, lora::rescaled_replies>{});
    CHECK(ids.size() == count);
}

TEST_CASE("a scheme is named in words, and one that is not known by its id") {
    CHECK(wire::scheme_name(wire::scheme_id<lora::coefficient_tiles<4>, protects<>>) ==
          "coefficient_tiles 4, protects_adapter_rows, worst-case, precision 0.00012 (scheme id "
          "0x38fba88201010201)");
    CHECK(
        wire::scheme_name(wire::scheme_id<lora::coefficient_tiles<32>, protects<lora::average_case<6>>>)
            .starts_with("coefficient_tiles 32, protects_adapter_rows, average-case 6, precision 0.00012 ("));
    CHECK(wire::scheme_name(
              wire::scheme_id<lora::coefficient_tiles<4>, protects<lora::worst_case, lora::answer_bits<6>>>)
              .starts_with("coefficient_tiles 4, protects_adapter_rows, worst-case, precision 0.015625 ("));
    CHECK(wire::scheme_name(wire::scheme_id<lora::token_blocks, protects<>>)
              .starts_with("token_blocks, protects_adapter_rows, worst-case, precision 0.00012 ("));
    CHECK(wire::scheme_name(wire::scheme_id<lora::replicated_slots<>, bare>)
              .starts_with("replicated_slots 2 unrescaled, "));
    CHECK(wire::scheme_name(
              wire::scheme_id<lora::replicated_slots<lora::single_rows, lora::rescaled_replies>, bare>)
              .starts_with("replicated_slots 1 rescaled, "));
    for (const std::uint64_t id : {0x0U, 0x01010204U, 0x01011201U, 0x01010002U, 0x01010003U, 0x01012203U,
                                   0x01020201U, 0x01410201U, 0x02010201U}) {
        CHECK(wire::scheme_name(id) ==
              "an unknown packing and protection (scheme id " + tensafe::wire::identifier_text(id) + ")");
    }
}

TEST_CASE("the rules of budgets are those that the number in a scheme id stands for") {
    // None of this travels, and both ends must compute it alike: when a line fails, raise wire::budget_rules.
    REQUIRE(wire::budget_rules == 1);
    const auto check = [](const lora::reply_budget& b, double weight_norm, int reply_bits, int checksum_bits,
                          double range_bits) {
        CHECK(b.weight_norm == weight_norm);
        CHECK(b.reply_bits == reply_bits);
        CHECK(b.checksum_bits == checksum_bits);
        CHECK(std::fabs(std::log2(b.range) - range_bits) < 1e-4);
    };
    using P = ckks::private_n4096;
    check(lora::layout<P, lora::coefficient_tiles<4>, protects<>>::of(32, 2048, 1).budget(), 241925, 24, 0,
          87.9996);
    check(lora::layout<ckks::compact_n4096, lora::coefficient_tiles<32>, protects<lora::average_case<6>>>::of(
              32, 2048, 1)
              .budget(),
          241925, 21, 13, 68.9971);
    check(lora::layout<ckks::minimal_n2048, lora::coefficient_tiles<4>,
                       protects<lora::average_case<5>, lora::reduced_precision>>::of(32, 2048, 1)
              .budget(),
          107523, 19, 12, 39.9929);
    check(lora::layout<P, lora::token_blocks, protects<>>::of(32, 2048, 1, 32).budget(), 241925, 24, 0,
          87.9996);
    check(lora::layout<P, lora::replicated_slots<>, protects<>>::of(32, 512, 1).budget(), 120963, 25, 0,
          87.9998);
    check(lora::layout<P, lora::coefficient_tiles<4>, bare>::of(32, 2048, 1).budget(), 241925, 0, 0, 88.0);
    check(lora::layout<P, lora::coefficient_tiles<4>, protects<lora::worst_case, lora::answer_bits<4>>>::of(
              32, 2048, 1)
              .budget(),
          7432, 19, 0, 87.9830);
}
