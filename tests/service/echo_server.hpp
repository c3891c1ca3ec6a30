#pragma once

// A server of frames and HTTP for tests of the network alone, and its certificate.

#include <condition_variable>
#include <mutex>

#include "../../service/net/http_server.hpp"
#include "../../service/tls_certificate.hpp"
#include "../io/file_builder.hpp"

namespace tests {

namespace net = split::net;

/// A certificate of this machine, in a folder of its own.
struct certificate {
    temporary_directory folder;
    split::tls_files files = split::prepare_certificate(folder.path());
    net::http_server_options options(net::http_server_options of = {}) const {
        of.secure = {files.certificate, files.key};
        return of;
    }
};

/// Counts its connections, says `greeting` first and then back what it hears.
class echo_server {
  public:
    explicit echo_server(net::http_server_options options = {}, std::string says = "hello",
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
    std::vector<std::weak_ptr<net::connection_control>> controls;  ///< of connections, as they came
    int held = 0;          ///< frames that say "hold" and are being answered
    bool lets_go = false;  ///< of them
    int refused = 0;
    std::string last_refused;
    net::caller last_caller;
    std::string over_rate;  ///< an address of which none may come
    std::string greeting;
    const std::size_t largest_frame;
    const bool has_work;      ///< always more of it, for later
    bool establishes = true;  ///< of the connections that begin from now on
    bool stops_work = false;  ///< the next piece of it lasts until this is false
    int stopped = 0;          ///< pieces that do
    int pieces = 0;
    int pieces_when_heard = 0;  ///< text
    net::http_server server;

    std::string url(bool tls = false) const {
        return (tls ? "wss://127.0.0.1:" : "ws://127.0.0.1:") + std::to_string(server.port());
    }
    bool wait_for(auto condition, std::chrono::milliseconds time = std::chrono::seconds(20)) {
        const auto end = std::chrono::steady_clock::now() + time;
        std::unique_lock lock(mutex);
        while (!condition() && std::chrono::steady_clock::now() < end) {
            changed.wait_for(lock, std::chrono::milliseconds(5));  // the server's own figures tell nobody
        }
        return condition();
    }
    /// Changes what the server looks at.
    auto set(auto change) {
        const std::lock_guard lock(mutex);
        changed.notify_all();
        return change();
    }

  private:
    class handler final : public net::websocket_handler {
      public:
        explicit handler(echo_server& of) : of_(of) {
            of_.set([&] { established_ = of_.establishes, ++of_.begun; });
        }
        ~handler() override {
            of_.set([&] { ++of_.over; });
        }
        void start(net::answer& to) override {
            if (!of_.greeting.empty()) {
                to.add_text(of_.greeting);
            }
        }
        bool idle() override {
            hold(of_.stopped, [&] { return !of_.stops_work; });
            of_.set([&] { --of_.stopped, ++of_.pieces; });
            return of_.has_work;
        }
        void on_text(std::string_view text, net::answer& to) override {
            of_.set([&] { of_.pieces_when_heard = of_.pieces; });
            if (text == "hold") {
                hold(of_.held, [&] { return of_.lets_go; });
            }
            to.add_text(text);
        }
        std::string whose() const override { return "anybody"; }
        void on_binary(std::span<const std::uint8_t> data, net::answer& to) override {
            of_.set([&] { of_.heard += data.size(); });
            to.add(false).bytes.assign(data.begin(), data.end());
        }
        void on_drain(net::answer& to) override {
            to.add_text("draining");
            to.close(net::close_going_away, "draining");
        }
        bool established() const override { return established_; }
        std::size_t largest_frame() const override { return of_.largest_frame; }

      private:
        void hold(int& count, auto until) {
            std::unique_lock lock(of_.mutex);
            ++count;
            of_.changed.notify_all();
            of_.changed.wait(lock, until);
        }
        echo_server& of_;
        bool established_ = false;
    };

    net::http_server_handlers handlers() {
        using net::http_response;
        return {[](const net::http_request& r) {
                    return r.target == "/healthz" ? http_response{200, "ok\n"}
                           : r.target == "/keep"  ? http_response{r.body_follows ? 100u : 200u, r.body}
                           : r.target == "/whose" ? http_response{200, r.address + "\n"}
                                                  : http_response{404, "no\n"};
                },
                [this](const net::caller& from, std::weak_ptr<net::connection_control> control) {
                    set([&] { controls.push_back(std::move(control)), last_caller = from; });
                    return std::make_unique<handler>(*this);
                },
                [this](const std::string& address) { set([&] { ++refused, last_refused = address; }); },
                [](const std::string&, const std::string&) {},
                [this](const std::string& address) { return set([&] { return address != over_rate; }); }};
    }
};

}  // namespace tests
