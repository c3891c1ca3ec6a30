#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/scheme.hpp>
#include <tensafe/wire/set_id.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tensafe::wire {

/// Writes a request as a message of r.bytes() bytes: kind request, the ids of set and scheme. Body: d, block,
/// tokens; the seed of c1; c0 of each ciphertext as client::encrypt packed it. One copy and a checksum.
/// @tparam Packing, Protection  of the layout for which it was encrypted
/// @param to  overwritten; a vector that had such a message before allocates nothing
/// @throws shape_error if an input has not the bytes of packed residues; parameter_error for a d, block or
///         tokens that passes 32 bits
template <class Packing, lora::reply_protection Protection, ckks::parameter_set P>
void write_request(const lora::request<P>& r, const envelope& from, std::vector<std::uint8_t>& to) {
    constexpr std::size_t input_bytes = lora::packed_residues_bytes<P>(P::degree);
    for (const auto& input : r.inputs) {
        check_count("write_request: got a ciphertext of ", input.size(), " bytes, expected ", input_bytes);
    }
    constexpr const char* who = "write_request";
    const detail::shape_numbers shape{detail::count_field(who, "d", r.d),
                                      detail::count_field(who, "block", r.block),
                                      1};
    constexpr std::uint64_t scheme = scheme_id<Packing, Protection>;
    write_message(
        {kind::request, set_id<P>, scheme, from.number, from.group, r.bytes() - detail::frame_bytes}, to,
        [&](byte_writer& body) {
            detail::write_shape(body, shape);
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

/// Reads a request that was made for this plan. Every length follows from the plan: the message is only
/// compared with it. Whether residues are below their primes server::apply checks, before anything is used
/// up.
/// @param plan  the reader's own
/// @param to    its memory is used again: nothing is allocated if it was a request for this plan before.
///              Unchanged if the message is refused
/// @throws as open_frame; shape_error for a request that was made for another layout, naming both;
///         format_error for a body of another length
template <ckks::parameter_set P, class Packing, class Protection>
void read_request(std::span<const std::uint8_t> message,
                  const lora::packing_plan<P, Packing, Protection>& plan, lora::request<P>& to) {
    constexpr std::size_t input_bytes = lora::packed_residues_bytes<P>(P::degree);
    byte_reader body = detail::open_scheme<P, Packing, Protection>(message, kind::request);
    const auto [d, block, tokens] = detail::read_shape(body);
    require<shape_error>(
        d == plan.d() && block == plan.entries_per_input() && tokens == 1,
        {"read_request: got a request of ", tokens, " hidden states of ", d, " entries, ", block,
         " in a ciphertext, expected 1 hidden states of ", plan.d(), " entries, ", plan.entries_per_input(), " in a ciphertext"});
    body.expect(random::seed_bytes + plan.inputs() * input_bytes);
    to.inputs.resize(plan.inputs());
    to.d = d;
    to.block = block;
    to.seed.bytes = body.array<random::seed_bytes>();
    for (auto& input : to.inputs) {
        const auto bytes = body.bytes(input_bytes);
        input.assign(bytes.begin(), bytes.end());
    }
}
template <ckks::parameter_set P, class Packing, class Protection>
lora::request<P> read_request(std::span<const std::uint8_t> message,
                              const lora::packing_plan<P, Packing, Protection>& plan) {
    lora::request<P> result;
    read_request(message, plan, result);
    return result;
}

}  // namespace tensafe::wire
