#include <tensafe/ckks/keys.hpp>
#include <tensafe/keystore/key_file.hpp>

#include <cerrno>
#include <csignal>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../io/file_builder.hpp"
#include "../small_sets.hpp"

using namespace tests;
using namespace tensafe::keystore;

namespace {

using other = small_of_other_scale;  // the coefficients would fit

constexpr scrypt_cost cheap{10, 8, 1};

bool same(const ckks::secret_key<small>& a, const ckks::secret_key<small>& b) {
    return std::ranges::equal(a.value().words(), b.value().words());
}

void set_mode(const std::filesystem::path& path, mode_t mode) {
    REQUIRE(::chmod(path.c_str(), mode) == 0);
}

/// A folder with a place for a key.
struct key_folder {
    const temporary_directory folder;
    const std::filesystem::path path = folder.path() / "key";
};

/// And a key without a passphrase there.
struct folder_with_key : key_folder {
    folder_with_key() { create_key_file<small>(path); }
};

}  // namespace

TEST_CASE_FIXTURE(key_folder,
                  "a key that is created is the one that is loaded, and the seed in the file stands for it") {
    const auto before = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    const key_info made = create_key_file<small>(path);
    const auto after = std::chrono::system_clock::now();
    CHECK(made.generation == 1);
    CHECK(made.set == tensafe::wire::set_id<small>);
    CHECK(made.created >= before);
    CHECK(made.created <= after);
    CHECK_FALSE(made.wrapped);
    CHECK(read_key_info(path) == made);
    CHECK(mode_of(path) == 0600);
    CHECK(entries(folder.path()) == 1);

    const stored_key<small> first = load_key_file<small>(path);
    CHECK(first.info == made);
    CHECK(same(first.key, load_key_file<small>(path).key));
    tensafe::random::seed seed;
    const std::string text = text_of(path);
    REQUIRE(text.size() == 176);
    std::copy_n(text.begin() + 96, 32, seed.bytes.begin());
    CHECK(same(first.key, ckks::secret_key<small>(seed)));

    const key_info another = create_key_file<small>(folder.path() / "another");
    CHECK(another.id != made.id);
    CHECK_FALSE(same(first.key, load_key_file<small>(folder.path() / "another").key));
}

TEST_CASE_FIXTURE(folder_with_key, "a key is never written over, and a cost that is not allowed makes none") {
    const std::string text = text_of(path);
    CHECK_THROWS_AS(create_key_file<small>(path), io_error);
    CHECK(text_of(path) == text);
    CHECK_THROWS_WITH_AS(create_key_file<small>(folder.path() / "dear", passphrase("x"), {30, 8, 1}),
                         Contains("got scrypt with N = 2^30, r = 8, p = 1; expected"), parameter_error);
    CHECK_THROWS_AS(change_passphrase(path, {}, passphrase("x"), scrypt_cost{1, 1, 1}), parameter_error);
    CHECK(text_of(path) == text);
    CHECK(entries(folder.path()) == 1);
}

TEST_CASE_FIXTURE(key_folder, "a passphrase wraps a key, changes and goes, and the key stays the same") {
    const passphrase first("first");
    const passphrase second("second");
    const key_info made = create_key_file<small>(path, first, cheap);
    CHECK(made.wrapped);
    CHECK(made.cost == cheap);
    CHECK(read_key_info(path) == made);
    const auto key = load_key_file<small>(path, first).key;
    CHECK_THROWS_AS(load_key_file<small>(path), passphrase_error);
    CHECK_THROWS_AS(load_key_file<small>(path, second), passphrase_error);

    const std::string before = text_of(path);
    CHECK_THROWS_AS(change_passphrase(path, second, first, cheap), passphrase_error);
    CHECK_THROWS_AS(change_passphrase(path, {}, first, cheap), passphrase_error);
    CHECK(text_of(path) == before);

    key_info changed = change_passphrase(path, first, second, scrypt_cost{11, 8, 1});
    CHECK(read_key_info(path) == changed);
    CHECK(changed.cost == scrypt_cost{11, 8, 1});
    changed.cost = cheap;
    CHECK(changed == made);  // id, generation, time
    CHECK_THROWS_AS(load_key_file<small>(path, first), passphrase_error);
    CHECK(same(key, load_key_file<small>(path, second).key));

    CHECK(change_passphrase(path, second, first).cost == scrypt_cost{11, 8, 1});  // that of the file
    CHECK(same(key, load_key_file<small>(path, first).key));

    CHECK_FALSE(change_passphrase(path, first, {}).wrapped);
    CHECK_THROWS_AS(load_key_file<small>(path, second), passphrase_error);
    CHECK(same(key, load_key_file<small>(path).key));
    CHECK(change_passphrase(path, {}, first, cheap) == made);
    CHECK(same(key, load_key_file<small>(path, first).key));
    CHECK(entries(folder.path()) == 1);
}

TEST_CASE_FIXTURE(
    key_folder,
    "rotation gives a fresh key of the next generation with the same id, and the old one is gone") {
    const passphrase phrase("open sesame");
    const key_info made = create_key_file<small>(path, phrase, cheap);
    const auto old = load_key_file<small>(path, phrase).key;
    const std::string before = text_of(path);
    CHECK_THROWS_AS(rotate_key_file<small>(path), passphrase_error);
    CHECK_THROWS_AS(rotate_key_file(path, passphrase("guess")), passphrase_error);
    CHECK(text_of(path) == before);

    const key_info next = rotate_key_file<small>(path, phrase);
    CHECK(next.id == made.id);
    CHECK(next.set == made.set);
    CHECK(next.generation == 2);
    CHECK(next.created >= made.created);
    CHECK(next.cost == cheap);
    const stored_key<small> fresh = load_key_file<small>(path, phrase);
    CHECK(fresh.info == next);
    CHECK_FALSE(same(old, fresh.key));
    CHECK(rotate_key_file(path, phrase).generation == 3);
    CHECK_FALSE(same(fresh.key, load_key_file<small>(path, phrase).key));
    CHECK(mode_of(path) == 0600);
    CHECK(entries(folder.path()) == 1);
}

TEST_CASE_FIXTURE(folder_with_key,
                  "a key of another parameter set is neither loaded nor rotated, and both sets are named") {
    const std::string before = text_of(path);
    const std::string message = refusal<parameter_error>([&] { load_key_file<other>(path); });
    CHECK(contains(message, "got a key for " + tensafe::wire::set_name(tensafe::wire::set_id<small>)));
    CHECK(contains(message, "expected one for " + tensafe::wire::set_name<other>()));
    CHECK_THROWS_AS(rotate_key_file<other>(path), parameter_error);
    CHECK(text_of(path) == before);
}

TEST_CASE_FIXTURE(folder_with_key,
                  "a key file of another mode than 0600 is refused by everything that opens it") {
    for (const mode_t mode : {0400u, 0604u, 0620u, 0640u, 0644u, 0666u, 0700u, 04600u, 01600u}) {
        CAPTURE(mode);
        set_mode(path, mode);
        CHECK_THROWS_AS(load_key_file<small>(path), io_error);
        CHECK_THROWS_AS(read_key_info(path), io_error);
        CHECK_THROWS_AS(rotate_key_file(path), io_error);
        CHECK_THROWS_AS(change_passphrase(path, {}, passphrase("x"), cheap), io_error);
    }
    set_mode(path, 0644);
    CHECK_THROWS_WITH_AS(read_key_info(path), Contains("got mode 0644, expected 0600 (chmod 600)"), io_error);
    set_mode(path, 0600);
    CHECK_NOTHROW(load_key_file<small>(path));
}

TEST_CASE_FIXTURE(folder_with_key, "a key file of another user is refused") {
    if (::geteuid() != 0 || ::chown(path.c_str(), 12345, static_cast<gid_t>(-1)) != 0) {
        MESSAGE("skipped: this user cannot give a file away");
        return;
    }
    CHECK_THROWS_WITH_AS(read_key_info(path), Contains("another user owns it"), io_error);
    CHECK_THROWS_AS(rotate_key_file(path), io_error);
}

TEST_CASE_FIXTURE(folder_with_key, "links, folders, pipes, missing and longer files are no key files") {
    const auto refused = [](const std::filesystem::path& place) {
        const std::string loading = refusal<tensafe::error>([&] { load_key_file<small>(place); });
        CHECK(refusal<tensafe::error>([&] { rotate_key_file(place); }) != "nothing was thrown");
        return loading;
    };
    const auto link = folder.path() / "link";
    std::filesystem::create_symlink(path, link);
    CHECK(contains(refused(link), "is a link; expected the path of the key file itself"));
    CHECK(contains(refused(folder.path()), "is not a regular file"));
    CHECK(contains(refused(folder.path() / ""), "is not a regular file"));
    const auto pipe = folder.path() / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(contains(refused(pipe), "is not a regular file"));
    CHECK(contains(refused(folder.path() / "missing"), "No such file"));
    CHECK(contains(refused(folder.path() / "missing" / "key"), "No such file"));
    CHECK(contains(refused(""), "cannot open"));

    const auto longer = folder.put("longer", text_of(path) + '\n');
    set_mode(longer, 0600);
    CHECK(contains(refused(longer), "got 177 bytes, expected the 176 of a key file"));
    const auto huge = folder.put("huge", std::string(5000, 'x'));
    set_mode(huge, 0600);
    CHECK(contains(refused(huge), "got 5000 bytes, expected at most 4096"));
    const auto empty = folder.put("empty", "");
    set_mode(empty, 0600);
    CHECK(contains(refused(empty), "is no key file: got 0 bytes"));
    CHECK(read_key_info(path).generation == 1);
}

TEST_CASE_FIXTURE(
    folder_with_key,
    "a key with a second name is read but not replaced: the old key would stay under the other") {
    std::filesystem::create_hard_link(path, folder.path() / "copy");
    CHECK_NOTHROW(load_key_file<small>(path));
    const std::string message = refusal<io_error>([&] { rotate_key_file(path); });
    CHECK(contains(message, "with 2 names (hard links)"));
    CHECK(contains(message, "key.partial-XXXXXX\")"));
    CHECK_THROWS_AS(change_passphrase(path, {}, passphrase("x"), cheap), io_error);
    std::filesystem::remove(folder.path() / "copy");
    CHECK(rotate_key_file(path).generation == 2);
}

TEST_CASE_FIXTURE(folder_with_key, "a key that somebody else is replacing is left alone") {
    const std::string before = text_of(path);
    {
        const keystore::detail::key_file_lock busy(path);
        CHECK_THROWS_WITH_AS(rotate_key_file(path), Contains("is being replaced by somebody else"), io_error);
        CHECK_THROWS_AS(change_passphrase(path, {}, passphrase("x"), cheap), io_error);
        CHECK_NOTHROW(load_key_file<small>(path));
    }
    CHECK(text_of(path) == before);
    // One that waited at the door finds another file there than it opened.
    {
        keystore::detail::key_file_lock late(path);
        std::filesystem::rename(path, folder.path() / "away");
        CHECK_THROWS_AS(late.replace(std::vector<std::byte>(176)), io_error);
        create_key_file<small>(path);
        CHECK_THROWS_WITH_AS(late.replace(std::vector<std::byte>(176)),
                             Contains("was replaced by somebody else meanwhile"), io_error);
    }
    CHECK(entries(folder.path()) == 2);
    CHECK(rotate_key_file(path).generation == 2);
}

TEST_CASE_FIXTURE(folder_with_key,
                  "of many that rotate at once each makes a generation of its own or gets an error") {
    std::vector<std::vector<std::uint64_t>> generations(4);
    on_threads(generations.size(), [&](std::size_t t) {
        for (int i = 0; i < 8; ++i) {
            try {
                generations[t].push_back(rotate_key_file(path).generation);
            } catch (const io_error&) {
                continue;
            }
        }
    });
    std::vector<std::uint64_t> all;
    for (const auto& mine : generations) {
        all.insert(all.end(), mine.begin(), mine.end());
    }
    std::sort(all.begin(), all.end());
    REQUIRE_FALSE(all.empty());
    CHECK(all.front() == 2);
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
    CHECK(load_key_file<small>(path).info.generation == all.back());
    CHECK(all.back() == all.size() + 1);
    CHECK(entries(folder.path()) == 1);
}

TEST_CASE_FIXTURE(folder_with_key,
                  "whoever reads a key while it is rotated gets the old one or the other, whole") {
    std::atomic<bool> done = false;
    std::jthread rotating([&] {
        try {
            for (int i = 0; i < 60; ++i) {
                rotate_key_file(path);
            }
        } catch (const tensafe::error&) {
            // Seen below by the generation.
        }
        done = true;
    });
    std::uint64_t last = 1;
    std::string failure;
    bool rising = true;
    do {
        try {
            const std::uint64_t generation = read_key_info(path).generation;
            rising = rising && generation >= last;
            last = generation;
        } catch (const tensafe::error& error) {
            failure = error.what();
        }
    } while (!done);
    rotating.join();
    CHECK(failure.empty());
    CHECK(rising);
    CHECK(read_key_info(path).generation == 61);
}

TEST_CASE_FIXTURE(folder_with_key,
                  "what a crash left beside a key is in nobody's way and goes with the next replacement") {
    folder.put("key.partial", "half a k");
    CHECK_NOTHROW(load_key_file<small>(path));
    CHECK(rotate_key_file(path).generation == 2);
    CHECK(entries(folder.path()) == 1);

    // A link that somebody planted there is not written through.
    const auto victim = folder.put("victim", "untouched");
    std::filesystem::create_symlink(victim, folder.path() / "key.partial");
    CHECK(rotate_key_file(path).generation == 3);
    CHECK(text_of(victim) == "untouched");
}

TEST_CASE_FIXTURE(folder_with_key, "a key whose replacement cannot be written stays as it was") {
    const std::string before = text_of(path);
    rlimit old{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
    rlimit full = old;
    full.rlim_cur = 100;
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
    const std::string rotating = refusal<io_error>([&] { rotate_key_file(path); });
    const std::string creating = refusal<io_error>([&] { create_key_file<small>(folder.path() / "new"); });
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
    std::signal(SIGXFSZ, handler);
    CHECK(contains(rotating, "cannot replace: File too large"));
    CHECK(contains(creating, "cannot create: File too large"));
    CHECK(text_of(path) == before);
    CHECK(entries(folder.path()) == 1);
}

TEST_CASE_FIXTURE(folder_with_key, "a process that is killed while it rotates leaves a whole key") {
    std::uint64_t least = 1;
    for (std::size_t round = 0; round < 8; ++round) {
        int told[2];
        REQUIRE(::pipe(told) == 0);
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            try {
                for (;;) {
                    rotate_key_file(path);
                    if (::write(told[1], "r", 1) != 1) {
                        ::_exit(1);
                    }
                }
            } catch (...) {
                ::_exit(1);
            }
        }
        ::close(told[1]);
        char done = 0;
        for (std::size_t i = 0; i <= round; ++i) {
            CHECK(::read(told[0], &done, 1) == 1);
            ++least;
        }
        REQUIRE(::kill(child, SIGKILL) == 0);
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status));
        ::close(told[0]);
        const std::uint64_t generation = load_key_file<small>(path).info.generation;
        CHECK(generation >= least);
        least = generation;
    }
    CHECK(rotate_key_file(path).generation == least + 1);
    CHECK(entries(folder.path()) == 1);
}
