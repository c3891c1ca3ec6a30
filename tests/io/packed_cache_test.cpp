// The cache, on a model that packs by copying: what is loaded, packed anew, reported, thrown and removed.
// stored_form_test.cpp shows that servers come back as they were; the last case here, that they do from
// files.

#include <tensafe/core/error.hpp>
#include <tensafe/io/packed_cache.hpp>
#include <tensafe/io/packed_file.hpp>
#include <tensafe/io/packed_key.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_server.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "file_builder.hpp"

using tensafe::format_error;
using tensafe::io::packed_cache;
using tensafe::io::packed_cache_options;
using tensafe::io::packed_file_writer;
using tensafe::io::packed_key;
using tensafe::lora::adapter;
using tensafe::lora::adapter_site;
using tensafe::lora::pack_progress;
using tensafe::test::temporary_directory;

namespace {

namespace fs = std::filesystem;

/// Words in the place of a server's: the entries of A, negated if asked for.
struct copied_model {
    struct options_type {
        bool negated = false;
        std::uint64_t bound = ~std::uint64_t{0};  ///< larger words are refused, as residues are
    };

    copied_model(const adapter& from, const options_type& options, const pack_progress& progress) {
        for (std::size_t s = 0; s < from.sites.size(); ++s) {
            for (const float x : from.sites[s].a.values) {
                words.push_back(std::bit_cast<std::uint32_t>(options.negated ? -x : x));
            }
            if (progress) {
                progress(s + 1, from.sites.size());
            }
        }
    }
    template <class Source>
    copied_model(tensafe::lora::from_stored_t, const adapter& from, const options_type& options,
                 Source&& source)
        : words(stored_words(from, options)) {
        for (std::uint64_t& x : words) {
            source(std::span(&x, 1));
        }
        for (const std::uint64_t x : words) {
            if (x > options.bound) {
                throw format_error("a stored word is too large");
            }
        }
    }
    template <class Sink>
    void store(Sink&& to) const {
        for (const std::uint64_t& x : words) {
            to(std::span(&x, 1));
        }
    }
    static std::size_t stored_words(const adapter& from, const options_type&) {
        std::size_t sum = 0;
        for (const adapter_site& site : from.sites) {
            sum += site.a.values.size();
        }
        return sum;
    }
    static std::string stored_identity(const adapter&, const options_type& options) {
        return options.negated ? "negated" : "copied";
    }
    static std::size_t bytes_for(const adapter& from, const options_type& options) {
        return 8 * stored_words(from, options);
    }
    std::size_t bytes() const { return 8 * words.size(); }

    std::vector<std::uint64_t> words;
};

using cache_of_copies = packed_cache<copied_model>;

/// Counts how many are written at once.
struct watched_model : copied_model {
    using copied_model::copied_model;
    template <class Sink>
    void store(Sink&& to) const {
        const int now = ++writers;
        int most = most_writers;
        while (most < now && !most_writers.compare_exchange_weak(most, now)) {
        }
        for (const std::uint64_t& x : words) {
            to(std::span(&x, 1));
            std::this_thread::yield();
        }
        --writers;
    }
    static inline std::atomic<int> writers{0};
    static inline std::atomic<int> most_writers{0};
};

/// An adapter whose packed file has 88 + 8 * 6 bytes.
adapter small_adapter(float first) {
    adapter_site site;
    site.name = "q_proj";
    site.a = tensafe::lora::matrix(2, 3);
    site.b = tensafe::lora::matrix(4, 2);
    for (std::size_t k = 0; k < site.a.values.size(); ++k) {
        site.a.values[k] = first + static_cast<float>(k);
    }
    return {{site}};
}
constexpr std::uintmax_t file_bytes = 88 + 8 * 6;

std::vector<std::uint64_t> words_of(const adapter& from) {
    return copied_model(from, {}, {}).words;
}

/// Keeps what a cache reports.
struct problems {
    packed_cache_options options() {
        packed_cache_options result;
        result.on_problem = [this](const std::string& text) {
            const std::lock_guard lock(mutex);
            texts.push_back(text);
        };
        return result;
    }
    /// The only one so far; forgets it.
    std::string only() {
        REQUIRE(texts.size() == 1);
        return std::exchange(texts, {}).front();
    }

    std::mutex mutex;
    std::vector<std::string> texts;
};

bool contains(const std::string& text, const std::string& piece) {
    CAPTURE(text);
    CAPTURE(piece);
    return text.find(piece) != std::string::npos;
}

std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void put_bytes(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::size_t files_in(const fs::path& folder) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

mode_t mode_of(const fs::path& path) {
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status.st_mode & 07777;
}

}  // namespace

TEST_CASE("an adapter is packed once and loaded from then on, by another cache too") {
    const temporary_directory parent;
    const fs::path folder = parent.path() / "deep" / "cache";
    const adapter from = small_adapter(1);
    problems seen;
    cache_of_copies cache(folder, {}, seen.options());
    CHECK_FALSE(fs::exists(folder));  // nothing happens before it is needed
    CHECK(cache.bytes_for(from) == 48);

    CHECK(cache.pack(from)->words == words_of(from));
    CHECK(cache.counts().packed == 1);
    CHECK(cache.counts().loaded == 0);
    CHECK(mode_of(folder) == 0700);
    CHECK(files_in(folder) == 1);
    CHECK(fs::file_size(cache.file_of(from)) == file_bytes);
    CHECK(mode_of(cache.file_of(from)) == 0600);
    CHECK(cache.file_of(from).filename().string().size() == 64 + 7);

    CHECK(cache.pack(from)->words == words_of(from));
    cache_of_copies second(folder, {}, seen.options());
    CHECK(second.pack(from)->words == words_of(from));
    CHECK(cache.counts().packed == 1);
    CHECK(cache.counts().loaded == 1);
    CHECK(second.counts().packed == 0);
    CHECK(second.counts().loaded == 1);
    CHECK(seen.texts.empty());
    CHECK(cache.counts().problems == 0);
}

TEST_CASE("a registry's packer goes through the cache and keeps it alive") {
    const temporary_directory folder;
    const adapter from = small_adapter(1);
    auto cache = std::make_shared<cache_of_copies>(folder.path() / "cache");
    const auto packer = tensafe::io::pack_through(cache);
    const fs::path file = cache->file_of(from);
    cache.reset();
    CHECK(packer.pack(from, {})->words == words_of(from));
    CHECK(packer.bytes_for(from) == 48);
    CHECK(fs::exists(file));
}

TEST_CASE("whatever the packed form depends on changes the key") {
    std::set<std::string> keys;
    std::size_t count = 0;
    const auto add = [&](const std::string& identity, const adapter& from) {
        const auto key = packed_key(identity, from);
        keys.insert(tensafe::io::hex(key));
        ++count;
        CHECK(packed_key(identity, from) == key);
    };
    const adapter from = small_adapter(1);
    add("", from);
    add("x", from);
    for (std::size_t k = 0; k < 6; ++k) {
        adapter other = from;
        other.sites[0].a.values[k] = 100;
        add("", other);
    }
    adapter other = from;
    other.sites[0].a.values[0] = -other.sites[0].a.values[0];
    add("", other);
    other = from;
    other.sites[0].b.values[7] = 1;
    add("", other);
    other = from;
    other.sites[0].b.values[7] = -0.0F;  // another bit pattern
    add("", other);
    other = from;
    other.sites[0].scale = 2;
    add("", other);
    other = from;
    other.sites[0].name = "k_proj";
    add("", other);
    other = from;
    std::swap(other.sites[0].a.rows, other.sites[0].a.columns);
    add("", other);
    other = from;
    other.sites[0].b.rows = 2;
    other.sites[0].b.columns = 4;
    add("", other);
    other = from;
    other.sites.push_back(from.sites[0]);
    add("", other);
    other.sites[0].name = "z";
    add("", other);
    std::swap(other.sites[0], other.sites[1]);
    add("", other);
    add("", adapter{});
    CHECK(keys.size() == count);

    // Where one text ends and the next begins counts.
    adapter left = small_adapter(1);
    left.sites[0].name = "ab";
    adapter right = small_adapter(1);
    right.sites[0].name = "b";
    CHECK(packed_key("x", left) != packed_key("xa", right));
}

TEST_CASE("the key of an adapter is the SHA-256 of the message that its description names") {
    adapter from;
    from.sites.push_back({"q", tensafe::lora::matrix(1, 2), tensafe::lora::matrix(1, 1), 0.5});
    from.sites[0].a.values = {1.0F, -2.0F};
    from.sites[0].b.values = {3.0F};
    std::string message;
    const auto number = [&](std::uint64_t x) {
        for (int i = 0; i < 8; ++i) {
            message += static_cast<char>(x >> (8 * i));
        }
    };
    number(22);
    message += "tensafe packed adapter";
    number(1);
    number(4);
    message += "text";
    number(1);
    number(1);
    message += "q";
    number(1);
    number(2);
    number(2);
    message += std::string("\0\0\x80\x3f\0\0\0\xc0", 8);
    number(1);
    number(1);
    number(1);
    message += std::string("\0\0\x40\x40", 4);
    number(0x3fe0000000000000U);
    CHECK(packed_key("text", from) == tensafe::io::sha256::of(tensafe::test::to_bytes(message)));
}

TEST_CASE("other adapters and other options have files of their own") {
    const temporary_directory folder;
    cache_of_copies cache(folder.path() / "cache");
    cache_of_copies negating(folder.path() / "cache", {.negated = true, .bound = ~std::uint64_t{0}});
    const adapter one = small_adapter(1);
    const adapter two = small_adapter(2);
    for (int round = 0; round < 2; ++round) {
        CHECK(cache.pack(one)->words == words_of(one));
        CHECK(cache.pack(two)->words == words_of(two));
        CHECK(negating.pack(one)->words != words_of(one));
    }
    CHECK(cache.counts().packed == 2);
    CHECK(cache.counts().loaded == 2);
    CHECK(negating.counts().packed == 1);
    CHECK(negating.counts().loaded == 1);
    CHECK(files_in(folder.path() / "cache") == 3);
}

TEST_CASE("a file that was changed, cut or lengthened is reported, packed anew and replaced") {
    const temporary_directory folder;
    const adapter from = small_adapter(1);
    problems seen;
    cache_of_copies cache(folder.path() / "cache", {}, seen.options());
    static_cast<void>(cache.pack(from));
    const fs::path path = cache.file_of(from);
    const std::string good = bytes_of(path);
    std::vector<std::pair<std::string, std::string>> cases{
        {"", "wanted 136"},
        {good.substr(0, 16), "wanted 136"},
        {good.substr(0, 48), "wanted 136"},
        {good.substr(0, 56), "wanted 136"},
        {good.substr(0, 104), "wanted 136"},
        {good + "x", "wanted 136"},
    };
    for (const std::size_t flipped : {std::size_t{0}, std::size_t{20}, std::size_t{50}, std::size_t{60},
                                      std::size_t{103}, std::size_t{135}}) {
        std::string bad = good;
        bad[flipped] = static_cast<char>(bad[flipped] ^ 0x40);
        cases.emplace_back(bad, "/cache/");
    }
    std::size_t packed = 1;
    for (const auto& [bad, piece] : cases) {
        const std::size_t length = bad.size();
        CAPTURE(length);
        put_bytes(path, bad);
        CHECK(cache.pack(from)->words == words_of(from));
        CHECK(cache.counts().packed == ++packed);
        const std::string problem = seen.only();
        CHECK(contains(problem, "packed cache: "));
        CHECK(contains(problem, piece));
        CHECK(bytes_of(path) == good);
    }
    CHECK(cache.counts().problems == cases.size());
    CHECK(cache.pack(from)->words == words_of(from));
    CHECK(cache.counts().loaded == 1);
}

TEST_CASE("a file of another adapter under this one's name is not used, though it is whole") {
    const temporary_directory folder;
    problems seen;
    cache_of_copies cache(folder.path() / "cache", {}, seen.options());
    const adapter one = small_adapter(1);
    const adapter two = small_adapter(2);
    static_cast<void>(cache.pack(two));
    fs::copy_file(cache.file_of(two), cache.file_of(one));
    CHECK(cache.pack(one)->words == words_of(one));
    CHECK(contains(seen.only(), "made for another adapter"));
    CHECK(cache.pack(one)->words == words_of(one));
    CHECK(cache.counts().loaded == 1);
}

TEST_CASE("a whole file with words that the model refuses is packed anew") {
    const temporary_directory folder;
    problems seen;
    cache_of_copies cache(folder.path() / "cache", {.negated = false, .bound = std::uint64_t{1} << 32},
                          seen.options());
    const adapter from = small_adapter(1);
    static_cast<void>(cache.pack(from));
    {
        packed_file_writer file(cache.file_of(from), packed_key("copied", from), 6);
        file.write(std::vector<std::uint64_t>(6, ~std::uint64_t{0}));
        file.finish();
    }
    CHECK(cache.pack(from)->words == words_of(from));
    CHECK(contains(seen.only(), "a stored word is too large"));
    CHECK(cache.pack(from)->words == words_of(from));
    CHECK(seen.texts.empty());
}

TEST_CASE("a link in a file's place is not followed, and is replaced") {
    const temporary_directory folder;
    problems seen;
    cache_of_copies cache(folder.path() / "cache", {}, seen.options());
    const adapter from = small_adapter(1);
    static_cast<void>(cache.pack(from));
    const fs::path path = cache.file_of(from);
    const fs::path target = folder.path() / "elsewhere";
    fs::rename(path, target);
    fs::create_symlink(target, path);
    const std::string before = bytes_of(target);
    CHECK(cache.pack(from)->words == words_of(from));
    CHECK(contains(seen.only(), "cannot open"));
    CHECK(fs::is_regular_file(fs::symlink_status(path)));
    CHECK(bytes_of(target) == before);
}

TEST_CASE("a folder in a file's place is reported and survived, each time") {
    const temporary_directory folder;
    problems seen;
    cache_of_copies cache(folder.path() / "cache", {}, seen.options());
    const adapter from = small_adapter(1);
    fs::create_directories(cache.file_of(from));
    fs::permissions(folder.path() / "cache", fs::perms::owner_all);
    CHECK(cache.pack(from)->words == words_of(from));
    REQUIRE(seen.texts.size() == 2);
    CHECK(contains(seen.texts[0], "not a regular file"));
    CHECK(contains(seen.texts[1], "cannot replace"));
    CHECK(files_in(folder.path() / "cache") == 1);
}

TEST_CASE("a cache folder that cannot be one is reported, and packing goes on without") {
    const temporary_directory folder;
    problems seen;
    const adapter from = small_adapter(1);

    cache_of_copies file(folder.put("file", "x"), {}, seen.options());
    CHECK(file.pack(from)->words == words_of(from));
    CHECK(contains(seen.only(), "is not a folder"));

    cache_of_copies below_file(folder.path() / "file" / "cache", {}, seen.options());
    CHECK(below_file.pack(from)->words == words_of(from));
    CHECK(contains(seen.only(), "cannot open"));

    const fs::path shared = folder.path() / "shared";
    fs::create_directory(shared);
    REQUIRE(::chmod(shared.c_str(), 0770) == 0);
    cache_of_copies others(shared, {}, seen.options());
    CHECK(others.pack(from)->words == words_of(from));
    CHECK(contains(seen.only(), "may write it"));
    CHECK(files_in(shared) == 0);

    if (::geteuid() != 0) {  // root writes whatever the mode says
        const fs::path read_only = folder.path() / "read_only";
        fs::create_directory(read_only);
        REQUIRE(::chmod(read_only.c_str(), 0500) == 0);
        cache_of_copies cache(read_only, {}, seen.options());
        CHECK(cache.pack(from)->words == words_of(from));
        CHECK(contains(seen.only(), "cannot create"));
    } else {
        REQUIRE(::chmod(shared.c_str(), 0700) == 0);
        if (::chown(shared.c_str(), 12345, static_cast<gid_t>(-1)) != 0) {
            REQUIRE((errno == EINVAL || errno == EPERM));
            MESSAGE("skipped: this user namespace has no second user");
            return;
        }
        CHECK(others.pack(from)->words == words_of(from));
        CHECK(contains(seen.only(), "another user owns it"));
    }
}

TEST_CASE("without on_problem, problems are counted and nothing else") {
    const temporary_directory folder;
    cache_of_copies cache(folder.put("file", "x"));
    CHECK(cache.pack(small_adapter(1))->words == words_of(small_adapter(1)));
    CHECK(cache.counts().problems == 1);
}

TEST_CASE("progress is that of packing, or counts words when an adapter is loaded") {
    const temporary_directory folder;
    cache_of_copies cache(folder.path() / "cache");
    adapter from = small_adapter(1);
    from.sites.push_back(small_adapter(9).sites[0]);
    std::vector<std::pair<std::size_t, std::size_t>> calls;
    const pack_progress progress = [&](std::size_t done, std::size_t total) {
        calls.emplace_back(done, total);
    };
    using expected = std::vector<std::pair<std::size_t, std::size_t>>;
    static_cast<void>(cache.pack(from, progress));
    CHECK(calls == expected{{1, 2}, {2, 2}});
    calls.clear();
    static_cast<void>(cache.pack(from, progress));
    REQUIRE(calls.size() == 12);  // as many words
    for (std::size_t i = 0; i < calls.size(); ++i) {
        CHECK(calls[i] == std::pair(i + 1, std::size_t{12}));
    }

    // Not for each of many words.
    from.sites[0].a = tensafe::lora::matrix(10, 1000);
    static_cast<void>(cache.pack(from));
    calls.clear();
    static_cast<void>(cache.pack(from, progress));
    CHECK(cache.counts().loaded == 2);
    CHECK(calls.size() > 32);
    CHECK(calls.size() <= 65);
    CHECK(calls.back() == std::pair(std::size_t{10'006}, std::size_t{10'006}));
    for (std::size_t i = 1; i < calls.size(); ++i) {
        CHECK(calls[i].first > calls[i - 1].first);
    }

    // A file that turns out bad at its end.
    std::string bad = bytes_of(cache.file_of(from));
    bad.back() = static_cast<char>(bad.back() ^ 1);
    put_bytes(cache.file_of(from), bad);
    calls.clear();
    static_cast<void>(cache.pack(from, progress));
    REQUIRE(calls.size() > 3);
    CHECK(calls[calls.size() - 2] == std::pair(std::size_t{1}, std::size_t{2}));
    CHECK(calls.back() == std::pair(std::size_t{2}, std::size_t{2}));
}

TEST_CASE("what progress throws leaves pack, and what on_problem throws too, and a file stays as it was") {
    const temporary_directory folder;
    cache_of_copies cache(folder.path() / "cache");
    const adapter from = small_adapter(1);
    const pack_progress stop = [](std::size_t, std::size_t) { throw std::runtime_error("stop"); };
    CHECK_THROWS_WITH(cache.pack(from, stop), "stop");
    CHECK_FALSE(fs::exists(cache.file_of(from)));
    static_cast<void>(cache.pack(from));
    CHECK_THROWS_WITH(cache.pack(from, stop), "stop");
    // An error of the library too, as the registry throws one when it is destroyed: it is no problem of a
    // file, and nothing is packed after it.
    std::size_t calls = 0;
    const pack_progress cancel = [&](std::size_t, std::size_t) {
        ++calls;
        throw tensafe::cancelled_error("cancelled");
    };
    CHECK_THROWS_AS(cache.pack(from, cancel), tensafe::cancelled_error);
    CHECK(calls == 1);
    CHECK(cache.counts().problems == 0);
    CHECK(cache.counts().loaded == 0);
    CHECK(cache.pack(from)->words == words_of(from));
    CHECK(cache.counts().packed == 1);

    packed_cache_options strict;
    strict.on_problem = [](const std::string&) { throw std::logic_error("strict"); };
    put_bytes(cache.file_of(from), "bad");
    cache_of_copies fatal(folder.path() / "cache", {}, strict);
    CHECK_THROWS_WITH(fatal.pack(from), "strict");
    CHECK(bytes_of(cache.file_of(from)) == "bad");
}

TEST_CASE("the files used longest ago go when the cache is full, and nothing that is not the cache's") {
    const temporary_directory parent;
    const fs::path folder = parent.path() / "cache";
    problems seen;
    packed_cache_options options = seen.options();
    options.largest_bytes = 3 * file_bytes;
    cache_of_copies cache(folder, {}, options);
    std::vector<adapter> adapters;
    for (int i = 0; i < 4; ++i) {
        adapters.push_back(small_adapter(static_cast<float>(10 * i)));
    }
    const auto used_ago = [&](std::size_t i, int hours) {
        fs::last_write_time(cache.file_of(adapters[i]),
                            fs::file_time_type::clock::now() - std::chrono::hours(hours));
    };
    for (std::size_t i = 0; i < 3; ++i) {
        static_cast<void>(cache.pack(adapters[i]));
    }
    put_bytes(folder / "notes.packed", std::string(10000, 'x'));
    put_bytes(folder / (std::string(64, 'a') + ".packedx"), "x");
    fs::last_write_time(folder / "notes.packed", fs::file_time_type::clock::now() - std::chrono::hours(1000));
    used_ago(0, 30);
    used_ago(1, 20);
    used_ago(2, 10);
    CHECK(cache.pack(adapters[0])->words == words_of(adapters[0]));  // loading is use
    CHECK(cache.counts().loaded == 1);

    static_cast<void>(cache.pack(adapters[3]));
    CHECK(fs::exists(cache.file_of(adapters[0])));
    CHECK_FALSE(fs::exists(cache.file_of(adapters[1])));
    CHECK(fs::exists(cache.file_of(adapters[2])));
    CHECK(fs::exists(cache.file_of(adapters[3])));
    CHECK(files_in(folder) == 5);

    // A file that is written again does not push another one out.
    put_bytes(cache.file_of(adapters[3]), "bad");
    static_cast<void>(cache.pack(adapters[3]));
    CHECK(fs::exists(cache.file_of(adapters[2])));
    CHECK(contains(seen.only(), "wanted 136"));
}

TEST_CASE("an adapter whose file alone passes the limit is packed, reported and not kept") {
    const temporary_directory parent;
    problems seen;
    packed_cache_options options = seen.options();
    options.largest_bytes = file_bytes;
    cache_of_copies cache(parent.path() / "cache", {}, options);
    static_cast<void>(cache.pack(small_adapter(1)));
    CHECK(seen.texts.empty());
    adapter larger = small_adapter(2);
    larger.sites.push_back(larger.sites[0]);
    CHECK(cache.pack(larger)->words == words_of(larger));
    CHECK(contains(seen.only(), "got 184 bytes, wanted at most 136, largest_bytes"));
    CHECK(files_in(parent.path() / "cache") == 1);
    CHECK(fs::exists(cache.file_of(small_adapter(1))));  // nor does it push others out
}

TEST_CASE("files that somebody is writing count, are not removed, and can leave no room") {
    const temporary_directory parent;
    const fs::path folder = parent.path() / "cache";
    problems seen;
    packed_cache_options options = seen.options();
    options.largest_bytes = 2 * file_bytes;
    cache_of_copies cache(folder, {}, options);
    static_cast<void>(cache.pack(small_adapter(1)));
    const fs::path young = folder / (std::string(64, 'a') + ".packed.partial-bbbbbb");
    put_bytes(young, std::string(file_bytes, 'x'));
    static_cast<void>(cache.pack(small_adapter(20)));  // in the first one's place
    CHECK_FALSE(fs::exists(cache.file_of(small_adapter(1))));
    CHECK(fs::exists(cache.file_of(small_adapter(20))));
    CHECK(fs::exists(young));
    CHECK(seen.texts.empty());

    put_bytes(young, std::string(file_bytes + 1, 'x'));
    CHECK(cache.pack(small_adapter(1))->words == words_of(small_adapter(1)));
    CHECK(contains(seen.only(), "got 136 bytes, wanted at most 272, largest_bytes of the cache, beside 273"));
    CHECK_FALSE(fs::exists(cache.file_of(small_adapter(1))));
    CHECK(fs::exists(cache.file_of(small_adapter(20))));  // no use in removing it
}

TEST_CASE("threads of one cache keep to its limit together, files that are being written included") {
    const temporary_directory parent;
    const fs::path folder = parent.path() / "cache";
    constexpr std::size_t threads = 4;
    constexpr std::size_t rounds = 40;
    problems seen;
    packed_cache_options options = seen.options();
    options.largest_bytes = 2 * file_bytes;
    packed_cache<watched_model> cache(folder, {}, options);
    watched_model::writers = 0;
    watched_model::most_writers = 0;
    std::latch start(threads);
    {
        std::vector<std::jthread> packing;
        for (std::size_t t = 0; t < threads; ++t) {
            packing.emplace_back([&, t] {
                start.arrive_and_wait();
                for (std::size_t i = 0; i < rounds; ++i) {
                    static_cast<void>(cache.pack(small_adapter(static_cast<float>(1000 * t + 10 * i))));
                }
            });
        }
    }
    CHECK(cache.counts().packed == threads * rounds);
    CHECK(watched_model::most_writers == 1);
    CHECK(seen.texts.empty());
    CHECK(files_in(folder) == 2);
}

TEST_CASE("a cache without a limit of its own keeps 10 GB") {
    CHECK(packed_cache_options{}.largest_bytes == 10'000'000'000U);
}

TEST_CASE("an adapter's file goes when it is forgotten, and no other one") {
    const temporary_directory parent;
    cache_of_copies cache(parent.path() / "cache");
    CHECK_FALSE(cache.forget(small_adapter(1)));  // not even a folder
    static_cast<void>(cache.pack(small_adapter(1)));
    static_cast<void>(cache.pack(small_adapter(2)));
    CHECK(cache.forget(small_adapter(1)));
    CHECK_FALSE(fs::exists(cache.file_of(small_adapter(1))));
    CHECK(fs::exists(cache.file_of(small_adapter(2))));
    CHECK_FALSE(cache.forget(small_adapter(1)));
    static_cast<void>(cache.pack(small_adapter(1)));
    CHECK(cache.counts().packed == 3);
    CHECK(cache.forget(small_adapter(1)));
    fs::create_directory(cache.file_of(small_adapter(1)));
    CHECK_THROWS_AS(cache.forget(small_adapter(1)), tensafe::io_error);
}

TEST_CASE("what a writer that died left is removed after an hour, and what one writes now is not") {
    const temporary_directory parent;
    const fs::path folder = parent.path() / "cache";
    cache_of_copies cache(folder);
    static_cast<void>(cache.pack(small_adapter(1)));
    const fs::path old = cache.file_of(small_adapter(1)).string() + ".partial-aaaaaa";
    const fs::path young = cache.file_of(small_adapter(1)).string() + ".partial-bbbbbb";
    put_bytes(old, "x");
    put_bytes(young, "x");
    fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
    static_cast<void>(cache.pack(small_adapter(2)));
    CHECK_FALSE(fs::exists(old));
    CHECK(fs::exists(young));
}

TEST_CASE("threads with caches for one folder get their adapters whole, while files change and go") {
    const temporary_directory parent;
    const fs::path folder = parent.path() / "cache";
    constexpr int rounds = 100;
    problems seen;
    std::latch start(3);
    const auto serve = [&](int number, std::size_t& wrong) {
        packed_cache_options options = seen.options();
        options.largest_bytes = 2 * file_bytes;  // three adapters: each round something is removed
        cache_of_copies cache(folder, {}, options);
        start.arrive_and_wait();
        for (int i = 0; i < rounds; ++i) {
            const adapter from = small_adapter(static_cast<float>(10 * ((i + number) % 3)));
            wrong += cache.pack(from)->words == words_of(from) ? 0U : 1U;
        }
    };
    std::size_t wrong_first = 0;
    std::size_t wrong_second = 0;
    std::thread first([&] { serve(0, wrong_first); });
    std::thread second([&] { serve(1, wrong_second); });
    // A third one spoils files: shorter ones, as no writer of ours makes them.
    start.arrive_and_wait();
    cache_of_copies names(folder);
    for (int i = 0; i < rounds; ++i) {
        const fs::path path = names.file_of(small_adapter(static_cast<float>(10 * (i % 3))));
        if (fs::exists(path)) {
            put_bytes(path, "spoiled");
        }
    }
    first.join();
    second.join();
    CHECK(wrong_first == 0);
    CHECK(wrong_second == 0);
    for (const auto& item : fs::directory_iterator(folder)) {
        CHECK_FALSE(contains(item.path().string(), ".partial-"));
    }
}

TEST_CASE("a model_server comes back from a file as it was packed, and a spoiled file is found out") {
    using small = tensafe::ckks::parameters<10, tensafe::ckks::limb_bits<45, 44>, 30,
                                            tensafe::ckks::insecure_for_tests>;
    using model = tensafe::lora::model_server<small>;
    const temporary_directory parent;
    problems seen;
    packed_cache<model> cache(parent.path() / "cache", {}, seen.options());
    adapter from;
    for (const std::string name : {"layers.0.self_attn.q_proj", "layers.0.self_attn.o_proj"}) {
        adapter_site site = small_adapter(static_cast<float>(from.sites.size()) + 0.5F).sites[0];
        site.name = name;
        from.sites.push_back(site);
    }
    const auto words_of_model = [](const model& m) {
        std::vector<std::uint64_t> words;
        m.store([&](std::span<const std::uint64_t> next) {
            words.insert(words.end(), next.begin(), next.end());
        });
        return words;
    };
    const auto packed = cache.pack(from);
    const auto loaded = cache.pack(from);
    CHECK(cache.counts().packed == 1);
    CHECK(cache.counts().loaded == 1);
    CHECK(seen.texts.empty());
    CHECK(words_of_model(*packed) == words_of_model(*loaded));
    CHECK(packed->layout() == loaded->layout());
    CHECK(cache.bytes_for(from) == loaded->bytes());
    CHECK(fs::file_size(cache.file_of(from)) ==
          tensafe::io::packed_file_bytes(words_of_model(*packed).size()));

    // A residue above its prime, under a right checksum.
    std::vector<std::uint64_t> bad = words_of_model(*packed);
    bad[1 + 4 + 17] = std::uint64_t{1} << 45;
    {
        packed_file_writer file(cache.file_of(from), packed_key(model::stored_identity(from), from),
                                bad.size());
        file.write(bad);
        file.finish();
    }
    CHECK(words_of_model(*cache.pack(from)) == words_of_model(*packed));
    CHECK(contains(seen.only(), "a stored residue of limb 0 is not below its prime"));
}
