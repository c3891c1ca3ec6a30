#include <tensafe/lora/tracing/scores.hpp>

#include "../../backends.hpp"
#include "../../random_values.hpp"
#include "../../test.hpp"

using namespace tests;
using namespace tensafe::lora;

namespace {

std::vector<marks> three_tenants() {
    std::vector<marks> result;
    for (const std::uint8_t number : std::vector<std::uint8_t>{1, 2, 3}) {
        random::seed of;
        of.bytes.fill(number);
        result.emplace_back(of);
    }
    return result;
}

}  // namespace

BACKEND_TEST_CASE("a score is the sum of the products with a tenant's marks, whatever the length") {
    const std::vector<marks> tenants = three_tenants();
    for (const std::size_t count : std::vector<std::size_t>{1, 63, 64, 65, 2047, 2048, 2049, 10'000}) {
        const std::vector values{random_state(count, 5), random_state(count, 6)};
        const std::vector<std::span<const float>> statistics(values.begin(), values.end());
        for (const marked_matrix of : {marked_matrix::b, marked_matrix::a}) {
            std::vector<double> sums(tenants.size() * values.size(), 100);
            add_scores(tenants, "site", of, statistics, sums);
            for (std::size_t i = 0; i < sums.size(); ++i) {
                const auto level = tenants[i / 2].levels("site", of, count);
                double expected = 100;
                for (std::size_t k = 0; k < count; ++k) {
                    expected += static_cast<double>(values[i % 2][k]) * level[k] / 32;
                }
                CAPTURE(count);
                CHECK(std::fabs(sums[i] - expected) < 1e-5 * std::sqrt(static_cast<double>(count)));
            }
        }
    }
}
