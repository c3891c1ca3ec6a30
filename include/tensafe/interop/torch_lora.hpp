#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/interop/torch.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/memory/wipe.hpp>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::interop {

/// The deltas of an encrypted adapter, from tensors to tensors: encrypts each row of x, has the request
/// answered, and decrypts. In one process, with a lora::server_zeros:
///
///     interop::encrypted_lora<params> adapter(
///         client, [&](std::size_t group, const auto& request, auto& reply) {
///             session.apply(*server, group, request, reply);
///         });
///     const at::Tensor delta = adapter.delta("model.layers.0.self_attn.q_proj", x);
///
/// x: shape [..., d], Float, Half or BFloat16 on the CPU, any strides. A delta has x's type and the shape of
/// x but for the last dimension, which is d_out; rows stand where those of x do. One request for each row, in
/// row-major order; an x without rows sends none. Answers come at full precision and are rounded once.
///
/// A delta has no gradient. So an x that requires one is refused while gradients are recorded, instead of
/// training a model that does not see its adapter: torch::NoGradGuard, or x.detach() if that is what you
/// want.
///
/// For one thread at a time, over all that share the client's key. Exception safety: strong, but the requests
/// that went up before are answered: they have used up zeros of the session. What it keeps from call to call
/// holds no secret; x and the deltas lie in libtorch's memory, which nobody wipes.
template <ckks::parameter_set P, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>>
class encrypted_lora {
  public:
    using client_type = lora::model_client<P, Packing, Protection>;
    using reply_type = typename client_type::reply_type;
    /// Carries a request to the server and its reply back: fills all of the reply, which comes empty, or
    /// throws, which goes through as it is. Messages have no number, and the reply to another request
    /// decrypts to a wrong delta without an error. So it must match replies to requests: a connection on
    /// which it gave up waiting may still bring the late one, and has to be closed.
    using transport = std::function<void(std::size_t group, const lora::request<P>&, reply_type&)>;

    /// Makes the product of a group's rows with a hidden state in whatever way, as in blocks; sends zeros for
    /// a state of no finite norm. Returns whether it was good.
    using asker = std::function<bool(std::size_t group, std::span<const float> h, double overflow_margin,
                                     std::vector<double>& product)>;

    /// @throws parameter_error without a client or a transport
    encrypted_lora(std::shared_ptr<client_type> client, transport carry)
        : client_(std::move(client)), carry_(std::move(carry)) {
        if (!client_) {
            throw parameter_error("encrypted_lora: got no client, expected a lora::model_client");
        }
        if (!carry_) {
            throw parameter_error(
                "encrypted_lora: got no transport, expected a function that has requests answered");
        }
    }

    encrypted_lora(std::shared_ptr<client_type> client, asker ask)
        : client_(std::move(client)), ask_(std::move(ask)) {
        if (!client_ || !ask_) {
            throw parameter_error(
                "encrypted_lora: got no client or no function to ask, expected a lora::model_client and a "
                "function that makes products");
        }
    }

    /// Groups and sites: which of them share an input, and their shapes.
    const lora::model_layout& layout() const noexcept { return client_->layout(); }

    /// The deltas of all sites of a group, in the order of layout().groups[group].sites: x is encrypted once
    /// for q, k and v.
    /// @param overflow_margin  as in lora::client::encrypt, for all rows: for another try after
    ///                  range_exceeded_error, which tells the server something (docs/guide.md)
    /// @throws parameter_error if there is no such group; shape_error if x is not [..., d]; unsupported_error
    ///         for tensors that cannot be read, and for gradients; c10::Error if libtorch finds no memory.
    ///         Then range_exceeded_error, naming the row, if an answer passed an average-case range;
    ///         otherwise as the transport and model_client. What a server's answers can lead to is no error,
    ///         or it would see who stops: see bad_states and clamped_deltas
    std::vector<at::Tensor> deltas(std::size_t group, const at::Tensor& x, double overflow_margin = 1) {
        return run(group, 0, client_->layout().at(group).sites.size(), x, overflow_margin);
    }

    /// The delta of one site. The reply holds those of its whole group: where several are needed, `deltas`
    /// costs one request instead of several.
    /// @throws parameter_error if there is no such protected site; otherwise as deltas
    at::Tensor delta(std::string_view site, const at::Tensor& x, double overflow_margin = 1) {
        const lora::model_layout::place place = client_->layout().at(site);
        return run(place.group, place.site, 1, x, overflow_margin).front();
    }

    /// Hidden states so far with NaN, infinity or a norm beyond double: zeros were sent for them, and their
    /// deltas are zeros.
    std::size_t bad_states() const noexcept { return bad_states_; }
    /// Entries of deltas so far beyond the largest number of x's type: they are that number.
    std::size_t clamped_deltas() const noexcept { return clamped_deltas_; }

  private:
    /// Of `count` sites from `first` on.
    std::vector<at::Tensor> run(std::size_t group, std::size_t first, std::size_t count, const at::Tensor& x,
                                double overflow_margin) {
        const lora::model_layout::group& g = client_->layout().at(group);
        const hidden_states states(x);
        if (states.d() != g.d) {
            throw shape_error(detail::got("encrypted_lora", x) + "[..., " + std::to_string(g.d) +
                              "] for the input " + quote(g.input));
        }
        if (at::GradMode::is_enabled() && x.requires_grad()) {
            throw unsupported_error(
                detail::got("encrypted_lora", x) +
                "one that needs no gradient: the delta has none. Hold a torch::NoGradGuard while the model "
                "runs, or pass x.detach()");
        }
        std::vector<at::Tensor> results;
        std::vector<std::int64_t> sizes = x.sizes().vec();
        for (std::size_t s = first; s < first + count; ++s) {
            sizes.back() = static_cast<std::int64_t>(g.sites[s].d_out);
            results.push_back(detail::make_tensor("encrypted_lora", sizes, x.scalar_type()));
        }
        const wiped_on_exit wiped{*this};
        for (std::size_t i = 0; i < states.count(); ++i) {
            answer(group, g, states, i, overflow_margin);
            for (std::size_t s = 0; s < count; ++s) {
                std::vector<double>& delta = deltas_[first + s];
                clamped_deltas_ += detail::clamp_to_type(delta, x.scalar_type());
                detail::write_rounded("encrypted_lora", delta, results[s], i * delta.size());
            }
        }
        return results;
    }

    /// Makes deltas_ those of row i.
    void answer(std::size_t group, const lora::model_layout::group& g, const hidden_states& states,
                std::size_t i, double overflow_margin) {
        const std::span<const float> h = states.row(i, row_);
        try {
            if (ask_) {
                bad_states_ += ask_(group, h, overflow_margin, product_) ? 0u : 1u;
            } else {
                lora::query<P>& query = queries_[g.d];
                bad_states_ += client_->encrypt_or_zeros(group, h, query, overflow_margin) ? 0u : 1u;
                reply_type reply;  // a new one, so that nothing of an earlier answer can stay in it
                carry_(group, query.request, reply);
                client_->decrypt(group, reply, query, reading_, product_);
            }
        } catch (const range_exceeded_error& e) {
            throw range_exceeded_error("encrypted_lora: row " + std::to_string(i) + " of " +
                                       std::to_string(states.count()) + ": " + e.what());
        }
        client_->deltas(group, product_, deltas_);
    }

    /// Wipes what was decrypted and widened.
    struct wiped_on_exit {
        encrypted_lora& of;

        ~wiped_on_exit() {
            memory::wipe(of.row_.data(), of.row_.size() * sizeof(float));
            memory::wipe(of.product_.data(), of.product_.size() * sizeof(double));
            for (auto& delta : of.deltas_) {
                memory::wipe(delta.data(), delta.size() * sizeof(double));
            }
            memory::wipe(of.reading_.coefficients.data(), of.reading_.coefficients.span().size_bytes());
            memory::wipe(of.reading_.slots.data(), of.reading_.slots.span().size_bytes());
            for (auto& [d, query] : of.queries_) {
                memory::wipe(query.scale);  // it follows from the norm of the state
            }
        }
    };

    std::shared_ptr<client_type> client_;
    transport carry_;
    asker ask_;
    std::map<std::size_t, lora::query<P>> queries_;  // for each length of hidden states
    typename client_type::workspace reading_;
    std::vector<float> row_;
    std::vector<double> product_;
    typename client_type::site_deltas deltas_;
    std::size_t bad_states_ = 0;
    std::size_t clamped_deltas_ = 0;
};

/// A linear layer with an adapter that is somewhere else: forward(x) = base(x) + delta(x).
///
///     auto q = std::make_shared<interop::encrypted_linear>(
///         q_proj, [&](const at::Tensor& x) { return adapter.delta("model.layers.0.self_attn.q_proj", x); });
///
/// In a model, the forward of the module around it has to call it. replace_module does not do that: it
/// changes what parameters() and save() see, and forward goes on with its own member, without the adapter.
/// The Linear is its submodule "base": parameters(), to() and save() see it, and of the adapter nothing. The
/// keys of the Linear at `q` become q.base.weight and q.base.bias, so load a checkpoint before. clone(), also
/// of a model that has one inside, is a c10::Error; TorchScript does not know it.
///
/// What the delta refers to must outlive it; it is for one thread at a time if the delta is.
class encrypted_linear : public torch::nn::Module {
  public:
    using delta_function = std::function<at::Tensor(const at::Tensor&)>;

    /// @throws parameter_error without a layer or a delta
    encrypted_linear(torch::nn::Linear layer, delta_function delta)
        : torch::nn::Module("encrypted_linear"), base(nullptr), delta_(std::move(delta)) {
        if (layer.is_empty()) {
            throw parameter_error("encrypted_linear: got no layer, expected a torch::nn::Linear");
        }
        if (!delta_) {
            throw parameter_error("encrypted_linear: got no delta, expected a function of x");
        }
        base = register_module("base", std::move(layer));
    }

    /// @param x  [..., in_features]
    /// @return   [..., out_features]: the sum, in the type of both
    /// @throws shape_error or parameter_error if base(x) and delta(x) differ in shape or type, where libtorch
    ///         would broadcast or convert; c10::Error of the layer, before delta is called; whatever delta
    ///         throws
    at::Tensor forward(const at::Tensor& x) {
        const at::Tensor result = base->forward(x);
        const at::Tensor delta = delta_(x);
        if (!delta.defined() || delta.sizes() != result.sizes()) {
            throw shape_error("encrypted_linear: got a delta of shape " +
                              (delta.defined() ? shape_text(delta.sizes()) : std::string("none")) +
                              ", expected " + shape_text(result.sizes()) + " as the layer gives");
        }
        if (delta.scalar_type() != result.scalar_type()) {
            throw parameter_error(std::string("encrypted_linear: got a delta of ") +
                                  at::toString(delta.scalar_type()) + ", expected " +
                                  at::toString(result.scalar_type()) + " as the layer gives");
        }
        return result + delta;
    }

    void pretty_print(std::ostream& out) const override {
        out << "tensafe::interop::encrypted_linear(in_features=" << base->options.in_features()
            << ", out_features=" << base->options.out_features() << ")";
    }

    torch::nn::Linear base;

  private:
    delta_function delta_;
};

}  // namespace tensafe::interop
