#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/device/exec/context.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tensafe::lora {

/// Requests for several tokens in the memory of a device: byte for byte what lora::request holds, token after
/// token, so that clients and servers on hosts and on devices can be mixed.
template <ckks::parameter_set P, class Where>
class request_batch {
  public:
    /// @param largest  tokens that it has room for
    template <class Layout>
    request_batch(const Layout& layout, std::size_t largest)
        : d_(layout.d),
          block_(layout.entries_per_input()),
          inputs_(layout.inputs()),
          largest_(largest),
          seeds_(largest),
          bytes_(largest * inputs_ * input_bytes(), memory::uninitialized) {
        if (largest == 0) {
            throw shape_error("request_batch: got room for 0 tokens, expected 1 or more");
        }
    }

    static constexpr std::size_t input_bytes() { return packed_residues_bytes<P>(P::degree); }

    /// Tokens that it holds: what encrypt() or set_tokens() said last. A graph that is replayed does not
    /// change it: set_tokens() before put() or get().
    std::size_t tokens() const noexcept { return tokens_; }
    std::size_t largest() const noexcept { return largest_; }
    std::size_t inputs() const noexcept { return inputs_; }
    std::size_t d() const noexcept { return d_; }
    std::size_t block() const noexcept { return block_; }

    /// @throws shape_error if there is no room for so many
    void set_tokens(std::size_t tokens) {
        if (tokens == 0 || tokens > largest_) {
            throw shape_error("request_batch: got " + std::to_string(tokens) + " tokens, expected 1 to the " +
                              std::to_string(largest_) + " it was made for");
        }
        tokens_ = tokens;
    }

    // In the memory of Where: one seed for each token; c0 of each input, token after token.
    random::seed* seeds() noexcept { return seeds_.data(); }
    const random::seed* seeds() const noexcept { return seeds_.data(); }
    std::uint8_t* bytes() noexcept { return bytes_.data(); }
    const std::uint8_t* bytes() const noexcept { return bytes_.data(); }

    /// Takes over a request from a host.
    /// @throws shape_error if it has another shape, or there is no token t
    void put(const Where& where, std::size_t t, const request<P>& r) {
        if (t >= tokens_ || r.tokens != 1 || r.d != d_ || r.block != block_ || r.inputs.size() != inputs_) {
            throw shape_error("request_batch::put: got token " + std::to_string(t) + " of " +
                              std::to_string(tokens_) + ", a request of " + std::to_string(r.d) +
                              " entries in " + std::to_string(r.inputs.size()) + " ciphertexts, expected " +
                              std::to_string(d_) + " in " + std::to_string(inputs_));
        }
        for (const auto& input : r.inputs) {
            if (input.size() != input_bytes()) {
                throw shape_error("request_batch::put: got a ciphertext of " + std::to_string(input.size()) +
                                  " bytes, expected " + std::to_string(input_bytes()));
            }
        }
        where.upload(std::span<const random::seed>(&r.seed, 1), seeds_.data() + t);
        for (std::size_t i = 0; i < inputs_; ++i) {
            where.upload(std::span<const std::uint8_t>(r.inputs[i]), at(t, i));
        }
        where.wait();
    }

    /// Token t as a host's request.  @throws shape_error if there is no token t
    request<P> get(const Where& where, std::size_t t) const {
        if (t >= tokens_) {
            throw shape_error("request_batch::get: got token " + std::to_string(t) + " of " +
                              std::to_string(tokens_));
        }
        request<P> r{d_, block_, 1, {}, {}};
        where.download(seeds_.data() + t, std::span<random::seed>(&r.seed, 1));
        r.inputs.assign(inputs_, std::vector<std::uint8_t>(input_bytes()));
        for (std::size_t i = 0; i < inputs_; ++i) {
            where.download(const_cast<request_batch*>(this)->at(t, i), std::span<std::uint8_t>(r.inputs[i]));
        }
        where.wait();
        return r;
    }

  private:
    std::uint8_t* at(std::size_t t, std::size_t i) noexcept {
        return bytes_.data() + (t * inputs_ + i) * input_bytes();
    }

    std::size_t d_;
    std::size_t block_;
    std::size_t inputs_;
    std::size_t largest_;
    std::size_t tokens_ = 0;
    memory::buffer<random::seed, typename Where::space> seeds_;
    memory::buffer<std::uint8_t, typename Where::space> bytes_;
};

/// Where an output's bytes stand in the reply to a token.
struct block_output {
    std::uint32_t bits = 0;       ///< of each coefficient
    std::uint32_t wanted = 0;     ///< coefficients of c0
    std::uint64_t c0_offset = 0;  ///< in bytes, a multiple of 16
    std::uint64_t c1_offset = 0;
};

/// The places of all outputs of a layout, and the bytes of a whole reply in `stride`.
struct block_outputs {
    std::vector<block_output> outputs;
    std::size_t stride = 0;

    template <class Layout>
    explicit block_outputs(const Layout& layout) {
        const reply_budget budget = layout.budget();
        const auto next = [&](std::size_t bytes) {
            const std::size_t here = stride;
            stride += (bytes + 15) / 16 * 16;
            return here;
        };
        for (std::size_t o = 0; o < layout.outputs(); ++o) {
            const int bits = layout.reply_bits(budget, o);
            const std::size_t wanted = layout.wanted(o);
            const std::size_t c1 = next(memory::packed_bytes(degree_of(layout), bits));
            const std::size_t c0 = next(memory::packed_bytes(wanted, bits));
            outputs.push_back({static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(wanted), c0, c1});
        }
    }

  private:
    template <ckks::parameter_set P, class Packing, class Protection>
    static constexpr std::size_t degree_of(const lora::layout<P, Packing, Protection>&) noexcept {
        return P::degree;
    }
};

/// Protected replies to several tokens in the memory of a device: what lora::reply holds, at the places that
/// block_outputs gives.
template <ckks::parameter_set P, class Where, class Packing, class Protection>
class reply_batch {
    static_assert(Protection::protects, "reply_batch: for protected replies");

  public:
    using layout_type = lora::layout<P, Packing, Protection>;
    using reply_type = reply<P, Packing, Protection>;

    reply_batch(const layout_type& layout, std::size_t largest)
        : layout_(layout), places_(layout), largest_(largest), bytes_(largest * places_.stride) {
        if (largest == 0) {
            throw shape_error("reply_batch: got room for 0 tokens, expected 1 or more");
        }
    }

    /// Tokens that it holds: what apply() or set_tokens() said last. A graph that is replayed does not change
    /// it.
    std::size_t tokens() const noexcept { return tokens_; }
    std::size_t largest() const noexcept { return largest_; }
    /// Bytes of a token.
    std::size_t stride() const noexcept { return places_.stride; }
    const layout_type& layout() const noexcept { return layout_; }

    /// @throws shape_error if there is no room for so many
    void set_tokens(std::size_t tokens) {
        if (tokens == 0 || tokens > largest_) {
            throw shape_error("reply_batch: got " + std::to_string(tokens) + " tokens, expected 1 to the " +
                              std::to_string(largest_) + " it was made for");
        }
        tokens_ = tokens;
    }

    std::uint8_t* bytes() noexcept { return bytes_.data(); }
    const std::uint8_t* bytes() const noexcept { return bytes_.data(); }

    /// Takes over a reply from a host.  @throws shape_error if it has another shape, or there is no token t
    void put(const Where& where, std::size_t t, const reply_type& r) {
        bool fits = t < tokens_ && r.rank == layout_.rank && r.d == layout_.d && r.tokens == 1 &&
                    r.outputs.size() == places_.outputs.size();
        for (std::size_t o = 0; fits && o < r.outputs.size(); ++o) {
            fits = r.outputs[o].c0.size() == c0_bytes(o) && r.outputs[o].c1.size() == c1_bytes(o);
        }
        if (!fits) {
            throw shape_error("reply_batch::put: got token " + std::to_string(t) + " of " +
                              std::to_string(tokens_) + ", a reply for a " + std::to_string(r.rank) + " x " +
                              std::to_string(r.d) + " matrix that is not one for this layout, of a " +
                              std::to_string(layout_.rank) + " x " + std::to_string(layout_.d) + " matrix");
        }
        for (std::size_t o = 0; o < r.outputs.size(); ++o) {
            where.upload(std::span<const std::uint8_t>(r.outputs[o].c0), c0_at(t, o));
            where.upload(std::span<const std::uint8_t>(r.outputs[o].c1), c1_at(t, o));
        }
        where.wait();
    }

    /// Token t as a host's reply.  @throws shape_error if there is no token t
    reply_type get(const Where& where, std::size_t t) const {
        if (t >= tokens_) {
            throw shape_error("reply_batch::get: got token " + std::to_string(t) + " of " +
                              std::to_string(tokens_));
        }
        reply_type r;
        r.rank = layout_.rank;
        r.d = layout_.d;
        r.tokens = 1;
        r.outputs.resize(places_.outputs.size());
        for (std::size_t o = 0; o < r.outputs.size(); ++o) {
            r.outputs[o].c0.resize(c0_bytes(o));
            r.outputs[o].c1.resize(c1_bytes(o));
            where.download(c0_at(t, o), std::span<std::uint8_t>(r.outputs[o].c0));
            where.download(c1_at(t, o), std::span<std::uint8_t>(r.outputs[o].c1));
        }
        where.wait();
        return r;
    }

  private:
    std::size_t c0_bytes(std::size_t o) const noexcept {
        return memory::packed_bytes(places_.outputs[o].wanted, static_cast<int>(places_.outputs[o].bits));
    }
    std::size_t c1_bytes(std::size_t o) const noexcept {
        return memory::packed_bytes(P::degree, static_cast<int>(places_.outputs[o].bits));
    }
    std::uint8_t* c0_at(std::size_t t, std::size_t o) noexcept {
        return bytes_.data() + t * places_.stride + places_.outputs[o].c0_offset;
    }
    std::uint8_t* c1_at(std::size_t t, std::size_t o) noexcept {
        return bytes_.data() + t * places_.stride + places_.outputs[o].c1_offset;
    }
    const std::uint8_t* c0_at(std::size_t t, std::size_t o) const noexcept {
        return bytes_.data() + t * places_.stride + places_.outputs[o].c0_offset;
    }
    const std::uint8_t* c1_at(std::size_t t, std::size_t o) const noexcept {
        return bytes_.data() + t * places_.stride + places_.outputs[o].c1_offset;
    }

    layout_type layout_;
    block_outputs places_;
    std::size_t largest_;
    std::size_t tokens_ = 0;
    memory::buffer<std::uint8_t, typename Where::space> bytes_;
};

}  // namespace tensafe::lora
