#pragma once

#include <tensafe/tensafe.hpp>

#include <cstddef>
#include <span>
#include <vector>

#include "stopwatch.hpp"

namespace examples {

/// The classic way, for comparison: h replicated over slots, bare products as replies. Whoever sees a reply
/// can compute A from it.
template <class P, class Packing>
class slot_path {
  public:
    explicit slot_path(const tensafe::lora::adapter_site& site) : site_(site), server_(site.a) {}

    /// scale * B * A * h, computed under encryption.
    std::vector<double> run(std::span<const float> h, stopwatch& watch) {
        // Client: h is replicated over the slots of a polynomial, then hidden by fresh randomness.
        const auto request = watch.time(phase::encrypt, [&] { return client_.encrypt(server_.plan(), h); });
        bytes_up_ = request.bytes();
        // Server: one product for each packed plaintext of A.
        watch.time(phase::expand, [&] { server_.expand(request, work_); });
        watch.time(phase::multiply, [&] { server_.multiply(request, work_); });
        watch.time(phase::pack, [&] { server_.finish(work_, reply_); });
        // Client: decryption traces each reply to the few numbers that carry A*h.
        const auto product =
            watch.time(phase::decrypt, [&] { return client_.decrypt(server_.plan(), reply_); });
        return watch.time(phase::b, [&] { return tensafe::lora::apply_b(site_, product); });
    }

    std::size_t bytes_up() const { return bytes_up_; }
    std::size_t bytes_down() const { return reply_.bytes(); }

  private:
    using server_type = tensafe::lora::slot_server<P, Packing>;

    const tensafe::lora::adapter_site& site_;
    server_type server_;
    typename server_type::workspace work_;
    typename server_type::reply_type reply_;
    tensafe::lora::client<P> client_;
    std::size_t bytes_up_ = 0;
};

}  // namespace examples
