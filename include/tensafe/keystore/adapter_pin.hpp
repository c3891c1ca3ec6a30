#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/keystore/signed_adapter.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::keystore {

/// Hashes a model's integers: SHA-256 of "tensafe adapter weights 1\n" and those that visit_weights shows it,
/// 8 bytes each, little-endian.
class weights_hash {
  public:
    weights_hash() { hash_.update(detail::plain_message("tensafe adapter weights 1\n").bytes); }
    void operator()(std::span<const std::uint64_t> words) { hash_.update(std::as_bytes(words)); }
    sha256_digest finish() { return hash_.finish(); }

  private:
    sha256 hash_;
};

/// What a pin is about, of an adapter as a service serves it: pinned_parts_of, of opened_pin.hpp.
struct pinned_parts {
    sha256_digest layout{};   ///< digest of the model layout message (wire), which has length and set
    sha256_digest held{};     ///< digest of the held adapter message: B and scales
    sha256_digest weights{};  ///< **secret**: weights_hash; whoever has it can confirm a guess of A
    sha256_digest marks{};    ///< as of adapter_pin
};

/// The salt of a commitment: 32 bytes that nobody without the key can tell from random ones, as the signature
/// that they are the SHA-256 of is never shown. So nothing is stored beside the key, a restart commits alike,
/// and other weights or another name have another salt: to open one commitment opens no other. Lost with the
/// key.
inline sha256_digest pin_salt(const signing_key& publisher, std::string_view name,
                              const sha256_digest& weights) {
    detail::plain_message message("tensafe adapter salt 1\n");
    return sha256::of(publisher.sign(message.add(weights).add_text(name).bytes));
}

/// The commitment: SHA-256 of "tensafe adapter commitment 1\n", the salt and the weights_hash. Binds
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
    std::uint64_t revision = 0;  ///< grows with each version that the publisher signs under the name
    sha256_digest layout{};      ///< as of pinned_parts
    sha256_digest held{};        ///< as of pinned_parts
    sha256_digest commitment{};  ///< commitment to the integers that stand for A
    /// mark_key::commitment_to the secret marks of the tenant that this pin is for; 0: all hold the same.
    sha256_digest marks{};

    /// Makes and signs a pin.
    /// @throws parameter_error for a name that is too long, is not UTF-8 or has control characters
    static adapter_pin make(const signing_key& publisher, std::string_view name, const pinned_parts& of,
                            std::uint64_t revision = 0) {
        detail::check_package_name<parameter_error>(name, "adapter pin");
        adapter_pin pin{publisher.verifying(),
                        {},
                        std::string(name),
                        revision,
                        of.layout,
                        of.held,
                        commitment_to(of.weights, pin_salt(publisher, name, of.weights)),
                        of.marks};
        pin.signature = publisher.sign(pin.signed_bytes());
        return pin;
    }

    /// The signed bytes: "tensafe adapter pin 2\n", layout, held, commitment, marks, the length of the name,
    /// the name, the revision; both numbers in 8 bytes, little-endian.
    std::vector<std::byte> signed_bytes() const {
        detail::plain_message message("tensafe adapter pin 2\n");
        message.add(layout).add(held).add(commitment).add(marks);
        return std::move(message.add(name.size()).add_text(name).add(revision).bytes);
    }

    /// Whether the signature is the key's, of all other members.
    bool fits() const { return key.verifies(signed_bytes(), signature); }

    /// The text of the pin as a file.  @throws parameter_error for a name that `make` would refuse
    std::string text() const {
        detail::check_package_name<parameter_error>(name, "adapter pin");
        const nlohmann::ordered_json document = {{"format", format},
                                                 {"version", version},
                                                 {"name", name},
                                                 {"revision", revision},
                                                 {"layout", hex(layout)},
                                                 {"held", hex(held)},
                                                 {"commitment", hex(commitment)},
                                                 {"marks", hex(marks)},
                                                 {"public_key", key.hex()},
                                                 {"signature", hex(signature)}};
        return document.dump(2) + "\n";
    }

    /// Parses the text of a pin, which may be hostile: strict JSON with exactly these ten keys.
    /// @param file  how messages call the text, already quoted
    /// @throws format_error if it is anything else; unsupported_error for another version of the format
    static adapter_pin parse(std::string_view text, std::string_view file) {
        constexpr std::array<std::string_view, 10> members = {
            "format", "version",    "name",  "revision",   "layout",
            "held",   "commitment", "marks", "public_key", "signature"};
        const detail::signed_document document(text, file, format, members, version);
        return {document.key(),
                document.bytes_of<64>("signature"),
                document.name(),
                document.count_of("revision"),
                document.bytes_of<32>("layout"),
                document.bytes_of<32>("held"),
                document.bytes_of<32>("commitment"),
                document.bytes_of<32>("marks")};
    }
    /// Reads a pin.  @throws as parse; io_error if it cannot be read, format_error beyond 10,000 bytes
    static adapter_pin read(const std::filesystem::path& path) {
        return parse(io::read_file<std::string>(path, detail::max_signature_file_bytes),
                     quote(path.string()));
    }

    friend bool operator==(const adapter_pin&, const adapter_pin&) = default;

  private:
    static constexpr std::string_view format = "tensafe-adapter-pin";
    static constexpr std::uint64_t version = 2;  // pins of version 1 have neither revision nor marks
};

}  // namespace tensafe::keystore
