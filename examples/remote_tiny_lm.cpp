// The small language model of examples/tiny_lm.cpp, with its adapter on a server that is elsewhere. The text,
// the model and the secret key are here; of the adapter, what the server hands out, which is no A.
//
//   remote_tiny_lm --server wss://localhost:8443 --trust state/certificate.pem --adapter kjv
//                 --prompt "And he said" --characters 200

#include <tensafe/encoding/norm.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/session/client_session.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../service/program_options.hpp"
#include "../service/remote_model.hpp"
#include "tiny_lm/character_model.hpp"

namespace {

using namespace examples::tiny_lm;
namespace io = tensafe::io;
using tensafe::lora::model_layout;

/// The adapter's part of the model, wherever the adapter is.
class remote_adapter {
  public:
    /// @throws tensafe::parameter_error, naming the site, unless its sites are all linears of the layers
    /// @throws tensafe::shape_error, naming it, for a site of another size than its linear
    remote_adapter(split::remote_model& to, const io::safetensors_file& weights) : to_(to) {
        for (std::size_t g = 0; g < to.layout().groups.size(); ++g) {
            const auto& group = to.layout().groups[g];
            for (std::size_t s = 0; s < group.sites.size(); ++s) {
                check_site(group.sites[s], group.d, weights.find(group.sites[s].name + ".weight"));
                places_[group.sites[s].name] = {g, s};
            }
        }
        for (const io::tensor_info& tensor : weights.tensors()) {
            if (is_linear(tensor)) {
                static_cast<void>(at(tensor.name.substr(0, tensor.name.rfind('.'))));
            }
        }
    }

    /// What it adds to these linears, which share their inputs, for each position that waits: one call.
    /// @throws tensafe::parameter_error for linears that the adapter does not have beside each other
    std::vector<std::span<const float>> deltas(const character_model& model, std::size_t positions) {
        const std::size_t group = at(model.sites().front()).group;
        tensafe::session::call asked(
            group, positions, [&](std::size_t i) { return model.input(i); }, 1, true);
        to_.ask(asked);
        overflows_ += asked.bad_rows();
        rounded_.resize(to_.layout().groups[group].sites.size());
        for (auto& values : rounded_) {
            values.clear();
        }
        for (std::size_t i = 0; i < positions; ++i) {
            to_.client()->deltas(group, asked.product(i), exact_);
            for (std::size_t s = 0; s < exact_.size(); ++s) {
                rounded_[s].insert(rounded_[s].end(), exact_[s].begin(), exact_[s].end());
            }
        }
        std::vector<std::span<const float>> result;
        for (const std::string& site : model.sites()) {
            const model_layout::place place = at(site);
            tensafe::require<tensafe::parameter_error>(
                place.group == group,
                {"remote_adapter: the server's adapter has ", tensafe::in_quotes(site), " apart from ",
                 tensafe::in_quotes(model.sites().front()), ", expected one input"});
            result.emplace_back(rounded_[place.site]);
        }
        return result;
    }
    /// Hidden states of no finite norm: the server must not see which.
    std::size_t overflows() const noexcept { return overflows_; }

  private:
    static bool is_linear(const io::tensor_info& tensor) {
        return tensor.name.starts_with("model.layers.") && tensor.shape.size() == 2;
    }
    static void check_site(const model_layout::site& site, std::size_t d, const io::tensor_info* linear) {
        tensafe::require<tensafe::parameter_error>(
            linear != nullptr && is_linear(*linear),
            {"remote_adapter: the server's adapter has site ", tensafe::in_quotes(site.name),
             ", expected a linear of the model"});
        tensafe::require<tensafe::shape_error>(
            linear->shape[0] == site.d_out && linear->shape[1] == d,
            {"remote_adapter: site ", tensafe::in_quotes(site.name), " of the server's adapter: got ",
             site.d_out, " outputs and ", d, " inputs, expected the linear's ", linear->shape[0], " and ",
             linear->shape[1]});
    }
    model_layout::place at(const std::string& site) const {
        const auto found = places_.find(site);
        tensafe::require<tensafe::parameter_error>(
            found != places_.end(),
            {"remote_adapter: the server's adapter has no site ", tensafe::in_quotes(site),
             ", expected one for each of the model's linears"});
        return found->second;
    }

    split::remote_model& to_;
    std::map<std::string, model_layout::place> places_;
    split::remote_model::client_type::site_deltas exact_;
    std::vector<std::vector<float>> rounded_;
    std::size_t overflows_ = 0;
};

/// The base model, which guesses what the adapted one will write, so that one call checks several characters.
class drafter {
  public:
    explicit drafter(const character_model& empty) : model_(empty) {}

    void read(std::span<const std::int64_t> tokens) {
        for (model_.begin(tokens); !model_.sites().empty();) {
            model_.resume();
        }
    }
    /// The character, and guesses at those behind it: always as many, or the server would see which were
    /// right.
    std::vector<std::int64_t> guess(std::int64_t character, std::size_t guesses) {
        std::vector<std::int64_t> result{character};
        while (result.size() <= guesses) {
            read(result);
            result.push_back(model_.likeliest());
            model_.keep(0);
        }
        return result;
    }

  private:
    character_model model_;
};

int run(const std::filesystem::path& data, const split::program_options& service, const std::string& prompt,
        std::size_t characters, std::size_t drafts) {
    const auto weights = io::safetensors_file::open(data / "base.safetensors");
    character_model model(weights);
    drafter base(model);
    split::remote_options how = service.remote();
    // The last character is written and not read.
    how.expected_tokens = prompt.size() + (characters - 1) * (drafts + 1);
    for (const io::tensor_info& tensor : weights.tensors()) {
        if (tensor.name.ends_with(".weight")) {
            how.base_norms[tensor.name.substr(0, tensor.name.size() - 7)] =
                std::sqrt(tensafe::encoding::sum_of_squares<double>(weights.read_doubles(tensor.name)));
        }
    }
    const std::vector<std::int64_t> tokens = tokens_of(prompt);
    split::remote_model remote(service.connector(), split::client_identity(service.identity), service.keys(),
                               std::move(how));
    remote_adapter adapter(remote, weights);
    std::fprintf(stderr, "%s: adapter %s, version %llu, %zu requests a character\n", service.server.c_str(),
                 service.adapter.c_str(), static_cast<unsigned long long>(remote.version()),
                 remote.layout().groups.size());

    const auto read = [&](std::span<const std::int64_t> all) {
        for (model.begin(all); !model.sites().empty();) {
            model.resume(adapter.deltas(model, all.size()));
        }
    };
    const auto before = remote.counted();
    const auto start = std::chrono::steady_clock::now();
    std::printf("%s", prompt.c_str());
    std::fflush(stdout);
    read(tokens);  // all at once: as many round trips as a character
    base.read(tokens);
    std::size_t positions = prompt.size();
    std::size_t guessed = 0;
    std::size_t right = 0;
    for (std::size_t written = 0; written < characters;) {
        std::vector<std::int64_t> next{model.likeliest()};
        if (written + 1 < characters) {
            next = base.guess(next.front(), drafts);
            read(next);
            positions += next.size();
            guessed += drafts;
            std::size_t count = 1;
            while (count < next.size() &&
                   next[count] == model.likeliest(static_cast<std::int64_t>(count) - 1)) {
                ++count;
            }
            next.resize(count);
            model.keep(std::ssize(next));
            base.read(next);
            right += count - 1;
        }
        for (std::size_t i = 0; i < next.size() && written < characters; ++i, ++written) {
            std::fputc(character_of(next[i]), stdout);
        }
        std::fflush(stdout);
    }
    std::printf("\n");
    std::fflush(stdout);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;

    const auto after = remote.counted();
    const auto all = static_cast<double>(prompt.size() + characters - 1);
    const auto asked = static_cast<double>(positions);
    split::remote_model::message_bytes cost;
    for (std::size_t group = 0; group < remote.layout().groups.size(); ++group) {
        const auto each = remote.forecast(group, positions);
        cost.up += each.up / positions;
        cost.down += each.down / positions;
    }
    std::fprintf(stderr, "\n%.0f characters read or written, %.1f a second\n", all, all / passed.count());
    if (drafts > 0) {
        std::fprintf(stderr, "guesses: %zu of %zu right\n", right, guessed);
    }
    std::fprintf(stderr, "bytes a hidden state: up %.0f (cost model %zu), down %.0f (cost model %zu)\n",
                 static_cast<double>(after.wire.up - before.wire.up) / asked, cost.up,
                 static_cast<double>(after.wire.down - before.wire.down) / asked, cost.down);
    std::fprintf(stderr, "reconnections: %llu, %llu of them with a fresh session\n",
                 static_cast<unsigned long long>(after.resumed + after.sessions - 1),
                 static_cast<unsigned long long>(after.sessions - 1));
    if (adapter.overflows() > 0) {
        std::fprintf(stderr,
                     "%zu hidden states overflowed on the way: the text means nothing, and the server may be "
                     "hostile\n",
                     adapter.overflows());
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Writes a text with a language model whose adapter is on a server");
    std::string prompt = "In the beginning";
    std::size_t characters = 300;
    std::size_t drafts = 0;
    split::program_options service;
    std::string data = TENSAFE_EXAMPLE_DATA "/tiny_lm";
    service.add_to(app);
    app.add_option("--prompt", prompt, "newlines and printable ASCII")
        ->capture_default_str()
        ->check(
            [](const std::string& text) { return text.empty() ? "got nothing, expected a character" : ""; });
    app.add_option("--characters", characters, "to write")
        ->capture_default_str()
        ->check(split::number_in(1, 100000));
    app.add_option(
           "--draft", drafts,
           "characters that the base model guesses ahead, for one call to check: the same text in fewer "
           "round trips, and more hidden states")
        ->capture_default_str()
        ->check(split::number_in(0, 4));
    app.add_option("--data", data, "with base.safetensors")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));  // a limit on file sizes is a full disk
    try {
        return run(data, service, prompt, characters, drafts);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "remote_tiny_lm: %s\n", e.what());
        return 1;
    }
}
