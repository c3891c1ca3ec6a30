#include <tensafe/core/error.hpp>
#include <tensafe/keystore/passphrase_prompt.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <fcntl.h>
#include <future>
#include <poll.h>
#include <string>
#include <termios.h>
#include <unistd.h>
#include <utility>

#include "../refusal.hpp"

namespace keystore = tensafe::keystore;
using tests::refusal;

namespace {

/// A terminal of our own: `keyboard` is what a person has, `line` what a program opens.
struct pseudo_terminal {
    keystore::detail::owned_descriptor keyboard{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    keystore::detail::owned_descriptor line{-1};

    pseudo_terminal() {
        if (keyboard.get() >= 0 && ::grantpt(keyboard.get()) == 0 && ::unlockpt(keyboard.get()) == 0) {
            line = keystore::detail::owned_descriptor(
                ::open(::ptsname(keyboard.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
        }
    }
    bool works() const { return line.get() >= 0; }

    /// What the terminal shows, up to the end of `last`; all there is if that does not come.
    std::string shown_until(const std::string& last) const {
        std::string text;
        while (!text.ends_with(last)) {
            pollfd ready{keyboard.get(), POLLIN, 0};
            char c = 0;
            if (::poll(&ready, 1, 5000) != 1 || ::read(keyboard.get(), &c, 1) != 1) {
                return text;
            }
            text += c;
        }
        return text;
    }
    tcflag_t modes() const {
        termios now{};
        REQUIRE(::tcgetattr(line.get(), &now) == 0);
        return now.c_lflag;
    }
};

/// Types `keys` when the question stands there.  Returns what was taken for the passphrase.
std::string typed(const pseudo_terminal& terminal, const std::string& keys) {
    auto answer = std::async(std::launch::async,
                             [&] { return keystore::detail::ask_on(terminal.line.get(), "Passphrase: "); });
    CHECK(terminal.shown_until("Passphrase: ") == "Passphrase: ");
    CHECK((terminal.modes() & static_cast<tcflag_t>(ECHO | ISIG | ICANON)) == 0);
    CHECK(::write(terminal.keyboard.get(), keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
    const std::string rest = terminal.shown_until("\n");
    CHECK(rest == "\r\n");  // and nothing of the answer
    return std::string(answer.get().text());
}

}  // namespace

TEST_CASE("a passphrase is asked for without showing it, and the terminal is as it was before") {
    const pseudo_terminal terminal;
    if (!terminal.works()) {
        MESSAGE("skipped: this system gives no pseudo terminal");
        return;
    }
    const tcflag_t before = terminal.modes();
    CHECK((before & ECHO) != 0);
    CHECK(typed(terminal, "open sesame\n") == "open sesame");
    CHECK(typed(terminal, "wrong\x15right\r") == "right");
    CHECK(typed(terminal,
                "abd\x7f"
                "c\b\b\b\b\b"
                "x\n") == "x");
    CHECK(typed(terminal, "tsch\xc3\xa4\x7fo\n") == "tscho");
    CHECK(typed(terminal, "\xe2\x82\xac\n") == "\xe2\x82\xac");
    CHECK(terminal.modes() == before);
}

TEST_CASE("Ctrl-C, Ctrl-D, an empty and an endless answer give no passphrase and restore the terminal") {
    const pseudo_terminal terminal;
    if (!terminal.works()) {
        MESSAGE("skipped: this system gives no pseudo terminal");
        return;
    }
    const tcflag_t before = terminal.modes();
    CHECK(refusal<tensafe::cancelled_error>([&] { typed(terminal, "abc\x03"); }) ==
          "the question for a passphrase was cancelled");
    CHECK_THROWS_AS(typed(terminal, "\x04"), tensafe::cancelled_error);
    CHECK_THROWS_AS(typed(terminal, "abc\x04"), tensafe::cancelled_error);
    for (const char* const keys : {"ab\tc\n", "\x1b[A\n", "\x01\n"}) {
        CHECK(refusal<tensafe::parameter_error>([&] {
                  typed(terminal, keys);
              }).find("passphrase: got a control character") == 0);
    }
    CHECK_THROWS_AS(typed(terminal, "\n"), tensafe::parameter_error);
    CHECK(typed(terminal, std::string(keystore::passphrase::longest, 'x') + '\n').size() ==
          keystore::passphrase::longest);
    CHECK_THROWS_AS(typed(terminal, std::string(keystore::passphrase::longest + 1, 'x')),
                    tensafe::parameter_error);
    CHECK(terminal.modes() == before);
}

TEST_CASE("what is no terminal is not asked") {
    const keystore::detail::owned_descriptor file(::open("/dev/null", O_RDWR | O_CLOEXEC));
    CHECK_THROWS_AS(static_cast<void>(keystore::detail::ask_on(file.get(), "Passphrase: ")),
                    tensafe::io_error);
}
