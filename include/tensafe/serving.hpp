#pragma once

// What a serving engineer needs around client and server, with everything of tensafe.hpp: whole models, many
// adapters, many sequences, counting and predicting. No third-party dependency. Opt-in headers stay outside:
// io/ has files, keystore/ signatures; device/lora/engine.hpp is for GPUs.

#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/model/server_zeros.hpp>
#include <tensafe/lora/model/stack.hpp>
#include <tensafe/serving/engine_answers.hpp>
#include <tensafe/serving/forecast.hpp>
#include <tensafe/serving/meter.hpp>
#include <tensafe/serving/prometheus.hpp>
#include <tensafe/serving/query_limits.hpp>
#include <tensafe/serving/registry.hpp>
#include <tensafe/serving/router.hpp>
#include <tensafe/serving/shared_counts.hpp>
#include <tensafe/session/client_session.hpp>
#include <tensafe/session/sequences.hpp>
#include <tensafe/session/server_session.hpp>
#include <tensafe/tensafe.hpp>
