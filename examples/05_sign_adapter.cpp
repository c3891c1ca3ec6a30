// Signed adapter packages: keys, signing, and what a server that trusts a key refuses. And pins, by which
// clients of tensafe-server know which adapter it has.
//
//   sign_adapter [keygen KEYFILE | show KEYFILE | sign DIRECTORY KEYFILE | verify DIRECTORY --trust HEX |
//                 pin DIRECTORY KEYFILE PINFILE --name NAME | open PINFILE DIRECTORY]

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/core/version.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/mark_key.hpp>
#include <tensafe/keystore/opened_pin.hpp>
#include <tensafe/keystore/signed_adapter.hpp>

#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "../service/number_option.hpp"
#include "../service/params.hpp"

namespace io = tensafe::io;
namespace keystore = tensafe::keystore;
namespace fs = std::filesystem;

namespace {

std::string keygen(const fs::path& key_file) {
    const keystore::signing_key key = keystore::signing_key::generate();
    key.write(key_file);  // for its owner alone, and never over an old key
    const std::string text = key.verifying().hex();
    std::printf("signing key     %s (keep it secret)\npublic key      %s\n", key_file.c_str(), text.c_str());
    return text;
}

void sign(const fs::path& directory, const fs::path& key, const std::string& name, std::uint64_t revision) {
    keystore::sign_adapter(directory, keystore::signing_key::read(key), name, revision);
    std::printf("signed          %s\n", (directory / keystore::signature_file_name).c_str());
}

void verify(const fs::path& directory, const std::string& trusted, std::uint64_t oldest) {
    const keystore::signature_policy policy = {
        .trusted = {keystore::verifying_key::from_hex(trusted, "--trust")}, .oldest_revision = oldest};
    const auto [adapter, from] = keystore::load_adapter(directory, policy);
    std::printf("loaded          %zu sites, name %s, revision %llu\n", adapter.sites.size(),
                tensafe::quote(from.name).c_str(), from.revision + 0ULL);
}

/// How a server serves the adapter, and for a pin of one tenant whose marks it has.
struct serving_options {
    tensafe::lora::model_options model;
    std::string mark_key, tenant;
};

keystore::pinned_parts parts_of(const fs::path& directory, const std::string& name,
                                const serving_options& of) {
    const auto adapter = io::load_peft(directory);
    if (of.mark_key.empty()) {
        return keystore::pinned_parts_of<split::params, split::packing, split::protection>(adapter, of.model);
    }
    const bool is_key =
        of.tenant.size() == 64 && of.tenant.find_first_not_of("0123456789abcdef") == std::string::npos;
    return keystore::pinned_parts_of<split::params, split::packing, split::protection>(
        adapter, of.model, keystore::mark_key::read(of.mark_key), name, (is_key ? "key " : "") + of.tenant);
}

void pin(const fs::path& directory, const fs::path& key, const fs::path& file, const std::string& name,
         std::uint64_t revision, const serving_options& of) {
    const auto made = keystore::opened_pin::make(keystore::signing_key::read(key), name,
                                                 parts_of(directory, name, of), revision);
    made.write(file);
    std::printf("pin             %s, for clients\nopening         %s.opening, for the server alone\n",
                file.c_str(), file.c_str());
}

/// For who has the adapter, in an audit or a dispute.
void open(const fs::path& file, const fs::path& directory, const serving_options& of) {
    const auto opened = keystore::opened_pin::read(file);
    opened.check(opened.pin.name, parts_of(directory, opened.pin.name, of), tensafe::quote(file.string()));
    std::printf("opened          the pin of %s, revision %llu, is of this adapter\nsigned by       %s\n",
                tensafe::quote(opened.pin.name).c_str(), opened.pin.revision + 0ULL,
                opened.pin.key.hex().c_str());
}

void must_be_refused(const char* what, const fs::path& directory, const std::string& trusted,
                     std::uint64_t oldest) {
    try {
        verify(directory, trusted, oldest);
    } catch (const tensafe::signature_error& error) {
        return void(std::printf("%s is refused:\n  %s\n", what, error.what()));
    }
    throw tensafe::error(std::string(what) + " was loaded");
}

void demonstrate(const fs::path& folder) {
    fs::current_path(folder);
    const fs::path adapter = "adapter";
    fs::copy(TENSAFE_EXAMPLE_DATA "/qwen_rank32", adapter);
    const std::string trusted = keygen("key.pem");
    must_be_refused("A package without a signature", adapter, trusted, 0);

    sign(adapter, "key.pem", "qwen-example", 3);
    verify(adapter, trusted, 3);
    must_be_refused("An old revision", adapter, trusted, 4);

    const fs::path weights = adapter / "adapter_model.safetensors";
    fs::permissions(weights, fs::perms::owner_write, fs::perm_options::add);  // maybe read-only
    std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
    file.exceptions(std::ios::failbit | std::ios::badbit);
    file.seekp(-1, std::ios::end).put('!').flush();
    must_be_refused("A package with one changed byte", adapter, trusted, 0);
}

/// Goes away with the object, on an error too.
struct temporary_folder {
    std::string path = (fs::temp_directory_path() / "tensafe-sign-XXXXXX").string();
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
    std::string directory, key_file, pin_file, name, trusted;
    std::uint64_t revision = 0;
    CLI::App app("Signs adapter packages and loads them as a server would; alone, demonstrates it");
    app.set_version_flag("--version", "sign_adapter " + tensafe::version().text());
    CLI::App* const make = app.add_subcommand("keygen", "Makes a signing key");
    make->add_option("KEYFILE", key_file, "New file")->required();
    CLI::App* const showing = app.add_subcommand("show", "Prints the public key of a signing key");
    showing->add_option("KEYFILE", key_file, "Of keygen, for its owner alone")->required();
    CLI::App* const signing = app.add_subcommand("sign", "Signs a PEFT directory");
    signing->add_option("DIRECTORY", directory)->required();
    signing->add_option("KEYFILE", key_file)->required();
    signing->add_option("--name", name, "What the adapter is called; default: nothing");
    signing->add_option("--revision", revision, "Larger with each version; default: 0");
    CLI::App* const verifying = app.add_subcommand("verify", "Loads a signed PEFT directory");
    verifying->add_option("DIRECTORY", directory)->required();
    verifying
        ->add_option("--trust", trusted,
                     "The signer's public key, 64 hexadecimal digits, as keygen and show print it")
        ->required();
    verifying->add_option("--oldest", revision, "The smallest revision that is accepted");
    CLI::App* const pinning = app.add_subcommand(
        "pin",
        "Signs what clients of tensafe-server can check of a PEFT directory; its --pin takes the file");
    pinning->add_option("DIRECTORY", directory)->required();
    pinning->add_option("KEYFILE", key_file, "Of keygen, for its owner alone")->required();
    pinning->add_option("PINFILE", pin_file, "New file, and with it PINFILE.opening")->required();
    pinning->add_option("--name", name, "What the adapter is called on the server")->required();
    pinning->add_option("--revision", revision, "Larger with each version; default: 0");
    CLI::App* const opening = app.add_subcommand("open", "Checks a pin against the adapter that it is of");
    opening->add_option("PINFILE", pin_file, "Beside it PINFILE.opening")->required();
    serving_options served;
    for (CLI::App* const of_pin : {pinning, opening}) {
        of_pin->add_flag("--column-scales", served.model.column_scales, "The server has this option");
        CLI::Option* const marks =
            of_pin->add_option("--mark-key", served.mark_key, "The server has it, and --mark-memory");
        marks->needs(of_pin
                         ->add_option("--tenant", served.tenant,
                                      "Whose pin it is, then: a tenant, or the key of a client without one")
                         ->needs(marks));
    }
    opening->add_option("DIRECTORY", directory)->required();
    for (CLI::App* const command : app.get_subcommands({})) {
        split::refuse_nothing(*command);
    }
    CLI11_PARSE(app, argc, argv);
    static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));  // a limit on file sizes is a full disk
    try {
        if (*make) {
            keygen(key_file);
        } else if (*showing) {
            std::printf("%s\n", keystore::signing_key::read(key_file).verifying().hex().c_str());
        } else if (*signing) {
            sign(directory, key_file, name, revision);
        } else if (*verifying) {
            verify(directory, trusted, revision);
        } else if (*pinning) {
            pin(directory, key_file, pin_file, name, revision, served);
        } else if (*opening) {
            open(pin_file, directory, served);
        } else {
            const temporary_folder folder;
            demonstrate(folder.path);
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "sign_adapter: %s\n", error.what());
        return 1;
    }
}
