#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/serving/query_limits.hpp>
#include <tensafe/serving/shared_counts.hpp>
#include <tensafe/session/store.hpp>
#include <tensafe/wire/checksum.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tensafe::serving {

/// Locks a state folder for one server (flock) and returns what holds the lock while it lives.
/// @throws io_error if the folder cannot be opened or locked, or if another process or object holds it
inline io::owned_descriptor lock_folder(const std::filesystem::path& folder) {
    io::owned_descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (open.get() < 0) {
        io::throw_io_error(folder, "open this folder", errno);
    }
    io::lock_alone(open, folder,
                   ": another server uses this state folder, expected one of this server alone");
    return open;
}

/// Counts how many bits of each group of each adapter were asked for: by each client, by each tenant, and by
/// all. Query limits are checked against these counts.
///
/// Names are kept only as HMAC-SHA-256 under a key of this server, so that a client that is forgotten keeps
/// its count, and nobody who has the file alone can tell whose it is. The counts survive a restart in two
/// files: `usage_key`, which is made once, and `usage`.
///
/// Nothing is counted beyond what `usage` reserves, which was forced to the device: after a crash the
/// reserved numbers are the counts, which are at most a chunk too large and never too small. A thread of its
/// own reserves the next chunk when half of the last one is used up. A request that finds nothing reserved
/// reserves the chunk itself, and waits for the device.
///
/// Memory is taken only for what was asked: a row for each adapter, client and tenant, with a number for each
/// group. A request that failed leaves a number of 0 and what was reserved for it.
///
/// Several servers count for one limit in a shared_counts: there it is reserved before it is in the file.
/// Their rows are named under its key; in place of `usage_key` the folder has `server_id`, by which the store
/// knows this server. What a server reserved and did not use yet is of its own, and counts with the others.
///
/// Thread-safe: requests share a lock under which numbers are only looked up and added.
class query_counts {
  public:
    static constexpr std::size_t most_rows = std::size_t{1} << 16;     ///< the most rows of all scopes
    static constexpr std::size_t most_numbers = std::size_t{1} << 20;  ///< the most numbers of all rows

    /// Says what happens to a client or group that there is no room for.
    enum class when_full {
        evict,  ///< the rows whose largest number is smallest, of clients and then of tenants, make room and
                ///< begin anew
        refuse  ///< it is refused
    };

    /// Reads the counts, and locks the folder (lock_folder) while this lives. Removes what a process left
    /// that died while it wrote, and completes a first start that was not finished.
    /// @throws io_error as lock_folder, or if a file cannot be read or written; format_error for files that
    ///         are not ours or were changed, or for one without the other: nothing begins anew by itself,
    ///         since a count that is lost is a limit that is lost
    /// @param shared  null: this server counts alone
    explicit query_counts(std::filesystem::path folder, when_full full = when_full::refuse,
                          shared_counts* shared = nullptr);
    ~query_counts() {
        if (shared_ != nullptr) {
            shared_->end();
        }
    }

    /// The names of the rows that one client's requests to one adapter count in, by scope. In a row that is
    /// also that of the next scope they count once.
    using account = std::array<std::string, 3>;
    /// Returns the account of a client.
    /// @param client  64 hexadecimal digits
    /// @param tenant  an empty one makes the client a tenant of its own, whose row is the client's
    account account_of(std::string_view client, std::string_view tenant, std::string_view adapter) const;

    /// The result of `add`.
    struct outcome {
        enum { counted, limit_reached, no_room } what = counted;
        scope of = scope::client;  ///< the first scope whose limit was reached
        std::uint64_t bits = 0;    ///< the bits that this scope would have counted

        friend bool operator==(const outcome&, const outcome&) = default;
    };

    /// Returns how many bits are reserved at once for requests of `bits` bits where `used` bits are counted:
    /// a 32nd of the limit or half of what is left of it, whichever is less, and at least one request; or 64
    /// requests where there is no limit. So crashes near the limit do not end an adapter. Of what is left
    /// each of several servers takes its part.
    static std::uint64_t chunk(std::uint64_t bits, const std::optional<std::uint64_t>& limit,
                               std::uint64_t used, std::size_t servers = 1);

    /// Counts bits in all rows of an account, or in none if one of them would pass its limit.
    /// @param counts  if false, nothing is counted, and the outcome says whether a limit would be passed
    /// @throws io_error or unavailable_error if nothing is reserved any more and no more can be; nothing is
    ///         counted then
    outcome add(const account& rows, std::size_t group, std::uint64_t bits,
                const of_each_scope<std::uint64_t>& limits, bool counts = true);
    /// Takes back bits of a request that was not answered.
    void take_back(const account& rows, std::size_t group, std::uint64_t bits) noexcept;
    /// Lowers the numbers of a row, by `bits[group]` or to 0, for an administrator who knows that so much was
    /// counted by crashes and never answered. The file has it before this returns. Of several servers it is
    /// the number of this one.
    /// @return by how much they were lowered
    /// @throws io_error if the file cannot be written; unavailable_error if the store of several servers is
    ///         away. The counts stay
    std::vector<std::uint64_t> give_back(const std::string& name, std::vector<std::uint64_t> bits);
    /// Returns the bits that were counted, by scope; those of other servers are as last heard.
    /// @param of_others  if false, this server's alone
    std::array<std::uint64_t, 3> used(const account& rows, std::size_t group, bool of_others = true) const;
    /// Returns the number of rows of all scopes.
    std::size_t rows() const;

    /// Writes the counts themselves in the place of what is reserved, and stops reserving ahead. A server
    /// calls it last.
    /// @throws io_error or unavailable_error if that cannot be done; what was reserved stays reserved
    void save();

  private:
    struct number {
        std::uint64_t count = 0;
        std::uint64_t reserved = 0;  ///< of it, in the file
        // Of several servers:
        std::uint64_t others = 0;  ///< count of the others, as they were
        std::chrono::steady_clock::time_point heard_at{};
        std::uint64_t asked = 0;  ///< as of shared_counts::entry
        std::uint64_t lost = 0;   ///< within the count: what the store alone knew
        /// The most that the store can have of this server's. What it has before its first reply may be of a
        /// file that is gone.
        std::uint64_t ours() const noexcept {
            return std::max(heard_at == std::chrono::steady_clock::time_point() ? 0 : asked, reserved);
        }
    };
    /// What is to be reserved.
    struct want {
        std::uint64_t bits = 0;
        std::uint64_t least = 0;  ///< of it, that somebody waits for
        std::uint64_t had = 0;    ///< in the file, as the store was told
        std::optional<std::uint64_t> limit;
    };
    using row = std::map<std::size_t, number>;  // by group
    using place = std::pair<std::string, std::size_t>;

    void make_files() const;
    /// To count bits in all rows.
    struct attempt {
        bool must_wait = false;
        std::uint64_t bits = 0;               ///< that were counted
        std::array<std::uint64_t, 3> ends{};  ///< the counts then, without what was lost
        std::size_t evictions = 0;            ///< as of then
    };
    outcome count(const account& rows, std::size_t group, std::uint64_t bits,
                  const of_each_scope<std::uint64_t>& limits, bool counts, attempt& made);
    bool is_reserved(const account& rows, std::size_t group, const attempt& made);
    std::size_t read(std::string_view text);
    bool read_rows(std::string_view text);
    number& at(const std::string& name, std::size_t group);
    bool evict();
    std::vector<shared_counts::grant> reserve_in_store(std::map<place, want>& wanted);
    std::vector<shared_counts::entry> entries_after(const std::string& last, bool of_lowered = false);
    void reserve();
    void require_store() const;
    void append(std::string_view rows);
    void reserve_ahead(const std::stop_token& stop);
    void rewrite(bool exact, const std::string& lowered = {}, std::span<const std::uint64_t> by = {});

    std::filesystem::path folder_;
    io::owned_descriptor lock_;
    when_full full_;
    shared_counts* shared_;
    memory::secret_buffer<std::byte> key_;

    mutable std::mutex mutex_;
    std::map<std::string, row, std::less<>> counts_;  // by letter of the scope and hex of the hash
    std::size_t numbers_ = 0;
    std::size_t evictions_ = 0;
    std::map<place, want> wanted_;  // more than is reserved
    bool has_work_ = false;         // for the thread
    std::condition_variable_any work_;

    std::mutex disk_;  // before mutex_; of all below
    io::owned_descriptor usage_{-1};
    std::size_t length_ = 0;
    std::uint32_t sum_ = 0;
    std::size_t longest_ = 0;  // then it is written anew

    std::jthread ahead_;
};

namespace detail {

// The file: this line; a line for each row; one without a row, which ends the table; then a line for each
// time that something was reserved. Each begins with the CRC-32C of what the lines up to it say, and before
// them the key: beside another key the file is damaged. Each row is " name group:bits group:bits ...", and of
// several numbers of a group the largest counts.
inline constexpr std::string_view first_line = "tensafe split usage 3\n";
/// What a row's name begins with, by scope.
inline constexpr std::string_view letters = "cta";
inline constexpr std::size_t hash_digits = 64;
inline constexpr std::size_t name_length = 1 + hash_digits;
inline constexpr std::size_t key_bytes_of_hash = 32;
inline constexpr std::size_t server_id_bytes = 16;
/// Sums stay far from 2^64.
inline constexpr std::uint64_t largest_count = std::uint64_t{1} << 62;
/// Of one number, its checksum, name and line break included.
inline constexpr std::size_t longest_number = 10 + (1 + name_length) + (1 + 20 + 1 + 20) + 1;
/// Behind the table, until it is written anew.
inline constexpr std::size_t longest_log = std::size_t{4} << 20;
inline constexpr std::size_t longest_file = 2 * query_counts::most_numbers * longest_number + longest_log;

inline void add_line(std::string& to, std::uint32_t& sum, std::string_view rows) {
    sum = wire::crc32c({reinterpret_cast<const std::uint8_t*>(rows.data()), rows.size()}, sum);
    to.append(std::to_string(sum)).append(rows).append(1, '\n');
}

inline std::string number_text(std::size_t group, std::uint64_t bits) {
    return " " + std::to_string(group) + ":" + std::to_string(bits);
}

/// What the checksums of a file begin with.
inline std::uint32_t sum_of_key(std::span<const std::byte> key) {
    std::uint32_t sum = 0;
    std::memcpy(&sum, keystore::hmac_sha256(key, first_line).data(), sizeof sum);
    return sum;
}

/// A file in which nothing is counted.
inline std::string empty_table(std::uint32_t sum) {
    std::string text(first_line);
    add_line(text, sum, {});
    return text;
}

/// With whatever key.
inline bool is_empty_table(std::string_view text) {
    return text.starts_with(first_line) && text.ends_with('\n') &&
           text.find_first_not_of("0123456789", first_line.size()) == text.size() - 1;
}

inline io::owned_descriptor open_or_throw(const std::filesystem::path& path, int how, const char* action) {
    io::owned_descriptor opened(::open(path.c_str(), how | O_CLOEXEC));
    if (opened.get() < 0) {
        io::throw_io_error(path, action, errno);
    }
    return opened;
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

}  // namespace detail

inline query_counts::query_counts(std::filesystem::path folder, when_full full, shared_counts* shared)
    : folder_(std::move(folder)), lock_(lock_folder(folder_)), full_(full), shared_(shared) {
    io::remove_partial_files(folder_, {"usage", "usage_key", "server_id"});
    make_files();
    const std::filesystem::path key = folder_ / "usage_key";
    if (shared_ == nullptr) {
        key_ = io::read_private_file(key, detail::key_bytes_of_hash);
    } else {
        const auto given = shared_->key();
        key_ = memory::secret_buffer<std::byte>(given.size());
        std::copy(given.begin(), given.end(), key_.data());
    }
    require<format_error>(key_.size() == detail::key_bytes_of_hash,
                          {in_quotes(key.native()), ": got ", key_.size(), " bytes, expected a key of ",
                           detail::key_bytes_of_hash});
    sum_ = detail::sum_of_key(std::span(key_.data(), key_.size()));
    const std::filesystem::path usage = folder_ / "usage";
    length_ = read(io::read_file<std::string>(usage, detail::longest_file));
    longest_ = detail::longest_log;
    usage_ = detail::open_or_throw(usage, O_WRONLY | O_APPEND, "open for writing");
    if (::ftruncate(usage_.get(), static_cast<off_t>(length_)) != 0) {
        io::throw_io_error(usage, "take a torn line from", errno);
    }
    if (shared_ != nullptr) {
        const auto id = io::read_private_file(folder_ / "server_id", 2 * detail::server_id_bytes);
        const std::string text(reinterpret_cast<const char*>(id.data()), id.size());
        static_cast<void>(keystore::from_hex<detail::server_id_bytes>(text, "server_id"));
        shared_->begin(text, [this](const std::string& last) {
            const std::lock_guard after_what_is_granted(disk_);
            return entries_after(last);
        });
    }
    ahead_ = std::jthread([this](const std::stop_token& stop) { reserve_ahead(stop); });
}

/// Both files are there or neither: a count without its key, or a key without its counts, is a limit that was
/// lost. Where a first start ended between the two, nothing was counted yet.
inline void query_counts::make_files() const {
    const bool is_alone = shared_ == nullptr;
    const std::filesystem::path key = folder_ / (is_alone ? "usage_key" : "server_id");
    const std::filesystem::path other = folder_ / (is_alone ? "server_id" : "usage_key");
    const std::filesystem::path usage = folder_ / "usage";
    const auto is_there = [](const std::filesystem::path& path) {
        return std::filesystem::exists(std::filesystem::symlink_status(path));
    };
    require<format_error>(
        !is_there(other),
        {in_quotes(other.native()), ": this folder's server counted ", is_alone ? "with others" : "alone",
         ", expected one that counts ", is_alone ? "alone" : "with others", ": give each its own folder"});
    const bool has_key = is_there(key);
    const bool has_usage = is_there(usage);
    require<format_error>(
        has_key == has_usage ||
            (!has_key && detail::is_empty_table(io::read_file<std::string>(usage, detail::longest_file))),
        {in_quotes((has_key ? usage : key).native()), ": is missing, but ",
         in_quotes((has_key ? key : usage).native()),
         " is there: expected both or neither. Bring it back, or remove the other one to begin every query "
         "limit anew"});
    if (!has_key) {
        random::seed fresh = random::fresh_seed();
        const memory::wipe_guard guard(fresh);
        const auto made = std::as_bytes(std::span(fresh.bytes));
        const std::string nothing = detail::empty_table(detail::sum_of_key(is_alone ? made : shared_->key()));
        io::replace_file(usage, std::as_bytes(std::span(nothing)));
        io::force_folder_of(usage);  // before the key
        const std::string id = keystore::hex(made.first<detail::server_id_bytes>());
        io::create_private_file(key, is_alone ? made : std::as_bytes(std::span(id)));
    }
}

/// How much of it is whole: behind the table the last line may be torn, and no answer stands on that one.
inline std::size_t query_counts::read(std::string_view text) {
    const std::size_t length = text.size();
    std::size_t line = 1;
    const auto check = [&](bool holds, std::string_view problem) {
        if (!holds) {
            throw format_error(
                {in_quotes((folder_ / "usage").native()), ": line ", line, ": ", problem, ". Move it and ",
                 shared_ == nullptr ? "usage_key" : "server_id (or is --fleet-key another one?)",
                 " away to begin with no counts"});
        }
    };
    for (const char* const older : {"1", "2"}) {
        check(!text.starts_with(std::string("tensafe split usage ") + older + "\n"),
              text_of({"got version ", older, ", expected 3, which reserves"}));
    }
    check(text.starts_with(detail::first_line), "does not say \"tensafe split usage 3\"");
    text.remove_prefix(detail::first_line.size());
    bool has_table = false;
    for (++line; !text.empty(); ++line) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view rows = text.substr(0, end).substr(std::min(text.find(' '), end));
        std::string expected;
        std::uint32_t sum = sum_;
        detail::add_line(expected, sum, rows);
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
inline bool query_counts::read_rows(std::string_view text) {
    std::string name;
    while (text.starts_with(' ')) {
        text.remove_prefix(1);
        if (text.substr(0, 1).find_first_of(detail::letters) == 0) {
            name = text.substr(0, detail::name_length);
            if (name.size() != detail::name_length ||
                name.find_first_not_of("0123456789abcdef", 1) != name.npos) {
                return false;
            }
            text.remove_prefix(detail::name_length);
            continue;
        }
        const std::string_view one = text.substr(0, text.find(' '));
        text.remove_prefix(one.size());
        const std::size_t colon = std::min(one.find(':'), one.size());
        const auto group = number_of<std::uint64_t>(one.substr(0, colon));
        const auto bits = number_of<std::uint64_t>(one.substr(std::min(colon + 1, one.size())));
        if (name.empty() || !group || !bits || *bits == 0 || *bits > detail::largest_count) {
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

inline query_counts::account query_counts::account_of(std::string_view client, std::string_view tenant,
                                                      std::string_view adapter) const {
    const auto name = [&](char letter, std::string_view who) {
        // Neither keys nor tenants have a line break.
        const auto hash =
            keystore::hmac_sha256(std::span(key_.data(), key_.size()),
                                  std::string(1, letter).append(who).append(1, '\n').append(adapter));
        return letter + keystore::hex(hash);
    };
    const std::string own = name(detail::letters[0], client);
    return {own, tenant.empty() ? own : name(detail::letters[1], tenant), name(detail::letters[2], {})};
}

/// Which is made if it is not there.
inline query_counts::number& query_counts::at(const std::string& name, std::size_t group) {
    const auto [of, is_new] = counts_[name].try_emplace(group);
    numbers_ += is_new ? 1 : 0;
    return of->second;
}

inline std::uint64_t query_counts::chunk(std::uint64_t bits, const std::optional<std::uint64_t>& limit,
                                         std::uint64_t used, std::size_t servers) {
    return limit ? std::max(std::min(*limit / 32, (*limit - std::min(used, *limit)) / (2 * servers)), bits)
                 : 64 * bits;
}

inline query_counts::outcome query_counts::add(const account& rows, std::size_t group, std::uint64_t bits,
                                               const of_each_scope<std::uint64_t>& limits, bool counts) {
    for (;;) {
        attempt made;
        const outcome result = count(rows, group, bits, limits, counts, made);
        if (made.must_wait) {
            try {
                reserve();
            } catch (...) {
                take_back(rows, group, made.bits);
                throw;
            }
        }
        // Where others have the rest by now, or had it, it begins again and sees it.
        if (!made.must_wait || (made.bits > 0 && is_reserved(rows, group, made))) {
            return result;
        }
    }
}

/// As add, but that it may have to be reserved yet.
inline query_counts::outcome query_counts::count(const account& rows, std::size_t group, std::uint64_t bits,
                                                 const of_each_scope<std::uint64_t>& limits, bool counts,
                                                 attempt& made) {
    const std::lock_guard lock(mutex_);
    bool is_new_row = false;
    bool is_new = false;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const number* const known = detail::find(counts_, rows[i], group);
        const std::uint64_t others = known == nullptr ? 0 : known->others;
        const std::uint64_t after = (known == nullptr ? 0 : known->count) + others + bits;
        if (limits[i] && after > *limits[i]) {
            constexpr auto is_old = std::chrono::seconds(1);
            if (after - others > *limits[i] || std::chrono::steady_clock::now() - known->heard_at < is_old) {
                return {outcome::limit_reached, static_cast<scope>(i), after};
            }
            wanted_[{rows[i], group}].limit = limits[i];
            made.must_wait = true;  // to hear what they have
            return {};
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
    bool wants_more = false;
    std::array<number*, 3> numbers{};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (i > 0 && rows[i] == rows[i - 1]) {
            continue;  // a client that is its own tenant, or a tenant outside of the adapter's row
        }
        number& of = at(rows[i], group);
        numbers[i] = &of;
        std::optional<std::uint64_t> limit = limits[i];
        if (i == 0 && rows[1] == rows[0] && limits[1]) {
            limit = std::min(limit.value_or(*limits[1]), *limits[1]);
        }
        const auto ahead = [&](std::uint64_t more) {
            return std::min(of.count + bits + more, limit.value_or(detail::largest_count) - of.others);
        };
        const std::size_t servers = shared_ == nullptr ? 1 : shared_->servers();
        const std::uint64_t whole = chunk(bits, limit, of.count + of.others + bits, servers);
        const bool waits = of.count + bits > of.reserved;
        if (ahead(whole / 2) > of.reserved) {
            want& wanted = wanted_[{rows[i], group}];
            wanted.limit = limit;
            wanted.least = std::max(wanted.least, waits ? of.count + bits : 0);
            if (ahead(whole / 2) > wanted.bits) {
                wanted.bits = ahead(whole);
                has_work_ = wants_more = true;
            }
        }
        made.must_wait = made.must_wait || waits;
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] != nullptr) {
            numbers[i]->count += bits;
            made.ends[i] = numbers[i]->count - numbers[i]->lost;
        }
    }
    made.bits = bits;
    made.evictions = evictions_;
    if (wants_more && !made.must_wait) {
        work_.notify_one();
    }
    return {};
}

/// Whether all that an attempt counted is reserved; else it is taken back.
inline bool query_counts::is_reserved(const account& rows, std::size_t group, const attempt& made) {
    const std::lock_guard lock(mutex_);
    if (shared_ == nullptr || made.evictions != evictions_) {
        return shared_ == nullptr;  // who was evicted may be there anew: rather too much is counted
    }
    std::array<number*, 3> numbers{};
    bool result = true;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (i == 0 || rows[i] != rows[i - 1]) {
            numbers[i] = detail::find(counts_, rows[i], group);
            result = result && made.ends[i] + numbers[i]->lost <= numbers[i]->reserved;
        }
    }
    for (number* const of : numbers) {
        if (!result && of != nullptr) {
            of->count -= std::min(of->count, made.bits);
        }
    }
    return result;
}

/// Several at once, or with a full table each new client would cost a walk through all of it. Whether there
/// was one to evict: rows of clients, which make keys as they like, and where there are none left those of
/// tenants, which are addresses then. What the limit of all stands on stays.
inline bool query_counts::evict() {
    std::vector<std::pair<std::uint64_t, decltype(counts_)::iterator>> order;
    for (std::size_t scope = 0; scope < 2 && order.empty(); ++scope) {
        auto each = counts_.lower_bound(detail::letters.substr(scope, 1));
        for (; each != counts_.end() && each->first.front() == detail::letters[scope]; ++each) {
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
    ++evictions_;
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

inline void query_counts::take_back(const account& rows, std::size_t group, std::uint64_t bits) noexcept {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        number* const of = i > 0 && rows[i] == rows[i - 1] ? nullptr : detail::find(counts_, rows[i], group);
        if (of != nullptr) {
            of->count -= std::min(of->count, bits);  // too few, or none, if it was evicted meanwhile
        }
    }
}

inline std::vector<std::uint64_t> query_counts::give_back(const std::string& name,
                                                          std::vector<std::uint64_t> bits) {
    const std::lock_guard one_at_a_time(disk_);
    require_store();
    {
        const std::lock_guard lock(mutex_);
        for (std::size_t group = 0; group < bits.size(); ++group) {
            const number* const of = detail::find(counts_, name, group);
            bits[group] = of == nullptr ? 0 : std::min({of->count, of->reserved, bits[group]});
        }
    }
    try {
        rewrite(false, name, bits);
    } catch (...) {
        // The file may have the lower numbers: what is answered next is written first.
        const std::lock_guard lock(mutex_);
        for (std::size_t group = 0; group < bits.size(); ++group) {
            if (number* const of = detail::find(counts_, name, group)) {
                of->reserved = std::min(of->reserved, of->count);
            }
        }
        throw;
    }
    std::vector<shared_counts::entry> lowered;
    {
        const std::lock_guard lock(mutex_);
        for (std::size_t group = 0; group < bits.size(); ++group) {
            number* const of = detail::find(counts_, name, group);
            if (of == nullptr || of->reserved < bits[group]) {
                continue;  // evicted meanwhile, and may be there anew
            }
            const std::uint64_t before = of->ours();
            of->reserved -= bits[group];
            of->count -= std::min(of->count, bits[group]);
            if (const auto wanted = wanted_.find({name, group}); wanted != wanted_.end()) {
                for (std::uint64_t* const more : {&wanted->second.bits, &wanted->second.least}) {
                    *more -= std::min(*more, bits[group]);
                }
            }
            lowered.push_back({name, group, of->reserved, before});
        }
    }
    if (shared_ != nullptr) {
        try {
            shared_->lower(lowered);
        } catch (const unavailable_error&) {
            // It is given back, whenever the store hears of it.
        }
    }
    return bits;
}

inline std::array<std::uint64_t, 3> query_counts::used(const account& rows, std::size_t group,
                                                       bool of_others) const {
    const std::lock_guard lock(mutex_);
    std::array<std::uint64_t, 3> result{};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const number* const of = detail::find(counts_, rows[i], group);
        result[i] = of == nullptr ? 0 : of->count + (of_others ? of->others : 0);
    }
    return result;
}

inline std::size_t query_counts::rows() const {
    const std::lock_guard lock(mutex_);
    return counts_.size();
}

inline void query_counts::reserve_ahead(const std::stop_token& stop) {
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

/// @throws unavailable_error unless this server counts alone, or its store is there, as far as is known
inline void query_counts::require_store() const {
    if (shared_ != nullptr && !shared_->is_up()) {
        throw unavailable_error("the store of counts cannot be asked now", std::chrono::seconds(1));
    }
}

/// Asks the store of several servers. `asked` comes first: a reply may be lost.
inline std::vector<shared_counts::grant> query_counts::reserve_in_store(std::map<place, want>& wanted) {
    std::vector<shared_counts::claim> claims;
    {
        const std::lock_guard lock(mutex_);
        for (auto& [of, bits] : wanted) {
            number none;
            number* const found = detail::find(counts_, of.first, of.second);
            number& known = found == nullptr ? none : *found;
            const std::uint64_t asked = known.ours();
            const std::uint64_t limit = bits.limit.value_or(shared_counts::most_bits);
            bits.had = known.reserved;
            bits.bits = std::max(bits.bits, known.reserved);
            known.asked = std::max(known.asked, bits.bits);
            claims.push_back({{of.first, of.second, known.reserved, asked},
                              bits.least,
                              bits.bits,
                              std::min(limit, shared_counts::most_bits)});
        }
    }
    return shared_->reserve(claims);
}

/// Of whole rows, behind this one; or of all that the store may have more of than the file.
inline std::vector<shared_counts::entry> query_counts::entries_after(const std::string& last,
                                                                     bool of_lowered) {
    constexpr std::size_t enough = 256;
    std::vector<shared_counts::entry> result;
    const std::lock_guard lock(mutex_);
    for (auto each = counts_.upper_bound(last);
         each != counts_.end() && (of_lowered || result.size() < enough); ++each) {
        for (const auto& [group, of] : each->second) {
            if (of_lowered ? of.ours() > of.reserved : of.reserved > 0) {
                result.push_back({each->first, group, of.reserved, of.ours()});
            }
        }
    }
    return result;
}

/// Appends what is wanted, also by others, as one line.
inline void query_counts::reserve() {
    // Few at once, so that no other server waits long.
    const std::size_t most_claims = shared_ == nullptr ? most_numbers : 1'000;
    require_store();
    const std::lock_guard one_at_a_time(disk_);
    require_store();  // still: it was waited for
    decltype(wanted_) now;
    {
        const std::lock_guard lock(mutex_);
        for (const bool waits : {true, false}) {
            for (auto each = wanted_.begin(); each != wanted_.end() && now.size() < most_claims; ++each) {
                if ((each->second.least > 0) == waits) {
                    now.insert(*each);
                }
            }
        }
    }
    if (now.empty()) {
        return;  // somebody else did it
    }
    if (usage_.get() < 0 || length_ > longest_) {
        rewrite(false);
    }
    std::vector<shared_counts::grant> granted;
    if (shared_ != nullptr) {
        granted = reserve_in_store(now);
    } else {
        for (const auto& [of, wanted] : now) {
            granted.push_back({wanted.bits});
        }
    }
    std::string rows;
    auto got = granted.begin();
    for (const auto& [of, wanted] : now) {
        if (got->granted > wanted.had) {
            rows.append(" ").append(of.first).append(detail::number_text(of.second, got->granted));
        }
        ++got;
    }
    if (!rows.empty()) {
        append(rows);
    }
    const std::lock_guard lock(mutex_);
    got = granted.begin();
    for (const auto& [of, bits] : now) {
        number* const known = detail::find(counts_, of.first, of.second);
        if (known != nullptr && (shared_ == nullptr || known->asked >= bits.bits)) {
            known->count += got->lost;
            known->lost += got->lost;
            known->reserved = std::max(known->reserved, got->granted);
            known->others = got->others;
            known->heard_at = std::chrono::steady_clock::now();
        }  // else it was evicted, and may be there anew
        if (const auto wanted = wanted_.find(of);
            wanted != wanted_.end() && wanted->second.bits <= bits.bits) {
            wanted_.erase(wanted);
        }
        ++got;
    }
}

inline void query_counts::append(std::string_view rows) {
    std::string line;
    std::uint32_t sum = sum_;
    detail::add_line(line, sum, rows);
    const int failure = io::write_and_force(usage_, std::as_bytes(std::span<const char>(line)));
    if (failure != 0) {
        if (::ftruncate(usage_.get(), static_cast<off_t>(length_)) != 0) {
            usage_ = io::owned_descriptor(-1);
        }
        io::throw_io_error(folder_ / "usage", "reserve counts", failure);
    }
    length_ += line.size();
    sum_ = sum;
}

/// A slice at a time: requests go on meanwhile, and evictions. What is reserved stays: who reserves is here.
/// In the file one row may have less of each group.
inline void query_counts::rewrite(bool exact, const std::string& lowered, std::span<const std::uint64_t> by) {
    std::string text(detail::first_line);
    std::uint32_t sum = detail::sum_of_key(std::span(key_.data(), key_.size()));
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
                const std::uint64_t less = last == lowered && group < by.size() ? by[group] : 0;
                const std::uint64_t kept = of.reserved - std::min(of.reserved, less);
                rows += kept > 0 ? detail::number_text(group, kept) : std::string();
            }
            if (rows.size() > 1 + detail::name_length) {
                detail::add_line(slice, sum, rows);
            }
        }
        is_over = each == counts_.end();
        lock.unlock();
        text += slice;
    }
    detail::add_line(text, sum, {});
    const std::filesystem::path usage = folder_ / "usage";
    io::replace_file(usage, std::as_bytes(std::span<const char>(text)));
    usage_ = io::owned_descriptor(-1);  // of the file that was replaced
    io::force_folder_of(usage);
    usage_ = detail::open_or_throw(usage, O_WRONLY | O_APPEND, "open for writing");
    length_ = text.size();
    longest_ = length_ + detail::longest_log;
    sum_ = sum;
}

inline void query_counts::save() {
    ahead_ = {};
    const std::lock_guard one_at_a_time(disk_);
    rewrite(true);
    if (shared_ != nullptr) {
        shared_->lower(entries_after({}, true));
    }
}

/// The store of a session::server_session that counts in a query_counts, which all sessions of a server
/// share: what one session answers is counted in the rows of its client, in files that survive a crash.
///
/// Thread-safe.
class file_store : public session::store {
  public:
    /// Makes the store of one session.
    /// @param counts  outlives this
    /// @param rows    the account of the session's client
    /// @param groups  the cost of a request and its limits for each group of the model; outlives this
    file_store(query_counts& counts, query_counts::account rows, std::span<const query_limits> groups)
        : counts_(counts), rows_(std::move(rows)), groups_(groups) {}

    /// @throws refused_error (query_limit) if a limit is reached or there is no room for another client;
    ///         io_error if the count cannot be made safe
    void add(std::size_t group) override { count(group, true); }
    void take_back(std::size_t group) noexcept override {
        counts_.take_back(rows_, group, groups_[group].request);
    }
    void admit_block(std::size_t group) override { count(group, false); }

  protected:
    /// Throws for a request that is refused, and names of what others asked no number. A server that words
    /// its refusals itself overrides it.
    [[noreturn]] virtual void refuse(std::size_t group, const query_counts::outcome& why) {
        const auto of = static_cast<std::size_t>(why.of);
        throw session::refused_error(
            why.what == query_counts::outcome::no_room ? "request: no more clients are counted"
            : of > 0                                   ? text_of({"request: with it the scope ", of,
                                                                  " would have got more bits of this input's A than it may have"})
                     : text_of({"request: with it this client would have got ", why.bits,
                                " bits of this input's A, expected at most ",
                                groups_[group].limits[of].value_or(0)}),
            session::refusal::query_limit);
    }

  private:
    void count(std::size_t group, bool counts) {
        const query_limits& of = groups_[group];
        const auto outcome = counts_.add(rows_, group, of.request, of.limits, counts);
        if (outcome.what != query_counts::outcome::counted) {
            refuse(group, outcome);
        }
    }

    query_counts& counts_;
    const query_counts::account rows_;
    const std::span<const query_limits> groups_;
};

}  // namespace tensafe::serving
