#pragma once

// The messages between client and server of encrypted LoRA as bytes: docs/wire-format.md.

#include <tensafe/lora/wire_held_adapter.hpp>
#include <tensafe/lora/wire_layout.hpp>
#include <tensafe/lora/wire_reply.hpp>
#include <tensafe/lora/wire_request.hpp>
#include <tensafe/lora/wire_scheme.hpp>
#include <tensafe/lora/wire_slots.hpp>
