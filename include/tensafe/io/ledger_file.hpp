#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/json.hpp>
#include <tensafe/io/message.hpp>
#include <tensafe/io/owned_descriptor.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/privacy/ledger.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace tensafe::io {

namespace detail {

inline constexpr std::string_view ledger_format = "tensafe privacy ledger";
/// Of one principal: its name, in which a backslash may stand before each byte, four keys and three numbers.
inline constexpr std::size_t longest_ledger_file =
    privacy::ledger::most_principals * (2 * privacy::ledger::longest_name + 256) + 1024;

inline double ledger_number(const nlohmann::ordered_json& value, const char* name, const std::string& where) {
    if (!value.is_number()) {
        throw format_error(where + ": \"" + name + "\" is " + value.type_name() + ", wanted a number");
    }
    return value.get<double>();
}

inline const nlohmann::ordered_json& ledger_member(const nlohmann::ordered_json& object, const char* name,
                                                   const std::string& where) {
    const auto found = object.find(name);
    if (found == object.end()) {
        throw format_error(where + ": \"" + name + "\" is missing");
    }
    return *found;
}

/// @throws format_error unless `value` is an object of `members` members
inline void check_ledger_object(const nlohmann::ordered_json& value, std::size_t members,
                                const std::string& where) {
    if (!value.is_object() || value.size() != members) {
        throw format_error(where + ": got " +
                           (value.is_object() ? "an object of " + std::to_string(value.size()) + " members"
                                              : std::string(value.type_name())) +
                           ", wanted an object of " + std::to_string(members) + " members");
    }
}

inline std::uint64_t ledger_count(const nlohmann::ordered_json& value, const char* name,
                                  const std::string& where) {
    if (!value.is_number_unsigned()) {
        throw format_error(where + ": \"" + name + "\" is " + quote(value.dump(-1, ' ', true)) +
                           ", wanted a whole number from 0 to 2^64 - 1");
    }
    return value.get<std::uint64_t>();
}

}  // namespace detail

/// A ledger's state as JSON: {"format": "tensafe privacy ledger", "version": 1, "principals": [{"name",
/// "mu_squared", "delta_slack", "releases"}, ...]}, a line for each member. Numbers are the shortest decimals
/// that stand for exactly their values.
inline std::string ledger_json(const privacy::ledger_state& state) {
    nlohmann::ordered_json document;
    document["format"] = detail::ledger_format;
    document["version"] = 1;
    auto principals = nlohmann::ordered_json::array();
    for (const auto& [name, spent] : state.principals) {
        nlohmann::ordered_json one;
        one["name"] = name;
        one["mu_squared"] = spent.mu_squared;
        one["delta_slack"] = spent.delta_slack;
        one["releases"] = spent.releases;
        principals.push_back(std::move(one));
    }
    document["principals"] = std::move(principals);
    return document.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

/// A state that ledger_json wrote.
/// @param text  taken for hostile
/// @param name  how messages call it
/// @throws format_error for text that is too long, not JSON or not of this form, a principal that comes twice
///         or has no name, and numbers that no ledger comes to
inline privacy::ledger_state read_ledger_json(std::string_view text, std::string_view name = "ledger JSON") {
    const std::string file = quote(name);
    if (text.size() > detail::longest_ledger_file) {
        throw format_error(file + ": got " + std::to_string(text.size()) + " bytes, wanted at most " +
                           std::to_string(detail::longest_ledger_file));
    }
    const nlohmann::ordered_json document =
        parse_strict_json(text, file, privacy::ledger::most_principals * 5 + 4);
    detail::check_ledger_object(document, 3, file);
    const nlohmann::ordered_json& format = detail::ledger_member(document, "format", file);
    if (format != detail::ledger_format) {
        throw format_error(file + ": \"format\" is " + quote(format.dump(-1, ' ', true)) + ", wanted \"" +
                           std::string(detail::ledger_format) + '"');
    }
    const nlohmann::ordered_json& version = detail::ledger_member(document, "version", file);
    if (detail::ledger_count(version, "version", file) != 1) {
        throw format_error(file + ": got version " + version.dump() + ", wanted 1");
    }
    const nlohmann::ordered_json& principals = detail::ledger_member(document, "principals", file);
    if (!principals.is_array()) {
        throw format_error(file + ": \"principals\" is " + principals.type_name() + ", wanted an array");
    }
    privacy::ledger_state state;
    for (const nlohmann::ordered_json& each : principals) {
        const std::string where = file + ": principal number " + std::to_string(state.principals.size());
        detail::check_ledger_object(each, 4, where);
        const nlohmann::ordered_json& principal = detail::ledger_member(each, "name", where);
        if (!principal.is_string() ||
            !privacy::ledger::is_principal(principal.get_ref<const std::string&>())) {
            throw format_error(where + ": \"name\" is " + quote(principal.dump(-1, ' ', true)) +
                               ", wanted 1 to " + std::to_string(privacy::ledger::longest_name) +
                               " bytes of UTF-8 without control characters");
        }
        privacy::spent_cost spent;
        spent.mu_squared =
            detail::ledger_number(detail::ledger_member(each, "mu_squared", where), "mu_squared", where);
        spent.delta_slack =
            detail::ledger_number(detail::ledger_member(each, "delta_slack", where), "delta_slack", where);
        spent.releases =
            detail::ledger_count(detail::ledger_member(each, "releases", where), "releases", where);
        spent.check(where);
        if (!state.principals.emplace(principal.get_ref<const std::string&>(), spent).second) {
            throw format_error(where + ": " + quote(principal.get_ref<const std::string&>()) +
                               " comes twice");
        }
    }
    return state;
}

/// What to do where there is no ledger file. One that was moved or mistyped is not there either: whoever
/// knows that there must be one should refuse.
enum class missing_ledger { start_empty, refuse };

/// Keeps a privacy::ledger in a file: `privacy::ledger spent(budget,
/// std::make_unique<io::ledger_file>(path))`.
///
/// One process at a time: the file <path>.lock, which stays, is locked (flock) as long as this object lives,
/// and the system gives the lock back when the process dies, however it dies. Between machines that share a
/// network file system that lock may mean nothing: use a local one.
///
/// Each state is written to <path>.partial, forced to the device, renamed over `path`, and the folder forced
/// to the device (confirm): milliseconds. A crash or power failure at any moment leaves one of the two
/// states. Both files have mode 0600. A file that its group or others may read or write, or of another user
/// but root, is refused.
///
/// Whoever can write the file or the folder decides what was spent: an older copy that is put back is not
/// noticed.
///
/// Not copyable. One thread at a time, which the ledger sees to. It does not work in a child of fork: both
/// processes would spend the same budget. Grants that were given before a fork must be used in one of the two
/// processes only.
class ledger_file final : public privacy::ledger_store {
  public:
    /// Locks the file and reads it; where there is none, an empty one is written.
    /// @throws io_error if it is in use, belongs to others, cannot be locked, read or written, or is missing
    ///         and must not be; format_error if it is no ledger
    explicit ledger_file(std::filesystem::path path,
                         missing_ledger when_missing = missing_ledger::start_empty)
        : path_(std::move(path)), lock_path_(with(".lock")), partial_(with(".partial")), lock_(lock()) {
        // A link to nowhere counts as something: whoever made it wanted a ledger there.
        struct stat status {};
        if (::lstat(path_.c_str(), &status) == 0) {
            static_cast<void>(load());
            return;
        }
        if (errno != ENOENT) {
            detail::throw_io_error(path_, "open", errno);
        }
        if (when_missing == missing_ledger::refuse) {
            throw io_error(quote(path_.string()) + ": there is no ledger, and an empty one is not wanted");
        }
        replace({});
        confirm();
    }

    /// The state in the file.
    /// @throws io_error if it cannot be read or others may; format_error if it is no ledger
    privacy::ledger_state load() override {
        const auto bytes = read_private_file(path_, detail::longest_ledger_file);
        return read_ledger_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path_.string());
    }

    /// @throws io_error, with the file untouched: the system refused, this is the child of a fork, or
    ///         somebody removed the lock file
    void replace(const privacy::ledger_state& state) override {
        check_lock();
        const std::string text = ledger_json(state);
        // What a process that died left there is nobody's: the lock is ours.
        static_cast<void>(::unlink(partial_.c_str()));
        detail::owned_descriptor file(::open(
            partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
        if (file.get() < 0) {
            detail::throw_io_error(partial_, "create", errno);
        }
        int failure = 0;
        for (std::size_t done = 0; done < text.size() && failure == 0;) {
            const ssize_t count = ::write(file.get(), text.data() + done, text.size() - done);
            if (count >= 0) {
                done += static_cast<std::size_t>(count);
            } else if (errno != EINTR) {
                failure = errno;
            }
        }
        if (failure == 0 && ::fsync(file.get()) != 0) {
            failure = errno;
        }
        if (const int closing = file.close(); failure == 0) {
            failure = closing;
        }
        if (failure == 0 && std::rename(partial_.c_str(), path_.c_str()) != 0) {
            failure = errno;
        }
        if (failure != 0) {
            static_cast<void>(::unlink(partial_.c_str()));
            detail::throw_io_error(path_, "write", failure);
        }
    }

    /// @throws io_error if the folder cannot be forced to the device
    void confirm() override { detail::force_folder_of(path_); }

    const std::filesystem::path& path() const noexcept { return path_; }

  private:
    std::filesystem::path with(const char* ending) const {
        std::filesystem::path result = path_;
        result += ending;
        return result;
    }

    detail::owned_descriptor lock() const {
        detail::owned_descriptor file(
            ::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
                   S_IRUSR | S_IWUSR));
        if (file.get() < 0) {
            detail::throw_io_error(lock_path_, "open", errno);
        }
        struct stat status {};
        if (::fstat(file.get(), &status) != 0) {
            detail::throw_io_error(lock_path_, "read the mode", errno);
        }
        detail::check_owner(lock_path_, status);
        while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK) {
                throw io_error(quote(path_.string()) +
                               ": is in use by another ledger, of this process or another: one at a time");
            }
            if (errno != EINTR) {
                detail::throw_io_error(lock_path_, "lock", errno);
            }
        }
        return file;
    }

    /// @throws io_error if somebody else may have locked the file as well
    void check_lock() const {
        if (::getpid() != process_) {
            throw io_error(quote(path_.string()) +
                           ": was opened before this process was forked: only its parent may use it");
        }
        struct stat ours {};
        struct stat there {};
        if (::fstat(lock_.get(), &ours) != 0 || ::stat(lock_path_.c_str(), &there) != 0 ||
            ours.st_dev != there.st_dev || ours.st_ino != there.st_ino) {
            throw io_error(quote(lock_path_.string()) +
                           ": was removed or replaced while the ledger was in use: start again");
        }
    }

    std::filesystem::path path_;
    std::filesystem::path lock_path_;
    std::filesystem::path partial_;
    pid_t process_ = ::getpid();
    detail::owned_descriptor lock_;
};

}  // namespace tensafe::io
