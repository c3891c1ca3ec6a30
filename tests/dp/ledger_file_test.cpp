// The ledger on disk, long for all that can befall a file: hostile text, links, processes that fork or die.
#include <tensafe/dp/ledger.hpp>
#include <tensafe/dp/ledger_file.hpp>

#include <csignal>
#include <exception>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../io/file_builder.hpp"

using namespace tests;
using dp::ledger;
using dp::ledger_state;
using dp::odometer;
using dp::release_cost;

namespace {

const dp::privacy_budget usual{8, 1e-5};
const release_cost small{0.125, 1e-15};

const std::string one_principal =
    "{\n \"format\": \"tensafe privacy ledger\",\n \"version\": 1,\n \"principals\": [\n  {\n"
    "   \"name\": \"ann\",\n   \"mu_squared\": 0.1,\n   \"delta_slack\": 1e-30,\n   \"releases\": 7\n"
    "  }\n ]\n}\n";

/// A folder with a place for a ledger.
struct ledger_folder {
    const temporary_directory folder;
    const std::filesystem::path path = folder.path() / "ledger";
};

constexpr auto start_empty = dp::missing_ledger::start_empty;

ledger opened(const std::filesystem::path& path) {
    return ledger(usual, std::make_unique<dp::ledger_file>(path, start_empty));
}

std::string refusal_of(const std::filesystem::path& path) {
    return refusal<tensafe::error>([&] { dp::ledger_file(path, start_empty).load(); });
}

/// Runs `body` in a child of this process, which has nothing else to do and never returns from it.
template <class Body>
pid_t in_child(Body body) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        try {
            body();
        } catch (const std::exception&) {
            ::_exit(1);
        } catch (...) {
            ::_exit(2);
        }
        ::_exit(0);
    }
    return child;
}

/// How it ended: as waitpid says.
int ending_of(pid_t child) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return status;
}

}  // namespace

TEST_CASE("the JSON of a ledger is this one") {
    ledger_state state;
    state.principals.emplace("ann", odometer{0.1, 1e-30, 7});
    CHECK(dp::ledger_json(state) == one_principal);
    CHECK(dp::read_ledger_json(one_principal) == state);
    CHECK(dp::read_ledger_json(dp::ledger_json({})) == ledger_state{});
}

TEST_CASE("every number and every name comes back exactly") {
    random_numbers random(11);
    ledger_state state;
    const auto add = [&](std::string name, double mu_squared, double slack, std::uint64_t releases) {
        state.principals.emplace(std::move(name), odometer{mu_squared, slack, releases});
    };
    for (std::size_t i = 0; i < 4000; ++i) {
        double mu_squared = 0;
        while (!(mu_squared > 0) || !std::isfinite(mu_squared)) {
            mu_squared = std::bit_cast<double>(random());
        }
        double slack = 2;
        while (!(slack >= 0 && slack < 1)) {
            slack = std::bit_cast<double>(random());
        }
        add(std::to_string(i), mu_squared, slack, random() | 1);
    }
    add("largest", std::numeric_limits<double>::max(), std::nextafter(1.0, 0),
        std::numeric_limits<std::uint64_t>::max());
    add("smallest", std::numeric_limits<double>::denorm_min(), 0, 1);
    add("a \"quoted\\ name\"", 1, 0, 1);
    add("Zo\xc3\xab \xf0\x9f\x94\x91", 3, 0, (std::uint64_t{1} << 53) + 1);
    add(std::string(ledger::longest_name, '\\'), 1e22, 0, 1);
    CHECK(dp::read_ledger_json(dp::ledger_json(state)) == state);
}

TEST_CASE("the largest ledger is not longer than what is read") {
    ledger_state state;
    for (std::size_t i = 0; i < ledger::most_principals; ++i) {
        std::string name(ledger::longest_name, '"');
        name.replace(0, std::to_string(i).size(), std::to_string(i));
        state.principals.emplace(
            name, odometer{-std::numeric_limits<double>::denorm_min(), -std::numeric_limits<double>::max(),
                           std::numeric_limits<std::uint64_t>::max()});
    }
    CHECK(dp::ledger_json(state).size() <= dp::detail::longest_ledger_file);
    for (auto& [name, spent] : state.principals) {
        spent = {1.2345678901234567e-300, 1.2345678901234567e-300, std::numeric_limits<std::uint64_t>::max()};
    }
    CHECK(dp::read_ledger_json(dp::ledger_json(state)) == state);
}

TEST_CASE("hostile text is refused and the message says what is wrong") {
    const auto said = [](const std::string& text) {
        return refusal<format_error>([&] { dp::read_ledger_json(text, "a file"); });
    };
    const auto changed = [&](const std::string& from, const std::string& to) {
        return said(replaced(one_principal, from, to));
    };
    CHECK(contains(said(""), "not valid JSON"));
    CHECK(said("[]") == "\"a file\": got an array, expected an object of 3 members");
    CHECK(contains(said(std::string(dp::detail::longest_ledger_file + 1, ' ')), "bytes, expected at most"));
    CHECK(contains(said(one_principal.substr(0, one_principal.size() / 2)), "not valid JSON"));
    CHECK(contains(changed("tensafe privacy ledger", "tensafe meter"), "format: got"));
    CHECK(changed("\"version\": 1", "\"version\": 2") == "\"a file\": version: got \"2\", expected 1");
    CHECK(contains(changed("\"version\": 1", "\"version\": 1.0"), "whole number"));
    CHECK(contains(changed("\"version\": 1", "\"version\": 1, \"more\": 2"), "expected an object of 3"));
    CHECK(contains(changed("\"releases\": 7", "\"releases\": 7, \"more\": 2"), "expected an object of 4"));
    CHECK(changed("\"releases\"", "\"release\"") ==
          "\"a file\": principal number 0: missing key \"releases\"");
    CHECK(contains(changed("\"mu_squared\": 0.1", "\"mu_squared\": 0.1, \"mu_squared\": 0.2"),
                   "duplicate key \"mu_squared\""));
    CHECK(contains(changed("\"principals\": [", "\"principals\": {}, \"x\": ["), "expected an object of 3"));
    CHECK(changed("0.1", "9007199254740993") ==
          "\"a file\": principal number 0: mu_squared: got \"9007199254740993\", expected a number with a "
          "point "
          "or an exponent");
    CHECK(changed("0.1", "1.0") == "nothing was thrown");
    for (const char* const number :
         {"-0.1", "\"0.1\"", "null", "1e999", "NaN", "-1e999", "0", "0.0", "1", "true", "{}"}) {
        CHECK(changed("0.1", number) != "nothing was thrown");
    }
    for (const char* const number : {"-1e-30", "0", "1.0", "1.5", "\"0\"", "1e999", "[]"}) {
        CHECK(changed("1e-30", number) != "nothing was thrown");
    }
    for (const char* const number : {"-7", "7.0", "18446744073709551616", "\"7\"", "0", "null"}) {
        CHECK(changed("\"releases\": 7", std::string("\"releases\": ") + number) != "nothing was thrown");
    }
    for (const char* const name : {"\"\"", "\"a\\nb\"", "\"\\u0000\"", "7", "null", "[\"ann\"]"}) {
        CHECK(contains(changed("\"ann\"", name), "name: got"));
    }
    CHECK(contains(changed("ann", std::string(129, 'a')), "1 to 128 bytes"));
    const std::string entry = "{\"name\":\"ann\",\"mu_squared\":1.0,\"delta_slack\":0.0,\"releases\":1}";
    const std::string head = "{\"format\":\"tensafe privacy ledger\",\"version\":1,\"principals\":[";
    CHECK(said(head + entry + "]}") == "nothing was thrown");
    CHECK(said(head + entry + ',' + entry + "]}") == "\"a file\": principal number 1: \"ann\" comes twice");
    std::string many = head + "[]";
    for (std::size_t i = 0; i < 6 * ledger::most_principals; ++i) {
        many += ",[]";
    }
    CHECK(contains(said(many + "]}"), "JSON values"));
    CHECK(contains(said(one_principal + "x"), "not valid JSON"));
}

TEST_CASE_FIXTURE(ledger_folder, "a new ledger file is its owner's alone, and remembers over a restart") {
    ledger_state before;
    {
        ledger spent = opened(path);
        CHECK(text_of(path) == dp::ledger_json({}));
        CHECK(mode_of(path) == 0600);
        CHECK(spent.charge("ann", small, 20).left() == 20);
        CHECK(spent.charge("bob", {1e-3, 0}).left() == 1);
        before = spent.state();
        CHECK(text_of(path) == dp::ledger_json(before));
    }
    CHECK(mode_of(path) == 0600);
    CHECK(mode_of(folder.path() / "ledger.lock") == 0600);
    CHECK_FALSE(std::filesystem::exists(folder.path() / "ledger.partial"));
    ledger again = opened(path);
    CHECK(again.state() == before);
    while (again.left("ann", small) > 0) {
        static_cast<void>(again.charge("ann", small, (again.left("ann", small) + 1) / 2));
    }
    const std::string exhausted = text_of(path);
    CHECK_THROWS_AS(std::ignore = again.charge("ann", small), budget_error);
    CHECK(text_of(path) == exhausted);
}

TEST_CASE_FIXTURE(ledger_folder,
                  "a missing ledger is an error that says what to do, unless an empty one is asked for") {
    const std::string shown = '"' + path.string() + '"';
    CHECK_THROWS_WITH_AS(
        dp::ledger_file{path},
        (shown + ": there is no ledger; if there was one, find it; to begin with nothing spent, open it once "
                 "with dp::missing_ledger::start_empty")
            .c_str(),
        io_error);
    CHECK_FALSE(std::filesystem::exists(path));
    { dp::ledger_file file(path, start_empty); }
    CHECK_NOTHROW(dp::ledger_file{path});
    static_cast<void>(opened(path).charge("ann", small));
    CHECK(opened(path).spent("ann").releases == 1);  // what is there is not emptied
    CHECK_THROWS_AS(dp::ledger_file(folder.path() / "nowhere" / "ledger", start_empty), io_error);
    for (const char* const nothing : {"", "/", "ledger/"}) {
        CHECK(contains(refusal_of(nothing), "names no file"));
    }
}

TEST_CASE_FIXTURE(ledger_folder,
                  "a ledger has one name: links to it are refused, before it is in use and meanwhile") {
    const auto link = folder.path() / "link";
    ledger spent = opened(path);
    static_cast<void>(spent.charge("ann", small));
    std::filesystem::create_symlink(path, link);
    CHECK(contains(refusal_of(link), "is a link"));
    std::filesystem::remove(link);
    std::filesystem::create_symlink(folder.path() / "gone", link);
    CHECK(contains(refusal_of(link), "is a link"));
    CHECK_FALSE(std::filesystem::exists(folder.path() / "gone"));
    std::filesystem::remove(link);

    std::filesystem::create_hard_link(path, link);
    CHECK(contains(refusal_of(link), "is a file with 2 names"));
    const ledger_state before = spent.state();
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", small), io_error);
    CHECK(spent.state() == before);
    std::filesystem::remove(link);
    CHECK_NOTHROW(std::ignore = spent.charge("ann", small));

    // Moved away, with a link in its place: that stays a link, and what it leads to as it is.
    const std::string text = text_of(path);
    std::filesystem::rename(path, folder.path() / "moved");
    std::filesystem::create_symlink(folder.path() / "moved", path);
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", small), io_error);
    CHECK(std::filesystem::is_symlink(path));
    CHECK(text_of(path) == text);
}

TEST_CASE("a ledger stays in its folder, wherever the process or the folder goes") {
    const temporary_directory folder;
    const auto home = folder.path() / "home";
    std::filesystem::create_directory(home);
    CHECK(ending_of(in_child([&] {
              std::filesystem::current_path(home);
              auto file = std::make_unique<dp::ledger_file>("ledger", start_empty);
              const bool named =
                  std::filesystem::equivalent(file->path(), home / "ledger") && file->path().is_absolute();
              ledger spent(usual, std::move(file));
              std::filesystem::current_path("/");
              static_cast<void>(spent.charge("ann", small, 3));
              std::filesystem::rename(home, folder.path() / "moved");
              std::filesystem::create_directory(home);
              static_cast<void>(spent.charge("ann", small, 4));
              ::_exit(named ? 0 : 3);
          })) == 0);
    CHECK(std::filesystem::is_empty(home));
    CHECK(opened(folder.path() / "moved" / "ledger").spent("ann").releases == 7);
}

TEST_CASE_FIXTURE(ledger_folder,
                  "a folder that cannot be opened, and so not be forced to the device, is refused") {
    REQUIRE(::chmod(folder.path().c_str(), 0300) == 0);
    // Root may read everything: a child that is somebody else then tries.
    constexpr uid_t nobody = 65534;
    const bool is_root = ::geteuid() == 0;
    if (!is_root || ::chown(folder.path().c_str(), nobody, static_cast<gid_t>(-1)) == 0) {
        CHECK(ending_of(in_child([&] {
                  if (is_root && ::setuid(nobody) != 0) {
                      ::_exit(3);
                  }
                  dp::ledger_file file(path, start_empty);
              })) == 1 << 8);
        CHECK_FALSE(std::filesystem::exists(path));
    } else {
        MESSAGE("skipped: root, and no other user");
    }
    REQUIRE(::chmod(folder.path().c_str(), 0700) == 0);

    // What confirm() forces is the folder that was opened: it notices if that is gone.
    CHECK(ending_of(in_child([&] {
              dp::ledger_file file(folder.put("there", one_principal), start_empty);
              file.confirm();
              struct stat expected {};
              struct stat found {};
              if (::stat(folder.path().c_str(), &expected) != 0) {
                  ::_exit(3);
              }
              for (int i = 3; i < 1000; ++i) {
                  if (::fstat(i, &found) == 0 && found.st_ino == expected.st_ino &&
                      found.st_dev == expected.st_dev) {
                      static_cast<void>(::close(i));
                  }
              }
              try {
                  file.confirm();
              } catch (const io_error&) {
                  ::_exit(4);
              }
          })) == 4 << 8);
}

TEST_CASE("a file that is no ledger, or that others may touch, is refused and stays as it is") {
    const temporary_directory folder;
    const auto path = folder.put("ledger", one_principal);
    for (const unsigned mode : {0640U, 0604U, 0620U, 0602U, 0644U}) {
        REQUIRE(::chmod(path.c_str(), static_cast<mode_t>(mode)) == 0);
        CHECK(contains(refusal_of(path), "others than its owner have access"));
    }
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    CHECK(refusal_of(path) == "nothing was thrown");
    REQUIRE(::chmod((folder.path() / "ledger.lock").c_str(), 0666) == 0);
    CHECK(contains(refusal_of(path), "another user owns it or may write it"));
    REQUIRE(::chmod((folder.path() / "ledger.lock").c_str(), 0600) == 0);

    for (const std::string& text : {std::string(), one_principal.substr(0, 40), std::string("{}"),
                                    std::string(dp::detail::longest_ledger_file + 1, ' ')}) {
        folder.put("ledger", text);
        dp::ledger_file file(path);  // reads nothing: the ledger does
        CHECK_THROWS_AS(file.load(), format_error);
        CHECK(text_of(path) == text);
    }
    std::filesystem::create_directory(folder.path() / "folder");
    CHECK(contains(refusal_of(folder.path() / "folder"), "is not a regular file"));
}

TEST_CASE_FIXTURE(ledger_folder, "one ledger at a time has a file, in this process and in all") {
    {
        ledger spent = opened(path);
        CHECK(contains(refusal_of(path), "is in use by another ledger"));
        CHECK(ending_of(in_child([&] { dp::ledger_file file(path); })) == 1 << 8);
        CHECK_NOTHROW(std::ignore = spent.charge("ann", small));
        CHECK(refusal_of(folder.path() / "another") == "nothing was thrown");
    }
    CHECK(ending_of(in_child([&] { dp::ledger_file file(path); })) == 0);
    CHECK(refusal_of(path) == "nothing was thrown");
}

TEST_CASE_FIXTURE(ledger_folder, "a child of fork cannot spend its parent's budget a second time") {
    ledger spent = opened(path);
    static_cast<void>(spent.charge("ann", small));
    const std::string before = text_of(path);
    CHECK(ending_of(in_child([&] { static_cast<void>(spent.charge("ann", small)); })) == 1 << 8);
    CHECK(text_of(path) == before);
    CHECK_NOTHROW(std::ignore = spent.charge("ann", small));
}

TEST_CASE_FIXTURE(ledger_folder, "a child of fork has the lock until it ends") {
    auto file = std::make_unique<dp::ledger_file>(path, start_empty);
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    const pid_t child = in_child([&] {
        static_cast<void>(::close(pipe[1]));
        char none = 0;
        ::_exit(::read(pipe[0], &none, 1) == 0 ? 0 : 3);  // until the parent lets go
    });
    static_cast<void>(::close(pipe[0]));
    file.reset();
    CHECK(contains(refusal_of(path), "or by a child that one forked"));
    static_cast<void>(::close(pipe[1]));
    CHECK(ending_of(child) == 0);
    CHECK(refusal_of(path) == "nothing was thrown");
}

TEST_CASE_FIXTURE(ledger_folder,
                  "a charge that cannot be written is not granted, and the file stays as it was") {
    ledger spent = opened(path);
    static_cast<void>(spent.charge("ann", small));
    const std::string before = text_of(path);
    const ledger_state state = spent.state();

    // A folder where the new file would be written: not even root gets past it.
    std::filesystem::create_directory(folder.path() / "ledger.partial");
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", small), io_error);
    CHECK(text_of(path) == before);
    CHECK(spent.state() == state);
    std::filesystem::remove(folder.path() / "ledger.partial");
    // What somebody planted there is not written through.
    std::filesystem::create_symlink(folder.put("precious", "precious"), folder.path() / "ledger.partial");
    CHECK_NOTHROW(std::ignore = spent.charge("ann", small));
    CHECK(text_of(folder.path() / "precious") == "precious");
    CHECK(text_of(path) == dp::ledger_json(spent.state()));

    std::filesystem::remove(folder.path() / "ledger.lock");
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", small), io_error);
    folder.put("ledger.lock", "");
    CHECK_THROWS_AS(std::ignore = spent.charge("ann", small), io_error);
    CHECK(spent.spent("ann").releases == 2);
}

namespace {

/// Dies between the new file and its confirmation.
class dying_store final : public dp::ledger_store {
  public:
    explicit dying_store(const std::filesystem::path& path) : file_(path, start_empty) {}
    ledger_state load() override { return file_.load(); }
    void replace(const ledger_state& state) override { file_.replace(state); }
    void confirm() override { static_cast<void>(::raise(SIGKILL)); }

  private:
    dp::ledger_file file_;
};

}  // namespace

TEST_CASE_FIXTURE(ledger_folder, "a process that is killed before it charges has spent what it stored") {
    const int ending = ending_of(in_child([&] {
        ledger spent(usual, std::make_unique<dying_store>(path));
        static_cast<void>(spent.charge("ann", small, 9));
    }));
    CHECK(WIFSIGNALED(ending));
    CHECK(opened(path).spent("ann").releases == 9);
}

TEST_CASE_FIXTURE(
    ledger_folder,
    "whenever a process is killed, the file has all that it granted and at most one charge more") {
    const release_cost cheap{1e-4, 0};
    constexpr std::uint64_t block = 3;
    random_numbers random(5);
    std::uint64_t granted = 0;
    std::uint64_t most = 0;
    for (int round = 0; round < 20; ++round) {
        std::array<int, 2> pipe{};
        REQUIRE(::pipe(pipe.data()) == 0);
        const pid_t child = in_child([&] {
            static_cast<void>(::close(pipe[0]));
            ledger spent = opened(path);
            for (;;) {
                const dp::release_charge charge = spent.charge("ann", cheap, block);
                const char one = charge.left() == block ? 'g' : '?';
                if (::write(pipe[1], &one, 1) != 1) {
                    ::_exit(3);
                }
            }
        });
        static_cast<void>(::close(pipe[1]));
        std::uint64_t charges = 0;
        const auto next = [&] {
            char one = 0;
            const bool got = ::read(pipe[0], &one, 1) == 1;
            CHECK((!got || one == 'g'));
            charges += got;
            return got;
        };
        // After a charge or a few, at whatever the child is doing then.
        for (std::uint64_t expected = 1 + random() % 4; charges < expected && next();) {
        }
        std::atomic<unsigned> turns = static_cast<unsigned>(random() % 100'000);
        while (turns.fetch_sub(1) != 0) {
        }
        CHECK(::kill(child, SIGKILL) == 0);
        CHECK(WIFSIGNALED(ending_of(child)));
        while (next()) {
        }
        static_cast<void>(::close(pipe[0]));
        CHECK(charges > 0);
        granted += block * charges;
        most += block * (charges + 1);

        const odometer spent = opened(path).spent("ann");
        CHECK(spent.releases >= granted);
        CHECK(spent.releases <= most);
        CHECK(spent.releases % block == 0);
        CHECK(spent.mu_squared >= 1e-8 * static_cast<double>(spent.releases) * (1 - 1e-12));
        most = spent.releases;
        granted = spent.releases;
    }
    CHECK_NOTHROW(opened(path));
}
