#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/lora/packing/budget.hpp>
#include <tensafe/lora/packing/protection.hpp>
#include <tensafe/memory/packed_bits.hpp>

#include <array>
#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace tensafe::lora {

/// The bytes of a message beside its payload: 48 of header, 12 of shape, 4 of checksum (docs/wire-format.md).
/// Every `bytes()` below is the length of a whole message, so counts them.
inline constexpr std::size_t message_overhead_bytes = 64;

/// The bytes of `count` residues modulo each prime of the requests of a set, bit-packed.
template <ckks::parameter_set P>
constexpr std::size_t packed_residues_bytes(std::size_t count) {
    return rns::packed_bytes<typename P::template basis_at<request_level<P>>>(count);
}

namespace detail {

/// Calls f<I>(the bytes of limb I, bits of a residue) for packed residues, `count` modulo each prime.
template <ckks::parameter_set P, class Byte, class F>
void for_packed_limbs(std::span<Byte> bytes, std::size_t count, F f) {
    using basis = typename P::template basis_at<request_level<P>>;
    rns::for_each_limb<basis>([&]<int I>() {
        constexpr int bits = std::bit_width(basis::template prime<I>);
        const std::size_t size = memory::packed_bytes(count, bits);
        f.template operator()<I>(bytes.first(size), bits);
        bytes = bytes.subspan(size);
    });
}

/// Unpacks limb I to the words limb<I>().  @throws format_error for a residue that is not below its prime
template <ckks::parameter_set P, class Limb>
void unpack_residues(const char* who, std::span<const std::uint8_t> from, std::size_t count, Limb limb) {
    for_packed_limbs<P>(from, count, [&]<int I>(std::span<const std::uint8_t> bytes, int bits) {
        constexpr arith::word q = P::basis::template prime<I>;
        require<format_error>(memory::unpack_bits_below(bytes, bits, q, limb.template operator()<I>()),
                              {who, ": a residue of limb ", I, " is not below its prime ", q});
    });
}

/// Room for `count` entries, whatever is in them. It only grows: models have groups of many sizes.
template <class Buffer>
auto make_room(Buffer& buffer, std::size_t count) {
    if (buffer.size() < count) {
        buffer = Buffer(count, memory::uninitialized);
    }
    return buffer.span().first(count);
}

}  // namespace detail

/// Counts of the work done, to compare with what the cost model says.
struct work_count {
    std::size_t products = 0;    ///< products of a plaintext or a number with a ciphertext
    std::size_t transforms = 0;  ///< NTTs of N points modulo one prime, either direction

    friend constexpr bool operator==(const work_count&, const work_count&) = default;
};

/// The message that a client sends for one hidden state: fresh encryptions, the uniform halves as one seed,
/// the other halves bit-packed, limb after limb.
template <ckks::parameter_set P, class Input = std::vector<std::uint8_t>>
struct request {
    std::size_t d = 0;          ///< entries of a hidden state
    std::size_t block = 0;      ///< entries in one ciphertext
    random::seed seed;          ///< lane i * limbs + I gives limb I of c1 of input i
    std::vector<Input> inputs;  ///< c0 of each ciphertext: packed_residues_bytes<P>(N) bytes

    std::size_t bytes() const noexcept {
        std::size_t sum = message_overhead_bytes + sizeof(seed.bytes);
        for (const auto& c0 : inputs) {
            sum += c0.size();
        }
        return sum;
    }
};

/// The request of replies that are whole ciphertexts: fresh encryptions on the whole chain, with a seed each.
template <ckks::parameter_set P>
struct request<P, ckks::seeded_ciphertext<P>> {
    std::size_t d = 0;
    std::size_t block = 0;
    std::vector<ckks::seeded_ciphertext<P>> inputs;

    std::size_t bytes() const noexcept {
        return message_overhead_bytes +
               inputs.size() * (sizeof(random::seed::bytes) + rns::packed_bytes<typename P::basis>());
    }
};

/// A hidden state on its way. The request goes to the server; the scale stays with the client, which reads
/// the reply with it: it follows from the norm of the state, which nobody else should know.
template <class Request>
struct query_of {
    Request request;
    double scale = 0;
};
template <ckks::parameter_set P, class Input = std::vector<std::uint8_t>>
using query = query_of<request<P, Input>>;

/// Memory for making requests. Wiped on release, as an exception may leave secrets.
template <ckks::parameter_set P>
struct message_workspace {
    rns::secret_poly<typename P::template basis_at<request_level<P>>, rns::coefficient_form> message{
        memory::uninitialized};
    memory::secret_buffer<double> reals{P::degree, memory::uninitialized};
    memory::secret_buffer<std::complex<double>> slots;  ///< N/2, for packings into slots
    ckks::encryption_workspace<P> encryption;
};

/// Memory for reading replies, of one thread; holds the last answers. Wiped on release.
template <ckks::parameter_set P>
struct decryption_workspace {
    memory::buffer<std::uint32_t> c1;
    memory::buffer<std::uint32_t> c0;
    memory::buffer<arith::word> words;
    memory::secret_buffer<arith::word> sums;
    memory::secret_buffer<double> coefficients;         ///< the coefficients of all outputs
    memory::secret_buffer<std::complex<double>> slots;  ///< sums of slots, for packings into slots
};

/// A product as the server computes it, without any protection: c1 in evaluation form and c0 traced to the
/// coefficients that are needed. Limb I of c0 holds 2^subring_log_n block sums of the evaluation form.
template <ckks::parameter_set P>
struct traced_product {
    using basis = typename P::template basis_at<request_level<P>>;

    std::array<memory::buffer<arith::word>, static_cast<std::size_t>(basis::limbs)> c0;
    rns::poly<basis, rns::evaluation_form> c1;

    std::size_t bytes() const noexcept {
        return packed_residues_bytes<P>(c0.front().size()) + packed_residues_bytes<P>(P::degree);
    }
    /// Makes room for c1 and `sums` sums of c0, whatever is in it.
    void make_room(std::size_t sums) {
        for (auto& limb : c0) {
            if (limb.size() != sums) {
                limb = memory::buffer<arith::word>(sums, memory::uninitialized);
            }
        }
        if (c1.words().empty()) {
            c1 = rns::poly<basis, rns::evaluation_form>(memory::uninitialized);
        }
    }
};

/// A product of a protected reply: the target coefficients of c0 and all of c1, modulo 2^bits, bit-packed.
struct packed_product {
    std::vector<std::uint8_t> c0;
    std::vector<std::uint8_t> c1;

    std::size_t bytes() const noexcept { return c0.size() + c1.size(); }
};

/// The members that replies of all kinds have.
template <class Output>
struct reply_of {
    std::size_t rank = 0;
    std::size_t d = 0;
    std::vector<Output> outputs;  ///< products of the reply

    std::size_t bytes() const noexcept {
        std::size_t sum = message_overhead_bytes;
        for (const Output& output : outputs) {
            sum += output.bytes();
        }
        return sum;
    }
};

/// Asks a server to prepare a block of tokens, or the next part of its outputs: the uniform halves of its
/// ciphertexts, as one seed.
struct block_request {
    std::size_t d = 0;
    std::size_t tokens = 0;
    random::seed seed;        ///< lane i * limbs + I gives limb I of c1 of input i, in evaluation form
    std::size_t outputs = 0;  ///< the number of outputs wanted, from `first` on; 0: all
    std::size_t first = 0;    ///< a multiple of eight, and where the part before ended

    std::size_t bytes() const noexcept {
        return message_overhead_bytes + sizeof(seed.bytes) + (outputs == 0 ? 0 : 4);
    }
};

/// The reply to a block_request, before any token: c1 of each output wanted, modulo 2^bits, bit-packed.
struct block_reply {
    std::size_t rank = 0;
    std::size_t d = 0;
    std::size_t tokens = 0;
    std::vector<std::vector<std::uint8_t>> c1;
    std::size_t first = 0;  ///< the output of c1[0]

    std::size_t bytes() const noexcept {
        std::size_t sum = message_overhead_bytes;
        for (const auto& each : c1) {
            sum += each.size();
        }
        return sum;
    }
};

/// A hidden state at a position of a block: its coefficients of c0, limb after limb, bit-packed.
struct token_request {
    std::size_t d = 0;
    std::size_t position = 0;
    std::uint64_t block = 0;       ///< the number of the block's request, where messages have numbers
    std::vector<std::uint8_t> c0;  ///< packed_residues_bytes<P>(d)

    std::size_t bytes() const noexcept { return message_overhead_bytes + 4 + c0.size(); }
};
using token_query = query_of<token_request>;

/// The answer to a token: one coefficient of c0 of each output, those of rows of A, then those of checksum
/// rows, each part bit-packed.
struct token_reply {
    std::size_t rank = 0;
    std::size_t d = 0;
    std::size_t position = 0;
    std::vector<std::uint8_t> c0;

    std::size_t bytes() const noexcept { return message_overhead_bytes + c0.size(); }
};

/// The reply of a server, packing and kind of protection in the type: packed products, or bare ones.
template <ckks::parameter_set P, class Packing, class Protection>
struct reply : reply_of<std::conditional_t<Protection::protects, packed_product, traced_product<P>>> {};

}  // namespace tensafe::lora
