#pragma once

// The single source of the version: CMake reads these three lines.
#define TENSAFE_VERSION_MAJOR 0
#define TENSAFE_VERSION_MINOR 1
#define TENSAFE_VERSION_PATCH 0

namespace tensafe {

/// The version of the headers this translation unit was compiled with.
struct version {
    int major = TENSAFE_VERSION_MAJOR;
    int minor = TENSAFE_VERSION_MINOR;
    int patch = TENSAFE_VERSION_PATCH;
};

}  // namespace tensafe
