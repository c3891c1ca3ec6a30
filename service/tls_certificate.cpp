#include "tls_certificate.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/keystore/openssl.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/entropy.hpp>

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <memory>
#include <span>

#include "client_list.hpp"
#include "limits.hpp"

namespace split {

namespace {

using tensafe::quote;
using tensafe::keystore::openssl_release;
using tensafe::keystore::openssl_reports;
using key_pointer = std::unique_ptr<EVP_PKEY, openssl_release<&EVP_PKEY_free>>;
using certificate_pointer = std::unique_ptr<X509, openssl_release<&X509_free>>;
using bio_pointer = std::unique_ptr<BIO, openssl_release<&BIO_free_all>>;

constexpr long seconds_of_a_year = 365L * 24 * 3600;
constexpr std::size_t largest_pem = 65'536;

/// "DNS:name" or "IP:address", checked so that a name cannot bring an entry of its own.
std::string alternative_name(const std::string& host) {
    if (is_address(host)) {
        return "IP:" + host;
    }
    constexpr std::size_t longest_name = 253;
    if (!is_plain_name(host, longest_name) || host.find('_') != host.npos || host.front() == '-' ||
        host.front() == '.') {
        throw tensafe::parameter_error("certificate: got the host " + quote(host) +
                                       ", expected a name of letters, digits, '-' and '.', or an address");
    }
    return "DNS:" + host;
}

bool add_extension(X509* certificate, int number, const std::string& value) {
    const std::unique_ptr<X509_EXTENSION, openssl_release<&X509_EXTENSION_free>> extension(
        X509V3_EXT_conf_nid(nullptr, nullptr, number, value.c_str()));
    return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

certificate_pointer self_signed(EVP_PKEY* key, const std::vector<std::string>& hosts, std::time_t now,
                                const openssl_reports& reports) {
    std::string names = "DNS:localhost,IP:127.0.0.1,IP:::1";
    for (const std::string& host : hosts) {
        names += "," + alternative_name(host);
    }
    const auto* const title = reinterpret_cast<const unsigned char*>("tensafe split inference (development)");
    std::uint64_t serial = 0;
    const tensafe::random::seed drawn = tensafe::random::fresh_nonce();
    std::memcpy(&serial, drawn.bytes.data(), sizeof serial - 1);
    certificate_pointer made(X509_new());
    X509* const c = made.get();
    X509_NAME* const name = c == nullptr ? nullptr : X509_get_subject_name(c);
    // A clock that is a little behind must not refuse a certificate that was just made.
    if (c == nullptr || X509_set_version(c, X509_VERSION_3) != 1 ||
        ASN1_INTEGER_set_uint64(X509_get_serialNumber(c), serial | std::uint64_t{1} << 56) != 1 ||
        ASN1_TIME_set(X509_getm_notBefore(c), now - 3600) == nullptr ||
        ASN1_TIME_set(X509_getm_notAfter(c), now + seconds_of_a_year) == nullptr ||
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, title, -1, -1, 0) != 1 ||
        X509_set_issuer_name(c, name) != 1 || X509_set_pubkey(c, key) != 1 ||
        !add_extension(c, NID_subject_alt_name, names) ||
        !add_extension(c, NID_basic_constraints, "critical,CA:FALSE") ||
        !add_extension(c, NID_key_usage, "critical,digitalSignature") ||
        !add_extension(c, NID_ext_key_usage, "serverAuth") || X509_sign(c, key, EVP_sha256()) == 0) {
        reports.fail("make a certificate");
    }
    return made;
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
    const auto written = [](BIO* to) {
        char* text = nullptr;
        const long size = BIO_get_mem_data(to, &text);
        return std::as_bytes(std::span(text, static_cast<std::size_t>(size)));
    };
    std::filesystem::remove(waiting(files));
    tensafe::io::create_private_file(waiting(files), written(key_text.get()));
    tensafe::io::replace_file(files.certificate, written(certificate_text.get()));
    tensafe::io::force_folder_of(files.certificate);  // before the key has its name
    std::filesystem::rename(waiting(files), files.key);
    tensafe::io::force_folder_of(files.key);
}

std::string remedy(const tls_files& files) {
    return ". Copy both from another server of the fleet, if there is one; else remove " +
           quote(files.certificate.string()) + " and " + quote(files.key.string()) +
           " and start again: both are made anew, and clients need the new certificate";
}

/// Reads both, and sets the fingerprint.
void check(tls_files& files, const std::vector<std::string>& hosts, std::time_t now) {
    const openssl_reports reports;
    const auto require = [&](bool fits, const std::filesystem::path& file, const std::string& problem) {
        if (!fits) {
            throw tensafe::format_error(quote(file.string()) + ": " + problem + remedy(files));
        }
    };
    const auto reader_of = [](const auto& text) {
        return bio_pointer(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    };
    const auto text = tensafe::io::read_file<std::string>(files.certificate, largest_pem);
    const certificate_pointer read(PEM_read_bio_X509(reader_of(text).get(), nullptr, nullptr, nullptr));
    X509* const certificate = read.get();
    require(certificate != nullptr, files.certificate, "is no certificate in PEM");
    const auto secret = tensafe::io::read_private_file(files.key, largest_pem);
    const auto no_passphrase = [](char*, int, int, void*) { return -1; };
    const key_pointer key(PEM_read_bio_PrivateKey(reader_of(secret).get(), nullptr, no_passphrase, nullptr));
    require(key != nullptr && X509_check_private_key(certificate, key.get()) == 1, files.key,
            "is not the key of " + quote(files.certificate.string()));
    require(X509_cmp_time(X509_get0_notAfter(certificate), &now) > 0, files.certificate, "is expired");
    for (const std::string& host : hosts) {
        static_cast<void>(alternative_name(host));  // that it is one
        const int is_for = is_address(host)
                               ? X509_check_ip_asc(certificate, host.c_str(), 0)
                               : X509_check_host(certificate, host.data(), host.size(), 0, nullptr);
        require(is_for == 1, files.certificate, "is not for --host " + quote(host));
    }
    std::array<std::byte, 32> digest{};
    reports.check(
        X509_digest(certificate, EVP_sha256(), reinterpret_cast<unsigned char*>(digest.data()), nullptr),
        "digest a certificate");
    files.fingerprint = tensafe::keystore::hex(digest);
    std::tm until{};
    reports.check(ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &until),
                  "read when a certificate expires");
    files.not_after = ::timegm(&until);
}

}  // namespace

tls_files prepare_certificate(const std::filesystem::path& folder, const std::vector<std::string>& hosts,
                              std::chrono::system_clock::time_point now) {
    tls_files files{folder / "certificate.pem", folder / "certificate_key.pem"};
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    const auto is_there = [](const std::filesystem::path& path) {
        return std::filesystem::exists(std::filesystem::symlink_status(path));
    };
    const bool has_key = is_there(files.key);
    const bool has_certificate = is_there(files.certificate) && (has_key || !is_there(waiting(files)));
    tensafe::require<tensafe::format_error>(
        has_certificate == has_key, {quote((has_certificate ? files.key : files.certificate).string()),
                                     ": is missing, but its other half is there", remedy(files)});
    if (!has_certificate) {
        make(files, hosts, seconds);
    }
    check(files, hosts, seconds);
    return files;
}

}  // namespace split
