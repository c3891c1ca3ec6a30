#pragma once

#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/serving/registry.hpp>

#include "../gate.hpp"
#include "../test.hpp"

// What tests of the registry share: adapters that are told by one number, a packed form that costs nothing,
// and a loader that can be stopped at a gate.

namespace registry_fixture {

namespace lora = tensafe::lora;
namespace serving = tensafe::serving;

/// An adapter whose content is `number`, and whose packed form is forecast to take 100 bytes a site.
inline lora::adapter numbered(float number, std::size_t sites = 1) {
    lora::adapter result;
    for (std::size_t i = 0; i < sites; ++i) {
        lora::adapter_site site;
        site.name = "layers." + std::to_string(i) + ".q_proj";
        site.a = lora::matrix(1, 2);
        site.a.values = {number, 1};
        site.b = lora::matrix(3, 1);
        result.sites.push_back(site);
    }
    return result;
}

inline std::function<lora::adapter()> from(float number, std::size_t sites = 1) {
    return [=] { return numbered(number, sites); };
}

struct packed_number {
    float number = 0;
    std::size_t size = 0;
    std::function<void()> on_destruction = {};

    packed_number() = default;
    packed_number(float n, std::size_t s) : number(n), size(s) {}
    packed_number(const packed_number&) = delete;
    packed_number& operator=(const packed_number&) = delete;
    ~packed_number() {
        if (on_destruction) {
            on_destruction();
        }
    }

    std::size_t bytes() const noexcept { return size; }
};

using registry = serving::registry<packed_number>;
using handle = registry::handle;

/// Counts packings, and runs `before` in each: a gate, or an exception.
struct workshop {
    std::atomic<int> packings = 0;
    std::function<void(float)> before = [](float) {};
    std::function<void()> on_destruction = {};
    std::size_t bytes_a_site = 100;

    serving::loader<packed_number> loader() {
        return {[this](const lora::adapter& matrices, const lora::pack_progress& progress) {
                    const float number = matrices.sites.front().a.values.front();
                    ++packings;
                    before(number);
                    for (std::size_t i = 0; i < matrices.sites.size() && progress; ++i) {
                        progress(i + 1, matrices.sites.size());
                    }
                    auto made = std::make_shared<packed_number>(number, bytes_a_site * matrices.sites.size());
                    made->on_destruction = on_destruction;
                    return made;
                },
                [](const lora::adapter& matrices) { return 100 * matrices.sites.size(); }};
    }
};

}  // namespace registry_fixture
