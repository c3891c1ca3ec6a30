#pragma once

// The library for host programs, with no third-party dependency. Opt-in headers stay outside: wire/wire.hpp
// with the messages, io/, interop/, keystore/; whole models come with serving.hpp.

#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/montgomery.hpp>
#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/linear_transform.hpp>
#include <tensafe/ckks/multiply.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/ckks/polynomial.hpp>
#include <tensafe/ckks/precision.hpp>
#include <tensafe/ckks/rotate.hpp>
#include <tensafe/ckks/trace.hpp>
#include <tensafe/core/version.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/entropy.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/lora/protocol/server.hpp>
#include <tensafe/lora/tracing/marked_models.hpp>
#include <tensafe/lora/tracing/marks.hpp>
#include <tensafe/lora/tracing/scores.hpp>

#if defined(TENSAFE_COMPILED)
#include <tensafe/compiled.hpp>
#endif
