// keystore/signed_adapter.hpp: adapter_signature.json.

#include <tensafe/core/text.hpp>
#include <tensafe/keystore/signed_adapter.hpp>

#include "target.hpp"

TENSAFE_FUZZ_TARGET(adapter_signature) {
    using namespace tensafe;
    const fuzz::memory_limit limit(400 * input.size() + 200'000);
    const auto parse = [](std::string_view text) {
        return keystore::adapter_signature::parse(text, "\"file\"");
    };
    const auto signature = fuzz::read_or_refuse([&] { return parse(fuzz::text_of(input)); });
    if (!signature) {
        return;
    }
    fuzz::took();
    fuzz::holds(is_printable_utf8(signature->name), "a signed name can be shown");
    const std::string text = signature->text();
    const keystore::adapter_signature again = parse(text);
    fuzz::holds(again.key == signature->key && again.signature == signature->signature &&
                    again.name == signature->name && again.revision == signature->revision,
                "a signature that is written again is the same");
    fuzz::holds(again.text() == text, "and so is its text");
    // Of a package that nobody signed: 2^-128 at best, or an answer for points that are not on the curve.
    const auto fits = fuzz::read_or_refuse([&] { return signature->fits({}); });
    fuzz::holds(!fits || !*fits, "a signature of nothing does not fit");
}
