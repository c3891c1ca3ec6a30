#if !defined(TENSAFE_COMPILED)
#error "tensafe::compiled has to define TENSAFE_COMPILED"
#endif

#include "session.hpp"

struct compiled;
double compiled_error() {
    return relative_error_of_a_token<compiled>();
}
std::string compiled_refusal() {
    return refusal_of_a_missing_file<compiled>();
}
