#pragma once

// Messages as bytes, those of keys and ciphertexts and those of encrypted LoRA: docs/wire-format.md.

#include <tensafe/wire/ciphertext.hpp>
#include <tensafe/wire/evaluation_key.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/layout.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/request.hpp>
#include <tensafe/wire/scheme.hpp>
