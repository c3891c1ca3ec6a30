#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/keystore/owned_descriptor.hpp>
#include <tensafe/keystore/passphrase.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/memory/wipe.hpp>

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <termios.h>
#include <unistd.h>

namespace tensafe::keystore {

namespace detail {

/// A terminal that shows nothing of what is typed and gives each key at once, until the end of the scope.
/// Ctrl-C comes as a key: a signal would end the program with the terminal left silent.
class silent_terminal {
  public:
    explicit silent_terminal(int terminal) : terminal_(terminal) {
        if (::tcgetattr(terminal_, &before_) != 0) {
            io::throw_io_error("the terminal", "read its settings", errno);
        }
        termios silent = before_;
        silent.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL | ICANON | ISIG | IEXTEN);
        silent.c_cc[VMIN] = 1;
        silent.c_cc[VTIME] = 0;
        // What was typed before the question was shown is no answer to it.
        if (::tcsetattr(terminal_, TCSAFLUSH, &silent) != 0) {
            io::throw_io_error("the terminal", "change its settings", errno);
        }
    }
    silent_terminal(const silent_terminal&) = delete;
    silent_terminal& operator=(const silent_terminal&) = delete;
    ~silent_terminal() { static_cast<void>(::tcsetattr(terminal_, TCSAFLUSH, &before_)); }

  private:
    int terminal_;
    termios before_{};
};

inline void show(int terminal, std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = ::write(terminal, text.data(), text.size());
        if (count > 0) {
            text.remove_prefix(static_cast<std::size_t>(count));
        } else if (count == 0 || errno != EINTR) {
            io::throw_io_error("the terminal", "write", count == 0 ? EIO : errno);
        }
    }
}

/// ask_passphrase on an open terminal
inline passphrase ask_on(int terminal, std::string_view question) {
    memory::secret_buffer<char> typed(passphrase::longest);
    std::size_t size = 0;
    {
        const silent_terminal silent(terminal);
        show(terminal, question);
        char key = 0;
        const memory::wipe_guard guard(key);
        for (;;) {
            const ssize_t count = ::read(terminal, &key, 1);
            if (count < 0 && errno == EINTR) {
                continue;
            }
            constexpr char interrupt = 0x03;
            constexpr char end_of_input = 0x04;
            constexpr char backspace = 0x08;
            constexpr char erase_line = 0x15;
            constexpr char erase = 0x7f;
            if (count <= 0 || key == interrupt || key == end_of_input) {
                show(terminal, "\n");
                throw cancelled_error("the question for a passphrase was cancelled");
            }
            if (key == '\n' || key == '\r') {
                break;
            }
            if (key == erase_line) {
                size = 0;
            } else if (key == backspace || key == erase) {
                // All bytes of one character of UTF-8.
                while (size > 0 && (static_cast<unsigned char>(typed[--size]) & 0xc0u) == 0x80u) {
                }
            } else if (static_cast<unsigned char>(key) < 0x20) {
                show(terminal, "\n");
                throw parameter_error(
                    "passphrase: got a control character, as Tab or an arrow key gives; "
                    "expected letters, digits and signs");
            } else if (size == typed.size()) {
                show(terminal, "\n");
                throw parameter_error("passphrase: got more than " + std::to_string(passphrase::longest) +
                                      " bytes");
            } else {
                typed[size++] = key;
            }
        }
        show(terminal, "\n");
    }
    return passphrase(std::string_view(typed.data(), size));
}

}  // namespace detail

/// Asks whoever sits at the terminal of this process, /dev/tty, and shows nothing of the answer. Backspace
/// and Ctrl-U work; Ctrl-C and Ctrl-D cancel. A process that is killed meanwhile leaves the terminal silent
/// ("stty sane" helps).
/// @throws io_error without a terminal; cancelled_error; parameter_error for an empty answer, one that is too
///         long, or another control character
inline passphrase ask_passphrase(std::string_view question) {
    const detail::owned_descriptor terminal(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
    if (terminal.get() < 0) {
        io::throw_io_error("/dev/tty", "open", errno);
    }
    return detail::ask_on(terminal.get(), question);
}

}  // namespace tensafe::keystore
