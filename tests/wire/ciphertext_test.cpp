#include <tensafe/wire/ciphertext.hpp>

#include "sample_messages.hpp"

using namespace tests;

namespace {

using namespace sample_messages;
using tensafe::arith::word;

using basis = P::basis;
using poly = rns::poly<basis, rns::evaluation_form>;
static_assert(rns::packed_bytes<basis>() == 1024 * (45 + 44) / 8);
static_assert(rns::packed_bytes<P::basis_at<0>>() == 1024 * 45 / 8);

/// Secrets and coefficient form have no bytes.
template <class T>
concept has_bytes = requires(const T& p, wire::byte_writer& to) {
    wire::write_polynomial(p, to);
};
static_assert(has_bytes<poly>);
static_assert(!has_bytes<rns::secret_poly<basis, rns::evaluation_form>>);
static_assert(!has_bytes<rns::poly<basis, rns::coefficient_form>>);

bytes packed(const poly& p) {
    bytes result(rns::packed_bytes<basis>());
    wire::byte_writer to(result, "test");
    wire::write_polynomial(p, to);
    to.finish();
    return result;
}

word bits_at(const bytes& from, std::size_t bit, std::size_t width) {
    word value = 0;
    for (std::size_t j = 0; j < width; ++j) {
        value |= word{(from[(bit + j) / 8] >> ((bit + j) % 8)) & 1U} << j;
    }
    return value;
}

static_assert(wire::ciphertext_bytes<P> == 64 + 2 * 1024 * 89 / 8);
static_assert(wire::ciphertext_bytes<P, 0> == 64 + 2 * 1024 * 45 / 8);
static_assert(wire::seeded_ciphertext_bytes<P> == 64 + 32 + 1024 * 89 / 8);
static_assert(wire::seeded_ciphertext_bytes<P, 0> == 64 + 32 + 1024 * 45 / 8);

constexpr double infinite = infinity;

template <class Object>
bool same(const Object& a, const Object& b) {
    if constexpr (requires { a.c1; }) {
        return a.c0 == b.c0 && a.c1 == b.c1 && a.scale == b.scale;
    } else {
        return a.c0 == b.c0 && a.seed == b.seed && a.scale == b.scale;
    }
}

std::string why_refused(bytes message) {
    message = resealed(message);
    return message[5] == static_cast<std::uint8_t>(wire::kind::ciphertext)
               ? refusal<format_error>([&] { wire::read_ciphertext<P>(message); })
               : refusal<format_error>([&] { wire::read_seeded_ciphertext<P>(message); });
}

}  // namespace

TEST_CASE("limbs stand one after the other, each with the bits of its prime") {
    const poly p = polynomial<1>(50);
    const bytes written = packed(p);
    const std::size_t second = 1024 * 45 / 8;
    for (std::size_t k = 0; k < 1024; ++k) {
        if (bits_at(written, 45 * k, 45) != p.limb<0>()[k] ||
            bits_at(written, 8 * second + 44 * k, 44) != p.limb<1>()[k]) {
            FAIL_CHECK("residue " << k);
        }
    }
    wire::byte_reader from(written, "test");
    poly back;
    wire::read_polynomial(from, "p", back);
    from.finish();
    CHECK(back == p);
}

TEST_CASE("a residue that is not below its prime is refused wherever it is") {
    for (const std::size_t at : {0U, 1U, 511U, 1023U}) {
        for (const int limb : {0, 1}) {
            const word q = basis::primes[static_cast<std::size_t>(limb)];
            const word top = (word{1} << (limb == 0 ? 45 : 44)) - 1;
            for (const word bad : {q, q + 1, top}) {
                poly p = polynomial<1>(51);
                (limb == 0 ? p.limb<0>() : p.limb<1>())[at] = bad;
                const bytes written = packed(p);
                wire::byte_reader from(written, "re-randomization key");
                poly back;
                CHECK(refusal<format_error>([&] { wire::read_polynomial(from, "b", back); }) ==
                      "re-randomization key: b, limb " + std::to_string(limb) + ": got a residue " +
                          std::to_string(bad) + ", expected all below its prime " + std::to_string(q));
            }
        }
    }
}

TEST_CASE("fewer bytes than a polynomial are refused, and unused bits must be zero") {
    const bytes written = packed(polynomial<1>(52));
    poly back;
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{5759}, std::size_t{5760}, written.size() - 1}) {
        wire::byte_reader from({written.data(), length}, "reply");
        CHECK(refusal<format_error>([&] {
                  wire::read_polynomial(from, "c0", back);
              }).starts_with("reply: got "));
    }
    const std::vector<word> values{1, 2, 4};
    bytes nine_bits(2);
    wire::byte_writer to(nine_bits, "test");
    wire::write_limb(values, 5, to);
    CHECK(nine_bits == bytes{0x11, 0x01});
    std::vector<word> got(3);
    for (const unsigned bit : {0x02U, 0x80U}) {
        const bytes dirty{0x11, static_cast<std::uint8_t>(1U | bit)};
        wire::byte_reader from(dirty, "reply");
        CHECK_THROWS_WITH_AS(wire::read_limb(from, "c0", 0, 5, got),
                             "unpack_bits: the unused bits of the last byte are not zero", format_error);
    }
}

TEST_CASE("a limb that is zero everywhere is found, one that is not is not") {
    poly p = polynomial<1>(53);
    CHECK(wire::first_zero_limb(p) == -1);
    std::fill(p.limb<1>().begin(), p.limb<1>().end(), word{0});
    CHECK(wire::first_zero_limb(p) == 1);
    p.limb<1>()[1023] = 1;
    CHECK(wire::first_zero_limb(p) == -1);
    std::fill(p.limb<0>().begin(), p.limb<0>().end(), word{0});
    CHECK(wire::first_zero_limb(p) == 0);
    CHECK(wire::first_zero_limb(poly()) == 0);
}

TEST_CASE_TEMPLATE("a ciphertext of each level comes back as it was", Level, std::integral_constant<int, 0>,
                   std::integral_constant<int, 1>) {
    const auto c = ciphertext<Level::value>();
    const bytes message = wire::write_ciphertext(c, {77, 3});
    CHECK(message.size() == wire::ciphertext_bytes<P, Level::value>);
    CHECK(has_header(message, wire::kind::ciphertext, 77, 3));
    CHECK(same(c, wire::read_ciphertext<P, Level::value>(message)));

    const auto s = seeded_ciphertext<Level::value>();
    const bytes half = wire::write_seeded_ciphertext(s, {78, 4});
    CHECK(half.size() == wire::seeded_ciphertext_bytes<P, Level::value>);
    CHECK(has_header(half, wire::kind::seeded_ciphertext, 78, 4));
    CHECK(same(s, wire::read_seeded_ciphertext<P, Level::value>(half)));
}

TEST_CASE("all finite scales above zero travel, to the last bit, and no others") {
    for (const double scale :
         {std::numeric_limits<double>::denorm_min(), 0.1, 1.0, 0x1p40, std::numeric_limits<double>::max()}) {
        auto c = ciphertext<0>();
        auto s = seeded_ciphertext<0>();
        c.scale = scale;
        s.scale = scale;
        CHECK(wire::read_ciphertext<P, 0>(wire::write_ciphertext(c)).scale == scale);
        CHECK(wire::read_seeded_ciphertext<P, 0>(wire::write_seeded_ciphertext(s)).scale == scale);
    }
    for (const auto& [scale, called] :
         {std::pair{0.0, "0"}, {-0.0, "-0"}, {-1.0, "-1"}, {infinite, "inf"}, {not_a_number, "nan"}}) {
        const std::string expected =
            std::string("scale: got ") + called + ", expected a finite number above 0";
        auto c = ciphertext<1>();
        auto s = seeded_ciphertext<1>();
        bytes whole = wire::write_ciphertext(c);
        bytes half = wire::write_seeded_ciphertext(s);
        put(whole, 52, scale);
        put(half, 52, scale);
        CHECK(why_refused(whole) == "ciphertext: " + expected);
        CHECK(why_refused(half) == "seeded ciphertext: " + expected);
        c.scale = scale;
        s.scale = scale;
        CHECK(refusal<parameter_error>([&] { wire::write_ciphertext(c); }) == "ciphertext: " + expected);
        CHECK(refusal<parameter_error>([&] { wire::write_seeded_ciphertext(s); }) ==
              "seeded ciphertext: " + expected);
    }
}

TEST_CASE("another level is refused by name, from below and from above") {
    const bytes low = wire::write_ciphertext(ciphertext<0>());
    const bytes high = wire::write_ciphertext(ciphertext<1>());
    CHECK(refusal<format_error>([&] { wire::read_ciphertext<P, 1>(low); }) ==
          "ciphertext: level: got 0, expected 1");
    CHECK(refusal<format_error>([&] { wire::read_ciphertext<P, 0>(high); }) ==
          "ciphertext: level: got 1, expected 0");
    bytes half = wire::write_seeded_ciphertext(seeded_ciphertext<1>());
    put(half, 48, std::uint32_t{0xFFFFFFFF});
    CHECK(why_refused(half) == "seeded ciphertext: level: got 4294967295, expected 1");
}

TEST_CASE("a residue that is not below its prime is refused in both halves") {
    auto c = ciphertext<1>();
    constexpr word q = P::basis::prime<1>;
    c.c0.limb<1>()[17] = q;
    CHECK(why_refused(wire::write_ciphertext(c)) ==
          "ciphertext: c0, limb 1: got a residue " + std::to_string(q) + ", expected all below its prime " +
              std::to_string(q));
    c = ciphertext<1>();
    c.c1.limb<0>()[1023] = P::basis::prime<0>;
    CHECK(why_refused(wire::write_ciphertext(c)).starts_with("ciphertext: c1, limb 0: got a residue "));
    auto s = seeded_ciphertext<1>();
    s.c0.limb<0>()[0] = P::basis::prime<0> + 1;
    CHECK(why_refused(wire::write_seeded_ciphertext(s))
              .starts_with("seeded ciphertext: c0, limb 0: got a residue "));
}

TEST_CASE("a ciphertext whose c1 is zero modulo a prime shows its message: neither written nor read") {
    for (const bool first : {false, true}) {
        auto c = ciphertext<1>();
        const bytes good = wire::write_ciphertext(c);
        const auto limb = first ? c.c1.limb<0>() : c.c1.limb<1>();
        std::fill(limb.begin(), limb.end(), word{0});
        const std::string expected = std::string("ciphertext: c1, limb ") + (first ? "0" : "1") +
                                     ": every residue is 0, expected random ones";
        CHECK(refusal<parameter_error>([&] { wire::write_ciphertext(c); }) == expected);
        bytes message = good;
        const auto at = static_cast<std::ptrdiff_t>(60 + 1024 * 89 / 8 + (first ? 0 : 1024 * 45 / 8));
        std::fill_n(message.begin() + at, first ? 1024 * 45 / 8 : 1024 * 44 / 8, std::uint8_t{0});
        CHECK(why_refused(message) == expected);
    }
    // One residue is enough, and c0 may be anything.
    auto c = ciphertext<1>();
    c.c0.set_zero();
    c.c1.set_zero();
    c.c1.limb<0>()[5] = 1;
    c.c1.limb<1>()[1023] = 1;
    CHECK(same(c, wire::read_ciphertext<P>(wire::write_ciphertext(c))));
}

TEST_CASE("a body of another length is refused, though its checksums fit") {
    const bytes whole = wire::write_ciphertext(ciphertext<1>());
    const bytes half = wire::write_seeded_ciphertext(seeded_ciphertext<1>());
    for (const bytes& good : {whole, half}) {
        const std::string what(wire::name(wire::read_header(good).what));
        for (const std::size_t size : {std::size_t{52}, std::size_t{55}, std::size_t{56}, std::size_t{63},
                                       std::size_t{64}, good.size() - 1, good.size() + 1, good.size() + 8}) {
            CHECK(why_refused(with_size(good, size)).starts_with(what + ": got "));
        }
    }
    CHECK(why_refused(with_size(half, half.size() + 1)) ==
          "seeded ciphertext: got 11425 more bytes, expected 11424");
}
