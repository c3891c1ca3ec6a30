#pragma once

#include <tensafe/tensafe.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "stopwatch.hpp"

namespace examples {

/// One hidden state through the encrypted adapter: every step of client and server, in order.
template <class P, class Packing>
class token_path {
  public:
    explicit token_path(const tensafe::lora::adapter_site& site) : site_(site), server_(site.a) {}

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
