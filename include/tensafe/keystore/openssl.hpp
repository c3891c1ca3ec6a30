#pragma once

#include <tensafe/core/error.hpp>

#include <openssl/err.h>

#include <array>
#include <string>

namespace tensafe::keystore {

/// What OpenSSL reports on this thread from construction on, for a function that calls OpenSSL. At the end of
/// the scope its queue of reports is again what it was: the application has the same queue, and what is left
/// there would be taken for the reason of a later failure.
class openssl_reports {
  public:
    openssl_reports() noexcept : before_(ERR_peek_last_error()) { static_cast<void>(ERR_set_mark()); }
    openssl_reports(const openssl_reports&) = delete;
    openssl_reports& operator=(const openssl_reports&) = delete;
    // Without a mark, which an empty queue cannot have, this empties the queue.
    ~openssl_reports() { static_cast<void>(ERR_pop_to_mark()); }

    /// Throws a tensafe::error with OpenSSL's reason for the call that just failed.
    /// @param action  what was tried, as in "OpenSSL: cannot <action>"
    [[noreturn]] void fail(const std::string& action) const {
        const unsigned long code = ERR_peek_last_error();
        std::array<char, 256> reason{"no reason given"};
        if (code != 0 && code != before_) {
            ERR_error_string_n(code, reason.data(), reason.size());
        }
        throw error({"OpenSSL: cannot ", action, ": ", reason.data()});
    }

    /// Throws as `fail` unless `holds`.
    void require(bool holds, const char* action) const {
        if (!holds) {
            fail(action);
        }
    }
    /// Throws as `fail` unless a call of OpenSSL returned 1, which means success.
    void check(int result, const char* action) const { require(result == 1, action); }

  private:
    unsigned long before_;  ///< the last report of before, which is not ours
};

/// Bytes as OpenSSL takes and gives them.
template <class Byte>
const unsigned char* octets(const Byte* bytes) noexcept {
    static_assert(sizeof(Byte) == 1);
    return reinterpret_cast<const unsigned char*>(bytes);
}
template <class Byte>
unsigned char* octets(Byte* bytes) noexcept {
    static_assert(sizeof(Byte) == 1);
    return reinterpret_cast<unsigned char*>(bytes);
}

/// The deleter for what one of OpenSSL's functions made: `std::unique_ptr<BIO,
/// openssl_release<&BIO_free_all>>`.
template <auto Release>
struct openssl_release {
    template <class Object>
    void operator()(Object* object) const noexcept {
        Release(object);
    }
};

}  // namespace tensafe::keystore
