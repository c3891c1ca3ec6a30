#include <tensafe/rns/integer_rows.hpp>

#include "../backends.hpp"
#include "../test.hpp"

namespace {

using namespace tensafe::arith;
namespace limb = tensafe::rns::limb;

/// Of each limb a product, at once.
template <int... Bits>
void check_rows(std::size_t rows, std::size_t d, bool largest) {
    constexpr std::int64_t bound = limb::integer_offset - 1;
    constexpr std::size_t limbs = sizeof...(Bits);
    const word q[] = {(word{1} << Bits) - 1 ...};
    tests::random_numbers random(rows * 10'000 + d);
    std::vector<std::uint32_t> a(rows * d);
    for (auto& x : a) {
        x = static_cast<std::uint32_t>(limb::integer_offset +
                                       (largest ? bound : std::int64_t(random() % (2 * bound)) - bound));
    }
    std::vector<word> b[limbs];
    std::vector<word> expected[limbs];
    std::vector<word> out[limbs];
    for (std::size_t i = 0; i < limbs; ++i) {
        b[i].resize(d);
        out[i].resize(rows);
        expected[i].resize(rows);
        for (word& x : b[i]) {
            x = largest ? q[i] - 1 : random() % q[i];
        }
        for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t t = 0; t < d; ++t) {
                const std::int64_t x = std::int64_t{a[(r / 8 * d + t) * 8 + r % 8]} - limb::integer_offset;
                const word residue =
                    x < 0 ? q[i] - static_cast<word>(-x) % q[i] : static_cast<word>(x) % q[i];
                expected[i][r] = static_cast<word>((uint128{residue} * b[i][t] + expected[i][r]) % q[i]);
            }
        }
    }
    [&]<std::size_t... i>(std::index_sequence<i...>) {
        limb::multiply_integer_rows(a.data(), d, rows,
                                    limb::row_products<runtime_modulus<Bits>>{
                                        barrett(runtime_modulus<Bits>(q[i])), b[i].data(), out[i].data()}...);
    }
    (std::make_index_sequence<limbs>());
    for (std::size_t k = 0; k < limbs; ++k) {
        CHECK(out[k] == expected[k]);
    }
}

TEST_CASE("sums of integers times residues are right for all widths, also of the largest ones") {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const bool largest : {false, true}) {
            for (const std::size_t d : {1UL, 7UL, 64UL, 1000UL, 5000UL}) {
                for (const std::size_t rows : {8UL, 32UL, 56UL}) {
                    INFO("largest := ", largest, ", d := ", d, ", rows := ", rows);
                    check_rows<28>(rows, d, largest);
                    check_rows<44>(rows, d, largest);
                    check_rows<50>(rows, d, largest);
                    check_rows<61>(rows, d, largest);
                    check_rows<45, 44>(rows, d, largest);
                    check_rows<50, 60, 44>(rows, d, largest);
                }
            }
        }
    });
}

template <int Bits>
void check_scaled() {
    const runtime_modulus<Bits> m((word{1} << Bits) - 1);
    const word q = m.value();
    const shoup policy(m);
    std::vector<std::uint32_t> a(40);
    for (std::size_t k = 0; k < a.size(); ++k) {
        a[k] = static_cast<std::uint32_t>(k % 3 == 0 ? 1 : 2 * limb::integer_offset - 1 - k);
    }
    std::vector<word> out(40);
    limb::scale_integers(policy, std::span(out), &a[32], policy.prepare(q - 2));
    for (std::size_t k = 0; k < a.size(); ++k) {
        const word x = q + a[32 - k / 8 * 8 + k % 8] - limb::integer_offset;
        CHECK(out[k] == static_cast<word>(uint128{x} * (q - 2) % q));
    }
}

TEST_CASE("integers times a residue, from the last to the first") {
    tests::for_each_backend([](tensafe::exec::backend) {
        check_scaled<29>();
        check_scaled<45>();
        check_scaled<50>();
        check_scaled<61>();
    });
}

}  // namespace
