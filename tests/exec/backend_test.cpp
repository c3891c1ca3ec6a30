#include <tensafe/core/error.hpp>
#include <tensafe/exec/backend.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "../backends.hpp"

namespace exec = tensafe::exec;

TEST_CASE("portable code runs everywhere, and the active back-end is a supported one") {
    CHECK(exec::is_supported(exec::backend::portable));
    CHECK(exec::is_supported(exec::active_backend()));
}

TEST_CASE("a back-end that runs brings the ones before it") {
    CHECK((!exec::is_supported(exec::backend::avx512) || exec::is_supported(exec::backend::avx2)));
}

TEST_CASE("each supported back-end can be forced, and a guard puts the old one back") {
    const exec::backend before = exec::active_backend();
    int seen = 0;
    tests::for_each_backend([&](exec::backend b) {
        CHECK(exec::active_backend() == b);
        ++seen;
    });
    CHECK(seen >= 1);
    CHECK(exec::active_backend() == before);
}

TEST_CASE("a back-end that this machine lacks is refused by name, and nothing changes") {
    const exec::backend before = exec::active_backend();
    for (const exec::backend b : exec::all_backends) {
        if (!exec::is_supported(b)) {
            CHECK_THROWS_WITH_AS(
                exec::use_backend(b),
                ("exec::use_backend: this machine does not run " + std::string(exec::name(b))).c_str(),
                tensafe::parameter_error);
        }
    }
    CHECK(exec::active_backend() == before);
}

TEST_CASE("the environment names a back-end, or is refused") {
    const char* const before = std::getenv("TENSAFE_BACKEND");
    const std::string kept = before == nullptr ? "" : before;
    for (const exec::backend b : exec::all_backends) {
        if (exec::is_supported(b)) {
            setenv("TENSAFE_BACKEND", std::string(exec::name(b)).c_str(), 1);
            CHECK(exec::detail::backend_at_start() == b);
        }
    }
    setenv("TENSAFE_BACKEND", "", 1);
    CHECK(exec::is_supported(exec::detail::backend_at_start()));
    setenv("TENSAFE_BACKEND", "AVX2 ", 1);
    CHECK_THROWS_WITH_AS(
        exec::detail::backend_at_start(),
        "TENSAFE_BACKEND: got 'AVX2 ', wanted portable, avx2 or avx512, and one that this machine runs",
        tensafe::parameter_error);
    if (before == nullptr) {
        unsetenv("TENSAFE_BACKEND");
    } else {
        setenv("TENSAFE_BACKEND", kept.c_str(), 1);
    }
}
