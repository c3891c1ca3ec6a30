#pragma once

#include <memory>

#include "../limits.hpp"
#include "redis_counts.hpp"

namespace split {

/// Buckets in Redis, over the connection of the counts. Each says what it lacked and when, and is forgotten
/// when it is full. Redis sees names as hashes under the fleet's key.
shared_buckets redis_rates(std::shared_ptr<redis_counts> store);

}  // namespace split
