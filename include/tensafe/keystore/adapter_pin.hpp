#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/keystore/signed_adapter.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensafe::keystore {

/// The digest of a model's integers: SHA-256 of "tensafe adapter weights 1\n" and those of
/// Model::visit_weights, 8 bytes each, little-endian. **Secret**: whoever has it can confirm a guess of A.
/// @tparam Model  a lora::model_server
/// @throws as visit_weights. Cost: that of encoding A, about half of packing
template <class Model>
sha256_digest weights_digest(const lora::adapter& from, const typename Model::options_type& options = {}) {
    sha256 hash;
    hash.update(detail::plain_message("tensafe adapter weights 1\n").bytes);
    Model::visit_weights(from, options, [&](auto words) { hash.update(std::as_bytes(words)); });
    return hash.finish();
}

/// The salt of a commitment: 32 bytes that nobody without the key can tell from random ones, as the signature
/// that they are the SHA-256 of is never shown. So nothing is stored beside the key, a restart commits alike,
/// and other weights or another name have another salt: to open one commitment opens no other. Lost with the
/// key.
inline sha256_digest pin_salt(const signing_key& publisher, std::string_view name,
                              const sha256_digest& weights) {
    detail::plain_message message("tensafe adapter salt 1\n");
    return sha256::of(publisher.sign(message.add(weights).add_text(name).bytes));
}

/// The commitment: SHA-256 of "tensafe adapter commitment 1\n", the salt and the weights_digest. Binds
/// whoever shows it to the integers, and without the salt says nothing about them. To open it, show salt and
/// adapter.
inline sha256_digest commitment_to(const sha256_digest& weights, const sha256_digest& salt) {
    return sha256::of(detail::plain_message("tensafe adapter commitment 1\n").add(salt).add(weights).bytes);
}

/// Says which adapter a server answers with, signed by a publisher: what its clients get of it, and a
/// commitment to its A. Nothing in it is true before `fits` says so; then it is what the key's holder signed.
/// That the server multiplies with this A it does not prove.
///
/// A value type; const members may be called from any thread.
struct adapter_pin {
    verifying_key key;
    ed25519_signature signature{};
    std::string name;            ///< name on the server: UTF-8, at most 128 bytes, no control characters
    sha256_digest layout{};      ///< digest of the model layout message (wire), which has length and set
    sha256_digest held{};        ///< digest of the held adapter message: B and scales
    sha256_digest commitment{};  ///< commitment to the integers that stand for A

    /// Makes and signs a pin.
    /// @param weights  the weights_digest
    /// @throws parameter_error for a name that is too long, is not UTF-8 or has control characters
    static adapter_pin make(const signing_key& publisher, std::string_view name,
                            std::span<const std::byte> layout_message,
                            std::span<const std::byte> held_message, const sha256_digest& weights) {
        detail::check_package_name<parameter_error>(name, "adapter pin");
        adapter_pin pin{publisher.verifying(),    {},
                        std::string(name),        sha256::of(layout_message),
                        sha256::of(held_message), commitment_to(weights, pin_salt(publisher, name, weights))};
        pin.signature = publisher.sign(pin.signed_bytes());
        return pin;
    }

    /// The signed bytes: "tensafe adapter pin 1\n", the three digests, the length of the name (8 bytes,
    /// little-endian), the name.
    std::vector<std::byte> signed_bytes() const {
        detail::plain_message message("tensafe adapter pin 1\n");
        return message.add(layout).add(held).add(commitment).add(name.size()).add_text(name).bytes;
    }

    /// Whether the signature is the key's, of all other members.
    bool fits() const { return key.verifies(signed_bytes(), signature); }

    /// The text of the pin as a file.  @throws parameter_error for a name that `make` would refuse
    std::string text() const {
        detail::check_package_name<parameter_error>(name, "adapter pin");
        const nlohmann::ordered_json document = {{"format", format},
                                                 {"version", 1},
                                                 {"name", name},
                                                 {"layout", hex(layout)},
                                                 {"held", hex(held)},
                                                 {"commitment", hex(commitment)},
                                                 {"public_key", key.hex()},
                                                 {"signature", hex(signature)}};
        return document.dump(2) + "\n";
    }

    /// Parses the text of a pin, which may be hostile: strict JSON with exactly these eight keys.
    /// @param file  how messages call the text, already quoted
    /// @throws format_error if it is anything else; unsupported_error for another version of the format
    static adapter_pin parse(std::string_view text, std::string_view file) {
        constexpr std::array<std::string_view, 8> members = {
            "format", "version", "name", "layout", "held", "commitment", "public_key", "signature"};
        const detail::signed_document document(text, file, format, members);
        return {document.key(),
                document.bytes_of<64>("signature"),
                document.name(),
                document.bytes_of<32>("layout"),
                document.bytes_of<32>("held"),
                document.bytes_of<32>("commitment")};
    }
    /// Reads a pin.  @throws as parse; io_error if it cannot be read, format_error beyond 10,000 bytes
    static adapter_pin read(const std::filesystem::path& path) {
        return parse(io::read_file<std::string>(path, detail::max_signature_file_bytes),
                     quote(path.string()));
    }

    friend bool operator==(const adapter_pin&, const adapter_pin&) = default;

  private:
    static constexpr std::string_view format = "tensafe-adapter-pin";
};

}  // namespace tensafe::keystore
