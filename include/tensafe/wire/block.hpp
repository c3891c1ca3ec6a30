#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/scheme.hpp>
#include <tensafe/wire/set_id.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// The messages of blocks of tokens: what is computed ahead, and a token with its answer. Bodies are in
// docs/wire-format.md. Lengths follow from the reader's plan: a message is only compared with it, before memory
// is taken.

namespace tensafe::wire {

namespace detail {

template <ckks::parameter_set P, class Protection, class Fill>
void write_of_block(kind what, const envelope& from, std::size_t bytes, std::vector<std::uint8_t>& to,
                    Fill fill) {
    constexpr std::uint64_t scheme = scheme_id<lora::token_blocks, Protection>;
    write_message({what, set_id<P>, scheme, from.number, from.group, bytes - frame_bytes}, to, fill);
}

/// rank, d and a third number, refused unless they are these.
inline void expect_shape(byte_reader& body, const char* who, const shape_numbers& expected) {
    const auto got = read_shape(body);
    require<shape_error>(got == expected,
                         {who, ": got ", got[0], ", ", got[1], ", ", got[2], " for its shape, expected ",
                          expected[0], ", ", expected[1], ", ", expected[2]});
}

inline void take_bytes(byte_reader& body, std::size_t count, std::vector<std::uint8_t>& to) {
    const auto bytes = body.bytes(count);
    to.assign(bytes.begin(), bytes.end());
}

}  // namespace detail

/// @throws parameter_error for a d or a number of tokens that passes 32 bits
template <ckks::parameter_set P, lora::reply_protection Protection>
void write_block_request(const lora::block_request& r, const envelope& from, std::vector<std::uint8_t>& to) {
    constexpr const char* who = "write_block_request";
    const detail::shape_numbers shape{detail::count_field(who, "d", r.d),
                                      detail::count_field(who, "tokens", r.tokens), 0};
    detail::write_of_block<P, Protection>(kind::block_request, from, r.bytes(), to, [&](byte_writer& body) {
        detail::write_shape(body, shape);
        body.bytes(r.seed.bytes);
    });
}
/// @throws as open_frame; shape_error for another layout; format_error for a body of another length
template <ckks::parameter_set P, class Protection>
lora::block_request read_block_request(
    std::span<const std::uint8_t> message,
    const lora::packing_plan<P, lora::token_blocks, Protection>& plan) {
    byte_reader body = detail::open_scheme<P, lora::token_blocks, Protection>(message, kind::block_request);
    lora::block_request result{plan.d(), plan.layout().tokens, {}};
    detail::expect_shape(body, "read_block_request",
                         {static_cast<std::uint32_t>(result.d), static_cast<std::uint32_t>(result.tokens), 0});
    body.expect(random::seed_bytes);
    result.seed.bytes = body.array<random::seed_bytes>();
    return result;
}

/// @throws parameter_error for a number that passes 32 bits, or a c1 that is all zero
template <ckks::parameter_set P, lora::reply_protection Protection>
void write_block_reply(const lora::block_reply& r, const envelope& from, std::vector<std::uint8_t>& to) {
    constexpr const char* who = "write_block_reply";
    const detail::shape_numbers shape{detail::count_field(who, "rank", r.rank),
                                      detail::count_field(who, "d", r.d),
                                      detail::count_field(who, "tokens", r.tokens)};
    for (std::size_t o = 0; o < r.c1.size(); ++o) {
        detail::check_not_erased<parameter_error>(who, o, r.c1[o]);
    }
    detail::write_of_block<P, Protection>(kind::block_reply, from, r.bytes(), to, [&](byte_writer& body) {
        detail::write_shape(body, shape);
        for (const auto& c1 : r.c1) {
            body.bytes(c1);
        }
    });
}
/// @param to  its memory is used again; unchanged if the message is refused
/// @throws as read_block_request; format_error for a c1 that is all zero
template <ckks::parameter_set P, class Protection>
void read_block_reply(std::span<const std::uint8_t> message,
                      const lora::packing_plan<P, lora::token_blocks, Protection>& plan,
                      lora::block_reply& to) {
    constexpr const char* who = "read_block_reply";
    byte_reader body = detail::open_scheme<P, lora::token_blocks, Protection>(message, kind::block_reply);
    detail::expect_shape(body, who,
                         {static_cast<std::uint32_t>(plan.rank()), static_cast<std::uint32_t>(plan.d()),
                          static_cast<std::uint32_t>(plan.layout().tokens)});
    const auto c1_bytes = [&](std::size_t o) {
        return memory::packed_bytes(P::degree, plan.reply_bits(o));
    };
    std::size_t expected = 0;
    for (std::size_t o = 0; o < plan.outputs(); ++o) {
        expected += c1_bytes(o);
    }
    body.expect(expected);
    byte_reader look = body;
    for (std::size_t o = 0; o < plan.outputs(); ++o) {
        detail::check_not_erased<format_error>(who, o, look.bytes(c1_bytes(o)));
    }
    to.rank = plan.rank();
    to.d = plan.d();
    to.tokens = plan.layout().tokens;
    to.c1.resize(plan.outputs());
    for (std::size_t o = 0; o < plan.outputs(); ++o) {
        detail::take_bytes(body, c1_bytes(o), to.c1[o]);
    }
}

/// @throws parameter_error for a d or position that passes 32 bits
template <ckks::parameter_set P, lora::reply_protection Protection>
void write_token_request(const lora::token_request& r, const envelope& from, std::vector<std::uint8_t>& to) {
    constexpr const char* who = "write_token_request";
    const std::uint32_t d = detail::count_field(who, "d", r.d);
    const std::uint32_t position = detail::count_field(who, "position", r.position);
    detail::write_of_block<P, Protection>(kind::token_request, from, r.bytes(), to, [&](byte_writer& body) {
        body.number<std::uint32_t>(d);
        body.number<std::uint32_t>(position);
        body.number<std::uint64_t>(r.block);
        body.bytes(r.c0);
    });
}
/// @param to  its memory is used again; unchanged if the message is refused
/// @throws as read_block_request
template <ckks::parameter_set P, class Protection>
void read_token_request(std::span<const std::uint8_t> message,
                                 const lora::packing_plan<P, lora::token_blocks, Protection>& plan,
                                 lora::token_request& to) {
    byte_reader body = detail::open_scheme<P, lora::token_blocks, Protection>(message, kind::token_request);
    const auto d = body.number<std::uint32_t>();
    const auto position = body.number<std::uint32_t>();
    const auto block = body.number<std::uint64_t>();
    require<shape_error>(d == plan.d() && position < plan.layout().tokens,
                         {"read_token_request: got position ", position, " of a hidden state of ", d,
                          " entries, expected one below ", plan.layout().tokens, " and ", plan.d(),
                          " entries"});
    const std::size_t bytes = lora::packed_residues_bytes<P>(plan.d());
    body.expect(bytes);
    to.d = d;
    to.position = position;
    to.block = block;
    detail::take_bytes(body, bytes, to.c0);
}

/// @throws parameter_error for a number that passes 32 bits
template <ckks::parameter_set P, lora::reply_protection Protection>
void write_token_reply(const lora::token_reply& r, const envelope& from, std::vector<std::uint8_t>& to) {
    constexpr const char* who = "write_token_reply";
    const detail::shape_numbers shape{detail::count_field(who, "rank", r.rank),
                                      detail::count_field(who, "d", r.d),
                                      detail::count_field(who, "position", r.position)};
    detail::write_of_block<P, Protection>(kind::token_reply, from, r.bytes(), to, [&](byte_writer& body) {
        detail::write_shape(body, shape);
        body.bytes(r.c0);
    });
}
/// @param position  of the request to which it is the reply
/// @throws as read_block_request
template <ckks::parameter_set P, class Protection>
void read_token_reply(std::span<const std::uint8_t> message,
                      const lora::packing_plan<P, lora::token_blocks, Protection>& plan,
                      std::size_t position, lora::token_reply& to) {
    byte_reader body = detail::open_scheme<P, lora::token_blocks, Protection>(message, kind::token_reply);
    detail::expect_shape(body, "read_token_reply",
                         {static_cast<std::uint32_t>(plan.rank()), static_cast<std::uint32_t>(plan.d()),
                          static_cast<std::uint32_t>(position)});
    body.expect(plan.token_reply_bytes());
    to.rank = plan.rank();
    to.d = plan.d();
    to.position = position;
    detail::take_bytes(body, plan.token_reply_bytes(), to.c0);
}

}  // namespace tensafe::wire
