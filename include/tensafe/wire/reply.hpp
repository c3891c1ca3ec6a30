#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/memory/packed_bits.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/poly.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/ciphertext.hpp>
#include <tensafe/wire/fields.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/scheme.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tensafe::wire {

namespace detail {

template <class Reply>
shape_numbers shape_of(const Reply& r) {
    return {count_field("write_reply", "rank", r.rank), count_field("write_reply", "d", r.d),
            count_field("write_reply", "tokens", r.tokens)};
}

/// The shape that a reply states must be the one that its reader asked for.
template <class Plan>
void check_reply_shape(const Plan& plan, std::size_t tokens, const shape_numbers& got) {
    if (got[0] != plan.rank() || got[1] != plan.d() || got[2] != tokens) {
        const auto text = [](std::size_t rank, std::size_t d, std::size_t states) {
            return std::to_string(rank) + " x " + std::to_string(d) + " matrix and " +
                   std::to_string(states) + " hidden states";
        };
        throw shape_error("read_reply: got a reply for a " + text(got[0], got[1], got[2]) + ", expected a " +
                          text(plan.rank(), plan.d(), tokens));
    }
}

template <class Plan>
void check_tokens(const Plan& plan, std::size_t tokens) {
    if (tokens == 0 || tokens > plan.largest_batch) {
        throw shape_error("read_reply: asked to read a reply for " + std::to_string(tokens) +
                          " hidden states, expected 1 to " + std::to_string(plan.largest_batch));
    }
}

/// Refuses a c1 of all zeros: every one of a protected reply is random.
template <class Error>
void check_not_erased(const char* who, std::size_t o, std::span<const std::uint8_t> c1) {
    // Public, and ends at the first byte of an honest reply.
    if (std::all_of(c1.begin(), c1.end(), [](std::uint8_t x) { return x == 0; })) {
        throw Error(std::string(who) + ": the c1 of product " + std::to_string(o) +
                    " is zero: the server erased it");
    }
}

/// c0, then c1, of one output of a protected reply.
inline void check_output(std::size_t o, std::span<const std::uint8_t> c0, std::size_t c0_bits,
                         std::span<const std::uint8_t> c1) {
    if (c0_bits % 8 != 0 && c0.back() >> (c0_bits % 8) != 0) {
        throw format_error("read_reply: the unused bits after c0 of product " + std::to_string(o) +
                           " are not zero");
    }
    check_not_erased<format_error>("read_reply", o, c1);
}

}  // namespace detail

/// Writes a protected reply as a message of r.bytes() bytes: kind reply, the ids of set and scheme. Body:
/// rank, d, tokens; c0 and c1 of each product as the server packed them. One copy and a checksum.
/// @param to  overwritten; a vector that had such a message before allocates nothing
/// @throws parameter_error for a rank, d or tokens that passes 32 bits, or a c1 that is all zero
template <ckks::parameter_set P, class Packing, class Range, class Precision>
void write_reply(const lora::reply<P, Packing, lora::protects_adapter_rows<Range, Precision>>& r,
                 const envelope& from, std::vector<std::uint8_t>& to) {
    const detail::shape_numbers shape = detail::shape_of(r);
    for (std::size_t o = 0; o < r.outputs.size(); ++o) {
        detail::check_not_erased<parameter_error>("write_reply", o, r.outputs[o].c1);
    }
    constexpr std::uint64_t scheme = scheme_id<Packing, lora::protects_adapter_rows<Range, Precision>>;
    write_message({kind::reply, set_id<P>, scheme, from.number, from.group, r.bytes() - detail::frame_bytes},
                  to, [&](byte_writer& body) {
                      detail::write_shape(body, shape);
                      for (const auto& output : r.outputs) {
                          body.bytes(output.c0);
                          body.bytes(output.c1);
                      }
                  });
}

/// The same for bare replies: residues modulo the primes, bit-packed limb after limb, of c0 the sums that
/// carry answers.
/// @throws shape_error also unless every limb of c0 has as many words as the first; parameter_error also for
///         a c1 that is zero modulo a prime where c0 is not: that would show the product
template <ckks::parameter_set P, class Packing>
void write_reply(const lora::reply<P, Packing, lora::reveals_adapter_rows>& r, const envelope& from,
                 std::vector<std::uint8_t>& to) {
    static_assert(!lora::packing_plan<P, Packing, lora::reveals_adapter_rows>::whole_ciphertexts,
                  "wire::write_reply: replies that are whole ciphertexts have no network format");
    using basis = typename lora::traced_product<P>::basis;
    const detail::shape_numbers shape = detail::shape_of(r);
    for (const auto& product : r.outputs) {
        for (const auto& limb : product.c0) {
            check_count("write_reply: got a limb of ", limb.size(), " coefficients, expected ",
                        product.c0.front().size());
        }
        if (product.c1.words().empty()) {
            throw shape_error("write_reply: got a product without c1");
        }
        rns::for_each_limb<basis>([&]<int I>() {
            detail::check_hidden_limb<parameter_error>("write_reply", I, product.c0[I].span(),
                                                       product.c1.template limb<I>());
        });
    }
    constexpr std::uint64_t scheme = scheme_id<Packing, lora::reveals_adapter_rows>;
    write_message({kind::reply, set_id<P>, scheme, from.number, from.group, r.bytes() - detail::frame_bytes},
                  to, [&](byte_writer& body) {
                      detail::write_shape(body, shape);
                      for (const auto& product : r.outputs) {
                          rns::for_each_limb<basis>([&]<int I>() {
                              write_limb(product.c0[I].span(), basis::template prime<I>, body);
                          });
                          write_polynomial(product.c1, body);
                      }
                  });
}

template <ckks::parameter_set P, class Packing, class Protection>
std::vector<std::uint8_t> write_reply(const lora::reply<P, Packing, Protection>& r,
                                      const envelope& from = {}) {
    std::vector<std::uint8_t> message;
    write_reply(r, from, message);
    return message;
}

/// Reads the reply to a request of so many hidden states. Every length follows from the plan: the message
/// is only compared with it. Nothing in a reply is believed: any that passes decrypts to numbers.
/// @param message  of anybody
/// @param plan     the reader's own
/// @param to       its memory is used again: nothing is allocated if it was a reply for this plan before.
///                 If the message is refused, a protected one is unchanged, a bare one has other contents
/// @throws as open_frame; shape_error for a reply to something else, naming both; format_error for a body of
///         another length, unused bits that are not zero, a protected c1 that is zero, a bare residue that is
///         not below its prime, or a bare c1 that is zero modulo a prime where c0 is not
template <ckks::parameter_set P, class Packing, class Protection>
void read_reply(std::span<const std::uint8_t> message, const lora::packing_plan<P, Packing, Protection>& plan,
                std::size_t tokens, lora::reply<P, Packing, Protection>& to) {
    detail::check_tokens(plan, tokens);
    byte_reader body = detail::open_scheme<P, Packing, Protection>(message, kind::reply);
    detail::check_reply_shape(plan, tokens, detail::read_shape(body));
    const std::size_t outputs = plan.outputs();
    if constexpr (Protection::protects) {
        const auto c0_bits = [&](std::size_t o) {
            return plan.targets(o, tokens) * static_cast<std::size_t>(plan.reply_bits(o));
        };
        const auto c1_bytes = [&](std::size_t o) {
            return memory::packed_bytes(P::degree, plan.reply_bits(o));
        };
        std::size_t wanted = 0;
        for (std::size_t o = 0; o < outputs; ++o) {
            wanted += (c0_bits(o) + 7) / 8 + c1_bytes(o);
        }
        body.expect(wanted);
        byte_reader look = body;
        for (std::size_t o = 0; o < outputs; ++o) {
            const auto c0 = look.bytes((c0_bits(o) + 7) / 8);
            detail::check_output(o, c0, c0_bits(o), look.bytes(c1_bytes(o)));
        }
        to.outputs.resize(outputs);
        for (std::size_t o = 0; o < outputs; ++o) {
            const auto c0 = body.bytes((c0_bits(o) + 7) / 8);
            const auto c1 = body.bytes(c1_bytes(o));
            to.outputs[o].c0.assign(c0.begin(), c0.end());
            to.outputs[o].c1.assign(c1.begin(), c1.end());
        }
    } else {
        using basis = typename lora::traced_product<P>::basis;
        const std::size_t trace = plan.subring_degree();
        body.expect(outputs *
                    (lora::packed_residues_bytes<P>(trace) + lora::packed_residues_bytes<P>(P::degree)));
        to.outputs.resize(outputs);
        for (std::size_t o = 0; o < outputs; ++o) {
            auto& product = to.outputs[o];
            for (auto& limb : product.c0) {
                if (limb.size() != trace) {
                    limb = memory::buffer<arith::word>(trace, memory::uninitialized);
                }
            }
            if (product.c1.words().empty()) {
                product.c1 = rns::poly<basis, rns::evaluation_form>(memory::uninitialized);
            }
            rns::for_each_limb<basis>(
                [&]<int I>() { read_limb(body, "c0", I, basis::template prime<I>, product.c0[I].span()); });
            read_polynomial(body, "c1", product.c1);
            rns::for_each_limb<basis>([&]<int I>() {
                detail::check_hidden_limb<format_error>("read_reply", I, product.c0[I].span(),
                                                        product.c1.template limb<I>());
            });
        }
    }
    to.rank = plan.rank();
    to.d = plan.d();
    to.tokens = tokens;
}
template <ckks::parameter_set P, class Packing, class Protection>
lora::reply<P, Packing, Protection> read_reply(std::span<const std::uint8_t> message,
                                               const lora::packing_plan<P, Packing, Protection>& plan,
                                               std::size_t tokens = 1) {
    lora::reply<P, Packing, Protection> result;
    read_reply(message, plan, tokens, result);
    return result;
}

}  // namespace tensafe::wire
