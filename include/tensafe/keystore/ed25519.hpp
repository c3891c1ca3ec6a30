#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/keystore/openssl.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/memory/buffer.hpp>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tensafe::keystore {

/// The signature that an Ed25519 key makes of a message.
using ed25519_signature = std::array<std::byte, 64>;

namespace detail {

using openssl_key = std::unique_ptr<EVP_PKEY, openssl_release<&EVP_PKEY_free>>;
using openssl_bio = std::unique_ptr<BIO, openssl_release<&BIO_free_all>>;
using openssl_digest = std::unique_ptr<EVP_MD_CTX, openssl_release<&EVP_MD_CTX_free>>;

/// The longest key file that is read; one of OpenSSL's has about 120 bytes.
inline constexpr std::size_t max_key_file_bytes = 16'384;

/// Says why an Ed25519 public key must not be trusted whoever shows it; null if it may be. A point of small
/// order verifies signatures that anybody can make without a key, and a y-coordinate that is not reduced
/// gives one key several texts. OpenSSL 3.0 takes both.
inline const char* weakness_of(const std::array<std::byte, 32>& key) {
    std::array<std::byte, 32> y = key;
    y[31] &= std::byte{0x7f};  // the top bit is the sign of x
    // p = 2^255 - 19 is ed ff ... ff 7f: only its first byte is below 0xff and 0x7f.
    if (y[31] == std::byte{0x7f} && y[0] >= std::byte{0xed} &&
        std::all_of(y.begin() + 1, y.end() - 1, [](std::byte byte) { return byte == std::byte{0xff}; })) {
        return "its y-coordinate is not reduced modulo 2^255 - 19";
    }
    // The y-coordinates of the eight points whose order divides 8: 0 and the pair for orders 4 and 8, 1 and
    // p - 1 for orders 1 and 2.
    constexpr std::array<std::string_view, 5> small_order = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"};
    if (std::find(small_order.begin(), small_order.end(), keystore::hex(y)) != small_order.end()) {
        return "it is a point of small order, for which anybody can sign";
    }
    return nullptr;
}

/// Opens PEM text with one block; `what` is how messages call it.
inline openssl_bio open_pem(std::span<const std::byte> text, const std::string& what) {
    const std::string_view view(reinterpret_cast<const char*>(text.data()), text.size());
    constexpr std::string_view marker = "-----BEGIN ";
    const std::size_t first = view.find(marker);
    require<format_error>(
        first != view.npos && view.find(marker, first + 1) == view.npos,
        {what, ": got ", (first == view.npos ? "no PEM block" : "several PEM blocks"), ", expected one"});
    const openssl_reports reports;
    openssl_bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    reports.require(bio != nullptr, "read a key");
    return bio;
}

/// Declines to give a passphrase; without a callback OpenSSL would ask for one on the terminal.
inline int no_passphrase(char*, int, int, void*) {
    return -1;
}

inline void check_ed25519(const openssl_key& key, const std::string& what, const char* wanted) {
    require<format_error>(key != nullptr, {what, ": is not ", wanted});
    require<unsupported_error>(EVP_PKEY_get_base_id(key.get()) == EVP_PKEY_ED25519,
                               {what, ": not supported: a key of another kind, only Ed25519"});
}

inline std::array<std::byte, 32> public_bytes(const EVP_PKEY* key) {
    const openssl_reports reports;
    std::array<std::byte, 32> bytes{};
    std::size_t size = bytes.size();
    reports.check(EVP_PKEY_get_raw_public_key(key, octets(bytes.data()), &size), "read a public key");
    return bytes;
}

}  // namespace detail

/// The public half of an Ed25519 key (RFC 8032): checks signatures. Points of small order and coordinates
/// that are not reduced are refused; bytes that are no point of the curve verify nothing.
///
/// A value of 32 bytes, as RFC 8032 writes them. Thread safety: that of std::array.
class verifying_key {
  public:
    /// Makes a key of its bytes.
    /// @param what  how messages call the bytes
    /// @throws format_error for a point of small order or a coordinate that is not reduced
    explicit verifying_key(const std::array<std::byte, 32>& bytes, std::string_view what = "public key")
        : bytes_(bytes) {
        if (const char* weakness = detail::weakness_of(bytes)) {
            throw format_error({what, ": ", hex(), " cannot be trusted: ", weakness});
        }
    }

    /// Reads a key from 64 lower-case hexadecimal digits.
    /// @param what how messages call the text
    /// @throws format_error if the text is anything else, or as the constructor
    static verifying_key from_hex(std::string_view text, std::string_view what = "public key") {
        return verifying_key(keystore::from_hex<32>(text, what), what);
    }

    /// Reads a PEM file with one public key ("openssl pkey -in key.pem -pubout" writes it).
    /// @throws io_error if it cannot be read, format_error if it holds anything else, unsupported_error for
    ///         another kind of key
    static verifying_key read(const std::filesystem::path& path) {
        const auto text = io::read_file<std::string>(path, detail::max_key_file_bytes);
        const std::string what = quote(path.string());
        const openssl_reports reports;
        const detail::openssl_bio bio = detail::open_pem(std::as_bytes(std::span<const char>(text)), what);
        const detail::openssl_key key(
            PEM_read_bio_PUBKEY(bio.get(), nullptr, detail::no_passphrase, nullptr));
        detail::check_ed25519(key, what, "a public key in PEM");
        return verifying_key(detail::public_bytes(key.get()), what);
    }

    const std::array<std::byte, 32>& bytes() const noexcept { return bytes_; }

    /// The key as 64 lower-case hexadecimal digits.
    std::string hex() const { return keystore::hex(bytes_); }

    /// Whether `signature` was made of `message` with the other half. Variants of a signature with the same
    /// meaning (S not reduced) are refused. Cost: some 0.1 ms and SHA-512 of the message.
    /// @throws error if OpenSSL fails for another reason, such as memory
    bool verifies(std::span<const std::byte> message, const ed25519_signature& signature) const {
        const openssl_reports reports;  // a signature that does not fit is no error of OpenSSL
        const detail::openssl_key key(
            EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, octets(bytes_.data()), bytes_.size()));
        const detail::openssl_digest context(EVP_MD_CTX_new());
        reports.require(key != nullptr && context != nullptr, "verify a signature");
        reports.check(EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()),
                      "verify a signature");
        const int result = EVP_DigestVerify(context.get(), octets(signature.data()), signature.size(),
                                            octets(message.data()), message.size());
        reports.require(result >= 0, "verify a signature");
        return result == 1;
    }

    friend bool operator==(const verifying_key&, const verifying_key&) = default;

  private:
    std::array<std::byte, 32> bytes_;
};

/// An Ed25519 key (RFC 8032): makes signatures, the same for the same message. OpenSSL holds the secret half
/// and wipes it.
///
/// Movable, not copyable; a moved-from key may only be assigned to or destroyed. Const members may be called
/// from any thread. Errors that are not named: tensafe::error with OpenSSL's reason; its queue of reports
/// stays as the application left it.
class signing_key {
  public:
    /// Makes a fresh key with OpenSSL's generator, which the operating system seeds.
    static signing_key generate() {
        const openssl_reports reports;
        EVP_PKEY* made = nullptr;
        const std::unique_ptr<EVP_PKEY_CTX, openssl_release<&EVP_PKEY_CTX_free>> context(
            EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, nullptr));
        reports.require(context != nullptr && EVP_PKEY_keygen_init(context.get()) == 1 &&
                            EVP_PKEY_keygen(context.get(), &made) == 1,
                        "generate an Ed25519 key");
        return signing_key(detail::openssl_key(made));
    }

    /// Makes the key of a secret kept elsewhere: RFC 8032's private key of 32 bytes, which the caller wipes.
    static signing_key from_secret(std::span<const std::byte, 32> secret) {
        const openssl_reports reports;
        detail::openssl_key key(
            EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, octets(secret.data()), secret.size()));
        reports.require(key != nullptr, "make an Ed25519 key");
        return signing_key(std::move(key));
    }

    /// Reads a PEM file with one private key without a passphrase, which only its owner may read:
    /// one that `write` or "openssl genpkey -algorithm ed25519 -out key.pem" made.
    /// @throws io_error if it cannot be read or others than its owner have access, format_error if it holds
    ///         anything else, unsupported_error for another kind of key or one with a passphrase
    static signing_key read(const std::filesystem::path& path) {
        const memory::secret_buffer<std::byte> text = io::read_private_file(path, detail::max_key_file_bytes);
        const std::string what = quote(path.string());
        const std::string_view view(reinterpret_cast<const char*>(text.data()), text.size());
        require<unsupported_error>(
            view.find("ENCRYPTED") == view.npos,
            {what,
             ": not supported: a key with a passphrase (openssl pkey -in with -out writes it without)"});
        const openssl_reports reports;
        const detail::openssl_bio bio = detail::open_pem(text.span(), what);
        detail::openssl_key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, detail::no_passphrase, nullptr));
        detail::check_ed25519(key, what, "a private key in PEM");
        return signing_key(std::move(key));
    }

    /// Writes the key to a PEM file (PKCS #8, no passphrase) for its owner alone; see
    /// io::create_private_file.
    /// @throws io_error if it cannot be written or something stands at `path` already
    void write(const std::filesystem::path& path) const {
        const openssl_reports reports;
        const detail::openssl_bio bio(BIO_new(BIO_s_secmem()));  // wiped when it is freed
        reports.require(bio != nullptr && PEM_write_bio_PKCS8PrivateKey(bio.get(), key_.get(), nullptr,
                                                                        nullptr, 0, nullptr, nullptr) == 1,
                        "write a private key");
        char* text = nullptr;
        const long size = BIO_get_mem_data(bio.get(), &text);
        io::create_private_file(path, std::as_bytes(std::span(text, static_cast<std::size_t>(size))));
    }

    /// The public half, to give away.
    const verifying_key& verifying() const noexcept { return verifying_; }

    /// Signs a message. Cost: some 40 us and twice SHA-512 of the message.
    ed25519_signature sign(std::span<const std::byte> message) const {
        const openssl_reports reports;
        const detail::openssl_digest context(EVP_MD_CTX_new());
        ed25519_signature signature{};
        std::size_t size = signature.size();
        reports.require(context != nullptr &&
                            EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
                            EVP_DigestSign(context.get(), octets(signature.data()), &size,
                                           octets(message.data()), message.size()) == 1,
                        "sign");
        return signature;
    }

  private:
    explicit signing_key(detail::openssl_key key)
        : key_(std::move(key)), verifying_(detail::public_bytes(key_.get())) {}

    detail::openssl_key key_;
    verifying_key verifying_;
};

}  // namespace tensafe::keystore
