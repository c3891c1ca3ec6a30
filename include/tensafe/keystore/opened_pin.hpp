#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/keystore/adapter_pin.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/mark_key.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/tracing/marked_models.hpp>
#include <tensafe/lora/tracing/marks.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/layout.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tensafe::keystore {

namespace detail {

template <ckks::parameter_set P, class Packing, class Protection>
pinned_parts parts_of(const lora::model_layout& layout, const lora::adapter& held,
                      const sha256_digest& weights) {
    const auto layout_message = wire::write_model_layout<P, Packing, Protection>(layout);
    const auto held_message = wire::write_held_adapter(held, layout);
    return {sha256::of(std::as_bytes(std::span(layout_message))),
            sha256::of(std::as_bytes(std::span(held_message))), weights};
}

}  // namespace detail

/// What a pin says of an adapter that a model_server of these types and options serves, with whatever
/// tokens_ahead.
/// @throws as the constructor of model_server. Cost: that of encoding A, about half of packing
template <ckks::parameter_set P, class Packing, class Protection>
pinned_parts pinned_parts_of(const lora::adapter& from, lora::model_options options = {}) {
    options.tokens_ahead = 0;
    weights_hash weights;
    const lora::model_layout layout =
        lora::model_server<P, Packing, Protection>::visit_weights(from, options, weights);
    return detail::parts_of<P, Packing, Protection>(layout, lora::client_part(from, options),
                                                    weights.finish());
}

/// What it says to one tenant, where each holds a B and is answered by an A of its own (lora::marked_models).
/// @param name    what the server calls the adapter
/// @param tenant  as for mark_key::seed_of
/// @throws as lora::marked_models and lora::marks::added_to. Cost: as above
template <ckks::parameter_set P, class Packing, class Protection>
pinned_parts pinned_parts_of(const lora::adapter& from, lora::model_options options, const mark_key& key,
                             std::string_view name, std::string_view tenant) {
    options.tokens_ahead = 0;
    auto seed = key.seed_of(name, tenant);
    const memory::wipe_guard guard(seed);
    const lora::marks own(seed);
    const lora::marked_models<P, Packing, Protection> models(from, options,
                                                             std::make_shared<lora::marked_memory>(0));
    weights_hash weights;
    models.visit_weights(own, weights);
    pinned_parts result = detail::parts_of<P, Packing, Protection>(
        models.plans().layout(), own.added_to(lora::marked_matrix::b, lora::client_part(from, options)),
        weights.finish());
    result.marks = key.commitment_to(name, tenant);
    return result;
}

/// A pin with the salt that opens its commitment, for who has the adapter anyway: its owner, the server, and
/// whoever is to judge. In two files: that of the pin, for clients, and beside it one with the ending
/// `.opening`, for its owner alone (mode 0600), with the salt as 64 hexadecimal digits.
struct opened_pin {
    adapter_pin pin;
    sha256_digest salt{};  ///< **secret**: whoever has it can confirm a guess of A

    /// Makes a pin.  @throws as adapter_pin::make
    static opened_pin make(const signing_key& publisher, std::string_view name, const pinned_parts& of,
                           std::uint64_t revision = 0) {
        return {adapter_pin::make(publisher, name, of, revision), pin_salt(publisher, name, of.weights)};
    }

    /// Reads both files.  @throws as adapter_pin::read; of the opening as io::read_private_file, format_error
    static opened_pin read(const std::filesystem::path& file) {
        opened_pin result{adapter_pin::read(file)};
        const auto text = io::read_private_file(opening_of(file), 65);  // and perhaps a line feed
        std::string_view digits(reinterpret_cast<const char*>(text.data()), text.size());
        digits.remove_suffix(digits.ends_with('\n') ? 1 : 0);
        result.salt = from_hex<32>(digits, quote(opening_of(file).string()) + ": salt");
        return result;
    }

    /// Writes both files, the opening first, neither over one that is there.
    /// @throws as io::create_private_file
    void write(const std::filesystem::path& file) const {
        const std::string digits = hex(salt) + "\n";
        const std::string text = pin.text();
        io::create_private_file(opening_of(file), std::as_bytes(std::span(digits)));
        io::create_private_file(file, std::as_bytes(std::span(text)));
    }

    /// Checks that this is a signed pin of these parts under this name, and that the salt opens it.
    /// @param file  how messages call the pin, already quoted
    /// @throws signature_error for the first of these that does not fit
    void check(std::string_view name, const pinned_parts& of, std::string_view file) const {
        check_layout(name, of.layout, file);
        check_part(pin.marks == of.marks, file, "commits to other marks",
                   of.marks == sha256_digest{} ? "none" : "those of this tenant and mark key");
        check_part(pin.held == of.held, file, "is of another B or other scales", "those of this adapter");
        check_part(pin.commitment == commitment_to(of.weights, salt), file,
                   "commits to another A or another salt", "those of this adapter and of the opening");
    }
    /// Checks what costs little: that it is a signed pin of this layout under this name.
    /// @throws as check
    void check_layout(std::string_view name, const sha256_digest& layout, std::string_view file) const {
        check_part(pin.fits(), file, "the signature does not fit", "one of all that the pin says");
        check_part(pin.name == name, file, "got a pin of " + quote(pin.name), in_quotes(name));
        check_part(pin.layout == layout, file, "is of another layout", "that of this adapter and server");
    }

  private:
    static void check_part(bool fits, std::string_view file, std::string_view what, text_part expected) {
        require<signature_error>(fits, {file, ": ", what, ", expected ", expected});
    }
    static std::filesystem::path opening_of(std::filesystem::path file) { return file += ".opening"; }
};

}  // namespace tensafe::keystore
