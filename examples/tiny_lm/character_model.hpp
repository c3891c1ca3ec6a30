#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "characters.hpp"

// The model of transformer.hpp once more, without libtorch: some positions at a time, in pieces. It stops at
// each input that an adapter may change, so that whoever runs it can wait for answers, as a web page must.

namespace examples::tiny_lm {

class character_model {
  public:
    /// @throws tensafe::format_error or shape_error, naming the tensor, for one that is missing or has
    /// another shape
    explicit character_model(const tensafe::io::safetensors_file& weights, const model_shape& shape = {})
        : shape_(shape),
          embedding_(matrix_of(weights, "model.embed_tokens", vocabulary, shape.d_model)),
          norm_(vector_of(weights, "model.norm", shape.d_model)),
          head_(matrix_of(weights, "lm_head", vocabulary, shape.d_model)) {
        const std::int64_t d = shape.d_model;
        for (std::int64_t i = 0; i < shape.layers; ++i) {
            const std::string name = "model.layers." + std::to_string(i) + ".";
            const auto linears = [&](const std::string& parent, std::initializer_list<const char*> names,
                                     std::int64_t d_out, std::int64_t d_in) {
                stage result;
                for (const char* const each : names) {
                    result.sites.push_back(name + parent + each);
                    result.weights.push_back(matrix_of(weights, result.sites.back(), d_out, d_in));
                }
                return result;
            };
            layers_.push_back(
                {vector_of(weights, name + "input_layernorm", d),
                 vector_of(weights, name + "post_attention_layernorm", d),
                 {linears("self_attn.", {"q_proj", "k_proj", "v_proj"}, d, d),
                  linears("self_attn.", {"o_proj"}, d, d), linears("mlp.", {"up_proj"}, shape.d_hidden, d),
                  linears("mlp.", {"down_proj"}, d, shape.d_hidden)},
                 {},
                 {}});
        }
        clear();
    }

    /// An empty text.
    void clear() {
        position_ = 0;
        for (layer& each : layers_) {
            each.keys = matrix::Zero(shape_.window, shape_.d_model);
            each.values = each.keys;
        }
        at_ = end();
    }

    /// Takes characters back: of those of the last `begin` only the first `kept` stay in the text. The logits
    /// of what went are gone.
    /// @pre  the positions are done;  kept is not more than they are
    void keep(std::int64_t kept) {
        const std::int64_t first = position_ - x_.rows();
        for (; position_ > first + kept; --position_) {
            const std::int64_t row = position_ - 1 - first;
            for (layer& each : layers_) {
                each.keys.row((position_ - 1) % shape_.window) = each.keys_before.row(row);
                each.values.row((position_ - 1) % shape_.window) = each.values_before.row(row);
            }
        }
        x_.conservativeResize(kept, Eigen::NoChange);
        logits_.conservativeResize(kept, Eigen::NoChange);
    }

    /// Adds characters to the text, and goes to the first input that an adapter may change.
    /// @pre  one token or more, each in [0, vocabulary); the positions before are done
    void begin(std::span<const std::int64_t> tokens) {
        x_.resize(std::ssize(tokens), shape_.d_model);
        for (std::int64_t i = 0; i < x_.rows(); ++i) {
            x_.row(i) = embedding_.row(tokens[static_cast<std::size_t>(i)]);
        }
        at_ = 0;
        input_ = normed(x_, layers_.front().attention_norm);
    }
    void begin(std::int64_t token) { begin(std::span(&token, 1)); }
    /// The linears that wait, which share `input`, by their names; none: the positions are done.
    std::span<const std::string> sites() const {
        return at_ == end() ? std::span<const std::string>() : waiting().sites;
    }
    /// Their inputs at all positions that were begun, one behind the other.
    std::span<const float> inputs() const { return {input_.data(), static_cast<std::size_t>(input_.size())}; }
    /// The input at this place in what was begun.
    std::span<const float> input(std::size_t position = 0) const {
        const auto d = static_cast<std::size_t>(input_.cols());
        return inputs().subspan(position * d, d);
    }

    /// Goes on to the next such input, or to the end.
    /// @param deltas  what an adapter adds to the outputs of each of the linears, position by position;
    ///                empty: nothing
    /// @throws tensafe::shape_error for other ones
    void resume(std::span<const std::span<const float>> deltas = {}) {
        std::vector<matrix> outputs;
        for (std::size_t i = 0; i < waiting().weights.size(); ++i) {
            outputs.emplace_back(input_ * waiting().weights[i].transpose());
            if (!deltas.empty()) {
                tensafe::require<tensafe::shape_error>(
                    deltas.size() == waiting().weights.size() &&
                        deltas[i].size() == static_cast<std::size_t>(outputs[i].size()),
                    {"character_model::resume: site ", tensafe::in_quotes(waiting().sites[i]), ": expected ",
                     outputs[i].size(), " entries for each of ", waiting().weights.size(), " sites"});
                outputs[i] += Eigen::Map<const matrix>(deltas[i].data(), x_.rows(), outputs[i].cols());
            }
        }
        layer& here = layers_[at_ / stages];
        switch (at_ % stages) {
            case 0:
                input_ = attended(here, outputs[0], outputs[1], outputs[2]);
                break;
            case 1:
                x_ += outputs[0];
                input_ = normed(x_, here.mlp_norm);
                break;
            case 2:
                input_ =
                    outputs[0].unaryExpr([](float v) { return v * 0.5F * (1 + std::erf(v * root_half)); });
                break;
            default:
                x_ += outputs[0];
                if (at_ + 1 < end()) {
                    input_ = normed(x_, layers_[at_ / stages + 1].attention_norm);
                } else {
                    logits_ = normed(x_, norm_) * head_.transpose();
                    position_ += x_.rows();
                }
        }
        ++at_;
    }

    /// Of the character behind a position that was begun, when all are done: by default behind the last one.
    std::span<const float> logits(std::int64_t position) const {
        return {logits_.row(position).data(), static_cast<std::size_t>(logits_.cols())};
    }
    std::span<const float> logits() const { return logits(logits_.rows() - 1); }
    std::int64_t likeliest(std::int64_t position) const {
        const std::span<const float> of = logits(position);
        return std::max_element(of.begin(), of.end()) - of.begin();
    }
    std::int64_t likeliest() const { return likeliest(logits_.rows() - 1); }

  private:
    using vector = Eigen::VectorXf;
    using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

    /// Linears that share an input.
    struct stage {
        std::vector<std::string> sites;
        std::vector<matrix> weights;
    };
    static constexpr std::size_t stages = 4;  ///< of a layer
    struct layer {
        vector attention_norm;
        vector mlp_norm;
        stage linears[stages];
        // Of the last `window` positions, in a ring: keys as their positions turned them.
        matrix keys;
        matrix values;
        // What stood where the positions that were begun last stand.
        matrix keys_before;
        matrix values_before;
    };
    static constexpr float root_half = 0.70710678F;

    static matrix matrix_of(const tensafe::io::safetensors_file& weights, const std::string& name,
                            std::int64_t rows, std::int64_t columns) {
        const tensafe::lora::matrix read = weights.read_matrix(name + ".weight");
        tensafe::require<tensafe::shape_error>(
            read.rows == static_cast<std::size_t>(rows) && read.columns == static_cast<std::size_t>(columns),
            {"character_model: tensor ", tensafe::in_quotes(name + ".weight"), ": got ", read.rows, " x ",
             read.columns, ", expected ", rows, " x ", columns});
        return Eigen::Map<const matrix>(read.values.data(), rows, columns);
    }
    static vector vector_of(const tensafe::io::safetensors_file& weights, const std::string& name,
                            std::int64_t size) {
        const std::vector<double> read = weights.read_doubles(name + ".weight");
        const std::vector<std::size_t>& shape = weights.find(name + ".weight")->shape;
        tensafe::require<tensafe::shape_error>(
            shape == std::vector{static_cast<std::size_t>(size)},
            {"character_model: tensor ", tensafe::in_quotes(name + ".weight"), ": got shape ",
             tensafe::shape_text(shape), ", expected [", size, "]"});
        return Eigen::Map<const Eigen::VectorXd>(read.data(), size).cast<float>();
    }

    std::size_t end() const { return layers_.size() * stages; }
    const stage& waiting() const { return layers_[at_ / stages].linears[at_ % stages]; }

    static matrix normed(const matrix& x, const vector& weight) {
        const vector mean = x.rowwise().squaredNorm() / static_cast<float>(x.cols());
        const vector scale = (mean.array() + 1e-6F).sqrt().inverse();
        return scale.asDiagonal() * x * weight.asDiagonal();
    }

    /// Turns pairs of each head's entries by the position's angles, which need double precision.
    void turn(vector& x, std::int64_t position) const {
        const std::int64_t d_head = shape_.d_model / shape_.heads;
        for (std::int64_t k = 0; k < d_head / 2; ++k) {
            const double angle =
                static_cast<double>(position) *
                std::pow(10000.0, -2.0 * static_cast<double>(k) / static_cast<double>(d_head));
            const auto cosine = static_cast<float>(std::cos(angle));
            const auto sine = static_cast<float>(std::sin(angle));
            for (std::int64_t h = k; h < shape_.d_model; h += d_head) {
                const float low = x[h];
                const float high = x[h + d_head / 2];
                x[h] = low * cosine - high * sine;
                x[h + d_head / 2] = high * cosine + low * sine;
            }
        }
    }

    matrix attended(layer& here, const matrix& queries, const matrix& keys, const matrix& values) const {
        const std::int64_t d_head = shape_.d_model / shape_.heads;
        matrix result(queries.rows(), shape_.d_model);
        here.keys_before.resize(keys.rows(), keys.cols());
        here.values_before.resize(keys.rows(), keys.cols());
        for (std::int64_t i = 0; i < queries.rows(); ++i) {  // no position sees a later one
            const std::int64_t position = position_ + i;
            vector q = queries.row(i);
            vector k = keys.row(i);
            turn(q, position);
            turn(k, position);
            here.keys_before.row(i) = here.keys.row(position % shape_.window);
            here.values_before.row(i) = here.values.row(position % shape_.window);
            here.keys.row(position % shape_.window) = k;
            here.values.row(position % shape_.window) = values.row(i);
            const std::int64_t known = std::min(position + 1, shape_.window);
            for (std::int64_t h = 0; h < shape_.d_model; h += d_head) {
                vector scores = here.keys.block(0, h, known, d_head) * q.segment(h, d_head) /
                                std::sqrt(static_cast<float>(d_head));
                scores = (scores.array() - scores.maxCoeff()).exp().matrix();
                result.row(i).segment(h, d_head) =
                    here.values.block(0, h, known, d_head).transpose() * (scores / scores.sum());
            }
        }
        return result;
    }

    model_shape shape_;
    matrix embedding_;
    std::vector<layer> layers_;
    vector norm_;
    matrix head_;
    std::int64_t position_ = 0;
    std::size_t at_ = 0;  ///< the stage that waits, over all layers
    matrix x_;            ///< a row for each position that is not done
    matrix input_;
    matrix logits_;  ///< a row for each position
};

}  // namespace examples::tiny_lm
