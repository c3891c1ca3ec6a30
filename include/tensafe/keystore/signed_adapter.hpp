#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/message.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/keystore/adapter_signature.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <algorithm>
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

/// The name of the file that makes a PEFT directory a signed package.
inline constexpr std::string_view signature_file_name = "adapter_signature.json";

/// Which packages may be loaded. The default trusts nobody and refuses all of them.
///
///     keystore::load_adapter("adapters/legal", {.trusted = {key}, .oldest_revision = 7});
struct signature_policy {
    /// A package must carry a signature by one of these keys.
    std::vector<verifying_key> trusted = {};
    /// Packages without a signature are loaded too, and if `trusted` is empty those that anybody signed. Only
    /// for directories into which nobody writes whom you would not give the model. A signature that is there
    /// and does not fit is an error all the same.
    bool allow_unsigned = false;
    /// If not empty: the name that must have been signed, so that one adapter cannot pass for another.
    std::string name = {};
    /// The smallest revision that is accepted, so that an old package cannot come back.
    std::uint64_t oldest_revision = 0;
    /// The longest adapter_model.safetensors that is read into memory, in bytes. A signature is checked after
    /// that: whoever can write the directory can make each load read so many.
    std::size_t largest_weights = std::size_t{1} << 32;
};

/// Where an adapter came from. Name and revision are as signed; empty and 0 without a signature.
struct adapter_provenance {
    std::optional<verifying_key> signer;  ///< whose signature fits; nothing for an unsigned package
    bool trusted = false;                 ///< the signer is one of the policy's keys
    std::string name;
    std::uint64_t revision = 0;
    package_digest content;  ///< of the very bytes that were parsed
};

/// An adapter, and who answers for it.
struct loaded_adapter {
    lora::adapter adapter;
    adapter_provenance provenance;
};

namespace detail {

template <class Bytes>
Bytes read_whole(const std::filesystem::path& path, std::size_t largest) {
    io::input_file file(path);
    if (file.size() > largest) {
        throw format_error(io::quote(path.string()) + ": got " + std::to_string(file.size()) +
                           " bytes, expected at most " + std::to_string(largest));
    }
    Bytes bytes(file.size(), typename Bytes::value_type{});
    file.read(std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    return bytes;
}

/// Both files of a package in memory: what is hashed is what is parsed, whatever happens to the files.
struct package_bytes {
    std::filesystem::path directory;
    std::string config;
    std::vector<std::byte> weights;

    package_bytes(const std::filesystem::path& from, std::size_t largest_weights)
        : directory(from),
          config(read_whole<std::string>(from / "adapter_config.json", io::max_config_bytes)),
          weights(read_whole<std::vector<std::byte>>(from / "adapter_model.safetensors", largest_weights)) {}

    package_digest digest() const {
        return package_digest::of(std::as_bytes(std::span<const char>(config)), weights);
    }

    lora::adapter parse() && {
        const auto file = io::safetensors_file::adopt(std::move(weights),
                                                      (directory / "adapter_model.safetensors").string());
        return io::parse_peft(config, file, (directory / "adapter_config.json").string());
    }
};

/// The signature of a package, or nothing if there is no such file. A link that leads nowhere is one.
inline std::optional<adapter_signature> read_signature(const std::filesystem::path& directory) {
    const std::filesystem::path path = directory / signature_file_name;
    std::error_code failure;
    const std::filesystem::file_status status = std::filesystem::symlink_status(path, failure);
    if (status.type() == std::filesystem::file_type::not_found) {
        if (!std::filesystem::is_directory(directory, failure)) {
            throw io_error(io::quote(directory.string()) + ": is not a directory");
        }
        return std::nullopt;
    }
    return adapter_signature::parse(read_whole<std::string>(path, max_signature_file_bytes),
                                    io::quote(path.string()));
}

/// What can be refused before the weights are read.  Returns whether the signer is trusted.
inline bool check_signer(const std::optional<adapter_signature>& signature, const signature_policy& policy,
                         const std::string& where) {
    if (!signature) {
        if (!policy.allow_unsigned) {
            throw signature_error(
                where + ": is not signed: there is no " + std::string(signature_file_name) +
                ". Sign it with keystore::sign_adapter, or set signature_policy::allow_unsigned "
                "if whoever can write there may choose the adapter");
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
        throw signature_error(where + ": is signed under the name " + io::quote(signature.name) +
                              ", expected " + io::quote(policy.name));
    }
    if (signature.revision < policy.oldest_revision) {
        throw signature_error(where + ": is revision " + std::to_string(signature.revision) +
                              ", expected at least " + std::to_string(policy.oldest_revision));
    }
}

}  // namespace detail

/// Loads a package: a PEFT directory with adapter_signature.json. Each file is read once, and what was
/// verified is what is parsed; nothing is parsed before that but the signature.
///
/// Thread safety: a function of its arguments and the files. Memory: the files and the matrices.
/// @throws signature_error if the policy refuses the package: no signature, an unknown key, a signature that
///         does not fit, another name, an old revision
/// @throws io_error if a file cannot be read; format_error for a malformed or too long one; as parse_peft
inline loaded_adapter load_adapter(const std::filesystem::path& directory, const signature_policy& policy) {
    const std::string where = io::quote(directory.string());
    const std::optional<adapter_signature> signature = detail::read_signature(directory);
    adapter_provenance provenance;
    provenance.trusted = detail::check_signer(signature, policy, where);
    detail::package_bytes bytes(directory, policy.largest_weights);
    provenance.content = bytes.digest();
    if (signature) {
        detail::check_signed(*signature, provenance.content, policy, where);
        provenance.signer = signature->key;
        provenance.name = signature->name;
        provenance.revision = signature->revision;
    }
    return {std::move(bytes).parse(), std::move(provenance)};
}

/// A function that loads the package anew each time, for serving::registry::load.
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
