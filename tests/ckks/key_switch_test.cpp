#include <tensafe/ckks/multiply.hpp>
#include <tensafe/ckks/rotate.hpp>

#include <nlohmann/json.hpp>

#include "../backends.hpp"
#include "../random/stream_reference.hpp"
#include "fixture.hpp"

using namespace tests;

// Known answers of a program that shares no code with the library: tests/data/key_switch/make.py.

namespace {

using namespace fixture;
using tensafe::arith::word;

const nlohmann::json& answers() {
    static const nlohmann::json parsed =
        nlohmann::json::parse(std::ifstream(TENSAFE_TEST_DATA "/key_switch/answers.json"));
    return parsed;
}

using two_a_digit = ckks::parameters<10, ckks::limb_bits<50, 41, 40, 39, 41>, 30, ckks::insecure_for_tests,
                                     ckks::key_switching<2, ckks::special_bits<48, 47>>>;
using wide = ckks::parameters<10, ckks::limb_bits<60, 40, 51>, 30, ckks::insecure_for_tests,
                              ckks::key_switching<1, ckks::special_bits<61>>>;

tensafe::random::seed seed_of(const char* name) {
    tensafe::random::seed result;
    const std::string digits = answers().at("seeds").at(name);
    for (std::size_t i = 0; i < result.bytes.size(); ++i) {
        result.bytes[i] = static_cast<std::uint8_t>(std::stoul(digits.substr(2 * i, 2), nullptr, 16));
    }
    return result;
}

std::string digest(std::initializer_list<std::span<const word>> parts) {
    std::vector<word> all;
    for (const auto& part : parts) {
        all.insert(all.end(), part.begin(), part.end());
    }
    std::ostringstream text;
    text << std::hex << std::setw(16) << std::setfill('0') << tensafe::testing::digest(all);
    return text.str();
}

/// b, then a, of each digit.
std::string digest(const ckks::detail::key_words& key) {
    std::vector<word> all(key.words.size());
    auto to = std::span(all);
    const std::size_t limbs = key.words.size() / (2 * key.digits * key.degree);
    for (std::size_t d = 0; d < key.digits; ++d) {
        for (const std::size_t half : {0U, 1U}) {
            for (std::size_t m = 0; m < limbs; ++m) {
                key.copy(d, m, half, to);
                to = to.subspan(key.degree);
            }
        }
    }
    return digest({all});
}

template <class P, int Level>
ckks::ciphertext<P, Level> uniform(const char* name) {
    ckks::ciphertext<P, Level> c;
    c.scale = 0x1p20;  // whose square is below Q at each level
    ckks::expand_uniform(seed_of(name), tensafe::random::stream_domain::uplink, c.c0);
    ckks::expand_uniform(seed_of(name), tensafe::random::stream_domain::uplink, c.c1, Level + 1);
    return c;
}

template <class P, int Level, int KeyLevel = Level>
void check_level(const char* set) {
    CAPTURE(set);
    CAPTURE(Level);
    const auto& levels = answers().at(set).at("levels");
    const auto& expected = *std::find_if(levels.begin(), levels.end(), [](const auto& level) {
        return level.at("limbs") == Level + 1 && level.at("key_limbs") == KeyLevel + 1;
    });
    const auto known = [&](const char* what) -> std::string { return expected.at(what); };
    const ckks::secret_key<P> secret(seed_of("secret"));
    tensafe::random::generator first(seed_of("relinearization"));
    const ckks::relinearization_key<P, KeyLevel> relinearization(secret, first);
    tensafe::random::generator second(seed_of("galois"));
    const ckks::galois_keys_at<P, KeyLevel, ckks::rotations<3>> galois(secret, second);
    CHECK(digest(relinearization.key().words()) == known("relinearization_key"));
    CHECK(digest(galois.find(3)->key.words()) == known("galois_key"));
    const auto x = uniform<P, Level>("x");
    const auto y = uniform<P, Level>("y");
    const auto rotated = ckks::rotate<3>(x, galois);
    CHECK(digest({rotated.c0.words(), rotated.c1.words()}) == known("rotated_by_3"));
    const auto product = ckks::multiply(x, y);
    const auto relinearized = ckks::relinearize(product, relinearization);
    CHECK(digest({relinearized.c0.words(), relinearized.c1.words()}) == known("relinearized"));
    if constexpr (Level > 0) {
        const auto rescaled = ckks::relinearize_rescale(product, relinearization, 0);
        CHECK(digest({rescaled.c0.words(), rescaled.c1.words()}) == known("multiplied_and_rescaled"));
    }
}

}  // namespace

TEST_CASE("the primes are those of the known answers") {
    const auto check = [](const char* set, const auto& chain, const auto& special) {
        CHECK(std::vector<word>(chain.begin(), chain.end()) ==
              answers().at(set).at("chain").get<std::vector<word>>());
        CHECK(std::vector<word>(special.begin(), special.end()) ==
              answers().at(set).at("special").get<std::vector<word>>());
    };
    check("two_a_digit", two_a_digit::basis::primes, two_a_digit::special_primes);
    check("wide", wide::basis::primes, wide::special_primes);
}

BACKEND_TEST_CASE("keys, rotations, relinearizations and rescaled products are those of the integers") {
    check_level<two_a_digit, 4>("two_a_digit");
    check_level<two_a_digit, 2>("two_a_digit");
    check_level<two_a_digit, 0>("two_a_digit");
    check_level<two_a_digit, 2, 4>("two_a_digit");
    check_level<wide, 2>("wide");
    check_level<wide, 1, 2>("wide");
}
