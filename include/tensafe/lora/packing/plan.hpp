#pragma once

#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/layout.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>
#include <tensafe/lora/packing/token_blocks.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// A layout, checked and evaluated once, with which client and server compute; the layout is what travels.
/// Immutable, a few hundred bytes to copy, safe to share between threads.
template <ckks::parameter_set P, class Packing = coefficient_tiles<4>,
          class Protection = protects_adapter_rows<>>
class packing_plan {
    static_assert(reply_protection<Protection>,
                  "lora::packing_plan: the third argument is the protection of replies: for an average-case "
                  "range write "
                  "protects_adapter_rows<average_case<6>>");

  public:
    using layout_type = lora::layout<P, Packing, Protection>;
    using budget_type = decltype(std::declval<const layout_type&>().budget());
    using reply_type = lora::reply<P, Packing, Protection>;
    /// Whether requests and replies are ciphertexts of the whole chain, as those of bare replicated slots.
    static constexpr bool whole_ciphertexts = !std::is_same_v<budget_type, reply_budget>;
    using input_type =
        std::conditional_t<whole_ciphertexts, ckks::seeded_ciphertext<P>, std::vector<std::uint8_t>>;
    using request_type = lora::request<P, input_type>;
    using query_type = lora::query<P, input_type>;

    /// Evaluates a layout.
    /// @throws shape_error or parameter_error for a layout that no matrix has, or that the set cannot hold
    constexpr explicit packing_plan(const lora::layout<P, Packing, Protection>& from)
        : layout_(from),
          budget_(evaluated(from)),
          inputs_(from.inputs()),
          outputs_(from.outputs()),
          subring_log_n_(from.subring_log_n()) {}
    constexpr packing_plan(std::size_t rank, std::size_t d, double row_norm)
        : packing_plan(layout_type{rank, d, row_norm}) {}

    friend bool operator==(const packing_plan& a, const packing_plan& b) { return a.layout_ == b.layout_; }

    constexpr const layout_type& layout() const noexcept { return layout_; }
    constexpr const budget_type& budget() const noexcept { return budget_; }
    constexpr std::size_t rank() const noexcept { return layout_.rank; }
    constexpr std::size_t d() const noexcept { return layout_.d; }
    /// The ciphertexts of a request.
    constexpr std::size_t inputs() const noexcept { return inputs_; }
    constexpr std::size_t entries_per_input() const noexcept { return layout_.entries_per_input(); }
    /// The products of a reply.
    constexpr std::size_t outputs() const noexcept { return outputs_; }
    /// The degree, as a power of two, of the subring of which a product's coefficients count.
    constexpr int subring_log_n() const noexcept { return subring_log_n_; }
    constexpr std::size_t subring_degree() const noexcept { return std::size_t{1} << subring_log_n_; }

    /// The coefficients of c0 that travel in output o.
    constexpr std::size_t targets(std::size_t o) const noexcept { return layout_.targets(o); }
    constexpr int reply_bits(std::size_t o) const noexcept { return layout_.reply_bits(budget_, o); }
    constexpr int noise_bits(std::size_t o) const noexcept { return layout_.noise_bits(budget_, o); }
    /// The bytes of c0 of output o of a protected reply; of blocks it travels token by token.
    constexpr std::size_t c0_bytes(std::size_t o) const noexcept {
        return std::is_same_v<Packing, token_blocks> ? 0 : memory::packed_bytes(targets(o), reply_bits(o));
    }
    constexpr std::size_t c1_bytes(std::size_t o) const noexcept {
        return memory::packed_bytes(P::degree, reply_bits(o));
    }

    /// Calls f(first, count, bits) for the outputs of rows of A, and then for those of checksum rows, if
    /// there are any: they have the same width.
    template <class F>
    constexpr void for_each_width(F&& f) const requires std::is_same_v<Packing, token_blocks> {
        f(std::size_t{0}, rank(), reply_bits(0));
        if (outputs_ > rank()) {
            f(rank(), outputs_ - rank(), reply_bits(rank()));
        }
    }
    /// The bytes of the answers to one token of a block.
    constexpr std::size_t token_reply_bytes() const requires std::is_same_v<Packing, token_blocks> {
        std::size_t bytes = 0;
        for_each_width(
            [&](std::size_t, std::size_t count, int bits) { bytes += memory::packed_bytes(count, bits); });
        return bytes;
    }

  private:
    static constexpr budget_type evaluated(const layout_type& from) {
        detail::check_shape(from.rank, from.d, from.row_norm);
        const budget_type budget = from.budget();
        if constexpr (sizeof(std::size_t) < 8) {
            // The longest that anybody keeps: residues of all ciphertexts, of a request and of a reply.
            require<shape_error>(
                (std::uint64_t{from.inputs()} + from.outputs()) * P::degree * P::basis::limbs * 16 <=
                        std::numeric_limits<std::size_t>::max() &&
                    std::uint64_t{P::degree} * from.d * 16 <= std::numeric_limits<std::size_t>::max(),
                {"packing_plan: a ", from.rank, " x ", from.d, " matrix needs more memory than a machine of ",
                 std::numeric_limits<std::size_t>::digits, " bits has"});
        }
        return budget;
    }

    layout_type layout_;
    budget_type budget_;
    std::size_t inputs_;
    std::size_t outputs_;
    int subring_log_n_;
};

}  // namespace tensafe::lora
