#include <tensafe/wire/set_id.hpp>

#include "../test.hpp"

using namespace tests;

namespace {

using tensafe::wire::identifier;

template <int LogN, int ScaleBits, int... Bits>
using unnamed = ckks::parameters<LogN, ckks::limb_bits<Bits...>, ScaleBits, ckks::insecure_for_tests>;

std::string page() {
    std::ifstream file(std::string(TENSAFE_TEST_DATA) + "/../../docs/wire-format.md");
    return {std::istreambuf_iterator<char>(file), {}};
}

template <class... Sets>
struct sets {
    template <class F>
    static void for_each(F f) {
        (f.template operator()<Sets>(), ...);
    }
};
using named = sets<ckks::n16384_l4, ckks::n16384_l5, ckks::n32768_l4, ckks::n32768_l5, ckks::n8192_l4,
                   ckks::private_n4096, ckks::quantum_n4096, ckks::compact_n4096, ckks::minimal_n2048,
                   ckks::n4096_depth0, ckks::n8192_depth2, ckks::n16384_depth5, ckks::n32768_depth10>;

}  // namespace

TEST_CASE("identifiers are FNV-1a of 64 bits, as its authors list them") {
    CHECK(identifier().value() == 0xCBF29CE484222325U);
    CHECK(identifier().add("a").value() == 0xAF63DC4C8601EC8CU);
    CHECK(identifier().add("foobar").value() == 0x85944171F73967E8U);
    static_assert(identifier().add("foo").add("bar").value() == 0x85944171F73967E8U);
}

TEST_CASE("a number is its bytes, the lowest first") {
    // "foob" and "ar" as numbers.
    CHECK(identifier().add(std::uint32_t{0x626F6F66}).add(std::uint16_t{0x7261}).value() ==
          0x85944171F73967E8U);
    CHECK(identifier().add(std::uint64_t{0x61}).value() != identifier().add("a").value());
}

TEST_CASE("an identifier is shown with all its digits") {
    CHECK(tensafe::wire::identifier_text(0) == "0x0000000000000000");
    CHECK(tensafe::wire::identifier_text(0x0123456789ABCDEFU) == "0x0123456789abcdef");
}

TEST_CASE("the identifier of a set is FNV-1a of its numbers") {
    // log_n, the number of primes, the prime, scale_bits: worked out by another program.
    CHECK(wire::set_id<ckks::minimal_n2048> == 0xEECAA5169EFC5C14U);
    std::uint64_t hash = 0xCBF29CE484222325U;
    const auto add = [&](std::uint64_t number, int bytes) {
        for (int i = 0; i < bytes; ++i) {
            hash = (hash ^ ((number >> (8 * i)) & 255)) * 0x100000001B3U;
        }
    };
    add(12, 4);
    add(2, 4);
    add(35184371884033, 8);
    add(17592186028033, 8);
    add(40, 4);
    CHECK(wire::set_id<ckks::private_n4096> == hash);
}

TEST_CASE("sets that switch keys by other primes or digits have other identifiers") {
    using chain = ckks::limb_bits<41, 41, 40>;
    const auto id = []<class KeySwitching>() {
        return wire::set_id<ckks::parameters<11, chain, 40, ckks::insecure_for_tests, KeySwitching>>;
    };
    const std::set<std::uint64_t> ids{
        id.template operator()<ckks::no_key_switching>(),
        id.template operator()<ckks::key_switching<1, ckks::special_bits<50, 50>>>(),
        id.template operator()<ckks::key_switching<2, ckks::special_bits<50, 50>>>(),
        id.template operator()<ckks::key_switching<1, ckks::special_bits<50>>>(),
        id.template operator()<ckks::key_switching<1, ckks::special_bits<51>>>()};
    CHECK(ids.size() == 5);
}

TEST_CASE("the sets of the library have identifiers of their own, which have names and are on the page") {
    const std::string text = page();
    REQUIRE(!text.empty());
    std::set<std::uint64_t> seen;
    named::for_each([&]<class P>() {
        constexpr std::uint64_t id = wire::set_id<P>;
        CHECK(seen.insert(id).second);
        const std::string called = wire::set_name(id);
        CHECK(called == wire::set_name<P>());
        const std::string widths = [] {
            std::string list;
            for (const auto q : P::basis::primes) {
                int bits = 0;
                for (auto rest = q; rest != 0; rest >>= 1) {
                    ++bits;
                }
                list += (list.empty() ? "" : ", ") + std::to_string(bits);
            }
            if (const auto last = list.rfind(", "); last != std::string::npos) {
                list.replace(last, 2, " and ");
            }
            return list;
        }();
        const std::string shape = " (N = " + std::to_string(P::degree) +
                                  (P::limbs == 1 ? ", a prime of " : ", primes of ") + widths +
                                  " bits, scale 2^" + std::to_string(P::scale_bits) + ", id " +
                                  wire::identifier_text(id) + ")";
        CHECK(called.substr(std::min(called.find(' '), called.size())) == shape);
        CHECK(contains(text,
                       "`" + called.substr(0, called.find(' ')) + "` | `" + wire::identifier_text(id) + "`"));
    });
    CHECK(seen.size() == wire::detail::named_sets.size());
}

TEST_CASE("a set is called by its name") {
    CHECK(wire::set_name<ckks::private_n4096>() ==
          "private_n4096 (N = 4096, primes of 45 and 44 bits, scale 2^40, id 0x6853e9e85ab70bf0)");
    CHECK(wire::set_name<ckks::minimal_n2048>() ==
          "minimal_n2048 (N = 2048, a prime of 41 bits, scale 2^20, id 0xeecaa5169efc5c14)");
    CHECK(wire::set_name<ckks::n16384_l4>() ==
          "n16384_l4 (N = 16384, primes of 60, 40, 40 and 60 bits, scale 2^40, id 0x6d96194a39ada232)");
}

TEST_CASE("a set that the library does not name is told by its numbers, or by its identifier alone") {
    using small = unnamed<10, 30, 45, 44>;
    const std::string id = wire::identifier_text(wire::set_id<small>);
    CHECK(wire::set_name<small>() ==
          "a parameter set without a name (N = 1024, primes of 45 and 44 bits, scale 2^30, id " + id + ")");
    CHECK(wire::set_name<unnamed<10, 20, 41>>().starts_with(
        "a parameter set without a name (N = 1024, a prime of 41 bits, scale 2^20, id 0x"));
    CHECK(wire::set_name<unnamed<10, 20, 41, 40, 39>>().starts_with(
        "a parameter set without a name (N = 1024, primes of 41, 40 and 39 bits, scale 2^20, id 0x"));
    CHECK(wire::set_name(wire::set_id<small>) == "an unknown parameter set (id " + id + ")");
    CHECK(wire::set_name(0) == "an unknown parameter set (id 0x0000000000000000)");
}

TEST_CASE("degree, primes, their order and the scale all count") {
    const std::set<std::uint64_t> ids = {
        wire::set_id<unnamed<10, 30, 45, 44>>, wire::set_id<unnamed<11, 30, 45, 44>>,
        wire::set_id<unnamed<10, 31, 45, 44>>, wire::set_id<unnamed<10, 30, 44, 45>>,
        wire::set_id<unnamed<10, 30, 45, 43>>, wire::set_id<unnamed<10, 30, 45>>};
    CHECK(ids.size() == 6);
}
