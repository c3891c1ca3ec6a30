// How much of an adapter its users take along, without breaking anything: what docs/security.md says under
// "What no protection can hide", measured. Answers come out of the encrypted pipeline, but for the last rows.
//
//   bible -l9999 gen1:1-rev22:21 > bible.txt             the text that the adapter was made for
//   extraction --text bible.txt                          takes about nine minutes
//   extraction --text bible.txt --json extraction.json   for scripts/plot_bench

#include <tensafe/interop/torch_lora.hpp>
#include <tensafe/interop/torch_safetensors.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/adapter/entropy.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/session/client_session.hpp>
#include <tensafe/session/server_session.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../examples/tiny_lm/characters.hpp"
#include "../examples/tiny_lm/check_sites.hpp"
#include "../examples/tiny_lm/plain_lora.hpp"
#include "few_bits.hpp"
#include "tiny_lm/bits_per_character.hpp"
#include "tiny_lm/texts.hpp"
#include "tiny_lm/thief.hpp"

namespace {

using namespace studies;
namespace lora = tensafe::lora;
namespace session = tensafe::session;
using json = nlohmann::ordered_json;
using params = tensafe::ckks::private_n4096;
using tiles = lora::coefficient_tiles<4>;

template <class Precision>
using protection = lora::protects_adapter_rows<lora::worst_case, Precision>;

/// A server with the adapter, and its client.
template <class Precision>
class encrypted_adapter {
  public:
    explicit encrypted_adapter(const lora::adapter& adapter)
        : server_(std::make_shared<const server_type>(adapter)),
          client_(std::make_shared<client_type>(server_->layout(), lora::client_part(adapter))),
          nonce_(tensafe::random::fresh_nonce()),
          mine_(client_),
          theirs_(server_, nonce_, client_->rerandomization_key(nonce_)),
          lora_(client_, [this](session::call& rows) {
              session::answer_in_process(mine_, theirs_, work_, rows, [] {});
          }) {
        for (std::size_t g = 0; g < server_->layout().groups.size(); ++g) {
            for (const auto& site : server_->layout().groups[g].sites) {
                groups_[site.name] = g;
            }
        }
    }
    encrypted_adapter(const encrypted_adapter&) = delete;  // lora_ refers to this object
    encrypted_adapter& operator=(const encrypted_adapter&) = delete;

    /// Refers to this object.
    adapter_deltas deltas() {
        return [this](const std::vector<std::string>& sites, const at::Tensor& x) {
            const std::size_t group = groups_.at(sites[0]);
            const auto answered = lora_.deltas(group, x);
            std::vector<at::Tensor> results;
            for (const std::string& name : sites) {
                const auto& all = server_->layout().groups[group].sites;
                const auto place =
                    std::find_if(all.begin(), all.end(), [&](const auto& site) { return site.name == name; });
                results.push_back(answered.at(static_cast<std::size_t>(place - all.begin())));
            }
            return results;
        };
    }

    /// Of an answer, predicted; all groups have about the same.
    double relative_error() const { return client_->plan(0).budget().relative_error; }

  private:
    using server_type = lora::model_server<params, tiles, protection<Precision>>;
    using client_type = lora::model_client<params, tiles, protection<Precision>>;
    using server_session = session::server_session<params, tiles, protection<Precision>>;

    std::shared_ptr<const server_type> server_;
    std::shared_ptr<client_type> client_;
    tensafe::random::seed nonce_;
    session::client_session<params, tiles, protection<Precision>> mine_;
    server_session theirs_;
    typename server_session::workspace work_;
    tensafe::interop::encrypted_lora<params, tiles, protection<Precision>> lora_;
    std::map<std::string, std::size_t> groups_;
};

/// What all measurements share.
struct setting {
    language_model model;
    lora::adapter adapter;
    std::vector<std::string> asked;  ///< texts that thieves ask about, one each
    std::string fresh;               ///< the text that adapters are measured on
    double base = 0;                 ///< bits per character of `fresh`
    double whole = 0;                ///< with the adapter

    double share(double bits) const { return (base - bits) / (base - whole); }
    double bits(const adapter_deltas& deltas) { return bits_per_character(model, deltas, fresh); }
};

constexpr std::int64_t limit = 64;  // d/4
constexpr std::int64_t longest = 256;

/// Shares of the gain that are stolen after so many tokens, one for each text.
json stolen_shares(setting& s, const std::vector<thief>& thieves, std::int64_t tokens, double noise) {
    json shares = json::array();
    for (const thief& one : thieves) {
        shares.push_back(s.share(s.bits(one.stolen(tokens, noise))));
    }
    return shares;
}

double mean(const json& values) {
    double sum = 0;
    for (const double value : values) {
        sum += value;
    }
    return sum / static_cast<double>(values.size());
}

std::vector<thief> watch(setting& s, const adapter_deltas& asked) {
    const torch::NoGradGuard no_gradients;
    std::vector<thief> thieves(s.asked.size());
    for (std::size_t i = 0; i < thieves.size(); ++i) {
        auto tokens = tokens_of(s.asked[i]);
        s.model.forward(torch::from_blob(tokens.data(), {1, std::ssize(tokens)}, at::kLong),
                        thieves[i].watching(asked));
    }
    return thieves;
}

/// What answers of this precision are worth to the model, and after `limit` tokens to the thief, who takes
/// the best ridge of three.
json measure(setting& s, const char* name, double error, const adapter_deltas& deltas) {
    const double bits = s.bits(deltas);
    const auto thieves = watch(s, deltas);
    json best;
    for (const double part : {0.1, 0.3, 1.0}) {  // answers are often larger than of no direction
        json tried = stolen_shares(s, thieves, limit, part * error);
        if (best.is_null() || mean(tried) > mean(best)) {
            best = std::move(tried);
        }
    }
    std::printf("%-22s %9.2g %18.3f %7.1f %% %7.1f %%\n", name, error, bits, 100 * s.share(bits),
                100 * mean(best));
    std::fflush(stdout);
    return {{"answers", name}, {"error", error}, {"bits", bits}, {"kept", s.share(bits)}, {"stolen", best}};
}

template <class Precision>
json measure(setting& s, const char* name) {
    encrypted_adapter<Precision> adapter(s.adapter);
    return measure(s, name, adapter.relative_error(), adapter.deltas());
}

json honest_tokens(setting& s) {
    encrypted_adapter<lora::standard_precision> adapter(s.adapter);
    const auto thieves = watch(s, adapter.deltas());
    json rows = json::array();
    std::printf("honest tokens   share of the gain (lowest, highest of %zu texts)\n", thieves.size());
    for (std::int64_t tokens = 16; tokens <= longest; tokens *= 2) {
        json shares = stolen_shares(s, thieves, tokens, adapter.relative_error());
        const auto sorted = shares.get<std::set<double>>();
        std::printf("%13lld   %5.1f %% (%.1f, %.1f)\n", static_cast<long long>(tokens), 100 * mean(shares),
                    100 * *sorted.begin(), 100 * *sorted.rbegin());
        std::fflush(stdout);
        rows.push_back({{"tokens", tokens}, {"shares", std::move(shares)}});
    }
    return rows;
}

template <class Precision>
json chosen_requests(const char* name, int largest) {
    const few_bit_matrix wanted(4, 2048, largest, 1);
    const lora::server<params, tiles, protection<Precision>> server(wanted.a);
    lora::client<params> client;
    const auto nonce = tensafe::random::fresh_nonce();
    lora::rerandomization_pool<params> zeros(nonce, client.rerandomization_key(nonce),
                                             server.layout().subring_log_n());
    const double stored = lora::entropy_bits(wanted.a);
    const double channel = server.plan().budget().channel_bits();
    json rows = json::array();
    for (int digits = 1; digits <= 4; ++digits) {
        const few_bit_reading got = read_few_bits(server, client, zeros, wanted, digits);
        const double spent = static_cast<double>(got.requests * server.plan().rank()) * channel;
        std::printf(
            "%-22s int%d  %d an answer: %5zu requests, %5zu of %zu entries; %.1f bits a target, %.0f of "
            "%.0f bits\n",
            name, largest == 7 ? 4 : 8, digits, got.requests, got.exact, wanted.q.size(), channel, spent,
            stored);
        rows.push_back({{"precision", name},
                        {"largest", largest},
                        {"digits", digits},
                        {"requests", got.requests},
                        {"exact", got.exact},
                        {"entries", wanted.q.size()},
                        {"channel_bits", channel},
                        {"spent_bits", spent},
                        {"entropy_bits", stored}});
    }
    return rows;
}

int run(const std::filesystem::path& data, const std::string& text, std::size_t characters, std::size_t texts,
        const std::string& out) {
    json results;
    for (const int largest : {7, 127}) {
        results["chosen"].push_back(chosen_requests<lora::standard_precision>("standard", largest));
        results["chosen"].push_back(chosen_requests<lora::answer_bits<6>>("answer_bits<6>", largest));
    }
    torch::manual_seed(1);
    setting s;
    tensafe::interop::load_parameters(s.model,
                                      tensafe::io::safetensors_file::open(data / "base.safetensors"));
    s.adapter = tensafe::io::load_peft(data / "adapter");
    check_sites(s.model, s.adapter);
    const parts_of_text parts(verses(read_text(text)));
    // Neither was learned. A block of 8192 characters lies between the two.
    for (std::size_t i = 0; i < texts; ++i) {
        s.asked.push_back(parts.held_out.substr(8192 * i, static_cast<std::size_t>(longest)));
    }
    s.fresh = parts.held_out.substr(8192 * (texts + 1), characters);
    s.base = s.bits({});
    s.whole = s.bits(plain_lora(s.adapter));
    std::printf("bits per character: %.3f without the adapter, %.3f with it\n", s.base, s.whole);
    results["base"] = s.base;
    results["whole"] = s.whole;
    results["honest"] = honest_tokens(s);
    std::printf("answers                    error  bits per character     kept    stolen after %lld tokens\n",
                static_cast<long long>(limit));
    results["limit"] = limit;
    results["answers"] = json::array({
        measure<lora::standard_precision>(s, "standard"),
        measure<lora::answer_bits<8>>(s, "answer_bits<8>"),
        measure<lora::answer_bits<6>>(s, "answer_bits<6>"),
        measure<lora::answer_bits<4>>(s, "answer_bits<4>"),
        measure<lora::answer_bits<3>>(s, "answer_bits<3>"),
        measure<lora::answer_bits<2>>(s, "answer_bits<2>"),
        measure(s, "noise, in the clear", 0.35, plain_lora(s.adapter, 0.35)),
        measure(s, "noise, in the clear", 0.7, plain_lora(s.adapter, 0.7)),
        measure(s, "noise, in the clear", 1.4, plain_lora(s.adapter, 1.4)),
    });
    if (!out.empty()) {
        std::ofstream(out) << results.dump(1) << "\n";
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("How much of an adapter its users take along");
    std::string data = TENSAFE_EXAMPLE_DATA "/tiny_lm";
    std::string text;
    std::string out;
    std::size_t characters = 4096;
    std::size_t texts = 4;
    app.add_option("--text", text, "bible.txt")->required();
    app.add_option("--characters", characters, "to measure on")->capture_default_str();
    app.add_option("--texts", texts, "that are asked about, one after the other")->capture_default_str();
    app.add_option("--data", data, "with base.safetensors and adapter/")->capture_default_str();
    app.add_option("--json", out, "a file for scripts/plot_bench");
    CLI11_PARSE(app, argc, argv);
    try {
        return run(data, text, characters, texts, out);
    } catch (const std::exception& e) {  // torch has errors of its own
        std::fprintf(stderr, "extraction: %s\n", e.what());
        return 1;
    }
}
