#pragma once

#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/keystore/key_file_format.hpp>
#include <tensafe/keystore/passphrase.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

// Key files in their folder: opened by one rule, and replaced by one at a time.

namespace tensafe::keystore {

namespace detail {

/// Opens a key file, at which nothing else may stand.
inline io::owned_descriptor open_key_file(int folder, const std::filesystem::path& name,
                                          const std::filesystem::path& path, int access) {
    io::owned_descriptor file(
        ::openat(folder, name.c_str(), access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    require<io_error>(file.get() >= 0 || errno != ELOOP,
                      {in_quotes(path.native()), ": is a link; expected the path of the key file itself"});
    const struct stat status = io::status_of(file, path);
    require<io_error>(!S_ISREG(status.st_mode) || (status.st_mode & 07777) == (S_IRUSR | S_IWUSR),
                      {in_quotes(path.native()), ": got mode ", io::detail::octal(status.st_mode),
                       ", expected 0600 (chmod 600): a key is for its owner alone"});
    return file;
}

/// The bytes of a key file, and what they say.
struct read_key {
    memory::secret_buffer<std::byte> bytes;
    key_info info;
};

inline read_key read_open_key(const io::owned_descriptor& file, const std::filesystem::path& path) {
    memory::secret_buffer<std::byte> bytes = io::read_private_file(file, path, longest_key_file);
    const key_info info = parse_key_file(bytes.span(), quote(path.string()));
    return {std::move(bytes), info};
}

inline read_key read_key_at(const std::filesystem::path& path) {
    return read_open_key(open_key_file(AT_FDCWD, path, path, O_RDONLY), path);
}

/// The right to replace a key file: nobody else has it as long as this object lives. The lock (flock) is on
/// the file itself, so that none stays behind; what replaces it is another file, with a lock of its own.
class key_file_lock {
  public:
    explicit key_file_lock(const std::filesystem::path& path)
        : path_(path), folder_(io::open_folder_of(path)), file_(open_file()) {
        io::lock_alone(file_, path_, ": is being replaced by somebody else");
        check_place();
    }

    const io::owned_descriptor& file() const noexcept { return file_; }

    /// Puts other bytes in the place of the file, as in docs/keys.md.
    void replace(std::span<const std::byte> bytes) {
        io::replace_private_file(folder_, path_, bytes, "replace", [&] { check_place(); });
        io::force_folder(folder_, path_, "force the folder to the device (the new key file stands there)");
    }

  private:
    io::owned_descriptor open_file() const {
        require<io_error>(path_.has_filename(), {in_quotes(path_.native()), ": names no file"});
        return open_key_file(folder_.get(), path_.filename(), path_, O_RDWR);
    }

    /// Checks the lock.  @throws io_error unless the file that we have locked has this name, and no other
    void check_place() const {
        const auto ours = io::status_at(file_, folder_, path_.filename());
        require<io_error>(ours.has_value(),
                          {in_quotes(path_.native()), ": was replaced by somebody else meanwhile"});
        require<io_error>(ours->st_nlink == 1,
                          {in_quotes(path_.native()), ": is a file with ", ours->st_nlink,
                           " names (hard links), and under the others the old key would stay; expected one: "
                           "remove the others (a creation that was killed may have left ",
                           in_quotes(path_.string() + ".partial-XXXXXX"), ")"});
    }

    std::filesystem::path path_;
    io::owned_descriptor folder_;
    io::owned_descriptor file_;
};

}  // namespace detail

// A client's secret key in a file: docs/keys.md says what is in it and what is promised.
//
// All functions: any threads and processes. A path whose last part is a link is refused, and so is a file of
// another mode than 0600, of another user but root, or that is no regular file (io_error); what is in it is
// treated as untrusted (format_error, unsupported_error). Seeds and keys of passphrases are wiped. What a
// derivation of a key from a passphrase costs is in scrypt_cost; without one, microseconds.

/// A key from a file, and what the file says of it.
template <ckks::parameter_set P>
struct stored_key {
    ckks::secret_key<P> key;
    key_info info;
};

namespace detail {

template <ckks::parameter_set P>
void check_key_set(const key_info& info, const std::filesystem::path& path) {
    require<parameter_error>(info.set == wire::set_id<P>,
                             {in_quotes(path.native()), ": got a key for ", wire::set_name(info.set),
                              ", expected one for ", wire::set_name<P>()});
}

inline void check_scrypt_cost(const scrypt_cost& cost) {
    require<parameter_error>(cost.allowed(),
                             {"key file: got ", cost.text(),
                              "; expected N from 2^10 to 2^20 and below 2^(16 r), r up to 64, p up to 16, 1 "
                              "to 256 MiB, and no more than four times the work of the default"});
}

inline memory::secret_buffer<std::byte> make_key_file(const key_info& info, const random::seed& seed,
                                                      const passphrase& phrase, const scrypt_cost& cost) {
    memory::secret_buffer<std::byte> bytes(key_file_bytes);
    write_key_file_bytes(info, seed, phrase, cost, bytes.span().first<key_file_bytes>());
    return bytes;
}

/// The time in seconds; a clock that is far off gives the first or the last that a key file can say.
inline std::chrono::sys_seconds this_second() {
    constexpr std::chrono::seconds first{0};
    constexpr std::chrono::seconds last{static_cast<std::int64_t>(last_key_time)};
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    return std::chrono::sys_seconds(std::clamp(std::chrono::seconds(now.time_since_epoch()), first, last));
}

/// Rotates a key file after a check of what is there.
template <class Check>
key_info rotate_checked(const std::filesystem::path& path, const passphrase& phrase, Check check) {
    key_file_lock lock(path);
    const read_key old = read_open_key(lock.file(), path);
    check(old.info);
    {
        // Who does not know the passphrase must not destroy the key.
        random::seed seed;
        const memory::wipe_guard guard(seed);
        read_key_seed(old.bytes.span(), old.info, phrase, quote(path.string()), seed);
    }
    key_info info = old.info;
    require<format_error>(info.generation != std::numeric_limits<std::uint64_t>::max(),
                          {in_quotes(path.native()), ": is of the last generation, 2^64 - 1"});
    ++info.generation;
    info.created = this_second();
    random::seed seed = random::fresh_seed();
    const memory::wipe_guard guard(seed);
    lock.replace(make_key_file(info, seed, phrase, info.cost).span());
    return info;
}

}  // namespace detail

/// Makes a key for a parameter set and puts it at `path`, of generation 1 and with an id of its own; see
/// io::create_private_file. Nothing is written over, and the key is nowhere else.
/// @param phrase  wraps the key; none leaves it to the mode of the file
/// @throws parameter_error for a cost that is not allowed; io_error if it cannot be written or something
///         stands there; entropy_error
template <ckks::parameter_set P>
key_info create_key_file(const std::filesystem::path& path, const passphrase& phrase = {},
                         const scrypt_cost& cost = {}) {
    detail::check_scrypt_cost(cost);
    key_info info;
    info.set = wire::set_id<P>;
    info.created = detail::this_second();
    info.wrapped = !phrase.empty();
    info.cost = info.wrapped ? cost : scrypt_cost{};
    const random::seed id = random::fresh_nonce();
    std::copy_n(std::as_bytes(std::span(id.bytes)).begin(), info.id.size(), info.id.begin());
    random::seed seed = random::fresh_seed();
    const memory::wipe_guard guard(seed);
    io::create_private_file(path, detail::make_key_file(info, seed, phrase, cost).span());
    return info;
}

/// Loads the key at `path`, for lora::client. The seed that it is made of is not given to anybody: it cannot
/// be used for anything else.
/// @throws io_error, format_error or unsupported_error for a bad file; parameter_error, naming both sets, if
///         the key is for another one; passphrase_error if the passphrase is wrong or missing, or the key is
///         not wrapped with one: a wrapped key is what the holder of the passphrase wrote
template <ckks::parameter_set P>
stored_key<P> load_key_file(const std::filesystem::path& path, const passphrase& phrase = {}) {
    const detail::read_key file = detail::read_key_at(path);
    detail::check_key_set<P>(file.info, path);
    random::seed seed;
    const memory::wipe_guard guard(seed);
    detail::read_key_seed(file.bytes.span(), file.info, phrase, quote(path.string()), seed);
    return {ckks::secret_key<P>(seed), file.info};
}

/// Returns what the file says of its key. Needs no passphrase, and so cannot tell whether somebody who can
/// write the file and its checksum has changed what it says.
/// @throws io_error, format_error or unsupported_error for a bad file
inline key_info read_key_info(const std::filesystem::path& path) {
    return detail::read_key_at(path).info;
}

/// Wraps the same key with another passphrase, with a fresh salt. The key, its id and its generation stay;
/// so whoever had the old passphrase and has a copy of the old file has the key: rotate it then.
///
/// The file is replaced at once, forced to the device: a crash leaves the old one or the other, whole. It may
/// also leave a third, `<path>.partial`, with the same key; the next replacement removes it.
/// @param old          none if the key is not wrapped
/// @param replacement  none takes the wrap off
/// @param cost         none keeps that of the file, or takes the default if the key was not wrapped
/// @throws as load_key_file; parameter_error for a cost that is not allowed; io_error also if somebody else
///         is replacing the file or has done so, or it has several names. The old file is then untouched,
///         unless the message says that the new one stands there
inline key_info change_passphrase(const std::filesystem::path& path, const passphrase& old,
                                  const passphrase& replacement,
                                  const std::optional<scrypt_cost>& cost = std::nullopt) {
    if (cost) {
        detail::check_scrypt_cost(*cost);
    }
    detail::key_file_lock lock(path);
    const detail::read_key file = detail::read_open_key(lock.file(), path);
    random::seed seed;
    const memory::wipe_guard guard(seed);
    detail::read_key_seed(file.bytes.span(), file.info, old, quote(path.string()), seed);
    key_info info = file.info;
    info.wrapped = !replacement.empty();
    // That of a key without a wrap is the default.
    info.cost = info.wrapped ? cost.value_or(file.info.cost) : scrypt_cost{};
    lock.replace(detail::make_key_file(info, seed, replacement, info.cost).span());
    return info;
}

/// Puts a fresh key in the place of the old one: the same id, set and passphrase, the next generation. The
/// old key is gone: replies that are under way can be read only by a client that has loaded it already, and
/// servers need the re-randomization key of the new one, so a new session. Replaced as change_passphrase
/// does.
/// @throws as change_passphrase. Of two that rotate at once, one may get an error instead of a turn of its
///         own
inline key_info rotate_key_file(const std::filesystem::path& path, const passphrase& phrase = {}) {
    return detail::rotate_checked(path, phrase, [](const key_info&) {});
}

/// Rotates the key at `path` if it is for this parameter set.
/// @throws parameter_error, naming both sets, if it is not
template <ckks::parameter_set P>
key_info rotate_key_file(const std::filesystem::path& path, const passphrase& phrase = {}) {
    return detail::rotate_checked(path, phrase,
                                  [&](const key_info& info) { detail::check_key_set<P>(info, path); });
}

}  // namespace tensafe::keystore
