#pragma once

// A folder of query_counts, killed, full or damaged.

#include <tensafe/serving/file_store.hpp>

#include <csignal>
#include <sys/resource.h>

#include "../allocation_count.hpp"
#include "../io/file_builder.hpp"
#include "../random_values.hpp"
#include "../test.hpp"

namespace tests {

using tensafe::serving::query_counts;
using outcome = query_counts::outcome;
using bits = std::array<std::uint64_t, 3>;
using limits = tensafe::serving::of_each_scope<std::uint64_t>;

inline const std::string first_line = "tensafe split usage 3\n";

/// A file of these lines, with their checksums.
inline std::string usage_text(const std::vector<std::string>& lines, const std::string& key) {
    std::string text = first_line;
    std::array<unsigned char, 32> hash{};
    ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(first_line.data()), first_line.size(), hash.data(),
           nullptr);
    std::uint32_t sum = 0;
    std::memcpy(&sum, hash.data(), sizeof sum);
    for (const std::string& line : lines) {
        sum = wire::crc32c({reinterpret_cast<const std::uint8_t*>(line.data()), line.size()}, sum);
        text += std::to_string(sum) + line + "\n";
    }
    return text;
}

/// The name of a client that nobody is.
inline std::string name_of_nobody(std::size_t i) {
    std::string digits = std::to_string(i);
    return "c" + std::string(64 - digits.size(), '0') + digits;
}

/// Calls `f` while no file may become longer than this, as on a disk that is full.
inline void with_file_limit(std::size_t bytes_of_file, auto f) {
    rlimit old{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
    rlimit full = old;
    full.rlim_cur = bytes_of_file;
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
    f();
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
    std::signal(SIGXFSZ, handler);
}

struct stored_counts {
    std::filesystem::path usage() const { return folder.path() / "usage"; }
    void put(const std::string& text) const {
        std::filesystem::remove(usage());  // a file that is cut is written at once
        folder.put("usage", text);
    }
    void put_lines(const std::vector<std::string>& lines) const {
        if (!std::filesystem::exists(folder.path() / "usage_key")) {
            static_cast<void>(account_of("anybody"));
        }
        put(usage_text(lines, text_of(folder.path() / "usage_key")));
    }
    query_counts::account account_of(const char* client, const char* tenant = "") const {
        return query_counts(folder.path()).account_of(client, tenant, "kjv");
    }
    /// As if the process were killed now.
    bits after_a_kill(const query_counts::account& of, std::size_t group) const {
        const temporary_directory copy;
        for (const char* name : {"usage", "usage_key"}) {
            std::filesystem::copy_file(folder.path() / name, copy.path() / name);
        }
        return query_counts(copy.path()).used(of, group);
    }
    void check_refused(const std::string& part) const {
        const std::string said = refusal<tensafe::error>([&] { query_counts(folder.path()); });
        INFO("said := ", said);
        CHECK(contains(said, part));
    }
    temporary_directory folder;
};

}  // namespace tests
