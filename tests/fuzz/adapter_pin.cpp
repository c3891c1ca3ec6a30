// keystore/adapter_pin.hpp: the text that a server shows.

#include <tensafe/core/text.hpp>
#include <tensafe/keystore/adapter_pin.hpp>

#include "target.hpp"

TENSAFE_FUZZ_TARGET(adapter_pin) {
    using namespace tensafe;
    const fuzz::memory_limit limit(400 * input.size() + 200'000);
    const auto parse = [](std::string_view text) { return keystore::adapter_pin::parse(text, "\"file\""); };
    const auto pin = fuzz::read_or_refuse([&] { return parse(fuzz::text_of(input)); });
    if (!pin) {
        return;
    }
    fuzz::took();
    fuzz::holds(is_printable_utf8(pin->name), "a pinned name can be shown");
    fuzz::holds(parse(pin->text()) == *pin, "a pin that is written again is the same");
    // What nobody signed.
    keystore::adapter_pin other = *pin;
    other.commitment[0] ^= std::byte{1};
    fuzz::holds(!pin->fits() || !other.fits(), "a signature does not fit two commitments");
    other = *pin;
    ++other.revision;
    fuzz::holds(!pin->fits() || !other.fits(), "a signature does not fit two revisions");
}
