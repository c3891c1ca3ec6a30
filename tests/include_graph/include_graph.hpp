#pragma once

// The rules of the include graph: which header may include which. Works on any map from path to text, so that
// the rules themselves are tested with planted violations.

#include "../test.hpp"

namespace include_graph {

/// A header includes its own layer and those before it.
inline constexpr std::array<std::string_view, 19> layers = {
    "core", "exec", "simd", "arith",    "memory",  "random",  "ntt",     "rns", "encoding", "ckks",
    "lora", "wire", "io",   "keystore", "session", "interop", "serving", "dp",  "device"};

inline constexpr std::string_view umbrella = "tensafe/tensafe.hpp";
/// For what not every program wants.
inline constexpr std::array<std::string_view, 3> further_umbrellas = {
    "tensafe/serving.hpp", "tensafe/wire/wire.hpp", "tensafe/dp.hpp"};
inline constexpr std::string_view cuda_umbrella = "tensafe/tensafe.cuh";

/// Headers that a user includes by choice: they cost a dependency, threads or nvcc.
inline bool is_opt_in(std::string_view path) {
    return path.starts_with("tensafe/io/") || path.starts_with("tensafe/keystore/") ||
           path.starts_with("tensafe/interop/") || path.ends_with(".cuh") ||
           path == "tensafe/exec/host_parallel.hpp" || path == "tensafe/serving/file_store.hpp" ||
           path == "tensafe/serving/meter_json.hpp" || path == "tensafe/dp/ledger_file.hpp";
}

/// Headers by their path below include/, with their text.
using tree = std::map<std::string, std::string>;

inline tree read_tree(const std::filesystem::path& include_folder) {
    tree headers;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(include_folder)) {
        const std::string extension = entry.path().extension().string();
        if (extension == ".hpp" || extension == ".cuh") {
            std::ifstream file(entry.path(), std::ios::binary);
            headers[entry.path().lexically_relative(include_folder).generic_string()] =
                std::string(std::istreambuf_iterator<char>(file), {});
        }
    }
    return headers;
}

/// The text without its comments; strings that look like comments do not occur in our headers.
inline std::string without_comments(std::string_view text) {
    std::string code;
    for (std::size_t i = 0; i < text.size();) {
        if (text.substr(i, 2) == "//") {
            i = std::min(text.find('\n', i), text.size());
        } else if (text.substr(i, 2) == "/*") {
            const std::size_t end = text.find("*/", i + 2);
            i = end == std::string_view::npos ? text.size() : end + 2;
        } else {
            code += text[i++];
        }
    }
    return code;
}

struct include_line {
    std::string name;
    bool quoted;
};

inline std::vector<include_line> includes_of(std::string_view code) {
    const auto skip_blanks = [](std::string_view& text) {
        text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    };
    std::vector<include_line> found;
    while (!code.empty()) {
        const std::size_t line_end = std::min(code.find('\n'), code.size());
        std::string_view line = code.substr(0, line_end);
        code.remove_prefix(std::min(line_end + 1, code.size()));
        for (const std::string_view word : {"#", "include"}) {
            skip_blanks(line);
            line.remove_prefix(line.starts_with(word) ? word.size() : line.size());
        }
        skip_blanks(line);
        const std::size_t name_end = line.find_first_of(">\"", 1);
        if (name_end != std::string_view::npos) {
            found.push_back({std::string(line.substr(1, name_end - 1)), line.starts_with('"')});
        }
    }
    return found;
}

/// The folder of a header, its layer; empty for the umbrellas.
inline std::string folder_of(std::string_view path) {
    const std::string_view below = path.substr(std::string_view("tensafe/").size());
    const std::size_t slash = below.find('/');
    return std::string(slash == std::string_view::npos ? "" : below.substr(0, slash));
}

/// The position of a header's layer; -1 for the umbrellas, which stand above all, -2 for an unknown folder.
inline std::ptrdiff_t layer_of(std::string_view path) {
    const std::string folder = folder_of(path);
    if (folder.empty()) {
        return -1;
    }
    const auto at = std::find(layers.begin(), layers.end(), folder);
    return at == layers.end() ? -2 : at - layers.begin();
}

inline bool is_intrinsics_header(std::string_view name) {
    return name.ends_with("intrin.h") || name == "arm_neon.h";
}

inline bool may_use_intrinsics(std::string_view path) {
    return path.find("/x86/") != std::string_view::npos || path.starts_with("tensafe/simd/");
}

/// The namespaces of ours that a header opens. clang-format begins each on a line of its own, unindented;
/// what is opened within another has a name that does not start with tensafe.
inline std::set<std::string> namespaces_of(std::string_view code) {
    constexpr std::string_view opening = "\nnamespace tensafe";
    const std::string text = "\n" + std::string(code);
    std::set<std::string> found;
    for (std::size_t at = text.find(opening); at != std::string::npos; at = text.find(opening, at + 1)) {
        const std::size_t name = at + std::string_view("\nnamespace ").size();
        found.insert(text.substr(name, text.find_first_of(" {=\n", name) - name));
    }
    return found;
}

/// core holds what belongs to no layer.
inline bool is_namespace_of(std::string_view name, const std::string& folder) {
    if (folder == "core" && (name == "tensafe" || name == "tensafe::detail")) {
        return true;
    }
    const std::string own = "tensafe::" + folder;
    return name == own || name.starts_with(own + "::");
}

/// Standard C++ headers have neither dot nor slash; the rest of the system's headers is short enough to list.
inline bool comes_with_the_system(std::string_view name) {
    static const std::set<std::string_view> known = {"cpuid.h", "errno.h",  "fcntl.h", "pthread.h",
                                                     "sched.h", "stdint.h", "unistd.h"};
    return name.find_first_of("./") == std::string_view::npos || name.starts_with("sys/") ||
           name.starts_with("linux/") || is_intrinsics_header(name) || known.contains(name);
}

/// All headers that including `start` brings in, each with the one that brought it.
inline std::map<std::string, std::string> reached_from(
    std::string_view start, const std::map<std::string, std::vector<std::string>>& edges) {
    std::map<std::string, std::string> reached = {{std::string(start), ""}};
    std::vector<std::string> pending = {std::string(start)};
    while (!pending.empty()) {
        const std::string path = pending.back();
        pending.pop_back();
        const auto included = edges.find(path);
        if (included == edges.end()) {
            continue;
        }
        for (const std::string& name : included->second) {
            if (reached.emplace(name, path).second) {
                pending.push_back(name);
            }
        }
    }
    return reached;
}

/// The circles among headers, one line each: what is met again on the way down from a header that no circle
/// went through before.
inline std::vector<std::string> circles(const std::map<std::string, std::vector<std::string>>& edges) {
    std::vector<std::string> found;
    std::set<std::string> done;
    std::vector<std::string> way;
    const auto visit = [&](const auto& self, const std::string& path) -> void {
        const auto met = std::find(way.begin(), way.end(), path);
        if (met != way.end()) {
            std::string line = path + ": includes itself";
            for (auto step = met + 1; step != way.end(); ++step) {
                line += (step == met + 1 ? " through <" : ", <") + *step + ">";
            }
            found.push_back(line);
            return;
        }
        const auto included = edges.find(path);
        if (included == edges.end() || done.contains(path)) {
            return;
        }
        way.push_back(path);
        for (const std::string& name : included->second) {
            self(self, name);
        }
        way.pop_back();
        done.insert(path);
    };
    for (const auto& [path, included] : edges) {
        visit(visit, path);
    }
    return found;
}

/// Every broken rule as one line; nothing for a tree that keeps them all.
inline std::vector<std::string> violations(const tree& headers) {
    std::vector<std::string> found;
    std::map<std::string, std::vector<std::string>> edges;

    for (const auto& [path, text] : headers) {
        const std::string code = without_comments(text);
        const std::ptrdiff_t own = layer_of(path);
        if (own == -2) {
            found.push_back(path + ": its folder is not a layer");
        }
        if (path != "tensafe/arith/word.hpp" && code.find("__CUDA_ARCH__") != std::string::npos) {
            found.push_back(path + ": __CUDA_ARCH__ belongs in arith/word.hpp only");
        }
        const std::string folder = folder_of(path);
        for (const std::string& name : namespaces_of(code)) {
            if (!is_namespace_of(name, folder)) {
                found.push_back(path + ": opens namespace " + name + ", expected " +
                                (folder.empty() ? "none" : "tensafe::" + folder));
            }
        }
        for (const include_line& line : includes_of(code)) {
            if (line.quoted) {
                found.push_back(path + ": \"" + line.name + "\" is quoted; write <tensafe/...>");
            }
            if (is_intrinsics_header(line.name) && !may_use_intrinsics(path)) {
                found.push_back(path + ": <" + line.name + "> belongs below x86/ and simd/ only");
            }
            edges[path].push_back(line.name);
            if (!line.name.starts_with("tensafe/")) {
                continue;
            }
            if (!headers.contains(line.name)) {
                found.push_back(path + ": <" + line.name + "> does not exist");
                continue;
            }
            const std::ptrdiff_t other = layer_of(line.name);
            // Adapters to what is on the device, for .cu files: nothing below includes them.
            const bool joins_device =
                folder == "interop" && path.ends_with(".cuh") && folder_of(line.name) == "device";
            if (folder_of(line.name) == "device" && folder != "device" && !path.ends_with(".cuh")) {
                found.push_back(path + ": includes <" + line.name + ">, which is for device code");
            } else if (own >= 0 && other == -1) {
                found.push_back(path + ": includes the umbrella <" + line.name + ">");
            } else if (own >= 0 && other > own && !joins_device) {
                found.push_back(path + ": includes <" + line.name + ">, a later layer");
            }
        }
    }

    for (const std::string& circle : circles(edges)) {
        found.push_back(circle);
    }

    const std::map<std::string, std::string> reached = reached_from(umbrella, edges);
    std::map<std::string, std::string> reached_further;
    const auto check_umbrella = [&](std::string_view start, const std::map<std::string, std::string>& names) {
        for (const auto& [name, by] : names) {
            if (name.starts_with("tensafe/")) {
                if (is_opt_in(name)) {
                    found.push_back(std::string(start) + ": reaches the opt-in header <" + name +
                                    "> through " + by);
                }
            } else if (!comes_with_the_system(name)) {
                found.push_back(std::string(start) + ": reaches the third-party header <" + name +
                                "> through " + by);
            }
        }
    };
    check_umbrella(umbrella, reached);
    for (const std::string_view further : further_umbrellas) {
        if (headers.contains(std::string(further))) {
            const std::map<std::string, std::string> names = reached_from(further, edges);
            check_umbrella(further, names);
            reached_further.insert(names.begin(), names.end());
        }
    }
    // Device kernels, and what only they need, are in the umbrella for .cu files; adapters are not.
    const std::map<std::string, std::string> reached_by_kernels = reached_from(cuda_umbrella, edges);
    for (const auto& [name, by] : reached_by_kernels) {
        if (name.starts_with("tensafe/interop/")) {
            found.push_back(std::string(cuda_umbrella) + ": reaches the opt-in header <" + name +
                            "> through " + by);
        }
    }
    for (const auto& [path, text] : headers) {
        if (!is_opt_in(path) && !reached.contains(path) && !reached_further.contains(path) &&
            !reached_by_kernels.contains(path)) {
            found.push_back(std::string(umbrella) + ": does not include <" + path + ">");
        }
        if (headers.contains(std::string(cuda_umbrella)) && path.ends_with(".cuh") &&
            folder_of(path) != "interop" && !reached_by_kernels.contains(path)) {
            found.push_back(std::string(cuda_umbrella) + ": does not include <" + path + ">");
        }
    }
    return found;
}

}  // namespace include_graph
