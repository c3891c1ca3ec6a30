// serving/meter_json.hpp: counters that a meter wrote.

#include <tensafe/serving/meter.hpp>
#include <tensafe/serving/meter_json.hpp>

#include <optional>
#include <string>

#include "target.hpp"

TENSAFE_FUZZ_TARGET(meter_json) {
    using namespace tensafe;
    const fuzz::memory_limit limit(400 * input.size() + 200'000);
    const auto counters = fuzz::read_or_refuse([&] { return io::read_meter_json(fuzz::text_of(input)); });
    if (!counters) {
        return;
    }
    fuzz::took();
    for (const int indent : {-1, 2}) {
        const std::string text = io::meter_json(*counters, indent);
        fuzz::holds(io::read_meter_json(text) == *counters, "counters that are written again are the same");
    }
    lora::meter meter;
    meter.merge(*counters);
    fuzz::holds(meter.snapshot().total() == counters->total(), "nothing is lost in the sums");
    fuzz::holds(io::read_meter_json(io::meter_json(meter.snapshot())) == meter.snapshot(),
                "a meter reads what it wrote");
}
