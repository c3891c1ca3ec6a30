#pragma once

#include <tensafe/core/error.hpp>

#include <openssl/err.h>

#include <array>
#include <string>

namespace tensafe::io::detail {

/// Throws what OpenSSL reports about the call that just failed on this thread, and empties its queue of
/// reports: what is left there would be taken for the reason of a later failure.
/// @param action what was tried, as in "cannot <action>"
[[noreturn]] inline void throw_openssl_error(const std::string& action) {
    const unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    std::array<char, 256> reason{"no reason given"};
    if (code != 0) {
        ERR_error_string_n(code, reason.data(), reason.size());
    }
    throw error("OpenSSL: cannot " + action + ": " + reason.data());
}

/// For OpenSSL's results where 1 is success and all else is failure.
inline void check_openssl(int result, const char* action) {
    if (result != 1) {
        throw_openssl_error(action);
    }
}

/// Frees what one of OpenSSL's functions made: `std::unique_ptr<BIO, openssl_release<&BIO_free_all>>`.
template <auto Release>
struct openssl_release {
    template <class Object>
    void operator()(Object* object) const noexcept {
        Release(object);
    }
};

}  // namespace tensafe::io::detail
