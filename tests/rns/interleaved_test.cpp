#include <tensafe/ntt/transform.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/interleaved.hpp>

#include "../backends.hpp"
#include "../test.hpp"

namespace {

using tensafe::arith::word;
namespace rns = tensafe::rns;

/// Against one transform at a time.
template <word Q>
void check_interleaved(int log_n, std::size_t count) {
    const auto& plan = rns::shared_subring_plan<12, Q>(log_n);
    const std::size_t n = plan.degree();
    std::mt19937_64 random(static_cast<std::size_t>(log_n) * 100 + count);
    std::vector<word> data(n * count);
    for (word& x : data) {
        x = random() % 7 == 0 ? Q - 1 : random() % Q;
    }
    std::vector<word> expected(data.size());
    for (std::size_t j = 0; j < count; ++j) {
        std::vector<word> one(n);
        for (std::size_t c = 0; c < n; ++c) {
            one[c] = data[c * count + j];
        }
        tensafe::ntt::forward(plan, std::span(one));
        for (std::size_t c = 0; c < n; ++c) {
            expected[c * count + j] = one[c];
        }
    }
    auto forward = data;
    rns::limb::forward_interleaved(plan, std::span(forward));
    CHECK(forward == expected);
    rns::limb::inverse_interleaved(plan, std::span(forward));
    for (word& x : data) {
        x = static_cast<word>(tensafe::arith::uint128{x} * n % Q);
    }
    CHECK(forward == data);
}

TEST_CASE("interleaved transforms are those of each polynomial, the inverse times the degree") {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const int log_n : {1, 2, 3, 6, 7, 8, 11}) {
            for (const std::size_t count : {1UL, 2UL, 3UL, 4UL, 8UL, 32UL}) {
                INFO("log_n := ", log_n, ", count := ", count);
                check_interleaved<tensafe::arith::ntt_prime_below(word{1} << 36, 12)>(log_n, count);
                check_interleaved<tensafe::arith::ntt_prime_below(word{1} << 50, 12)>(log_n, count);
                check_interleaved<tensafe::arith::ntt_prime_below(word{1} << 60, 12)>(log_n, count);
            }
        }
    });
}

}  // namespace
