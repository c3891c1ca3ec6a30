#pragma once

#include <tensafe/core/text.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/keystore/signed_adapter.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/seed.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

namespace tensafe::keystore {

/// The secret of an adapter's owner from which all marks of its tenants come (lora::marks). Whoever has it
/// can remove them, and accuse whom they like; without it nobody can say whose a copy is. Movable, wiped;
/// const members may be called from any thread.
class mark_key {
  public:
    /// Takes 32 random bytes.
    explicit mark_key(std::span<const std::byte, 32> bytes) : bytes_(bytes.size()) {
        std::copy(bytes.begin(), bytes.end(), bytes_.begin());
    }

    /// Reads a file of 64 lower-case hexadecimal digits (openssl rand -hex 32), for its owner alone to read.
    /// @throws as io::read_private_file; format_error, which shows no digit, for anything else in it
    static mark_key read(const std::filesystem::path& file) {
        const auto text = io::read_private_file(file, 65);  // and perhaps a line feed
        std::string_view digits(reinterpret_cast<const char*>(text.data()), text.size());
        digits.remove_suffix(digits.ends_with('\n') ? 1 : 0);
        auto bytes = from_hex<32>(digits, quote(file.string()));
        const memory::wipe_guard guard(bytes);
        return mark_key(bytes);
    }

    /// Returns the seed of a tenant's marks in the adapter of this name, whatever its revision: HMAC-SHA-256
    /// of "tensafe mark 1\n", the length of the adapter's name, the name, and the same of the tenant's; both
    /// lengths in 8 bytes, little-endian. The caller wipes it.
    random::seed seed_of(std::string_view adapter, std::string_view tenant) const {
        detail::plain_message message("tensafe mark 1\n");
        message.add(adapter.size()).add_text(adapter).add(tenant.size()).add_text(tenant);
        const std::string_view text(reinterpret_cast<const char*>(message.bytes.data()),
                                    message.bytes.size());
        auto digest = hmac_sha256(bytes_, text);
        const memory::wipe_guard guard(digest);
        return std::bit_cast<random::seed>(digest);
    }

    /// Returns the commitment to this key: SHA-256 of "tensafe mark key 1\n" and its bytes. An owner who
    /// publishes it before the first client is served cannot choose another key when it accuses.
    sha256_digest commitment() const {
        sha256 hash;
        hash.update(detail::plain_message("tensafe mark key 1\n").bytes);
        hash.update(bytes_);
        return hash.finish();
    }

    /// Returns a commitment to a tenant's marks in an adapter: SHA-256 of "tensafe marks 1\n" and seed_of.
    sha256_digest commitment_to(std::string_view adapter, std::string_view tenant) const {
        random::seed seed = seed_of(adapter, tenant);
        const memory::wipe_guard guard(seed);
        sha256 hash;
        hash.update(detail::plain_message("tensafe marks 1\n").bytes);
        hash.update(std::as_bytes(std::span(seed.bytes)));
        return hash.finish();
    }

  private:
    memory::secret_buffer<std::byte> bytes_;
};

}  // namespace tensafe::keystore
