#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/message.hpp>
#include <tensafe/io/packed_file.hpp>
#include <tensafe/io/packed_key.hpp>
#include <tensafe/io/storable_model.hpp>
#include <tensafe/keystore/hex.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/pack_progress.hpp>
#include <tensafe/lora/packing/stored_form.hpp>
#include <tensafe/serving/packer.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tensafe::io {

/// How a cache behaves.
struct packed_cache_options {
    /// Of all files of the folder together; the ones used longest ago go first, when another one is written.
    /// Files that are being written count, and a file that is replaced does not count beside the one that
    /// replaces it. Several caches or processes with one folder each keep to it for themselves: together they
    /// may pass it for a while.
    std::uintmax_t largest_bytes = 10'000'000'000;
    /// Told of everything that went wrong with the cache and was survived: a file that cannot be used, a
    /// folder that cannot be written. Runs on the packing thread, at several at once if several pack. What it
    /// throws leaves `pack`.
    std::function<void(const std::string&)> on_problem;
};

/// What a cache did so far.
struct packed_cache_counts {
    std::size_t loaded = 0;    ///< adapters taken from files
    std::size_t packed = 0;    ///< adapters packed
    std::size_t problems = 0;  ///< times on_problem was, or would have been, called
};

/// A folder of packed adapters, one file for each content: <folder>/<key in hexadecimal>.packed. `pack` takes
/// an adapter from its file, or packs it and keeps it there. Nothing that is wrong with the folder or a file
/// is an error of `pack`: it is reported, and the adapter is packed as if there was no cache. A file goes
/// when others need its room (largest_bytes) or by `forget`, not when an adapter is unloaded or replaced in a
/// registry.
///
/// **The files hold the adapter in the clear**, and whoever can write the folder decides what the server
/// computes. The folder is made with mode 0700 and files with 0600; a folder or file that anybody but this
/// user and root owns or can write is not used. The folders above it are not looked at: whoever can write one
/// of those can put another folder in its place, so they must be yours too. docs/registry.md says when a
/// cache pays: for small adapters packing is as quick as reading.
///
/// Thread safety: any threads and processes at once, with one cache or several for the same folder. Exception
/// safety: strong.
template <storable_model Model>
class packed_cache {
  public:
    using options_type = typename Model::options_type;

    /// @param folder   made when it is first needed, if it does not exist
    /// @param packing  how adapters are packed: part of the key
    explicit packed_cache(std::filesystem::path folder, options_type packing = {},
                          packed_cache_options options = {})
        : folder_(std::move(folder)), packing_(std::move(packing)), options_(std::move(options)) {}

    /// The packed adapter. For serving::registry.
    /// @param progress  as the constructor of Model calls it, in groups. While a file is read it is called
    ///                  as well, some 64 times and in words; if the file turns out bad, it begins again with
    ///                  packing.
    ///                  Nobody can stop it while it computes the key or writes a file
    /// @throws what the constructor of Model throws, and the callbacks; nothing because of the cache
    std::shared_ptr<const Model> pack(const lora::adapter& adapter,
                                      const lora::pack_progress& progress = {}) {
        const std::size_t words = Model::stored_words(adapter, packing_);
        const sha256_digest key = packed_key(Model::stored_identity(adapter, packing_), adapter);
        const bool usable = survives([&] { prepare_folder(); });
        if (usable) {
            std::shared_ptr<const Model> stored;
            try {
                survives([&] { stored = load(adapter, key, words, progress); });
            } catch (const stopped& by) {
                std::rethrow_exception(by.reason);
            }
            if (stored != nullptr) {
                ++loaded_;
                return stored;
            }
        }
        auto model = std::make_shared<const Model>(adapter, packing_, progress);
        ++packed_;
        if (usable) {
            survives([&] { save(*model, key, words); });
        }
        return model;
    }

    /// Removes the file of an adapter. One that this cache is writing is waited for; a `pack` of the adapter
    /// that has not come so far may write it again. What a writer that died left of it goes after an hour,
    /// with the next file that is written.
    /// @returns whether there was one
    /// @throws io_error if it cannot be removed
    bool forget(const lora::adapter& adapter) {
        const std::filesystem::path path = file_of(adapter);
        const std::lock_guard lock(writing_);
        if (::unlink(path.c_str()) == 0) {
            return true;
        }
        if (errno != ENOENT) {
            detail::throw_io_error(path, "remove", errno);
        }
        return false;
    }

    /// Memory of the packed adapter. For serving::registry.
    std::size_t bytes_for(const lora::adapter& adapter) const { return Model::bytes_for(adapter, packing_); }

    /// The file of an adapter, whether it exists or not.
    std::filesystem::path file_of(const lora::adapter& adapter) const {
        return file_of(packed_key(Model::stored_identity(adapter, packing_), adapter));
    }

    packed_cache_counts counts() const noexcept { return {loaded_, packed_, problems_}; }

  private:
    static constexpr std::string_view suffix = ".packed";
    static constexpr std::string_view partial = ".packed.partial-";
    static constexpr std::size_t digits = 64;

    /// What progress threw. No tensafe::error: it is not a problem of the file.
    struct stopped {
        std::exception_ptr reason;
    };

    std::filesystem::path file_of(const sha256_digest& key) const {
        return folder_ / (hex(key) + std::string(suffix));
    }

    /// Whether the action succeeded; if not, the problem is reported.
    template <class Action>
    bool survives(Action action) {
        std::string problem;
        try {
            action();
            return true;
        } catch (const error& e) {
            problem = e.what();
        } catch (const std::filesystem::filesystem_error& e) {
            problem = e.what();
        }
        ++problems_;
        if (options_.on_problem) {
            options_.on_problem("packed cache: " + problem);
        }
        return false;
    }

    void prepare_folder() const {
        struct stat status {};
        if (::stat(folder_.c_str(), &status) != 0) {
            if (errno != ENOENT) {
                detail::throw_io_error(folder_, "open", errno);
            }
            if (folder_.has_parent_path()) {
                std::filesystem::create_directories(folder_.parent_path());
            }
            // Another process may have been first.
            if ((::mkdir(folder_.c_str(), S_IRWXU) != 0 && errno != EEXIST) ||
                ::stat(folder_.c_str(), &status) != 0) {
                detail::throw_io_error(folder_, "create", errno);
            }
        }
        if (!S_ISDIR(status.st_mode)) {
            throw io_error(quote(folder_.string()) + ": is not a folder");
        }
        detail::check_owner(folder_, status);
    }

    std::shared_ptr<const Model> load(const lora::adapter& adapter, const sha256_digest& key,
                                      std::size_t words, const lora::pack_progress& progress) const {
        const std::filesystem::path path = file_of(key);
        std::optional<packed_file_reader> file = packed_file_reader::open(path, key, words);
        if (!file) {
            return nullptr;
        }
        std::size_t done = 0;
        const std::size_t step = words / 64 + 1;
        const auto source = [&](std::span<arith::word> to) {
            file->read(to);
            const std::size_t before = std::exchange(done, done + to.size());
            if (progress && (done / step != before / step || done == words)) {
                try {
                    progress(done, words);
                } catch (...) {
                    throw stopped{std::current_exception()};
                }
            }
        };
        auto model = std::make_shared<const Model>(lora::from_stored, adapter, packing_, source);
        file->finish();
        // The time of last use, for largest_bytes. A folder that is only read keeps no such time.
        std::error_code ignored;
        std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now(), ignored);
        return model;
    }

    void save(const Model& model, const sha256_digest& key, std::size_t words) {
        const std::filesystem::path path = file_of(key);
        // The room that one thread found must not be taken by another.
        const std::lock_guard lock(writing_);
        make_room(path, packed_file_bytes(words));
        packed_file_writer file(path, key, words);
        const auto sink = [&](std::span<const arith::word> from) { file.write(from); };
        model.store(sink);
        file.finish();
    }

    /// Removes the files that were used longest ago until `bytes` more fit, and what writers that died left.
    /// @throws io_error if so many do not fit, with nothing removed if that is known before
    void make_room(const std::filesystem::path& to_be_written, std::size_t bytes) const {
        struct entry {
            std::filesystem::path path;
            std::filesystem::file_time_type used;
            std::uintmax_t bytes = 0;
        };
        std::vector<entry> entries;
        std::uintmax_t total = 0;    // of all that stays
        std::uintmax_t written = 0;  // of it, what is being written
        const auto now = std::filesystem::file_time_type::clock::now();
        std::error_code error;
        for (const auto& item : std::filesystem::directory_iterator(folder_)) {
            const std::string name = item.path().filename().string();
            const bool whole = is_named(name, suffix) && name.size() == digits + suffix.size();
            if ((!whole && !is_named(name, partial)) || item.path() == to_be_written) {
                continue;  // not one of ours, or to be replaced
            }
            if (item.is_symlink(error) || !item.is_regular_file(error)) {
                continue;
            }
            const entry found{item.path(), item.last_write_time(error), item.file_size(error)};
            if (error) {
                continue;  // another process removed it
            }
            if (!whole && now - found.used > std::chrono::hours(1) && removed(found.path)) {
                continue;
            }
            total += found.bytes;
            if (whole) {
                entries.push_back(found);
            } else {
                written += found.bytes;
            }
        }
        const auto fits_beside = [&](std::uintmax_t others) {
            return others <= options_.largest_bytes && bytes <= options_.largest_bytes - others;
        };
        std::sort(entries.begin(), entries.end(),
                  [](const entry& a, const entry& b) { return a.used < b.used; });
        for (const entry& oldest : entries) {
            if (fits_beside(total) || !fits_beside(written)) {
                break;
            }
            total -= removed(oldest.path) ? oldest.bytes : 0;
        }
        if (!fits_beside(total)) {
            throw io_error(quote(to_be_written.string()) + ": is not kept: got " + std::to_string(bytes) +
                           " bytes, wanted at most " + std::to_string(options_.largest_bytes) +
                           ", largest_bytes of the cache" +
                           (bytes > options_.largest_bytes
                                ? ""
                                : ", beside " + std::to_string(total) + " that cannot be removed now"));
        }
    }

    /// Removes a file, or finds that somebody else did.
    static bool removed(const std::filesystem::path& path) {
        std::error_code error;
        std::filesystem::remove(path, error);
        return !error;
    }

    /// Whether a name is that of a key, with such an end or beginning of an end.
    static bool is_named(const std::string& name, std::string_view end) {
        return name.size() >= digits + end.size() && name.find_first_not_of("0123456789abcdef") == digits &&
               std::string_view(name).substr(digits, end.size()) == end;
    }

    std::filesystem::path folder_;
    options_type packing_;
    packed_cache_options options_;
    std::mutex writing_;
    std::atomic<std::size_t> loaded_{0};
    std::atomic<std::size_t> packed_{0};
    std::atomic<std::size_t> problems_{0};
};

/// A registry's way to pack: through a cache, which lives as long as the packer.
template <storable_model Model>
serving::packer<Model> pack_through(std::shared_ptr<packed_cache<Model>> cache) {
    return {[cache](const lora::adapter& adapter, const lora::pack_progress& progress) {
                return cache->pack(adapter, progress);
            },
            [cache](const lora::adapter& adapter) { return cache->bytes_for(adapter); }};
}

}  // namespace tensafe::io
