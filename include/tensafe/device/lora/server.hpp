#pragma once

#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/lora/messages.hpp>
#include <tensafe/device/lora/rerandomize.hpp>
#include <tensafe/device/lora/staging.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/random/samplers.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/device/rns/products.hpp>
#include <tensafe/device/rns/trace.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/input_hash.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::device {

namespace detail {

/// The clients of a server: the keys with which their replies are hidden, in the memory of a device.
template <ckks::parameter_set P, execution Where>
class zero_clients {
    using basis = typename P::template basis_at<lora::request_level<P>>;

  public:
    explicit zero_clients(std::size_t largest)
        : largest_(largest), a_(largest * words_of_poly<basis>), b_(largest * words_of_poly<basis>) {
        require<parameter_error>(largest != 0,
                                 {"device::server: got room for 0 clients, expected 1 or more"});
    }

    std::size_t count() const noexcept { return generators_.size(); }
    const word* a() const noexcept { return a_.data(); }  ///< [client][limb][N], evaluation form
    const word* b() const noexcept { return b_.data(); }
    random::generator& generator(std::uint32_t client) { return generators_[client]; }
    /// A hash of the key, for hedged seeds.
    const random::seed& of_key(std::uint32_t client) const { return of_keys_[client]; }

    /// Adds a client and returns its number.  @throws as server::add_client
    std::uint32_t add(const Where& where, const random::seed& nonce,
                      const ckks::rerandomization_key<P, lora::request_level<P>>& key,
                      random::generator generator) {
        require<parameter_error>(
            count() != largest_,
            {"device::server::add_client: got one client more than the ", largest_, " there is room for"});
        require<parameter_error>(key.server_nonce == nonce,
                                 {"device::server::add_client: the client made this re-randomization key for "
                                  "another server nonce"});
        ckks::check_residues<basis>(key.b, "device::server::add_client", "the re-randomization key");
        const auto a = ckks::detail::expand_public_key<basis>(random::joint_seed(key.client_nonce, nonce));
        generators_.reserve(count() + 1);
        of_keys_.resize(count());  // one more may be left of a call that failed
        of_keys_.push_back(random::input_hash::of(a.template limb<0>(), key.b.words()));
        where.upload(a.words(), a_.data() + count() * words_of_poly<basis>);
        where.upload(key.b.words(), b_.data() + count() * words_of_poly<basis>);
        where.wait();
        generators_.push_back(std::move(generator));
        return static_cast<std::uint32_t>(count() - 1);
    }

    void check(std::uint32_t client) const {
        require<parameter_error>(client < count(), {"device::server::stage: got client number ", client,
                                                    ", expected less than ", count()});
    }

  private:
    std::size_t largest_;
    memory::buffer<word, typename Where::space> a_;
    memory::buffer<word, typename Where::space> b_;
    std::vector<random::generator> generators_;
    std::vector<random::seed> of_keys_;
};

/// Products of a batch and what hides them, until they are in replies. Wiped on release.
template <ckks::parameter_set P, execution Where>
class product_memory {
    using basis = typename P::template basis_at<lora::request_level<P>>;
    template <class T>
    using secret = memory::buffer<T, typename Where::space, memory::wipe_on_release>;

  public:
    /// @param kept  coefficients of a product that go into its reply
    product_memory(std::size_t products, std::uint32_t kept)
        : kept_(kept),
          ternary_(products * P::degree, memory::uninitialized),
          e1_(products * P::degree, memory::uninitialized),
          e0_(products * kept, memory::uninitialized),
          c1_(products * words_of_poly<basis>, memory::uninitialized),
          c0_sums_(products * static_cast<std::size_t>(basis::limbs) * most_product_sums<basis>(kept),
                   memory::uninitialized) {}

    const std::int8_t* e0() const noexcept { return e0_.data(); }
    const word* c0_sums() const noexcept { return c0_sums_.data(); }

    /// The draws of encryptions of zero: their ternary polynomials, e0 and e1.
    std::array<draw_group, 3> draws(const random::seed* seeds, std::size_t products) noexcept {
        const auto small = [&](distribution kind, random::stream_domain domain, std::uint32_t lane,
                               std::size_t size, std::int8_t* out) {
            return small_polynomials(kind, domain, lane, seeds, products, size, out);
        };
        constexpr auto error = random::stream_domain::error;
        return {small(distribution::ternary, random::stream_domain::zero, 0, P::degree, ternary_.data()),
                small(distribution::error, error, 0, kept_, e0_.data()),
                small(distribution::error, error, 1, P::degree, e1_.data())};
    }

    /// Multiplies what `products` says, with encryptions of zero but for their errors, and takes c1 to
    /// coefficients. Returns how many neighbours of c0_sums add up to one block sum.
    template <bool WithC0 = true>
    std::uint32_t multiply(const Where& where, const plan<basis, typename Where::space>& plan,
                           const zero_clients<P, Where>& clients, product_batch products) {
        const std::size_t polynomials = std::size_t{products.tokens} * products.outputs;
        products.v = c1_.data();
        products.b = clients.b();
        products.a = clients.a();
        products.c0_sums = c0_sums_.data();
        products.c1_out = c1_.data();
        products.blocks = product_sums<basis>(products.tokens, products.outputs, kept_);
        forward<basis>(where, plan, load_small<basis>{ternary_.data()}, store_words<basis>{c1_.data()},
                       polynomials, c1_.data());
        device::multiply<basis, WithC0>(where, products);
        inverse<basis>(where, plan, load_words<basis>{c1_.data()}, store_words<basis>{c1_.data()},
                       polynomials, c1_.data());
        return products.blocks / kept_;
    }

    /// What rerandomize_c1 needs of `tokens` tokens.
    rerandomization hiding(const output_place* places, std::uint32_t tokens, std::uint32_t outputs,
                           std::uint8_t* replies, std::size_t stride) const noexcept {
        rerandomization hiding;
        hiding.c1 = c1_.data();
        hiding.e1 = e1_.data();
        hiding.places = places;
        hiding.tokens = tokens;
        hiding.outputs = outputs;
        hiding.replies = replies;
        hiding.stride = stride;
        return hiding;
    }

  private:
    std::uint32_t kept_;
    secret<std::int8_t> ternary_;
    secret<std::int8_t> e1_;
    secret<std::int8_t> e0_;
    secret<word> c1_;  ///< the transformed ternary polynomials at first
    secret<word> c0_sums_;
};

}  // namespace detail

/// The server's side of encrypted LoRA on a device: a packed matrix, stacked adapters being simply more rows,
/// and the re-randomization keys of its clients, one or many in the same launches. Replies are those of
/// lora::server for the same requests and seeds, byte for byte. It cannot hold a secret key.
///
/// `stage` on the host draws fresh seeds; `apply` only enqueues work, so that a graph of it can be replayed
/// after each staging. A batch applied again without one is erased: the difference of two replies under the
/// same encryptions of zero shows what both should hide.
///
/// Weights lie in device memory, wiped on release. Several streams may share a server, each with its own
/// workspace; stage and add clients on one thread at a time.
/// Packings: coefficient_tiles with protected replies, and replicated_slots with bare ones (lora/slots.hpp).
template <ckks::parameter_set P, execution Where, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>>
class server {
    static_assert(sizeof(P) == 0,
                  "device::server: this packing with this protection is not on the device; use lora::server");
};

template <ckks::parameter_set P, execution Where, int Rows, class Protection>
class server<P, Where, lora::coefficient_tiles<Rows>, Protection> {
    static_assert(Protection::protects, "device::server: replies of coefficient_tiles are protected");

  public:
    using packing = lora::coefficient_tiles<Rows>;
    using layout_type = lora::layout<P, packing, Protection>;
    using basis = typename lora::traced_product<P>::basis;
    using requests = request_batch<P, Where>;
    using replies = reply_batch<P, Where, packing, Protection>;
    using rerandomization_key = ckks::rerandomization_key<P, lora::request_level<P>>;

    /// Memory of one stream of batches of up to `largest` tokens: wiped on release, since it holds products
    /// that are not hidden yet.
    class workspace : public detail::staged_batch<Where> {
      public:
        workspace(const server& server, std::size_t largest)
            : workspace(server, largest, largest * server.layout_.inputs(),
                        largest * server.layout_.outputs()) {}

      private:
        friend class server;
        template <class T>
        using piece = typename staging_area<Where>::template piece<T>;

        workspace(const server& server, std::size_t largest, std::size_t inputs, std::size_t outputs)
            : detail::staged_batch<Where>(
                  "device::server", largest,
                  staging_area<Where>::template bytes_for<random::seed, random::seed, std::uint32_t>(
                      largest, outputs, largest)),
              layout_(server.layout_),
              host_status_(largest),
              flood_seeds_(this->staging_.template take<random::seed>(largest)),
              zero_seeds_(this->staging_.template take<random::seed>(outputs)),
              client_of_(this->staging_.template take<std::uint32_t>(largest)),
              c0_(inputs * words_, memory::uninitialized),
              c1_(inputs * words_, memory::uninitialized),
              floods_(outputs * trace_, memory::uninitialized),
              products_(outputs, trace_),
              status_(largest) {}

        layout_type layout_;
        // Released last: the release of device memory waits for downloads that are under way.
        memory::buffer<std::uint32_t, typename Where::staging_space> host_status_;
        piece<random::seed> flood_seeds_;
        piece<random::seed> zero_seeds_;
        piece<std::uint32_t> client_of_;
        memory::buffer<word, typename Where::space> c0_;
        memory::buffer<word, typename Where::space> c1_;
        memory::buffer<arith::uint128, typename Where::space, memory::wipe_on_release> floods_;
        detail::product_memory<P, Where> products_;
        memory::buffer<std::uint32_t, typename Where::space> status_;
    };

    /// Packs A (rank x d) on the host, once, and copies it to the device.
    /// @param largest_clients  clients that there is room for
    /// @param generator        of flood seeds; to give an explicit one is for tests
    /// @throws as lora::server
    server(const Where& where, const lora::matrix& a, std::size_t largest_clients = 1,
           random::generator generator = random::generator())
        : layout_(layout_type::of(a.rows, a.columns, lora::detail::public_row_norm(a))),
          budget_(layout_.budget()),
          generator_(std::move(generator)),
          plan_(where),
          fold_(where, layout_type::subring_log_n()),
          weights_(layout_.outputs() * layout_.inputs() * words_, memory::uninitialized),
          clients_(largest_clients),
          places_(layout_),
          outputs_(uploaded(where, places_.outputs)) {
        layout_.check_matrix(a);
        for (std::size_t o = 0; o < layout_.outputs(); ++o) {
            for (std::size_t i = 0; i < layout_.inputs(); ++i) {
                const auto weights = ckks::forward(layout_.encode_weights(a, budget_, o, i));
                where.upload(weights.value.words(), weights_.data() + (o * layout_.inputs() + i) * words_);
                where.wait();
            }
        }
    }
    server(const Where&, const lora::matrix&, const ckks::secret_key<P>&) = delete;  // never holds one

    const layout_type& layout() const noexcept { return layout_; }
    /// The weights in the memory of Where, which every batch reads, for a device::l2_window.
    const auto& weights() const noexcept { return weights_; }
    std::size_t clients() const noexcept { return clients_.count(); }

    /// Adds a client: the key with which its replies are hidden. Returns its number, from 0 on.
    /// @param nonce      random::fresh_nonce(), drawn by this server for the session and sent to the client
    /// @param key        what the client answered: make_rerandomization_key
    /// @param generator  of the seeds of its encryptions of zero; to give an explicit one is for tests
    /// @throws parameter_error if the key is for another nonce or without room; format_error for a malformed
    ///         key
    std::uint32_t add_client(const Where& where, const random::seed& nonce, const rerandomization_key& key,
                             random::generator generator = random::generator()) {
        return clients_.add(where, nonce, key, std::move(generator));
    }

    /// First step, on the host: fresh seeds for a batch.
    /// @param client_of  number of the client of each token; for one client `tokens` times 0
    /// @throws shape_error for no tokens, more than the workspace has room for, or a workspace of another
    ///         matrix; parameter_error for a client that was not added; entropy_error. Nothing is staged then
    void stage(workspace& work, std::span<const std::uint32_t> client_of) {
        work.unstage();
        check_workspace("device::server::stage", work.layout_, layout_);
        require<shape_error>(
            !client_of.empty() && client_of.size() <= work.largest_,
            {"device::server::stage: got ", client_of.size(), " tokens, expected 1 to ", work.largest_});
        for (const std::uint32_t client : client_of) {
            clients_.check(client);
        }
        std::copy(client_of.begin(), client_of.end(), work.client_of_.host.begin());
        generator_.next_seeds(work.flood_seeds_.host.first(client_of.size()));
        // Of neighbours that belong to one client at once.
        const std::size_t outputs = layout_.outputs();
        for (std::size_t first = 0, end = 0; first < client_of.size(); first = end) {
            while (end < client_of.size() && client_of[end] == client_of[first]) {
                ++end;
            }
            clients_.generator(client_of[first])
                .next_seeds(work.zero_seeds_.host.subspan(first * outputs, (end - first) * outputs));
        }
        work.note_staged(client_of.size(), work.host_status_.span());
    }

    /// Second step: enqueues the answers to a batch. One upload, nine launches, and a download of the status.
    /// @throws shape_error unless workspace, requests and replies are of this layout, and requests as many as
    ///         are staged; error if nothing is staged; device_error
    void apply(const Where& where, const requests& from, workspace& work, replies& to) const {
        check_workspace("device::server::apply", work.layout_, layout_);
        work.check_staged();
        require<shape_error>(from.d() == layout_.d && from.block() == layout_type::block &&
                                 from.inputs() == layout_.inputs() && from.tokens() == work.tokens_,
                             {"device::server::apply: got ", from.tokens(), " requests of ", from.d(),
                              " entries, expected the ", work.tokens_, " that are staged, of ", layout_.d});
        require<shape_error>(
            to.layout() == layout_,
            {"device::server::apply: got room for replies of a ", to.layout().rank, " x ", to.layout().d,
             " matrix, expected that of this one, ", layout_.rank, " x ", layout_.d});
        to.set_tokens(work.tokens_);
        work.staging_.upload(where);
        work.begin(where, work.status_.data());
        draw(where, from, work);

        const auto tokens = static_cast<std::uint32_t>(work.tokens_);
        const auto inputs = static_cast<std::uint32_t>(layout_.inputs());
        const auto outputs = static_cast<std::uint32_t>(layout_.outputs());
        unpack<basis>(where, from.bytes(), work.tokens_ * layout_.inputs(), work.c0_.data(),
                      work.status_.data(), inputs);
        product_batch products;
        products.weights = weights_.data();
        products.c0 = work.c0_.data();
        products.c1 = work.c1_.data();
        products.client_of = work.client_of_.device;
        products.tokens = tokens;
        products.inputs = inputs;
        products.outputs = outputs;
        const std::uint32_t parts = work.products_.multiply(where, plan_, clients_, products);
        rerandomization hiding =
            work.products_.hiding(outputs_.data(), tokens, outputs, to.bytes(), places_.stride);
        hiding.c0_sums = work.products_.c0_sums();
        hiding.c0_parts = parts;
        hiding.e0 = work.products_.e0();
        hiding.e0_stride = trace_;
        hiding.floods = work.floods_.data();
        hiding.flood_stride = trace_;
        rerandomize_c0<basis>(where, fold_, budget_.flood, hiding);
        rerandomize_c1<basis>(where, hiding);
        erase(where, work.status_.data(), to.bytes(), places_.stride, work.tokens_, ~std::uint32_t{0});
        where.download(work.status_.data(), std::span<std::uint32_t>(work.host_status_.data(), work.tokens_));
    }

    /// The status word of each token, 0 if all is well, after `where.wait()`. Other replies are erased.
    std::span<const std::uint32_t> status(const workspace& work) const noexcept {
        return {work.host_status_.data(), work.tokens_};
    }

    /// Throws for the first token whose status is not 0; the other replies stand.
    /// @throws format_error if a residue of a request is not below its prime; error if the batch was applied
    ///         again without staging, or not at all
    void check(const workspace& work) const { detail::check_answered<basis>("apply", status(work)); }

  private:
    static_assert(layout_type::subring_log_n() <= most_subring_log_n,
                  "device::server: at most 64 rows in a plaintext");
    static constexpr auto limbs_ = static_cast<std::size_t>(basis::limbs);
    static constexpr std::size_t words_ = P::degree * limbs_;
    static constexpr auto trace_ = static_cast<std::uint32_t>(Rows);

    void draw(const Where& where, const requests& from, workspace& work) const {
        const auto inputs = static_cast<std::uint32_t>(layout_.inputs());
        const auto outputs = static_cast<std::uint32_t>(layout_.outputs());
        const std::size_t products = work.tokens_ * layout_.outputs();
        draw_group flood{distribution::flood, random::stream_domain::flood, 0, outputs};
        flood.polynomials = static_cast<std::uint32_t>(products);
        flood.size = trace_;
        flood.seeds = work.flood_seeds_.device;
        flood.out = work.floods_.data();
        flood.bits = budget_.flood.bits;
        flood.terms = ckks::irwin_hall_smudging::terms;

        const auto [ternary, e0, e1] = work.products_.draws(work.zero_seeds_.device, products);
        const std::array<draw_group, 5> draws{
            uniform_polynomials<basis>(from.seeds(), inputs, work.tokens_ * inputs, work.c1_.data()), ternary,
            e0, e1, flood};
        device::draw(where, std::span<const draw_group>(draws));
    }

    layout_type layout_;
    lora::reply_budget budget_;
    random::generator generator_;
    plan<basis, typename Where::space> plan_;
    trace_tables<basis, typename Where::space> fold_;
    memory::buffer<word, typename Where::space, memory::wipe_on_release> weights_;
    detail::zero_clients<P, Where> clients_;
    output_places places_;
    memory::buffer<output_place, typename Where::space> outputs_;
};

}  // namespace tensafe::device
