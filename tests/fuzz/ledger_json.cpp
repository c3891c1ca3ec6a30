// dp/ledger_file.hpp: the state of a privacy ledger.

#include <tensafe/dp/ledger.hpp>
#include <tensafe/dp/ledger_file.hpp>

#include "target.hpp"

TENSAFE_FUZZ_TARGET(ledger_json) {
    using namespace tensafe;
    const fuzz::memory_limit limit(400 * input.size() + 200'000);
    const auto state = fuzz::read_or_refuse([&] { return dp::read_ledger_json(fuzz::text_of(input)); });
    if (!state) {
        return;
    }
    fuzz::took();
    for (const auto& [name, spent] : state->principals) {
        fuzz::holds(dp::ledger::is_principal(name), "a principal can be shown");
        fuzz::holds(std::isfinite(spent.mu_squared) && spent.mu_squared >= 0 && spent.delta_slack >= 0,
                    "what was spent is finite and not negative");
    }
    const std::string text = dp::ledger_json(*state);
    fuzz::holds(dp::read_ledger_json(text) == *state, "a state that is written again is the same");
    fuzz::holds(dp::ledger_json(dp::read_ledger_json(text)) == text, "and so is its text");
}
