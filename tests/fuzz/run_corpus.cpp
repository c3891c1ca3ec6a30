// Runs targets on files, without libFuzzer and with any compiler:
//
//     run_corpus <folder of this file> <target>    every seed and every crash that was mended
//     run_corpus --input <target> <file>...        some files, to look at one
//
// Fails unless the reader that the target is for takes some seeds, each form of them, and refuses others:
// they start a fuzzer nowhere else.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>

#include "target.hpp"

namespace {

fuzz::target_function target_called(std::string_view name) {
    std::string known;
    for (const fuzz::registered_target* target = fuzz::registered_target::first; target != nullptr;
         target = target->next) {
        if (target->name == name) {
            return target->function;
        }
        known += std::string(" ") + target->name;
    }
    throw std::runtime_error("there is no target " + std::string(name) + "; known:" + known);
}

/// In the order of their names.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    if (std::filesystem::is_directory(folder)) {
        for (const auto& entry : std::filesystem::directory_iterator(folder)) {
            files.push_back(entry.path());
        }
    }
    std::sort(files.begin(), files.end());
    return files;
}

std::size_t all_taken() {
    return std::accumulate(fuzz::taken.of.begin(), fuzz::taken.of.end(), std::size_t{0});
}

/// @returns  whether the input was taken
bool run(fuzz::target_function target, const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::runtime_error(path.string() + ": cannot be read");
    }
    const std::string text(std::istreambuf_iterator<char>(file), {});
    // Exactly as long as the input, so that a sanitizer sees a read beyond its end. It is named first, for a
    // broken property ends the program.
    const auto bytes = std::make_unique<std::uint8_t[]>(text.size());
    std::copy(text.begin(), text.end(), bytes.get());
    std::printf("%s\n", path.filename().c_str());
    std::fflush(stdout);
    const std::size_t before = all_taken();
    target(std::span<const std::uint8_t>(bytes.get(), text.size()));
    return all_taken() != before;
}

}  // namespace

int main(int count, char** values) {
    const std::vector<std::string> arguments(values + 1, values + count);
    std::size_t refused = 0;
    try {
        if (arguments.size() >= 3 && arguments[0] == "--input") {
            const fuzz::target_function target = target_called(arguments[1]);
            for (std::size_t i = 2; i < arguments.size(); ++i) {
                refused += run(target, arguments[i]) ? 0U : 1U;
            }
        } else if (arguments.size() == 2) {
            const std::filesystem::path folder = arguments[0];
            const std::string& name = arguments[1];
            const fuzz::target_function target = target_called(name);
            for (const auto& path : files_of(folder / "corpus" / name)) {
                refused += run(target, path) ? 0U : 1U;
            }
            const auto of_forms = std::span(fuzz::taken.of).first(fuzz::taken.forms);
            const auto missing = std::count(of_forms.begin(), of_forms.end(), std::size_t{0});
            if (missing != 0 || refused == 0) {
                throw std::runtime_error(
                    (folder / "corpus" / name).string() + ": got " + std::to_string(all_taken()) +
                    " inputs that were taken, none of them of " + std::to_string(missing) + " of the " +
                    std::to_string(fuzz::taken.forms) + " forms, and " + std::to_string(refused) +
                    " that were refused; expected some of each");
            }
            for (const auto& path : files_of(folder / "crashes" / name)) {
                refused += run(target, path) ? 0U : 1U;
            }
        } else {
            throw std::runtime_error("expected <folder> <target>, or --input <target> <file>...");
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "run_corpus: %s\n", e.what());
        return 1;
    }
    std::printf("taken %zu, refused %zu\n", all_taken(), refused);
    return 0;
}
