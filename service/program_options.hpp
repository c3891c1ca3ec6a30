#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/keystore/adapter_pin.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/key_file.hpp>
#include <tensafe/keystore/passphrase.hpp>
#include <tensafe/lora/protocol/client.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "net/connection.hpp"
#include "net/websocket_client.hpp"
#include "number_option.hpp"
#include "params.hpp"
#include "progress_bar.hpp"
#include "remote_model.hpp"

namespace split {

/// What all clients of the service take on the command line.
struct program_options {
    std::string server = "wss://localhost:8443";
    std::string trust;
    std::string adapter;
    std::string pin;
    std::string publisher;
    std::uint64_t oldest_revision = 0;
    std::string identity;
    std::string key;
    std::string passphrase_file;
    bool insecure_plaintext = false;
    bool json_frames = false;
    std::size_t largest_frame = websocket_options{}.largest_frame;
    unsigned busy_wait = 0;
    unsigned total_seconds = 180;
    unsigned step_seconds = 60;
    std::size_t tokens_ahead = remote_options{}.tokens_ahead;

    void add_to(CLI::App& app) {
        add_connection_to(app);
        app.add_option("--identity", identity,
                       "file of this client's Ed25519 key, made if there is none; default: a fresh one");
        app.add_option("--key", key, "key file with the secret key (manage_keys); default: a fresh one");
        app.add_option("--passphrase-file", passphrase_file, "of the key file, mode 0600");
    }
    /// Without the keys: for a client whose keys are always fresh.
    void add_connection_to(CLI::App& app) {
        app.add_option("--server", server, "wss://host:port")->capture_default_str();
        app.add_option("--trust", trust, "the server's certificate.pem");
        app.add_option("--adapter", adapter, "its name on the server")->required();
        app.add_option("--pin", pin, "file of the pin that the server must show of the adapter");
        app.add_option("--publisher", publisher, "public key that must have signed the server's pin");
        app.add_option("--oldest-revision", oldest_revision, "of such a pin")->needs("--publisher");
        app.add_flag("--json-frames", json_frames, "messages as base64 in JSON, a third longer");
        add_number(app, "--largest-frame", largest_frame, std::size_t{1} << 10, std::size_t{1} << 40,
                   "that the server may send, in bytes");
        add_number(app, "--tokens-ahead", tokens_ahead, 1, params::degree,
                   "of a block at most, for fewer bytes; where the server has larger ones each hidden state "
                   "goes alone; 1: no blocks");
        add_number(app, "--busy-wait", busy_wait, 0, 1'000'000,
                   "microseconds in which a wait for the server keeps a core busy, for sooner replies");
        add_number(app, "--total-seconds", total_seconds, 1, 86'400,
                   "for all that connecting, or a call from one answer to the next, may wait for: a server "
                   "that starts again, limits of rates, silence");
        add_number(
            app, "--step-seconds", step_seconds, 1, 86'400,
            "of them for connecting and logging in once, and for a request with its reply: then another "
            "connection is tried");
        app.add_flag("--insecure-plaintext", insecure_plaintext, "allow ws://, without TLS");
    }

    /// @throws tensafe::parameter_error for ws:// without --insecure-plaintext, and as http_proxy's
    remote_model::connector connector() const {
        const server_address to = server_address::of(server);
        tensafe::require<tensafe::parameter_error>(
            to.tls || insecure_plaintext,
            {"--server ", to.text(), ": has no TLS, expected wss://, or --insecure-plaintext as well"});
        if (!to.tls) {
            std::fprintf(stderr, "%s: no TLS: what goes over this connection can be changed on its way\n",
                         to.text().c_str());
        }
        const char* const trace = std::getenv("TRACEPARENT");
        const websocket_options options{
            .trusted_certificates = trust,
            .largest_frame = largest_frame,
            .busy_wait = std::chrono::microseconds(busy_wait),
            .proxy = http_proxy::of_environment(to),
            .traceparent = trace != nullptr && net::is_traceparent(trace) ? trace : ""};
        return [to, options](const wait_options& how) { return connect_websocket(to, options, how); };
    }

    remote_options remote() const {
        remote_options options;
        options.adapter = adapter;
        options.total_limit = std::chrono::seconds(total_seconds);
        options.step_limit = std::chrono::seconds(step_seconds);
        options.tokens_ahead = tokens_ahead;
        if (!pin.empty()) {
            options.pin = tensafe::keystore::adapter_pin::read(pin);
        }
        if (!publisher.empty()) {
            options.publisher = tensafe::keystore::verifying_key::from_hex(publisher, "--publisher");
        }
        options.oldest_revision = oldest_revision;
        options.frames = json_frames ? frame_form::json : frame_form::binary;
        options.report = [](const std::string& text) {
            std::fprintf(stderr, "%s%s\n", examples::over_progress_bar(), text.c_str());
        };
        return options;
    }

    /// Fresh, or from the key file. The key never leaves this process.
    std::shared_ptr<tensafe::lora::client<params>> keys() const {
        if (key.empty()) {
            return std::make_shared<tensafe::lora::client<params>>();
        }
        tensafe::require<tensafe::keystore::passphrase_error>(
            !passphrase_file.empty() || !tensafe::keystore::read_key_info(key).wrapped,
            {"--key ", tensafe::in_quotes(key),
             ": has a passphrase, expected --passphrase-file FILE as well"});
        const tensafe::keystore::passphrase phrase =
            passphrase_file.empty() ? tensafe::keystore::passphrase()
                                    : tensafe::keystore::passphrase::read(passphrase_file);
        return std::make_shared<tensafe::lora::client<params>>(
            tensafe::keystore::load_key_file<params>(key, phrase).key);
    }
};

}  // namespace split
