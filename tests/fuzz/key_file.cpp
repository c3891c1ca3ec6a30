// keystore/key_file_format.hpp: the bytes of a file with a secret key. The first byte says whether the
// checksum is mended (1). No key is derived from a passphrase: each would take a tenth of a second.

#include <tensafe/keystore/key_file_format.hpp>

#include "target.hpp"

TENSAFE_FUZZ_TARGET(key_file) {
    using namespace tensafe;
    using keystore::detail::key_digest_at;
    using keystore::detail::key_file_bytes;
    const std::span<const std::byte> rest = std::as_bytes(input.subspan(input.empty() ? 0 : 1));
    std::vector<std::byte> bytes(rest.begin(), rest.end());
    if (!input.empty() && (input[0] & 1) != 0 && bytes.size() == key_file_bytes) {
        const auto digest = keystore::sha256::of(std::span(bytes).first(key_digest_at));
        std::copy(digest.begin(), digest.end(), bytes.begin() + key_digest_at);
    }
    const fuzz::memory_limit limit(100'000);
    const auto info =
        fuzz::read_or_refuse([&] { return keystore::detail::parse_key_file(bytes, "\"file\""); });
    if (!info) {
        return;
    }
    fuzz::took();
    fuzz::holds(bytes.size() == key_file_bytes && info->generation >= 1,
                "a key file has its length and a generation");
    fuzz::holds(
        info->created <= std::chrono::sys_days(std::chrono::year(9999) / 12 / 31) + std::chrono::days(1),
        "a key was made before the year 10000");
    fuzz::holds(info->created.time_since_epoch() >= std::chrono::seconds(0),
                "a key was not made before 1970");
    fuzz::holds(!info->wrapped || info->cost.allowed(), "a passphrase costs no more than is allowed");
    const auto seed = fuzz::read_or_refuse([&] {
        random::seed result;
        keystore::detail::read_key_seed(bytes, *info, {}, "\"file\"", result);
        return result;
    });
    if (!seed) {
        return;
    }
    fuzz::holds(!info->wrapped, "a wrapped key needs its passphrase");
    std::array<std::byte, key_file_bytes> again{};
    keystore::detail::write_key_file_bytes(*info, *seed, {}, info->cost, again);
    fuzz::holds(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()),
                "a key that is written again gives the same file");
}
