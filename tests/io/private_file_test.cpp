#include <tensafe/io/private_file.hpp>

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_builder.hpp"

using namespace tests;

namespace {

/// What the library reads.
std::string secret_of(const std::filesystem::path& path, std::size_t largest = 1000) {
    const auto bytes = io::read_private_file(path, largest);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A folder with a place for a secret.
struct key_folder {
    const temporary_directory folder;
    const std::filesystem::path path = folder.path() / "key";
};

}  // namespace

TEST_CASE_FIXTURE(key_folder,
                  "a private file comes back as it was written, and only its owner may touch it") {
    io::create_private_file(path, to_bytes("a secret"));
    CHECK(secret_of(path) == "a secret");
    CHECK(mode_of(path) == 0600);
    CHECK(std::filesystem::hard_link_count(path) == 1);
    CHECK(entries(folder.path()) == 1);

    io::create_private_file(folder.path() / "empty", {});
    CHECK(secret_of(folder.path() / "empty").empty());
}

TEST_CASE("a private file moves to its name, so that whoever is killed meanwhile leaves no second name") {
    const temporary_directory folder;
    const auto probe = folder.put("probe", "");
    if (::renameat2(AT_FDCWD, probe.c_str(), AT_FDCWD, (folder.path() / "moved").c_str(), RENAME_NOREPLACE) !=
        0) {
        MESSAGE("skipped: this file system does not rename without replacing");
        return;
    }
    const io::owned_descriptor events(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    REQUIRE(events.get() >= 0);
    REQUIRE(::inotify_add_watch(events.get(), folder.path().c_str(), IN_CREATE | IN_MOVED_TO | IN_DELETE) >=
            0);
    io::create_private_file(folder.path() / "key", to_bytes("a secret"));
    alignas(inotify_event) std::array<char, 4096> buffer{};
    const ssize_t size = ::read(events.get(), buffer.data(), buffer.size());
    REQUIRE(size > 0);
    std::vector<std::uint32_t> seen;
    for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
        inotify_event event{};
        std::memcpy(&event, buffer.data() + at, sizeof event);
        seen.push_back(event.mask);
        at += sizeof event + event.len;
    }
    CHECK(seen == std::vector<std::uint32_t>{IN_CREATE, IN_MOVED_TO});
}

TEST_CASE("where files cannot be moved so, hard links give them a name that nothing has") {
    const temporary_directory folder;
    const auto from = folder.put("from", "a secret");
    const auto taken = folder.put("taken", "another");
    CHECK(io::detail::link_to_free_name(from, taken) == EEXIST);
    CHECK(entries(folder.path()) == 2);
    CHECK(io::detail::link_to_free_name(from, folder.path() / "key") == 0);
    CHECK(entries(folder.path()) == 2);
    CHECK(std::filesystem::hard_link_count(folder.path() / "key") == 1);
}

TEST_CASE("a private file has mode 0600 whatever the process takes away from new files") {
    const temporary_directory folder;
    const mode_t before = ::umask(0277);
    CHECK_NOTHROW(io::create_private_file(folder.path() / "key", to_bytes("a secret")));
    ::umask(before);
    CHECK(mode_of((folder.path() / "key")) == 0600);
}

TEST_CASE("a private file is never written over, whatever stands there") {
    const temporary_directory folder;
    const auto path = folder.put("key", "the old key");
    CHECK_THROWS_AS(io::create_private_file(path, to_bytes("another")), io_error);
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    CHECK(secret_of(path) == "the old key");

    const auto link = folder.path() / "link";
    std::filesystem::create_symlink(folder.path() / "nowhere", link);
    CHECK_THROWS_AS(io::create_private_file(link, to_bytes("another")), io_error);
    CHECK_FALSE(std::filesystem::exists(folder.path() / "nowhere"));
    CHECK_THROWS_AS(io::create_private_file(folder.path(), to_bytes("another")), io_error);
    CHECK_THROWS_AS(io::create_private_file(folder.path() / "missing" / "key", {}), io_error);
    CHECK(entries(folder.path()) == 2);  // no temporary file stays
}

TEST_CASE("what writers of the same process number left does not keep a private file from being created") {
    const temporary_directory folder;
    for (int i = 0; i < 100; ++i) {
        folder.put("key.partial-" + std::to_string(::getpid()) + "-" + std::to_string(i), "left");
    }
    const auto path = folder.path() / "key";
    io::create_private_file(path, to_bytes("a secret"));
    CHECK(secret_of(path) == "a secret");
    CHECK(entries(folder.path()) == 101);
}

TEST_CASE("a private file is created in the working folder too, by its name alone") {
    const temporary_directory folder;
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    CHECK_NOTHROW(io::create_private_file("key", to_bytes("a secret")));
    std::filesystem::current_path(before);
    CHECK(secret_of(folder.path() / "key") == "a secret");
}

TEST_CASE_FIXTURE(key_folder, "a secret that another user owns is not read, one of this user is") {
    io::create_private_file(path, to_bytes("a secret"));
    CHECK(secret_of(path) == "a secret");
    if (::geteuid() != 0) {
        return;  // only root can give a file away
    }
    if (::chown(path.c_str(), 12345, static_cast<gid_t>(-1)) != 0) {
        REQUIRE((errno == EINVAL || errno == EPERM));
        MESSAGE("skipped: this user namespace has no second user");
        return;
    }
    CHECK_THROWS_WITH_AS(secret_of(path), Contains("another user owns it"), io_error);
}

TEST_CASE_FIXTURE(key_folder, "of several that create the same private file one succeeds") {
    std::vector<int> succeeded(4, 0);
    on_threads(succeeded.size(), [&](std::size_t i) {
        try {
            io::create_private_file(path, to_bytes(std::to_string(i)));
            succeeded[i] = 1;
        } catch (const io_error&) {
            succeeded[i] = 0;
        }
    });
    REQUIRE(std::count(succeeded.begin(), succeeded.end(), 1) == 1);
    const auto winner = std::find(succeeded.begin(), succeeded.end(), 1) - succeeded.begin();
    CHECK(secret_of(path) == std::to_string(winner));
    CHECK(entries(folder.path()) == 1);
}

TEST_CASE("a file to which others than its owner have any access is not read as a secret") {
    const temporary_directory folder;
    const auto path = folder.put("key", "no secret");
    for (const unsigned mode : {0601u, 0602u, 0604u, 0610u, 0620u, 0640u, 0644u}) {
        CAPTURE(mode);
        REQUIRE(::chmod(path.c_str(), mode) == 0);
        CHECK_THROWS_AS(secret_of(path), io_error);
    }
    CHECK_THROWS_WITH(secret_of(path),
                      (tensafe::quote(path.string()) +
                       ": others than its owner have access: got mode 0644, expected 0600 (chmod 600)")
                          .c_str());
    for (const unsigned mode : {0600u, 0400u, 0700u}) {
        REQUIRE(::chmod(path.c_str(), mode) == 0);
        CHECK(secret_of(path) == "no secret");
    }
}

TEST_CASE("a secret that is missing, no regular file or too long is refused") {
    const temporary_directory folder;
    CHECK_THROWS_AS(secret_of(folder.path() / "missing"), io_error);
    CHECK_THROWS_AS(secret_of(folder.path()), io_error);
    const auto pipe = folder.path() / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK_THROWS_AS(secret_of(pipe), io_error);
    const auto path = folder.path() / "key";
    io::create_private_file(path, to_bytes("12345"));
    CHECK(secret_of(path, 5) == "12345");
    CHECK_THROWS_AS(secret_of(path, 4), format_error);
}
