#pragma once

#include <tensafe/ckks/precision.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/model/server_zeros.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/serving/registry.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

namespace examples {

/// One user of a registry, client and session: every token goes through all layers of one version, whatever
/// happens to the registry meanwhile.
template <class Params>
class registry_user {
  public:
    using model = tensafe::lora::model_server<Params>;

    explicit registry_user(std::span<const float> h) : h_(h) {}

    void send_token(const tensafe::serving::adapter_handle<model>& adapter) {
        namespace lora = tensafe::lora;
        if (!client_ || adapter.version() != version_) {  // B of the new version: see docs/serving.md
            version_ = adapter.version();
            client_.emplace(keys_, adapter.model().layout(), lora::client_part(adapter.matrices()));
        }
        for (std::size_t group = 0; group < client_->layout().groups.size(); ++group) {
            const auto query = client_->encrypt(group, h_);
            session_.apply(adapter.model(), group, query.request, reply_);
            const auto delta = client_->deltas(group, reply_, query).front();
            const auto plain = lora::plain_delta(adapter.matrices().sites[group], h_);
            worst_ = std::max(worst_, tensafe::ckks::measure_precision(plain, delta).relative_error);
        }
        ++tokens_[version_];
    }

    /// How many tokens each version answered.
    const std::map<std::uint64_t, int>& tokens() const noexcept { return tokens_; }
    /// Against plaintext LoRA of the version that answered.
    double worst_error() const noexcept { return worst_; }

  private:
    std::span<const float> h_;
    std::shared_ptr<tensafe::lora::client<Params>> keys_ = std::make_shared<tensafe::lora::client<Params>>();
    tensafe::random::seed nonce_ = tensafe::random::fresh_seed();  // a server draws it
    tensafe::lora::server_zeros<Params> session_{nonce_, keys_->rerandomization_key(nonce_)};
    std::optional<tensafe::lora::model_client<Params>> client_;
    typename model::decode_server::reply_type reply_;
    std::uint64_t version_ = 0;
    std::map<std::uint64_t, int> tokens_;
    double worst_ = 0;
};

}  // namespace examples
