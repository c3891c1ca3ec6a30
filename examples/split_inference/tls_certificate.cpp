#include "tls_certificate.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/keystore/openssl.hpp>
#include <tensafe/keystore/private_file.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/entropy.hpp>

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstddef>
#include <ctime>
#include <memory>
#include <span>
#include <string_view>

#include "query_counts.hpp"

namespace split {

namespace {

using tensafe::quote;
using tensafe::keystore::detail::openssl_release;
using tensafe::keystore::detail::openssl_reports;
using key_pointer = std::unique_ptr<EVP_PKEY, openssl_release<&EVP_PKEY_free>>;
using certificate_pointer = std::unique_ptr<X509, openssl_release<&X509_free>>;
using bio_pointer = std::unique_ptr<BIO, openssl_release<&BIO_free_all>>;

constexpr long seconds_of_a_year = 365L * 24 * 3600;
constexpr std::size_t largest_pem = 65'536;

/// "DNS:name" or "IP:address", checked so that a name cannot bring an entry of its own.
std::string alternative_name(const std::string& host) {
    std::array<unsigned char, 16> address{};
    if (::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
        ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1) {
        return "IP:" + host;
    }
    const bool is_name = !host.empty() && host.size() <= 253 && host.front() != '-' && host.front() != '.' &&
                         std::all_of(host.begin(), host.end(), [](char c) {
                             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                    (c >= '0' && c <= '9') || c == '-' || c == '.';
                         });
    if (!is_name) {
        throw tensafe::parameter_error("certificate: got the host " + quote(host) +
                                       ", expected a name of letters, digits, '-' and '.', or an address");
    }
    return "DNS:" + host;
}

void add_extension(X509* certificate, int number, const std::string& value, const openssl_reports& reports) {
    const std::unique_ptr<X509_EXTENSION, openssl_release<&X509_EXTENSION_free>> extension(
        X509V3_EXT_conf_nid(nullptr, nullptr, number, value.c_str()));
    if (extension == nullptr) {
        reports.fail("make a certificate's extension");
    }
    reports.check(X509_add_ext(certificate, extension.get(), -1), "add a certificate's extension");
}

certificate_pointer self_signed(EVP_PKEY* key, const std::vector<std::string>& hosts, std::time_t now,
                                const openssl_reports& reports) {
    std::string names = "DNS:localhost,IP:127.0.0.1,IP:::1";
    for (const std::string& host : hosts) {
        names += "," + alternative_name(host);
    }
    certificate_pointer certificate(X509_new());
    if (certificate == nullptr) {
        reports.fail("make a certificate");
    }
    const tensafe::random::seed serial = tensafe::random::fresh_seed();
    std::uint64_t number = 1;
    for (std::size_t i = 0; i < 7; ++i) {
        number = number << 8 | serial.bytes[i];
    }
    reports.check(X509_set_version(certificate.get(), 2), "set a certificate's version");
    reports.check(ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), number),
                  "set a serial number");
    // A clock that is a little behind must not refuse a certificate that was just made.
    if (ASN1_TIME_set(X509_getm_notBefore(certificate.get()), now - 3600) == nullptr ||
        ASN1_TIME_set(X509_getm_notAfter(certificate.get()), now + seconds_of_a_year) == nullptr) {
        reports.fail("set a certificate's dates");
    }
    X509_NAME* const name = X509_get_subject_name(certificate.get());
    constexpr std::string_view text = "tensafe split inference (development)";
    reports.check(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                             reinterpret_cast<const unsigned char*>(text.data()),
                                             static_cast<int>(text.size()), -1, 0),
                  "set a certificate's name");
    reports.check(X509_set_issuer_name(certificate.get(), name), "set a certificate's issuer");
    reports.check(X509_set_pubkey(certificate.get(), key), "set a certificate's key");
    add_extension(certificate.get(), NID_subject_alt_name, names, reports);
    add_extension(certificate.get(), NID_basic_constraints, "critical,CA:FALSE", reports);
    add_extension(certificate.get(), NID_key_usage, "critical,digitalSignature", reports);
    add_extension(certificate.get(), NID_ext_key_usage, "serverAuth", reports);
    if (X509_sign(certificate.get(), key, EVP_sha256()) == 0) {
        reports.fail("sign a certificate");
    }
    return certificate;
}

/// Where the key waits for its certificate: until it has its name, nobody can have met either.
std::filesystem::path waiting(const tls_files& files) {
    return files.key.string() + ".new";
}

void make(const tls_files& files, const std::vector<std::string>& hosts, std::time_t now) {
    const openssl_reports reports;
    const key_pointer key(EVP_EC_gen("P-256"));
    if (key == nullptr) {
        reports.fail("generate a P-256 key");
    }
    const certificate_pointer certificate = self_signed(key.get(), hosts, now, reports);
    const bio_pointer key_text(BIO_new(BIO_s_secmem()));
    const bio_pointer certificate_text(BIO_new(BIO_s_mem()));
    if (key_text == nullptr || certificate_text == nullptr ||
        PEM_write_bio_PKCS8PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) !=
            1 ||
        PEM_write_bio_X509(certificate_text.get(), certificate.get()) != 1) {
        reports.fail("write a certificate");
    }
    char* text = nullptr;
    long size = BIO_get_mem_data(key_text.get(), &text);
    std::filesystem::remove(waiting(files));
    tensafe::keystore::create_private_file(waiting(files),
                                           std::as_bytes(std::span(text, static_cast<std::size_t>(size))));
    size = BIO_get_mem_data(certificate_text.get(), &text);
    tensafe::io::replace_file(files.certificate,
                              std::as_bytes(std::span(text, static_cast<std::size_t>(size))));
    tensafe::keystore::detail::force_folder_of(files.certificate);  // before the key has its name
    std::filesystem::rename(waiting(files), files.key);
}

std::string remedy(const tls_files& files) {
    return ". Remove " + quote(files.certificate.string()) + " and " + quote(files.key.string()) +
           " and start again: both are made anew, and clients need the new certificate";
}

bool is_for(X509* certificate, const std::string& host) {
    return alternative_name(host).starts_with("IP:")
               ? X509_check_ip_asc(certificate, host.c_str(), 0) == 1
               : X509_check_host(certificate, host.data(), host.size(), 0, nullptr) == 1;
}

/// Reads both, and sets the fingerprint.
void check(tls_files& files, const std::vector<std::string>& hosts, std::time_t now) {
    const openssl_reports reports;
    const auto text = tensafe::io::read_file<std::string>(files.certificate, largest_pem);
    const bio_pointer certificate_text(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    const certificate_pointer certificate(
        certificate_text == nullptr ? nullptr
                                    : PEM_read_bio_X509(certificate_text.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) {
        throw tensafe::format_error(quote(files.certificate.string()) + ": is no certificate in PEM" +
                                    remedy(files));
    }
    const auto secret = tensafe::keystore::read_private_file(files.key, largest_pem);
    const bio_pointer key_text(BIO_new_mem_buf(secret.data(), static_cast<int>(secret.size())));
    const auto no_passphrase = [](char*, int, int, void*) { return -1; };
    const key_pointer key(key_text == nullptr
                              ? nullptr
                              : PEM_read_bio_PrivateKey(key_text.get(), nullptr, no_passphrase, nullptr));
    if (key == nullptr || X509_check_private_key(certificate.get(), key.get()) != 1) {
        throw tensafe::format_error(quote(files.key.string()) + ": is not the key of " +
                                    quote(files.certificate.string()) + remedy(files));
    }
    if (X509_cmp_time(X509_get0_notAfter(certificate.get()), &now) <= 0) {
        throw tensafe::format_error(quote(files.certificate.string()) + ": is expired" + remedy(files));
    }
    for (const std::string& host : hosts) {
        if (!is_for(certificate.get(), host)) {
            throw tensafe::format_error(quote(files.certificate.string()) + ": is not for --host " +
                                        quote(host) + remedy(files));
        }
    }
    std::array<std::byte, 32> digest{};
    unsigned size = 0;
    reports.check(
        X509_digest(certificate.get(), EVP_sha256(), reinterpret_cast<unsigned char*>(digest.data()), &size),
        "digest a certificate");
    files.fingerprint = tensafe::keystore::hex(digest);
}

}  // namespace

tls_files prepare_certificate(const std::filesystem::path& folder, const std::vector<std::string>& hosts,
                              std::chrono::system_clock::time_point now) {
    tls_files files{folder / "certificate.pem", folder / "certificate_key.pem", {}, false};
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    const auto alone = lock_folder(folder);
    const auto is_there = [](const std::filesystem::path& path) {
        return std::filesystem::exists(std::filesystem::symlink_status(path));
    };
    const bool has_key = is_there(files.key);
    const bool has_certificate = is_there(files.certificate) && (has_key || !is_there(waiting(files)));
    if (has_certificate != has_key) {
        throw tensafe::format_error(quote((has_certificate ? files.key : files.certificate).string()) +
                                    ": is missing, but its other half is there" + remedy(files));
    }
    if (!has_certificate) {
        make(files, hosts, seconds);
        files.made = true;
    }
    check(files, hosts, seconds);
    return files;
}

}  // namespace split
