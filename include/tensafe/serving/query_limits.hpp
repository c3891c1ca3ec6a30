#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace tensafe::serving {

/// Whose requests are added up to be held against a limit: a client's, those of the clients of a tenant, or
/// all that an adapter gets.
enum class scope { client, tenant, adapter };
/// One value for each scope, in this order; nothing means that there is no limit.
template <class T>
using of_each_scope = std::array<std::optional<T>, 3>;

/// What a request to one group costs, and how much of it each scope may have.
struct query_limits {
    std::uint64_t request = 0;  ///< bits of A that one reply tells at most; of a token of a block too
    of_each_scope<std::uint64_t> limits;  ///< bits of all replies; none is below one request
};

}  // namespace tensafe::serving
