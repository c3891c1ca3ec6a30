#include <tensafe/rns/integer_rows.hpp>

#include "../backends.hpp"
#include "../test.hpp"

namespace {

using namespace tensafe::arith;
namespace limb = tensafe::rns::limb;

template <int Bits>
void check_rows(std::size_t rows, std::size_t d, bool largest) {
    const runtime_modulus<Bits> m((word{1} << Bits) - 1);
    const word q = m.value();
    constexpr std::int64_t bound = limb::integer_offset - 1;
    std::mt19937_64 random(rows * 10'000 + d);
    std::vector<std::uint32_t> a(rows * d);
    std::vector<word> b(d);
    for (auto& x : a) {
        x = static_cast<std::uint32_t>(limb::integer_offset +
                                       (largest ? bound : std::int64_t(random() % (2 * bound)) - bound));
    }
    for (word& x : b) {
        x = largest ? q - 1 : random() % q;
    }
    std::vector<word> expected(rows);
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t t = 0; t < d; ++t) {
            const std::int64_t x = std::int64_t{a[r * d + t]} - limb::integer_offset;
            const word residue = x < 0 ? q - static_cast<word>(-x) % q : static_cast<word>(x) % q;
            expected[r] = static_cast<word>((uint128{residue} * b[t] + expected[r]) % q);
        }
    }
    std::vector<word> out(rows);
    limb::multiply_integer_rows(barrett(m), std::span(out), a.data(), d, b);
    CHECK(out == expected);
}

TEST_CASE("sums of integers times residues are right for all widths, also of the largest ones") {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const bool largest : {false, true}) {
            for (const std::size_t d : {1UL, 7UL, 64UL, 1000UL, 40'000UL}) {
                for (const std::size_t rows : {1UL, 4UL, 6UL}) {
                    INFO("largest := ", largest, ", d := ", d, ", rows := ", rows);
                    check_rows<28>(rows, d, largest);
                    check_rows<44>(rows, d, largest);
                    check_rows<50>(rows, d, largest);
                    check_rows<61>(rows, d, largest);
                }
            }
        }
    });
}

}  // namespace
