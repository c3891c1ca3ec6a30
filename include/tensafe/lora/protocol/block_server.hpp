#pragma once

#include <tensafe/ckks/flooding.hpp>
#include <tensafe/ckks/rerandomization.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/protocol/block_weights.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>
#include <tensafe/random/input_hash.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tensafe::lora {

template <ckks::parameter_set P, class Packing, class Protection>
class server;

/// What a server keeps of a block that it prepared for a client: for each position the coefficients of the
/// encryptions of zero that its answer gets. Each position is answered once, in any order. Belongs to one
/// client, and to the version of A that prepared it. Move-only, wiped on release; for one thread at a time.
template <ckks::parameter_set P>
class server_block {
  public:
    server_block() = default;
    server_block(server_block&&) noexcept = default;
    server_block& operator=(server_block&&) noexcept = default;
    server_block(const server_block&) = delete;  // two copies would answer a position twice

    std::size_t tokens() const noexcept { return used_.size(); }
    /// Positions that were not answered.
    std::size_t left() const noexcept { return left_; }
    /// Whether this position can still be answered.
    bool is_open(std::size_t position) const noexcept { return position < used_.size() && !used_[position]; }

  private:
    template <ckks::parameter_set, class, class>
    friend class server;
    using basis = typename traced_product<P>::basis;

    const void* of_ = nullptr;    ///< the server
    pid_t owner_ = ::getpid();  ///< the child of a fork must not answer what its parent does
    std::size_t left_ = 0;
    std::vector<bool> used_;
    random::seed flood_secret_;
    /// Limb I: a word for each output of position 0, then of position 1, ...
    std::array<memory::secret_buffer<arith::word>, static_cast<std::size_t>(basis::limbs)> c0_;
};

/// Memory that a server of blocks works in, one for each thread: from the second token on nothing is
/// allocated.
template <ckks::parameter_set P>
struct block_workspace {
    using basis = typename traced_product<P>::basis;

    detail::block_products_workspace<P> products;
    std::vector<rns::secret_poly<basis, rns::coefficient_form>> c1;
    std::array<memory::buffer<arith::word>, static_cast<std::size_t>(basis::limbs)> token;
    std::array<memory::secret_buffer<arith::word>, static_cast<std::size_t>(basis::limbs)> sums;
    memory::buffer<std::uint32_t> switched{P::degree, memory::uninitialized};
    random::generator generator;  ///< of flood secrets; to give one that is not the default is for tests
};

/// Applies A to the tokens of blocks. What takes time is done before the tokens exist: `prepare`; `answer` is
/// `rank` inner products of 32-bit integers. Immutable: any number of threads may use it, each with its own
/// workspace.
template <ckks::parameter_set P, class Protection>
class server<P, token_blocks, Protection> {
    using basis = typename traced_product<P>::basis;

  public:
    using plan_type = packing_plan<P, token_blocks, Protection>;
    using layout_type = typename plan_type::layout_type;
    using workspace = block_workspace<P>;

    /// @throws as server of single tokens; parameter_error too if there are more tokens than a client that
    ///         cheats may have under one encryption of zero
    server(const matrix& a, std::size_t tokens) : server(a, tokens, most_targets<P, Protection>) {}
    server(const matrix& a, std::size_t tokens, trusts_clients) : server(a, tokens, P::degree) {}
    server(const matrix& a, std::size_t tokens, const ckks::secret_key<P>&) = delete;

    const plan_type& plan() const noexcept { return plan_; }
    const layout_type& layout() const noexcept { return plan_.layout(); }

    ckks::rerandomization_pool<P, request_level<P>> pool(
        const random::seed& nonce, ckks::rerandomization_key<P, request_level<P>> key,
        random::generator generator = random::generator()) const {
        return {nonce, std::move(key), plan_.subring_log_n(), std::move(generator)};
    }

    /// Everything that does not depend on tokens. Takes plan().outputs() encryptions of zero, which belong to
    /// this block for good: to ask again, send the same bytes, or prepare another block.
    /// @throws shape_error for another layout; parameter_error for a pool of another degree; entropy_error
    void prepare(const block_request& r, ckks::rerandomization_pool<P, request_level<P>>& zeros,
                 workspace& work, server_block<P>& block, block_reply& to) const {
        require<shape_error>(r.d == plan_.d() && r.tokens == plan_.layout().tokens,
                             {"server::prepare: got a block of ", r.tokens, " hidden states of ", r.d,
                              " entries, expected ", plan_.layout().tokens, " of ", plan_.d(), " entries"});
        require<parameter_error>(
            zeros.subring_log_n() == plan_.subring_log_n(),
            {"server::prepare: got encryptions of zero traced to degree 2^", zeros.subring_log_n(),
             ", expected 2^", plan_.subring_log_n(), ", the plan's subring_log_n()"});
        const std::size_t tokens = plan_.layout().tokens;
        server_block<P> made;
        made.of_ = this;
        made.used_.resize(tokens);
        made.left_ = tokens;
        for (auto& limb : made.c0_) {
            limb = memory::secret_buffer<arith::word>(tokens * plan_.outputs(), memory::uninitialized);
        }
        take_zeros(r, zeros, work, made);
        work.c1.resize(plan_.outputs());
        to.rank = plan_.rank();
        to.d = plan_.d();
        to.tokens = tokens;
        to.c1.resize(plan_.outputs());
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr arith::word q = basis::template prime<I>;
            weights_.template multiply_limb<I>(
                r.seed, plan_.outputs(), work.products,
                [&](std::size_t o, std::span<const arith::word> product) {
                    const auto limb = work.c1[o].template limb<I>();
                    rns::limb::add(rns::modulus_of<q>(q), limb, limb, product);
                });
        });
        for (std::size_t o = 0; o < plan_.outputs(); ++o) {
            const int bits = plan_.reply_bits(o);
            rns::switch_modulus(work.c1[o], bits, work.switched.span());
            to.c1[o].resize(memory::packed_bytes(P::degree, bits));
            memory::pack_bits(std::span<const std::uint32_t>(work.switched.span()), bits,
                              std::span(to.c1[o]));
        }
        block = std::move(made);
    }

    /// Answers a token. Its position is used up before anything is computed.
    /// @throws shape_error, format_error for a request that is malformed, which uses up nothing;
    ///         parameter_error for a block of another server, or a position that was answered
    void answer(server_block<P>& block, const token_request& r, workspace& work, token_reply& to) const {
        require<parameter_error>(block.of_ == this && block.owner_ == ::getpid(),
                                 {"server::answer: got a block that another process or version of A "
                                  "prepared; prepare one here"});
        require<shape_error>(r.d == plan_.d() && r.position < block.tokens(),
                             {"server::answer: got position ", r.position, " of a hidden state of ", r.d,
                              " entries, expected one below ", block.tokens(), " and ", plan_.d(), " entries"});
        check_count("server::answer: got ", r.c0.size(), " bytes, expected ",
                    packed_residues_bytes<P>(plan_.d()));
        require<parameter_error>(!block.used_[r.position],
                                 {"server::answer: position ", r.position,
                                  " of this block was answered already; encrypt anew at the next one"});
        std::span<const std::uint8_t> rest = r.c0;
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr arith::word q = basis::template prime<I>;
            constexpr int bits = std::bit_width(q);
            const std::size_t bytes = memory::packed_bytes(plan_.d(), bits);
            detail::make_room(work.token[I], plan_.d());
            require<format_error>(
                memory::unpack_bits_below(rest.first(bytes), bits, q, work.token[I].span()),
                {"server::answer: a residue of limb ", I, " is not below its prime ", q});
            rest = rest.subspan(bytes);
        });
        block.used_[r.position] = true;
        --block.left_;

        const std::size_t outputs = plan_.outputs();
        random::seed seed;
        const memory::wipe_guard seed_guard(seed);
        std::array<std::span<arith::word>, static_cast<std::size_t>(basis::limbs)> sums;
        {
            random::input_hash covered(block.flood_secret_);
            covered.add(std::span(&r.position, 1));
            rns::for_each_limb<basis>([&]<int I>() {
                constexpr arith::word q = basis::template prime<I>;
                detail::make_room(work.sums[I], outputs);
                sums[I] = work.sums[I].span();
                weights_.template multiply_token<I>(work.token[I].span(), sums[I]);
                const auto of_position = block.c0_[I].span().subspan(r.position * outputs, outputs);
                rns::limb::add(rns::modulus_of<q>(q), sums[I], sums[I], of_position);
                memory::wipe(of_position.data(), of_position.size_bytes());
                covered.add(std::span<const arith::word>(sums[I]));
            });
            seed = covered.result();
        }
        ckks::add_flood<basis>(plan_.budget().flood, seed, static_cast<std::uint32_t>(r.position), sums);
        to.rank = plan_.rank();
        to.d = plan_.d();
        to.position = r.position;
        to.c0.resize(plan_.token_reply_bytes());
        std::size_t first = 0;
        std::span<std::uint8_t> out = to.c0;
        for (const std::size_t count : {plan_.rank(), outputs - plan_.rank()}) {
            if (count == 0) {
                continue;
            }
            const int bits = plan_.reply_bits(first);
            std::array<std::span<const arith::word>, static_cast<std::size_t>(basis::limbs)> part;
            std::ranges::transform(sums, part.begin(),
                                   [&](std::span<arith::word> x) { return x.subspan(first, count); });
            const std::span<std::uint32_t> switched = work.switched.span().first(count);
            rns::switch_modulus<basis>(part, bits, switched);
            const std::size_t bytes = memory::packed_bytes(count, bits);
            memory::pack_bits(std::span<const std::uint32_t>(switched), bits, out.first(bytes));
            out = out.subspan(bytes);
            first += count;
        }
    }

  private:
    server(const matrix& a, std::size_t tokens, std::size_t largest_targets)
        : plan_(layout_type::of(a.rows, a.columns, detail::public_row_norm(a), tokens)),
          weights_(plan_, a),
          identity_(random::input_hash::of(a.values, std::array{a.rows, a.columns})) {
        require<parameter_error>(tokens <= largest_targets,
                                 {"server: got ", tokens,
                                  " target coefficients under one encryption of zero, expected at most ",
                                  largest_targets, "; pass lora::trusts_clients if no client cheats"});
    }

    /// c1 of the zeros in coefficient form with its error, and their c0 at all positions.
    void take_zeros(const block_request& r, ckks::rerandomization_pool<P, request_level<P>>& zeros,
                    workspace& work, server_block<P>& made) const {
        std::array<std::uint8_t, 2 * random::seed_bytes> product;
        std::ranges::copy(identity_.bytes, std::ranges::copy(r.seed.bytes, product.begin()).out);
        {
            const auto hedging = work.generator.hedge(product);
            made.flood_secret_ = work.generator.next_seed();
        }
        std::vector<typename ckks::rerandomization_pool<P, request_level<P>>::reservation> reserved;
        zeros.reserve(plan_.outputs(), product, reserved);
        work.c1.clear();
        for (std::size_t o = 0; o < plan_.outputs(); ++o) {
            auto zero = zeros.acquire(std::move(reserved[o]));
            work.c1.push_back(rns::inverse(std::move(zero.c1)));
            ckks::add_small(zero.e1.span(), work.c1.back());
            rns::for_each_limb<basis>([&]<int I>() {
                constexpr arith::word q = basis::template prime<I>;
                ckks::block_sums_to_coefficients<P::log_n, q>(zero.log_n, zero.c0[I].span());
                rns::limb::add_small(rns::modulus_of<q>(q), zero.c0[I].span(), zero.e0.span());
                for (std::size_t t = 0; t < made.tokens(); ++t) {
                    made.c0_[I][t * plan_.outputs() + o] = zero.c0[I][t];
                }
            });
        }
    }

    plan_type plan_;
    detail::block_weights<P, Protection> weights_;
    random::seed identity_;  ///< a hash of A, for hedged seeds
};

}  // namespace tensafe::lora
