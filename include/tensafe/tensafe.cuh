#pragma once

// Everything for host programs, the block kernels, and CUDA to run them: for .cu files. Needs the CUDA
// toolkit, nothing else.

#include <tensafe/ckks/block_ciphertext.hpp>
#include <tensafe/ckks/block_decrypt.hpp>
#include <tensafe/ckks/block_encrypt.hpp>
#include <tensafe/encoding/block_decode.hpp>
#include <tensafe/encoding/block_replicate.hpp>
#include <tensafe/exec/cuda.cuh>
#include <tensafe/exec/cuda_check.cuh>
#include <tensafe/exec/cuda_device.cuh>
#include <tensafe/exec/cuda_event.cuh>
#include <tensafe/exec/cuda_graph.cuh>
#include <tensafe/exec/cuda_l2_window.cuh>
#include <tensafe/exec/cuda_stream.cuh>
#include <tensafe/exec/host_blocks.hpp>
#include <tensafe/lora/block_client.hpp>
#include <tensafe/lora/block_engine.hpp>
#include <tensafe/lora/block_server.hpp>
#include <tensafe/lora/block_slots.hpp>
#include <tensafe/memory/device_space.cuh>
#include <tensafe/ntt/block_transform.hpp>
#include <tensafe/random/block_samplers.hpp>
#include <tensafe/tensafe.hpp>
