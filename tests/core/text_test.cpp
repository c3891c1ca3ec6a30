#include <tensafe/core/text.hpp>

#include "../test.hpp"

using namespace tests;

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

TEST_CASE("text from outside is quoted as short plain ASCII") {
    CHECK(quote("plain") == "\"plain\"");
    CHECK(quote("a\"b\\\n\x1b\x7f") == R"("a\"b\\\n\u001b\u007f")");
    CHECK(quote("\xff") == R"("\ufffd")");
    CHECK(quote(std::string(200, 'a')) == "\"" + std::string(200, 'a') + "\"");
    CHECK(quote(std::string(201, 'a')) == "\"" + std::string(199, 'a') + "...\"");
    CHECK(quote(std::string(100'000, '\x01')).size() < 210);
    CHECK(quote("") == "\"\"");
    CHECK(quote("r\xc3\xa9sum\xc3") == R"("r\u00e9sum\ufffd")");  // torn
    CHECK(quote("\xe2\x80\xae \xf0\x9f\x98\x80\t") == R"("\u202e \U0001f600\u0009")");
    CHECK(quote(std::string(100'000, '\x80')).size() < 210);
}

TEST_CASE("a number is the whole text, and in range") {
    CHECK(number_of<std::uint16_t>("65535") == 65'535);
    CHECK(number_of<double>("0.125") == 0.125);
    for (const char* const bad : {"", "65536", "-1", "+1", " 1", "1 ", "1:", "x", "0x1"}) {
        CAPTURE(bad);
        CHECK_FALSE(number_of<std::uint16_t>(bad));
    }
}

TEST_CASE("ASCII letters get small, and no other byte changes") {
    CHECK(fold_case("AZ az @[`{ 09_") == "az az @[`{ 09_");
    CHECK(fold_case("") == "");
    for (int byte = 0; byte < 256; ++byte) {
        const auto c = static_cast<char>(byte);
        const bool is_large = c >= 'A' && c <= 'Z';
        CHECK(fold_case(std::string(1, c)) == std::string(1, is_large ? static_cast<char>(c + 32) : c));
    }
}

TEST_CASE("the text is the shortest one") {
    CHECK(shortest_text(0.0) == "0");
    CHECK(shortest_text(0.1) == "0.1");
    CHECK(shortest_text(-1.0) == "-1");
    CHECK(shortest_text(1e-10) == "1e-10");
    CHECK(shortest_text(-std::numeric_limits<double>::min()) == "-2.2250738585072014e-308");
    CHECK(shortest_text(std::numeric_limits<double>::infinity()) == "inf");
    CHECK(shortest_text(std::numeric_limits<double>::quiet_NaN()) == "nan");
}

TEST_CASE("the text stands for exactly the number") {
    random_numbers source(1);
    for (int round = 0; round < 200; ++round) {
        const double x = std::pow(10.0, source.uniform(-300, 300));
        CHECK(std::strtod(shortest_text(x).c_str(), nullptr) == x);
    }
}
