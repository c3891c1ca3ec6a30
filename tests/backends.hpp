#pragma once

#include <tensafe/exec/backend.hpp>

#include <doctest/doctest.h>

namespace tests {

/// Puts back at the end of a scope what was active at its start.
class backend_guard {
  public:
    backend_guard() : before_(tensafe::exec::active_backend()) {}
    ~backend_guard() { tensafe::exec::use_backend(before_); }
    backend_guard(const backend_guard&) = delete;
    backend_guard& operator=(const backend_guard&) = delete;

  private:
    tensafe::exec::backend before_;
};

/// Calls f(backend) with each back-end that this machine runs, forced while f runs.
template <class F>
void for_each_backend(F f) {
    const backend_guard guard;
    for (const tensafe::exec::backend b : tensafe::exec::all_backends) {
        if (tensafe::exec::is_supported(b)) {
            tensafe::exec::use_backend(b);
            INFO("back-end ", std::string(tensafe::exec::name(b)));
            f(b);
        }
    }
}

}  // namespace tests

/// A test case whose body runs with each back-end in turn.
#define BACKEND_TEST_CASE(name) TESTS_BACKEND_CASE(DOCTEST_ANONYMOUS(with_each_backend_), name)
#define TESTS_BACKEND_CASE(body, name)                 \
    static void body();                                \
    TEST_CASE(name) {                                  \
        tests::for_each_backend([](auto) { body(); }); \
    }                                                  \
    static void body()
