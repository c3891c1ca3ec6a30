#pragma once

// Everything for host programs, and CUDA execution: for .cu files. Needs the CUDA toolkit, nothing else.

#include <tensafe/exec/cuda.cuh>
#include <tensafe/memory/device_space.cuh>
#include <tensafe/tensafe.hpp>
