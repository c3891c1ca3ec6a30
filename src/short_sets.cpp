// Client and server of the short parameter sets.
#include <tensafe/tensafe.hpp>

TENSAFE_CLIENT_AND_SERVER(template, private_n4096)
TENSAFE_CLIENT_AND_SERVER(template, quantum_n4096)
TENSAFE_CLIENT_AND_SERVER(template, compact_n4096)
TENSAFE_CLIENT_AND_SERVER(template, minimal_n2048)
