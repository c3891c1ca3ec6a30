#include <tensafe/exec/backend.hpp>
#include <tensafe/random/generator.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include "../backends.hpp"
#include "../test.hpp"

using namespace tests;

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

TEST_CASE("a back-end that this machine lacks is refused, and nothing changes") {
    const exec::backend before = exec::active_backend();
    CHECK_THROWS_AS(exec::use_backend(static_cast<exec::backend>(99)), tensafe::parameter_error);
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

TEST_CASE("only names of supported back-ends name one, and no name means the best") {
    for (const exec::backend b : exec::all_backends) {
        const auto named = exec::detail::backend_named(std::string(exec::name(b)).c_str());
        CHECK(named.has_value() == exec::is_supported(b));
        CHECK(named.value_or(b) == b);
    }
    CHECK(exec::detail::backend_named(nullptr).has_value());
    CHECK(exec::detail::backend_named("") == exec::detail::backend_named(nullptr));
    for (const char* const bad : {"AVX2", "avx2 ", "sse", "avx5"}) {
        CHECK_FALSE(exec::detail::backend_named(bad).has_value());
    }
}

TEST_CASE("a bad name in the environment is refused by name before a seed is drawn") {
    // In a child, since the environment is read once.
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        setenv("TENSAFE_BACKEND", "nonsense", 1);
        exec::detail::chosen_backend().from_environment = exec::detail::backend_named("nonsense");
        try {
            tensafe::random::generator().next_seed();
        } catch (const tensafe::parameter_error& e) {
            _exit(std::string(e.what()).find("\"nonsense\"") != std::string::npos ? 42 : 1);
        }
        _exit(2);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 42);
}
