#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/sanitize/flooding.hpp>
#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/exec/host.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/block_weights.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>
#include <tensafe/random/input_hash.hpp>
#include <tensafe/rns/limb.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tensafe::lora {

template <ckks::parameter_set P, class Packing, class Protection>
class server;

namespace detail {

struct server_internals;

/// A number for each server of blocks, of any type, that never comes again, as an address would.
inline std::uint64_t next_server_number() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

/// One T for every limb of a request.
template <ckks::parameter_set P, class T>
using of_each_limb = std::array<T, static_cast<std::size_t>(traced_product<P>::basis::limbs)>;

/// Keeps which positions of a block were answered, and who may answer the others.
class block_positions {
  public:
    std::size_t tokens() const noexcept { return used_.size(); }
    /// Whether this position can still be answered.
    bool is_open(std::size_t position) const noexcept {
        return ::getpid() == owner_ && position < used_.size() && used_[position] == 0;
    }
    /// Whether this is a block of the server with this number, made in this process.
    bool of(std::uint64_t server) const noexcept { return of_ == server && owner_ == ::getpid(); }
    /// The number of positions that can still be answered.
    std::size_t left() const noexcept {
        return ::getpid() == owner_
                   ? static_cast<std::size_t>(std::count(used_.begin(), used_.end(), std::uint8_t{0}))
                   : 0;
    }

  protected:
    block_positions() = default;
    block_positions(block_positions&&) noexcept = default;  // two copies would answer a position twice
    block_positions& operator=(block_positions&&) noexcept = default;
    /// Opens all positions, for the server with this number.
    block_positions(std::uint64_t server, std::size_t tokens) : of_(server), used_(tokens) {}

    /// Checks a request.
    /// @param bytes  of a request's c0
    /// @throws as server::answer
    void check(std::uint64_t server, std::size_t d, std::size_t bytes, const token_request& r) const {
        require<parameter_error>(of(server),
                                 {"server::answer: got a block that this server did not prepare in this "
                                  "process, or one that was moved; prepare one here"});
        require<shape_error>(r.d == d && r.position < tokens(),
                             {"server::answer: got position ", r.position, " of a hidden state of ", r.d,
                              " entries, expected one below ", tokens(), " and ", d, " entries"});
        require<parameter_error>(is_open(r.position),
                                 {"server::answer: position ", r.position,
                                  " of this block was answered already; encrypt anew at the next one"});
        check_count("server::answer: got ", r.c0.size(), " bytes, expected ", bytes);
    }

    /// Uses up the positions of these tokens, which were checked, all or none.
    /// @throws parameter_error for one that comes twice
    template <class Token>
    static void use_up(std::span<const Token> tokens) {
        for (std::size_t k = 0; k < tokens.size(); ++k) {
            const std::size_t position = tokens[k].request->position;
            std::uint8_t& used = tokens[k].block->used_[position];
            if (used != 0) {
                while (k-- > 0) {
                    tokens[k].block->used_[tokens[k].request->position] = 0;
                }
                throw parameter_error({"server::answer: got position ", position, " of a block twice"});
            }
            used = 1;
        }
    }

  private:
    std::uint64_t of_ = 0;  ///< the server's number
    pid_t owner_ = ::getpid();
    std::vector<std::uint8_t> used_;
};

/// The transformed inputs of a block, which are public, between one part of it and the next. A process keeps
/// `most_bytes` of them: a block for which there is no room transforms its inputs for each part.
template <ckks::parameter_set P>
class kept_inputs {
  public:
    static constexpr std::size_t most_bytes = std::size_t{16} << 20;
    using buffers = of_each_limb<P, memory::buffer<arith::word>>;

    /// Keeps these buffers, or leaves them where they are and returns null.
    static std::unique_ptr<kept_inputs> of(buffers& windows) {
        std::size_t bytes = 0;
        for (const auto& limb : windows) {
            bytes += limb.size() * sizeof(arith::word);
        }
        if (total() + bytes > most_bytes) {  // by as many as there are threads too many
            return nullptr;
        }
        return std::unique_ptr<kept_inputs>(new kept_inputs(windows, bytes));
    }
    kept_inputs(const kept_inputs&) = delete;
    kept_inputs& operator=(const kept_inputs&) = delete;
    ~kept_inputs() { total() -= bytes_; }

    buffers windows;

  private:
    kept_inputs(buffers& from, std::size_t bytes) : windows(std::move(from)), bytes_(bytes) {
        total() += bytes_;
    }
    static std::atomic<std::size_t>& total() noexcept {
        static std::atomic<std::size_t> bytes{0};
        return bytes;
    }

    std::size_t bytes_;
};

}  // namespace detail

/// A block that a server prepared for a client: for each position what its answers are hidden under. Each
/// position is answered once, in any order. Belongs to one client, to the version of A that prepared it and
/// to its process. Move-only, wiped on release; for one thread at a time.
template <ckks::parameter_set P>
class server_block : public detail::block_positions {
  public:
    server_block() = default;

    /// The seed of the requests for its parts.
    const random::seed& seed() const noexcept { return seed_; }
    /// The number of outputs that are prepared, from the first on: tokens are answered once all of them are.
    std::size_t prepared() const noexcept { return prepared_; }

  private:
    template <ckks::parameter_set, class, class>
    friend class server;

    server_block(std::uint64_t server, std::size_t tokens, const random::seed& seed)
        : detail::block_positions(server, tokens), seed_(seed) {}

    random::seed seed_;
    std::size_t prepared_ = 0;
    std::unique_ptr<detail::kept_inputs<P>> inputs_;  ///< for the next part; null: to be transformed
    memory::secret_buffer<random::seed> flood_secret_{1};
    /// The encryptions of zero: a word for each output of position 0, then of position 1, ...
    detail::of_each_limb<P, memory::secret_buffer<arith::word>> c0_;
};

/// A token of a block, and where its answer goes.
template <ckks::parameter_set P>
struct block_token {
    server_block<P>* block;
    const token_request* request;
    token_reply* reply;
};

/// Memory that a server of blocks works in: from the second token on nothing is allocated.
template <ckks::parameter_set P>
struct block_workspace {
    using basis = typename traced_product<P>::basis;

    /// The memory of one worker.
    struct worker {
        detail::block_products_workspace work;
        detail::of_each_limb<P, memory::secret_buffer<arith::word>> products;  ///< products of eight outputs
        memory::buffer<std::uint32_t> switched{P::degree, memory::uninitialized};
    };

    std::vector<worker> workers = std::vector<worker>(1);
    detail::of_each_limb<P, memory::buffer<arith::word>> windows;  ///< windows of a block's inputs
    std::vector<typename ckks::rerandomization_pool<P, request_level<P>>::reservation> reservations;
    detail::of_each_limb<P, memory::buffer<arith::word>> tokens;
    detail::of_each_limb<P, memory::secret_buffer<arith::word>> sums;
    memory::buffer<std::uint32_t> switched;  ///< outputs, which may be more than a polynomial has
    random::generator generator;  ///< draws flood secrets; to give one that is not the default is for tests
    work_count work;              ///< added up over calls
};

/// Applies A to the tokens of blocks. `prepare` does what takes time before the tokens exist; `answer` is
/// inner products of 32-bit integers. Immutable; thread-safe, with a workspace for each thread.
template <ckks::parameter_set P, class Protection>
class server<P, token_blocks, Protection> {
    using basis = typename traced_product<P>::basis;
    using zero_pool = ckks::rerandomization_pool<P, request_level<P>>;
    static constexpr std::size_t lanes = detail::block_weights<P, Protection>::lanes;

  public:
    using plan_type = packing_plan<P, token_blocks, Protection>;
    using layout_type = typename plan_type::layout_type;
    using workspace = block_workspace<P>;

    /// Packs A (rank x d), once, for blocks of `tokens` tokens.
    /// @throws as server of single tokens; parameter_error too for more tokens than a client that cheats may
    ///         have under one encryption of zero: most_targets
    server(const matrix& a, std::size_t tokens) : server(a, tokens, most_targets<P, Protection>) {}
    server(const matrix& a, std::size_t tokens, trusts_clients) : server(a, tokens, P::degree) {}
    /// @param number  names A and tokens among all servers of this process: one that was packed again of the
    ///                same answers the blocks of the one before
    server(const matrix& a, std::size_t tokens, trusts_clients trusted, std::uint64_t number)
        : server(a, tokens, trusted) {
        number_ = number;
    }
    server(const matrix& a, std::size_t tokens, const ckks::secret_key<P>&) = delete;

    const plan_type& plan() const noexcept { return plan_; }
    const layout_type& layout() const noexcept { return plan_.layout(); }

    /// Makes the encryptions of zero for one client, in one session, as server::pool of single tokens does.
    zero_pool pool(const random::seed& nonce, ckks::rerandomization_key<P, request_level<P>> key,
                   random::generator generator = random::generator()) const {
        return {nonce, std::move(key), plan_.subring_log_n(), std::move(generator)};
    }

    /// Computes what does not depend on tokens of a block, or of a part of its outputs. Takes an encryption
    /// of zero for each output, which belongs to this block for good: if the reply is lost, send its bytes
    /// again, or prepare another block. Later parts need not transform the inputs again, see kept_inputs.
    /// @param block  where r.first is not 0 the block of the parts before; else it is made
    /// @throws shape_error for another layout, or outputs that are not there or not the next ones of this
    ///         block; parameter_error for a pool of another degree; entropy_error. The block stays as it was
    template <exec::host_execution Where>
    void prepare(const Where& where, const block_request& r, zero_pool& zeros, workspace& work,
                 server_block<P>& block, block_reply& to) const {
        const std::size_t tokens = layout().tokens;
        const std::size_t outputs = r.outputs == 0 ? plan_.outputs() : r.outputs;
        require<shape_error>(r.d == plan_.d() && r.tokens == tokens,
                             {"server::prepare: got a block of ", r.tokens, " hidden states of ", r.d,
                              " entries, expected ", tokens, " of ", plan_.d(), " entries"});
        require<parameter_error>(
            zeros.subring_log_n() == plan_.subring_log_n(),
            {"server::prepare: got encryptions of zero traced to degree 2^", zeros.subring_log_n(),
             ", expected 2^", plan_.subring_log_n(), ", the plan's subring_log_n()"});
        const bool goes_on = r.first != 0;
        require<shape_error>(
            outputs <= plan_.outputs() && r.first <= plan_.outputs() - outputs && r.first % lanes == 0 &&
                (!goes_on || (block.of(number_) && block.seed_ == r.seed && block.prepared_ == r.first)),
            {"server::prepare: got a part of ", outputs, " outputs from ", r.first, " on, expected one of ",
             plan_.outputs(), " outputs behind the part before of this block, from a multiple of ", lanes,
             " on"});
        work.workers.resize(std::max(work.workers.size(), where.threads()));
        server_block<P> opened = goes_on ? server_block<P>() : open_block(r.seed, work);
        server_block<P>& made = goes_on ? block : opened;
        work.reservations.clear();
        zeros.reserve(outputs, product_of(r.seed, r.first), work.reservations);
        constexpr auto limbs = static_cast<std::size_t>(basis::limbs);
        const bool is_kept = made.inputs_ != nullptr;
        if (is_kept) {
            work.windows = std::move(made.inputs_->windows);
            made.inputs_.reset();
        }
        for (auto& limb : work.windows) {
            detail::make_room(limb, weights_.window_words());
        }
        where.for_each(is_kept ? 0 : detail::ceil_divide(plan_.inputs(), lanes) * limbs,
                       [&](std::size_t job, std::size_t worker) {
                           rns::for_each_limb<basis>([&]<int I>() {
                               if (job % limbs == static_cast<std::size_t>(I)) {
                                   weights_.template transform_inputs<I>(
                                       r.seed, job / limbs * lanes, work.workers[worker].work,
                                       detail::make_room(work.workers[worker].products[I], lanes * P::degree),
                                       work.windows[I].span());
                               }
                           });
                       });
        to.rank = plan_.rank();
        to.d = plan_.d();
        to.tokens = tokens;
        to.first = r.first;
        to.c1.resize(outputs);
        where.for_each(detail::ceil_divide(outputs, lanes), [&](std::size_t group, std::size_t worker) {
            auto& products = work.workers[worker].products;
            rns::for_each_limb<basis>([&]<int I>() {
                weights_.template multiply<I>(work.windows[I].span(), r.first + group * lanes,
                                              work.workers[worker].work,
                                              detail::make_room(products[I], lanes * P::degree));
            });
            for (std::size_t k = 0; k < std::min(lanes, outputs - group * lanes); ++k) {
                finish(r.first, group * lanes + k, k, zeros, work, work.workers[worker], made, to);
            }
        });
        work.reservations.clear();
        work.work.products += plan_.inputs() * outputs;
        work.work.transforms += ((is_kept ? 0 : plan_.inputs()) + 2 * outputs) * limbs;
        made.prepared_ = r.first + outputs;
        if (made.prepared_ < plan_.outputs()) {
            made.inputs_ = detail::kept_inputs<P>::of(work.windows);
        }
        if (!goes_on) {
            block = std::move(opened);
        }
    }
    void prepare(const block_request& r, zero_pool& zeros, workspace& work, server_block<P>& block,
                 block_reply& to) const {
        prepare(exec::host{}, r, zeros, work, block, to);
    }

    /// Answers a token. Its position is used up before anything is computed.
    /// @throws shape_error, format_error for a request that is malformed; parameter_error for a block of
    ///         another server or process, or a position that was answered. None uses up a position
    void answer(server_block<P>& block, const token_request& r, workspace& work, token_reply& to) const {
        const block_token<P> token{&block, &r, &to};
        answer(std::span(&token, 1), work);
    }
    /// Answers tokens of many blocks, for which A is read from memory once. All are answered or none.
    /// @throws as for one token, and parameter_error for a position that comes twice
    void answer(std::span<const block_token<P>> tokens, workspace& work) const {
        for (std::size_t k = 0; k < tokens.size(); ++k) {
            read(tokens, k, work);
        }
        server_block<P>::use_up(tokens);
        for (std::size_t k = 0; k < tokens.size(); ++k) {
            answer_read(tokens, k, work);
        }
    }

  private:
    friend struct detail::server_internals;

    server(const matrix& a, std::size_t tokens, std::size_t largest_targets)
        : plan_(layout_type::of(a.rows, a.columns, detail::public_row_norm(a), tokens)),
          weights_(plan_, a),
          identity_(random::input_hash::of(a.values, std::array{a.rows, a.columns})) {
        detail::check_targets(tokens, largest_targets, "tokens of a block");
    }

    /// Reads token k, which is checked, as residues.
    void read(std::span<const block_token<P>> tokens, std::size_t k, workspace& work) const {
        const token_request& r = *tokens[k].request;
        tokens[k].block->check(number_, plan_.d(), packed_residues_bytes<P>(plan_.d()), r);
        require<parameter_error>(
            tokens[k].block->prepared_ == plan_.outputs(),
            {"server::answer: got a token of a block of which ", tokens[k].block->prepared_,
             " outputs are prepared, expected all ", plan_.outputs()});
        detail::unpack_residues<P>("server::answer", r.c0, plan_.d(), [&]<int I>() {
            return detail::make_room(work.tokens[I], tokens.size() * plan_.d())
                .subspan(k * plan_.d(), plan_.d());
        });
    }

    /// Writes the answer to token k, which was read.
    void answer_read(std::span<const block_token<P>> tokens, std::size_t k, workspace& work) const {
        server_block<P>& block = *tokens[k].block;
        const token_request& r = *tokens[k].request;
        token_reply& to = *tokens[k].reply;
        const std::size_t outputs = plan_.outputs();
        detail::of_each_limb<P, const arith::word*> token;
        detail::of_each_limb<P, std::span<arith::word>> sums;
        for (std::size_t i = 0; i < sums.size(); ++i) {
            token[i] = &work.tokens[i][k * plan_.d()];
            sums[i] = detail::make_room(work.sums[i], weights_.padded_outputs());
        }
        weights_.multiply_token(token, sums);
        random::seed seed;
        const memory::wipe_guard guard(seed);
        random::input_hash covered(block.flood_secret_[0]);
        const std::uint64_t position = r.position;  // hashed in 64 bits on each machine
        covered.add(std::span(&position, 1));
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr arith::word q = basis::template prime<I>;
            sums[I] = sums[I].first(outputs);
            const auto zeros = block.c0_[I].span().subspan(r.position * outputs, outputs);
            rns::limb::add(rns::modulus_of<q>(q), sums[I], sums[I], zeros);
            memory::wipe(zeros.data(), zeros.size_bytes());
            covered.add(std::span<const arith::word>(sums[I]));
        });
        seed = covered.result();
        ckks::add_flood<basis>(plan_.budget().flood, seed, static_cast<std::uint32_t>(r.position), sums);
        to.rank = plan_.rank();
        to.d = plan_.d();
        to.position = r.position;
        to.c0.resize(plan_.token_reply_bytes());
        std::span<std::uint8_t> out = to.c0;
        plan_.for_each_width([&](std::size_t first, std::size_t count, int bits) {
            rns::residue_spans<basis> part;
            std::transform(sums.begin(), sums.end(), part.begin(),
                           [&](const auto& x) { return x.subspan(first, count); });
            const auto switched = detail::make_room(work.switched, count);
            rns::switch_modulus<basis>(part, bits, switched);
            const std::size_t bytes = memory::packed_bytes(count, bits);
            memory::pack_bits(std::span<const std::uint32_t>(switched), bits, out.first(bytes));
            out = out.subspan(bytes);
        });
    }

    /// Finishes output first + o, product k of the worker's: with its encryption of zero, into bytes.
    void finish(std::size_t first, std::size_t o, std::size_t k, zero_pool& zeros, workspace& work,
                typename workspace::worker& worker, server_block<P>& made, block_reply& to) const {
        auto zero = zeros.acquire(std::move(work.reservations[o]));
        auto c1 = rns::inverse(std::move(zero.c1));
        ckks::add_small(zero.e1.span(), c1);
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr arith::word q = basis::template prime<I>;
            constexpr auto m = rns::modulus_of<q>(q);
            const auto limb = c1.template limb<I>();
            rns::limb::add(m, limb, limb, worker.products[I].span().subspan(k * P::degree, P::degree));
            ckks::block_sums_to_coefficients<P::log_n, q>(zero.log_n, zero.c0[I].span());
            rns::limb::add_small(m, zero.c0[I].span(), zero.e0.span());
            for (std::size_t t = 0; t < made.tokens(); ++t) {
                made.c0_[I][t * plan_.outputs() + first + o] = zero.c0[I][t];
            }
        });
        pack_switched(c1, plan_.reply_bits(first + o), worker.switched.span(), to.c1[o]);
        zero.c1 = rns::secret_poly<basis, rns::evaluation_form>(std::move(c1).take());
        zeros.release(std::move(zero));
    }

    /// Opens a block, of which nothing is prepared.
    server_block<P> open_block(const random::seed& seed, workspace& work) const {
        server_block<P> made(number_, layout().tokens, seed);
        for (auto& limb : made.c0_) {
            limb =
                memory::secret_buffer<arith::word>(layout().tokens * plan_.outputs(), memory::uninitialized);
        }
        const auto hedging = work.generator.hedge(product_of(seed, 0));
        random::seed secret = work.generator.next_seed();
        const memory::wipe_guard guard(secret);
        made.flood_secret_[0] = secret;
        return made;
    }

    /// Names, for hedged seeds, the product of c1 and the rows of A from `first` on.
    std::vector<std::uint8_t> product_of(const random::seed& seed, std::uint64_t first) const {
        const auto whole = random::joined(seed, identity_);
        std::vector<std::uint8_t> name(whole.begin(), whole.end());
        for (int bit = 0; first != 0 && bit < 64; bit += 8) {
            name.push_back(static_cast<std::uint8_t>(first >> bit));
        }
        return name;
    }

    plan_type plan_;
    detail::block_weights<P, Protection> weights_;
    random::seed identity_;  ///< a hash of A, for hedged seeds
    std::uint64_t number_ = detail::next_server_number();
};

}  // namespace tensafe::lora
