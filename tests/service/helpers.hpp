#pragma once

// What the tests of split inference share.

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>

#include "../../service/net/http_server.hpp"
#include "../../service/net/websocket_client.hpp"
#include "../../service/params.hpp"
#include "../io/file_builder.hpp"

namespace tests {

using bytes = std::vector<std::uint8_t>;

/// `call` throws an E whose message has this part.
template <class E, class Call>
void check_refusal(std::string_view part, Call call) {
    const std::string message = refusal<E>(call);
    INFO("message := ", message, ", part := ", part);
    CHECK(contains(message, part));
}

/// A client's connection without a network: what the other side says waits until it is received.
class memory_connection : public split::client_connection {
  public:
    void begin(const char*, std::chrono::milliseconds) override {}
    frame receive() override {
        check_open();
        if (frames_.empty()) {
            cut();
            check_open();
        }
        last_ = std::move(frames_.front());
        frames_.pop_front();
        traffic_.down += last_.second.size();
        return {last_.first, last_.second};
    }
    void close() noexcept override { cut(); }
    traffic bytes() const noexcept override { return traffic_; }

    /// Without a word, as a network does it. Answers that wait are lost.
    void cut() noexcept { is_cut_ = true; }

  protected:
    void check_open() const {
        if (is_cut_) {
            throw split::connection_lost("cut");
        }
    }
    void say(bool is_text, tests::bytes message) { frames_.emplace_back(is_text, std::move(message)); }
    traffic traffic_;

  private:
    std::deque<std::pair<bool, tests::bytes>> frames_;
    std::pair<bool, tests::bytes> last_;
    bool is_cut_ = false;
};

/// A server that counts its connections, says `greeting` first and then back what it hears.
class echo_server {
  public:
    explicit echo_server(split::net::http_server_options options = {}, std::string says = "hello",
                         std::size_t longest = 1000, bool works = false)
        : greeting(std::move(says)),
          largest_frame(longest),
          has_work(works),
          server(std::move(options), handlers()) {
        server.run();
    }

    std::mutex mutex;
    std::condition_variable changed;
    int begun = 0;
    int over = 0;
    std::size_t heard = 0;
    std::vector<std::weak_ptr<split::net::connection_control>> controls;  ///< of connections, as they came
    int held = 0;          ///< frames that say "hold" and are being answered
    bool lets_go = false;  ///< of them
    int refused = 0;
    std::string last_refused;
    std::string greeting;
    const std::size_t largest_frame;
    const bool has_work;      ///< always more of it, for later
    bool establishes = true;  ///< of the connections that begin from now on
    bool stops_work = false;  ///< the next piece of it lasts until this is false
    int stopped = 0;          ///< pieces that do
    int pieces = 0;
    int pieces_when_heard = 0;  ///< text
    split::net::http_server server;

    std::string port() const { return std::to_string(server.port()); }
    bool wait_for(auto condition, std::chrono::milliseconds time = std::chrono::seconds(20)) {
        const auto end = std::chrono::steady_clock::now() + time;
        std::unique_lock lock(mutex);
        while (!condition() && std::chrono::steady_clock::now() < end) {
            changed.wait_for(lock, std::chrono::milliseconds(5));  // the server's own figures tell nobody
        }
        return condition();
    }

  private:
    class handler final : public split::net::websocket_handler {
      public:
        explicit handler(echo_server& of) : of_(of) {
            const std::lock_guard lock(of_.mutex);
            established_ = of_.establishes;
            ++of_.begun;
            of_.changed.notify_all();
        }
        ~handler() override {
            const std::lock_guard lock(of_.mutex);
            ++of_.over;
            of_.changed.notify_all();
        }
        void start(split::net::answer& to) override {
            if (!of_.greeting.empty()) {
                to.add_text(of_.greeting);
            }
        }
        bool idle() override {
            std::unique_lock lock(of_.mutex);
            ++of_.stopped;
            of_.changed.notify_all();
            of_.changed.wait(lock, [&] { return !of_.stops_work; });
            --of_.stopped;
            ++of_.pieces;
            of_.changed.notify_all();
            return of_.has_work;
        }
        void on_text(std::string_view text, split::net::answer& to) override {
            {
                const std::lock_guard lock(of_.mutex);
                of_.pieces_when_heard = of_.pieces;
            }
            if (text == "hold") {
                std::unique_lock lock(of_.mutex);
                ++of_.held;
                of_.changed.notify_all();
                of_.changed.wait(lock, [&] { return of_.lets_go; });
            }
            to.add_text(text);
        }
        std::string whose() const override { return "anybody"; }
        void on_binary(std::span<const std::uint8_t> data, split::net::answer& to) override {
            const std::lock_guard lock(of_.mutex);
            of_.heard += data.size();
            to.add(false).bytes.assign(data.begin(), data.end());
        }
        void on_drain(split::net::answer& to) override {
            to.add_text("draining");
            to.close(split::net::close_going_away, "draining");
        }
        bool established() const override { return established_; }
        std::size_t largest_frame() const override { return of_.largest_frame; }

      private:
        echo_server& of_;
        bool established_ = false;
    };

    split::net::http_server_handlers handlers() {
        using split::net::http_response;
        return {[](const split::net::http_request& r) {
                    return r.target == "/healthz" ? http_response{200, "ok\n"}
                           : r.target == "/keep"  ? http_response{r.body_follows ? 100u : 200u, r.body}
                                                  : http_response{404, "no\n"};
                },
                [this](const std::string&, std::weak_ptr<split::net::connection_control> control) {
                    {
                        const std::lock_guard lock(mutex);
                        controls.push_back(std::move(control));
                    }
                    return std::make_unique<handler>(*this);
                },
                [this](const std::string& address) {
                    const std::lock_guard lock(mutex);
                    ++refused;
                    last_refused = address;
                }};
    }
};

}  // namespace tests
