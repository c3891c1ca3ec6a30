#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "roofline.hpp"

namespace studies {

/// Phase times, and where they come from.
struct phase_times {
    std::string source;
    roofline::measured_phases phases;
};

/// docs/benchmarks.md, "Steps of the default token": private_n4096, rank 32, d = 2048, protected replies, one
/// core of a Zen 4 virtual machine, AVX-512. `b` is from the README's run of scripts/demo on the same
/// machine.
inline constexpr roofline::measured_phases recorded_phases{0.057, 0.024,  0.041, 0.128 + 0.079,
                                                           0.010, 0.0087, 0.042};
/// The same with encryptions of zero from a pool.
inline constexpr roofline::measured_phases recorded_pooled_phases{0.057, 0.024,  0.041, 0.079,
                                                                  0.010, 0.0087, 0.042};
/// docs/gpu.md, "Predicted times": one protected token in a CUDA graph, the device's part, on an H200.
/// Predicted from counted instructions and bytes; no GPU has run it. B stays on the CPU.
inline constexpr double predicted_gpu_milliseconds = 0.055;

namespace detail {

using json = tensafe::io::json_value;

inline double milliseconds_of(const json& value, std::string_view name, const std::string& file) {
    // More than an hour for a token is no measurement.
    return value
        .checked(value.is_number() && value.number >= 0 && value.number <= 3.6e6,
                 file + ": phase " + tensafe::quote(name), "milliseconds, 0 to 3600000")
        .number;
}

/// Phases of blocks count as what they do the work of.
inline double& phase_called(roofline::measured_phases& phases, std::string_view name,
                            const std::string& file) {
    const std::array<std::pair<std::string_view, double*>, 11> known{{{"client_prepare", &phases.encrypt},
                                                                      {"server_prepare", &phases.protect},
                                                                      {"accept", &phases.decrypt},
                                                                      {"answer", &phases.multiply},
                                                                      {"encrypt", &phases.encrypt},
                                                                      {"expand", &phases.expand},
                                                                      {"multiply", &phases.multiply},
                                                                      {"protect", &phases.protect},
                                                                      {"pack", &phases.pack},
                                                                      {"decrypt", &phases.decrypt},
                                                                      {"b", &phases.b}}};
    for (const auto& [known_name, time] : known) {
        if (known_name == name) {
            return *time;
        }
    }
    throw tensafe::format_error(file + ": phase " + tensafe::quote(name) +
                                " is not known, expected client_prepare, server_prepare, accept, encrypt, "
                                "expand, multiply, protect, pack, answer, decrypt or b");
}

/// At most 40 bytes, none of a character that is cut; quoted if a terminal should not get them.
inline std::string head_of(const std::string& text) {
    std::size_t end = std::min<std::size_t>(text.size(), 40);
    while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
        --end;
    }
    const std::string head = text.substr(0, end);
    return tensafe::is_printable_utf8(head) ? head : tensafe::quote(head);
}

/// {"phases": {"encrypt": ms, ...}, "parameter_set": ..., ...}: what the pipelines print with --json.
inline phase_times from_demo(const json& object, const std::string& file) {
    phase_times result;
    const json* const phases = object.find("phases");
    if (phases == nullptr || !phases->is_object()) {
        throw tensafe::format_error(file + ": expected an object \"phases\", or \"benchmarks\"");
    }
    for (std::size_t i = 0; i < phases->items.size(); ++i) {
        const std::string& name = phases->keys[i];
        phase_called(result.phases, name, file) += milliseconds_of(phases->items[i], name, file);
    }
    for (const char* key : {"parameter_set", "packing", "protection", "back_end"}) {
        const json* const value = object.find(key);
        if (value != nullptr && value->is_string()) {
            result.source += (result.source.empty() ? "" : ", ") + head_of(value->text);
        }
    }
    return result;
}

/// Google Benchmark's JSON: the steps of protected_token_bench at rank 32 and d = 2048, medians before single
/// runs. They have no phase b.
inline phase_times from_benchmark(const json& rows, const std::string& file) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 7> steps{
        {{"encrypt", "encrypt"},
         {"expand", "expand"},
         {"multiply", "multiply"},
         {"make_zeros", "protect"},
         {"protect_pooled", "protect"},
         {"finish", "pack"},
         {"decrypt", "decrypt"}}};
    const auto text_of = [](const json& row, const char* key) {
        const json* const found = row.find(key);
        return found != nullptr && found->is_string() ? found->text : std::string();
    };
    phase_times result;
    result.source = "protected_step benchmarks, rank 32, d 2048, without b";
    for (const auto& [step, phase] : steps) {
        const std::string name = "protected_step/" + std::string(step) + "/rank:32/d:2048";
        const json* best = nullptr;
        for (const json& row : rows.items) {
            if (row.is_object() && text_of(row, "run_name") == name) {
                const bool median = text_of(row, "aggregate_name") == "median";
                if (median || (best == nullptr && text_of(row, "run_type") == "iteration")) {
                    best = &row;
                }
            }
        }
        if (best == nullptr || best->find("real_time") == nullptr) {
            throw tensafe::format_error(file + ": no benchmark " + name);
        }
        const std::string unit = text_of(*best, "time_unit");
        const double scale = unit == "ns" ? 1e-6 : unit == "us" ? 1e-3 : unit == "ms" ? 1 : 0;
        if (scale == 0) {
            throw tensafe::format_error(file + ": " + name + ": got time_unit " + tensafe::quote(unit) +
                                        ", expected ns, us or ms");
        }
        phase_called(result.phases, phase, file) +=
            scale * milliseconds_of(*best->find("real_time"), step, file);
    }
    return result;
}

}  // namespace detail

/// Phase times from the text of a file: what `scripts/demo --json` prints (the table before the JSON object
/// may stand there too), or what Google Benchmark writes for bench/protected_token_bench.
/// @param file  how messages call it, already quoted
/// @throws tensafe::format_error naming the file and what is wrong in it
inline phase_times parse_phases(std::string_view text, const std::string& file) {
    // The pipelines print the object on the last line, below their table.
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
        text.remove_suffix(1);
    }
    const std::size_t last_line = text.rfind('\n') == text.npos ? 0 : text.rfind('\n') + 1;
    if (!text.starts_with('{') && text.substr(last_line).starts_with('{')) {
        text.remove_prefix(last_line);
    }
    const detail::json object = tensafe::io::parse_strict_json(text, file);
    object.checked(object.is_object(), file, "an object");
    const detail::json* const rows = object.find("benchmarks");
    phase_times result = rows != nullptr && rows->is_array() ? detail::from_benchmark(*rows, file)
                                                             : detail::from_demo(object, file);
    if (!(result.phases.encrypt > 0 && result.phases.multiply > 0 && result.phases.decrypt > 0)) {
        throw tensafe::format_error(file + ": expected times above 0 for encrypt, multiply and decrypt");
    }
    return result;
}

/// The same from a file of at most 4 MiB.
/// @throws tensafe::io_error, tensafe::format_error
inline phase_times read_phases(const std::filesystem::path& path) {
    const auto text = tensafe::io::read_file<std::string>(path, std::size_t{4} << 20);
    phase_times result = parse_phases(text, tensafe::quote(path.string()));
    result.source =
        tensafe::quote(path.filename().string()) + (result.source.empty() ? "" : ": " + result.source);
    return result;
}

}  // namespace studies
