#include <tensafe/lora/protocol/toeplitz_row.hpp>

#include "../../backends.hpp"
#include "../../test.hpp"

namespace {

/// The coefficient of X^p of c*s modulo X^N + 1 and 2^32, by the schoolbook.
std::uint32_t coefficient(const std::vector<std::uint32_t>& c, const std::vector<std::int8_t>& s,
                          std::size_t p) {
    const std::size_t n = c.size();
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
            if ((i + j) % n == p) {
                const auto term = c[i] * static_cast<std::uint32_t>(std::int32_t{s[j]});
                sum += i + j < n ? term : 0 - term;
            }
        }
    }
    return sum;
}

}  // namespace

TEST_CASE("every coefficient of a product with a ternary polynomial is an inner product") {
    tests::random_numbers random(3);
    for (const std::size_t n : {32U, 64U, 96U}) {
        std::vector<std::uint32_t> c(n);
        std::vector<std::int8_t> s(n);
        for (std::size_t i = 0; i < n; ++i) {
            c[i] = i % 5 == 0 ? ~std::uint32_t{0} : static_cast<std::uint32_t>(random());
            s[i] = static_cast<std::int8_t>(static_cast<int>(random() % 3) - 1);
        }
        const tensafe::lora::toeplitz_row window(s);
        tests::for_each_backend([&](tensafe::exec::backend) {
            for (std::size_t p = 0; p < n; ++p) {
                INFO("n := ", n, ", p := ", p);
                CHECK(window.coefficient_of_product(c, p) == coefficient(c, s, p));
            }
            for (const std::size_t step : {1U, 2U, 4U, 7U, 8U, 16U, 24U}) {
                for (std::size_t count = 0; count == 0 || (count - 1) * step < n; ++count) {
                    std::vector<std::uint64_t> out(count);
                    window.coefficients_of_product(c, step, out);
                    for (std::size_t k = 0; k < count; ++k) {
                        INFO("n := ", n, ", step := ", step, ", k := ", k);
                        CHECK(out[k] == coefficient(c, s, k * step));
                    }
                }
            }
        });
    }
}

TEST_CASE("sums wrap around 2^32") {
    constexpr std::uint32_t n = 1024;
    const std::vector<std::uint32_t> c(n, 0x80000001U);
    const tensafe::lora::toeplitz_row window(std::vector<std::int8_t>(n, 1));
    tests::for_each_backend([&](tensafe::exec::backend) {
        // p + 1 terms count forwards, the others backwards.
        CHECK(window.coefficient_of_product(c, n - 1) == 0x80000001U * n);
        CHECK(window.coefficient_of_product(c, 0) == 0x80000001U - 0x80000001U * (n - 1));
    });
}
