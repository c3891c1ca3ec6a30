#include "query_counts.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/keystore/openssl.hpp>
#include <tensafe/keystore/private_file.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/entropy.hpp>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <fcntl.h>
#include <optional>
#include <set>
#include <span>
#include <sys/file.h>
#include <utility>
#include <vector>

namespace split {

namespace {

using tensafe::format_error;

constexpr std::string_view first_line = "tensafe split usage 2\n";
/// What a row's name begins with, by scope.
constexpr std::array<char, 3> letters{'c', 't', 'a'};
constexpr std::size_t hash_digits = 64;
constexpr std::size_t name_length = 1 + hash_digits;
constexpr std::size_t key_bytes_of_hash = 32;
/// Sums stay far from 2^64.
constexpr std::uint64_t most_bits = std::uint64_t{1} << 62;
/// " group:count"
constexpr std::size_t longest_number = 1 + 20 + 1 + 20;
constexpr std::size_t longest_file = first_line.size() + query_counts::most_rows * (name_length + 1) +
                                     query_counts::most_numbers * longest_number;

tensafe::keystore::detail::owned_descriptor lock_folder(const std::filesystem::path& folder) {
    tensafe::keystore::detail::owned_descriptor open(
        ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (open.get() < 0) {
        tensafe::io::throw_io_error(folder, "open this folder", errno);
    }
    while (::flock(open.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) {
            throw tensafe::io_error(tensafe::quote(folder.string()) +
                                    ": another server uses this state folder, expected one of this server "
                                    "alone");
        }
        if (errno != EINTR) {
            tensafe::io::throw_io_error(folder, "lock this folder", errno);
        }
    }
    return open;
}

bool is_there(const std::filesystem::path& path) {
    return std::filesystem::exists(std::filesystem::symlink_status(path));
}

void write_usage(const std::filesystem::path& path, std::string_view text) {
    tensafe::io::replace_file(path, std::as_bytes(std::span(text)));
}

/// Both files are there or neither: a count without its key, or a key without its counts, is a limit that was
/// lost.
void make_files(const std::filesystem::path& folder) {
    const std::filesystem::path key = folder / "usage_key";
    const std::filesystem::path usage = folder / "usage";
    const bool has_key = is_there(key);
    if (has_key != is_there(usage)) {
        throw format_error(tensafe::quote((has_key ? usage : key).string()) + ": is missing, but " +
                           tensafe::quote((has_key ? key : usage).string()) +
                           " is there: expected both or neither. Bring it back, or remove the other one to "
                           "begin every query limit anew");
    }
    if (!has_key) {
        write_usage(usage, first_line);
        tensafe::random::seed fresh = tensafe::random::fresh_seed();
        const tensafe::memory::wipe_guard guard(fresh);
        tensafe::keystore::create_private_file(key, std::as_bytes(std::span(fresh.bytes)));
    }
}

tensafe::memory::secret_buffer<std::byte> read_key(const std::filesystem::path& path) {
    auto key = tensafe::keystore::read_private_file(path, key_bytes_of_hash);
    if (key.size() != key_bytes_of_hash) {
        throw format_error(tensafe::quote(path.string()) + ": got " + std::to_string(key.size()) +
                           " bytes, expected a key of " + std::to_string(key_bytes_of_hash));
    }
    return key;
}

/// A number at the beginning of a text, which then begins behind it.
std::optional<std::uint64_t> take_number(std::string_view& text) {
    std::uint64_t value = 0;
    const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc()) {
        return std::nullopt;
    }
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    return value;
}

bool take(std::string_view& text, char expected) {
    const bool is_it = !text.empty() && text.front() == expected;
    text.remove_prefix(is_it ? 1 : 0);
    return is_it;
}

}  // namespace

query_counts::query_counts(std::filesystem::path folder, when_full full)
    : folder_(std::move(folder)), lock_(lock_folder(folder_)), full_(full) {
    make_files(folder_);
    key_ = read_key(folder_ / "usage_key");
    read(tensafe::io::read_file<std::string>(folder_ / "usage", longest_file));
}

void query_counts::read(std::string_view text) {
    const std::string where = tensafe::quote((folder_ / "usage").string());
    const auto refuse = [&](std::size_t line, const char* what) {
        throw format_error(where + ": line " + std::to_string(line) + ": " + what +
                           ". Move it and usage_key away to begin with no counts");
    };
    if (text.substr(0, first_line.size()) != first_line) {
        refuse(1, text.starts_with("tensafe split usage 1\n")
                      ? "got version 1, which counts requests, expected 2, which counts bits"
                      : "does not say \"tensafe split usage 2\"");
    }
    text.remove_prefix(first_line.size());
    for (std::size_t line = 2; !text.empty(); ++line) {
        const std::size_t end = text.find('\n');
        if (end == text.npos || end < name_length) {
            refuse(line, "is not whole");
        }
        std::string_view rest = text.substr(0, end);
        text.remove_prefix(end + 1);
        const std::string name(rest.substr(0, name_length));
        if (std::find(letters.begin(), letters.end(), name.front()) == letters.end()) {
            refuse(line, "is of no client, tenant or adapter");
        }
        static_cast<void>(tensafe::keystore::from_hex<hash_digits / 2>(
            name.substr(1), where + ": line " + std::to_string(line)));
        rest.remove_prefix(name_length);
        row numbers;
        while (!rest.empty()) {
            const bool spaced = take(rest, ' ');
            const auto group = take_number(rest);
            const bool has_count = take(rest, ':');
            const auto count = take_number(rest);
            if (!spaced || !group || !has_count || !count || *count == 0 || *count > most_bits ||
                numbers_ == most_numbers || !numbers.emplace(*group, *count).second) {
                refuse(line, "has what is no list of counts");
            }
            ++numbers_;
        }
        if (numbers.empty() || counts_.size() == most_rows) {
            refuse(line, numbers.empty() ? "has no count" : "is one too many");
        }
        if (!counts_.emplace(name, std::move(numbers)).second) {
            refuse(line, "comes twice");
        }
    }
}

std::string query_counts::text() const {
    std::string result(first_line);
    for (const auto& [name, numbers] : counts_) {
        result += name;
        for (const auto& [group, count] : numbers) {
            result.append(" ").append(std::to_string(group)).append(":").append(std::to_string(count));
        }
        result += '\n';
    }
    return result;
}

query_counts::account query_counts::account_of(std::string_view client, std::string_view tenant,
                                               std::string_view adapter) const {
    const auto name = [&](char letter, std::string_view who) {
        const tensafe::keystore::detail::openssl_reports reports;
        // Neither keys nor tenants have a line break.
        const std::string text = std::string(1, letter).append(who).append(1, '\n').append(adapter);
        std::array<std::byte, hash_digits / 2> hash{};
        unsigned size = 0;
        if (HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
                 reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                 reinterpret_cast<unsigned char*>(hash.data()), &size) == nullptr) {
            reports.fail("compute HMAC-SHA-256");
        }
        return letter + tensafe::keystore::hex(hash);
    };
    const std::string own = name(letters[0], client);
    return {own, tenant.empty() ? own : name(letters[1], tenant), name(letters[2], {})};
}

std::uint64_t query_counts::count_of(const std::string& name, std::size_t group) const {
    const auto known = counts_.find(name);
    if (known == counts_.end()) {
        return 0;
    }
    const auto number = known->second.find(group);
    return number == known->second.end() ? 0 : number->second;
}

query_counts::outcome query_counts::add(const account& rows, std::size_t group, std::uint64_t bits,
                                        const of_each_scope<std::uint64_t>& limits) {
    const std::lock_guard lock(mutex_);
    bool is_new_row = false;
    bool is_new = false;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::uint64_t before = count_of(rows[i], group);
        if (limits[i] && before + bits > *limits[i]) {
            return {outcome::limit_reached, static_cast<scope>(i), before + bits};
        }
        is_new_row = is_new_row || !counts_.contains(rows[i]);
        is_new = is_new || before == 0;
    }
    while ((is_new_row && counts_.size() + rows.size() > most_rows) ||
           (is_new && numbers_ + rows.size() > most_numbers)) {
        if (full_ == when_full::refuse || !evict()) {  // may evict this client too
            return {outcome::no_room};
        }
    }
    for (const std::string& name : std::set(rows.begin(), rows.end())) {
        std::uint64_t& count = counts_.try_emplace(name, row{{group, 0}}).first->second[group];
        numbers_ += std::size_t{count == 0};
        count += bits;
    }
    ++changes_;
    return {};
}

/// Several at once, or with a full table each new client would cost a walk through all of it. Whether there
/// was one to evict: the other scopes' rows are what limits stand on when clients make keys.
bool query_counts::evict() {
    std::vector<std::pair<std::uint64_t, decltype(counts_)::iterator>> order;
    auto each = counts_.lower_bound(std::string_view(letters.data(), 1));
    for (; each != counts_.end() && each->first.front() == letters[0]; ++each) {
        const auto largest =
            std::max_element(each->second.begin(), each->second.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
        order.emplace_back(largest->second, each);
    }
    if (order.empty()) {
        return false;
    }
    const auto dropped = static_cast<std::ptrdiff_t>(order.size() / 16 + 1);
    std::nth_element(order.begin(), order.begin() + (dropped - 1), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto drop = order.begin(); drop != order.begin() + dropped; ++drop) {
        numbers_ -= drop->second->second.size();
        counts_.erase(drop->second);
    }
    return true;
}

void query_counts::take_back(const account& rows, std::size_t group, std::uint64_t bits) {
    const std::lock_guard lock(mutex_);
    for (const std::string& name : std::set(rows.begin(), rows.end())) {
        const auto known = counts_.find(name);
        const std::uint64_t before = count_of(name, group);  // 0, or too few, if it was evicted meanwhile
        if (before > bits) {
            known->second[group] = before - bits;
        } else if (before > 0) {
            known->second.erase(group);
            --numbers_;
        }
        if (known != counts_.end() && known->second.empty()) {
            counts_.erase(known);
        }
    }
    ++changes_;
}

std::array<std::uint64_t, 3> query_counts::used(const account& rows, std::size_t group) const {
    const std::lock_guard lock(mutex_);
    return {count_of(rows[0], group), count_of(rows[1], group), count_of(rows[2], group)};
}

std::size_t query_counts::rows() const {
    const std::lock_guard lock(mutex_);
    return counts_.size();
}

bool query_counts::save() {
    const std::lock_guard one_at_a_time(saving_);
    std::string now;
    std::uint64_t changes = 0;
    {
        const std::lock_guard lock(mutex_);
        if (changes_ == saved_) {
            return false;
        }
        now = text();
        changes = changes_;
    }
    write_usage(folder_ / "usage", now);
    saved_ = changes;
    return true;
}

}  // namespace split
