#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/scheme.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// What a client sends for a hidden state, for a block of tokens, and for a token of one. Bodies are in
// docs/wire-format.md. Every length follows from the reader's own plan: the message is only compared with it,
// before memory is taken. Readers that take `to` use its memory again, so that nothing is allocated from the
// second message on, and leave it unchanged if the message is refused.

namespace tensafe::wire {

/// Writes a request as a message of r.bytes() bytes: kind request, the ids of set and scheme. Body: d, block,
/// tokens; the seed of c1; c0 of each ciphertext as client::encrypt packed it. One copy and a checksum.
/// @tparam Packing, Protection  of the layout for which it was encrypted
/// @param to  overwritten; a vector that had such a message before allocates nothing
/// @throws shape_error if an input has not the bytes of packed residues; parameter_error for a d or block
///         that passes 32 bits
template <class Packing, lora::reply_protection Protection, ckks::parameter_set P>
void write_request(const lora::request<P>& r, const envelope& from, std::vector<std::uint8_t>& to) {
    for (const auto& input : r.inputs) {
        check_count("write_request: got a ciphertext of ", input.size(), " bytes, expected ",
                    lora::packed_residues_bytes<P>(P::degree));
    }
    detail::write_scheme<P, Packing, Protection>(kind::request, from, r.bytes(),
                                                 {{"d", r.d}, {"block", r.block}, {"tokens", 1}}, to,
                                                 [&](byte_writer& body) {
                                                     body.bytes(r.seed.bytes);
                                                     for (const auto& input : r.inputs) {
                                                         body.bytes(input);
                                                     }
                                                 });
}
template <class Packing, lora::reply_protection Protection, ckks::parameter_set P>
std::vector<std::uint8_t> write_request(const lora::request<P>& r, const envelope& from = {}) {
    std::vector<std::uint8_t> message;
    write_request<Packing, Protection>(r, from, message);
    return message;
}

/// Reads a request that was made for this plan. Whether residues are below their primes server::apply checks,
/// before anything is used up.
/// @throws as open_frame; shape_error for a request that was made for another layout; format_error for a body
///         of another length
template <ckks::parameter_set P, class Packing, class Protection>
void read_request(std::span<const std::uint8_t> message,
                  const lora::packing_plan<P, Packing, Protection>& plan, lora::request<P>& to) {
    constexpr std::size_t input_bytes = lora::packed_residues_bytes<P>(P::degree);
    byte_reader body = detail::open_scheme<P, Packing, Protection>(
        message, kind::request, {{"d", plan.d()}, {"block", plan.entries_per_input()}, {"tokens", 1}});
    body.expect(random::seed_bytes + plan.inputs() * input_bytes);
    to.inputs.resize(plan.inputs());
    to.d = plan.d();
    to.block = plan.entries_per_input();
    to.seed.bytes = body.array<random::seed_bytes>();
    for (auto& input : to.inputs) {
        detail::take_bytes(body, input_bytes, input);
    }
}
template <ckks::parameter_set P, class Packing, class Protection>
lora::request<P> read_request(std::span<const std::uint8_t> message,
                              const lora::packing_plan<P, Packing, Protection>& plan) {
    lora::request<P> result;
    read_request(message, plan, result);
    return result;
}

/// Writes the request for a block or a part.  @throws parameter_error for a number that passes 32 bits
template <ckks::parameter_set P, lora::reply_protection Protection>
void write_block_request(const lora::block_request& r, const envelope& from, std::vector<std::uint8_t>& to) {
    detail::write_scheme<P, lora::token_blocks, Protection>(
        kind::block_request, from, r.bytes(), {{"d", r.d}, {"tokens", r.tokens}, {"outputs", r.outputs}}, to,
        [&](byte_writer& body) {
            body.bytes(r.seed.bytes);
            if (r.outputs != 0) {
                body.number<std::uint32_t>(detail::count_field("block request", "first", r.first));
            }
        });
}
/// Reads the request for a block, or a part of the outputs that this plan has.  @throws as read_request
template <ckks::parameter_set P, class Protection>
lora::block_request read_block_request(std::span<const std::uint8_t> message,
                                       const lora::packing_plan<P, lora::token_blocks, Protection>& plan) {
    lora::block_request made{plan.d(), plan.layout().tokens, {}};
    byte_reader body = detail::open_scheme<P, lora::token_blocks, Protection>(
        message, kind::block_request, {{"d", made.d}, {"tokens", made.tokens}});
    made.outputs = body.number<std::uint32_t>();
    require<shape_error>(made.outputs <= plan.outputs(), {body.what(), ": got ", made.outputs,
                                                          " outputs, expected at most ", plan.outputs()});
    body.expect(made.bytes() - lora::message_overhead_bytes);
    made.seed.bytes = body.array<random::seed_bytes>();
    made.first = made.outputs == 0 ? 0 : body.number<std::uint32_t>();
    require<shape_error>(made.first <= plan.outputs() - made.outputs,
                         {body.what(), ": got ", made.outputs, " outputs from ", made.first,
                          " on, expected some of ", plan.outputs()});
    return made;
}

/// Writes the request of a token.  @throws parameter_error for a d or position that passes 32 bits
template <ckks::parameter_set P, lora::reply_protection Protection>
void write_token_request(const lora::token_request& r, const envelope& from, std::vector<std::uint8_t>& to) {
    detail::write_scheme<P, lora::token_blocks, Protection>(kind::token_request, from, r.bytes(),
                                                            {{"d", r.d}, {"position", r.position}}, to,
                                                            [&](byte_writer& body) {
                                                                body.number<std::uint64_t>(r.block);
                                                                body.bytes(r.c0);
                                                            });
}
/// Reads the request of a token.  @throws as read_request
template <ckks::parameter_set P, class Protection>
void read_token_request(std::span<const std::uint8_t> message,
                        const lora::packing_plan<P, lora::token_blocks, Protection>& plan,
                        lora::token_request& to) {
    byte_reader body = detail::open_scheme<P, lora::token_blocks, Protection>(message, kind::token_request,
                                                                              {{"d", plan.d()}});
    const auto position = body.number<std::uint32_t>();
    require<shape_error>(position < plan.layout().tokens, {body.what(), ": got position ", position,
                                                           ", expected one below ", plan.layout().tokens});
    const auto block = body.number<std::uint64_t>();
    const std::size_t bytes = lora::packed_residues_bytes<P>(plan.d());
    body.expect(bytes);
    to.d = plan.d();
    to.position = position;
    to.block = block;
    detail::take_bytes(body, bytes, to.c0);
}

}  // namespace tensafe::wire
