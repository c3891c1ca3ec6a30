#pragma once

// What a client needs to release a state under differential privacy: clip, noise, accountants, and a ledger
// of what was spent. No encryption and no third-party dependency. The ledger's file is opt-in:
// dp/ledger_file.hpp.

#include <tensafe/dp/gaussian_release.hpp>
#include <tensafe/dp/ledger.hpp>
