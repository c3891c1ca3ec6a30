// Sends the hidden states of a file through an adapter that is on a server, and writes the deltas to another
// file. The server sees ciphertexts; the states and the secret key stay here.
//
//   split_client --server wss://localhost:8443 --trust state/certificate.pem --adapter qwen
//                --states examples/data/qwen_rank32/hidden_states.safetensors --input self_attn.q_proj
//                --expected examples/data/qwen_rank32/expected_delta.safetensors

#include <tensafe/ckks/precision.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/keystore/private_file.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../common/progress_bar.hpp"
#include "program_options.hpp"
#include "remote_model.hpp"

namespace {

using namespace split;
namespace lora = tensafe::lora;

struct client_options {
    program_options service;
    std::string states = TENSAFE_EXAMPLE_DATA "/qwen_rank32/hidden_states.safetensors";
    std::string site = "self_attn.q_proj";
    std::string tensor;  ///< empty: called as the site
    std::string out;
    std::string expected;
    std::string save_pin;
    double tolerance = 1e-3;
    bool forget = false;
    bool show_identity = false;
};

/// The rows of a file's tensor; `option` is where the file was named.
lora::matrix read_rows(const char* option, const std::string& path, const std::string& tensor) {
    const auto file = tensafe::io::safetensors_file::open(path);
    if (file.find(tensor) == nullptr) {
        constexpr std::size_t most_named = 16;
        const std::size_t count = file.tensors().size();
        std::string names;
        for (std::size_t i = 0; i < std::min(count, most_named); ++i) {
            names += (i == 0 ? " " : ", ") + tensafe::quote(file.tensors()[i].name);
        }
        throw tensafe::parameter_error(std::string(option) + " " + file.quoted_name() + ": got no tensor " +
                                       tensafe::quote(tensor) + ", expected --tensor with one of its " +
                                       std::to_string(count) + ":" + names +
                                       (count > most_named ? ", ..." : ""));
    }
    return file.read_matrix(tensor);
}

/// The site whose name is this, or ends with it behind a dot.
lora::model_layout::place find_site(const lora::model_layout& layout, std::string_view name) {
    std::optional<lora::model_layout::place> found;
    std::string names;
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
        for (std::size_t s = 0; s < layout.groups[g].sites.size(); ++s) {
            const std::string& full = layout.groups[g].sites[s].name;
            names += "\n  " + full;
            if (full == name || full.ends_with("." + std::string(name))) {
                if (found) {
                    throw tensafe::parameter_error("--site " + std::string(name) + " fits several sites");
                }
                found = lora::model_layout::place{g, s};
            }
        }
    }
    if (!found) {
        throw tensafe::parameter_error("--site " + std::string(name) +
                                       ": expected one of the server's sites:" + names);
    }
    return *found;
}

/// The worst relative error of a row.
double worst_error(const lora::matrix& expected, std::span<const double> deltas, std::size_t d_out) {
    if (expected.columns != d_out || expected.rows * d_out != deltas.size()) {
        throw tensafe::shape_error("--expected: got " + std::to_string(expected.rows) + " x " +
                                   std::to_string(expected.columns) + " values, expected " +
                                   std::to_string(deltas.size() / d_out) + " x " + std::to_string(d_out));
    }
    double worst = 0;
    for (std::size_t r = 0; r < expected.rows; ++r) {
        const auto row = expected.row(r);
        const std::vector<double> plain(row.begin(), row.end());
        worst = std::max(
            worst, tensafe::ckks::measure_precision(plain, deltas.subspan(r * d_out, d_out)).relative_error);
    }
    return worst;
}

/// One delta a row.
void write_deltas(const client_options& options, const std::string& tensor, std::size_t d_out,
                  std::span<const double> deltas) {
    tensafe::io::safetensors_writer{}
        .add(tensor, tensafe::io::dtype::f64, {deltas.size() / d_out, d_out}, deltas)
        .write(options.out);
}

int run(const client_options& options) {
    const std::string tensor = options.tensor.empty() ? options.site : options.tensor;
    const lora::matrix states = read_rows("--states", options.states, tensor);
    // Read before anything is paid for.
    std::optional<lora::matrix> expected;
    if (!options.expected.empty()) {
        expected = read_rows("--expected", options.expected, tensor);
    }
    if (states.rows == 0) {
        throw tensafe::shape_error("--states " + options.states + ": got no row of " + tensor +
                                   ", expected hidden states");
    }

    remote_model remote(options.service.connector(), client_identity(options.service.identity),
                        options.service.keys(), options.service.remote());
    if (!options.save_pin.empty()) {
        if (!remote.pin()) {
            throw tensafe::signature_error("--save-pin: got no pin from the server, expected one to trust");
        }
        const std::string text = remote.pin()->text();  // never over a file that is there
        tensafe::keystore::create_private_file(options.save_pin, std::as_bytes(std::span(text)));
    }
    const lora::model_layout::place place = find_site(remote.layout(), options.site);
    const std::size_t group = place.group;
    const std::size_t site = place.site;
    const auto& shape = remote.layout().groups[group];
    const std::size_t d_out = shape.sites[site].d_out;
    std::fprintf(stderr, "%s: adapter %s, version %llu; input %s of %zu entries\n",
                 options.service.server.c_str(), options.service.adapter.c_str(),
                 static_cast<unsigned long long>(remote.version()), shape.input.c_str(), shape.d);
    // Of the input that has fewest left; this one may have more.
    const std::optional<std::uint64_t> left = remote.queries_left();
    if (left && *left < states.rows) {
        std::fprintf(stderr, "%zu hidden states, but the server may answer %llu more only\n", states.rows,
                     static_cast<unsigned long long>(*left));
    }

    std::vector<double> deltas;
    lora::query<params> query;
    const auto before = remote.counted();
    const auto start = std::chrono::steady_clock::now();
    const auto progress = examples::progress_bar("tokens");
    std::uint64_t sent = 0;
    try {
        for (std::size_t t = 0; t < states.rows; ++t) {
            remote.with_retry([&] {  // from the encryption on: nothing is ever sent twice
                remote_model::reply_type reply;
                remote.client()->encrypt(group, states.row(t), query);
                ++sent;
                remote.carry(group, query.request, reply);
                const auto of_sites = remote.client()->deltas(group, reply, query);
                deltas.insert(deltas.end(), of_sites[site].begin(), of_sites[site].end());
            });
            progress(t + 1, states.rows);
        }
    } catch (...) {  // each row has cost a query
        std::fprintf(stderr, "%sended after %zu of %zu hidden states\n", examples::over_progress_bar(),
                     deltas.size() / d_out, states.rows);
        if (!options.out.empty() && !deltas.empty()) {
            write_deltas(options, tensor, d_out, deltas);
            std::fprintf(stderr, "their deltas are in %s\n", options.out.c_str());
        }
        throw;
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (!options.out.empty()) {
        write_deltas(options, tensor, d_out, deltas);
    }

    const auto after = remote.counted();
    const lora::token_cost cost = cost_of(remote.layout(), group);
    const auto tokens = static_cast<double>(states.rows);
    const auto per_token = [&](std::uint64_t end, std::uint64_t begin) {
        return static_cast<double>(end - begin) / tokens;
    };
    std::printf("tokens          %zu, %.1f a second\n", states.rows, tokens / passed.count());
    std::printf(
        "bytes a token   up %.0f, down %.0f on the wire; %.0f and %.0f in messages; %zu and %zu by the "
        "cost model\n",
        per_token(after.wire.up, before.wire.up), per_token(after.wire.down, before.wire.down),
        per_token(after.message_bytes_up, before.message_bytes_up),
        per_token(after.message_bytes_down, before.message_bytes_down), cost.bytes_up, cost.bytes_down);
    std::printf("connections     %llu sessions, %llu resumed\n",
                static_cast<unsigned long long>(after.sessions),
                static_cast<unsigned long long>(after.resumed));
    if (left) {
        std::printf("queries left    at least %llu for this input\n",
                    static_cast<unsigned long long>(*left - std::min(*left, sent)));
    }
    if (options.forget) {
        remote.forget();
        std::printf("the server has forgotten this client\n");
    }
    if (expected) {
        const double worst = worst_error(*expected, deltas, d_out);
        std::printf("relative error  %.2e against %s (worst token)\n", worst, options.expected.c_str());
        if (!(worst <= options.tolerance)) {
            std::fprintf(stderr, "split_client: the error is above the tolerance of %.1e\n",
                         options.tolerance);
            return 1;
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Sends hidden states, encrypted, through an adapter on a server");
    client_options options;
    options.service.add_to(app);
    app.add_option("--states", options.states, "safetensors file, one hidden state a row")
        ->capture_default_str();
    app.add_option("--site,--input", options.site, "site, or the end of its name")->capture_default_str();
    app.add_option("--tensor", options.tensor, "of the files; default: the site as it is given");
    app.add_option("--out", options.out, "safetensors file for the deltas");
    app.add_option("--expected", options.expected, "safetensors file with deltas to compare with");
    app.add_option("--tolerance", options.tolerance, "of the relative error")->capture_default_str();
    app.add_option("--save-pin", options.save_pin,
                   "new file for the pin that the server shows: at first use, for --pin later");
    app.add_flag("--forget", options.forget, "have the server forget this client in the end");
    app.add_flag_callback(
           "--show-identity",
           [&] {
               options.show_identity = true;
               app.get_option("--adapter")->required(false);
           },
           "only prints the public key of --identity, made if there is none: a line for the server's "
           "--clients")
        ->needs("--identity");
    CLI11_PARSE(app, argc, argv);
    try {
        if (options.show_identity) {
            std::printf("%s\n", client_identity(options.service.identity).verifying().hex().c_str());
            return 0;
        }
        return run(options);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "split_client: %s\n", e.what());
        return 1;
    }
}
