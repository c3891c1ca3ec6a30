#include <tensafe/wire/keys.hpp>

#include "sample_messages.hpp"

using namespace tests;

namespace {

using namespace sample_messages;

static_assert(wire::public_key_bytes<P> == 64 + 32 + 1024 * 89 / 8);

std::string why_public_key_refused(const bytes& message) {
    return refusal<format_error>([&] { wire::read_public_key<P>(resealed(message)); });
}

static_assert(wire::rerandomization_key_bytes<P, 1> == 64 + 64 + 1024 * 89 / 8);
static_assert(wire::rerandomization_key_bytes<P, 0> == 64 + 64 + 1024 * 45 / 8);

template <int Level>
bool same(const ckks::rerandomization_key<P, Level>& a, const ckks::rerandomization_key<P, Level>& b) {
    return a.client_nonce == b.client_nonce && a.server_nonce == b.server_nonce && a.b == b.b;
}

std::string why_rerandomization_key_refused(const bytes& message) {
    return refusal<format_error>([&] { wire::read_rerandomization_key<P, 1>(resealed(message)); });
}

}  // namespace

TEST_CASE("a public key comes back as it was, with its uniform half") {
    const auto key = public_key();
    const bytes message = wire::write_public_key(key, {5, 6});
    CHECK(message.size() == wire::public_key_bytes<P>);
    CHECK(has_header(message, wire::kind::public_key, 5, 6));
    CHECK(std::equal(message.begin() + 60, message.begin() + 92, key.seed().bytes.begin()));
    const auto read = wire::read_public_key<P>(message);
    CHECK(read.seed() == key.seed());
    CHECK(read.b() == key.b());
    CHECK(read.a() == key.a());
    rns::poly<P::basis, rns::evaluation_form> a;
    ckks::expand_uniform(counting_seed(8), random::stream_domain::public_key, a);
    CHECK(read.a() == a);
}

TEST_CASE("a public key that is malformed is refused") {
    const bytes good = wire::write_public_key(public_key());
    bytes message = good;
    put(message, 48, std::uint32_t{0});
    CHECK(why_public_key_refused(message) == "public key: level: got 0, expected 1");
    message = good;
    message[59] = 2;
    CHECK(why_public_key_refused(message).starts_with("public key: bytes 4 to 11 of its body: got "));
    message = good;
    std::fill(message.begin() + 92, message.end(), std::uint8_t{0});
    CHECK(why_public_key_refused(message) ==
          "public key: b, limb 0: every residue is 0, expected random ones");
    std::fill(message.begin() + 92, message.end(), std::uint8_t{0xFF});
    CHECK(why_public_key_refused(message).starts_with("public key: b, limb 0: got a residue 35184372088831"));
}

TEST_CASE("a public key that was never filled is not written") {
    ckks::public_key<P> empty(counting_seed(8), {});
    CHECK_THROWS_WITH_AS(wire::write_public_key(empty),
                         "public key: b, limb 0: every residue is 0, expected random ones", parameter_error);
}

TEST_CASE_TEMPLATE("a re-randomization key of each level comes back as it was", Level,
                   std::integral_constant<int, 0>, std::integral_constant<int, 1>) {
    const auto key = rerandomization_key<Level::value>();
    const bytes message = wire::write_rerandomization_key(key, {5, 6});
    CHECK(message.size() == wire::rerandomization_key_bytes<P, Level::value>);
    CHECK(has_header(message, wire::kind::rerandomization_key, 5, 6));
    CHECK(same(key, wire::read_rerandomization_key<P, Level::value>(message)));
    CHECK(wire::read_header(wire::write_rerandomization_key(key)).envelope() == wire::envelope{});
}

TEST_CASE("whoever makes the checksums fit gets another key or a refusal, byte by byte") {
    const bytes good = wire::write_rerandomization_key(rerandomization_key<1>());
    std::size_t refused = 0;
    for (std::size_t at = 48; at < good.size() - 4; at += at < 128 ? 1 : 37) {
        bytes message = good;
        message[at] ^= 0x40;
        try {
            const auto key = wire::read_rerandomization_key<P, 1>(resealed(message));
            CHECK(at >= 60);
            CHECK(!same(key, rerandomization_key<1>()));
            CHECK(wire::write_rerandomization_key(key) == resealed(message));
        } catch (const format_error&) {
            ++refused;
        }
    }
    CHECK(refused >= 12);  // level and zeros, and what passed a prime
}

TEST_CASE("level and the bytes that must be zero are checked") {
    const bytes good = wire::write_rerandomization_key(rerandomization_key<1>());
    bytes message = good;
    put(message, 48, std::uint32_t{0});
    CHECK(why_rerandomization_key_refused(message) == "re-randomization key: level: got 0, expected 1");
    for (const std::size_t at : {52U, 59U}) {
        message = good;
        message[at] = 1;
        CHECK(why_rerandomization_key_refused(message) ==
              "re-randomization key: bytes 4 to 11 of its body: got " +
                  std::string(at == 52 ? "1" : "72057594037927936") + ", expected 0");
    }
    CHECK(refusal<format_error>([] {
              wire::read_rerandomization_key<P, 0>(wire::write_rerandomization_key(rerandomization_key<1>()));
          }) == "re-randomization key: level: got 1, expected 0");
}

TEST_CASE("a key that was never filled is neither written nor read") {
    auto key = rerandomization_key<1>();
    key.b.set_zero();
    const std::string expected = "re-randomization key: b, limb 0: every residue is 0, expected random ones";
    CHECK(refusal<parameter_error>([&] { wire::write_rerandomization_key(key); }) == expected);
    bytes message = wire::write_rerandomization_key(rerandomization_key<1>());
    std::fill(message.begin() + 124, message.end(), std::uint8_t{0});
    CHECK(why_rerandomization_key_refused(message) == expected);
}

TEST_CASE("a body of another length is refused, though the checksums fit") {
    const auto check = [](const std::string& what, const bytes& good, const auto& read) {
        for (const std::size_t size : {std::size_t{52}, std::size_t{64}, good.size() - 1, good.size() + 1}) {
            CHECK(refusal<format_error>([&] {
                      read(resealed(with_size(good, size)));
                  }).starts_with(what + ": got "));
        }
    };
    check("public key", wire::write_public_key(public_key()),
          [](const bytes& message) { wire::read_public_key<P>(message); });
    check("re-randomization key", wire::write_rerandomization_key(rerandomization_key<1>()),
          [](const bytes& message) { wire::read_rerandomization_key<P, 1>(message); });
}
