#pragma once

#include <tensafe/serving/shared_counts.hpp>

#include <filesystem>
#include <memory>
#include <string>

#include "../log.hpp"

namespace split {

/// Where several servers count together.
struct store_options {
    std::string store;                    ///< as redis_address::parse reads; empty: this server counts alone
    std::filesystem::path password_file;  ///< empty: there is none
    std::filesystem::path fleet_key;      ///< of 64 hexadecimal digits
};

/// Reads the files, and connects to nothing yet.
/// @param rows_expire  as of redis_counts_options
/// @return null: this server counts alone
/// @throws parameter_error for options that are none, or one without the other; unsupported_error if this
///         build has no Redis client; as tensafe::io::read_private_file
std::shared_ptr<tensafe::serving::shared_counts> open_store(const store_options& options, bool rows_expire,
                                                            const log& to);

}  // namespace split
