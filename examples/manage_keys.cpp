// A client's secret key in a file: made, shown, wrapped with a passphrase, rotated.
//   manage_keys [create FILE | show FILE | passphrase FILE | rotate FILE]

#include <tensafe/core/error.hpp>
#include <tensafe/keystore/key_file.hpp>
#include <tensafe/keystore/passphrase.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/protocol/client.hpp>

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>

namespace ckks = tensafe::ckks;
namespace keystore = tensafe::keystore;
namespace fs = std::filesystem;

namespace {

void show(const fs::path& path, const keystore::key_info& info) {
    const std::time_t made = info.created.time_since_epoch().count();
    std::cout << "key file        " << path.string() << "\nkey             " << keystore::hex(info.id)
              << ", generation " << info.generation << ", made "
              << std::put_time(std::gmtime(&made), "%Y-%m-%d %H:%M:%S UTC") << "\nparameter set   "
              << tensafe::wire::set_name(info.set) << "\npassphrase      "
              << (info.wrapped ? info.cost.text() : "none") << '\n';
}

/// From a file if one is named, else asked for.
/// @param otherwise  the options that make the question needless
keystore::passphrase passphrase_from(const std::string& file, const char* question,
                                     const std::string& otherwise) {
    try {
        return file.empty() ? keystore::ask_passphrase(question) : keystore::passphrase::read(file);
    } catch (const tensafe::io_error& error) {
        if (!file.empty()) {
            throw;
        }
        throw tensafe::io_error(std::string(error.what()) +
                                ": cannot ask for a passphrase, expected a terminal or " + otherwise);
    }
}

keystore::passphrase passphrase_of(const fs::path& path, const std::string& file) {
    // With a file named, a key without a passphrase is refused: somebody may have planted it.
    const bool none = file.empty() && !keystore::read_key_info(path).wrapped;
    return none ? keystore::passphrase() : passphrase_from(file, "Passphrase: ", "--passphrase-file");
}

keystore::passphrase chosen_passphrase(const std::string& file, const std::string& option, bool plain) {
    if (plain) {
        return {};
    }
    keystore::passphrase phrase = passphrase_from(file, "New passphrase: ", option + " or --plain");
    if (file.empty() && keystore::ask_passphrase("Once more: ").text() != phrase.text()) {
        throw keystore::passphrase_error("the two passphrases differ");
    }
    return phrase;
}

keystore::key_info create(const fs::path& path, const std::string& set, const keystore::passphrase& phrase) {
    return set == "compact_n4096"   ? keystore::create_key_file<ckks::compact_n4096>(path, phrase)
           : set == "quantum_n4096" ? keystore::create_key_file<ckks::quantum_n4096>(path, phrase)
           : set == "minimal_n2048" ? keystore::create_key_file<ckks::minimal_n2048>(path, phrase)
                                    : keystore::create_key_file<ckks::private_n4096>(path, phrase);
}

template <class Call>
void must_be_refused(const char* what, Call call) {
    try {
        call();
    } catch (const tensafe::error& error) {
        return void(std::cout << what << " is refused:\n  " << error.what() << '\n');
    }
    throw tensafe::error(std::string(what) + " was taken");
}

void demonstrate(const fs::path& folder) {
    const fs::path path = folder / "key.tsk";
    const keystore::passphrase phrase("correct horse battery staple");
    show(path, keystore::create_key_file<ckks::private_n4096>(path, phrase));
    auto stored = keystore::load_key_file<ckks::private_n4096>(path, phrase);
    const tensafe::lora::client<ckks::private_n4096> client(std::move(stored.key));  // ready for a session

    must_be_refused("A wrong passphrase", [&] {
        static_cast<void>(
            keystore::load_key_file<ckks::private_n4096>(path, keystore::passphrase("correct horse")));
    });
    must_be_refused("Another parameter set",
                    [&] { static_cast<void>(keystore::load_key_file<ckks::compact_n4096>(path, phrase)); });
    show(path, keystore::rotate_key_file<ckks::private_n4096>(path, phrase));
    fs::permissions(path, fs::perms::others_read, fs::perm_options::add);
    must_be_refused("A key that others may read", [&] { static_cast<void>(keystore::read_key_info(path)); });
}

/// Goes away with the object, on an error too.
struct temporary_folder {
    std::string path = (fs::temp_directory_path() / "tensafe-keys-XXXXXX").string();
    temporary_folder() {
        if (::mkdtemp(path.data()) == nullptr) {
            throw tensafe::io_error("cannot make the folder " + path);
        }
    }
    ~temporary_folder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
};

}  // namespace

int main(int argc, char** argv) {
    std::string path, set = "private_n4096", phrase_file, new_phrase_file;
    bool plain = false;
    CLI::App app("Keeps a client's secret key in a file; alone, demonstrates it");
    const auto command = [&](const char* name, const char* what) {
        CLI::App* const added = app.add_subcommand(name, what);
        added->add_option("FILE", path)->required();
        return added;
    };
    CLI::App* const creating = command("create", "Makes a key, with a passphrase unless --plain is given");
    creating->add_option("--set", set)
        ->check(CLI::IsMember({"private_n4096", "quantum_n4096", "compact_n4096", "minimal_n2048"}));
    CLI::App* const showing = command("show", "Shows what is known of a key without its passphrase");
    CLI::App* const changing = command("passphrase", "Another passphrase; --plain: none");
    changing->add_option("--new-passphrase-file", new_phrase_file, "As --passphrase-file");
    CLI::App* const rotating = command("rotate", "Puts a fresh key in the place of the old one");
    for (CLI::App* const each : {creating, changing, rotating}) {
        each->add_option("--passphrase-file", phrase_file, "Mode 0600, one line; asked for if not given");
    }
    for (const auto& [each, replaced] :
         {std::pair(creating, "--passphrase-file"), {changing, "--new-passphrase-file"}}) {
        each->add_flag("--plain", plain, "No passphrase: only the file's mode protects the key")
            ->excludes(replaced);
    }
    CLI11_PARSE(app, argc, argv);
    try {
        if (*creating) {
            show(path, create(path, set, chosen_passphrase(phrase_file, "--passphrase-file", plain)));
        } else if (*showing) {
            show(path, keystore::read_key_info(path));
        } else if (*changing) {
            const auto old = passphrase_of(path, phrase_file);
            show(path, keystore::change_passphrase(
                           path, old, chosen_passphrase(new_phrase_file, "--new-passphrase-file", plain)));
        } else if (*rotating) {
            show(path, keystore::rotate_key_file(path, passphrase_of(path, phrase_file)));
        } else {
            const temporary_folder folder;
            demonstrate(folder.path);
        }
    } catch (const std::exception& error) {
        std::cerr << "manage_keys: " << error.what() << '\n';
        return 1;
    }
}
