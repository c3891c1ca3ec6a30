#pragma once

// What a client needs to release a state under differential privacy: clip, noise, accountants, and a ledger
// of what was spent. No encryption and no third-party dependency. The ledger's file is opt-in:
// io/ledger_file.hpp.

#include <tensafe/privacy/gaussian_release.hpp>
#include <tensafe/privacy/ledger.hpp>
#include <tensafe/privacy/renyi_accountant.hpp>
