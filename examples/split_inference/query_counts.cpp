#include "query_counts.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/hex.hpp>
#include <tensafe/io/message.hpp>
#include <tensafe/io/openssl_error.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/random/entropy.hpp>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <utility>

namespace split {

namespace {

using tensafe::format_error;

constexpr std::string_view first_line = "tensafe split usage 1\n";
constexpr std::size_t hash_digits = 64;
constexpr std::size_t key_bytes_of_hash = 32;
constexpr std::size_t longest_file = first_line.size() + query_counts::most_numbers * (21 + hash_digits + 1);

tensafe::memory::secret_buffer<std::byte> read_or_make_key(const std::filesystem::path& path) {
    if (!std::filesystem::exists(std::filesystem::symlink_status(path))) {
        tensafe::random::seed fresh = tensafe::random::fresh_seed();
        const tensafe::memory::wipe_guard guard(fresh);
        tensafe::io::create_private_file(path, std::as_bytes(std::span(fresh.bytes)));
    }
    auto key = tensafe::io::read_private_file(path, key_bytes_of_hash);
    if (key.size() != key_bytes_of_hash) {
        throw format_error(tensafe::io::quote(path.string()) + ": got " + std::to_string(key.size()) +
                           " bytes, wanted a key of " + std::to_string(key_bytes_of_hash));
    }
    return key;
}

}  // namespace

query_counts::query_counts(std::filesystem::path folder)
    : folder_(std::move(folder)), key_(read_or_make_key(folder_ / "usage_key")) {
    const std::filesystem::path path = folder_ / "usage";
    if (!std::filesystem::exists(std::filesystem::symlink_status(path))) {
        return;
    }
    tensafe::io::input_file file(path);
    if (file.size() > longest_file) {
        throw format_error(tensafe::io::quote(path.string()) + ": got " + std::to_string(file.size()) +
                           " bytes, wanted at most " + std::to_string(longest_file));
    }
    std::string all(file.size(), '\0');
    file.read(std::as_writable_bytes(std::span<char>(all)));
    read(all);
}

void query_counts::read(std::string_view text) {
    const std::string where = tensafe::io::quote((folder_ / "usage").string());
    const auto refuse = [&](std::size_t line, const char* what) {
        throw format_error(where + ": line " + std::to_string(line) + ": " + what +
                           ". Move it away to begin with no counts");
    };
    if (text.substr(0, first_line.size()) != first_line) {
        refuse(1, "does not say \"tensafe split usage 1\"");
    }
    text.remove_prefix(first_line.size());
    for (std::size_t line = 2; !text.empty(); ++line) {
        const std::size_t end = text.find('\n');
        if (end == text.npos || end < hash_digits) {
            refuse(line, "is not whole");
        }
        std::string_view rest = text.substr(0, end);
        text.remove_prefix(end + 1);
        const std::string name(rest.substr(0, hash_digits));
        static_cast<void>(
            tensafe::io::from_hex<hash_digits / 2>(name, where + ": line " + std::to_string(line)));
        rest.remove_prefix(hash_digits);
        std::vector<std::uint64_t> numbers;
        while (!rest.empty()) {
            std::uint64_t value = 0;
            const char* const last = rest.data() + rest.size();
            const auto [stop, problem] = std::from_chars(rest.data() + 1, last, value);
            if (rest.front() != ' ' || problem != std::errc() || numbers.size() == most_groups ||
                numbers_ == most_numbers) {
                refuse(line, "has what is no list of counts");
            }
            numbers.push_back(value);
            ++numbers_;
            rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
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
        for (const std::uint64_t n : numbers) {
            result.append(" ").append(std::to_string(n));
        }
        result += '\n';
    }
    return result;
}

std::string query_counts::name_of(std::string_view client, std::string_view adapter) const {
    const tensafe::io::detail::openssl_reports reports;
    std::string both(client);
    both.append(1, '\n').append(adapter);  // a client's name is hexadecimal
    std::array<std::byte, hash_digits / 2> hash{};
    unsigned size = 0;
    if (HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
             reinterpret_cast<const unsigned char*>(both.data()), both.size(),
             reinterpret_cast<unsigned char*>(hash.data()), &size) == nullptr) {
        reports.fail("compute HMAC-SHA-256");
    }
    return tensafe::io::hex(hash);
}

query_counts::outcome query_counts::add(std::string_view client, std::string_view adapter, std::size_t group,
                                        std::size_t groups, std::optional<std::uint64_t> limit) {
    if (group >= most_groups) {
        return outcome::no_room;
    }
    const std::string name = name_of(client, adapter);
    const std::lock_guard lock(mutex_);
    std::vector<std::uint64_t>& numbers = counts_[name];
    if (group >= numbers.size()) {
        const std::size_t wanted = std::min(std::max(groups, group + 1), most_groups);
        if (wanted - numbers.size() > most_numbers - numbers_) {
            if (numbers.empty()) {
                counts_.erase(name);
            }
            return outcome::no_room;
        }
        numbers_ += wanted - numbers.size();
        numbers.resize(wanted);
    }
    if (limit && numbers[group] >= *limit) {
        return outcome::limit_reached;
    }
    ++numbers[group];
    ++changes_;
    return outcome::counted;
}

void query_counts::take_back(std::string_view client, std::string_view adapter, std::size_t group) {
    const std::string name = name_of(client, adapter);
    const std::lock_guard lock(mutex_);
    const auto known = counts_.find(name);
    if (known != counts_.end() && group < known->second.size() && known->second[group] > 0) {
        --known->second[group];
        ++changes_;
    }
}

std::uint64_t query_counts::most_of(std::string_view client, std::string_view adapter) const {
    const std::string name = name_of(client, adapter);
    const std::lock_guard lock(mutex_);
    const auto known = counts_.find(name);
    if (known == counts_.end() || known->second.empty()) {
        return 0;
    }
    return *std::max_element(known->second.begin(), known->second.end());
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
    tensafe::io::replace_file(folder_ / "usage", std::as_bytes(std::span<const char>(now)));
    saved_ = changes;
    return true;
}

}  // namespace split
