#pragma once

// Everything for host programs, the kernels, and CUDA to run them: for .cu files. Needs the CUDA
// toolkit, nothing else.

#include <tensafe/device/ckks/ciphertext.hpp>
#include <tensafe/device/ckks/decrypt.hpp>
#include <tensafe/device/ckks/encrypt.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/stream.cuh>
#include <tensafe/device/encoding/decode.hpp>
#include <tensafe/device/encoding/slot_transform.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/lora/block_server.hpp>
#include <tensafe/device/lora/client.hpp>
#include <tensafe/device/lora/engine.hpp>
#include <tensafe/device/lora/server.hpp>
#include <tensafe/device/lora/slots.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/random/samplers.hpp>
#include <tensafe/tensafe.hpp>
