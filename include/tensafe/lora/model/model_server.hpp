#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// Whether a model of these types has blocks of tokens: replies are protected, and the set can hold those for
/// hidden states of 4096 entries.
template <ckks::parameter_set P, class Protection>
inline constexpr bool offers_blocks = [] {
    if constexpr (Protection::protects) {
        return layout<P, token_blocks, Protection>::compute_budget(1, 4096).problem == nullptr;
    }
    return false;
}();

namespace detail {

/// The bytes of the packed weights of a server with this layout.
template <ckks::parameter_set P, class Packing, class Protection>
constexpr std::size_t packed_bytes(const layout<P, Packing, Protection>& l) noexcept {
    if constexpr (std::is_same_v<Packing, token_blocks>) {
        return detail::whole_lanes(l.outputs()) * l.d * sizeof(std::uint32_t);
    } else {
        return l.inputs() * l.outputs() * P::degree *
               static_cast<std::size_t>(traced_product<P>::basis::limbs) * sizeof(arith::word);
    }
}

/// Divides by the power of two with which the largest row gets a norm of 1/2 to 1, and returns it: one scale
/// of integers then serves all sites of a group. Exact, but for entries below 2^-126.
inline double take_size_out(matrix& m) {
    const double norm = largest_row_norm(m);
    if (!(norm > 0)) {
        return 1;
    }
    int exponent = 0;
    static_cast<void>(std::frexp(norm, &exponent));
    for (float& x : m.values) {
        x = static_cast<float>(std::ldexp(static_cast<double>(x), -exponent));
    }
    return std::ldexp(1.0, exponent);
}

/// The rows of a group as they are served, and in mode client_held_b the norms that their B carry instead.
struct stacked_rows {
    matrix rows;
    std::vector<double> norms;
};

/// Stacks the rows of a group's sites. Writes the scales of merged sites, and the exponents of columns.
inline stacked_rows stacked(const adapter& from, const std::vector<std::size_t>& sites,
                            const model_options& options, model_layout::group& group) {
    stacked_rows result{matrix(0, group.d), {}};
    matrix& rows = result.rows;
    rows.values.reserve(group.rows(options.mode) * group.d);
    for (std::size_t s = 0; s < sites.size(); ++s) {
        const adapter_site& site = from.sites[sites[s]];
        matrix own;
        if (options.mode == lora::mode::blind) {
            own = merge(site);
            group.sites[s].scale = take_size_out(own);
        } else {
            check_matrices("normalize_rows", site);
            own = site.a;
            const std::vector<double> norms = take_norms(own);
            result.norms.insert(result.norms.end(), norms.begin(), norms.end());
        }
        rows.values.insert(rows.values.end(), own.values.begin(), own.values.end());
        rows.rows += own.rows;
    }
    if (options.column_scales) {
        group.column_exponents = scale_columns(rows);
        if (options.mode == lora::mode::client_held_b) {
            const std::vector<double> more = take_norms(rows);
            std::transform(more.begin(), more.end(), result.norms.begin(), result.norms.begin(),
                           std::multiplies());
        } else {
            for (auto at = rows.values.begin(); auto& site : group.sites) {
                matrix own(site.d_out, group.d);
                std::copy_n(at, own.values.size(), own.values.begin());
                site.scale *= take_size_out(own);
                at = std::copy(own.values.begin(), own.values.end(), at);
            }
        }
    }
    return result;
}

/// Stacks the rows of other matrices A as those that `group` was made of, in mode client_held_b: with the
/// norms of those and their columns' exponents, so that nothing that is published says in what they differ.
inline matrix stacked_alike(std::span<const matrix> a, const model_layout::group& group) {
    matrix rows(0, group.d);
    for (const matrix& own : a) {
        rows.values.insert(rows.values.end(), own.values.begin(), own.values.end());
        rows.rows += own.rows;
    }
    take_norms(rows);
    if (!group.column_exponents.empty()) {
        for (std::size_t r = 0; r < rows.rows; ++r) {
            const std::span<float> row = rows.row(r);
            for (std::size_t t = 0; t < row.size(); ++t) {
                row[t] = std::ldexp(row[t], group.column_exponents[t]);
            }
        }
        take_norms(rows);
    }
    return rows;
}

}  // namespace detail

/// Checks model_options::tokens_ahead, as model_server does: 0, or tokens of a block that this set has room
/// for.
/// @throws parameter_error for another number
template <ckks::parameter_set P, class Protection>
void check_tokens_ahead(std::size_t tokens, bool trusts_clients) {
    const std::size_t most = !offers_blocks<P, Protection> ? 0
                             : trusts_clients              ? P::degree
                                                           : most_targets<P, Protection>;
    require<parameter_error>(
        tokens == 0 || (tokens >= 2 && tokens <= most),
        {"model: got tokens_ahead of ", tokens,
         most == 0 ? ", expected 0: this parameter set has no room for blocks" : ", expected 0 or 2 to ",
         most == 0 ? text_part("") : text_part(most),
         most == 0 || trusts_clients ? "" : "; more with trusts_clients"});
}

/// A whole adapter, packed: one server for each input that its sites share, and with tokens_ahead one more
/// for blocks. Rows are normalized (client_held_b) or merged with B (blind) here: give it the adapter as it
/// was read. Keeps the packed form only, about bytes() of memory, and needs one group's matrices beside it
/// while it packs; or has a `source` pack groups when they are asked for.
///
/// It cannot hold a secret key. Immutable and safe to share between threads, each with its own workspace; not
/// copyable: hold it by std::shared_ptr<const model_server>. What belongs to one client is in a
/// server_zeros.
template <ckks::parameter_set P, class Packing = coefficient_tiles<4>,
          class Protection = protects_adapter_rows<>>
class model_server {
    static_assert(
        !std::is_same_v<Packing, token_blocks>,
        "lora::model_server: the packing is that of single hidden states; blocks are served beside it "
        "(model_options::tokens_ahead)");

  public:
    using parameters = P;
    using options_type = model_options;
    using decode_server = server<P, Packing, Protection>;
    using block_server = server<P, token_blocks, block_protection<Protection>>;
    using request_type = typename decode_server::request_type;
    using plan_type = typename decode_server::plan_type;
    using block_plan = typename block_server::plan_type;

    /// Gives the servers of groups to a model that does not keep them. Thread-safe.
    class source {
      public:
        virtual ~source() = default;
        virtual std::shared_ptr<const decode_server> decode(std::size_t group) const = 0;
        virtual std::shared_ptr<const block_server> blocks(std::size_t group) const = 0;
    };

    /// Serves what `from` gives for a layout that a model of these types made.
    /// @param from  null: the model has plans alone
    model_server(model_layout layout, std::shared_ptr<const source> from)
        : layout_(std::move(layout)), source_(std::move(from)) {
        for (const model_layout::group& group : layout_.groups) {
            add_plans(group);
        }
    }

    /// Packs all sites that the options protect.
    /// @param progress  called after each group
    /// @throws shape_error, parameter_error or encoding_error, naming site or input, for an adapter without a
    ///         protected site, two sites of one name, matrices that do not fit or hold no finite numbers, and
    ///         for replies or a tokens_ahead that the set has no room for; what progress throws
    explicit model_server(const adapter& from, const model_options& options = {},
                          const pack_progress& progress = {}) {
        const grouped_sites groups = grouped(from, options);
        layout_ = groups.layout;
        for (std::size_t g = 0; g < layout_.groups.size(); ++g) {
            model_layout::group& group = layout_.groups[g];
            detail::naming_input("model_server", group, [&] {
                const matrix rows = detail::stacked(from, groups.sites[g], options, group).rows;
                decode_.push_back(packed(rows, options.trusts_clients));
                group.row_norm = decode_.back()->layout().row_norm;
                if (layout_.tokens_ahead > 0) {
                    // Checked already.
                    blocks_.push_back(
                        std::make_shared<const block_server>(rows, layout_.tokens_ahead, trusts_clients{}));
                }
                add_plans(group);
            });
            if (progress) {
                progress(g + 1, layout_.groups.size());
            }
        }
    }

    model_server(const model_server&) = delete;  // hundreds of megabytes: share it
    model_server& operator=(const model_server&) = delete;

    /// Packs the rows of a group for hidden states alone.  @throws as server
    static std::shared_ptr<const decode_server> packed(const matrix& rows, bool trusts_the_clients) {
        return trusts_the_clients ? std::make_shared<const decode_server>(rows, trusts_clients{})
                                  : std::make_shared<const decode_server>(rows);
    }

    /// The bytes() of the model that these arguments make. Looks at names, shapes and scales only.
    /// @throws as the constructor, as far as it follows from these
    static std::size_t bytes_for(const adapter& from, const model_options& options = {}) {
        return bytes_of(grouped(from, options).layout);
    }

    /// Shows `take` the plan of each group, and the rows as they are packed.
    /// @return  the layout of such a model
    /// @throws as the constructor, as far as it looks at the rows; what take throws
    template <class Take>
    static model_layout visit_rows(const adapter& from, const model_options& options, Take&& take) {
        grouped_sites groups = grouped(from, options);
        for (std::size_t g = 0; g < groups.sites.size(); ++g) {
            model_layout::group& group = groups.layout.groups[g];
            detail::naming_input("model_server", group, [&] {
                const matrix rows = detail::stacked(from, groups.sites[g], options, group).rows;
                const plan_type plan(rows.rows, rows.columns, detail::public_row_norm(rows));
                group.row_norm = plan.layout().row_norm;
                take(plan, rows);
            });
        }
        return std::move(groups.layout);
    }

    /// Shows `take` the integers that a model of these arguments multiplies single hidden states with, in
    /// spans of words: of each group its rows and d; then output by output, and of each output input by
    /// input, the coefficients of a plaintext modulo each prime. Encodes as the constructor does. For
    /// commitments.
    /// @return  the layout of such a model
    /// @throws as the constructor; what take throws
    template <class Take>
    static model_layout visit_weights(const adapter& from, const model_options& options, Take&& take) {
        return visit_rows(from, options, [&](const plan_type& plan, const matrix& rows) {
            visit_weights_of(plan, rows, take);
        });
    }
    /// Shows them of the rows of one group, as they are packed.
    template <class Take>
    static void visit_weights_of(const plan_type& plan, const matrix& rows, Take& take) {
        const std::array<arith::word, 2> shape{rows.rows, rows.columns};
        take(std::span<const arith::word>(shape));
        for (std::size_t o = 0; o < plan.outputs(); ++o) {
            for (std::size_t i = 0; i < plan.inputs(); ++i) {
                const auto weights = plan.layout().encode_weights(rows, plan.budget(), o, i);
                rns::for_each_limb<typename std::remove_cvref_t<decltype(weights)>::basis>(
                    [&]<int I>() { take(std::span<const arith::word>(weights.value.template limb<I>())); });
            }
        }
    }

    /// The bytes of the packed matrices, all of them.
    std::size_t bytes() const noexcept { return bytes_of(layout_); }

    const model_layout& layout() const noexcept { return layout_; }

    /// The plan of single hidden states of a group.  @throws parameter_error if there is no such group
    const plan_type& plan(std::size_t group) const {
        static_cast<void>(layout_.at(group));
        return plans_[group];
    }
    /// The plan of a group's blocks.  @throws parameter_error for no such group, or no blocks
    const block_plan& plan_of_blocks(std::size_t group) const {
        static_cast<void>(layout_.at(group));
        require<parameter_error>(!block_plans_.empty(), {"model_server: this model was packed without blocks "
                                                         "(model_options::tokens_ahead)"});
        return block_plans_[group];
    }
    /// The server of single hidden states of a group.
    /// @throws parameter_error if there is no such group; what a source throws
    std::shared_ptr<const decode_server> decode(std::size_t group) const {
        static_cast<void>(plan(group));
        return source_ ? source_->decode(group) : kept(decode_, group);
    }
    /// The server of a group's blocks.
    /// @throws parameter_error for no such group, or no blocks; what a source throws
    std::shared_ptr<const block_server> blocks(std::size_t group) const {
        static_cast<void>(plan_of_blocks(group));
        return source_ ? source_->blocks(group) : kept(blocks_, group);
    }

    /// The encryptions of zero that one generated token takes, over all groups; none for bare replies.
    std::size_t zeros_per_token() const noexcept { return zeros_of(plans_); }
    /// The encryptions of zero that one block of each group takes; none without blocks.
    std::size_t zeros_per_block() const noexcept { return zeros_of(block_plans_); }

  private:
    using decode_layout = typename decode_server::layout_type;
    using block_layout = typename block_server::layout_type;

    static grouped_sites grouped(const adapter& from, const model_options& options) {
        grouped_sites groups = group_sites(from, options);
        require<shape_error>(!groups.layout.groups.empty(),
                             {"model_server: none of the ", from.sites.size(),
                              " sites of the adapter is protected, expected at least one"});
        check_tokens_ahead<P, Protection>(options.tokens_ahead, options.trusts_clients);
        groups.layout.tokens_ahead = options.tokens_ahead;
        return groups;
    }

    template <class Plans>
    static std::size_t zeros_of(const Plans& plans) noexcept {
        std::size_t sum = 0;
        for (const auto& plan : plans) {
            sum += Protection::protects ? plan.outputs() : 0;
        }
        return sum;
    }

    template <class Server>
    static const Server& kept(const std::vector<Server>& servers, std::size_t group) {
        require<parameter_error>(group < servers.size(),
                                 {"model_server: got a model of plans alone, expected one with servers"});
        return servers[group];
    }

    void add_plans(const model_layout::group& group) {
        const std::size_t rows = group.rows(layout_.mode);
        plans_.emplace_back(rows, group.d, group.row_norm);
        if (layout_.tokens_ahead > 0) {
            block_plans_.emplace_back(block_layout::of(rows, group.d, group.row_norm, layout_.tokens_ahead));
        }
    }

    static std::size_t bytes_of(const model_layout& layout) noexcept {
        std::size_t sum = 0;
        for (const auto& group : layout.groups) {
            const std::size_t rows = group.rows(layout.mode);
            sum += detail::packed_bytes(decode_layout{rows, group.d, 1});
            if (layout.tokens_ahead > 0) {
                sum += detail::packed_bytes(block_layout{{rows, group.d, 1}, layout.tokens_ahead});
            }
        }
        return sum;
    }

    model_layout layout_;
    std::vector<plan_type> plans_;
    std::vector<block_plan> block_plans_;
    std::shared_ptr<const source> source_;  ///< null: they are kept here
    std::vector<std::shared_ptr<const decode_server>> decode_;
    std::vector<std::shared_ptr<const block_server>> blocks_;
};

}  // namespace tensafe::lora
