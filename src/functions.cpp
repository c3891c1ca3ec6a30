// The functions that are no templates: random numbers, packed bits, scaling, readers of PEFT and safetensors
// files.
#define TENSAFE_COMPILED_LIBRARY

#include <tensafe/compiled.hpp>
#include <tensafe/dp/sample_discrete_gaussian.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/tensafe.hpp>

TENSAFE_NORM(template)
