#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace split {

/// Where a server's certificate and key are, in PEM, and what a client compares.
struct tls_files {
    std::filesystem::path certificate;
    std::filesystem::path key;   ///< mode 0600
    std::string fingerprint{};   ///< SHA-256 of the certificate in DER, 64 lower-case digits
    std::int64_t not_after = 0;  ///< when the certificate expires, in seconds since 1970
};

/// The development certificate of a folder: `certificate.pem` and `certificate_key.pem`, made if neither is
/// there, or a process died while it made them. It is self-signed, of a P-256 key, good for a year, for
/// localhost, 127.0.0.1, ::1 and `hosts`; a client must be given the file. Nobody else may use the folder
/// meanwhile (lock_folder).
/// @param hosts  further names and addresses that it must be for
/// @param now    for tests
/// @throws tensafe::io_error if the folder cannot be written or the key is open to others;
///         tensafe::format_error if only one of the files is there, they do not belong together, or the
///         certificate is expired or not for one of `hosts`: the text says what to do;
///         tensafe::parameter_error for a host that is no name
tls_files prepare_certificate(const std::filesystem::path& folder, const std::vector<std::string>& hosts = {},
                              std::chrono::system_clock::time_point now = std::chrono::system_clock::now());

}  // namespace split
