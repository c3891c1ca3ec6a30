#include <tensafe/keystore/passphrase.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <openssl/err.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "../io/file_builder.hpp"

using namespace tests;
using namespace tensafe::keystore;

namespace {

/// What a passphrase file with this text says.
std::string read(const std::string& text) {
    const temporary_directory folder;
    io::create_private_file(folder.path() / "phrase", to_bytes(text));
    return std::string(passphrase::read(folder.path() / "phrase").text());
}

/// A terminal of our own: `keyboard` is what a person has, `line` what a program opens.
struct pseudo_terminal {
    io::owned_descriptor keyboard{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    io::owned_descriptor line{-1};

    pseudo_terminal() {
        if (keyboard.get() >= 0 && ::grantpt(keyboard.get()) == 0 && ::unlockpt(keyboard.get()) == 0) {
            line = io::owned_descriptor(::open(::ptsname(keyboard.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
        }
        if (works()) {
            termios now = settings();
            now.c_iflag |= IUTF8;  // as terminal programs have it
            REQUIRE(::tcsetattr(line.get(), TCSANOW, &now) == 0);
        }
    }
    bool works() const { return line.get() >= 0; }

    /// What the terminal shows, up to the end of `last`; all there is if that does not come.
    std::string shown_until(const std::string& last) const {
        std::string text;
        while (!text.ends_with(last)) {
            pollfd ready{keyboard.get(), POLLIN, 0};
            char c = 0;
            if (::poll(&ready, 1, 20'000) != 1 || ::read(keyboard.get(), &c, 1) != 1) {
                return text;
            }
            text += c;
        }
        return text;
    }
    termios settings() const {
        termios now{};
        REQUIRE(::tcgetattr(line.get(), &now) == 0);
        return now;
    }
    tcflag_t modes() const { return settings().c_lflag; }
};

/// Calls ask_passphrase in a process of its own, which has this terminal if the name of one is given, while
/// `person` answers, who is told its number.  Returns the passphrase, or throws what that process had to
/// catch.
template <class Person>
std::string asked(const char* terminal, Person person) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(100);  // a question that nobody answers fails the test
        ::setsid();
        if (terminal != nullptr) {
            static_cast<void>(::open(terminal, O_RDWR | O_CLOEXEC));  // becomes the one of the process
        }
        std::string said;
        try {
            said = 'p' + std::string(ask_passphrase("Passphrase: ").text());
        } catch (const cancelled_error& e) {
            said = std::string("c") + e.what();
        } catch (const parameter_error& e) {
            said = std::string("r") + e.what();
        } catch (const io_error& e) {
            said = std::string("i") + e.what();
        }
        ::_exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    REQUIRE(child > 0);
    const io::owned_descriptor answer(ends[0]);
    ::close(ends[1]);
    person(child);
    std::array<char, 4096> said{};
    const ssize_t size = ::read(answer.get(), said.data(), said.size());
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    REQUIRE(size > 0);
    const std::string text(said.data() + 1, static_cast<std::size_t>(size - 1));
    switch (said[0]) {
        case 'c':
            throw cancelled_error(text);
        case 'r':
            throw parameter_error(text);
        case 'i':
            throw io_error(text);
        default:
            return text;
    }
}

/// Whether a process sleeps; as far as /proc tells.
bool sleeps(pid_t process) {
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::string line;
    return !std::getline(stat, line) || line.find(") S ") != std::string::npos;
}

/// Types `keys` when the question stands there and the process waits for them: between its first look at
/// signals and its read, OpenSSL loses one.  Returns what was taken for the passphrase.
std::string typed(const pseudo_terminal& terminal, const std::string& keys) {
    return asked(::ptsname(terminal.keyboard.get()), [&](pid_t child) {
        CHECK(terminal.shown_until("Passphrase: ") == "Passphrase: ");
        for (int wait = 0; wait < 20'000 && ((terminal.modes() & ECHO) != 0 || !sleeps(child)); ++wait) {
            ::usleep(1000);
        }
        CHECK((terminal.modes() & static_cast<tcflag_t>(ECHO)) == 0);
        CHECK(::write(terminal.keyboard.get(), keys.data(), keys.size()) ==
              static_cast<ssize_t>(keys.size()));
        const std::string rest = terminal.shown_until("\n");
        CHECK(rest == "\r\n");  // and nothing of the answer
    });
}

using bytes32 = std::array<std::byte, 32>;

constexpr scrypt_cost cheap{10, 8, 1};

bytes32 salt_of(std::string_view text) {
    bytes32 salt{};
    std::transform(text.begin(), text.end(), salt.begin(), [](char c) { return static_cast<std::byte>(c); });
    return salt;
}

struct wrapped {
    std::array<std::uint8_t, 32> secret{};
    bytes32 sealed{};
    std::array<std::byte, 16> tag{};
};

wrapped wrap(const passphrase& phrase, const bytes32& salt) {
    wrapped made;
    for (std::size_t i = 0; i < made.secret.size(); ++i) {
        made.secret[i] = static_cast<std::uint8_t>(i + 1);
    }
    keystore::detail::wrap_secret(phrase, salt, cheap, to_bytes("header"), made.secret, made.sealed,
                                  made.tag);
    return made;
}

}  // namespace

TEST_CASE("a passphrase keeps its bytes, and one that was moved from is none") {
    CHECK(passphrase().empty());
    passphrase phrase(std::string_view("with a \0 in it", 14));
    CHECK_FALSE(phrase.empty());
    CHECK(phrase.text() == std::string_view("with a \0 in it", 14));
    const passphrase taken = std::move(phrase);
    CHECK(taken.text().size() == 14);
    CHECK(phrase.empty());  // NOLINT: this is what is tested
}

TEST_CASE("an empty text and one beyond 1024 bytes are no passphrases") {
    CHECK_THROWS_WITH_AS(passphrase{std::string_view()}, "passphrase: got 0 bytes, expected 1 to 1024",
                         parameter_error);
    CHECK_NOTHROW(passphrase(std::string(1024, 'x')));
    CHECK_THROWS_AS(passphrase(std::string(1025, 'x')), parameter_error);
}

TEST_CASE("a passphrase file is one line, and its end belongs to nobody") {
    CHECK(read("open sesame\n") == "open sesame");
    CHECK(read("open sesame\r\n") == "open sesame");
    CHECK(read("open sesame") == "open sesame");
    CHECK(read(" open sesame ") == " open sesame ");
    CHECK(read("open sesame\r") == "open sesame\r");
    CHECK(read(std::string(1024, 'x') + "\r\n") == std::string(1024, 'x'));
    for (const char* text : {"", "\n", "\r\n", "one\ntwo", "one\n\n"}) {
        CAPTURE(text);
        CHECK_THROWS_AS(read(text), format_error);
    }
    for (const std::size_t length : {1025u, 1026u, 1027u}) {
        CHECK_THROWS_AS(read(std::string(length, 'x')), format_error);
    }
}

TEST_CASE("a passphrase file that others may read is refused, and its text is in no message") {
    const temporary_directory folder;
    const auto path = folder.put("phrase", "open sesame\n");
    std::filesystem::permissions(path, std::filesystem::perms(0644));
    const std::string message = refusal<io_error>([&] { passphrase::read(path); });
    CHECK(contains(message, "others than its owner have access"));
    const std::string lines = refusal<format_error>([] { read("open\nsesame\n"); });
    CHECK(contains(lines, "expected one line of 1 to 1024 bytes"));
    CHECK_FALSE(contains(lines, "sesame"));
}

TEST_CASE("a passphrase is asked for without showing it, and after any answer the terminal is as it was") {
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
                "c\x7f\x7f\x7f\x7f\x7f"
                "x\n") == "x");
    CHECK(typed(terminal, "tsch\xc3\xa4\x7fo\n") == "tscho");
    CHECK(typed(terminal, "\xe2\x82\xac\n") == "\xe2\x82\xac");
    CHECK(terminal.modes() == before);
    // Ctrl-C, Ctrl-D, an empty and an endless answer give no passphrase.
    CHECK_THROWS_WITH_AS(typed(terminal, "abc\x03"), "the question for a passphrase was cancelled",
                         cancelled_error);
    CHECK_THROWS_AS(typed(terminal, "\x04"), cancelled_error);
    CHECK_THROWS_AS(typed(terminal, "abc\x04\x04"), cancelled_error);
    for (const char* const keys : {"ab\tc\n", "\x1b[A\n", "\x01\n"}) {
        CHECK(refusal<parameter_error>([&] {
                  typed(terminal, keys);
              }).find("passphrase: got a control character") == 0);
    }
    CHECK_THROWS_AS(typed(terminal, "\n"), parameter_error);
    CHECK(typed(terminal, std::string(passphrase::longest, 'x') + '\n').size() == passphrase::longest);
    CHECK_THROWS_AS(typed(terminal, std::string(passphrase::longest + 1, 'x') + '\n'), parameter_error);
    CHECK(terminal.modes() == before);
}

TEST_CASE("without a terminal nobody is asked") {
    CHECK_THROWS_AS(asked(nullptr, [](pid_t) {}), io_error);
}

TEST_CASE("keys of passphrases are those of another implementation of scrypt") {
    // hashlib.scrypt of Python, on a salt of 32 bytes padded with zeros.
    bytes32 key{};
    keystore::detail::derive_wrap_key(passphrase("pleaseletmein"), salt_of("SodiumChloride"), {14, 8, 1},
                                      key);
    CHECK(hex(key) == "708e73101bafc2427465b15ac71a52f9048f8e31f016e9f5dcac618c6af5902e");
    keystore::detail::derive_wrap_key(passphrase("pleaseletmein"), salt_of("SodiumChloride"), {10, 16, 3},
                                      key);
    CHECK(hex(key) == "7df08d574d0530468f413ece98450c19a20adef87d9b94ef19c343bfe41d0396");
}

TEST_CASE("costs that a hostile file could ask for are not allowed, from 1 MiB to 256 they are") {
    CHECK(scrypt_cost{}.allowed());
    CHECK(scrypt_cost{}.memory_bytes() == 128u << 20);
    CHECK(cheap.allowed());
    CHECK(cheap.memory_bytes() == 1u << 20);
    CHECK(scrypt_cost{18, 8, 2}.allowed());
    CHECK(scrypt_cost{17, 8, 4}.allowed());
    CHECK(scrypt_cost{20, 2, 1}.allowed());
    CHECK(scrypt_cost{15, 64, 1}.allowed());
    CHECK(scrypt_cost{15, 1, 1}.allowed());
    for (const scrypt_cost& cost :
         {scrypt_cost{0, 8, 1}, scrypt_cost{9, 64, 1}, scrypt_cost{10, 4, 1}, scrypt_cost{21, 1, 1},
          scrypt_cost{63, 8, 1}, scrypt_cost{64, 8, 1}, scrypt_cost{~0u, ~0u, ~0u}, scrypt_cost{17, 0, 1},
          scrypt_cost{17, 8, 0}, scrypt_cost{19, 8, 1}, scrypt_cost{18, 8, 3}, scrypt_cost{17, 8, 5},
          scrypt_cost{16, 1, 1}, scrypt_cost{20, 1, 1}, scrypt_cost{10, 8, 17}, scrypt_cost{10, 65, 1},
          scrypt_cost{10, ~0u, 1}}) {
        CAPTURE(cost.text());
        CHECK_FALSE(cost.allowed());
    }
}

TEST_CASE("a wrapped secret opens with its passphrase, salt, cost and header, and with nothing else") {
    const passphrase phrase("open sesame");
    const bytes32 salt = salt_of("salt");
    const wrapped made = wrap(phrase, salt);
    const auto header = to_bytes("header");
    const auto opens = [&](const passphrase& with, const bytes32& with_salt, const scrypt_cost& cost,
                           std::string_view with_header, const wrapped& from) {
        std::array<std::uint8_t, 32> secret;
        secret.fill(0xee);
        const bool open = keystore::detail::unwrap_secret(with, with_salt, cost, to_bytes(with_header),
                                                          from.sealed, from.tag, secret);
        CHECK(secret == (open ? made.secret : std::array<std::uint8_t, 32>{}));  // nothing half open
        return open;
    };
    CHECK(std::as_bytes(std::span(made.secret)).front() != made.sealed.front());
    CHECK(opens(phrase, salt, cheap, "header", made));
    CHECK_FALSE(opens(passphrase("open sesamf"), salt, cheap, "header", made));
    CHECK_FALSE(opens(passphrase("open sesame "), salt, cheap, "header", made));
    CHECK_FALSE(opens(phrase, salt_of("sals"), cheap, "header", made));
    CHECK_FALSE(opens(phrase, salt, {11, 8, 1}, "header", made));
    CHECK_FALSE(opens(phrase, salt, {10, 9, 1}, "header", made));
    CHECK_FALSE(opens(phrase, salt, {10, 8, 2}, "header", made));
    CHECK_FALSE(opens(phrase, salt, cheap, "headers", made));
    CHECK_FALSE(opens(phrase, salt, cheap, "", made));
    wrapped changed = made;
    changed.sealed[31] ^= std::byte{1};
    CHECK_FALSE(opens(phrase, salt, cheap, "header", changed));
    changed = made;
    changed.tag[0] ^= std::byte{1};
    CHECK_FALSE(opens(phrase, salt, cheap, "header", changed));
    CHECK(ERR_peek_error() == 0);  // a wrong passphrase leaves no report in OpenSSL's queue
}
