#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/lora/packing/protection.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>
#include <tensafe/rns/poly.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/ciphertext.hpp>
#include <tensafe/wire/fields.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/scheme.hpp>
#include <tensafe/wire/set_id.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// Messages of the classic packing, `replicated_slots` with bare replies, which reveal the rows of A: for
// measurements, and for adapters that are no secret.

namespace tensafe::wire {

namespace detail {

/// Into a polynomial that may have been moved from, or may not be there yet.
template <class Basis>
void read_into(byte_reader& body, const char* which, rns::poly<Basis, rns::evaluation_form>& p) {
    if (p.words().empty()) {
        p = rns::poly<Basis, rns::evaluation_form>(memory::uninitialized);
    }
    read_polynomial(body, which, p);
}

template <class Basis>
void check_written(const char* who, const rns::poly<Basis, rns::evaluation_form>& p) {
    if (p.words().empty()) {
        throw shape_error(std::string(who) + ": got a polynomial whose words were taken away");
    }
}

/// Refuses a c1 that is zero modulo a prime, but for the product of a zero matrix: c0 is then zero too.
template <class Error, class Basis>
void check_hidden(const char* who, const rns::poly<Basis, rns::evaluation_form>& c0,
                  const rns::poly<Basis, rns::evaluation_form>& c1) {
    rns::for_each_limb<Basis>(
        [&]<int I>() { check_hidden_limb<Error>(who, I, c0.template limb<I>(), c1.template limb<I>()); });
}

/// What client::decrypt accepts.
template <ckks::parameter_set P, class Packing>
void check_reply_scale(const char* who, double scale) {
    constexpr double wanted = Packing::template reply_scale<P>;
    if (!(std::fabs(scale - wanted) <= 1e-12 * wanted)) {
        throw parameter_error(std::string(who) + ": got a ciphertext of scale " + shortest_text(scale) +
                              ", expected " + shortest_text(wanted));
    }
}

}  // namespace detail

/// Writes a request of the classic packing as a message of r.bytes() bytes: kind slot_request, the ids of set
/// and scheme. Body: d, stride, number of ciphertexts; of each the seed of c1, and c0 as residues of all
/// limbs, bit-packed. Its scale is P::scale and does not travel.
/// @tparam Packing  of the layout for which it was encrypted
/// @param to  overwritten; a vector that had such a message before allocates nothing
/// @throws parameter_error for another scale, or a d, stride or number that passes 32 bits; shape_error for a
///         ciphertext whose words were taken away
template <class Packing, ckks::parameter_set P>
void write_slot_request(const lora::slot_request<P>& r, const envelope& from, std::vector<std::uint8_t>& to) {
    constexpr const char* who = "write_slot_request";
    for (const auto& input : r.inputs) {
        detail::check_written(who, input.c0);
        if (input.scale != P::scale) {
            throw parameter_error(std::string(who) + ": got a ciphertext of scale " +
                                  shortest_text(input.scale) + ", expected " + shortest_text(P::scale));
        }
    }
    const detail::shape_numbers shape{detail::count_field(who, "d", r.d),
                                      detail::count_field(who, "stride", r.stride),
                                      detail::count_field(who, "the number of inputs", r.inputs.size())};
    constexpr std::uint64_t scheme = scheme_id<Packing, lora::reveals_adapter_rows>;
    write_message(
        {kind::slot_request, set_id<P>, scheme, from.number, from.group, r.bytes() - detail::frame_bytes}, to,
        [&](byte_writer& body) {
            detail::write_shape(body, shape);
            for (const auto& input : r.inputs) {
                body.bytes(input.seed.bytes);
                write_polynomial(input.c0, body);
            }
        });
}
template <class Packing, ckks::parameter_set P>
std::vector<std::uint8_t> write_slot_request(const lora::slot_request<P>& r, const envelope& from = {}) {
    std::vector<std::uint8_t> message;
    write_slot_request<Packing>(r, from, message);
    return message;
}

/// Reads a request of the classic packing that was made for this layout.
/// @param message  of anybody
/// @param l        the reader's own
/// @param to       its memory is used again. If a residue is refused it has other contents
/// @throws as open_frame; shape_error for a request that was made for another layout, naming both;
///         format_error for a body of another length, or a residue that is not below its prime;
///         parameter_error or shape_error as slot_layout::check
template <ckks::parameter_set P, class Packing>
void read_slot_request(std::span<const std::uint8_t> message, const lora::slot_layout<P, Packing>& l,
                       lora::slot_request<P>& to) {
    l.check();
    byte_reader body =
        detail::open_scheme<P, Packing, lora::reveals_adapter_rows>(message, kind::slot_request);
    const auto [d, stride, inputs] = detail::read_shape(body);
    if (d != l.d || stride != l.stride || inputs != l.inputs) {
        const auto text = [](std::size_t entries, std::size_t g, std::size_t ciphertexts) {
            return std::to_string(entries) + " entries with stride " + std::to_string(g) + " in " +
                   std::to_string(ciphertexts) + " ciphertexts";
        };
        throw shape_error("read_slot_request: got a request of " + text(d, stride, inputs) + ", expected " +
                          text(l.d, l.stride, l.inputs));
    }
    constexpr std::size_t input_bytes = random::seed_bytes + rns::packed_bytes<typename P::basis>();
    body.expect(l.inputs * input_bytes);  // both below 2^32
    to.d = l.d;
    to.stride = l.stride;
    to.inputs.resize(l.inputs);
    for (std::size_t i = 0; i < l.inputs; ++i) {
        to.inputs[i].scale = P::scale;
        to.inputs[i].seed.bytes = body.array<random::seed_bytes>();
        detail::read_into(body, "c0", to.inputs[i].c0);
    }
}
template <ckks::parameter_set P, class Packing>
lora::slot_request<P> read_slot_request(std::span<const std::uint8_t> message,
                                        const lora::slot_layout<P, Packing>& l) {
    lora::slot_request<P> result;
    read_slot_request(message, l, result);
    return result;
}

/// Writes the reply of the classic packing as a message of r.bytes() bytes: kind slot_reply, the ids of set
/// and scheme. Body: rank, d, number of ciphertexts; of each the scale, and c0 and c1 as residues,
/// bit-packed, limb after limb.
/// @param to  overwritten; a vector that had such a message before allocates nothing
/// @throws parameter_error for a scale that client::decrypt refuses, a c1 that is zero modulo a prime where
///         c0 is not: that would show the product, or a number that passes 32 bits; shape_error for a
///         ciphertext whose words were taken away
template <ckks::parameter_set P, class Rows, class Replies>
void write_slot_reply(
    const lora::reply<P, lora::replicated_slots<Rows, Replies>, lora::reveals_adapter_rows>& r,
    const envelope& from, std::vector<std::uint8_t>& to) {
    constexpr const char* who = "write_slot_reply";
    using packing = lora::replicated_slots<Rows, Replies>;
    for (const auto& product : r.products) {
        detail::check_written(who, product.c0);
        detail::check_written(who, product.c1);
        detail::check_hidden<parameter_error>(who, product.c0, product.c1);
        detail::check_reply_scale<P, packing>(who, product.scale);
    }
    const detail::shape_numbers shape{detail::count_field(who, "rank", r.rank),
                                      detail::count_field(who, "d", r.d),
                                      detail::count_field(who, "the number of products", r.products.size())};
    constexpr std::uint64_t scheme = scheme_id<packing, lora::reveals_adapter_rows>;
    write_message(
        {kind::slot_reply, set_id<P>, scheme, from.number, from.group, r.bytes() - detail::frame_bytes}, to,
        [&](byte_writer& body) {
            detail::write_shape(body, shape);
            for (const auto& product : r.products) {
                body.number<double>(product.scale);
                write_polynomial(product.c0, body);
                write_polynomial(product.c1, body);
            }
        });
}
template <ckks::parameter_set P, class Rows, class Replies>
std::vector<std::uint8_t> write_slot_reply(
    const lora::reply<P, lora::replicated_slots<Rows, Replies>, lora::reveals_adapter_rows>& r,
    const envelope& from = {}) {
    std::vector<std::uint8_t> message;
    write_slot_reply(r, from, message);
    return message;
}

/// Reads the reply of the classic packing.
/// @param message  of anybody
/// @param l        the reader's own
/// @param to       its memory is used again. If a scale, a residue or a c1 is refused it has other contents
/// @throws as open_frame; shape_error for a reply to something else, naming both;
///         format_error for a body of another length, a residue that is not below its prime, or a c1 that is
///         zero modulo a prime where c0 is not; parameter_error for a scale that is not the packing's;
///         parameter_error or shape_error as slot_layout::check
template <ckks::parameter_set P, class Rows, class Replies>
void read_slot_reply(std::span<const std::uint8_t> message,
                     const lora::slot_layout<P, lora::replicated_slots<Rows, Replies>>& l,
                     lora::reply<P, lora::replicated_slots<Rows, Replies>, lora::reveals_adapter_rows>& to) {
    constexpr const char* who = "read_slot_reply";
    using packing = lora::replicated_slots<Rows, Replies>;
    using basis = typename P::template basis_at<packing::template reply_level<P>>;
    l.check();
    byte_reader body = detail::open_scheme<P, packing, lora::reveals_adapter_rows>(message, kind::slot_reply);
    const auto [rank, d, products] = detail::read_shape(body);
    if (rank != l.rank || d != l.d || products != l.outputs) {
        const auto text = [](std::size_t rows, std::size_t columns, std::size_t ciphertexts) {
            return std::to_string(rows) + " x " + std::to_string(columns) + " matrix in " +
                   std::to_string(ciphertexts) + " ciphertexts";
        };
        throw shape_error(std::string(who) + ": got a reply for a " + text(rank, d, products) +
                          ", expected a " + text(l.rank, l.d, l.outputs));
    }
    body.expect(l.outputs * (sizeof(double) + 2 * rns::packed_bytes<basis>()));  // below 2^64
    to.rank = l.rank;
    to.d = l.d;
    to.products.resize(l.outputs);
    for (std::size_t o = 0; o < l.outputs; ++o) {
        auto& product = to.products[o];
        product.scale = body.number<double>();
        detail::check_reply_scale<P, packing>(who, product.scale);
        detail::read_into(body, "c0", product.c0);
        detail::read_into(body, "c1", product.c1);
        detail::check_hidden<format_error>(who, product.c0, product.c1);
    }
}
template <ckks::parameter_set P, class Rows, class Replies>
lora::reply<P, lora::replicated_slots<Rows, Replies>, lora::reveals_adapter_rows> read_slot_reply(
    std::span<const std::uint8_t> message,
    const lora::slot_layout<P, lora::replicated_slots<Rows, Replies>>& l) {
    lora::reply<P, lora::replicated_slots<Rows, Replies>, lora::reveals_adapter_rows> result;
    read_slot_reply(message, l, result);
    return result;
}

}  // namespace tensafe::wire
