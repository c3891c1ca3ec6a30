#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/ciphertext.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/scheme.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// What a server answers to the messages of wire/request.hpp. What is said there of lengths and memory holds
// here. Nothing in a reply is believed: any that passes decrypts to numbers.

namespace tensafe::wire {

namespace detail {

/// Throws for a limb of c1 that is 0 where that of c0 is not, which would show the product. A matrix of
/// entries 0 honestly gives 0 in both.
template <class Error, class Product>
void check_hidden(const Product& product) {
    const auto zero = [](std::span<const arith::word> words) {
        return std::all_of(words.begin(), words.end(), [](arith::word x) { return x == 0; });
    };
    rns::for_each_limb<typename Product::basis>([&]<int I>() {
        if (zero(product.c1.template limb<I>()) &&
            !zero(product.c0[I].span())) {  // ends at an honest first word
            throw Error({"reply: limb ", I, ": c1 is zero and c0 is not: everybody could read the product"});
        }
    });
}

/// Throws for a c1 that is all 0: every one of a protected reply is random.
template <class Error>
void check_not_erased(std::string_view who, std::size_t o, std::span<const std::uint8_t> c1) {
    // Public, and ends at the first byte of an honest reply.
    require<Error>(std::any_of(c1.begin(), c1.end(), [](std::uint8_t x) { return x != 0; }),
                   {who, ": the c1 of product ", o, " is zero: the server erased it"});
}

/// Checks the products of a protected reply, which are the rest of the body, without taking them.
/// @throws format_error for another length, unused bits that are not 0, and a c1 that is all 0
template <class Plan>
void check_products(byte_reader body, const Plan& plan, std::size_t first, std::size_t count) {
    std::size_t expected = 0;
    for (std::size_t o = first; o < first + count; ++o) {
        expected += plan.c0_bytes(o) + plan.c1_bytes(o);
    }
    body.expect(expected);
    for (std::size_t o = first; o < first + count; ++o) {
        const auto c0 = body.bytes(plan.c0_bytes(o));
        const std::size_t used = plan.targets(o) * static_cast<std::size_t>(plan.reply_bits(o)) % 8;
        require<format_error>(c0.empty() || used == 0 || c0.back() >> used == 0,
                              {body.what(), ": the unused bits after c0 of product ", o, " are not zero"});
        check_not_erased<format_error>(body.what(), o, body.bytes(plan.c1_bytes(o)));
    }
}

}  // namespace detail

/// Writes a reply as a message of r.bytes() bytes: kind reply, the ids of set and scheme. Body: rank, d,
/// tokens; of each product c0, the sums that carry answers, and c1: protected ones as the server packed them,
/// of bare ones the residues modulo each prime, bit-packed. One copy and a checksum.
/// @param to  overwritten; a vector that had such a message before allocates nothing
/// @throws parameter_error for a rank or d that passes 32 bits, a protected c1 that is all 0, or a bare one
///         that is 0 modulo a prime where c0 is not, which would show the product; shape_error unless every
///         limb of a bare c0 has as many words as the first
template <ckks::parameter_set P, class Packing, class Protection>
void write_reply(const lora::reply<P, Packing, Protection>& r, const envelope& from,
                 std::vector<std::uint8_t>& to) {
    static_assert(!lora::packing_plan<P, Packing, Protection>::whole_ciphertexts,
                  "wire::write_reply: replies that are whole ciphertexts have no network format");
    for (std::size_t o = 0; o < r.outputs.size(); ++o) {
        const auto& output = r.outputs[o];
        if constexpr (Protection::protects) {
            detail::check_not_erased<parameter_error>("reply", o, output.c1);
        } else {
            for (const auto& limb : output.c0) {
                check_count("write_reply: got a limb of ", limb.size(), " coefficients, expected ",
                            output.c0.front().size());
            }
            require<shape_error>(!output.c1.words().empty(), {"write_reply: got a product without c1"});
            detail::check_hidden<parameter_error>(output);
        }
    }
    detail::write_scheme<P, Packing, Protection>(
        kind::reply, from, r.bytes(), {{"rank", r.rank}, {"d", r.d}, {"tokens", 1}}, to,
        [&](byte_writer& body) {
            for (const auto& output : r.outputs) {
                if constexpr (Protection::protects) {
                    body.bytes(output.c0);
                    body.bytes(output.c1);
                } else {
                    using basis = typename lora::traced_product<P>::basis;
                    rns::for_each_limb<basis>(
                        [&]<int I>() { write_limb(output.c0[I].span(), basis::template prime<I>, body); });
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

/// Reads the reply to a request.
/// @param to  if the message is refused, a protected one is unchanged, a bare one has other contents
/// @throws as open_frame; shape_error for a reply to something else; format_error for a body of another
///         length, unused bits that are not zero, a bare residue that is not below its prime, or a c1 that
///         write_reply refuses
template <ckks::parameter_set P, class Packing, class Protection>
void read_reply(std::span<const std::uint8_t> message, const lora::packing_plan<P, Packing, Protection>& plan,
                lora::reply<P, Packing, Protection>& to) {
    byte_reader body = detail::open_scheme<P, Packing, Protection>(
        message, kind::reply, {{"rank", plan.rank()}, {"d", plan.d()}, {"tokens", 1}});
    if constexpr (Protection::protects) {
        detail::check_products(body, plan, 0, plan.outputs());
        to.outputs.resize(plan.outputs());
        for (std::size_t o = 0; o < plan.outputs(); ++o) {
            detail::take_bytes(body, plan.c0_bytes(o), to.outputs[o].c0);
            detail::take_bytes(body, plan.c1_bytes(o), to.outputs[o].c1);
        }
    } else {
        using basis = typename lora::traced_product<P>::basis;
        const std::size_t trace = plan.subring_degree();
        body.expect(plan.outputs() *
                    (lora::packed_residues_bytes<P>(trace) + lora::packed_residues_bytes<P>(P::degree)));
        to.outputs.resize(plan.outputs());
        for (auto& product : to.outputs) {
            product.make_room(trace);
            rns::for_each_limb<basis>(
                [&]<int I>() { read_limb(body, "c0", I, basis::template prime<I>, product.c0[I].span()); });
            read_polynomial(body, "c1", product.c1);
            detail::check_hidden<format_error>(product);
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

/// Writes what the server computed ahead, for a block_request.
/// @throws parameter_error for a number that passes 32 bits, or a c1 that is all 0
template <ckks::parameter_set P, lora::reply_protection Protection>
void write_block_reply(const lora::block_reply& r, const envelope& from, std::vector<std::uint8_t>& to) {
    for (std::size_t o = 0; o < r.c1.size(); ++o) {
        detail::check_not_erased<parameter_error>("block reply", o, r.c1[o]);
    }
    detail::write_scheme<P, lora::token_blocks, Protection>(
        kind::block_reply, from, r.bytes(), {{"rank", r.rank}, {"d", r.d}, {"tokens", r.tokens}}, to,
        [&](byte_writer& body) {
            for (const auto& c1 : r.c1) {
                body.bytes(c1);
            }
        });
}
/// Reads the reply to a block_request.
/// @param first, count  the outputs of the request to which it is the reply
/// @throws as read_reply
template <ckks::parameter_set P, class Protection>
void read_block_reply(std::span<const std::uint8_t> message,
                      const lora::packing_plan<P, lora::token_blocks, Protection>& plan, std::size_t first,
                      std::size_t count, lora::block_reply& to) {
    const std::size_t tokens = plan.layout().tokens;
    byte_reader body = detail::open_scheme<P, lora::token_blocks, Protection>(
        message, kind::block_reply, {{"rank", plan.rank()}, {"d", plan.d()}, {"tokens", tokens}});
    detail::check_products(body, plan, first, count);
    to.rank = plan.rank();
    to.d = plan.d();
    to.tokens = tokens;
    to.first = first;
    to.c1.resize(count);
    for (std::size_t k = 0; k < count; ++k) {
        detail::take_bytes(body, plan.c1_bytes(first + k), to.c1[k]);
    }
}
template <ckks::parameter_set P, class Protection>
void read_block_reply(std::span<const std::uint8_t> message,
                      const lora::packing_plan<P, lora::token_blocks, Protection>& plan,
                      lora::block_reply& to) {
    read_block_reply(message, plan, 0, plan.outputs(), to);
}

/// Writes the reply to a token.  @throws parameter_error for a number that passes 32 bits
template <ckks::parameter_set P, lora::reply_protection Protection>
void write_token_reply(const lora::token_reply& r, const envelope& from, std::vector<std::uint8_t>& to) {
    detail::write_scheme<P, lora::token_blocks, Protection>(
        kind::token_reply, from, r.bytes(), {{"rank", r.rank}, {"d", r.d}, {"position", r.position}}, to,
        [&](byte_writer& body) { body.bytes(r.c0); });
}
/// Reads the reply to a token.
/// @param position  of the request to which it is the reply
/// @throws as read_reply
template <ckks::parameter_set P, class Protection>
void read_token_reply(std::span<const std::uint8_t> message,
                      const lora::packing_plan<P, lora::token_blocks, Protection>& plan, std::size_t position,
                      lora::token_reply& to) {
    byte_reader body = detail::open_scheme<P, lora::token_blocks, Protection>(
        message, kind::token_reply, {{"rank", plan.rank()}, {"d", plan.d()}, {"position", position}});
    body.expect(plan.token_reply_bytes());
    to.rank = plan.rank();
    to.d = plan.d();
    to.position = position;
    detail::take_bytes(body, plan.token_reply_bytes(), to.c0);
}

}  // namespace tensafe::wire
