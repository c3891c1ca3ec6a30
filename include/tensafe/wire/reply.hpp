#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/memory/packed_bits.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/poly.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/ciphertext.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/scheme.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tensafe::wire {

namespace detail {

/// Refuses a limb of c1 that is zero where that of c0 is not: everybody could then read the product. That of
/// a zero matrix is zero in both, honestly.
template <class Error>
void check_hidden_limb(const char* who, int index, std::span<const arith::word> c0,
                       std::span<const arith::word> c1) {
    const auto zero = [](std::span<const arith::word> words) {
        return std::all_of(words.begin(), words.end(), [](arith::word x) { return x == 0; });
    };
    if (zero(c1) && !zero(c0)) {  // ends at the first word of an honest c1
        throw Error({who, ": limb ", index, ": c1 is zero and c0 is not: everybody could read the product"});
    }
}

/// Refuses a c1 of all zeros: every one of a protected reply is random.
template <class Error>
void check_not_erased(const char* who, std::size_t o, std::span<const std::uint8_t> c1) {
    // Public, and ends at the first byte of an honest reply.
    require<Error>(std::any_of(c1.begin(), c1.end(), [](std::uint8_t x) { return x != 0; }),
                   {who, ": the c1 of product ", o, " is zero: the server erased it"});
}

}  // namespace detail

/// Writes a reply as a message of r.bytes() bytes: kind reply, the ids of set and scheme. Body: rank, d,
/// tokens; of each product c0, the sums that carry answers, and c1: protected ones as the server packed them,
/// of bare ones the residues modulo each prime, bit-packed. One copy and a checksum.
/// @param to  overwritten; a vector that had such a message before allocates nothing
/// @throws parameter_error for a rank, d or tokens that passes 32 bits, a protected c1 that is all zero, or a
///         bare one that is zero modulo a prime where c0 is not, which would show the product; shape_error
///         unless every limb of a bare c0 has as many words as the first
template <ckks::parameter_set P, class Packing, class Protection>
void write_reply(const lora::reply<P, Packing, Protection>& r, const envelope& from,
                 std::vector<std::uint8_t>& to) {
    static_assert(!lora::packing_plan<P, Packing, Protection>::whole_ciphertexts,
                  "wire::write_reply: replies that are whole ciphertexts have no network format");
    using basis = typename lora::traced_product<P>::basis;
    constexpr const char* who = "write_reply";
    const detail::shape_numbers shape{detail::count_field(who, "rank", r.rank),
                                      detail::count_field(who, "d", r.d),
                                      1};
    for (std::size_t o = 0; o < r.outputs.size(); ++o) {
        const auto& output = r.outputs[o];
        if constexpr (Protection::protects) {
            detail::check_not_erased<parameter_error>(who, o, output.c1);
        } else {
            for (const auto& limb : output.c0) {
                check_count("write_reply: got a limb of ", limb.size(), " coefficients, expected ",
                            output.c0.front().size());
            }
            require<shape_error>(!output.c1.words().empty(), {"write_reply: got a product without c1"});
            rns::for_each_limb<basis>([&]<int I>() {
                detail::check_hidden_limb<parameter_error>(who, I, output.c0[I].span(),
                                                           output.c1.template limb<I>());
            });
        }
    }
    constexpr std::uint64_t scheme = scheme_id<Packing, Protection>;
    write_message({kind::reply, set_id<P>, scheme, from.number, from.group, r.bytes() - detail::frame_bytes},
                  to, [&](byte_writer& body) {
                      detail::write_shape(body, shape);
                      for (const auto& output : r.outputs) {
                          if constexpr (Protection::protects) {
                              body.bytes(output.c0);
                              body.bytes(output.c1);
                          } else {
                              rns::for_each_limb<basis>([&]<int I>() {
                                  write_limb(output.c0[I].span(), basis::template prime<I>, body);
                              });
                              write_polynomial(output.c1, body);
                          }
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

/// Reads the reply to a request. Every length follows from the plan: the message is
/// only compared with it. Nothing in a reply is believed: any that passes decrypts to numbers.
/// @param plan  the reader's own
/// @param to    its memory is used again: nothing is allocated if it was a reply for this plan before. If the
///              message is refused, a protected one is unchanged, a bare one has other contents
/// @throws as open_frame; shape_error for a reply to something else, naming both; format_error for a body of
///         another length, unused bits that are not zero, a bare residue that is not below its prime, or a c1
///         that write_reply refuses
template <ckks::parameter_set P, class Packing, class Protection>
void read_reply(std::span<const std::uint8_t> message, const lora::packing_plan<P, Packing, Protection>& plan,
                lora::reply<P, Packing, Protection>& to) {
    byte_reader body = detail::open_scheme<P, Packing, Protection>(message, kind::reply);
    const auto [rank, d, states] = detail::read_shape(body);
    require<shape_error>(rank == plan.rank() && d == plan.d() && states == 1,
                         {"read_reply: got a reply for a ", rank, " x ", d, " matrix and ", states,
                          " hidden states, expected a ", plan.rank(), " x ", plan.d(), " matrix and 1"});
    const std::size_t outputs = plan.outputs();
    if constexpr (Protection::protects) {
        const auto c0_bits = [&](std::size_t o) {
            return plan.targets(o) * static_cast<std::size_t>(plan.reply_bits(o));
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
            require<format_error>(c0_bits(o) % 8 == 0 || c0.back() >> (c0_bits(o) % 8) == 0,
                                  {"read_reply: the unused bits after c0 of product ", o, " are not zero"});
            detail::check_not_erased<format_error>("read_reply", o, look.bytes(c1_bytes(o)));
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
            product.make_room(trace);
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
}
template <ckks::parameter_set P, class Packing, class Protection>
lora::reply<P, Packing, Protection> read_reply(std::span<const std::uint8_t> message,
                                               const lora::packing_plan<P, Packing, Protection>& plan) {
    lora::reply<P, Packing, Protection> result;
    read_reply(message, plan, result);
    return result;
}

}  // namespace tensafe::wire
