#include <tensafe/random/entropy.hpp>

#include "../test.hpp"

namespace {

/// Ones among the bits of `bytes`, as a distance from the mean in standard deviations.
double bit_bias(std::span<const std::uint8_t> bytes) {
    double ones = 0;
    for (const std::uint8_t byte : bytes) {
        ones += std::popcount(byte);
    }
    const double bits = 8.0 * static_cast<double>(bytes.size());
    const double distance = ones - bits / 2;
    return distance * distance / (bits / 4);
}

/// Squared distance that fair bits pass with probability below 1e-14: eight standard deviations.
constexpr double bias_limit = 64;

}  // namespace

TEST_CASE("os_entropy fills the whole span and nothing beside it") {
    for (const std::size_t size : {0U, 1U, 31U, 255U, 257U, 1000U}) {
        // A byte that stays at zero through 20 draws has probability 2^-160.
        std::vector<std::uint8_t> seen(size + 2);
        for (int draw = 0; draw < 20; ++draw) {
            std::vector<std::uint8_t> out(size + 2);
            tensafe::random::os_entropy(std::span(out).subspan(1, size));
            std::transform(out.begin(), out.end(), seen.begin(), seen.begin(),
                           [](std::uint8_t a, std::uint8_t b) { return static_cast<std::uint8_t>(a | b); });
        }
        CHECK(seen.front() == 0);
        CHECK(seen.back() == 0);
        CHECK(std::count(seen.begin() + 1, seen.end() - 1, 0) == 0);
    }
}

TEST_CASE("os_entropy has no bias that eight standard deviations show") {
    std::vector<std::uint8_t> out(1 << 20);
    tensafe::random::os_entropy(out);
    CHECK(bit_bias(out) < bias_limit);
}

TEST_CASE("fresh seeds do not repeat") {
    std::set<std::array<std::uint8_t, 32>> seen;
    for (int i = 0; i < 1000; ++i) {
        seen.insert(tensafe::random::fresh_seed().bytes);
    }
    CHECK(seen.size() == 1000);
}

TEST_CASE("the device that stands in for getrandom fills the whole span") {
    std::vector<std::uint8_t> out(100000);
    tensafe::random::detail::read_random_device("/dev/urandom", out);
    CHECK(bit_bias(out) < bias_limit);
    CHECK(std::count(out.end() - 64, out.end(), 0) < 32);
}

TEST_CASE("a random device that is missing, ends or cannot be read is an entropy_error that names it") {
    std::array<std::uint8_t, 16> out{};
    for (const char* const path : {"/dev/no-such-device", "/dev/null", "/"}) {
        CAPTURE(path);
        CHECK(tests::contains(tests::refusal<tensafe::entropy_error>(
                                  [&] { tensafe::random::detail::read_random_device(path, out); }),
                              path));
    }
}
