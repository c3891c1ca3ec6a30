// serving/meter_json.hpp: counters that a meter wrote.

#include <tensafe/serving/meter.hpp>
#include <tensafe/serving/meter_json.hpp>

#include "target.hpp"

TENSAFE_FUZZ_TARGET(meter_json) {
    using namespace tensafe;
    const fuzz::memory_limit limit(400 * input.size() + 200'000);
    const auto counters =
        fuzz::read_or_refuse([&] { return serving::read_meter_json(fuzz::text_of(input)); });
    if (!counters) {
        return;
    }
    fuzz::took();
    for (const int indent : {-1, 2}) {
        const std::string text = serving::meter_json(*counters, indent);
        fuzz::holds(serving::read_meter_json(text) == *counters,
                    "counters that are written again are the same");
    }
    serving::meter meter;
    meter.merge(*counters);
    fuzz::holds(meter.snapshot().total() == counters->total(), "nothing is lost in the sums");
    fuzz::holds(serving::read_meter_json(serving::meter_json(meter.snapshot())) == meter.snapshot(),
                "a meter reads what it wrote");
}
