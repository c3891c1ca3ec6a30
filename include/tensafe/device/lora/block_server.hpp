#pragma once

#include <tensafe/device/lora/messages.hpp>
#include <tensafe/device/lora/rerandomize.hpp>
#include <tensafe/device/lora/server.hpp>
#include <tensafe/device/lora/staging.hpp>
#include <tensafe/device/lora/token_answers.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/random/samplers.hpp>
#include <tensafe/device/rns/products.hpp>
#include <tensafe/device/rns/trace.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/block_server.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/input_hash.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::device {

/// A lora::server_block in the memory of a device: what hides the answers to the tokens of one client's
/// block. Must not be destroyed, replaced, or given to `take` from the staging of a token to where.wait().
template <ckks::parameter_set P, execution Where>
class server_block : public lora::detail::block_positions {
  public:
    server_block() = default;

  private:
    template <ckks::parameter_set, execution, class, class>
    friend class server;

    server_block(std::uint64_t server, std::size_t tokens) : lora::detail::block_positions(server, tokens) {}

    memory::secret_buffer<random::seed> flood_secret_{1};
    memory::buffer<word, typename Where::space, memory::wipe_on_release>
        zeros_;  ///< [limb][position][output]
};

/// A token block to be prepared: what its client asked for, and the client's number as add_client gave it.
struct asked_block {
    const lora::block_request* request;
    std::uint32_t client;
};

/// A token of a token block.
template <ckks::parameter_set P, execution Where>
struct block_token {
    server_block<P, Where>* block;
    const lora::token_request* request;
};

/// The server of token blocks on a device, for batches: blocks of many sessions, then tokens of many blocks.
/// Replies and what blocks keep are those of lora::server for the same requests and seeds, byte for byte.
///
/// Ahead: stage(preparation), prepare, where.wait(), take. Online: stage(workspace), answer, where.wait(),
/// reply. Both only enqueue work, and a batch that is replayed without a new staging gives bytes of 0.
///
/// Plaintexts lie in evaluation form, 8 N limbs * inputs * outputs bytes, 33.6 MB for 32 x 2048 of
/// private_n4096 and 32 tokens: read once for a batch of blocks, where lora::server transforms windows of A
/// for each. The rows themselves take 4 bytes an entry. Both are wiped on release.
///
/// Token blocks of up to 64 tokens. Several streams may share a server, each with its own workspaces; stage
/// and add clients on one thread at a time.
template <ckks::parameter_set P, execution Where, class Protection>
class server<P, Where, lora::token_blocks, Protection> {
  public:
    using packing = lora::token_blocks;
    using plan_type = lora::packing_plan<P, packing, Protection>;
    using layout_type = typename plan_type::layout_type;
    using basis = typename lora::traced_product<P>::basis;
    using block_type = server_block<P, Where>;
    using token_type = block_token<P, Where>;
    using rerandomization_key = ckks::rerandomization_key<P, lora::request_level<P>>;

  private:
    using area = staging_area<Where>;
    using batch = detail::staged_batch<Where>;
    template <class T>
    using piece = typename area::template piece<T>;
    template <class T>
    using secret = memory::buffer<T, typename Where::space, memory::wipe_on_release>;
    template <class T>
    using open = memory::buffer<T, typename Where::space>;

  public:
    /// Memory of one stream of batches of up to `largest` token blocks, and the blocks until they are taken.
    class preparation : public batch {
      public:
        preparation(const server& server, std::size_t largest)
            : preparation(server, largest, largest * server.plan_.outputs()) {}

      private:
        friend class server;

        preparation(const server& server, std::size_t largest, std::size_t outputs)
            : batch("device::server", largest,
                    area::template bytes_for<random::seed, random::seed, std::uint32_t, word*>(
                        largest, outputs, largest, largest)),
              of_(server.number_),
              host_status_(largest),
              request_seeds_(this->staging_.template take<random::seed>(largest)),
              zero_seeds_(this->staging_.template take<random::seed>(outputs)),
              client_of_(this->staging_.template take<std::uint32_t>(largest)),
              zeros_(this->staging_.template take<word*>(largest)),
              made_(largest),
              inputs_(largest * server.plan_.inputs() * words_, memory::uninitialized),
              products_(outputs, server.trace()),
              status_(largest),
              replies_(largest * server.places_.stride) {}

        std::uint64_t of_;  ///< the server's number
        // Released last: the release of device memory waits for downloads that are under way.
        memory::buffer<std::uint32_t, typename Where::staging_space> host_status_;
        piece<random::seed> request_seeds_;
        piece<random::seed> zero_seeds_;
        piece<std::uint32_t> client_of_;
        piece<word*> zeros_;
        std::vector<block_type> made_;
        open<word> inputs_;
        detail::product_memory<P, Where> products_;
        open<std::uint32_t> status_;
        open<std::uint8_t> replies_;
    };

    /// Memory of one stream of batches of up to `largest` tokens.
    class workspace : public batch {
      public:
        workspace(const server& server, std::size_t largest)
            : batch("device::server", largest,
                    area::template bytes_for<block_position, std::uint8_t>(
                        largest, largest * server.token_places_.stride)),
              of_(server.number_),
              results_(area::template bytes_for<std::uint32_t, std::uint8_t>(largest,
                                                                             largest * server.reply_stride_)),
              status_(results_.template take<std::uint32_t>(largest)),
              replies_(results_.template take<std::uint8_t>(largest * server.reply_stride_)),
              tokens_of_(this->staging_.template take<block_position>(largest)),
              requests_(this->staging_.template take<std::uint8_t>(largest * server.token_places_.stride)),
              sums_(largest * limbs_ * server.plan_.outputs(), memory::uninitialized) {}

      private:
        friend class server;

        std::uint64_t of_;
        area results_;
        piece<std::uint32_t> status_;
        piece<std::uint8_t> replies_;
        piece<block_position> tokens_of_;
        piece<std::uint8_t> requests_;
        secret<word> sums_;
    };

    /// Packs A (rank x d) on the host for token blocks of `tokens` tokens, once, and copies it to the device.
    /// @param largest_clients  clients that there is room for
    /// @param generator        of flood secrets; to give an explicit one is for tests
    /// @throws as lora::server; parameter_error for more than 64 tokens
    server(const Where& where, const lora::matrix& a, std::size_t tokens, std::size_t largest_clients = 1,
           random::generator generator = random::generator())
        : server(where, a, tokens, lora::most_targets<P, Protection>, largest_clients, std::move(generator)) {
    }
    server(const Where& where, const lora::matrix& a, std::size_t tokens, lora::trusts_clients,
           std::size_t largest_clients = 1, random::generator generator = random::generator())
        : server(where, a, tokens, P::degree, largest_clients, std::move(generator)) {}
    server(const Where&, const lora::matrix&, std::size_t, const ckks::secret_key<P>&) = delete;

    const plan_type& plan() const noexcept { return plan_; }
    const layout_type& layout() const noexcept { return plan_.layout(); }
    std::size_t clients() const noexcept { return clients_.count(); }

    /// Adds a client: the key with which its replies are hidden. Returns its number, from 0 on. Arguments and
    /// errors are those of add_client of the server of single tokens.
    std::uint32_t add_client(const Where& where, const random::seed& nonce, const rerandomization_key& key,
                             random::generator generator = random::generator()) {
        return clients_.add(where, nonce, key, std::move(generator));
    }

    /// Checks a request as `stage` does: call it when a request comes, and it stops nobody else's batch.
    /// @throws as stage
    void check(const lora::block_request& r) const {
        require<shape_error>(r.d == plan_.d() && r.tokens == layout().tokens,
                             {"server::prepare: got a block of ", r.tokens, " hidden states of ", r.d,
                              " entries, expected ", layout().tokens, " of ", plan_.d(), " entries"});
        require<shape_error>(r.outputs == 0, {"server::prepare: got a part of ", r.outputs,
                                              " outputs, expected a whole block: a device has no parts"});
    }
    void check(const block_type& block, const lora::token_request& r) const {
        block.check(number_, plan_.d(), lora::packed_residues_bytes<P>(plan_.d()), r);
    }

    /// First step ahead, on the host: fresh encryptions of zero for each block, which belong to it for good.
    /// Ends the batch before, also when it throws: take its blocks first.
    /// @throws shape_error for another layout, no blocks, more than there is room for, or another server's
    ///         workspace; parameter_error for a client that was not added; entropy_error. Nothing is staged
    ///         then
    void stage(preparation& work, std::span<const asked_block> blocks) {
        work.unstage();
        check_batch("device::server::stage", work, blocks.size(), "blocks");
        for (const asked_block& asked : blocks) {
            check(*asked.request);
            clients_.check(asked.client);
        }
        const std::size_t outputs = plan_.outputs();
        for (std::size_t s = 0; s < blocks.size(); ++s) {
            const random::seed& seed = blocks[s].request->seed;
            const auto product = random::joined(seed, identity_);  // whether c1 times A is the same again
            auto secret_words = std::move(work.made_[s].zeros_);
            work.made_[s] = block_type(number_, layout().tokens);
            if (secret_words.size() == 0) {
                secret_words = secret<word>(limbs_ * layout().tokens * outputs, memory::uninitialized);
            }
            work.made_[s].zeros_ = std::move(secret_words);
            {
                const auto hedging = generator_.hedge(product);
                generator_.next_seeds(work.made_[s].flood_secret_.span());
            }
            {
                auto& of_client = clients_.generator(blocks[s].client);
                const auto hedging = of_client.hedge(clients_.of_key(blocks[s].client).bytes, product);
                of_client.next_seeds(work.zero_seeds_.host.subspan(s * outputs, outputs));
            }
            work.request_seeds_.host[s] = seed;
            work.client_of_.host[s] = blocks[s].client;
            work.zeros_.host[s] = work.made_[s].zeros_.data();
        }
        work.note_staged(blocks.size(), work.host_status_.span());
    }

    /// Second step ahead: enqueues all that does not depend on tokens. One upload, eight launches, and a
    /// download of the status.
    /// @throws shape_error for a workspace of another server; error if nothing is staged; device_error
    void prepare(const Where& where, preparation& work) const {
        check_staged("device::server::prepare", work);
        work.staging_.upload(where);
        work.begin(where, work.status_.data());
        draw(where, work);
        product_batch products;
        products.weights = weights_.data();
        products.c1 = work.inputs_.data();
        products.client_of = work.client_of_.device;
        products.tokens = static_cast<std::uint32_t>(work.tokens_);
        products.inputs = static_cast<std::uint32_t>(plan_.inputs());
        products.outputs = static_cast<std::uint32_t>(plan_.outputs());
        const std::uint32_t parts =
            work.products_.template multiply<false>(where, transforms_, clients_, products);
        where.launch(
            detail::block_words_kernel<basis>{work.products_.c0_sums(), work.products_.e0(),
                                              work.zeros_.device, work.status_.data(), fold_.factors(),
                                              static_cast<std::uint32_t>(fold_.log_n()), parts,
                                              products.outputs, static_cast<std::uint32_t>(layout().tokens)},
            grid_shape{products.tokens * products.outputs});
        const rerandomization hiding = work.products_.hiding(
            outputs_.data(), products.tokens, products.outputs, work.replies_.data(), places_.stride);
        rerandomize_c1<basis>(where, hiding);
        erase(where, work.status_.data(), work.replies_.data(), places_.stride, work.tokens_,
              ~std::uint32_t{0});
        where.download(work.status_.data(), std::span<std::uint32_t>(work.host_status_.data(), work.tokens_));
    }

    /// Last step ahead, after where.wait(): block s of the batch and the reply to its client, once; waits for
    /// the reply's bytes. The memory of what was in `block` serves the next staging.
    /// @throws shape_error if there is no block s; error if it was not prepared, was prepared again, or was
    ///         taken: then there is none
    void take(const Where& where, preparation& work, std::size_t s, block_type& block,
              lora::block_reply& to) const {
        work.check_token(s);
        detail::check_answered<basis>("prepare", std::span(work.host_status_.data() + s, 1));
        block_type& made = work.made_[s];
        require<error>(made.tokens() != 0,
                       {"device::server::take: block ", s, " of this batch was taken already"});
        to.rank = plan_.rank();
        to.d = plan_.d();
        to.tokens = layout().tokens;
        to.first = 0;
        to.c1.resize(plan_.outputs());
        for (std::size_t o = 0; o < plan_.outputs(); ++o) {
            to.c1[o].resize(plan_.c1_bytes(o));
            where.download(
                std::as_const(work.replies_).data() + s * places_.stride + places_.outputs[o].c1_offset,
                std::span(to.c1[o]));
        }
        where.wait();
        std::swap(block, made);
        auto left = std::move(made.zeros_);
        made = block_type();
        if (left.size() == limbs_ * layout().tokens * plan_.outputs()) {
            made.zeros_ = std::move(left);
        }
    }

    /// First step online, on the host: the positions of these tokens are used up, all or none. Ends the
    /// batch before, also when it throws: take its replies first.
    /// @throws as lora::server::answer, but for residues, which are looked at on the device: what holds
    ///         others loses its position. shape_error too for no tokens, more than there is room for, or a
    ///         workspace of another server. Nothing is staged then
    void stage(workspace& work, std::span<const token_type> tokens) const {
        work.unstage();
        check_batch("device::server::stage", work, tokens.size(), "tokens");
        for (const token_type& token : tokens) {
            check(*token.block, *token.request);
        }
        block_type::use_up(tokens);
        for (std::size_t k = 0; k < tokens.size(); ++k) {
            const lora::token_request& r = *tokens[k].request;
            block_position& of = work.tokens_of_.host[k];
            of.zeros = tokens[k].block->zeros_.data() + r.position * plan_.outputs();
            std::memcpy(of.secret, tokens[k].block->flood_secret_[0].bytes.data(), sizeof of.secret);
            of.position = r.position;
            std::uint8_t* const to = work.requests_.host.data() + k * token_places_.stride;
            lora::detail::for_packed_limbs<P>(std::span(r.c0), plan_.d(),
                                              [&]<int I>(std::span<const std::uint8_t> bytes, int) {
                                                  std::ranges::copy(bytes, to + token_places_.offset[I]);
                                              });
        }
        work.note_staged(tokens.size(), work.status_.host);
    }

    /// Second step online: enqueues the answers. One upload, three launches, and one download.
    /// @throws shape_error for a workspace of another server; error if nothing is staged; device_error
    void answer(const Where& where, workspace& work) const {
        check_staged("device::server::answer", work);
        const auto count = static_cast<std::uint32_t>(work.tokens_);
        const auto outputs = static_cast<std::uint32_t>(plan_.outputs());
        work.staging_.upload_until(where, work.requests_, work.tokens_ * token_places_.stride);
        work.begin(where, work.status_.device);
        multiply_tokens<basis>(where,
                               {work.requests_.device, token_places_, integers_.data(), work.sums_.data(),
                                work.status_.device, count, static_cast<std::uint32_t>(plan_.d()), outputs});
        token_answers answers;
        answers.sums = work.sums_.data();
        answers.tokens = work.tokens_of_.device;
        answers.status = work.status_.device;
        answers.limb_stride = layout().tokens * plan_.outputs();
        answers.outputs = outputs;
        answers.rows = static_cast<std::uint32_t>(plan_.rank());
        answers.bits = static_cast<std::uint32_t>(plan_.reply_bits(0));
        answers.check_bits = static_cast<std::uint32_t>(plan_.reply_bits(plan_.outputs() - 1));
        answers.replies = work.replies_.device;
        answers.stride = reply_stride_;
        answer_tokens<basis>(where, plan_.budget().flood, answers, count);
        work.results_.download_until(where, work.replies_, work.tokens_ * reply_stride_);
    }

    /// The status word of each token, 0 if all is well, after where.wait(). Replies to the others are all 0.
    std::span<const std::uint32_t> status(const workspace& work) const noexcept {
        return work.status_.host.first(work.tokens_);
    }
    /// Throws for the first token whose status is not 0; the other replies stand.
    /// @throws format_error if a residue of a request is not below its prime; error if the batch was answered
    ///         again without staging, or not at all
    void check(const workspace& work) const { detail::check_answered<basis>("answer", status(work)); }

    /// Last step online, after where.wait(): the answer to token t.
    /// @throws shape_error if there is no token t; as check if it has none
    void reply(const workspace& work, std::size_t t, lora::token_reply& to) const {
        work.check_token(t);
        detail::check_answered<basis>("answer", status(work).subspan(t, 1));
        to.rank = plan_.rank();
        to.d = plan_.d();
        to.position = work.tokens_of_.host[t].position;
        const auto from = work.replies_.host.subspan(t * reply_stride_, plan_.token_reply_bytes());
        to.c0.assign(from.begin(), from.end());
    }

  private:
    static constexpr std::size_t rows_ = detail::rows_at_once;
    static constexpr auto limbs_ = static_cast<std::size_t>(basis::limbs);
    static constexpr std::size_t words_ = P::degree * limbs_;

    server(const Where& where, const lora::matrix& a, std::size_t tokens, std::size_t largest_targets,
           std::size_t largest_clients, random::generator generator)
        : plan_(layout_type::of(a.rows, a.columns, lora::detail::public_row_norm(a),
                                checked_tokens(tokens, largest_targets))),
          identity_(random::input_hash::of(a.values, std::array{a.rows, a.columns})),
          generator_(std::move(generator)),
          transforms_(where),
          fold_(where, plan_.subring_log_n()),
          clients_(largest_clients),
          weights_(plan_.outputs() * plan_.inputs() * words_, memory::uninitialized),
          integers_(rows_ * lora::detail::ceil_divide(plan_.outputs(), rows_) * plan_.d(),
                    memory::uninitialized),
          places_(layout()),
          outputs_(uploaded(where, places_.outputs)),
          token_places_(plan_.d()),
          reply_stride_((plan_.token_reply_bytes() + 15) / 16 * 16) {
        layout().rows().check_matrix(a);
        memory::secret_buffer<std::int32_t> integers(integers_.size());
        memory::secret_buffer<std::int32_t> row(plan_.d());
        for (std::size_t o = 0; o < plan_.outputs(); ++o) {
            for (std::size_t t = 0; t < plan_.d(); ++t) {
                row[t] = layout().rows().integer_weight(a, plan_.budget(), o, t);
                integers[(o / rows_ * plan_.d() + t) * rows_ + o % rows_] = row[t];
            }
            for (std::size_t i = 0; i < plan_.inputs(); ++i) {
                const auto weights = plaintext(row.span(), i);
                where.upload(weights.words(), weights_.data() + (o * plan_.inputs() + i) * words_);
                where.wait();
            }
        }
        where.upload(std::span<const std::int32_t>(integers.span()), integers_.data());
        where.wait();
    }

    static std::size_t checked_tokens(std::size_t tokens, std::size_t largest_targets) {
        lora::detail::check_targets(tokens, largest_targets, "tokens of a block");
        require<parameter_error>(tokens <= std::size_t{1} << most_subring_log_n,
                                 {"device::server: got blocks of ", tokens,
                                  " tokens, expected 64 at most; lora::server takes longer ones"});
        return tokens;
    }

    /// The plaintext of a row's entries that meet input i: entry c in the coefficient of X^-c.
    rns::secret_poly<basis, rns::evaluation_form> plaintext(std::span<const std::int32_t> row,
                                                            std::size_t i) const {
        rns::secret_poly<basis, rns::coefficient_form> p;
        const auto entries =
            row.subspan(i * plan_.entries_per_input())
                .first(std::min(plan_.entries_per_input(), row.size() - i * plan_.entries_per_input()));
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr word q = basis::template prime<I>;
            const auto limb = p.template limb<I>();
            for (std::size_t c = 0; c < entries.size(); ++c) {
                const std::int64_t x = c == 0 ? entries[0] : -std::int64_t{entries[c]};
                limb[c == 0 ? 0 : P::degree - c] = static_cast<word>(x) + (q & static_cast<word>(x >> 63));
            }
        });
        return rns::forward(std::move(p));
    }

    std::uint32_t trace() const noexcept { return static_cast<std::uint32_t>(plan_.subring_degree()); }

    template <class Work>
    void check_work(const char* who, const Work& work) const {
        require<shape_error>(work.of_ == number_,
                             {who, ": got a workspace that was made for another server"});
    }
    template <class Work>
    void check_batch(const char* who, const Work& work, std::size_t count, const char* of_what) const {
        check_work(who, work);
        require<shape_error>(count != 0 && count <= work.largest_,
                             {who, ": got ", count, " ", of_what, ", expected 1 to ", work.largest_});
    }
    template <class Work>
    void check_staged(const char* who, const Work& work) const {
        check_work(who, work);
        work.check_staged();
    }

    void draw(const Where& where, preparation& work) const {
        const auto [ternary, e0, e1] =
            work.products_.draws(work.zero_seeds_.device, work.tokens_ * plan_.outputs());
        const std::array<draw_group, 4> draws{
            uniform_polynomials<basis>(work.request_seeds_.device, static_cast<std::uint32_t>(plan_.inputs()),
                                       work.tokens_ * plan_.inputs(), work.inputs_.data()),
            ternary, e0, e1};
        device::draw(where, std::span<const draw_group>(draws));
    }

    plan_type plan_;
    random::seed identity_;  ///< a hash of A, for hedged seeds
    random::generator generator_;
    device::plan<basis, typename Where::space> transforms_;
    trace_tables<basis, typename Where::space> fold_;
    detail::zero_clients<P, Where> clients_;
    secret<word> weights_;           ///< [output][input], evaluation form
    secret<std::int32_t> integers_;  ///< [output / 8][d][8]
    output_places places_;
    open<output_place> outputs_;
    token_places<basis> token_places_;
    std::size_t reply_stride_;
    std::uint64_t number_ = lora::detail::next_server_number();
};

}  // namespace tensafe::device
