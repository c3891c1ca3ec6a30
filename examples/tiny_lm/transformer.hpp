#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "characters.hpp"

// A small decoder as LLaMA has it: RMS norms in front, rotary positions, linears without bias. Linears are
// named as there, so that tensafe::lora::shared_input and PEFT files know them.

namespace examples::tiny_lm {

/// What an adapter adds to the linears of these sites, all of which see x of shape [..., d]: a tensor
/// [..., d_out] for each of them. Empty: nothing is added. The only place where the base model, plaintext
/// LoRA and encrypted LoRA differ.
using adapter_deltas =
    std::function<std::vector<at::Tensor>(const std::vector<std::string>& sites, const at::Tensor& x)>;

/// Linears that share an input.
class linear_group {
  public:
    /// Registers them with their owner, which is the module `parent` of the model.
    linear_group(torch::nn::Module& owner, const std::string& parent, const std::vector<std::string>& names,
                 std::int64_t d_in, std::int64_t d_out) {
        for (const std::string& name : names) {
            const torch::nn::Linear linear(torch::nn::LinearOptions(d_in, d_out).bias(false));
            linears_.push_back(owner.register_module(name, linear));
            sites_.push_back(parent + "." + name);
        }
    }

    const std::vector<std::string>& sites() const noexcept { return sites_; }

    std::vector<at::Tensor> operator()(const at::Tensor& x, const adapter_deltas& deltas) {
        const auto added = deltas ? deltas(sites_, x) : std::vector<at::Tensor>();
        std::vector<at::Tensor> results;
        for (std::size_t i = 0; i < linears_.size(); ++i) {
            const at::Tensor y = linears_[i](x);
            results.push_back(deltas ? y + added.at(i) : y);
        }
        return results;
    }

  private:
    std::vector<torch::nn::Linear> linears_;
    std::vector<std::string> sites_;
};

class rms_norm : public torch::nn::Module {
  public:
    explicit rms_norm(std::int64_t d) : weight_(register_parameter("weight", torch::ones({d}))) {}

    at::Tensor forward(const at::Tensor& x) {
        return x * torch::rsqrt((x * x).mean(-1, true) + 1e-6) * weight_;
    }

  private:
    at::Tensor weight_;
};

/// Cosines and sines of the angles by which pairs of a head's entries turn at positions first, first + 1, ...
struct rotation {
    at::Tensor cosines;  ///< [positions, d_head / 2]
    at::Tensor sines;

    rotation(std::int64_t first, std::int64_t positions, std::int64_t d_head) {
        // In double precision: an angle of some thousand radians has few digits behind the point in single.
        const auto real = at::TensorOptions(at::kDouble);
        const at::Tensor frequencies =
            torch::pow(10000.0, torch::arange(d_head / 2, real) * (-2.0 / static_cast<double>(d_head)));
        const at::Tensor angles = torch::outer(torch::arange(first, first + positions, real), frequencies);
        cosines = angles.cos().to(at::kFloat);
        sines = angles.sin().to(at::kFloat);
    }

    /// @param x  [..., positions, d_head]
    at::Tensor operator()(const at::Tensor& x) const {
        const auto halves = x.chunk(2, -1);
        return torch::cat({halves[0] * cosines - halves[1] * sines, halves[1] * cosines + halves[0] * sines},
                          -1);
    }
};

/// What attention remembers of a text that grows: keys and values of the last `window` positions, in a ring.
/// A key is kept as its position has turned it, so that nothing changes when the window moves on.
struct attention_memory {
    at::Tensor keys;    ///< [heads, window, d_head]
    at::Tensor values;  ///< the same

    explicit attention_memory(const model_shape& shape)
        : keys(torch::zeros({shape.heads, shape.window, shape.d_model / shape.heads})),
          values(torch::zeros_like(keys)) {}
};

class attention : public torch::nn::Module {
  public:
    attention(const model_shape& shape, const std::string& name)
        : shape_(shape),
          queries_keys_values_(*this, name, {"q_proj", "k_proj", "v_proj"}, shape.d_model, shape.d_model),
          output_(*this, name, {"o_proj"}, shape.d_model, shape.d_model) {}

    /// A whole text: x is [batch, positions, d_model], the mask [positions, positions].
    at::Tensor forward(const at::Tensor& x, const rotation& turn, const at::Tensor& mask,
                       const adapter_deltas& deltas) {
        const auto split = [&](const at::Tensor& y) {
            return y.view({x.size(0), x.size(1), shape_.heads, -1}).transpose(1, 2);
        };
        const auto qkv = queries_keys_values_(x, deltas);
        const at::Tensor mixed = attend(turn(split(qkv[0])), turn(split(qkv[1])), split(qkv[2]), mask);
        return output_(mixed.transpose(1, 2).reshape(x.sizes()), deltas)[0];
    }

    /// The next position of a text: x is [1, d_model].
    at::Tensor step(const at::Tensor& x, std::int64_t position, const rotation& turn,
                    attention_memory& memory, const adapter_deltas& deltas) {
        const auto split = [&](const at::Tensor& y) { return y.view({shape_.heads, 1, -1}); };
        const auto qkv = queries_keys_values_(x, deltas);
        const std::int64_t place = position % shape_.window;
        memory.keys.narrow(1, place, 1).copy_(turn(split(qkv[1])));
        memory.values.narrow(1, place, 1).copy_(split(qkv[2]));
        const std::int64_t known = std::min(position + 1, shape_.window);
        const at::Tensor mixed = attend(turn(split(qkv[0])), memory.keys.narrow(1, 0, known),
                                        memory.values.narrow(1, 0, known), {});
        return output_(mixed.reshape(x.sizes()), deltas)[0];
    }

  private:
    at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& mask) const {
        at::Tensor scores =
            torch::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1)));
        if (mask.defined()) {
            scores = scores + mask;
        }
        return torch::matmul(torch::softmax(scores, -1), v);
    }

    model_shape shape_;
    linear_group queries_keys_values_;
    linear_group output_;
};

class perceptron : public torch::nn::Module {
  public:
    perceptron(const model_shape& shape, const std::string& name)
        : up_(*this, name, {"up_proj"}, shape.d_model, shape.d_hidden),
          down_(*this, name, {"down_proj"}, shape.d_hidden, shape.d_model) {}

    at::Tensor forward(const at::Tensor& x, const adapter_deltas& deltas) {
        return down_(torch::gelu(up_(x, deltas)[0]), deltas)[0];
    }

  private:
    linear_group up_;
    linear_group down_;
};

class decoder_layer : public torch::nn::Module {
  public:
    decoder_layer(const model_shape& shape, const std::string& name)
        : attention_norm_(register_module("input_layernorm", std::make_shared<rms_norm>(shape.d_model))),
          attention_(register_module("self_attn", std::make_shared<attention>(shape, name + ".self_attn"))),
          mlp_norm_(register_module("post_attention_layernorm", std::make_shared<rms_norm>(shape.d_model))),
          mlp_(register_module("mlp", std::make_shared<perceptron>(shape, name + ".mlp"))) {}

    /// @param attend  self attention, of a whole text or of one position
    template <class Attend>
    at::Tensor forward(const at::Tensor& x, const adapter_deltas& deltas, Attend&& attend) {
        const at::Tensor y = x + attend(*attention_, attention_norm_->forward(x));
        return y + mlp_->forward(mlp_norm_->forward(y), deltas);
    }

  private:
    std::shared_ptr<rms_norm> attention_norm_;
    std::shared_ptr<attention> attention_;
    std::shared_ptr<rms_norm> mlp_norm_;
    std::shared_ptr<perceptron> mlp_;
};

/// The whole model. Calls may run side by side, each with deltas and a memory of its own, unless parameters
/// change meanwhile.
class language_model : public torch::nn::Module {
  public:
    explicit language_model(const model_shape& shape = {}) : shape_(shape) {
        const auto inner = register_module("model", std::make_shared<torch::nn::Module>());
        embedding_ = inner->register_module("embed_tokens", torch::nn::Embedding(vocabulary, shape.d_model));
        const auto list = inner->register_module("layers", std::make_shared<torch::nn::Module>());
        for (std::int64_t i = 0; i < shape.layers; ++i) {
            const std::string number = std::to_string(i);
            layers_.push_back(list->register_module(
                number, std::make_shared<decoder_layer>(shape, "model.layers." + number)));
        }
        norm_ = inner->register_module("norm", std::make_shared<rms_norm>(shape.d_model));
        head_ = register_module(
            "lm_head", torch::nn::Linear(torch::nn::LinearOptions(shape.d_model, vocabulary).bias(false)));
    }

    const model_shape& shape() const noexcept { return shape_; }

    /// Logits [batch, positions, vocabulary] of the next characters of whole texts.
    /// @param tokens  [batch, positions]
    at::Tensor forward(const at::Tensor& tokens, const adapter_deltas& deltas = {}) {
        const std::int64_t positions = tokens.size(1);
        const rotation turn(0, positions, shape_.d_model / shape_.heads);
        const at::Tensor hidden = torch::ones({positions, positions}, at::kBool);
        const at::Tensor mask = torch::zeros({positions, positions})
                                    .masked_fill_(hidden.triu(1) | hidden.tril(-shape_.window),
                                                  -std::numeric_limits<double>::infinity());
        at::Tensor x = embedding_(tokens);
        for (const auto& layer : layers_) {
            x = layer->forward(x, deltas, [&](attention& self, const at::Tensor& normed) {
                return self.forward(normed, turn, mask, deltas);
            });
        }
        return head_(norm_->forward(x));
    }

    /// A text that grows by one character at a time.
    struct memory {
        std::vector<attention_memory> of_layers;
        std::int64_t position = 0;
    };
    memory empty_memory() const {
        memory text;
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            text.of_layers.emplace_back(shape_);  // not copies of one: those would share its tensors
        }
        return text;
    }

    /// Adds a character to the text; logits [vocabulary] of the one that comes next, as forward gives them.
    at::Tensor step(std::int64_t token, memory& text, const adapter_deltas& deltas = {}) {
        const rotation turn(text.position, 1, shape_.d_model / shape_.heads);
        at::Tensor x = embedding_(torch::tensor({token}));
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            x = layers_[i]->forward(x, deltas, [&](attention& self, const at::Tensor& normed) {
                return self.step(normed, text.position, turn, text.of_layers[i], deltas);
            });
        }
        ++text.position;
        return head_(norm_->forward(x)).view({vocabulary});
    }

  private:
    model_shape shape_;
    torch::nn::Embedding embedding_{nullptr};
    std::vector<std::shared_ptr<decoder_layer>> layers_;
    std::shared_ptr<rms_norm> norm_;
    torch::nn::Linear head_{nullptr};
};

}  // namespace examples::tiny_lm
