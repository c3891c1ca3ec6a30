#if defined(TENSAFE_COMPILED)
#error "this file is compiled without the library"
#endif

#include "session.hpp"

struct header_only;
double header_only_error() {
    return relative_error_of_a_token<header_only>();
}
std::string header_only_refusal() {
    return refusal_of_a_missing_file<header_only>();
}
