#pragma once

#include <tensafe/ckks/precision.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/model/model_client.hpp>

#include <cmath>
#include <cstddef>
#include <ctime>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

// What examples/08_whole_model.cpp does beside serving: random weights, the list of layers, sums.

namespace examples {

namespace lora = tensafe::lora;

inline std::mt19937_64& engine() {
    static std::mt19937_64 shared(1);
    return shared;
}

/// Fills matrices that have rows and columns only.
inline lora::adapter random_values(lora::adapter shapes) {
    std::normal_distribution<float> normal(0.0F, 0.02F);
    for (lora::adapter_site& site : shapes.sites) {
        for (lora::matrix* m : {&site.a, &site.b}) {
            m->values.resize(m->rows * m->columns);
            for (float& x : m->values) {
                x = normal(engine());
            }
        }
    }
    return shapes;
}

inline std::vector<float> random_state(std::size_t d) {
    std::normal_distribution<float> normal;
    std::vector<float> h(d);
    for (float& x : h) {
        x = normal(engine());
    }
    return h;
}

/// "0-9,30-39" or "3".
/// @throws tensafe::parameter_error for anything else
inline std::set<std::size_t> layer_list(const std::string& text) {
    std::set<std::size_t> layers;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, ',');) {
        std::istringstream range(part);
        std::size_t first = 0;
        char dash = '-';
        range >> first;
        std::size_t last = first;
        const bool two = range && range >> dash;
        if (two) {
            range >> last;
        }
        if (part.empty() || part[0] < '0' || part[0] > '9' || (two && (!range || dash != '-')) ||
            !(range >> std::ws).eof() || last < first || last > 100000) {
            throw tensafe::parameter_error("--protect: got \"" + part + "\", expected layers as 0-9,30-39");
        }
        for (std::size_t layer = first; layer <= last; ++layer) {
            layers.insert(layer);
        }
    }
    return layers;
}

/// The input without what stands before and in the number of its layer.
inline std::string kind_of(const std::string& input) {
    const auto layer = lora::layer_of(input);
    const std::string number = "." + std::to_string(layer.value_or(0)) + ".";
    const std::size_t at = input.find(number);
    return layer && at != std::string::npos ? input.substr(at + number.size()) : input;
}

/// Of processor time: what a core that does nothing else takes. (The clock on the wall is for idle machines.)
inline double milliseconds_since(std::clock_t start) {
    return 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

/// Of one token.
struct cost {
    std::size_t requests = 0;
    std::size_t bytes = 0;
    double milliseconds = 0;

    cost& operator+=(const cost& other) {
        requests += other.requests;
        bytes += other.bytes;
        milliseconds += other.milliseconds;
        return *this;
    }
    friend cost operator/(const cost& c, std::size_t n) {
        return {c.requests / n, c.bytes / n, c.milliseconds / static_cast<double>(n)};
    }
};

/// The largest relative error of the deltas of a group's sites.
inline double worst_error(const lora::adapter& adapter, const lora::model_layout::group& group,
                          const std::vector<std::vector<double>>& deltas, const std::vector<float>& h) {
    double worst = 0;
    for (std::size_t s = 0; s < group.sites.size(); ++s) {
        const auto plain = lora::plain_delta(adapter.site(group.sites[s].name), h);
        worst = std::fmax(worst, tensafe::ckks::measure_precision(plain, deltas[s]).relative_error);
    }
    return worst;
}

}  // namespace examples
