#pragma once

#include <tensafe/exec/backend.hpp>

#include <cstdio>

#include "secrets.hpp"

namespace tests {

using namespace tensafe;

/// Runs operations on secrets and asks memcheck after each one what it saw.
class program {
  public:
    /// @param operation  returns whether its result depends on the secret
    void check(const std::string& name, auto operation) {
        const auto before = VALGRIND_COUNT_ERRORS;
        const bool reached = operation();
        const auto found = VALGRIND_COUNT_ERRORS - before;
        if (found != 0) {
            std::printf("leak: %s: in %u places a branch or an address depends on a secret\n", name.c_str(),
                        static_cast<unsigned>(found));
            ++leaks_;
        }
        if (!reached) {
            std::printf("vacuous: %s: its result does not depend on the secret\n", name.c_str());
            ++vacuous_;
        }
        covered_ += (operations_ == 0 ? " " : "; ") + name;
        ++operations_;
    }

    /// Prints what was covered.
    /// @param planted  whether every operation has a leak, which must have been found
    /// @return the exit status: 0 if all is as it should be. memcheck makes 99 of it if it reported anything
    int report(bool planted) const {
        const std::string backend(exec::name(exec::active_backend()));
        std::printf("%s: %s:%s\n", planted ? "planted" : "covered", backend.c_str(), covered_.c_str());
        const bool all_found = leaks_ == operations_;
        if (planted && all_found) {
            std::printf("found: %s: all %d planted leaks\n", backend.c_str(), leaks_);
        }
        return vacuous_ == 0 && (planted ? all_found : leaks_ == 0) ? 0 : 1;
    }

  private:
    int operations_ = 0;
    int leaks_ = 0;
    int vacuous_ = 0;
    std::string covered_;
};

}  // namespace tests
