#include <tensafe/dp/sample_discrete_gaussian.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/input_hash.hpp>
#include <tensafe/random/samplers.hpp>

#include <nlohmann/json.hpp>

#include "../backends.hpp"
#include "../test.hpp"
#include "stream_reference.hpp"

// The vectors of tests/data/random_streams.json, which docs/design/random-streams.md describes. They are the
// format: whoever changes one breaks stored and sent data. Floods have theirs in ckks/sanitize/flooding.

namespace {

using namespace tensafe::random;
using namespace tensafe::testing;
using nlohmann::json;

constexpr std::size_t count = 4096;

/// The vectors of that name.
const json& page(const char* name) {
    static const json all = json::parse(std::ifstream(TENSAFE_TEST_DATA "/random_streams.json"));
    return all.at(name);
}

std::vector<std::uint8_t> from_hex(const json& digits) {
    const std::string text = digits;
    std::vector<std::uint8_t> bytes;
    for (std::size_t i = 0; i < text.size(); i += 2) {
        bytes.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
    }
    return bytes;
}

seed seed_of(const json& digits) {
    seed result;
    const auto bytes = from_hex(digits);
    REQUIRE(bytes.size() == result.bytes.size());
    std::copy(bytes.begin(), bytes.end(), result.bytes.begin());
    return result;
}

stream_domain domain_of(const json& expected) {
    return static_cast<stream_domain>(expected.at("domain"));
}

/// Compares all of `out` by their digest, and the values that say where a difference begins.
template <class T>
void check_values(const std::vector<T>& out, const json& expected) {
    CAPTURE(expected.dump());
    const auto part = [&](std::ptrdiff_t begin, const json& values) {
        const auto from = out.begin() + begin;
        CHECK(std::vector<T>(from, from + static_cast<std::ptrdiff_t>(values.size())) ==
              values.get<std::vector<T>>());
    };
    part(0, expected.at("first"));
    part(static_cast<std::ptrdiff_t>(out.size() - expected.at("last").size()), expected.at("last"));
    for (const int begin : {8, 64}) {
        if (const auto values = expected.find("from_" + std::to_string(begin)); values != expected.end()) {
            part(begin, *values);
        }
    }
    CHECK(digest(out) == std::stoull(expected.at("digest").get<std::string>(), nullptr, 16));
}

template <class T>
std::vector<T> drawn(const json& expected, auto sample) {
    std::vector<T> out(count);
    sample(counting_seed(), domain_of(expected), expected.at("lane").get<std::uint32_t>(), std::span<T>(out));
    return out;
}

}  // namespace

TEST_CASE("the numbers of the stream domains are those of the page") {
    CHECK(static_cast<int>(stream_domain::public_key) == 1);
    CHECK(static_cast<int>(stream_domain::uplink) == 2);
    CHECK(static_cast<int>(stream_domain::secret_key) == 3);
    CHECK(static_cast<int>(stream_domain::error) == 4);
    CHECK(static_cast<int>(stream_domain::zero) == 5);
    CHECK(static_cast<int>(stream_domain::flood) == 6);
    CHECK(static_cast<int>(stream_domain::derive) == 7);
    CHECK(static_cast<int>(stream_domain::evaluation_key) == 13);
}

BACKEND_TEST_CASE("the stream's blocks are those of the page") {
    for (const json& expected : page("blocks")) {
        const auto nonce = expected.at("nonce").get<std::array<std::uint32_t, 3>>();
        std::array<std::uint8_t, 64> out{};
        chacha20_stream(counting_seed(), static_cast<stream_domain>(nonce[0]), nonce[1], nonce[2])
            .generate(expected.at("block").get<std::uint64_t>(), out);
        CHECK(to_hex(out) == expected.at("bytes").get<std::string>());
    }
}

BACKEND_TEST_CASE("uniform coefficients are those of the page") {
    for (const json& expected : page("uniform")) {
        const auto q = expected.at("q").get<std::uint64_t>();
        check_values(
            drawn<std::uint64_t>(expected, [q](const seed& key, auto domain, auto lane,
                                               auto out) { sample_uniform(key, domain, lane, q, out); }),
            expected);
    }
}

BACKEND_TEST_CASE("errors are those of the page") {
    check_values(drawn<std::int8_t>(page("error"), [](const seed& key, auto domain, auto lane,
                                                      auto out) { sample_error(key, domain, lane, out); }),
                 page("error"));
}

BACKEND_TEST_CASE("ternary coefficients are those of the page") {
    check_values(
        drawn<std::int8_t>(page("ternary"), [](const seed& key, auto domain, auto lane,
                                               auto out) { sample_ternary(key, domain, lane, out); }),
        page("ternary"));
}

BACKEND_TEST_CASE("discrete Gaussian values are those of the page") {
    check_values(drawn<std::int64_t>(page("discrete_gaussian"),
                                     [](const seed& key, auto domain, auto lane, auto out) {
                                         tensafe::dp::sample_discrete_gaussian(key, domain, lane, out);
                                     }),
                 page("discrete_gaussian"));
}

BACKEND_TEST_CASE("derived seeds are those of the page") {
    generator source(counting_seed());
    for (const json& expected : page("generator")) {
        CHECK(to_hex(source.next_seed().bytes) == expected.get<std::string>());
    }
}

TEST_CASE("hedged and joint seeds are those of the page") {
    for (const json& expected : page("hedged")) {
        input_hash hash(counting_seed());
        for (const json& text : expected.at("strings")) {
            const auto bytes = from_hex(text);
            hash.add(std::span<const std::uint8_t>(bytes));
        }
        CHECK(to_hex(hash.result().bytes) == expected.at("seed").get<std::string>());
    }
    const json& joint = page("joint");
    CHECK(to_hex(joint_seed(seed_of(joint.at("client")), seed_of(joint.at("server"))).bytes) ==
          joint.at("seed").get<std::string>());
}
