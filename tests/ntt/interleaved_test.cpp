#include <tensafe/ntt/interleaved.hpp>
#include <tensafe/ntt/transform.hpp>
#include <tensafe/rns/basis.hpp>

#include "../backends.hpp"
#include "../test.hpp"

namespace {

using tensafe::arith::word;
namespace ntt = tensafe::ntt;
namespace rns = tensafe::rns;

constexpr std::size_t lanes = ntt::interleaved;

/// Against one transform at a time, with gaps between entries.
template <word Q>
void check_interleaved(int log_n, std::size_t gap) {
    const auto& plan = rns::shared_subring_plan<12, Q>(log_n);
    const std::size_t n = plan.degree();
    const std::size_t stride = lanes + gap;
    tests::random_numbers random(n);
    std::vector<word> data(n * stride);
    for (word& x : data) {
        x = random() % 7 == 0 ? Q - 1 : random() % Q;
    }
    std::vector<word> expected(n * stride, Q);
    for (std::size_t j = 0; j < lanes; ++j) {
        std::vector<word> one(n);
        for (std::size_t c = 0; c < n; ++c) {
            one[c] = data[c * stride + j];
        }
        tensafe::ntt::forward(plan, std::span(one));
        for (std::size_t c = 0; c < n; ++c) {
            expected[c * stride + j] = one[c];
        }
    }
    std::vector<word> scratch(n * lanes);
    std::vector<word> forward(n * stride, Q);
    ntt::forward_interleaved(plan, 1, data.data(), stride, scratch.data(), forward.data(), stride);
    CHECK(forward == expected);

    // The halves by themselves, after the first stage.
    std::vector<word> half(n / 2 * lanes);
    const auto w = plan.forward_factors()[1].value;
    for (const bool upper : {false, true}) {
        for (std::size_t k = 0; k < half.size(); ++k) {
            const std::size_t at = k / lanes * stride + k % lanes;
            const auto product =
                static_cast<word>(tensafe::arith::uint128{data[at + n / 2 * stride]} * w % Q);
            half[k] = (data[at] + (upper ? Q - product : product)) % Q;
        }
        ntt::forward_interleaved(plan, 2 + upper, half.data(), lanes, half.data(),
                                 forward.data() + upper * n / 2 * stride, stride);
    }
    CHECK((n == 2 || forward == expected));

    ntt::inverse_interleaved(plan, expected.data(), stride, scratch.data());
    for (std::size_t k = 0; k < scratch.size(); ++k) {
        const word x = data[k / lanes * stride + k % lanes];
        CHECK(scratch[k] == static_cast<word>(tensafe::arith::uint128{x} * n % Q));
    }
}

TEST_CASE("interleaved transforms are those of each polynomial, the inverse times the degree") {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const int log_n : {1, 2, 3, 4, 5, 6, 7, 8, 11}) {
            for (const std::size_t gap : {0UL, 24UL}) {
                INFO("log_n := ", log_n, ", gap := ", gap);
                check_interleaved<tensafe::arith::ntt_prime_below(word{1} << 36, 12)>(log_n, gap);
                check_interleaved<tensafe::arith::ntt_prime_below(word{1} << 45, 12)>(log_n, gap);
                check_interleaved<tensafe::arith::ntt_prime_below(word{1} << 49, 12)>(log_n, gap);
                check_interleaved<tensafe::arith::ntt_prime_below(word{1} << 50, 12)>(log_n, gap);
                check_interleaved<tensafe::arith::ntt_prime_below(word{1} << 60, 12)>(log_n, gap);
            }
        }
    });
}

template <int Bits>
void check_products(std::size_t rows, std::size_t terms) {
    const tensafe::arith::runtime_modulus<Bits> m((word{1} << Bits) - 1);
    const word q = m.value();
    const std::size_t stride = terms + 3;
    tests::random_numbers random(rows + terms);
    const auto some = [&](std::size_t count) {
        std::vector<word> result(count);
        for (word& x : result) {
            x = random() % 3 == 0 ? q - 1 : random() % q;
        }
        return result;
    };
    const auto a = some(2 * rows * stride);
    const auto b = some(2 * terms * lanes);
    std::vector<word> out(2 * rows * lanes);
    std::vector<word> products(out.size());
    for (std::size_t k = 0; k < products.size(); ++k) {
        const std::size_t row = k / lanes;
        for (std::size_t t = 0; t < terms; ++t) {
            products[k] = static_cast<word>((tensafe::arith::uint128{a[row * stride + t]} *
                                                 b[(row / rows * terms + t) * lanes + k % lanes] +
                                             products[k]) %
                                            q);
        }
    }
    const tensafe::arith::barrett policy(m);
    ntt::multiply_interleaved(policy, a.data(), stride, b.data(), out.data(), 2, rows, terms);
    CHECK(out == products);
}

TEST_CASE("products of matrices with interleaved ones are right for all shapes and widths") {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const std::size_t rows : {1UL, 2UL, 5UL, 19UL}) {
            for (const std::size_t terms : {1UL, 16UL, 100UL}) {
                INFO("rows := ", rows, ", terms := ", terms);
                check_products<36>(rows, terms);
                check_products<50>(rows, terms);
                check_products<61>(rows, terms);
            }
        }
        check_products<45>(3, 5000);
    });
}

TEST_CASE("a transposed matrix has its columns as rows") {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const std::size_t rows : {1UL, 8UL, 13UL}) {
            std::vector<word> in(rows * 20);
            std::vector<word> out(16 * (rows + 3));
            for (std::size_t k = 0; k < in.size(); ++k) {
                in[k] = k;
            }
            ntt::transpose(in.data(), 20, rows, 16, out.data(), rows + 3);
            for (std::size_t c = 0; c < 16; ++c) {
                for (std::size_t r = 0; r < rows; ++r) {
                    CHECK(out[c * (rows + 3) + r] == in[r * 20 + c]);
                }
            }
        }
    });
}

}  // namespace
