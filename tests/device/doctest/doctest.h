#pragma once

// The assertions of doctest that checks of block kernels use, with the same names: the headers
// tests/device/*/*_checks.hpp include <doctest/doctest.h>, and in the program for GPUs they get this one. The
// machines that have a GPU often lack the package, and nvcc takes seconds longer over it in every unit.
// No subcases, and `CHECK(a && b)` is to be written as two checks, as with doctest.

#include <cstddef>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <utility>

namespace doctest {

/// A text that contains this one.
struct Contains {
    explicit Contains(std::string t) : text(std::move(t)) {}
    std::string text;
};

}  // namespace doctest

namespace device_tests {

struct tally {
    std::size_t assertions = 0;
    std::size_t failures = 0;
};
inline tally& counts() {
    static tally all;
    return all;
}

/// What a failed REQUIRE throws: the rest of the check is skipped.
struct required_failure {};

template <class T>
void write_to(std::ostream& out, const T& value) {
    if constexpr (requires { out << value; }) {
        out << value;
    } else {
        out << "{?}";
    }
}

/// Notes of CAPTURE and INFO, innermost first; written only if an assertion fails within their scope.
class note_base {
  public:
    note_base() : outer_(innermost()) { innermost() = this; }
    note_base(const note_base&) = delete;
    note_base& operator=(const note_base&) = delete;
    static std::string all() {
        std::ostringstream out;
        for (const note_base* n = innermost(); n != nullptr; n = n->outer_) {
            out << "    with ";
            n->write(out);
            out << '\n';
        }
        return out.str();
    }

  protected:
    ~note_base() { innermost() = outer_; }

  private:
    virtual void write(std::ostream& out) const = 0;
    static const note_base*& innermost() {
        static const note_base* first = nullptr;
        return first;
    }
    const note_base* outer_;
};
template <class F>
class note final : public note_base {
  public:
    explicit note(F f) : write_(f) {}

  private:
    void write(std::ostream& out) const override { write_(out); }
    F write_;
};

/// Counts an assertion; says what failed, the first few times.
inline bool asserted(bool holds, const char* file, int line, const char* what, const std::string& values) {
    ++counts().assertions;
    if (!holds && ++counts().failures <= 20) {
        std::printf("  %s:%d: %s%s%s\n%s", file, line, what, values.empty() ? "" : ": ", values.c_str(),
                    note_base::all().c_str());
    }
    return holds;
}

/// A comparison with its operands, for the message.
struct outcome {
    bool holds;
    std::string values;
};
template <class L>
struct left_operand {
    const L& left;

    template <class R>
    outcome with(bool holds, const char* sign, const R& right) const {
        std::ostringstream out;
        if (!holds) {
            write_to(out, left);
            out << ' ' << sign << ' ';
            write_to(out, right);
        }
        return {holds, out.str()};
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
#define DEVICE_TESTS_COMPARE(sign)                  \
    template <class R>                              \
    outcome operator sign(const R& right) const {   \
        return with(left sign right, #sign, right); \
    }
    DEVICE_TESTS_COMPARE(==)
    DEVICE_TESTS_COMPARE(!=)
    DEVICE_TESTS_COMPARE(<)
    DEVICE_TESTS_COMPARE(<=)
    DEVICE_TESTS_COMPARE(>)
    DEVICE_TESTS_COMPARE(>=)
#undef DEVICE_TESTS_COMPARE
#pragma GCC diagnostic pop
    operator outcome() const {
        return {static_cast<bool>(left), ""};
    }
};
struct decompose {
    template <class L>
    left_operand<L> operator<<(const L& left) const {
        return {left};
    }
};

inline bool check(const char* file, int line, const char* what, const outcome& o) {
    return asserted(o.holds, file, line, what, o.values);
}

template <class... Parts>
std::string joined(const Parts&... parts) {
    std::ostringstream out;
    (write_to(out, parts), ...);
    return out.str();
}

/// What an exception is to say: a text, or one that contains it.
struct expected_text {
    expected_text(const char* t) : text(t) {}
    expected_text(const std::string& t) : text(t) {}
    expected_text(const doctest::Contains& c) : text(c.text), anywhere(true) {}
    bool fits(const std::string& said) const {
        return anywhere ? said.find(text) != std::string::npos : said == text;
    }
    std::string text;
    bool anywhere = false;
};

/// Whether f throws an Exception, with the expected text.
template <class Exception, class F>
outcome throws(F f, const expected_text& expected = doctest::Contains("")) {
    try {
        f();
    } catch (const Exception& e) {
        if constexpr (requires { e.what(); }) {
            return {expected.fits(e.what()), std::string("it says: ") + e.what()};
        } else {
            return {expected.fits(""), "it has no text"};
        }
    } catch (const std::exception& e) {
        return {false, std::string("another exception: ") + e.what()};
    } catch (...) {
        return {false, "another exception"};
    }
    return {false, "nothing was thrown"};
}
template <class F>
outcome throws_nothing(F f) {
    try {
        f();
    } catch (const std::exception& e) {
        return {false, e.what()};
    } catch (...) {
        return {false, "an exception without a text"};
    }
    return {true, ""};
}

}  // namespace device_tests

#define DEVICE_TESTS_JOIN_NOW(a, b) a##b
#define DEVICE_TESTS_JOIN(a, b) DEVICE_TESTS_JOIN_NOW(a, b)

// The outcome comes last: it may hold commas.
#define DEVICE_TESTS_CHECK(what, ...) device_tests::check(__FILE__, __LINE__, what, __VA_ARGS__)
#define DEVICE_TESTS_REQUIRE(what, ...)               \
    do {                                              \
        if (!DEVICE_TESTS_CHECK(what, __VA_ARGS__)) { \
            throw device_tests::required_failure{};   \
        }                                             \
    } while (false)

#define CHECK(...) \
    static_cast<void>(DEVICE_TESTS_CHECK("CHECK(" #__VA_ARGS__ ")", device_tests::decompose{} << __VA_ARGS__))
#define CHECK_FALSE(...)                                                  \
    static_cast<void>(DEVICE_TESTS_CHECK("CHECK_FALSE(" #__VA_ARGS__ ")", \
                                         device_tests::outcome{!static_cast<bool>(__VA_ARGS__), {}}))
#define REQUIRE(...) \
    DEVICE_TESTS_REQUIRE("REQUIRE(" #__VA_ARGS__ ")", device_tests::decompose{} << __VA_ARGS__)
#define CHECK_THROWS_AS(expression, ...)                       \
    static_cast<void>(                                         \
        DEVICE_TESTS_CHECK("CHECK_THROWS_AS(" #expression ")", \
                           device_tests::throws<__VA_ARGS__>([&] { static_cast<void>(expression); })))
#define CHECK_THROWS_WITH_AS(expression, text, ...)                 \
    static_cast<void>(                                              \
        DEVICE_TESTS_CHECK("CHECK_THROWS_WITH_AS(" #expression ")", \
                           device_tests::throws<__VA_ARGS__>([&] { static_cast<void>(expression); }, text)))
#define CHECK_NOTHROW(expression)                            \
    static_cast<void>(                                       \
        DEVICE_TESTS_CHECK("CHECK_NOTHROW(" #expression ")", \
                           device_tests::throws_nothing([&] { static_cast<void>(expression); })))
#define MESSAGE(...) std::printf("  %s\n", device_tests::joined(__VA_ARGS__).c_str())

#define DEVICE_TESTS_NOTE(...)                                                   \
    const device_tests::note DEVICE_TESTS_JOIN(device_tests_note_, __COUNTER__)( \
        [&](std::ostream& out) { out << device_tests::joined(__VA_ARGS__); })
#define INFO(...) DEVICE_TESTS_NOTE(__VA_ARGS__)
#define CAPTURE(x) DEVICE_TESTS_NOTE(#x " = ", x)
