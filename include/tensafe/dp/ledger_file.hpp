#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/dp/ledger.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/json.hpp>
#include <tensafe/io/private_file.hpp>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace tensafe::dp {

namespace detail {

inline constexpr std::string_view ledger_format = "tensafe privacy ledger";
/// The most bytes of a file: for each principal its name, with backslashes, four keys and three numbers.
inline constexpr std::size_t longest_ledger_file =
    ledger::most_principals * (2 * ledger::longest_name + 256) + 1024;

inline double ledger_number(const io::json_value& object, const char* name, const std::string& where) {
    const io::json_value& value = object.at(name, where);
    // ledger_json writes a point or an exponent always; a whole number might not fit into a double.
    return value
        .checked(value.is == io::json_value::kind::real, where + ": " + name,
                 "a number with a point or an exponent")
        .number;
}

}  // namespace detail

/// Writes a ledger's state as JSON: {"format": "tensafe privacy ledger", "version": 1, "principals":
/// [{"name", "mu_squared", "delta_slack", "releases"}, ...]}, a line for each member. Numbers are decimals
/// that give exactly their values.
inline std::string ledger_json(const ledger_state& state) {
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

/// Reads a state that ledger_json wrote.
/// @param text  treated as untrusted
/// @param name  how messages call it
/// @throws format_error for text that is too long, not JSON or not of this form, a principal that comes twice
///         or has no name, and numbers that no ledger comes to
inline ledger_state read_ledger_json(std::string_view text, std::string_view name = "ledger JSON") {
    const std::string file = quote(name);
    require<format_error>(
        text.size() <= detail::longest_ledger_file,
        {file, ": got ", text.size(), " bytes, expected at most ", detail::longest_ledger_file});
    const io::json_value document = io::parse_strict_json(text, file, ledger::most_principals * 5 + 4);
    document.check_members(3, file);
    const io::json_value& format = document.at("format", file);
    format.checked(format.is_string() && format.text == detail::ledger_format, file + ": format",
                   quote(detail::ledger_format));
    const io::json_value& version = document.at("version", file);
    version.checked(version.checked_count(file + ": version") == 1, file + ": version", "1");
    ledger_state state;
    for (const io::json_value& each : document.at("principals", file).checked_array(file + ": principals")) {
        const std::string where = file + ": principal number " + std::to_string(state.principals.size());
        each.check_members(4, where);
        const io::json_value& name_of = each.at("name", where);
        const std::string& principal =
            name_of
                .checked(name_of.is_string() && ledger::is_principal(name_of.text), where + ": name",
                         "1 to " + std::to_string(ledger::longest_name) +
                             " bytes of UTF-8 without control characters")
                .text;
        odometer spent;
        spent.mu_squared = detail::ledger_number(each, "mu_squared", where);
        spent.delta_slack = detail::ledger_number(each, "delta_slack", where);
        spent.releases = each.at("releases", where).checked_count(where + ": releases");
        spent.check(where);
        require<format_error>(state.principals.emplace(principal, spent).second,
                              {where, ": ", in_quotes(principal), " comes twice"});
    }
    return state;
}

/// Says what to do where there is no ledger file. Use start_empty once, where a client is set up: afterwards
/// a file that is not there was moved or mistyped, and an empty one in its place would spend the budget
/// again.
enum class missing_ledger { start_empty, refuse };

/// Keeps a ledger in a file: `dp::ledger spent(budget,
/// std::make_unique<dp::ledger_file>(path))`.
///
/// One process at a time: the file `<path>.lock`, which stays, is locked (flock) as long as this object
/// lives, and the system gives the lock back when the process dies, however it dies. A child of fork has the
/// lock too, and keeps it until it ends or calls exec. Between machines that share a network file system the
/// lock may mean nothing: use a local one.
///
/// Each state is written to `<path>.partial`, forced to the device, renamed over the ledger, and the folder
/// forced to the device where its file system can do that (confirm): milliseconds. A crash or power failure
/// at any moment leaves one of the two states. Both files have mode 0600. A file that its group or others may
/// read or write, or of another user but root, is refused. So is a link, or a file with a second name: under
/// each name it would have another lock, and spend its budget again.
///
/// The folder is opened once, for reading: later it may be moved, and the process may go elsewhere.
///
/// Whoever can write the file or the folder decides what was spent: an older copy that is put back is not
/// noticed.
///
/// Not copyable. One thread at a time, which the ledger sees to. It does not work in a child of fork: both
/// processes would spend the same budget. Charges that were given before a fork must be used in one of the
/// two processes only.
class ledger_file final : public ledger_store {
  public:
    /// Locks the file; where there is none, an empty one is written if that is needed. What is in it only
    /// load() sees, which ledger calls at once.
    /// @throws io_error if it is in use, is a link or has several names, cannot be locked or written, or is
    ///         missing and must not be, and if its folder cannot be opened
    explicit ledger_file(const std::filesystem::path& path,
                         missing_ledger when_missing = missing_ledger::refuse)
        : path_(absolute(path)),
          name_(path_.filename().string()),
          folder_(io::open_folder_of(path_)),
          lock_(lock()) {
        if (is_there()) {
            return;
        }
        require<io_error>(when_missing != missing_ledger::refuse,
                          {in_quotes(path_.native()),
                           ": there is no ledger; if there was one, find it; to begin with nothing spent, "
                           "open it once with dp::missing_ledger::start_empty"});
        replace({});
        confirm();
    }

    /// Reads the state in the file.
    /// @throws io_error if it cannot be read or others may; format_error if it is no ledger
    ledger_state load() override {
        static_cast<void>(is_there());
        const auto bytes = io::read_private_file(
            io::owned_descriptor(::openat(folder_.get(), name_.c_str(),
                                          O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)),
            path_, detail::longest_ledger_file);
        return read_ledger_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path_.string());
    }

    /// Stores a state in the place of the file's.
    /// @throws io_error, with the file untouched: the system refused, this is the child of a fork, somebody
    ///         removed the lock file, or the ledger is a link or has several names by now
    void replace(const ledger_state& state) override {
        check_lock();
        const std::string text = ledger_json(state);
        io::replace_private_file(folder_, path_, std::as_bytes(std::span(text)), "write",
                                 [&] { static_cast<void>(is_there()); });
    }

    /// Forces the folder to the device.  @throws io_error if that cannot be done
    void confirm() override { io::force_folder(folder_, path_); }

    /// The absolute path at which the ledger stood when this was made.
    const std::filesystem::path& path() const noexcept { return path_; }

  private:
    static std::filesystem::path absolute(const std::filesystem::path& path) {
        std::error_code failure;
        std::filesystem::path result = std::filesystem::absolute(path, failure);
        require<io_error>(!failure && result.has_filename(),
                          {in_quotes(path.native()), ": names no file",
                           (failure ? ": " + failure.message() : std::string())});
        return result;
    }

    io::owned_descriptor lock() const {
        const std::filesystem::path lock_path = path_.string() + ".lock";
        io::owned_descriptor file(::openat(folder_.get(), (name_ + ".lock").c_str(),
                                           O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
                                           S_IRUSR | S_IWUSR));
        io::check_owner(lock_path, io::status_of(file, lock_path));
        io::lock_alone(file, path_,
                       ": is in use by another ledger, of this process or another, or by a child that one "
                       "forked: one at a time");
        return file;
    }

    /// Whether there is a ledger, which must be a file of one name.
    bool is_there() const {
        struct stat status {};
        if (::fstatat(folder_.get(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno == ENOENT) {
                return false;
            }
            io::throw_io_error(path_, "open", errno);
        }
        require<io_error>(S_ISREG(status.st_mode),
                          {in_quotes(path_.native()),
                           (S_ISLNK(status.st_mode) ? ": is a link; expected the path of the ledger itself"
                                                    : ": is not a regular file")});
        require<io_error>(status.st_nlink == 1,
                          {in_quotes(path_.native()), ": is a file with ", status.st_nlink,
                           " names (hard links); expected one, for each has a lock of its own"});
        return true;
    }

    /// Checks the lock.  @throws io_error if somebody else may have locked the file as well
    void check_lock() const {
        require<io_error>(::getpid() == process_,
                          {in_quotes(path_.native()),
                           ": was opened before this process was forked: only its parent may use it"});
        require<io_error>(io::status_at(lock_, folder_, name_ + ".lock").has_value(),
                          {in_quotes(path_.string() + ".lock"),
                           ": was removed or replaced while the ledger was in use: start again"});
    }

    std::filesystem::path path_;
    std::string name_;
    io::owned_descriptor folder_;
    pid_t process_ = ::getpid();
    io::owned_descriptor lock_;
};

}  // namespace tensafe::dp
