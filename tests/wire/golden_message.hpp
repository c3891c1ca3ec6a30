#pragma once

#include "../test.hpp"

namespace tests {

inline std::filesystem::path golden_folder() {
    return std::filesystem::path(TENSAFE_TEST_DATA) / "wire" / "v1";
}

/// A message as tests/data/wire/v1 keeps it, which must be what is written today. With TENSAFE_WRITE_GOLDEN
/// in the environment it is written there first: for a new version of the format only.
inline std::vector<std::uint8_t> golden(const std::string& name, const std::vector<std::uint8_t>& today) {
    const std::filesystem::path path = golden_folder() / (name + ".bin");
    if (std::getenv("TENSAFE_WRITE_GOLDEN") != nullptr) {
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(today.data()), static_cast<std::streamsize>(today.size()));
    }
    std::ifstream file(path, std::ios::binary);
    REQUIRE_MESSAGE(file.good(), "no golden file " << path);
    std::vector<std::uint8_t> kept{std::istreambuf_iterator<char>(file), {}};
    CHECK(kept == today);
    return kept;
}

}  // namespace tests
