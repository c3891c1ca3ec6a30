#include <tensafe/wire/public_key.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "../refusal.hpp"
#include "sample_messages.hpp"

namespace {

using namespace sample_messages;
namespace wire = tensafe::wire;
using tensafe::format_error;
using tensafe::parameter_error;
using tests::refusal;

static_assert(wire::public_key_bytes<P> == 64 + 32 + 1024 * 89 / 8);

std::string why_refused(const bytes& message) {
    return refusal<format_error>([&] { wire::read_public_key<P>(resealed(message)); });
}

}  // namespace

TEST_CASE("a public key comes back as it was, with its uniform half") {
    const auto key = public_key();
    const bytes message = wire::write_public_key(key, {5, 6});
    CHECK(message.size() == wire::public_key_bytes<P>);
    CHECK(wire::read_header(message) ==
          wire::header{wire::kind::public_key, wire::set_id<P>, 0, 5, 6, message.size() - 52});
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
    CHECK(why_refused(message) == "public key: level: got 0, expected 1");
    message = good;
    message[59] = 2;
    CHECK(why_refused(message).starts_with("public key: bytes 4 to 11 of its body: got "));
    message = good;
    std::fill(message.begin() + 92, message.end(), std::uint8_t{0});
    CHECK(why_refused(message) == "public key: b, limb 0: every residue is 0, expected random ones");
    std::fill(message.begin() + 92, message.end(), std::uint8_t{0xFF});
    CHECK(why_refused(message).starts_with("public key: b, limb 0: got a residue 35184372088831"));
    for (const std::size_t size : {std::size_t{52}, std::size_t{64}, good.size() - 1, good.size() + 1}) {
        message = good;
        message.resize(size);
        put(message, 32, std::uint64_t{size - 52});
        CHECK(why_refused(message).starts_with("public key: got "));
    }
}

TEST_CASE("a message of another kind or set is no public key") {
    bytes message = wire::write_public_key(public_key());
    message[5] = static_cast<std::uint8_t>(wire::kind::rerandomization_key);
    CHECK(why_refused(message) == "message: got a re-randomization key, expected a public key");
    message = wire::write_public_key(public_key());
    put(message, 8, wire::set_id<other_scale>);
    CHECK(refusal<parameter_error>([&] {
              wire::read_public_key<P>(resealed(message));
          }).starts_with("public key: parameter set: got an unknown parameter set"));
    ckks::public_key<P> empty(counting_seed(8), {});
    CHECK(refusal<parameter_error>([&] { wire::write_public_key(empty); }) ==
          "public key: b, limb 0: every residue is 0, expected random ones");
}
