#include "query_counts.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/keystore/openssl.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/wire/checksum.hpp>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <span>
#include <sys/file.h>
#include <unistd.h>
#include <vector>

namespace split {

namespace {

using tensafe::format_error;
using tensafe::in_quotes;

// The file: this line; a line for each row; one without a row, which ends the table; then a line for each
// time that something was reserved. Each begins with the CRC-32C of what the lines up to it say, and before
// them the key: beside another key the file is damaged. Each row is " name group:bits group:bits ...", and of
// several numbers of a group the largest counts.
constexpr std::string_view first_line = "tensafe split usage 3\n";
/// What a row's name begins with, by scope.
constexpr std::string_view letters = "cta";
constexpr std::size_t hash_digits = 64;
constexpr std::size_t name_length = 1 + hash_digits;
constexpr std::size_t key_bytes_of_hash = 32;
/// Sums stay far from 2^64.
constexpr std::uint64_t most_bits = std::uint64_t{1} << 62;
/// Of one number, its checksum, name and line break included.
constexpr std::size_t longest_number = 10 + (1 + name_length) + (1 + 20 + 1 + 20) + 1;
/// Behind the table, until it is written anew.
constexpr std::size_t longest_log = std::size_t{4} << 20;
constexpr std::size_t longest_file = 2 * query_counts::most_numbers * longest_number + longest_log;

void add_line(std::string& to, std::uint32_t& sum, std::string_view rows) {
    sum = tensafe::wire::crc32c({reinterpret_cast<const std::uint8_t*>(rows.data()), rows.size()}, sum);
    to.append(std::to_string(sum)).append(rows).append(1, '\n');
}

std::string number_text(std::size_t group, std::uint64_t bits) {
    return " " + std::to_string(group) + ":" + std::to_string(bits);
}

std::array<std::byte, hash_digits / 2> keyed_hash(std::span<const std::byte> key, std::string_view text) {
    const tensafe::keystore::openssl_reports reports;
    std::array<std::byte, hash_digits / 2> hash{};
    if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(),
             reinterpret_cast<unsigned char*>(hash.data()), nullptr) == nullptr) {
        reports.fail("compute HMAC-SHA-256");
    }
    return hash;
}

/// What the checksums of a file begin with.
std::uint32_t sum_of_key(std::span<const std::byte> key) {
    std::uint32_t sum = 0;
    std::memcpy(&sum, keyed_hash(key, first_line).data(), sizeof sum);
    return sum;
}

/// A file in which nothing is counted.
std::string empty_table(std::uint32_t sum) {
    std::string text(first_line);
    add_line(text, sum, {});
    return text;
}

/// With whatever key.
bool is_empty_table(std::string_view text) {
    return text.starts_with(first_line) && text.ends_with('\n') &&
           text.find_first_not_of("0123456789", first_line.size()) == text.size() - 1;
}

tensafe::io::owned_descriptor open_or_throw(const std::filesystem::path& path, int how, const char* action) {
    tensafe::io::owned_descriptor opened(::open(path.c_str(), how | O_CLOEXEC));
    if (opened.get() < 0) {
        tensafe::io::throw_io_error(path, action, errno);
    }
    return opened;
}

/// What a process left in the folder that died while it wrote a file.
void remove_partial_files(const std::filesystem::path& folder) {
    constexpr std::array<std::string_view, 5> written{"usage", "usage_key", "admin_token", "certificate.pem",
                                                      "certificate_key.pem.new"};
    for (const auto& each : std::filesystem::directory_iterator(folder)) {
        const std::string name = each.path().filename().string();
        const std::size_t end = name.find(".partial-");
        if (end != name.npos && std::count(written.begin(), written.end(), name.substr(0, end)) > 0) {
            std::filesystem::remove(each.path());
        }
    }
}

/// Both files are there or neither: a count without its key, or a key without its counts, is a limit that was
/// lost. Where a first start ended between the two, nothing was counted yet.
void make_files(const std::filesystem::path& folder) {
    const std::filesystem::path key = folder / "usage_key";
    const std::filesystem::path usage = folder / "usage";
    const bool has_key = std::filesystem::exists(std::filesystem::symlink_status(key));
    const bool has_usage = std::filesystem::exists(std::filesystem::symlink_status(usage));
    if (has_key != has_usage &&
        (has_key || !is_empty_table(tensafe::io::read_file<std::string>(usage, longest_file)))) {
        throw format_error({in_quotes((has_key ? usage : key).native()), ": is missing, but ",
                            in_quotes((has_key ? key : usage).native()),
                            " is there: expected both or neither. Bring it back, or remove the other one to "
                            "begin every query limit anew"});
    }
    if (!has_key) {
        tensafe::random::seed fresh = tensafe::random::fresh_seed();
        const tensafe::memory::wipe_guard guard(fresh);
        const auto made = std::as_bytes(std::span(fresh.bytes));
        const std::string nothing = empty_table(sum_of_key(made));
        tensafe::io::replace_file(usage, std::as_bytes(std::span(nothing)));
        tensafe::io::force_folder_of(usage);  // before the key
        tensafe::io::create_private_file(key, made);
    }
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
    const bool is_it = text.starts_with(expected);
    text.remove_prefix(is_it ? 1 : 0);
    return is_it;
}

/// The number of a group; null if it is not there.
template <class Counts>
auto find(Counts& counts, const std::string& name, std::size_t group)
    -> decltype(&counts.find(name)->second.find(group)->second) {
    const auto row = counts.find(name);
    if (row == counts.end()) {
        return nullptr;
    }
    const auto of = row->second.find(group);
    return of == row->second.end() ? nullptr : &of->second;
}

}  // namespace

tensafe::io::owned_descriptor lock_folder(const std::filesystem::path& folder) {
    auto open = open_or_throw(folder, O_RDONLY | O_DIRECTORY, "open this folder");
    while (::flock(open.get(), LOCK_EX | LOCK_NB) != 0) {
        tensafe::require<tensafe::io_error>(
            errno != EWOULDBLOCK,
            {in_quotes(folder.native()),
             ": another server uses this state folder, expected one of this server alone"});
        if (errno != EINTR) {
            tensafe::io::throw_io_error(folder, "lock this folder", errno);
        }
    }
    return open;
}

query_counts::query_counts(std::filesystem::path folder, when_full full)
    : folder_(std::move(folder)), lock_(lock_folder(folder_)), full_(full) {
    remove_partial_files(folder_);
    make_files(folder_);
    const std::filesystem::path key = folder_ / "usage_key";
    key_ = tensafe::io::read_private_file(key, key_bytes_of_hash);
    tensafe::require<format_error>(
        key_.size() == key_bytes_of_hash,
        {in_quotes(key.native()), ": got ", key_.size(), " bytes, expected a key of ", key_bytes_of_hash});
    sum_ = sum_of_key(std::span(key_.data(), key_.size()));
    const std::filesystem::path usage = folder_ / "usage";
    length_ = read(tensafe::io::read_file<std::string>(usage, longest_file));
    longest_ = longest_log;
    usage_ = open_or_throw(usage, O_WRONLY | O_APPEND, "open for writing");
    if (::ftruncate(usage_.get(), static_cast<off_t>(length_)) != 0) {
        tensafe::io::throw_io_error(usage, "take a torn line from", errno);
    }
    ahead_ = std::jthread([this](const std::stop_token& stop) { reserve_ahead(stop); });
}

/// How much of it is whole: behind the table the last line may be torn, and no answer stands on that one.
std::size_t query_counts::read(std::string_view text) {
    const std::size_t length = text.size();
    std::size_t line = 1;
    const auto check = [&](bool holds, std::string_view problem) {
        if (!holds) {
            throw format_error({in_quotes((folder_ / "usage").native()), ": line ", line, ": ", problem,
                                ". Move it and usage_key away to begin with no counts"});
        }
    };
    for (const char* const older : {"1", "2"}) {
        check(!text.starts_with(std::string("tensafe split usage ") + older + "\n"),
              tensafe::text_of({"got version ", older, ", expected 3, which reserves"}));
    }
    check(text.starts_with(first_line), "does not say \"tensafe split usage 3\"");
    text.remove_prefix(first_line.size());
    bool has_table = false;
    for (++line; !text.empty(); ++line) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view rows = text.substr(0, end).substr(std::min(text.find(' '), end));
        std::string expected;
        std::uint32_t sum = sum_;
        add_line(expected, sum, rows);
        if (text.substr(0, end + 1) != expected) {
            // A write that was cut is shorter, or the device has zeros for parts of it.
            const bool is_torn = end == text.size() || text.find('\0') < end;
            check(has_table && end + 1 >= text.size() && is_torn,
                  "is damaged, not whole, or was made with another usage_key");
            break;
        }
        check(read_rows(rows), "is no list of counts, or one too many");
        has_table = has_table || rows.empty();
        sum_ = sum;
        text.remove_prefix(end + 1);
    }
    check(has_table, "is missing, the end of the table");
    return length - text.size();
}

/// Whether they are rows that there is room for: behind the table stand also those that were evicted.
bool query_counts::read_rows(std::string_view text) {
    std::string name;
    while (take(text, ' ')) {
        if (text.substr(0, 1).find_first_of(letters) == 0) {
            name = text.substr(0, name_length);
            if (name.size() != name_length || name.find_first_not_of("0123456789abcdef", 1) != name.npos) {
                return false;
            }
            text.remove_prefix(name_length);
            continue;
        }
        const auto group = take_number(text);
        const bool has_bits = take(text, ':');
        const auto bits = take_number(text);
        if (name.empty() || !group || !has_bits || !bits || *bits == 0 || *bits > most_bits) {
            return false;
        }
        number& of = at(name, *group);
        of.count = of.reserved = std::max(of.count, *bits);
        while (counts_.size() > most_rows || numbers_ > most_numbers) {
            if (!evict()) {
                return false;
            }
        }
    }
    return text.empty();
}

query_counts::account query_counts::account_of(std::string_view client, std::string_view tenant,
                                               std::string_view adapter) const {
    const auto name = [&](char letter, std::string_view who) {
        // Neither keys nor tenants have a line break.
        const auto hash = keyed_hash(std::span(key_.data(), key_.size()),
                                     std::string(1, letter).append(who).append(1, '\n').append(adapter));
        return letter + tensafe::keystore::hex(hash);
    };
    const std::string own = name(letters[0], client);
    return {own, tenant.empty() ? own : name(letters[1], tenant), name(letters[2], {})};
}

/// Which is made if it is not there.
query_counts::number& query_counts::at(const std::string& name, std::size_t group) {
    const auto [of, is_new] = counts_[name].try_emplace(group);
    numbers_ += is_new ? 1 : 0;
    return of->second;
}

std::uint64_t query_counts::chunk(std::uint64_t bits, const std::optional<std::uint64_t>& limit) {
    return limit ? std::max(*limit / 32, bits) : 64 * bits;
}

query_counts::outcome query_counts::add(const account& rows, std::size_t group, std::uint64_t bits,
                                        const of_each_scope<std::uint64_t>& limits, bool counts) {
    bool must_wait = false;
    bool wants_more = false;
    {
        const std::lock_guard lock(mutex_);
        bool is_new_row = false;
        bool is_new = false;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const number* const known = find(counts_, rows[i], group);
            const std::uint64_t after = (known == nullptr ? 0 : known->count) + bits;
            if (limits[i] && after > *limits[i]) {
                return {outcome::limit_reached, static_cast<scope>(i), after};
            }
            is_new_row = is_new_row || !counts_.contains(rows[i]);
            is_new = is_new || known == nullptr;
        }
        if (!counts) {
            return {};
        }
        while ((is_new_row && counts_.size() + rows.size() > most_rows) ||
               (is_new && numbers_ + rows.size() > most_numbers)) {
            if (full_ == when_full::refuse || !evict()) {  // may evict this client too
                return {outcome::no_room};
            }
        }
        // What may throw comes before anything is counted.
        std::array<number*, 3> numbers{};
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (i > 0 && rows[i] == rows[i - 1]) {
                continue;  // a client that is its own tenant
            }
            number& of = at(rows[i], group);
            numbers[i] = &of;
            const auto ahead = [&](std::uint64_t more) {
                return std::min(of.count + bits + more, limits[i].value_or(most_bits));
            };
            const std::uint64_t whole = chunk(bits, limits[i]);
            if (ahead(whole / 2) > of.reserved) {
                std::uint64_t& wanted = wanted_[{rows[i], group}];
                if (ahead(whole / 2) > wanted) {
                    wanted = ahead(whole);
                    has_work_ = wants_more = true;
                }
            }
            must_wait = must_wait || of.count + bits > of.reserved;
        }
        for (number* const of : numbers) {
            if (of != nullptr) {
                of->count += bits;
            }
        }
    }
    if (must_wait) {
        try {
            reserve();
        } catch (...) {
            take_back(rows, group, bits);
            throw;
        }
    } else if (wants_more) {
        work_.notify_one();
    }
    return {};
}

/// Several at once, or with a full table each new client would cost a walk through all of it. Whether there
/// was one to evict: rows of clients, which make keys as they like, and where there are none left those of
/// tenants, which are addresses then. What the limit of all stands on stays.
bool query_counts::evict() {
    std::vector<std::pair<std::uint64_t, decltype(counts_)::iterator>> order;
    for (std::size_t scope = 0; scope < 2 && order.empty(); ++scope) {
        auto each = counts_.lower_bound(letters.substr(scope, 1));
        for (; each != counts_.end() && each->first.front() == letters[scope]; ++each) {
            std::uint64_t largest = 0;
            for (const auto& [group, of] : each->second) {
                largest = std::max(largest, of.count);
            }
            order.emplace_back(largest, each);
        }
    }
    if (order.empty()) {
        return false;
    }
    const auto dropped = static_cast<std::ptrdiff_t>(order.size() / 16 + 1);
    std::nth_element(order.begin(), order.begin() + (dropped - 1), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto drop = order.begin(); drop != order.begin() + dropped; ++drop) {
        const std::string& name = drop->second->first;
        wanted_.erase(wanted_.lower_bound({name, 0}), wanted_.upper_bound({name, ~std::size_t{0}}));
        numbers_ -= drop->second->second.size();
        counts_.erase(drop->second);
    }
    return true;
}

void query_counts::take_back(const account& rows, std::size_t group, std::uint64_t bits) noexcept {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        number* const of = i > 0 && rows[i] == rows[i - 1] ? nullptr : find(counts_, rows[i], group);
        if (of != nullptr) {
            of->count -= std::min(of->count, bits);  // too few, or none, if it was evicted meanwhile
        }
    }
}

std::array<std::uint64_t, 3> query_counts::used(const account& rows, std::size_t group) const {
    const std::lock_guard lock(mutex_);
    std::array<std::uint64_t, 3> result{};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const number* const of = find(counts_, rows[i], group);
        result[i] = of == nullptr ? 0 : of->count;
    }
    return result;
}

std::size_t query_counts::rows() const {
    const std::lock_guard lock(mutex_);
    return counts_.size();
}

void query_counts::reserve_ahead(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (work_.wait(lock, stop, [&] { return std::exchange(has_work_, false); })) {
        lock.unlock();
        try {
            reserve();
        } catch (const std::exception&) {
            // Who finds nothing reserved tries again, and says why not.
        }
        lock.lock();
    }
}

/// Appends what is wanted, also by others, as one line.
void query_counts::reserve() {
    const std::lock_guard one_at_a_time(disk_);
    decltype(wanted_) now;
    {
        const std::lock_guard lock(mutex_);
        now = wanted_;
    }
    if (now.empty()) {
        return;  // somebody else did it
    }
    if (usage_.get() < 0 || length_ > longest_) {
        rewrite(false);
    }
    std::string rows;
    for (const auto& [of, bits] : now) {
        rows.append(" ").append(of.first).append(number_text(of.second, bits));
    }
    std::string line;
    std::uint32_t sum = sum_;
    add_line(line, sum, rows);
    const int failure = tensafe::io::write_and_force(usage_, std::as_bytes(std::span<const char>(line)));
    if (failure != 0) {
        if (::ftruncate(usage_.get(), static_cast<off_t>(length_)) != 0) {
            usage_ = tensafe::io::owned_descriptor(-1);
        }
        tensafe::io::throw_io_error(folder_ / "usage", "reserve counts", failure);
    }
    length_ += line.size();
    sum_ = sum;
    const std::lock_guard lock(mutex_);
    for (const auto& [of, bits] : now) {
        if (number* const known = find(counts_, of.first, of.second)) {
            known->reserved = std::max(known->reserved, bits);
        }
        if (const auto wanted = wanted_.find(of); wanted != wanted_.end() && wanted->second <= bits) {
            wanted_.erase(wanted);
        }
    }
}

/// A slice at a time: requests go on meanwhile, and evictions. What is reserved stays: who reserves is here.
void query_counts::rewrite(bool exact) {
    std::string text(first_line);
    std::uint32_t sum = sum_of_key(std::span(key_.data(), key_.size()));
    std::string last;
    for (bool is_over = false; !is_over;) {
        constexpr int rows_of_slice = 256;
        std::string slice;
        std::unique_lock lock(mutex_);
        auto each = counts_.upper_bound(last);
        for (int i = 0; i < rows_of_slice && each != counts_.end(); ++i, ++each) {
            last = each->first;
            std::string rows = " " + last;
            for (auto& [group, of] : each->second) {
                if (exact) {
                    of.reserved = std::min(of.reserved, of.count);
                }
                rows += of.reserved > 0 ? number_text(group, of.reserved) : std::string();
            }
            if (rows.size() > 1 + name_length) {
                add_line(slice, sum, rows);
            }
        }
        is_over = each == counts_.end();
        lock.unlock();
        text += slice;
    }
    add_line(text, sum, {});
    const std::filesystem::path usage = folder_ / "usage";
    tensafe::io::replace_file(usage, std::as_bytes(std::span<const char>(text)));
    usage_ = tensafe::io::owned_descriptor(-1);  // of the file that was replaced
    tensafe::io::force_folder_of(usage);
    usage_ = open_or_throw(usage, O_WRONLY | O_APPEND, "open for writing");
    length_ = text.size();
    longest_ = length_ + longest_log;
    sum_ = sum;
}

void query_counts::save() {
    ahead_ = {};
    const std::lock_guard one_at_a_time(disk_);
    rewrite(true);
}

}  // namespace split
