#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/shortest_text.hpp>

#include <cmath>

namespace tensafe::dp {

/// A promise of differential privacy: for any two inputs that count as neighbours, and any set S of outputs,
/// P(output of the one in S) <= e^epsilon * P(output of the other in S) + delta. Smaller is more private.
/// Dwork, Roth, "The algorithmic foundations of differential privacy" (2014), definition 2.4.
///
/// A plain value. docs/design/differential-privacy.md says what counts as a neighbour here.
struct privacy_budget {
    /// Positive and finite. 1 is a strong promise, 10 a weak one.
    double epsilon;
    /// In (0, 1). A chance that the promise fails altogether is within it: choose it far below one over the
    /// number of people.
    double delta;

    /// @throws parameter_error unless epsilon > 0 is finite and 0 < delta < 1
    void check() const {
        if (!(epsilon > 0) || !std::isfinite(epsilon)) {
            throw parameter_error("privacy_budget: epsilon: got " + tensafe::detail::shortest_text(epsilon) +
                                  ", expected a positive, finite number");
        }
        if (!(delta > 0 && delta < 1)) {
            throw parameter_error("privacy_budget: delta: got " + tensafe::detail::shortest_text(delta) +
                                  ", expected a number above 0 and below 1");
        }
    }

    friend bool operator==(const privacy_budget&, const privacy_budget&) = default;
};

}  // namespace tensafe::dp
