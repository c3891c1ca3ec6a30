#pragma once

namespace tensafe::exec {

/// Run on the calling thread. The first argument of every operation says where it runs.
struct host {};

}  // namespace tensafe::exec
