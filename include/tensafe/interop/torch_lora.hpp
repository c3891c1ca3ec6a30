#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/interop/torch.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/session/client_session.hpp>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::interop {

/// Makes the deltas of an encrypted adapter, from tensors to tensors: has the rows of x answered in one call
/// of a session, and makes the deltas of what comes back. With both sides in one process:
///
///     session::client_session<params> mine(client);
///     interop::encrypted_lora<params> adapter(client, [&](session::call& rows) {
///         session::answer_in_process(mine, theirs, work, rows, [] {});
///     });
///     const at::Tensor delta = adapter.delta("model.layers.0.self_attn.q_proj", x);
///
/// x: shape [..., d], Float, Half or BFloat16 on the CPU, any strides. A delta has x's type and shape, but
/// for the last dimension, which is d_out; rows stand where those of x do. All rows are one call, in
/// row-major order: one round trip. An x without rows asks for nothing. Answers are rounded once.
///
/// A delta has no gradient. So an x that requires one is refused while gradients are recorded, instead of
/// training a model that does not see its adapter: torch::NoGradGuard, or x.detach() if that is what you
/// want.
///
/// For one thread at a time, over all that share the client's key. What it keeps from call to call holds no
/// secret; x and the deltas lie in libtorch's memory, which nobody wipes.
template <ckks::parameter_set P, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>>
class encrypted_lora {
  public:
    using client_type = lora::model_client<P, Packing, Protection>;
    /// Has all rows of a call answered by a client_session of the same model, or throws, which goes through
    /// as it is. It does not keep the call.
    using asker = std::function<void(session::call&)>;

    /// Makes deltas for one model.  @throws parameter_error without a client or a function that asks
    encrypted_lora(std::shared_ptr<client_type> client, asker ask)
        : client_(std::move(client)), ask_(std::move(ask)) {
        require<parameter_error>(client_ != nullptr,
                                 {"encrypted_lora: got no client, expected a lora::model_client"});
        require<parameter_error>(
            ask_ != nullptr,
            {"encrypted_lora: got no function to ask, expected one that has a session::call answered"});
    }

    /// The groups and sites: which of them share an input, and their shapes.
    const lora::model_layout& layout() const noexcept { return client_->layout(); }

    /// The deltas of all sites of a group, in the order of its layout: x is encrypted once for q, k and v.
    /// @param overflow_margin  as in lora::client::encrypt, for all rows: for another try after
    ///                  range_exceeded_error, which tells the server something (docs/guide.md)
    /// @throws parameter_error if there is no such group; shape_error if x is not [..., d]; unsupported_error
    ///         for tensors that cannot be read, and for gradients; c10::Error if libtorch finds no memory.
    ///         Then range_exceeded_error, naming the row, if an answer passed an average-case range;
    ///         parameter_error if the asker returned before all rows were answered; otherwise as the asker.
    ///         What a server's answers can lead to is no error, or it would see who stops: see bad_states and
    ///         clamped_deltas
    std::vector<at::Tensor> deltas(std::size_t group, const at::Tensor& x, double overflow_margin = 1) {
        std::vector<at::Tensor> results;
        deltas(group, x, results, overflow_margin);
        return results;
    }
    /// Writes the deltas over `results`, which also has them when the asker or a range ends the call: the
    /// deltas of the rows that were answered, and paid for, with NaN in all other rows.
    void deltas(std::size_t group, const at::Tensor& x, std::vector<at::Tensor>& results,
                double overflow_margin = 1) {
        run(group, 0, client_->layout().at(group).sites.size(), x, results, overflow_margin);
    }

    /// The delta of one site. The reply holds those of its whole group: where several are needed, `deltas`
    /// costs one request for each row instead of several.
    /// @throws parameter_error if there is no such protected site; otherwise as deltas
    at::Tensor delta(std::string_view site, const at::Tensor& x, double overflow_margin = 1) {
        const lora::model_layout::place place = client_->layout().at(site);
        std::vector<at::Tensor> results;
        run(place.group, place.site, 1, x, results, overflow_margin);
        return results.front();
    }

    /// The hidden states so far that were not finite or beyond double: 0 was sent for them, and came back.
    std::size_t bad_states() const noexcept { return bad_states_; }
    /// The entries of deltas so far beyond the largest number of x's type: they are that number.
    std::size_t clamped_deltas() const noexcept { return clamped_deltas_; }

  private:
    /// Runs a call and makes the deltas of `count` sites from `first` on.
    void run(std::size_t group, std::size_t first, std::size_t count, const at::Tensor& x,
             std::vector<at::Tensor>& results, double overflow_margin) {
        results.clear();
        const lora::model_layout::group& g = client_->layout().at(group);
        const hidden_states states(x);
        detail::require_tensor<shape_error>(states.d() == g.d, "encrypted_lora", x,
                                            {"[..., ", g.d, "] for the input ", in_quotes(g.input)});
        detail::require_tensor<unsupported_error>(
            !at::GradMode::is_enabled() || !x.requires_grad(), "encrypted_lora", x,
            {"one that needs no gradient: the delta has none. Hold a torch::NoGradGuard while the model "
             "runs, or pass x.detach()"});
        std::vector<std::int64_t> sizes = x.sizes().vec();
        for (std::size_t s = first; s < first + count; ++s) {
            sizes.back() = static_cast<std::int64_t>(g.sites[s].d_out);
            results.push_back(detail::make_tensor("encrypted_lora", sizes, x.scalar_type()));
        }
        if (states.count() == 0) {
            return;
        }
        const wiped_on_exit wiped{*this};
        session::call asked(
            group, states.count(), [&](std::size_t i) { return states.row(i, row_); }, overflow_margin, true);
        std::exception_ptr failure;
        try {
            ask_(asked);
            asked.rethrow();
            require<parameter_error>(asked.answered() == asked.rows(),
                                     {"encrypted_lora: got answers to ", asked.answered(), " of ",
                                      asked.rows(), " rows, expected an asker that has all answered"});
        } catch (...) {
            failure = std::current_exception();
            for (at::Tensor& each : results) {
                each.fill_(std::numeric_limits<double>::quiet_NaN());
            }
        }
        bad_states_ += asked.bad_rows();
        for (std::size_t i = 0; i < asked.rows(); ++i) {
            if (!asked.is_answered(i)) {
                continue;
            }
            client_->deltas(group, asked.product(i), deltas_);
            for (std::size_t s = 0; s < count; ++s) {
                std::vector<double>& delta = deltas_[first + s];
                clamped_deltas_ += detail::clamp_to_type(delta, x.scalar_type());
                detail::write_rounded("encrypted_lora", delta, results[s], i * delta.size());
            }
        }
        if (failure) {
            std::rethrow_exception(failure);
        }
    }

    /// Wipes what was widened and decrypted.
    struct wiped_on_exit {
        encrypted_lora& of;

        ~wiped_on_exit() {
            memory::wipe(of.row_.data(), of.row_.size() * sizeof(float));
            for (auto& delta : of.deltas_) {
                memory::wipe(delta.data(), delta.size() * sizeof(double));
            }
        }
    };

    std::shared_ptr<client_type> client_;
    asker ask_;
    std::vector<float> row_;
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

    /// Wraps a layer.  @throws parameter_error without a layer or a delta
    encrypted_linear(torch::nn::Linear layer, delta_function delta)
        : torch::nn::Module("encrypted_linear"), base(nullptr), delta_(std::move(delta)) {
        require<parameter_error>(!layer.is_empty(),
                                 {"encrypted_linear: got no layer, expected a torch::nn::Linear"});
        require<parameter_error>(delta_ != nullptr,
                                 {"encrypted_linear: got no delta, expected a function of x"});
        base = register_module("base", std::move(layer));
    }

    /// Returns base(x) + delta(x).
    /// @param x  [..., in_features]
    /// @return   [..., out_features]: the sum, in the type of both
    /// @throws shape_error or parameter_error if base(x) and delta(x) differ in shape or type, where libtorch
    ///         would broadcast or convert; c10::Error of the layer, before delta is called; whatever delta
    ///         throws
    at::Tensor forward(const at::Tensor& x) {
        const at::Tensor result = base->forward(x);
        const at::Tensor delta = delta_(x);
        require<shape_error>(delta.defined() && delta.sizes() == result.sizes(),
                             {"encrypted_linear: got a delta of shape ",
                              (delta.defined() ? shape_text(delta.sizes()) : std::string("none")),
                              ", expected ", shape_text(result.sizes()), " as the layer gives"});
        require<parameter_error>(delta.scalar_type() == result.scalar_type(),
                                 {"encrypted_linear: got a delta of ", at::toString(delta.scalar_type()),
                                  ", expected ", at::toString(result.scalar_type()), " as the layer gives"});
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
