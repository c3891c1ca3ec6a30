#pragma once

// The whole library for host programs, with no third-party dependency. Opt-in headers stay outside: io/,
// adapters/, lora/svd.hpp, exec/host_parallel.hpp.

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/core/version.hpp>
#include <tensafe/exec/host.hpp>
#include <tensafe/lora/adapter.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/memory/wipe.hpp>
