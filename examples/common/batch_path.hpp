#pragma once

#include <tensafe/tensafe.hpp>

#include <cstddef>
#include <vector>

#include "stopwatch.hpp"

namespace examples {

/// Many hidden states in one request and one protected reply: for prefill and offline work. Ciphertext j
/// holds entry j of all of them, so the server multiplies ciphertexts by numbers and transforms nothing for
/// it.
template <class P, class Protection>
class batch_path {
  public:
    explicit batch_path(const tensafe::lora::adapter_site& site)
        : site_(tensafe::lora::balance(site)),
          server_(site_.a),
          nonce_(tensafe::random::fresh_seed()),
          zeros_(server_.pool(nonce_, client_.rerandomization_key(nonce_))) {}

    const auto& layout() const { return server_.layout(); }
    void fill_pool() { zeros_.fill(layout().outputs()); }

    /// scale * B * A * h for each row h of `states`.
    std::vector<std::vector<double>> run(const tensafe::lora::matrix& states, stopwatch& watch) {
        const auto query = watch.time(phase::encrypt, [&] { return client_.encrypt(plan(), states); });
        watch.time(phase::multiply, [&] { server_.multiply(query.request, work_); });
        watch.time(phase::protect, [&] { server_.protect(zeros_, work_); });
        watch.time(phase::pack, [&] { server_.finish(work_, reply_); });
        auto answers = watch.time(phase::decrypt, [&] { return client_.decrypt(plan(), reply_, query); });
        bytes_up_ = query.request.bytes();
        return watch.time(phase::b, [&] {
            for (auto& answer : answers) {
                answer = tensafe::lora::apply_b(site_, answer);
            }
            return std::move(answers);
        });
    }

    std::size_t bytes_up() const { return bytes_up_; }
    std::size_t bytes_down() const { return reply_.bytes(); }

  private:
    using server_type = tensafe::lora::server<P, tensafe::lora::column_batched, Protection>;

    tensafe::lora::adapter_site site_;
    server_type server_;
    typename server_type::workspace work_;
    typename server_type::reply_type reply_;
    tensafe::lora::client<P> client_;
    tensafe::random::seed nonce_;
    typename server_type::rerandomization_pool zeros_;
    std::size_t bytes_up_ = 0;
};

}  // namespace examples
