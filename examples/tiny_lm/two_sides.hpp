#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/interop/torch_lora.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/session/client_session.hpp>
#include <tensafe/session/server_session.hpp>
#include <tensafe/wire/message.hpp>

#include <torch/torch.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transformer.hpp"

// Encrypted LoRA has two sides. Here they share a process; all that they tell each other are the arguments
// and results of adapter_side's members. With remote_tiny_lm they do not.

namespace examples::tiny_lm {

using params = tensafe::ckks::private_n4096;

/// Adds the time that it lives, in milliseconds.
class timed {
  public:
    explicit timed(double& to) : to_(to) {}
    timed(const timed&) = delete;
    timed& operator=(const timed&) = delete;
    ~timed() {
        const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start_;
        to_ += passed.count();
    }

  private:
    double& to_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Has the adapter. Sees ciphertexts and no key that opens them; answers one client.
class adapter_side {
    using session_type = tensafe::session::server_session<params>;

  public:
    using workspace = session_type::workspace;

    explicit adapter_side(const tensafe::lora::adapter& adapter)
        : model_(std::make_shared<const tensafe::lora::model_server<params>>(adapter)),
          nonce_(tensafe::random::fresh_nonce()) {}

    /// For the client: which linears have an adapter, and of what rank.
    const tensafe::lora::model_layout& layout() const noexcept { return model_->layout(); }
    const tensafe::random::seed& nonce() const noexcept { return nonce_; }

    template <class ZeroKey>
    void open_session(ZeroKey key) {
        session_ = std::make_unique<session_type>(model_, nonce_, std::move(key));
    }

    workspace& memory() noexcept { return memory_; }
    /// As a server_session answers.
    /// @pre open_session was called
    template <class Request, class Reply>
    void answer(const tensafe::wire::envelope& of, const Request& request, workspace& memory, Reply& reply) {
        const timed here(milliseconds_);
        session_->answer(of, request, memory, reply);
        bytes_up_ += request.bytes();
        bytes_down_ += reply.bytes();
    }

    double milliseconds() const noexcept { return milliseconds_; }
    std::size_t bytes_up() const noexcept { return bytes_up_; }
    std::size_t bytes_down() const noexcept { return bytes_down_; }

  private:
    std::shared_ptr<const tensafe::lora::model_server<params>> model_;
    tensafe::random::seed nonce_;
    std::unique_ptr<session_type> session_;
    workspace memory_;
    double milliseconds_ = 0;
    std::size_t bytes_up_ = 0;
    std::size_t bytes_down_ = 0;
};

/// Has the text, the base model and the secret key. Of the adapter it holds what lora::client_part gives out:
/// B and no A.
class text_side {
  public:
    using client_type = tensafe::lora::model_client<params>;

    /// @param remote  must outlive this object
    text_side(adapter_side& remote, tensafe::lora::adapter client_part)
        : client_(std::make_shared<client_type>(remote.layout(), std::move(client_part))),
          session_(client_),
          lora_(client_, [this, &remote](tensafe::session::call& asked) {
              tensafe::session::answer_in_process(session_, remote, remote.memory(), asked, [] {});
          }) {
        remote.open_session(client_->rerandomization_key(remote.nonce()));
        for (std::size_t g = 0; g < lora_.layout().groups.size(); ++g) {
            const auto& sites = lora_.layout().groups[g].sites;
            for (std::size_t s = 0; s < sites.size(); ++s) {
                places_[sites[s].name] = {g, s};
            }
        }
    }
    text_side(const text_side&) = delete;  // lora_ refers to this object
    text_side& operator=(const text_side&) = delete;

    /// Refers to this object. One call for sites that share an input.
    adapter_deltas deltas() {
        return [this](const std::vector<std::string>& sites, const at::Tensor& x) {
            const timed here(milliseconds_);
            std::map<std::size_t, std::vector<at::Tensor>> of_groups;
            std::vector<at::Tensor> results;
            for (const std::string& name : sites) {
                const auto place = places_.find(name);
                if (place == places_.end()) {
                    throw tensafe::parameter_error("text_side: the server's adapter has no site \"" + name +
                                                   "\"");
                }
                auto& group = of_groups[place->second.group];
                if (group.empty()) {
                    group = lora_.deltas(place->second.group, x);
                }
                results.push_back(group[place->second.site]);
            }
            return results;
        };
    }

    /// What the server must not see, and the user should: hidden states of no finite norm, and entries of
    /// deltas beyond the tensors' type.
    std::size_t overflows() const noexcept { return lora_.bad_states() + lora_.clamped_deltas(); }
    double milliseconds() const noexcept { return milliseconds_; }  ///< with those of the other side

  private:
    double milliseconds_ = 0;
    std::shared_ptr<client_type> client_;
    tensafe::session::client_session<params> session_;
    tensafe::interop::encrypted_lora<params> lora_;
    std::map<std::string, tensafe::lora::model_layout::place> places_;
};

}  // namespace examples::tiny_lm
