#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/keystore/passphrase.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tensafe::keystore {

/// The information about a key that a key file shows to everybody who can read the file. No secret.
struct key_info {
    /// A random id, drawn when the file was created and kept by rotations: names the device or session.
    std::array<std::byte, 16> id{};
    std::uint64_t generation = 1;        ///< 1, and one more with each rotation
    std::uint64_t set = 0;               ///< wire::set_id of the parameter set
    std::chrono::sys_seconds created{};  ///< the time of this generation, by the clock of the machine
    bool wrapped = false;                ///< whether the key needs a passphrase
    scrypt_cost cost{};                  ///< the cost of each guess, if it does

    friend bool operator==(const key_info&, const key_info&) = default;
};

namespace detail {

// The bytes of a key file, docs/keys.md: numbers are little-endian.
inline constexpr std::string_view key_file_magic = "TSKF";
inline constexpr unsigned key_file_version = 1;
inline constexpr std::size_t key_file_bytes = 176;
/// The bytes of a file that are read at most: room for later versions, of which we want to know the number.
inline constexpr std::size_t longest_key_file = 4096;
inline constexpr std::size_t key_salt_at = 64;
inline constexpr std::size_t key_secret_at = 96;
inline constexpr std::size_t key_tag_at = 128;
inline constexpr std::size_t key_digest_at = 144;
/// The last time that a key file can say, the end of the year 9999, which every calendar can print.
inline constexpr std::uint64_t last_key_time = 253'402'300'799;

using key_file_span = std::span<std::byte, key_file_bytes>;
using const_key_file_span = std::span<const std::byte, key_file_bytes>;

inline wire::byte_reader key_fields(std::span<const std::byte> bytes, std::size_t at) noexcept {
    return {{octets(bytes.data()) + at, bytes.size() - at}, "key file"};
}
inline wire::byte_writer key_fields(key_file_span bytes, std::size_t at) noexcept {
    return {{octets(bytes.data()) + at, bytes.size() - at}, "key file"};
}

inline void require_zeros(std::span<const std::byte> bytes, const std::string& file, const char* what) {
    if (!std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; })) {
        throw format_error({file, ": ", what, " must be zeros and are not"});
    }
}

/// Checks magic, version and length, before anything else is looked at.
inline void check_key_file_kind(std::span<const std::byte> bytes, const std::string& file) {
    if (bytes.size() <= key_file_magic.size() ||
        !std::equal(key_file_magic.begin(), key_file_magic.end(), bytes.begin(),
                    [](char c, std::byte b) { return static_cast<std::byte>(c) == b; })) {
        throw format_error({file, ": is no key file: got ", bytes.size(),
                            " bytes, expected some that begin with \"", key_file_magic, "\""});
    }
    const auto version = std::to_integer<unsigned>(bytes[4]);
    require<unsupported_error>(
        version == key_file_version,
        {file, ": not supported: a key file of version ", version, ", expected version ", key_file_version});
    require<format_error>(
        bytes.size() == key_file_bytes,
        {file, ": got ", bytes.size(), " bytes, expected the ", key_file_bytes, " of a key file"});
}

/// Parses the bytes of a key file and checks all of them but the wrapped secret. Takes no memory but for
/// messages and derives no key.
/// @param bytes  treated as untrusted
/// @param file   how messages call them
inline key_info parse_key_file(std::span<const std::byte> bytes, const std::string& file) {
    check_key_file_kind(bytes, file);
    const sha256_digest digest = sha256::of(bytes.first(key_digest_at));
    require<format_error>(
        std::equal(digest.begin(), digest.end(), bytes.begin() + key_digest_at),
        {file, ": its checksum does not fit: the file was changed or is only in part what was written"});
    const auto wrap = std::to_integer<unsigned>(bytes[5]);
    require<unsupported_error>(wrap <= 1, {file, ": not supported: wrap ", wrap,
                                           ", expected 0 (none) or 1 (scrypt and ChaCha20-Poly1305)"});
    require_zeros(bytes.subspan(6, 2), file, "bytes 6 and 7");
    require_zeros(bytes.subspan(60, 4), file, "bytes 60 to 63");
    key_info info;
    wire::byte_reader fields = key_fields(bytes, 8);
    info.set = fields.number<std::uint64_t>();
    std::copy_n(std::as_bytes(fields.bytes(info.id.size())).begin(), info.id.size(), info.id.begin());
    info.generation = fields.number<std::uint64_t>();
    require<format_error>(info.generation != 0, {file, ": got generation 0, expected at least 1"});
    const auto seconds = fields.number<std::uint64_t>();
    require<format_error>(seconds <= last_key_time, {file, ": its time of creation is after the year 9999"});
    info.created = std::chrono::sys_seconds(std::chrono::seconds(static_cast<std::int64_t>(seconds)));
    info.wrapped = wrap == 1;
    if (info.wrapped) {
        info.cost.log_n = fields.number<std::uint32_t>();
        info.cost.block_size = fields.number<std::uint32_t>();
        info.cost.parallelism = fields.number<std::uint32_t>();
        require<unsupported_error>(
            info.cost.allowed(),
            {file, ": not supported: ", info.cost.text(),
             "; expected 1 to 256 MiB, N below 2^(16 r) and no more than four times the work of ",
             scrypt_cost{}.text()});
    } else {
        require_zeros(bytes.subspan(48, 12), file, "the costs of a key without a passphrase");
        require_zeros(bytes.subspan(key_salt_at, wrap_salt_bytes), file,
                      "the salt of a key without a passphrase");
        require_zeros(bytes.subspan(key_tag_at, wrap_tag_bytes), file,
                      "the tag of a key without a passphrase");
    }
    return info;
}

/// Writes all bytes of a key file, with a fresh salt if there is a passphrase.
/// @param info  `wrapped` and `cost` are ignored
/// @param cost  allowed()
/// @throws entropy_error; error if OpenSSL fails
inline void write_key_file_bytes(const key_info& info, const random::seed& seed, const passphrase& phrase,
                                 const scrypt_cost& cost, key_file_span to) {
    std::fill(to.begin(), to.end(), std::byte{0});
    std::transform(key_file_magic.begin(), key_file_magic.end(), to.begin(),
                   [](char c) { return static_cast<std::byte>(c); });
    to[4] = static_cast<std::byte>(key_file_version);
    to[5] = static_cast<std::byte>(phrase.empty() ? 0 : 1);
    wire::byte_writer fields = key_fields(to, 8);
    fields.number<std::uint64_t>(info.set);
    fields.bytes({octets(info.id.data()), info.id.size()});
    fields.number<std::uint64_t>(info.generation);
    fields.number<std::uint64_t>(static_cast<std::uint64_t>(info.created.time_since_epoch().count()));
    if (phrase.empty()) {
        const auto secret = std::as_bytes(std::span(seed.bytes));
        std::copy(secret.begin(), secret.end(), to.begin() + key_secret_at);
    } else {
        fields.number<std::uint32_t>(cost.log_n);
        fields.number<std::uint32_t>(cost.block_size);
        fields.number<std::uint32_t>(cost.parallelism);
        const random::seed salt = random::fresh_nonce();
        std::copy_n(std::as_bytes(std::span(salt.bytes)).begin(), wrap_salt_bytes, to.begin() + key_salt_at);
        wrap_secret(phrase, to.subspan<key_salt_at, wrap_salt_bytes>(), cost, to.first<key_secret_at>(),
                    seed.bytes, to.subspan<key_secret_at, 32>(), to.subspan<key_tag_at, wrap_tag_bytes>());
    }
    const sha256_digest digest = sha256::of(to.first<key_digest_at>());
    std::copy(digest.begin(), digest.end(), to.begin() + key_digest_at);
}

/// Reads the seed in a key file that parse_key_file has passed.
/// @throws passphrase_error; format_error for a seed whose bytes are all 0
inline void read_key_seed(std::span<const std::byte> bytes, const key_info& info, const passphrase& phrase,
                          const std::string& file, random::seed& seed) {
    const const_key_file_span all = bytes.first<key_file_bytes>();
    if (info.wrapped) {
        require<passphrase_error>(!phrase.empty(),
                                  {file, ": the key is wrapped with a passphrase, and none was given"});
        require<passphrase_error>(
            unwrap_secret(phrase, all.subspan<key_salt_at, wrap_salt_bytes>(), info.cost,
                          all.first<key_secret_at>(), all.subspan<key_secret_at, 32>(),
                          all.subspan<key_tag_at, wrap_tag_bytes>(), seed.bytes),
            {file, ": wrong passphrase, or somebody changed the file and its checksum"});
    } else {
        require<passphrase_error>(phrase.empty(),
                                  {file,
                                   ": a passphrase was given, but the key is not wrapped with one: whoever "
                                   "can write the file may have put another key there"});
        std::copy_n(all.begin() + key_secret_at, seed.bytes.size(),
                    std::as_writable_bytes(std::span(seed.bytes)).begin());
    }
    std::uint8_t any = 0;
    for (const std::uint8_t byte : seed.bytes) {
        any |= byte;
    }
    require<format_error>(any != 0, {file, ": its seed is all zeros: no key was ever written there"});
}

}  // namespace detail

}  // namespace tensafe::keystore
