// Runs the checks of kernels that are linked to it on a GPU. Where there is none it says "no device",
// succeeds, and has claimed nothing.
//   x_tests [--list] [--small] [--json FILE] [words...]     only checks whose names contain one of the words
// FILE gets a line of JSON for each check, at its end.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "device_checks.hpp"

namespace {

using namespace device_tests;
using namespace tensafe;

struct verdict {
    std::string name;
    tally counted;
    double milliseconds = 0;
    std::string error;

    bool passed() const { return error.empty() && counted.failures == 0; }
};

verdict run(const named_check& check) {
    verdict v;
    v.name = check.name;
    counts() = {};
    const auto start = std::chrono::steady_clock::now();
    try {
        const device::stream stream;
        std::size_t launches = 0;
        check.run(stream.where(&launches), launches);
        stream.where().wait();
    } catch (const required_failure&) {
        v.error = "stopped at a failed requirement";
    } catch (const std::exception& e) {
        v.error = e.what();
    }
    // What a kernel did wrong may show only now.
    const cudaError_t last = cudaDeviceSynchronize();
    if (v.error.empty() && last != cudaSuccess) {
        v.error = cudaGetErrorString(last);
    }
    v.counted = counts();
    if (v.error.empty() && v.counted.assertions == 0) {
        v.error = "asserts nothing";
    }
    v.milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return v;
}

/// Whether the GPU can no longer be used: every later check would fail, and say nothing about itself.
bool device_is_lost() {
    return cudaDeviceSynchronize() != cudaSuccess;
}

std::string in_quotes(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            result += '\\';
        }
        result += c == '\n' ? ' ' : c;
    }
    return result + '"';
}

void write_json(std::FILE* file, const verdict& v) {
    std::fprintf(file,
                 "{\"check\": %s, \"passed\": %s, \"assertions\": %zu, \"milliseconds\": %.1f, "
                 "\"error\": %s}\n",
                 in_quotes(v.name).c_str(), v.passed() ? "true" : "false", v.counted.assertions,
                 v.milliseconds, in_quotes(v.error).c_str());
    std::fflush(file);
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string_view> words;
    const char* path = nullptr;
    bool list = false;
    bool small_only = false;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--list") == 0) {
            list = true;
        } else if (std::strcmp(argv[i], "--small") == 0) {
            small_only = true;
        } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            path = argv[++i];
        } else if (argv[i][0] == '-') {
            std::fprintf(stderr, "device tests: unknown option '%s' (known: --list, --small, --json FILE)\n",
                         argv[i]);
            return 2;
        } else {
            words.emplace_back(argv[i]);
        }
    }
    std::vector<named_check> chosen;
    for (const named_check& check : all_checks()) {
        bool asked = words.empty();
        for (const std::string_view word : words) {
            asked = asked || std::string_view(check.name).find(word) != std::string_view::npos;
        }
        if (asked && (check.small || !small_only)) {
            chosen.push_back(check);
        }
    }
    if (list) {
        for (const named_check& check : chosen) {
            std::puts(check.name);
        }
        return 0;
    }
    if (device::device_count() == 0) {
        std::puts("no device");
        return 0;
    }
    const auto device = device::properties_of(device::current_device());
    std::printf("%s, sm_%d, %d multiprocessors\n", device.name.c_str(), device.sm, device.multiprocessors);
    if (chosen.empty() && words.empty()) {
        std::puts("no small checks here");
        return 0;
    }
    if (chosen.empty()) {
        std::fprintf(stderr, "device tests: no check has such a name\n");
        return 2;
    }
    std::FILE* json = nullptr;
    if (path != nullptr && (json = std::fopen(path, "a")) == nullptr) {
        std::fprintf(stderr, "device tests: cannot write %s\n", path);
        return 1;
    }
    std::size_t done = 0;
    std::size_t passed = 0;
    for (const named_check& check : chosen) {
        const verdict v = run(check);
        ++done;
        passed += v.passed() ? std::size_t{1} : std::size_t{0};
        std::printf("%-6s %9.1f ms %8zu assertions  %s\n", v.passed() ? "ok" : "FAILED", v.milliseconds,
                    v.counted.assertions, v.name.c_str());
        if (!v.passed()) {
            std::printf("       %zu assertions failed%s%s\n", v.counted.failures, v.error.empty() ? "" : "; ",
                        v.error.c_str());
        }
        std::fflush(stdout);
        if (json != nullptr) {
            write_json(json, v);
        }
        if (device_is_lost()) {
            std::printf("the GPU cannot be used any more: %zu checks were not run\n", chosen.size() - done);
            break;
        }
    }
    std::printf("%zu of %zu checks passed\n", passed, chosen.size());
    const bool written = json == nullptr || std::fclose(json) == 0;
    return passed == chosen.size() && written ? 0 : 1;
}
