#pragma once

#include <tensafe/device/lora/messages.hpp>

#include "../device_data.hpp"

namespace tests {

struct output {
    std::vector<std::uint8_t> c0;
    std::vector<std::uint8_t> c1;
};

/// Where the outputs of a reply stand, with gaps between them that nobody writes to.
inline std::vector<device::output_place> place(std::size_t degree, std::vector<device::output_place> outputs,
                                               std::size_t& stride) {
    stride = 16;
    const auto next = [&](std::size_t bytes) {
        const std::size_t here = stride;
        stride += (bytes + 15) / 16 * 16 + 16;
        return here;
    };
    for (device::output_place& o : outputs) {
        o.c0_offset = next(memory::packed_bytes(o.wanted, static_cast<int>(o.bits)));
        o.c1_offset = next(memory::packed_bytes(degree, static_cast<int>(o.bits)));
    }
    return outputs;
}

}  // namespace tests
