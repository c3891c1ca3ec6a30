#pragma once

#include <tensafe/ckks/flooding.hpp>
#include <tensafe/ckks/rerandomization.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/exec/host.hpp>
#include <tensafe/lora/protocol/block_weights.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>
#include <tensafe/random/input_hash.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tensafe::lora {

template <ckks::parameter_set P, class Packing, class Protection>
class server;

namespace detail {
struct server_internals;
}

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
    std::size_t left() const noexcept {
        return static_cast<std::size_t>(std::ranges::count(used_, std::uint8_t{0}));
    }
    /// Whether this position can still be answered.
    bool is_open(std::size_t position) const noexcept {
        return position < used_.size() && used_[position] == 0;
    }

  private:
    template <ckks::parameter_set, class, class>
    friend class server;
    using basis = typename traced_product<P>::basis;

    std::uint64_t of_ = 0;      ///< the server's number
    pid_t owner_ = ::getpid();  ///< the child of a fork must not answer what its parent does
    std::vector<std::uint8_t> used_;
    random::seed flood_secret_;
    /// Limb I: a word for each output of position 0, then of position 1, ...
    std::array<memory::secret_buffer<arith::word>, static_cast<std::size_t>(basis::limbs)> c0_;
};

/// Memory that a server of blocks works in: from the second token on nothing is allocated.
template <ckks::parameter_set P>
struct block_workspace {
    using basis = typename traced_product<P>::basis;

    /// For one thread.
    struct slot {
        detail::block_products_workspace<P> products;
        std::array<memory::buffer<arith::word>, static_cast<std::size_t>(basis::limbs)> token;
        std::array<memory::secret_buffer<arith::word>, static_cast<std::size_t>(basis::limbs)> sums;
        memory::buffer<std::uint32_t> switched{P::degree, memory::uninitialized};
    };

    std::vector<slot> slots = std::vector<slot>(1);
    std::vector<rns::secret_poly<basis, rns::coefficient_form>> c1;
    std::vector<typename ckks::rerandomization_pool<P, request_level<P>>::reservation> reservations;
    memory::buffer<std::uint32_t> answers;  ///< of a batch: of each output for all tokens
    random::generator generator;  ///< of flood secrets; to give one that is not the default is for tests
    work_count work;              ///< added up over calls
};

/// Applies A to the tokens of blocks. What takes time is done before the tokens exist: `prepare`; `answer` is
/// inner products of 32-bit integers. Immutable: any number of threads may use it, each with its own
/// workspace.
template <ckks::parameter_set P, class Protection>
class server<P, token_blocks, Protection> {
    using basis = typename traced_product<P>::basis;
    using zero_pool = ckks::rerandomization_pool<P, request_level<P>>;

  public:
    using plan_type = packing_plan<P, token_blocks, Protection>;
    using layout_type = typename plan_type::layout_type;
    using request_type = typename plan_type::request_type;
    using reply_type = typename plan_type::reply_type;
    using workspace = block_workspace<P>;

    /// Packs A (rank x d), once, for blocks of so many tokens.
    /// @throws as server of single tokens; parameter_error too for more tokens than a client that cheats may
    ///         have under one encryption of zero: most_targets
    server(const matrix& a, std::size_t tokens) : server(a, tokens, most_targets<P, Protection>) {}
    server(const matrix& a, std::size_t tokens, trusts_clients) : server(a, tokens, P::degree) {}
    server(const matrix& a, std::size_t tokens, const ckks::secret_key<P>&) = delete;

    const plan_type& plan() const noexcept { return plan_; }
    const layout_type& layout() const noexcept { return plan_.layout(); }

    /// As server::pool of single tokens.
    zero_pool pool(const random::seed& nonce, ckks::rerandomization_key<P, request_level<P>> key,
                   random::generator generator = random::generator()) const {
        return {nonce, std::move(key), plan_.subring_log_n(), std::move(generator)};
    }

    /// Everything that does not depend on tokens. Takes plan().outputs() encryptions of zero, which belong to
    /// this block for good: if the reply is lost, send its bytes again, or prepare another block.
    /// @throws shape_error for another layout; parameter_error for a pool of another degree; entropy_error
    template <exec::host_execution Where>
    void prepare(const Where& where, const block_request& r, zero_pool& zeros, workspace& work,
                 server_block<P>& block, block_reply& to) const {
        const std::size_t tokens = plan_.layout().tokens;
        check(r, zeros);
        server_block<P> made;
        made.of_ = number_;
        made.used_.resize(tokens);
        for (auto& limb : made.c0_) {
            limb = memory::secret_buffer<arith::word>(tokens * plan_.outputs(), memory::uninitialized);
        }
        to.rank = plan_.rank();
        to.d = plan_.d();
        to.tokens = tokens;
        to.c1.resize(plan_.outputs());
        work.work.products += plan_.inputs() * plan_.outputs();
        work.work.transforms +=
            (plan_.inputs() + 2 * plan_.outputs()) * static_cast<std::size_t>(basis::limbs);
        if (work.slots.size() < where.threads()) {
            work.slots.resize(where.threads());
        }
        take_zeros(where, r.seed, zeros, work, made);
        constexpr std::size_t at_once = detail::block_weights<P, Protection>::outputs_at_once;
        constexpr auto limbs = static_cast<std::size_t>(basis::limbs);
        where.for_each(detail::ceil_divide(plan_.outputs(), at_once) * limbs,
                       [&](std::size_t job, std::size_t slot) {
                           const std::size_t first = job / limbs * at_once;
                           add_products(job % limbs, r.seed, first,
                                        std::min(at_once, plan_.outputs() - first), work.slots[slot], work);
                       });
        where.for_each(plan_.outputs(), [&](std::size_t o, std::size_t slot) {
            const int bits = plan_.reply_bits(o);
            const std::span<std::uint32_t> switched = work.slots[slot].switched.span();
            rns::switch_modulus(work.c1[o], bits, switched);
            to.c1[o].resize(memory::packed_bytes(P::degree, bits));
            memory::pack_bits(std::span<const std::uint32_t>(switched), bits, std::span(to.c1[o]));
        });
        block = std::move(made);
    }
    void prepare(const block_request& r, zero_pool& zeros, workspace& work, server_block<P>& block,
                 block_reply& to) const {
        prepare(exec::host{}, r, zeros, work, block, to);
    }

    /// Answers a token. Its position is used up before anything is computed.
    /// @throws shape_error, format_error for a request that is malformed, which uses up nothing;
    ///         parameter_error for a block of another server or process, or a position that was answered
    void answer(server_block<P>& block, const token_request& r, workspace& work, token_reply& to) const {
        require<shape_error>(r.d == plan_.d(), {"server::answer: got a hidden state of ", r.d,
                                                " entries, expected ", plan_.d()});
        auto& slot = work.slots.front();
        const std::span<std::uint32_t> numbers = slot.switched.span().first(plan_.outputs());
        answer_position(block, r.position, r.c0, slot, numbers.data(), 1);
        to.rank = plan_.rank();
        to.d = plan_.d();
        to.position = r.position;
        to.c0.resize(plan_.token_reply_bytes());
        std::span<std::uint8_t> out = to.c0;
        plan_.for_each_width([&](std::size_t first, std::size_t count, int bits) {
            const std::size_t bytes = memory::packed_bytes(count, bits);
            memory::pack_bits(std::span<const std::uint32_t>(numbers.subspan(first, count)), bits,
                              out.first(bytes));
            out = out.subspan(bytes);
        });
    }

    /// A block whose tokens are all there, as a prompt's: prepared and answered at once.
    struct task {
        const request_type* from = nullptr;
        zero_pool* zeros = nullptr;
        reply_type* to = nullptr;
    };
    /// @throws as prepare and answer; parameter_error also if a task lacks a part. Nothing is used up then
    template <exec::host_execution Where>
    void apply(const Where& where, std::span<const task> tasks, workspace& work) const {
        for (std::size_t i = 0; i < tasks.size(); ++i) {  // before any encryption of zero is used up
            check(tasks[i], i, work.slots.front());
        }
        for (const task& t : tasks) {
            const std::size_t tokens = t.from->inputs.size();
            server_block<P> block;
            block_reply c1;
            prepare(where, whole_block(*t.from), *t.zeros, work, block, c1);
            detail::make_room(work.answers, plan_.outputs() * tokens);
            where.for_each(tokens, [&](std::size_t k, std::size_t slot) {
                answer_position(block, k, t.from->inputs[k], work.slots[slot], &work.answers[k], tokens);
            });
            t.to->rank = plan_.rank();
            t.to->d = plan_.d();
            t.to->tokens = tokens;
            t.to->outputs.resize(plan_.outputs());
            for (std::size_t o = 0; o < plan_.outputs(); ++o) {
                const int bits = plan_.reply_bits(o);
                t.to->outputs[o].c1 = std::move(c1.c1[o]);
                t.to->outputs[o].c0.resize(memory::packed_bytes(tokens, bits));
                memory::pack_bits(
                    std::span<const std::uint32_t>(work.answers.span().subspan(o * tokens, tokens)), bits,
                    std::span(t.to->outputs[o].c0));
            }
        }
    }
    void apply(std::span<const task> tasks, workspace& work) const { apply(exec::host{}, tasks, work); }
    void apply(const request_type& r, zero_pool& zeros, workspace& work, reply_type& to) const {
        const task one{&r, &zeros, &to};
        apply(exec::host{}, std::span(&one, 1), work);
    }
    reply_type apply(const request_type& r, zero_pool& zeros) const {
        workspace work;
        reply_type result;
        apply(r, zeros, work, result);
        return result;
    }
    reply_type apply(const request_type&) const = delete;  // replies need the client's rerandomization_pool

  private:
    friend struct detail::server_internals;

    server(const matrix& a, std::size_t tokens, std::size_t largest_targets)
        : plan_(layout_type::of(a.rows, a.columns, detail::public_row_norm(a), tokens)),
          weights_(plan_, a),
          identity_(random::input_hash::of(a.values, std::array{a.rows, a.columns})) {
        detail::check_targets(tokens, largest_targets);
    }

    block_request whole_block(const request_type& r) const noexcept {
        return {r.d, plan_.layout().tokens, r.seed};
    }
    void check(const block_request& r, const zero_pool& zeros) const {
        require<shape_error>(r.d == plan_.d() && r.tokens == plan_.layout().tokens,
                             {"server: got a block of ", r.tokens, " hidden states of ", r.d,
                              " entries, expected ", plan_.layout().tokens, " of ", plan_.d(), " entries"});
        require<parameter_error>(
            zeros.subring_log_n() == plan_.subring_log_n(),
            {"server: got encryptions of zero traced to degree 2^", zeros.subring_log_n(), ", expected 2^",
             plan_.subring_log_n(), ", the plan's subring_log_n()"});
    }
    void check(const task& t, std::size_t i, typename workspace::slot& slot) const {
        require<parameter_error>(
            t.from != nullptr && t.to != nullptr && t.zeros != nullptr,
            {"server::apply: task ", i, " has no ",
             (t.from == nullptr ? "request (from)"
              : t.to == nullptr ? "reply (to)"
                                : "encryptions of zero (zeros)")});
        check(whole_block(*t.from), *t.zeros);
        const std::size_t tokens = t.from->inputs.size();
        require<shape_error>(t.from->block == plan_.entries_per_input() && t.from->tokens == tokens &&
                                 tokens != 0 && tokens <= plan_.layout().tokens,
                             {"server::apply: got a request of ", t.from->tokens, " hidden states in ", tokens,
                              " parts, ", t.from->block, " entries in a ciphertext, expected 1 to ",
                              plan_.layout().tokens, " hidden states and ", plan_.entries_per_input(),
                              " entries"});
        for (const auto& c0 : t.from->inputs) {
            unpack(c0, slot);
        }
    }
    void unpack(std::span<const std::uint8_t> c0, typename workspace::slot& slot) const {
        check_count("server: got a hidden state of ", c0.size(), " bytes, expected ",
                    packed_residues_bytes<P>(plan_.d()));
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr arith::word q = basis::template prime<I>;
            constexpr int bits = std::bit_width(q);
            const std::size_t bytes = memory::packed_bytes(plan_.d(), bits);
            detail::make_room(slot.token[I], plan_.d());
            require<format_error>(memory::unpack_bits_below(c0.first(bytes), bits, q, slot.token[I].span()),
                                  {"server: a residue of limb ", I, " is not below its prime ", q});
            c0 = c0.subspan(bytes);
        });
    }

    /// Not the address, which a later version may get.
    static std::uint64_t next_number() noexcept {
        static std::atomic<std::uint64_t> last{0};
        return ++last;
    }

    /// c1 of the zeros in coefficient form with its error, and their c0 at all positions.
    template <class Where>
    void take_zeros(const Where& where, const random::seed& seed, zero_pool& zeros, workspace& work,
                    server_block<P>& made) const {
        std::array<std::uint8_t, 2 * random::seed_bytes> product;  // whether c1 times A is the same again
        std::ranges::copy(identity_.bytes, std::ranges::copy(seed.bytes, product.begin()).out);
        {
            const auto hedging = work.generator.hedge(product);
            made.flood_secret_ = work.generator.next_seed();
        }
        work.reservations.clear();
        zeros.reserve(plan_.outputs(), product, work.reservations);
        if (work.c1.size() < plan_.outputs()) {
            work.c1.resize(plan_.outputs());
        }
        where.for_each(plan_.outputs(), [&](std::size_t o, std::size_t) {
            auto zero = zeros.acquire(std::move(work.reservations[o]));
            auto c1 = rns::inverse(std::move(zero.c1));
            ckks::add_small(zero.e1.span(), c1);
            rns::for_each_limb<basis>([&]<int I>() {
                constexpr arith::word q = basis::template prime<I>;
                ckks::block_sums_to_coefficients<P::log_n, q>(zero.log_n, zero.c0[I].span());
                rns::limb::add_small(rns::modulus_of<q>(q), zero.c0[I].span(), zero.e0.span());
                for (std::size_t t = 0; t < made.tokens(); ++t) {
                    made.c0_[I][t * plan_.outputs() + o] = zero.c0[I][t];
                }
            });
            zero.c1 = rns::secret_poly<basis, rns::evaluation_form>(std::move(work.c1[o]).take());
            work.c1[o] = std::move(c1);
            zeros.release(std::move(zero));
        });
        work.reservations.clear();
    }

    void add_products(std::size_t limb, const random::seed& seed, std::size_t first, std::size_t count,
                      typename workspace::slot& slot, workspace& work) const {
        rns::for_each_limb<basis>([&]<int I>() {
            if (limb != static_cast<std::size_t>(I)) {
                return;
            }
            constexpr arith::word q = basis::template prime<I>;
            weights_.template multiply<I>(
                seed, first, count, slot.products, [&](std::size_t o, std::span<const arith::word> product) {
                    const auto sums = work.c1[o].template limb<I>();
                    rns::limb::add(rns::modulus_of<q>(q), sums, sums, product);
                });
        });
    }

    /// The answer of output o, modulo 2^reply_bits(o), to to[o * stride].
    void answer_position(server_block<P>& block, std::size_t position, std::span<const std::uint8_t> c0,
                         typename workspace::slot& slot, std::uint32_t* to, std::size_t stride) const {
        require<parameter_error>(block.of_ == number_ && block.owner_ == ::getpid(),
                                 {"server::answer: got a block that another process or version of A "
                                  "prepared; prepare one here"});
        require<shape_error>(position < block.tokens(), {"server::answer: got position ", position,
                                                         ", expected one below ", block.tokens()});
        require<parameter_error>(block.is_open(position),
                                 {"server::answer: position ", position,
                                  " of this block was answered already; encrypt anew at the next one"});
        unpack(c0, slot);
        block.used_[position] = 1;

        const std::size_t outputs = plan_.outputs();
        std::array<std::span<arith::word>, static_cast<std::size_t>(basis::limbs)> sums;
        random::seed seed;
        const memory::wipe_guard seed_guard(seed);
        {
            random::input_hash covered(block.flood_secret_);
            covered.add(std::span<const std::size_t>(&position, 1));
            rns::for_each_limb<basis>([&]<int I>() {
                constexpr arith::word q = basis::template prime<I>;
                detail::make_room(slot.sums[I], outputs);
                sums[I] = slot.sums[I].span();
                weights_.template multiply_token<I>(slot.token[I].span(), sums[I]);
                const auto of_position = block.c0_[I].span().subspan(position * outputs, outputs);
                rns::limb::add(rns::modulus_of<q>(q), sums[I], sums[I], of_position);
                memory::wipe(of_position.data(), of_position.size_bytes());
                covered.add(std::span<const arith::word>(sums[I]));
            });
            seed = covered.result();
        }
        ckks::add_flood<basis>(plan_.budget().flood, seed, static_cast<std::uint32_t>(position), sums);
        plan_.for_each_width([&](std::size_t first, std::size_t count, int bits) {
            std::array<std::span<const arith::word>, static_cast<std::size_t>(basis::limbs)> part;
            std::ranges::transform(sums, part.begin(),
                                   [&](std::span<arith::word> x) { return x.subspan(first, count); });
            if (stride == 1) {
                rns::switch_modulus<basis>(part, bits, std::span(to + first, count));
                return;
            }
            for (std::size_t o = 0; o < count; ++o) {
                rns::residue_spans<basis> one;
                std::ranges::transform(part, one.begin(), [&](const auto& x) { return x.subspan(o, 1); });
                rns::switch_modulus<basis>(one, bits, std::span(to + (first + o) * stride, 1));
            }
        });
    }

    plan_type plan_;
    detail::block_weights<P, Protection> weights_;
    random::seed identity_;  ///< a hash of A, for hedged seeds
    std::uint64_t number_ = next_number();
};

}  // namespace tensafe::lora
