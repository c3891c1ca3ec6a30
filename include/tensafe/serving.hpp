#pragma once

// What a serving engineer needs around client and server, with everything of tensafe.hpp: whole models, many
// adapters, many sequences, counting and predicting. No third-party dependency. Opt-in headers stay outside:
// io/ has files, signatures and caches; lora/block_engine.hpp is for GPUs.

#include <tensafe/lora/adapter_stack.hpp>
#include <tensafe/lora/host_engine.hpp>
#include <tensafe/lora/meter.hpp>
#include <tensafe/lora/model_client.hpp>
#include <tensafe/lora/model_server.hpp>
#include <tensafe/lora/model_session.hpp>
#include <tensafe/lora/prometheus.hpp>
#include <tensafe/lora/registry.hpp>
#include <tensafe/lora/router.hpp>
#include <tensafe/lora/token_pipeline.hpp>
#include <tensafe/perf/model_forecast.hpp>
#include <tensafe/perf/published_figures.hpp>
#include <tensafe/perf/published_throughput.hpp>
#include <tensafe/perf/roofline.hpp>
#include <tensafe/tensafe.hpp>
