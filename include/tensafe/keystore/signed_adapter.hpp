#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/json.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tensafe::keystore {

/// The part of an adapter package that a signature is about.
struct package_digest {
    std::uint64_t config_bytes = 0;  ///< length of adapter_config.json
    sha256_digest config{};
    std::uint64_t weights_bytes = 0;  ///< length of adapter_model.safetensors
    sha256_digest weights{};

    /// Computes both digests. Cost: SHA-256 of both files.
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

/// Checks a name: control characters would let it pretend to be lines of a log.
/// @throws Error naming `what`
template <class Error>
void check_package_name(std::string_view name, const std::string& what) {
    if (name.size() > max_package_name_bytes || !is_printable_utf8(name)) {
        throw Error(what + ": name: got " + quote(name) + ", expected at most " +
                    std::to_string(max_package_name_bytes) + " bytes of UTF-8 without control characters");
    }
}

/// Collects bytes to sign or to hash. The first line keeps them from meaning something else elsewhere.
struct plain_message {
    std::vector<std::byte> bytes;

    explicit plain_message(std::string_view first_line) { add_text(first_line); }

    plain_message& add(std::span<const std::byte> part) {
        bytes.insert(bytes.end(), part.begin(), part.end());
        return *this;
    }
    plain_message& add_text(std::string_view text) { return add(std::as_bytes(std::span(text))); }
    /// Adds a number as 8 bytes, little-endian.
    plain_message& add(std::uint64_t number) {
        static_assert(std::endian::native == std::endian::little, "plain_message: numbers are little-endian");
        return add(std::as_bytes(std::span(&number, 1)));
    }
};

/// The members of a text that may be hostile: strict JSON with exactly these strings and numbers, of which
/// the first two are the format's name and its version.
/// @param file  how messages call the text, already quoted
class signed_document {
  public:
    signed_document(std::string_view text, std::string_view file, std::string_view format,
                    std::span<const std::string_view> members, std::uint64_t expected_version = 1)
        : what_(file), document_(io::parse_strict_json(text, file)) {
        document_.checked(document_.is_object(), what_, "an object");
        // What is not signed does not stand there: somebody would believe it.
        for (const std::string& key : document_.keys) {
            if (std::find(members.begin(), members.end(), key) == members.end()) {
                std::string expected;
                for (const std::string_view member : members) {
                    expected += (expected.empty() ? "" : ", ") + std::string(member);
                }
                throw format_error(what_ + ": unknown key " + quote(key) + ", expected " + expected);
            }
        }
        if (text_of("format") != format) {
            throw format_error(what_ + ": format: got " + quote(text_of("format")) + ", expected " +
                               quote(format));
        }
        const std::uint64_t version = count_of("version");
        require<unsupported_error>(version == expected_version, {what_, ": not supported: version ", version,
                                                                 " of the format, only ", expected_version});
    }
    const std::string& text_of(const char* member) const {
        return document_.at(member, what_).checked_string(where(member));
    }
    std::uint64_t count_of(const char* member) const {
        return document_.at(member, what_).checked_count(where(member));
    }
    const std::string& name() const {
        check_package_name<format_error>(text_of("name"), what_);
        return text_of("name");
    }
    template <std::size_t Bytes>
    std::array<std::byte, Bytes> bytes_of(const char* member) const {
        return from_hex<Bytes>(text_of(member), where(member));
    }
    verifying_key key() const { return verifying_key::from_hex(text_of("public_key"), where("public_key")); }

  private:
    std::string where(const char* member) const { return what_ + ": " + member; }

    std::string what_;
    io::json_value document_;
};

}  // namespace detail

/// The bytes that are signed, one after the other; numbers are 8 bytes, little-endian:
///
///     "tensafe adapter package 1\n"
///     length of adapter_config.json,        SHA-256 of it
///     length of adapter_model.safetensors,  SHA-256 of it
///     length of the name,                   the name
///     revision
///
/// With the lengths no two packages have the same bytes.
inline std::vector<std::byte> signed_message(const package_digest& package, std::string_view name,
                                             std::uint64_t revision) {
    detail::plain_message message("tensafe adapter package 1\n");
    message.add(package.config_bytes).add(package.config);
    message.add(package.weights_bytes).add(package.weights);
    return std::move(message.add(name.size()).add_text(name).add(revision).bytes);
}

/// The contents of adapter_signature.json: who signed, under which name and revision. Nothing in it is true
/// before `fits` says so.
///
/// A value type. Errors of reading leave nothing behind; const members may be called from any thread.
struct adapter_signature {
    verifying_key key;
    ed25519_signature signature;
    std::string name;            ///< UTF-8, at most 128 bytes, no control characters; may be empty
    std::uint64_t revision = 0;  ///< grows with each version that the signer publishes under the name

    /// Signs a package.  @throws parameter_error for a name too long, not UTF-8 or with control characters
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

    /// Parses the text of a signature, which may be hostile: strict JSON with exactly these six keys.
    /// @param file how messages call the text, already quoted
    /// @throws format_error if it is anything else; unsupported_error for another version of the format
    static adapter_signature parse(std::string_view text, std::string_view file) {
        constexpr std::array<std::string_view, 6> members = {"format",   "version",    "name",
                                                             "revision", "public_key", "signature"};
        const detail::signed_document document(text, file, detail::signature_format, members);
        const std::string& name = document.name();
        const std::uint64_t revision = document.count_of("revision");
        const verifying_key key = document.key();
        return {key, document.bytes_of<64>("signature"), name, revision};
    }
};

/// The name of the file that makes a PEFT directory a signed package.
inline constexpr std::string_view signature_file_name = "adapter_signature.json";

/// Says which packages may be loaded. The default trusts nobody and refuses all of them.
///
///     keystore::load_adapter("adapters/legal", {.trusted = {key}, .oldest_revision = 7});
struct signature_policy {
    /// A package must carry a signature by one of these keys.
    std::vector<verifying_key> trusted = {};
    /// Whether packages without a signature are loaded too, and if `trusted` is empty those that anybody
    /// signed. Only for directories into which nobody writes whom you would not give the model. A signature
    /// that is there and does not fit is an error all the same.
    bool allow_unsigned = false;
    /// The name that must have been signed, if not empty, so that one adapter cannot pass for another.
    std::string name = {};
    /// The smallest revision that is accepted, so that an old package cannot come back.
    std::uint64_t oldest_revision = 0;
    /// The longest adapter_model.safetensors that is read into memory, in bytes. A signature is checked after
    /// that: whoever can write the directory can make each load read so many.
    std::size_t largest_weights = std::size_t{1} << 32;
};

/// The origin of an adapter. Name and revision are as signed; empty and 0 without a signature.
struct adapter_provenance {
    std::optional<verifying_key> signer;  ///< the key whose signature fits; nothing for an unsigned package
    bool trusted = false;                 ///< the signer is one of the policy's keys
    std::string name;
    std::uint64_t revision = 0;
    package_digest content;  ///< digest of the very bytes that were parsed
};

/// An adapter, and who answers for it.
struct loaded_adapter {
    lora::adapter adapter;
    adapter_provenance provenance;
};

namespace detail {

/// Reads the files of a directory, of which the signature need not be there. A link that leads nowhere is.
inline io::peft_reader files_of(const std::filesystem::path& directory) {
    return
        [directory](const std::string& name, std::size_t largest) -> std::optional<std::vector<std::byte>> {
            std::error_code failure;
            const std::filesystem::file_status status =
                std::filesystem::symlink_status(directory / name, failure);
            if (name == signature_file_name && status.type() == std::filesystem::file_type::not_found) {
                require<io_error>(std::filesystem::is_directory(directory, failure),
                                  {in_quotes(directory.native()), ": is not a directory"});
                return std::nullopt;
            }
            return io::read_file<std::vector<std::byte>>(directory / name, largest);
        };
}

/// Both files of a package in memory: what is hashed is what is parsed, whatever happens to the files.
struct package_bytes {
    std::filesystem::path directory;
    std::string config;
    std::vector<std::byte> weights;

    package_bytes(const std::filesystem::path& from, const io::peft_reader& read, std::size_t largest_weights)
        : directory(from),
          config(io::read_needed_text(from, read, "adapter_config.json", io::max_config_bytes)),
          weights(io::read_needed(from, read, "adapter_model.safetensors", largest_weights)) {}

    package_bytes(const std::filesystem::path& folder, std::size_t largest_weights)
        : package_bytes(folder, files_of(folder), largest_weights) {}

    package_digest digest() const {
        return package_digest::of(std::as_bytes(std::span<const char>(config)), weights);
    }

    lora::adapter parse() && {
        const auto file = io::safetensors_file::adopt(std::move(weights),
                                                      (directory / "adapter_model.safetensors").string());
        return io::parse_peft(config, file, (directory / "adapter_config.json").string());
    }
};

/// Refuses what can be refused before the weights are read.  Returns whether the signer is trusted.
inline bool check_signer(const std::optional<adapter_signature>& signature, const signature_policy& policy,
                         const std::string& where) {
    if (!signature) {
        if (!policy.allow_unsigned) {
            throw signature_error(
                where + ": is not signed: there is no " + std::string(signature_file_name) +
                ". Sign it (sign_adapter sign, keystore::sign_adapter), or allow unsigned ones (no --signer, "
                "signature_policy::allow_unsigned) if whoever can write there may choose the adapter");
        }
        if (!policy.name.empty() || policy.oldest_revision != 0) {
            throw signature_error(where +
                                  ": is not signed, so that it has neither the name nor the revision "
                                  "that the policy asks for");
        }
        return false;
    }
    const bool trusted =
        std::find(policy.trusted.begin(), policy.trusted.end(), signature->key) != policy.trusted.end();
    if (!trusted && !(policy.allow_unsigned && policy.trusted.empty())) {
        throw signature_error(
            where + ": is signed by the key " + signature->key.hex() +
            (policy.trusted.empty()
                 ? ", but the policy trusts no key: put those of your signers into signature_policy::trusted"
                 : ", which is not among the " + std::to_string(policy.trusted.size()) +
                       " that the policy trusts"));
    }
    return trusted;
}

inline void check_signed(const adapter_signature& signature, const package_digest& content,
                         const signature_policy& policy, const std::string& where) {
    if (!signature.fits(content)) {
        throw signature_error(where + ": the signature of the key " + signature.key.hex() +
                              " does not fit: adapter_config.json, adapter_model.safetensors, the name or "
                              "the revision is not what was signed; which of them cannot be told");
    }
    if (!policy.name.empty() && signature.name != policy.name) {
        throw signature_error(where + ": is signed under the name " + quote(signature.name) + ", expected " +
                              quote(policy.name));
    }
    if (signature.revision < policy.oldest_revision) {
        throw signature_error(where + ": is revision " + std::to_string(signature.revision) +
                              ", expected at least " + std::to_string(policy.oldest_revision));
    }
}

}  // namespace detail

/// Loads a package: PEFT's files with adapter_signature.json. Each file is read once, and what was verified
/// is what is parsed; nothing is parsed before that but the signature.
///
/// Thread safety: that of `read`. Memory: the files and the matrices.
/// @param from  names in messages what holds the files
/// @throws signature_error if the policy refuses the package: no signature, an unknown key, a signature that
///         does not fit, another name, an old revision
/// @throws io_error if a file is not there, and what `read` throws; format_error for a malformed one; as
///         parse_peft
inline loaded_adapter load_adapter(const std::filesystem::path& from, const io::peft_reader& read,
                                   const signature_policy& policy) {
    const std::string where = quote(from.string());
    const std::string file(signature_file_name);
    std::optional<adapter_signature> signature;
    if (const auto bytes = read(file, detail::max_signature_file_bytes)) {
        signature = adapter_signature::parse({reinterpret_cast<const char*>(bytes->data()), bytes->size()},
                                             quote((from / file).string()));
    }
    adapter_provenance provenance;
    provenance.trusted = detail::check_signer(signature, policy, where);
    detail::package_bytes bytes(from, read, policy.largest_weights);
    provenance.content = bytes.digest();
    if (signature) {
        detail::check_signed(*signature, provenance.content, policy, where);
        provenance.signer = signature->key;
        provenance.name = signature->name;
        provenance.revision = signature->revision;
    }
    return {std::move(bytes).parse(), std::move(provenance)};
}

/// Loads a package from a directory.
/// @throws io_error if a file cannot be read; format_error also for one that is too long; otherwise as above
inline loaded_adapter load_adapter(const std::filesystem::path& directory, const signature_policy& policy) {
    return load_adapter(directory, detail::files_of(directory), policy);
}

/// Returns a function that loads the package anew each time, for serving::registry::load.
/// @param report is told where each adapter comes from before it is returned; it may throw to refuse it
/// Thread safety: that of `report`. Errors: as load_adapter.
inline std::function<lora::adapter()> adapter_source(
    std::filesystem::path directory, signature_policy policy,
    std::function<void(const adapter_provenance&)> report = {}) {
    return [directory = std::move(directory), policy = std::move(policy), report = std::move(report)] {
        loaded_adapter loaded = load_adapter(directory, policy);
        if (report) {
            report(loaded.provenance);
        }
        return std::move(loaded.adapter);
    };
}

/// Signs a PEFT directory: writes adapter_signature.json into it, all of it or nothing, over one that is
/// there. An adapter that could not be loaded is not signed.
/// @param name      what the signer calls the adapter: UTF-8, at most 128 bytes, no control characters
/// @param revision  to be larger with each version; see signature_policy::oldest_revision
/// @param largest_weights  as in signature_policy: those who load need to allow as many
/// @throws parameter_error for another name; io_error, format_error, unsupported_error as load_adapter
inline void sign_adapter(const std::filesystem::path& directory, const signing_key& key,
                         std::string_view name = "", std::uint64_t revision = 0,
                         std::size_t largest_weights = signature_policy{}.largest_weights) {
    detail::package_bytes bytes(directory, largest_weights);
    const std::string text = adapter_signature::make(bytes.digest(), key, name, revision).text();
    static_cast<void>(std::move(bytes).parse());
    io::replace_file(directory / signature_file_name, std::as_bytes(std::span<const char>(text)));
}

}  // namespace tensafe::keystore
