#pragma once

#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/lora/staging.hpp>
#include <tensafe/device/ntt/plan.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/memory/packed_bits.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tensafe::device {

namespace detail {

/// The places of limbs in the bytes of a polynomial: one after the other, bit_width(q) bits for each residue.
template <class Basis>
struct residue_places {
    template <int I>
    static constexpr std::uint32_t bits =
        static_cast<std::uint32_t>(std::bit_width(Basis::template prime<I>));

    /// The first byte of limb I; the bytes of all limbs for I = limbs.
    template <int I>
    static constexpr std::size_t offset = [] {
        std::size_t bytes = 0;
        for (int i = 0; i < I; ++i) {
            bytes += memory::packed_bytes(
                Basis::degree, static_cast<int>(std::bit_width(Basis::primes[static_cast<std::size_t>(i)])));
        }
        return bytes;
    }();

    /// The threads of a thread block, with two residues each, whose packed bytes are whole words.
    static constexpr int threads = 256;
    static constexpr std::uint32_t at_once = 2 * threads;
    static constexpr std::uint32_t blocks = static_cast<std::uint32_t>(Basis::degree / at_once);
    static_assert(Basis::degree % at_once == 0, "wire: blocks pack polynomials of degree 512 and more");
    static constexpr grid_shape grid(std::size_t polynomials) noexcept {
        return {static_cast<std::uint32_t>(polynomials) * blocks, static_cast<std::uint32_t>(Basis::limbs)};
    }
};

/// Unit w of values of `bits` bits each, packed.
template <class Unit>
TENSAFE_HD_INLINE Unit packed_unit(const Unit* values, std::uint32_t bits, std::uint32_t w) noexcept {
    constexpr std::uint32_t width = 8 * sizeof(Unit);
    std::uint32_t k = width * w / bits;
    Unit joined = values[k] >> (width * w - k * bits);
    for (std::uint32_t filled = (k + 1) * bits - width * w; filled < width; filled += bits) {
        joined |= values[++k] << filled;
    }
    return joined;
}

template <class Basis>
struct pack_kernel {
    using places = residue_places<Basis>;
    static constexpr int threads = places::threads;
    struct shared_type {
        word values[places::at_once];
    };

    const word* words;
    std::uint8_t* bytes;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            const std::uint32_t polynomial = ctx.block().x / places::blocks;
            const std::uint32_t block = ctx.block().x % places::blocks;
            constexpr std::uint32_t bits = places::template bits<I>;
            constexpr std::size_t offset = places::template offset<I>;
            constexpr std::size_t stride = places::template offset<Basis::limbs>;
            auto& values = ctx.shared().values;
            ctx.each([&](int t) {
                const word* const from =
                    words + limb_of<Basis, I>(polynomial) * Basis::degree + block * places::at_once;
                *reinterpret_cast<word_pair*>(values + 2 * t) =
                    load_pair(from + 2 * static_cast<std::size_t>(t));
            });
            ctx.last([&](int t) {
                auto* const to = reinterpret_cast<word*>(bytes + polynomial * stride + offset) +
                                 std::size_t{block} * (places::at_once / 64 * bits);
                for (std::uint32_t w = static_cast<std::uint32_t>(t); w < places::at_once / 64 * bits;
                     w += threads) {
                    to[w] = packed_unit(values, bits, w);
                }
            });
        });
    }
};

template <class Basis>
struct unpack_kernel {
    using places = residue_places<Basis>;
    static constexpr int threads = places::threads;
    struct shared_type {
        word packed[places::at_once + 1];
    };

    const std::uint8_t* bytes;
    word* words;
    std::uint32_t* status;
    std::uint32_t per_status;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            const std::uint32_t polynomial = ctx.block().x / places::blocks;
            const std::uint32_t block = ctx.block().x % places::blocks;
            constexpr word q = Basis::template prime<I>;
            constexpr std::uint32_t bits = places::template bits<I>;
            constexpr std::size_t offset = places::template offset<I>;
            constexpr std::size_t stride = places::template offset<Basis::limbs>;
            auto& packed = ctx.shared().packed;
            ctx.each([&](int t) {
                const auto* const from = reinterpret_cast<const word*>(bytes + polynomial * stride + offset) +
                                         std::size_t{block} * (places::at_once / 64 * bits);
                for (std::uint32_t w = static_cast<std::uint32_t>(t); w < places::at_once / 64 * bits;
                     w += threads) {
                    packed[w] = from[w];
                }
            });
            ctx.last([&](int t) {
                const std::uint32_t k = 2 * static_cast<std::uint32_t>(t);
                const word_pair pair{value<bits>(packed, k), value<bits>(packed, k + 1)};
                store_pair(
                    words + limb_of<Basis, I>(polynomial) * Basis::degree + block * places::at_once + k,
                    pair);
                if (pair.first >= q || pair.second >= q) {  // what came from outside is public
                    ctx.atomic_or(status + polynomial / per_status, std::uint32_t{1} << I);
                }
            });
        });
    }

  private:
    template <std::uint32_t Bits>
    TENSAFE_HOST_DEVICE static word value(const word (&packed)[places::at_once + 1], std::uint32_t k) {
        const std::uint32_t at = k * Bits / 64;
        const std::uint32_t shift = k * Bits % 64;
        word joined = packed[at] >> shift;
        if (shift + Bits > 64) {
            joined |= packed[at + 1] << (64 - shift);
        }
        return joined & (~word{0} >> (64 - Bits));
    }
};

}  // namespace detail

/// The bytes of a polynomial whose limbs are packed by pack_bits, bit_width(q) bits for each residue, limb
/// after limb: an input of lora::request.
template <class Basis>
inline constexpr std::size_t residue_bytes = detail::residue_places<Basis>::template offset<Basis::limbs>;

/// Packs a stack of polynomials [polynomial][limb][N] in one launch: residue_bytes<Basis> bytes for each, the
/// same as memory::pack_bits limb by limb.
/// @param bytes  16-byte aligned, as `words`
/// @pre  words below 2^bit_width(q);  N is a multiple of 512
template <class Basis, class Where>
void pack(const Where& where, const word* words, std::size_t polynomials, std::uint8_t* bytes) {
    if (polynomials != 0) {
        where.launch(detail::pack_kernel<Basis>{words, bytes},
                     detail::residue_places<Basis>::grid(polynomials));
    }
}

/// Unpacks bytes from outside. Residues that are not below their prime are written as they are; bit I of
/// status[polynomial / per_status] is set if limb I has one: the caller sets the status words to 0 before,
/// and refuses the bytes (format_error) if one is not 0 after.
/// @param bytes       16-byte aligned, as `words`
/// @param per_status  polynomials that share a status word, those of one request
/// @throws shape_error if per_status is 0
template <class Basis, class Where>
void unpack(const Where& where, const std::uint8_t* bytes, std::size_t polynomials, word* words,
            std::uint32_t* status, std::uint32_t per_status) {
    static_assert(Basis::limbs <= 32, "device::unpack: a status word has a bit for each of 32 limbs");
    require<shape_error>(per_status != 0,
                         {"device::unpack: got 0 polynomials that share a status word, expected at least 1"});
    if (polynomials != 0) {
        where.launch(detail::unpack_kernel<Basis>{bytes, words, status, per_status},
                     detail::residue_places<Basis>::grid(polynomials));
    }
}

/// Requests for several tokens in the memory of a device: byte for byte what lora::request holds.
template <ckks::parameter_set P, class Where>
class request_batch : public batch_size {
  public:
    /// Makes room for requests.
    /// @param largest  tokens that it has room for
    template <class Layout>
    request_batch(const Layout& layout, std::size_t largest)
        : batch_size("device::request_batch", largest),
          d_(layout.d),
          block_(layout.entries_per_input()),
          inputs_(layout.inputs()),
          seeds_(largest),
          bytes_(largest * inputs_ * input_bytes(), memory::uninitialized) {}

    static constexpr std::size_t input_bytes() { return lora::packed_residues_bytes<P>(P::degree); }

    std::size_t inputs() const noexcept { return inputs_; }
    std::size_t d() const noexcept { return d_; }
    std::size_t block() const noexcept { return block_; }

    // In the memory of Where: one seed for each token; c0 of each input, token after token.
    random::seed* seeds() noexcept { return seeds_.data(); }
    const random::seed* seeds() const noexcept { return seeds_.data(); }
    std::uint8_t* bytes() noexcept { return bytes_.data(); }
    const std::uint8_t* bytes() const noexcept { return bytes_.data(); }

    /// Takes over a request from a host.
    /// @throws shape_error if it has another shape, or there is no token t
    void put(const Where& where, std::size_t t, const lora::request<P>& r) {
        require<shape_error>(
            t < tokens_ && r.d == d_ && r.block == block_ && r.inputs.size() == inputs_,
            {"request_batch::put: got token ", t, " of ", tokens_, ", a request of ", r.d, " entries in ",
             r.inputs.size(), " ciphertexts, expected ", d_, " in ", inputs_});
        for (const auto& input : r.inputs) {
            require<shape_error>(input.size() == input_bytes(),
                                 {"request_batch::put: got a ciphertext of ", input.size(),
                                  " bytes, expected ", input_bytes()});
        }
        where.upload(std::span<const random::seed>(&r.seed, 1), seeds_.data() + t);
        for (std::size_t i = 0; i < inputs_; ++i) {
            where.upload(std::span<const std::uint8_t>(r.inputs[i]), at(t, i));
        }
        where.wait();
    }

    /// Returns token t as a host's request.  @throws shape_error if there is no token t
    lora::request<P> get(const Where& where, std::size_t t) const {
        check_token(t);
        lora::request<P> r{d_, block_, {}, {}};
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
    memory::buffer<random::seed, typename Where::space> seeds_;
    memory::buffer<std::uint8_t, typename Where::space> bytes_;
};

/// The place of an output's bytes in the reply to a token.
struct output_place {
    std::uint32_t bits = 0;        ///< bits of each coefficient
    std::uint32_t wanted = 0;      ///< coefficients of c0
    std::uint32_t noise_bits = 0;  ///< bits of each coefficient that decryption rounds away
    std::uint64_t c0_offset = 0;   ///< in bytes, a multiple of 16
    std::uint64_t c1_offset = 0;
};

/// The places of all outputs of a layout, and the bytes of a whole reply in `stride`.
struct output_places {
    std::vector<output_place> outputs;
    std::size_t stride = 0;

    template <class Layout>
    explicit output_places(const Layout& layout) {
        const lora::reply_budget budget = layout.budget();
        const auto next = [&](std::size_t bytes) {
            const std::size_t here = stride;
            stride += (bytes + 15) / 16 * 16;
            return here;
        };
        for (std::size_t o = 0; o < layout.outputs(); ++o) {
            const int bits = layout.reply_bits(budget, o);
            const std::size_t wanted = layout.targets(o);
            const std::size_t c1 = next(memory::packed_bytes(degree_of(layout), bits));
            const std::size_t c0 = next(memory::packed_bytes(wanted, bits));
            outputs.push_back({static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(wanted),
                               static_cast<std::uint32_t>(layout.noise_bits(budget, o)), c0, c1});
        }
    }

  private:
    template <ckks::parameter_set P, class Packing, class Protection>
    static constexpr std::size_t degree_of(const lora::layout<P, Packing, Protection>&) noexcept {
        return P::degree;
    }
};

/// Protected replies to several tokens in the memory of a device: what lora::reply holds, at the places that
/// device::output_places gives.
template <ckks::parameter_set P, class Where, class Packing, class Protection>
class reply_batch : public batch_size {
    static_assert(Protection::protects, "reply_batch: for protected replies");

  public:
    using layout_type = lora::layout<P, Packing, Protection>;
    using reply_type = lora::reply<P, Packing, Protection>;

    reply_batch(const layout_type& layout, std::size_t largest)
        : batch_size("device::reply_batch", largest),
          layout_(layout),
          places_(layout),
          bytes_(largest * places_.stride) {}

    /// The bytes of a token's reply.
    std::size_t stride() const noexcept { return places_.stride; }
    const layout_type& layout() const noexcept { return layout_; }

    std::uint8_t* bytes() noexcept { return bytes_.data(); }
    const std::uint8_t* bytes() const noexcept { return bytes_.data(); }

    /// Takes over a reply from a host.  @throws shape_error if it has another shape, or there is no token t
    void put(const Where& where, std::size_t t, const reply_type& r) {
        bool fits = t < tokens_ && r.rank == layout_.rank && r.d == layout_.d &&
                    r.outputs.size() == places_.outputs.size();
        if (fits) {
            for_parts(r, t, [&](const auto& part, std::size_t, std::size_t bytes) {
                fits = fits && part.size() == bytes;
            });
        }
        require<shape_error>(fits, {"reply_batch::put: got token ", t, " of ", tokens_, ", a reply for a ",
                                    r.rank, " x ", r.d, " matrix that is not one for this layout, of a ",
                                    layout_.rank, " x ", layout_.d, " matrix"});
        for_parts(r, t, [&](const auto& part, std::size_t at, std::size_t) {
            where.upload(std::span(part), bytes() + at);
        });
        where.wait();
    }

    /// Returns token t as a host's reply.  @throws shape_error if there is no token t
    reply_type get(const Where& where, std::size_t t) const {
        check_token(t);
        reply_type r;
        r.rank = layout_.rank;
        r.d = layout_.d;
        r.outputs.resize(places_.outputs.size());
        for_parts(r, t, [&](auto& part, std::size_t at, std::size_t count) {
            part.resize(count);
            where.download(bytes() + at, std::span(part));
        });
        where.wait();
        return r;
    }

  private:
    /// Calls f(part, place, bytes) for c0 and c1 of each output of a reply, with the place among all bytes.
    template <class Reply, class F>
    void for_parts(Reply& r, std::size_t t, const F& f) const {
        for (std::size_t o = 0; o < r.outputs.size(); ++o) {
            const output_place& at = places_.outputs[o];
            const auto bits = static_cast<int>(at.bits);
            f(r.outputs[o].c0, t * places_.stride + at.c0_offset, memory::packed_bytes(at.wanted, bits));
            f(r.outputs[o].c1, t * places_.stride + at.c1_offset, memory::packed_bytes(P::degree, bits));
        }
    }

    layout_type layout_;
    output_places places_;
    memory::buffer<std::uint8_t, typename Where::space> bytes_;
};

}  // namespace tensafe::device
