// Sends the hidden states of a file through an adapter that is on a server, and writes the deltas to another
// file. The server sees ciphertexts; the states and the secret key stay here.
//
//   tensafe-client --server wss://localhost:8443 --trust state/certificate.pem --adapter qwen
//                --states examples/data/qwen_rank32/hidden_states.safetensors --input self_attn.q_proj
//                --expected examples/data/qwen_rank32/expected_delta.safetensors

#include <tensafe/ckks/precision.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/core/version.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/io/safetensors.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "../program_options.hpp"
#include "../progress_bar.hpp"
#include "../remote_model.hpp"

namespace {

using namespace split;
namespace keystore = tensafe::keystore;
namespace lora = tensafe::lora;

struct client_options {
    program_options service;
    std::string states;
    std::string site = "self_attn.q_proj";
    std::string tensor;    ///< empty: the only one of the states, or called as the site
    std::size_t skip = 0;  ///< rows
    std::size_t rows = 0;  ///< behind them, at most; 0: all
    std::string out;
    std::string expected;
    std::string save_pin;
    double tolerance = 1e-3;
    bool forget = false;
    bool show_identity = false;
};

/// The rows of a file's tensor that --skip and --rows leave; `option` is where the file was named.
lora::matrix read_rows(const char* option, const std::string& path, const std::string& tensor,
                       const client_options& options) {
    const auto file = tensafe::io::safetensors_file::open(path);
    if (file.find(tensor) == nullptr) {
        constexpr std::size_t most_named = 16;
        const std::size_t count = file.tensors().size();
        std::string names;
        for (std::size_t i = 0; i < std::min(count, most_named); ++i) {
            names += (i == 0 ? " " : ", ") + tensafe::quote(file.tensors()[i].name);
        }
        throw tensafe::parameter_error({option, " ", file.quoted_name(), ": got no tensor ",
                                        tensafe::in_quotes(tensor), ", expected --tensor with one of its ",
                                        count, ":", names, count > most_named ? ", ..." : ""});
    }
    lora::matrix all = file.read_matrix(tensor);
    const std::size_t skip = std::min(options.skip, all.rows);
    all.rows -= skip;
    all.values.erase(all.values.begin(),
                     all.values.begin() + static_cast<std::ptrdiff_t>(skip * all.columns));
    all.rows = options.rows > 0 ? std::min(options.rows, all.rows) : all.rows;
    all.values.resize(all.rows * all.columns);
    return all;
}

/// The site whose name is this, or ends with it behind a dot.
lora::model_layout::place find_site(const lora::model_layout& layout, std::string_view name) {
    std::vector<lora::model_layout::place> found;
    std::string names;
    std::string fitting;
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
        for (std::size_t s = 0; s < layout.groups[g].sites.size(); ++s) {
            const std::string& full = layout.groups[g].sites[s].name;
            names += "\n  " + full;
            if (full == name || full.ends_with("." + std::string(name))) {
                found.push_back({g, s});
                fitting += "\n  " + full;
            }
        }
    }
    tensafe::require<tensafe::parameter_error>(
        found.size() == 1,
        {"--site ", name, ": expected one of ",
         found.empty() ? "the server's sites:" : "the sites that it fits:", found.empty() ? names : fitting});
    return found.front();
}

/// The worst relative error of a row.
double worst_error(const lora::matrix& expected, std::span<const double> deltas, std::size_t d_out) {
    tensafe::require<tensafe::shape_error>(
        expected.columns == d_out && expected.rows * d_out == deltas.size(),
        {"--expected: got ", expected.rows, " x ", expected.columns, " values, expected ",
         deltas.size() / d_out, " x ", d_out});
    double worst = 0;
    for (std::size_t r = 0; r < expected.rows; ++r) {
        const auto row = expected.row(r);
        const std::vector<double> plain(row.begin(), row.end());
        worst = std::max(
            worst, tensafe::ckks::measure_precision(plain, deltas.subspan(r * d_out, d_out)).relative_error);
    }
    return worst;
}

volatile std::sig_atomic_t ended_by = 0;  ///< a signal
std::string unnamed_file;                 ///< what a second signal removes

extern "C" void take_signal(int number) {
    if (ended_by != 0 && number == SIGHUP) {
        return;  // a terminal that closes may say it twice
    }
    if (ended_by != 0) {
        ::unlink(unnamed_file.c_str());
        ::_exit(128 + number);
    }
    ended_by = number;
    constexpr std::string_view said =
        "\nending after the answers on their way; another signal discards what was paid for\n";
    const int before = errno;
    static_cast<void>(::write(STDERR_FILENO, said.data(), said.size()) < 0);
    errno = before;
}

/// Those that are ignored stay so, as under nohup.
void on_signals(void (*handler)(int)) {
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) {
        if (std::signal(each, handler) == SIG_IGN) {
            static_cast<void>(std::signal(each, SIG_IGN));
        }
    }
}

void check_signals() {
    if (ended_by != 0) {
        throw tensafe::cancelled_error(std::string("ended by a signal: ") + ::strsignal(ended_by));
    }
}

/// The file of --out: there without its name, with room for all deltas, before a query is paid for. While it
/// waits for them a first signal is noted for check_signals, and a second ends the program.
class output_file {
  public:
    /// @throws tensafe::io_error
    output_file(std::string path, std::size_t bytes) : path_(std::move(path)) {
        tensafe::require<tensafe::io_error>(
            !std::filesystem::exists(path_) || std::filesystem::is_regular_file(path_),
            {"--out ", tensafe::in_quotes(path_), ": is not a regular file"});
        unnamed_file = path_ + ".partial-XXXXXX";
        on_signals(take_signal);
        file_ = tensafe::io::create_temporary(unnamed_file);
        if (const int failure = ::posix_fallocate(file_.get(), 0, static_cast<::off_t>(bytes))) {
            ::unlink(unnamed_file.c_str());
            tensafe::io::throw_io_error(path_, "make room for " + std::to_string(bytes) + " bytes", failure);
        }
    }
    output_file(const output_file&) = delete;
    output_file& operator=(const output_file&) = delete;
    ~output_file() {
        if (!is_whole_) {
            ::unlink(unnamed_file.c_str());
        }
        on_signals(SIG_DFL);
    }

    /// What is not whole replaces nothing.
    /// @return where the deltas are
    /// @throws tensafe::io_error, saying where the deltas are if they could be written
    std::string write(const std::string& tensor, std::size_t d_out, std::span<const double> deltas,
                      bool is_all) {
        const auto bytes = tensafe::io::safetensors_writer{}
                               .add(tensor, tensafe::io::dtype::f64, {deltas.size() / d_out, d_out}, deltas)
                               .bytes();
        const bool fits = ::ftruncate(file_.get(), static_cast<::off_t>(bytes.size())) == 0;
        if (const int failure = fits ? tensafe::io::write_and_force(file_, bytes) : errno) {
            tensafe::io::throw_io_error(path_, "write", failure);
        }
        is_whole_ = true;
        if (!is_all && std::filesystem::exists(path_)) {
            return unnamed_file;
        }
        if (std::rename(unnamed_file.c_str(), path_.c_str()) != 0) {
            tensafe::io::throw_io_error(
                path_, "replace, but the deltas are in " + tensafe::quote(unnamed_file), errno);
        }
        tensafe::io::force_folder_of(path_);
        return path_;
    }

  private:
    std::string path_;
    tensafe::io::owned_descriptor file_{-1};
    bool is_whole_ = false;
};

int run(const client_options& options) {
    std::string tensor = options.tensor;
    if (tensor.empty()) {
        const auto file = tensafe::io::safetensors_file::open(options.states);
        tensor = file.tensors().size() == 1 ? file.tensors()[0].name : options.site;
    }
    const lora::matrix states = read_rows("--states", options.states, tensor, options);
    // Read before anything is paid for.
    std::optional<lora::matrix> expected;
    if (!options.expected.empty()) {
        expected = read_rows("--expected", options.expected, tensor, options);
    }
    tensafe::require<tensafe::shape_error>(
        states.rows > 0, {"--states ", options.states, ": got no row of ", tensor,
                          options.skip > 0 ? " behind those of --skip" : "", ", expected hidden states"});

    tensafe::require<tensafe::io_error>(
        options.skip == 0 || options.out.empty() || !std::filesystem::exists(options.out),
        {"--out ", tensafe::in_quotes(options.out),
         ": is there, expected another file for what --skip leaves"});

    remote_options how = options.service.remote();
    how.poll = check_signals;
    how.expected_tokens = states.rows;
    const auto progress = examples::progress_bar("tokens");
    const tensafe::session::call* under_way = nullptr;
    how.between = [&] {
        progress(under_way->answered(), states.rows);
        if (under_way->answered() < states.rows) {
            check_signals();
        }
    };
    remote_model remote(options.service.connector(), client_identity(options.service.identity),
                        options.service.keys(), std::move(how));
    if (!options.save_pin.empty()) {
        tensafe::require<tensafe::signature_error>(
            remote.pin().has_value(), {"--save-pin: got no pin from the server, expected one to trust"});
        const std::string text = remote.pin()->text();  // never over a file that is there
        tensafe::io::create_private_file(options.save_pin, std::as_bytes(std::span(text)));
    }
    const lora::model_layout::place place = find_site(remote.layout(), options.site);
    const std::size_t group = place.group;
    const auto& shape = remote.layout().groups[group];
    const std::size_t d_out = shape.sites[place.site].d_out;
    std::fprintf(stderr, "%s: adapter %s, version %llu; input %s of %zu entries\n",
                 options.service.server.c_str(), options.service.adapter.c_str(),
                 static_cast<unsigned long long>(remote.version()), shape.input.c_str(), shape.d);

    std::optional<output_file> out;
    if (!options.out.empty()) {
        constexpr std::size_t header = 4096;
        out.emplace(options.out, header + sizeof(double) * d_out * states.rows);
    }
    tensafe::session::call all(group, states.rows, [&](std::size_t t) { return states.row(t); });
    under_way = &all;
    std::vector<double> deltas;
    const auto take_deltas = [&] {
        for (std::size_t t = 0; t < states.rows; ++t) {
            if (all.is_answered(t)) {
                const auto of_sites = remote.client()->deltas(group, all.product(t));
                deltas.insert(deltas.end(), of_sites[place.site].begin(), of_sites[place.site].end());
            }
        }
    };
    const auto before = remote.counted();
    const auto start = std::chrono::steady_clock::now();
    try {
        check_signals();
        remote.ask(all);
    } catch (...) {  // each row has cost a query
        std::fprintf(stderr, "%sended after %zu of %zu hidden states\n", examples::over_progress_bar(),
                     all.answered(), states.rows);
        if (out && all.answered() > 0) {
            take_deltas();
            const std::string where = out->write(tensor, d_out, deltas, false);
            std::fprintf(stderr, "the deltas of %zu of %zu hidden states are in %s", all.answered(),
                         states.rows, where.c_str());
            std::size_t first_missing = 0;
            for (; first_missing < all.answered() && all.is_answered(first_missing); ++first_missing) {
            }
            if (first_missing < all.answered()) {  // as a rate limit may leave them
                std::fprintf(stderr, ", of rows");
                for (std::size_t t = 0; t < states.rows; ++t) {
                    if (all.is_answered(t)) {
                        std::fprintf(stderr, " %zu", options.skip + t);
                    }
                }
            }
            std::fprintf(stderr, "; for the others: --skip %zu, and another --out\n",
                         options.skip + first_missing);
        }
        throw;
    }
    take_deltas();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (out) {
        static_cast<void>(out->write(tensor, d_out, deltas, true));
        out.reset();
    }

    const auto after = remote.counted();
    const auto forecast = remote.forecast(group, states.rows);
    const auto tokens = static_cast<double>(states.rows);
    const auto per_token = [&](std::uint64_t end, std::uint64_t begin) {
        return static_cast<double>(end - begin) / tokens;
    };
    std::printf("tokens          %zu, %.1f a second\n", states.rows, tokens / passed.count());
    std::printf(
        "bytes a token   up %.0f, down %.0f on the wire; %.0f and %.0f in messages; %.0f and %.0f by the "
        "cost model\n",
        per_token(after.wire.up, before.wire.up), per_token(after.wire.down, before.wire.down),
        per_token(after.message_bytes_up, before.message_bytes_up),
        per_token(after.message_bytes_down, before.message_bytes_down), per_token(forecast.up, 0),
        per_token(forecast.down, 0));
    std::printf("connections     %llu sessions, %llu resumed\n",
                static_cast<unsigned long long>(after.sessions),
                static_cast<unsigned long long>(after.resumed));
    if (const auto left = remote.queries_left(group)) {
        std::printf(
            "queries left    %llu or more for this input, by this client's own limits; those of its tenant "
            "or the adapter may end it sooner\n",
            static_cast<unsigned long long>(*left));
    }
    if (options.forget) {
        remote.forget();
        std::printf("the server has forgotten this client\n");
    }
    if (expected) {
        const double worst = worst_error(*expected, deltas, d_out);
        std::printf("relative error  %.2e against %s (worst token)\n", worst, options.expected.c_str());
        if (!(worst <= options.tolerance)) {
            std::fprintf(stderr, "tensafe-client: the error is above the tolerance of %.1e\n",
                         options.tolerance);
            return 1;
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app(
        "Sends hidden states, encrypted, through a LoRA adapter on a tensafe-server, and decrypts what comes "
        "back.",
        "tensafe-client");
    app.footer(
        "Signals:\n"
        "  SIGINT, SIGTERM and SIGHUP end it after the answers on their way; what was paid for is at --out. "
        "A second one ends it at once.\n"
        "Exit status:\n"
        "  0 if every hidden state was answered and no delta is off by more than --tolerance, 1 if not, more "
        "than 100 for wrong options.\n"
        "Environment:\n"
        "  https_proxy, all_proxy and no_proxy, also in capitals, as curl reads them, for wss://. The proxy "
        "is "
        "http://[user:password@]host[:port], takes CONNECT, and does not end TLS.\n"
        "  TRACEPARENT, as W3C Trace Context has it, which goes into the server's log.\n"
        "Example:\n"
        "  tensafe-client --server wss://localhost:8443 --trust certificate.pem --adapter qwen \\\n"
        "      --site self_attn.q_proj --states hidden_states.safetensors --out deltas.safetensors");
    app.set_version_flag("--version", "tensafe-client " + tensafe::version().text());
    client_options options;
    options.service.add_to(app);
    app.add_option("--states", options.states, "safetensors file, one hidden state a row")->required();
    app.add_option("--site,--input", options.site, "site, or the end of its name")->capture_default_str();
    app.add_option("--tensor", options.tensor,
                   "of the files; default: the only one of the states, or called as the site as it is given");
    app.add_option("--skip", options.skip, "rows of the states, as those that an ended run has answers to");
    app.add_option("--rows", options.rows, "of the states behind those, at most; 0: all");
    app.add_option("--out", options.out, "safetensors file for the deltas, for its owner alone");
    app.add_option("--expected", options.expected, "safetensors file with deltas to compare with");
    add_number(app, "--tolerance", options.tolerance, 0, 1e9, "of the relative error");
    app.add_option("--save-pin", options.save_pin,
                   "new file for the pin that the server shows: at first use, for --pin later")
        ->check([](const std::string& file) {
            std::error_code ignored;
            return std::filesystem::exists(file, ignored)
                       ? tensafe::quote(file) + " is there: use --pin to check against it"
                       : std::string();
        });
    app.add_flag("--forget", options.forget, "have the server forget this client in the end");
    app.add_flag_callback(
           "--show-identity",
           [&] {
               options.show_identity = true;
               app.get_option("--adapter")->required(false);
               app.get_option("--states")->required(false);
           },
           "only prints the public key of --identity, made if there is none: a line for the server's "
           "--clients")
        ->needs("--identity");
    split::refuse_nothing(app);
    CLI11_PARSE(app, argc, argv);
    // Whoever read what is said may go, and a limit on file sizes is a full disk.
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
    try {
        if (options.show_identity) {
            std::printf("%s\n", client_identity(options.service.identity).verifying().hex().c_str());
            return 0;
        }
        return run(options);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tensafe-client: %s\n", e.what());
        return 1;
    }
}
