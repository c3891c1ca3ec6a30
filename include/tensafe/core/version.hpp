#pragma once

#include <string>

// The single source of the version: CMake, setup.py and web/build read these three lines.
#define TENSAFE_VERSION_MAJOR 0
#define TENSAFE_VERSION_MINOR 2
#define TENSAFE_VERSION_PATCH 0

namespace tensafe {

/// The version of the headers this translation unit was compiled with.
struct version {
    int major = TENSAFE_VERSION_MAJOR;
    int minor = TENSAFE_VERSION_MINOR;
    int patch = TENSAFE_VERSION_PATCH;

    /// With dots, as programs say it.
    std::string text() const {
        return std::to_string(major) + '.' + std::to_string(minor) + '.' + std::to_string(patch);
    }
};

}  // namespace tensafe
