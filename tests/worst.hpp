#pragma once

#include <cmath>

namespace tests {

/// The larger of two errors, and NaN if one of them is: std::fmax would forget it, and an answer that is not
/// a number would pass.
inline double worse(double worst, double error) noexcept {
    return std::isnan(worst) || error <= worst ? worst : error;
}

}  // namespace tests
