#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/keystore/openssl.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/memory/wipe.hpp>

#include <openssl/evp.h>
#include <openssl/ui.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <termios.h>
#include <unistd.h>

namespace tensafe::keystore {

/// A passphrase that is missing where one is needed, given where none is, or wrong.
class passphrase_error : public error {
  public:
    using error::error;
};

/// A passphrase in memory that is wiped, or none. Its bytes count as they are: the same letters typed on two
/// systems may be different bytes unless they are ASCII.
///
/// Movable, not copyable; a moved-from one is none. Const members may be called from any thread.
class passphrase {
  public:
    static constexpr std::size_t longest = 1024;

    /// Makes no passphrase: what it would protect is not wrapped.
    passphrase() noexcept = default;

    /// Makes a passphrase of a text.
    /// @param text  copied; the caller wipes the original
    /// @throws parameter_error unless it has 1 to `longest` bytes: an empty variable of the environment does
    ///         not stand for "no passphrase"
    explicit passphrase(std::string_view text) : bytes_(checked(text.size()), memory::uninitialized) {
        std::copy(text.begin(), text.end(), bytes_.data());
    }

    passphrase(passphrase&&) noexcept = default;
    passphrase& operator=(passphrase&&) noexcept = default;
    passphrase(const passphrase&) = delete;
    passphrase& operator=(const passphrase&) = delete;

    /// Reads the one line of a file that only its owner may read. Its line feed, if there is one, does not
    /// belong to the passphrase, nor does a carriage return before it.
    /// @throws io_error as io::read_private_file; format_error if there are several lines, or not 1 to
    ///         `longest` bytes in the one
    static passphrase read(const std::filesystem::path& path) {
        const memory::secret_buffer<std::byte> bytes = io::read_private_file(path, longest + 2);
        std::string_view line(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        if (line.ends_with('\n')) {
            line.remove_suffix(1);
            if (line.ends_with('\r')) {
                line.remove_suffix(1);
            }
        }
        require<format_error>(
            !line.empty() && line.size() <= longest && line.find('\n') == line.npos,
            {in_quotes(path.native()), ": is no passphrase: expected one line of 1 to ", longest, " bytes"});
        return passphrase(line);
    }

    /// Whether there is no passphrase.
    bool empty() const noexcept { return bytes_.empty(); }
    /// The passphrase's bytes, valid as long as this object is.
    std::string_view text() const noexcept { return {bytes_.data(), bytes_.size()}; }

  private:
    static std::size_t checked(std::size_t size) {
        require<parameter_error>(size != 0 && size <= longest,
                                 {"passphrase: got ", size, " bytes, expected 1 to ", longest});
        return size;
    }

    memory::secret_buffer<char> bytes_;
};

/// Asks whoever sits at the terminal of this process, /dev/tty, by OpenSSL's user interface, and shows
/// nothing of the answer. Ctrl-C and Ctrl-D cancel. Meanwhile OpenSSL handles the signals of the process; the
/// terminal and they are then as before. A process that is killed leaves the terminal silent ("stty sane"
/// helps). One thread at a time, and Ctrl-C wants that no other thread takes signals.
/// @throws io_error without a terminal; cancelled_error; parameter_error for an empty answer, one that is too
///         long, or a control character
inline passphrase ask_passphrase(const std::string& question) {
    {
        // Without a terminal OpenSSL would read the standard input.
        const io::owned_descriptor terminal(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
        // What was typed before the question was shown is no answer to it.
        if (terminal.get() < 0 || ::tcflush(terminal.get(), TCIFLUSH) != 0) {
            io::throw_io_error("/dev/tty", "open", errno);
        }
    }
    const openssl_reports reports;
    const std::unique_ptr<UI, openssl_release<&UI_free>> ui(UI_new_method(UI_OpenSSL()));
    memory::secret_buffer<char> typed(8192);  // no line of a terminal is longer
    reports.require(ui != nullptr && UI_add_input_string(ui.get(), question.c_str(), 0, typed.data(), 0,
                                                         static_cast<int>(typed.size()) - 1) > 0,
                    "ask for a passphrase");
    require<cancelled_error>(UI_process(ui.get()) == 0, {"the question for a passphrase was cancelled"});
    const std::string_view text(typed.data());
    if (std::any_of(text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; })) {
        throw parameter_error(
            "passphrase: got a control character, as Tab or an arrow key gives; expected letters, digits and "
            "signs");
    }
    return passphrase(text);
}

/// The cost of one guess of a passphrase: the parameters of scrypt (RFC 7914). The default takes 128 MiB and
/// about half a second of one core; a smaller one is for tests and very small machines.
struct scrypt_cost {
    std::uint32_t log_n = 17;       ///< log2 of the cost parameter N
    std::uint32_t block_size = 8;   ///< r
    std::uint32_t parallelism = 1;  ///< p; computed one after the other

    /// The memory that a derivation takes, about, in bytes.
    std::uint64_t memory_bytes() const noexcept { return (std::uint64_t{128} * block_size) << log_n; }

    /// Whether this library computes it: log_n 10 to 20 and below 16 r (RFC 7914), r 1 to 64, p 1 to 16, 1 to
    /// 256 MiB, and at most four times the work of the default. A file from outside cannot ask for more.
    bool allowed() const noexcept {
        return log_n >= 10 && log_n <= 20 && block_size >= 1 && block_size <= 64 && log_n < 16 * block_size &&
               parallelism >= 1 && parallelism <= 16 && memory_bytes() >= std::uint64_t{1} << 20 &&
               memory_bytes() <= std::uint64_t{1} << 28 &&
               memory_bytes() * parallelism <= std::uint64_t{1} << 29;
    }

    /// The cost as messages call it.
    std::string text() const {
        return "scrypt with N = 2^" + std::to_string(log_n) + ", r = " + std::to_string(block_size) +
               ", p = " + std::to_string(parallelism);
    }

    friend bool operator==(const scrypt_cost&, const scrypt_cost&) = default;
};

namespace detail {

inline constexpr std::size_t wrap_salt_bytes = 32;
inline constexpr std::size_t wrap_tag_bytes = 16;

using openssl_cipher = std::unique_ptr<EVP_CIPHER_CTX, openssl_release<&EVP_CIPHER_CTX_free>>;

/// Derives a 32-byte key from a passphrase and a salt; the caller wipes it.
/// @pre cost.allowed()
/// @throws error with OpenSSL's reason, such as memory
inline void derive_wrap_key(const passphrase& phrase, std::span<const std::byte, wrap_salt_bytes> salt,
                            const scrypt_cost& cost, std::array<std::byte, 32>& key) {
    const openssl_reports reports;
    constexpr std::uint64_t most_memory = std::uint64_t{1} << 29;
    reports.check(EVP_PBE_scrypt(phrase.text().data(), phrase.text().size(), octets(salt.data()), salt.size(),
                                 std::uint64_t{1} << cost.log_n, cost.block_size, cost.parallelism,
                                 most_memory, octets(key.data()), key.size()),
                  "derive a key of a passphrase by scrypt");
}

/// ChaCha20-Poly1305 (RFC 8439) in one direction, under a key that is used once: so the nonce is 0.
class wrap_cipher {
  public:
    enum class direction { seal, open };

    wrap_cipher(direction way, const std::array<std::byte, 32>& key, std::span<const std::byte> header)
        : context_(EVP_CIPHER_CTX_new()) {
        reports_.require(context_ != nullptr, "make a cipher");
        constexpr std::array<unsigned char, 12> nonce{};
        int count = 0;
        reports_.check(EVP_CipherInit_ex(context_.get(), EVP_chacha20_poly1305(), nullptr, octets(key.data()),
                                         nonce.data(), way == direction::seal ? 1 : 0),
                       "begin ChaCha20-Poly1305");
        reports_.check(EVP_CipherUpdate(context_.get(), nullptr, &count, octets(header.data()),
                                        static_cast<int>(header.size())),
                       "authenticate a header");
    }
    wrap_cipher(const wrap_cipher&) = delete;
    wrap_cipher& operator=(const wrap_cipher&) = delete;

    /// Encrypts or decrypts the next bytes.  @param to  room for as many bytes
    void update(std::span<const std::byte> from, std::byte* to) {
        int count = 0;
        reports_.check(EVP_CipherUpdate(context_.get(), octets(to), &count, octets(from.data()),
                                        static_cast<int>(from.size())),
                       "go on with ChaCha20-Poly1305");
    }
    void finish(std::span<std::byte, wrap_tag_bytes> tag) {
        reports_.check(finish_any(), "finish ChaCha20-Poly1305");
        reports_.check(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG,
                                           static_cast<int>(tag.size()), tag.data()),
                       "read a tag");
    }
    /// Whether all that was given to update is what was sealed under this key.
    [[nodiscard]] bool finish_if(std::span<const std::byte, wrap_tag_bytes> tag) {
        std::array<std::byte, wrap_tag_bytes> wanted{};
        std::copy(tag.begin(), tag.end(), wanted.begin());
        reports_.check(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG,
                                           static_cast<int>(wanted.size()), wanted.data()),
                       "set a tag");
        return finish_any() == 1;
    }

  private:
    int finish_any() {
        std::array<unsigned char, 16> nothing{};
        int count = 0;
        return EVP_CipherFinal_ex(context_.get(), nothing.data(), &count);
    }

    openssl_reports reports_;
    openssl_cipher context_;
};

/// Wraps 32 secret bytes with a passphrase.
/// @param header  what cannot be changed either; the salt, fresh for each call, is in it
inline void wrap_secret(const passphrase& phrase, std::span<const std::byte, wrap_salt_bytes> salt,
                        const scrypt_cost& cost, std::span<const std::byte> header,
                        std::span<const std::uint8_t, 32> secret, std::span<std::byte, 32> sealed,
                        std::span<std::byte, wrap_tag_bytes> tag) {
    std::array<std::byte, 32> key;
    const memory::wipe_guard guard(key);
    derive_wrap_key(phrase, salt, cost, key);
    wrap_cipher cipher(wrap_cipher::direction::seal, key, header);
    cipher.update(std::as_bytes(secret), sealed.data());
    cipher.finish(tag);
}

/// Takes the wrap off. Returns whether passphrase and bytes are those of wrap_secret; else `secret` is all 0.
[[nodiscard]] inline bool unwrap_secret(const passphrase& phrase,
                                        std::span<const std::byte, wrap_salt_bytes> salt,
                                        const scrypt_cost& cost, std::span<const std::byte> header,
                                        std::span<const std::byte, 32> sealed,
                                        std::span<const std::byte, wrap_tag_bytes> tag,
                                        std::span<std::uint8_t, 32> secret) {
    std::array<std::byte, 32> key;
    const memory::wipe_guard guard(key);
    derive_wrap_key(phrase, salt, cost, key);
    wrap_cipher cipher(wrap_cipher::direction::open, key, header);
    cipher.update(sealed, std::as_writable_bytes(secret).data());
    if (cipher.finish_if(tag)) {
        return true;
    }
    memory::wipe(secret.data(), secret.size());
    return false;
}

}  // namespace detail

}  // namespace tensafe::keystore
