#include <tensafe/wire/identifier.hpp>

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using tensafe::wire::identifier;

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
