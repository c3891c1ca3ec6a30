#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <unistd.h>
#include <vector>

// The client's half of a block of tokens.

namespace tensafe::lora {

template <ckks::parameter_set P>
class client;

/// A hidden state: a std::vector, array or span of float or double, or any other contiguous range of them.
template <class T>
concept hidden_state = requires(const T& h) {
    { std::size(h) } -> std::convertible_to<std::size_t>;
    requires std::floating_point<std::remove_cvref_t<decltype(*std::data(h))>>;
};

namespace detail {
inline void check_overflow_margin(double overflow_margin) {
    require<parameter_error>(
        overflow_margin >= 1 && overflow_margin <= 0x1p20,
        {"encrypt: got an overflow margin of ", overflow_margin, ", expected 1 to 2^20"});
}

inline void check_scale(double scale) {
    if (!(scale > 0) || !std::isfinite(scale)) {
        throw parameter_error(
            {"decrypt: got a scale of ", scale, ", expected that of the query to which this is the reply"});
    }
}

template <hidden_state State>
auto view_of_state(const State& h) {
    return std::span<const std::remove_cvref_t<decltype(*std::data(h))>>(std::data(h), std::size(h));
}

/// What each entry of a hidden state is multiplied with for a server of such columns: 2^-exponent.
inline std::vector<double> column_factors(std::span<const std::int8_t> exponents) {
    std::vector<double> factors(exponents.size());
    std::transform(exponents.begin(), exponents.end(), factors.begin(),
                   [](std::int8_t e) { return std::ldexp(1.0, -e); });
    return factors;
}

/// Writes the state times these factors.  @throws shape_error unless there are as many
template <class Real>
void scale_columns(std::span<const Real> state, std::span<const double> factors,
                   memory::secret_buffer<double>& to) {
    require<shape_error>(state.size() == factors.size(), {"encrypt: got a hidden state of ", state.size(),
                                                          " entries, expected ", factors.size()});
    const std::span<double> scaled = make_room(to, factors.size());
    for (std::size_t t = 0; t < factors.size(); ++t) {
        scaled[t] = static_cast<double>(state[t]) * factors[t];
    }
}
}  // namespace detail

/// A block of tokens that a client prepared: for each position the mask that hides a hidden
/// state, as secret as the state, and once the server's part has come what its answers are read with, as
/// secret as the key. A position hides one state: its mask is gone when it was read. A message that is lost
/// is sent again as its bytes; whoever encrypts again takes the next position. Gone in the child of a fork;
/// never to be stored. Move-only, wiped on release; for one thread at a time.
template <ckks::parameter_set P, class Protection>
class client_block {
    using basis = typename traced_product<P>::basis;

  public:
    using plan_type = packing_plan<P, token_blocks, Protection>;

    client_block(client_block&&) noexcept = default;
    client_block& operator=(client_block&&) noexcept = default;
    client_block(const client_block&) = delete;  // two copies would hide two states under one mask

    const plan_type& plan() const noexcept { return plan_; }
    /// The request that goes to the server: for the whole block.
    const block_request& request() const noexcept { return request_; }
    /// Whether the server's part was taken in, of all outputs.
    bool is_accepted() const noexcept {
        return !products_.empty() &&
               std::find(is_missing_.begin(), is_missing_.end(), std::uint8_t{1}) == is_missing_.end();
    }
    /// The number of positions that hide nothing yet.
    std::size_t left() const noexcept {
        return ::getpid() == owner_ && !masks_.front().empty() ? request_.tokens - next_ : 0;
    }

    /// Hides a hidden state at the next position: no transform, and no allocation from the second token on.
    /// @param overflow_margin  the scale is divided by it: for another try after range_exceeded_error
    /// @throws shape_error if h has another size; parameter_error for an overflow margin below 1, and if no
    ///         position is left; encoding_error, naming the entry, for NaN and infinity. None uses up a
    ///         position
    template <hidden_state State>
    void encrypt(const State& h, token_query& to, double overflow_margin = 1) {
        hide_scaled<false>(detail::view_of_state(h), to, overflow_margin);
    }
    /// Hides like encrypt, and states that are not finite like client::encrypt_or_zeros.
    template <hidden_state State>
    bool encrypt_or_zeros(const State& h, token_query& to, double overflow_margin = 1) {
        return hide_scaled<true>(detail::view_of_state(h), to, overflow_margin);
    }

    /// Decrypts A*h, rank entries, from the reply to this query. What client::decrypt says holds here.
    /// @throws shape_error or format_error if the reply is for another query or malformed; parameter_error if
    ///         the server's part of the block has not come, or for a query without its scale;
    ///         range_exceeded_error
    void decrypt(const token_reply& r, const token_query& q, std::span<double> answers) {
        require<parameter_error>(is_accepted(),
                                 {"client_block::decrypt: the server's part of this block is missing; call "
                                  "client::accept first"});
        detail::check_scale(q.scale);
        require<shape_error>(r.rank == plan_.rank() && r.d == plan_.d() && r.position == q.request.position &&
                                 r.position < request_.tokens && answers.size() == plan_.rank(),
                             {"client_block::decrypt: got a reply for a ", r.rank, " x ", r.d,
                              " matrix at position ", r.position, " and room for ", answers.size(),
                              " answers, expected a ", plan_.rank(), " x ", plan_.d(), " matrix at position ",
                              q.request.position, " and room for ", plan_.rank(), " answers"});
        check_count("client_block::decrypt: got ", r.c0.size(), " bytes, expected ",
                    plan_.token_reply_bytes());
        std::span<const std::uint8_t> rest = r.c0;
        const auto of_position = products_.span().subspan(r.position * plan_.outputs(), plan_.outputs());
        plan_.for_each_width([&](std::size_t first, std::size_t count, int bits) {
            const std::size_t bytes = memory::packed_bytes(count, bits);
            const std::span<std::uint32_t> c0 = work_.c0.span().first(count);
            memory::unpack_bits(rest.first(bytes), bits, c0);
            rest = rest.subspan(bytes);
            for (std::size_t k = 0; k < count; ++k) {
                work_.coefficients[first + k] = detail::centred_coefficient<basis>(
                    c0[k] + of_position[first + k], bits, plan_.noise_bits(first));
            }
        });
        plan_.layout().rows().collect(plan_.budget(), work_, q.scale, answers);
    }

  private:
    friend class client<P>;
    client_block(const plan_type& plan, std::span<const double> factors)
        : plan_(plan),
          factors_(factors.begin(), factors.end()),
          request_{plan.d(), plan.layout().tokens, {}},
          reals_(plan.d(), memory::uninitialized),
          sums_(plan.d(), memory::uninitialized),
          is_missing_(plan.outputs(), 1) {
        detail::make_room(work_.coefficients, plan.outputs());
        detail::make_room(work_.c0, plan.outputs());
        for (auto& limb : masks_) {
            limb = memory::secret_buffer<arith::word>(request_.tokens * plan.d(), memory::uninitialized);
        }
    }

    template <bool zeros_instead, class Real>
    bool hide_scaled(std::span<const Real> state, token_query& to, double overflow_margin) {
        if (factors_.empty()) {
            return hide<zeros_instead>(state, to, overflow_margin);
        }
        detail::scale_columns(state, factors_, scaled_);
        return hide<zeros_instead>(std::span<const double>(scaled_.span()), to, overflow_margin);
    }

    // Compiled apart, for with 0 in its place no branch may ask whether the state is kept.
    template <bool zeros_instead, class Real>
    bool hide(std::span<const Real> state, token_query& to, double overflow_margin) {
        detail::check_overflow_margin(overflow_margin);
        require<parameter_error>(left() > 0, {"client_block::encrypt: no position is left of ",
                                              request_.tokens, " in this process; prepare another block"});
        const detail::masked_norm of_state(state, plan_.d());
        if constexpr (!zeros_instead) {
            if (of_state.kept == 0) {
                detail::refuse_state(state);
            }
        }
        to.scale = plan_.layout().rows().message_scale(plan_.budget(), of_state.norm) / overflow_margin;
        for (std::size_t k = 0; k < plan_.d(); ++k) {
            reals_[k] = detail::masked(static_cast<double>(state[k]), of_state.kept) * to.scale;
        }
        to.request.d = plan_.d();
        to.request.position = next_++;
        to.request.block = 0;
        to.request.c0.resize(packed_residues_bytes<P>(plan_.d()));
        detail::for_packed_limbs<P>(std::span(to.request.c0), plan_.d(), [&]<int I>(auto bytes, int bits) {
            constexpr arith::word q = basis::template prime<I>;
            const auto mask = masks_[I].span().subspan(to.request.position * plan_.d(), plan_.d());
            rns::limb::round_reals(rns::fixed_arithmetic<q>, sums_.span(), reals_.span());
            rns::limb::add(rns::modulus_of<q>(q), sums_.span(), sums_.span(), mask);
            memory::wipe(mask.data(), mask.size_bytes());
            memory::pack_bits(std::span<const arith::word>(sums_.span()), bits, bytes);
        });
        if (next_ == request_.tokens) {  // only answers are to be read
            masks_ = {};
        }
        memory::wipe(reals_.data(), reals_.size() * sizeof(double));
        return of_state.kept != 0;
    }

    plan_type plan_;
    std::vector<double> factors_;  ///< of the entries of each hidden state, or none
    block_request request_;
    std::size_t next_ = 0;
    pid_t owner_ = ::getpid();
    /// Limb I has d residues of position 0, then of position 1, ...
    std::array<memory::secret_buffer<arith::word>, static_cast<std::size_t>(basis::limbs)> masks_;
    memory::secret_buffer<arith::word> products_;  ///< each output at position 0, then at position 1, ...
    memory::secret_buffer<double> reals_;
    memory::secret_buffer<double> scaled_;
    memory::secret_buffer<arith::word> sums_;
    std::vector<std::uint8_t> is_missing_;  ///< of each output, whether the server's part is
    decryption_workspace<P> work_;
};

}  // namespace tensafe::lora
