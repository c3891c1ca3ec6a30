#pragma once

// The whole library for host programs, with no third-party dependency. Opt-in headers stay outside: io/,
// adapters/, lora/svd.hpp.

#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/montgomery.hpp>
#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/fold.hpp>
#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/noise.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/ckks/precision.hpp>
#include <tensafe/core/version.hpp>
#include <tensafe/lora/adapter.hpp>
#include <tensafe/lora/client.hpp>
#include <tensafe/lora/cost.hpp>
#include <tensafe/lora/mode.hpp>
#include <tensafe/lora/plain.hpp>
#include <tensafe/lora/server.hpp>
#include <tensafe/lora/stack.hpp>
#include <tensafe/lora/wire.hpp>
#include <tensafe/ntt/reference.hpp>
#include <tensafe/perf/what_will_i_get.hpp>
#include <tensafe/wire/ciphertext.hpp>
#include <tensafe/wire/public_key.hpp>
#include <tensafe/wire/zero_key.hpp>
