#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/printable.hpp>
#include <tensafe/io/json.hpp>
#include <tensafe/io/message.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/hex.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::keystore {

/// What an adapter package holds, reduced to what a signature is about.
struct package_digest {
    std::uint64_t config_bytes = 0;  ///< length of adapter_config.json
    sha256_digest config{};
    std::uint64_t weights_bytes = 0;  ///< length of adapter_model.safetensors
    sha256_digest weights{};

    /// Cost: SHA-256 of both.
    static package_digest of(std::span<const std::byte> config_file,
                             std::span<const std::byte> weights_file) {
        return {config_file.size(), sha256::of(config_file), weights_file.size(), sha256::of(weights_file)};
    }

    friend bool operator==(const package_digest&, const package_digest&) = default;
};

namespace detail {

inline constexpr std::string_view signature_format = "tensafe-adapter-signature";
inline constexpr std::size_t max_signature_file_bytes = 10'000;
inline constexpr std::size_t max_package_name_bytes = 128;  // as in a registry and a meter

/// Control characters would let a name pretend to be lines of a log.
/// @throws Error naming `what`
template <class Error>
void check_package_name(std::string_view name, const std::string& what) {
    if (name.size() > max_package_name_bytes || !is_printable_utf8(name)) {
        throw Error(what + ": name: got " + io::quote(name) + ", expected at most " +
                    std::to_string(max_package_name_bytes) + " bytes of UTF-8 without control characters");
    }
}

}  // namespace detail

/// The bytes that are signed, one after the other; numbers are 8 bytes, little-endian:
///
///     "tensafe adapter package 1\n"
///     length of adapter_config.json,        SHA-256 of it
///     length of adapter_model.safetensors,  SHA-256 of it
///     length of the name,                   the name
///     revision
///
/// The first line keeps a signature from meaning something else elsewhere; with the lengths no two packages
/// have the same bytes.
inline std::vector<std::byte> signed_message(const package_digest& package, std::string_view name,
                                             std::uint64_t revision) {
    constexpr std::string_view domain = "tensafe adapter package 1\n";
    std::vector<std::byte> message(domain.size() + 4 * sizeof(std::uint64_t) + 2 * sizeof(package.config) +
                                   name.size());
    auto place = message.begin();
    const auto append = [&place](std::span<const std::byte> part) {
        place = std::copy(part.begin(), part.end(), place);
    };
    const auto append_number = [&append](std::uint64_t number) {
        static_assert(std::endian::native == std::endian::little,
                      "signed_message: numbers are little-endian");
        append(std::bit_cast<std::array<std::byte, 8>>(number));
    };
    append(std::as_bytes(std::span(domain)));
    append_number(package.config_bytes);
    append(package.config);
    append_number(package.weights_bytes);
    append(package.weights);
    append_number(name.size());
    append(std::as_bytes(std::span(name)));
    append_number(revision);
    return message;
}

/// What adapter_signature.json says: who signed, under which name and revision. Nothing in it is true before
/// `fits` says so.
///
/// A value type. Errors of reading leave nothing behind; const members may be called from any thread.
struct adapter_signature {
    verifying_key key;
    ed25519_signature signature;
    std::string name;            ///< UTF-8, at most 128 bytes, no control characters; may be empty
    std::uint64_t revision = 0;  ///< grows with each version that the signer publishes under the name

    /// @throws parameter_error for a name that is too long, is not UTF-8 or has control characters
    static adapter_signature make(const package_digest& package, const signing_key& key,
                                  std::string_view name = "", std::uint64_t revision = 0) {
        detail::check_package_name<parameter_error>(name, "adapter signature");
        return {key.verifying(), key.sign(signed_message(package, name, revision)), std::string(name),
                revision};
    }

    /// Whether the signature is the key's, of this package under this name and revision.
    bool fits(const package_digest& package) const {
        return key.verifies(signed_message(package, name, revision), signature);
    }

    /// The file's text. All that stands in it, but for the version of the format, is signed or is the
    /// signature.
    /// @throws parameter_error for a name that `make` would refuse
    std::string text() const {
        detail::check_package_name<parameter_error>(name, "adapter signature");
        nlohmann::ordered_json document;
        document["format"] = detail::signature_format;
        document["version"] = 1;
        document["name"] = name;
        document["revision"] = revision;
        document["public_key"] = key.hex();
        document["signature"] = hex(signature);
        return document.dump(2) + "\n";
    }

    /// The signature of such a text, which may be hostile: strict JSON with exactly these six keys.
    /// @param file how messages call the text, already quoted
    /// @throws format_error if it is anything else; unsupported_error for another version of the format
    static adapter_signature parse(std::string_view text, std::string_view file) {
        const std::string what(file);
        const nlohmann::ordered_json document = io::parse_strict_json(text, file);
        if (!document.is_object()) {
            throw format_error(what + ": got " + document.type_name() + ", expected an object");
        }
        constexpr std::array<std::string_view, 6> known = {"format",   "version",    "name",
                                                           "revision", "public_key", "signature"};
        // What is not signed does not stand there: somebody would believe it.
        for (const auto& [key, value] : document.items()) {
            if (std::find(known.begin(), known.end(), key) == known.end()) {
                throw format_error(what + ": unknown key " + io::quote(key) +
                                   ", expected format, version, name, revision, public_key and signature");
            }
        }
        if (string_of(document, "format", what) != detail::signature_format) {
            throw format_error(what + ": format: got " + io::quote(string_of(document, "format", what)) +
                               ", expected " + io::quote(detail::signature_format));
        }
        if (const std::uint64_t version = number_of(document, "version", what); version != 1) {
            throw unsupported_error(what + ": not supported: version " + std::to_string(version) +
                                    " of the format, only 1");
        }
        const std::string& name = string_of(document, "name", what);
        detail::check_package_name<format_error>(name, what);
        const std::uint64_t revision = number_of(document, "revision", what);
        const auto key =
            verifying_key::from_hex(string_of(document, "public_key", what), what + ": public_key");
        const auto signature = from_hex<64>(string_of(document, "signature", what), what + ": signature");
        return {key, signature, name, revision};
    }

  private:
    static const nlohmann::ordered_json& member(const nlohmann::ordered_json& document, const char* key,
                                                const std::string& what) {
        const auto found = document.find(key);
        if (found == document.end()) {
            throw format_error(what + ": missing key " + io::quote(key));
        }
        return *found;
    }

    static const std::string& string_of(const nlohmann::ordered_json& document, const char* key,
                                        const std::string& what) {
        const nlohmann::ordered_json& value = member(document, key, what);
        if (!value.is_string()) {
            throw format_error(what + ": " + key + ": got " + value.type_name() + ", expected a string");
        }
        return value.get_ref<const std::string&>();
    }

    static std::uint64_t number_of(const nlohmann::ordered_json& document, const char* key,
                                   const std::string& what) {
        const nlohmann::ordered_json& value = member(document, key, what);
        if (!value.is_number_unsigned()) {
            throw format_error(what + ": " + key + ": expected an integer from 0 to 2^64 - 1");
        }
        return value.get<std::uint64_t>();
    }
};

}  // namespace tensafe::keystore
