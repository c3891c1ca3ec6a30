#pragma once

#include <tensafe/tensafe.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {

/// Milliseconds of each phase, token by token.
class stopwatch {
  public:
    static constexpr std::array<std::string_view, 8> phases{"encode",  "encrypt", "expand", "multiply",
                                                            "rescale", "decrypt", "fold",   "b"};

    /// Runs f and books its time under `phase`.
    template <class F>
    auto time(std::size_t phase, F f) {
        struct booking {
            std::vector<double>& to;
            std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
            ~booking() {
                const std::chrono::duration<double, std::milli> elapsed =
                    std::chrono::steady_clock::now() - start;
                to.push_back(elapsed.count());
            }
        } entry{times_[phase]};
        return f();
    }
    const std::vector<double>& times(std::size_t phase) const { return times_[phase]; }

  private:
    std::array<std::vector<double>, phases.size()> times_;
};

/// One hidden state through the encrypted adapter: every step of client and server, in order.
template <class P, class Packing>
class token_path {
  public:
    token_path(const tensafe::lora::adapter_site& site) : site_(site), server_(site.a) {}

    const auto& layout() const { return server_.layout(); }

    /// scale * B * A * h, computed under encryption.
    std::vector<double> run(std::span<const float> h, stopwatch& watch) {
        const tensafe::exec::host here;
        // Client: h is replicated over the slots of a polynomial, then hidden by fresh randomness. Only the
        // client has the secret key; what goes up is the request.
        auto encoded = watch.time(0, [&] { return client_.encode(here, layout(), h); });
        const auto request = watch.time(1, [&] { return client_.encrypt(here, std::move(encoded)); });
        // Server: half of the request is a seed to expand; then one product for each packed plaintext of A.
        // No keys, no rotations. The workspace keeps its memory from token to token.
        watch.time(2, [&] { server_.expand(here, request, work_); });
        watch.time(3, [&] { server_.multiply(here, request, work_); });
        watch.time(4, [&] { server_.finish(here, work_, reply_); });
        // Client: decryption folds each reply to the few numbers that carry A*h. B is applied in the clear.
        auto folded = watch.time(5, [&] { return client_.decrypt_folded(here, layout(), reply_); });
        const auto product = watch.time(6, [&] { return client_.fold(here, layout(), std::move(folded)); });
        bytes_up_ = request.bytes();
        bytes_down_ = reply_.bytes();
        return watch.time(7, [&] { return tensafe::lora::apply_b(site_, product); });
    }

    std::size_t bytes_up() const { return bytes_up_; }
    std::size_t bytes_down() const { return bytes_down_; }

  private:
    using server_type = tensafe::lora::server<P, Packing>;

    const tensafe::lora::adapter_site& site_;
    server_type server_;
    tensafe::lora::client<P> client_;
    typename server_type::workspace work_;
    typename server_type::reply_type reply_;
    std::size_t bytes_up_ = 0;
    std::size_t bytes_down_ = 0;
};

}  // namespace examples
