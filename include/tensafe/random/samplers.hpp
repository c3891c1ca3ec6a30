#pragma once

// How the bytes of a stream become coefficients: docs/design/random-streams.md, which also proves the bounds.
// Each sampler gives the same values on every machine, and none allocates.

#include <tensafe/random/sample_centred_binomial.hpp>
#include <tensafe/random/sample_ternary.hpp>
#include <tensafe/random/sample_uniform.hpp>
