// The functions that are no templates: random numbers, packed bits, scaling, readers of PEFT and safetensors
// files.
#define TENSAFE_COMPILED_LIBRARY

#include <tensafe/io/peft.hpp>
#include <tensafe/random/sample_discrete_gaussian.hpp>
#include <tensafe/tensafe.hpp>
