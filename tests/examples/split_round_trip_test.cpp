// Both halves of split inference, the client against the service itself, with nothing between them but the
// frames: what the network carries.
#include <tensafe/ckks/precision.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/protocol/client.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "../../examples/split_inference/net/connection.hpp"
#include "../../examples/split_inference/net/websocket_client.hpp"
#include "../../examples/split_inference/remote_model.hpp"
#include "../../examples/split_inference/service.hpp"
#include "../refusal.hpp"

namespace {

namespace lora = tensafe::lora;

/// Frames go straight to a service, and its answers wait to be received.
class direct_connection final : public split::client_connection {
  public:
    explicit direct_connection(split::service& to)
        : ended_(std::make_shared<control>()), other_(to.connect("test", ended_)) {
        hear([&](auto& answer) { other_->start(answer); });
    }

    void send_text(std::string_view text) override {
        up_ += text.size();
        hear([&](auto& answer) { other_->on_text(text, answer); });
    }
    void send_binary(std::span<const std::uint8_t> message) override {
        up_ += message.size();
        hear([&](auto& answer) { other_->on_binary(message, answer); });
    }
    frame receive(std::chrono::milliseconds) override {
        check_open();
        if (frames_.empty()) {
            throw split::connection_lost("the server says nothing");
        }
        last_ = std::move(frames_.front());
        frames_.pop_front();
        down_ += last_.second.size();
        return {last_.first, last_.second};
    }
    void close() noexcept override { ended_->ended = true; }
    traffic bytes() const noexcept override { return {up_, down_}; }

    /// Without a word, as a network does it. Answers that wait are lost.
    void cut() noexcept { ended_->ended = true; }

  private:
    struct control final : split::net::connection_control {
        bool ended = false;
        void end(std::uint16_t, const std::string&) override { ended = true; }
    };

    void check_open() const {
        if (ended_->ended) {
            throw split::connection_lost("cut");
        }
    }
    template <class Say>
    void hear(Say say) {
        check_open();
        split::net::answer answer;
        say(answer);
        for (const auto& said : answer.frames()) {
            frames_.emplace_back(said.is_text,
                                 std::vector<std::uint8_t>(said.data().begin(), said.data().end()));
        }
    }

    std::shared_ptr<control> ended_;
    std::unique_ptr<split::net::websocket_handler> other_;
    std::deque<std::pair<bool, std::vector<std::uint8_t>>> frames_;
    std::pair<bool, std::vector<std::uint8_t>> last_;
    std::uint64_t up_ = 0;
    std::uint64_t down_ = 0;
};

/// Two sites with an input of their own each.
lora::adapter random_adapter(unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    lora::adapter result;
    for (const char* name : {"layer.0.q_proj", "layer.0.down_proj"}) {
        lora::adapter_site site;
        site.name = name;
        site.a = lora::matrix(4, 64);
        site.b = lora::matrix(16, 4);
        site.scale = 2;
        for (auto* m : {&site.a, &site.b}) {
            for (float& x : m->values) {
                x = normal(generator);
            }
        }
        result.sites.push_back(site);
    }
    return result;
}

std::vector<float> random_state(unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> h(64);
    for (float& x : h) {
        x = normal(generator);
    }
    return h;
}

struct both_sides {
    std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("split_round_trip_" + std::to_string(::getpid()));
    lora::adapter adapter = random_adapter(1);
    std::unique_ptr<split::service> service;
    direct_connection* last = nullptr;

    explicit both_sides(std::uint64_t queries = 1000) {
        std::filesystem::remove_all(folder);
        std::filesystem::create_directory(folder);
        split::service_options options;
        options.allowed.queries = queries;
        options.state = folder;
        service = std::make_unique<split::service>(std::move(options));
        service->adapters().load("small", [this] { return adapter; });
    }
    both_sides(const both_sides&) = delete;
    both_sides& operator=(const both_sides&) = delete;
    ~both_sides() {
        service.reset();
        std::filesystem::remove_all(folder);
    }

    split::remote_model::connector connector() {
        return [this]() -> std::unique_ptr<split::client_connection> {
            auto made = std::make_unique<direct_connection>(*service);
            last = made.get();
            return made;
        };
    }
    static split::remote_options options(split::frame_form frames = split::frame_form::binary) {
        split::remote_options result;
        result.adapter = "small";
        result.frames = frames;
        result.wait = [](std::chrono::milliseconds) {};
        return result;
    }
};

/// The relative error of the delta of a group's site against plaintext LoRA.
double error_of(split::remote_model& remote, const lora::adapter& adapter, std::size_t group, unsigned seed) {
    const auto h = random_state(seed);
    lora::query<split::params> query;
    split::remote_model::reply_type reply;
    const auto deltas = remote.with_retry([&] {
        remote.client()->encrypt(group, h, query);
        remote.carry(group, query.request, reply);
        return remote.client()->deltas(group, reply, query);
    });
    const auto plain = lora::plain_delta(adapter.site(remote.layout().groups[group].sites[0].name), h);
    return tensafe::ckks::measure_precision(plain, deltas.at(0)).relative_error;
}

}  // namespace

TEST_CASE("a client of the service gets the deltas of plaintext LoRA, in binary and in JSON frames") {
    both_sides both;
    for (const auto frames : {split::frame_form::binary, split::frame_form::json}) {
        split::remote_model remote(both.connector(), split::client_identity({}),
                                   std::make_shared<lora::client<split::params>>(),
                                   both_sides::options(frames));
        for (std::size_t group = 0; group < 2; ++group) {
            CHECK(error_of(remote, both.adapter, group, 3) < 2e-3);
        }
        CHECK(error_of(remote, random_adapter(2), 0, 3) > 0.1);  // the measure can tell
    }
}

TEST_CASE("a session goes on after a cut, and after being forgotten there is a fresh one") {
    both_sides both;
    split::remote_model remote(both.connector(), split::client_identity({}),
                               std::make_shared<lora::client<split::params>>(), both_sides::options());
    CHECK(error_of(remote, both.adapter, 0, 4) < 2e-3);
    both.last->cut();
    CHECK(error_of(remote, both.adapter, 1, 5) < 2e-3);
    CHECK(remote.counted().resumed == 1);
    CHECK(remote.counted().sessions == 1);
    both.last->cut();  // another token by now
    CHECK(error_of(remote, both.adapter, 1, 6) < 2e-3);
    CHECK(remote.counted().resumed == 2);

    remote.forget();
    remote.reconnect();
    CHECK(error_of(remote, both.adapter, 0, 7) < 2e-3);
    CHECK(remote.counted().sessions == 2);
}

TEST_CASE("a session keeps its version of an adapter, and a fresh one with another is an error") {
    both_sides both;
    split::remote_model remote(both.connector(), split::client_identity({}),
                               std::make_shared<lora::client<split::params>>(), both_sides::options());
    both.service->adapters().load("small", [] { return random_adapter(9); });
    CHECK(error_of(remote, both.adapter, 0, 8) < 2e-3);
    both.last->cut();
    CHECK(error_of(remote, both.adapter, 1, 9) < 2e-3);
    remote.forget();
    CHECK(tests::refusal<split::adapter_changed_error>([&] {
              remote.reconnect();
          }).find("got version 2, whose layout or values are others, expected those of version 1") !=
          std::string::npos);
}

TEST_CASE("the limit of queries is the client's, whatever session it opens, and not another client's") {
    both_sides both(2);
    auto identity = split::client_identity(both.folder / "identity.pem");
    const auto keys = std::make_shared<lora::client<split::params>>();
    {
        split::remote_model remote(both.connector(), std::move(identity), keys, both_sides::options());
        CHECK(remote.queries_left() == 2);
        CHECK(error_of(remote, both.adapter, 0, 11) < 2e-3);
        CHECK(error_of(remote, both.adapter, 0, 12) < 2e-3);
        CHECK(tests::refusal<split::query_limit_error>([&] {
                  error_of(remote, both.adapter, 0, 13);
              }).find("query_limit") != std::string::npos);
        remote.forget();
    }
    split::remote_model again(both.connector(), split::client_identity(both.folder / "identity.pem"), keys,
                              both_sides::options());
    CHECK(tests::refusal<split::query_limit_error>([&] {
              error_of(again, both.adapter, 0, 14);
          }).find("query_limit") != std::string::npos);
    split::remote_model other(both.connector(), split::client_identity({}), keys, both_sides::options());
    CHECK(error_of(other, both.adapter, 0, 15) < 2e-3);
}
