#include <tensafe/core/printable.hpp>

#include <doctest/doctest.h>

#include <string>

using tensafe::is_printable_utf8;

TEST_CASE("text in any script is printable, control characters are not") {
    for (const char* text : {"", "legal", "a b", "\xC2\xA0", "\xC3\xA9", "\xE2\x82\xAC", "\xE0\xA0\x80",
                             "\xED\x9F\xBF", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"}) {
        CAPTURE(text);
        CHECK(is_printable_utf8(text));
    }
    for (const char* text : {"a\n", "\x1B[0m", "\x7F", "\xC2\x85", "\xC2\x9B", "\xC2\x80"}) {
        CHECK_FALSE(is_printable_utf8(text));
    }
    CHECK_FALSE(is_printable_utf8(std::string(1, '\0')));
}

TEST_CASE("bytes that are no UTF-8 are not printable") {
    // A lone continuation, cut sequences, overlong forms, a surrogate, beyond U+10FFFF, bytes that never
    // occur.
    for (const char* text :
         {"\x80", "\xC2", "\xE2\x82", "\xF0\x9F\x98", "\xE2\x41\x41", "\xC0\xAF", "\xC1\xBF", "\xE0\x9F\xBF",
          "\xF0\x8F\xBF\xBF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "a\xFE"}) {
        CHECK_FALSE(is_printable_utf8(text));
    }
}
