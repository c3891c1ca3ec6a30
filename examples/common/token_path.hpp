#pragma once

#include <tensafe/tensafe.hpp>

#include <cstddef>
#include <span>
#include <vector>

#include "stopwatch.hpp"

namespace examples {

/// One hidden state after the other through the encrypted adapter, replies protected: every step of client
/// and server, in order. Both live in this object; what would travel between them are `nonce_`, the
/// re-randomization key, the requests and the replies.
template <class P, class Packing, class Protection>
class token_path {
  public:
    /// In mode client_held_b the server holds A and the client B; in mode blind the server holds both, as one
    /// matrix. A balanced site has its rows of A at norm 1, so that no norm of A travels.
    token_path(const tensafe::lora::adapter_site& site, bool blind)
        : site_(tensafe::lora::balance(site)),
          blind_(blind),
          server_(blind ? tensafe::lora::merge(site) : site_.a),
          // Once per session: the server draws a nonce, the client answers with its re-randomization key.
          // From then on the server can make encryptions of zero, and hides each product under a fresh one.
          nonce_(tensafe::random::fresh_seed()),
          zeros_(server_.pool(nonce_, client_.rerandomization_key(nonce_))) {}

    const auto& layout() const { return server_.layout(); }

    /// What a server does while it waits for the next token: one encryption of zero for each product.
    void fill_pool() { zeros_.fill(layout().outputs()); }

    /// scale * B * A * h, computed under encryption.
    std::vector<double> run(std::span<const float> h, stopwatch& watch) {
        for (headroom_ = 1;; headroom_ *= 2) {
            try {
                return run_once(h, watch);
            } catch (const tensafe::range_exceeded_error&) {
                // Of calibrated ranges only, and seldom: an answer wrapped around and the client noticed. It
                // asks again with more room, and the server sees that it did.
                ++retries_;
            }
        }
    }

    std::size_t bytes_up() const { return query_.request.bytes(); }
    std::size_t bytes_down() const { return reply_.bytes(); }
    std::size_t retries() const { return retries_; }
    double overflow_margin() const { return headroom_; }

  private:
    std::vector<double> run_once(std::span<const float> h, stopwatch& watch) {
        // Client: h becomes coefficients of polynomials, hidden by fresh randomness. Only the client has the
        // secret key. The request travels; the scale stays, because it tells the norm of h.
        watch.time(phase::encrypt, [&] { client_.encrypt(plan(), h, query_, headroom_); });

        // Server: half of the request is seeds to expand; then products with the plaintexts of A. No rotation
        // and no evaluation key. Query, workspaces and reply keep their memory from token to token.
        watch.time(phase::expand, [&] { server_.expand(query_.request, work_); });
        watch.time(phase::multiply, [&] { server_.multiply(query_.request, work_); });
        // Bare products would show A to the client. A fresh encryption of zero hides all that is no answer,
        // and a flood of noise the little that answers themselves carry beside A*h.
        watch.time(phase::protect, [&] { server_.protect(zeros_, work_); });
        // To a small modulus, without the coefficients that carry no answer: short replies.
        watch.time(phase::pack, [&] { server_.finish(work_, reply_); });

        // Client: A*h, to which it applies B in the clear; from a blind server the delta itself.
        watch.time(phase::decrypt,
                   [&] { client_.decrypt(plan(), reply_, query_.scale, reading_, answers_); });
        if (blind_) {
            return answers_;
        }
        return watch.time(phase::b, [&] { return tensafe::lora::apply_b(site_, answers_); });
    }

    using server_type = tensafe::lora::server<P, Packing, Protection>;

    tensafe::lora::adapter_site site_;
    bool blind_;
    server_type server_;
    typename server_type::workspace work_;
    typename server_type::reply_type reply_;
    tensafe::lora::client<P> client_;  // a fresh secret key
    tensafe::random::seed nonce_;
    typename server_type::rerandomization_pool zeros_;
    tensafe::lora::query<P> query_;
    tensafe::lora::decryption_workspace<P> reading_;
    std::vector<double> answers_ = std::vector<double>(server_.layout().rank);
    std::size_t retries_ = 0;
    double headroom_ = 1;
};

}  // namespace examples
