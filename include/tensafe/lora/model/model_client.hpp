#pragma once

#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/client.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// Returns the part of the adapter that the client of a model holds: of a protected site B, which carries the
/// norms of A's rows, and the scale (client_held_b), or nothing (blind); other sites whole. Whoever has the
/// adapter calls it, with the options of the model_server.
/// @throws as normalize_rows, and as model_server for shapes and names
inline adapter client_part(const adapter& from, const model_options& options = {}) {
    grouped_sites groups = group_sites(from, options);  // checks
    std::vector<std::span<const double>> norms(from.sites.size());
    std::vector<detail::stacked_rows> stacks;
    for (std::size_t g = 0; g < groups.sites.size() && options.mode == lora::mode::client_held_b; ++g) {
        stacks.push_back(detail::stacked(from, groups.sites[g], options, groups.layout.groups[g]));
        stacks.back().rows = {};
        std::span<const double> rest = stacks.back().norms;
        for (const std::size_t i : groups.sites[g]) {
            norms[i] = rest.first(from.sites[i].rank());
            rest = rest.subspan(norms[i].size());
        }
    }
    adapter held;
    for (std::size_t i = 0; i < from.sites.size(); ++i) {
        const adapter_site& site = from.sites[i];
        if (!detail::is_protected(options, site)) {
            held.sites.push_back(site);
        } else if (options.mode == lora::mode::client_held_b) {
            held.sites.push_back({site.name, {}, site.b, site.scale});
            detail::carry_norms(held.sites.back(), norms[i]);
        }
    }
    return held;
}

/// By site, the Frobenius norm of the base layer's weights: about how much longer than a hidden state its
/// delta may be, for an honest adapter changes less.
using base_norms = std::map<std::string, double, std::less<>>;

/// The norm of sites for which none is given: floats are far from overflowing.
inline constexpr double largest_gain = 0x1p20;

/// The client of a whole model: encrypts the input of a group once for all its sites, and makes their deltas
/// of the reply. One key serves any number of models and groups.
///
/// Threads and exceptions as with lora::client, over all that share the key. Messages of exceptions name the
/// group's input.
template <ckks::parameter_set P, class Packing = coefficient_tiles<4>,
          class Protection = protects_adapter_rows<>>
class model_client {
  public:
    using decode_plan = packing_plan<P, Packing, Protection>;
    using block_plan = packing_plan<P, token_blocks, block_protection<Protection>>;
    using query_type = typename decode_plan::query_type;
    using reply_type = typename decode_plan::reply_type;
    using block_type = client_block<P, block_protection<Protection>>;
    /// One vector for each site of a group, in the order of layout().groups[group].sites: d_out entries each.
    using site_deltas = std::vector<std::vector<double>>;

    /// Makes a client of a model with keys that others may share.
    /// @param layout  from the server: checked here, also against the parameter set
    /// @param held    of client_part; sites that the layout does not name are applied in the clear
    /// @param norms   each site's gain, row norm * |scale| * norm of B, times the largest factor that
    ///                column_exponents give an entry of a hidden state, must not pass its norm here: a server
    ///                could overflow the next hidden states with a large one, when an answer, a coefficient
    ///                of the key perhaps, is not zero
    /// @throws parameter_error or shape_error, naming site or input, for a layout that no model_server of
    ///         these types has, and unless `held` has each of its sites once, with its shape, scale and gain
    model_client(std::shared_ptr<client<P>> keys, model_layout layout, adapter held = {},
                 const base_norms& norms = {})
        : keys_(std::move(keys)), layout_(std::move(layout)) {
        require<parameter_error>(keys_ != nullptr, {"model_client: got no keys, expected a lora::client"});
        layout_.check();
        check_tokens_ahead<P, Protection>(layout_.tokens_ahead, true);
        for (const auto& group : layout_.groups) {
            detail::naming_input("model_client", group, [&] {
                const std::size_t rows = group.rows(layout_.mode);
                decode_.emplace_back(rows, group.d, group.row_norm);
                factors_.emplace_back(detail::column_factors(group.column_exponents));
                if (layout_.tokens_ahead > 0) {
                    blocks_.emplace_back(
                        block_plan::layout_type::of(rows, group.d, group.row_norm, layout_.tokens_ahead));
                }
            });
        }
        take(std::move(held), norms);
    }
    /// Makes a client with a fresh key.
    explicit model_client(model_layout layout, adapter held = {}, const base_norms& norms = {})
        : model_client(std::make_shared<client<P>>(), std::move(layout), std::move(held), norms) {}

    const model_layout& layout() const noexcept { return layout_; }
    const std::shared_ptr<client<P>>& keys() const noexcept { return keys_; }
    /// Each site's gain, in the order of the layout: how much longer than a hidden state its delta may be.
    std::span<const double> gains() const noexcept { return gains_; }
    /// The plan of single hidden states of a group.  @throws parameter_error if there is no such group
    const decode_plan& plan(std::size_t group) const {
        static_cast<void>(layout_.at(group));
        return decode_[group];
    }

    /// Makes the key for the server_zeros with this server nonce: sent once, for all groups and blocks.
    ckks::rerandomization_key<P, request_level<P>> rerandomization_key(const random::seed& server_nonce) {
        return keys_->rerandomization_key(server_nonce);
    }

    /// Encrypts the hidden state that is the input of a group.
    /// @throws as client::encrypt; parameter_error if there is no such group
    template <hidden_state State>
    query_type encrypt(std::size_t group, const State& h, double overflow_margin = 1) {
        query_type result;
        encrypt(group, h, result, overflow_margin);
        return result;
    }
    /// Encrypts into a query of an earlier token: from the second one for this group on, nothing is
    /// allocated. Groups of one d can share it; of slot packings also the number of rows must be one.
    /// @throws as client::encrypt; parameter_error if there is no such group
    template <hidden_state State>
    void encrypt(std::size_t group, const State& h, query_type& result, double overflow_margin = 1) {
        detail::naming_input("model_client::encrypt", layout_.at(group), [&] {
            with_scaled(group, h, [&](const auto& state) {
                keys_->encrypt(decode_[group], state, result, overflow_margin);
                return true;
            });
        });
    }
    /// Encrypts like client::encrypt_or_zeros.  @throws as it; parameter_error if there is no such group
    template <hidden_state State>
    bool encrypt_or_zeros(std::size_t group, const State& h, query_type& result, double overflow_margin = 1) {
        return detail::naming_input("model_client::encrypt", layout_.at(group), [&] {
            return with_scaled(group, h, [&](const auto& state) {
                return keys_->encrypt_or_zeros(decode_[group], state, result, overflow_margin);
            });
        });
    }

    /// Prepares a block of tokens for a group: of those to come, or of a prompt. Its request goes to the
    /// server; encrypt and decrypt with the block. Takes memory for d words a limb and token, of a layout
    /// that is the server's: look at its tokens_ahead if the server is not trusted.
    /// @throws as client::prepare; parameter_error if there is no such group, or no blocks
    block_type prepare(std::size_t group) {
        return detail::naming_input("model_client::prepare", layout_.at(group),
                                    [&] { return keys_->prepare(plan_of_blocks(group), factors_[group]); });
    }
    /// Takes in the server's part of a block.  @throws as client::accept
    void accept(block_type& block, const block_reply& r) const { keys_->accept(block, r); }
    /// The plan of a group's blocks.  @throws parameter_error if there is no such group, or no blocks
    const block_plan& plan_of_blocks(std::size_t group) const {
        static_cast<void>(layout_.at(group));
        require<parameter_error>(!blocks_.empty(),
                                 {"this model has no blocks (model_options::tokens_ahead of its server)"});
        return blocks_[group];
    }

    /// Memory for decrypting, kept by the caller. Wiped on release. For one thread at a time.
    using workspace = decryption_workspace<P>;

    /// Decrypts the product of the group's stacked rows with h. The warnings of client::decrypt hold.
    /// @throws as client::decrypt; parameter_error if there is no such group
    std::vector<double> decrypt(std::size_t group, const reply_type& r, const query_type& q) const {
        workspace work;
        std::vector<double> product;
        decrypt(group, r, q, work, product);
        return product;
    }
    /// Decrypts into a vector of an earlier token: nothing is allocated if it has had the size of the group.
    /// @throws as client::decrypt; parameter_error if there is no such group
    void decrypt(std::size_t group, const reply_type& r, const query_type& q, workspace& work,
                 std::vector<double>& product) const {
        product.resize(plan(group).rank());
        decrypt(group, r, q, work, std::span(product));
    }
    void decrypt(std::size_t group, const reply_type& r, const query_type& q, workspace& work,
                 std::span<double> product) const {
        detail::naming_input("model_client::decrypt", layout_.at(group),
                             [&] { keys_->decrypt(decode_[group], r, q, work, product); });
    }
    /// The deltas of a group's sites from the product of their rows.
    /// @throws shape_error unless it has an entry for each row; parameter_error if there is no such group
    site_deltas deltas(std::size_t group, std::span<const double> product) const {
        site_deltas result;
        deltas(group, product, result);
        return result;
    }
    /// Writes the deltas into those of an earlier token: from the second one on, nothing is allocated.
    /// @throws shape_error unless it has an entry for each row; parameter_error if there is no such group
    void deltas(std::size_t group, std::span<const double> product, site_deltas& result) const {
        const model_layout::group& g = layout_.at(group);
        require<shape_error>(product.size() == decode_[group].rank(),
                             {"model_client::deltas: input ", in_quotes(g.input), ": got a product of ",
                              product.size(), " entries, expected ", decode_[group].rank()});
        result.resize(g.sites.size());
        for (std::size_t s = 0; s < g.sites.size(); ++s) {
            const model_layout::site& site = g.sites[s];
            const std::size_t rows = served_rows(layout_.mode, site.rank, site.d_out);
            const std::span<const double> part = product.first(rows);
            product = product.subspan(rows);
            result[s].resize(site.d_out);
            if (layout_.mode == lora::mode::client_held_b) {
                detail::multiply(b_[group][s], site.scale, part, result[s]);
            } else {
                for (std::size_t k = 0; k < part.size(); ++k) {
                    result[s][k] = part[k] * site.scale;
                }
            }
        }
    }

    /// Decrypts a reply and returns the deltas of the group's sites.  @throws as decrypt
    site_deltas deltas(std::size_t group, const reply_type& r, const query_type& q) const {
        return deltas(group, decrypt(group, r, q));
    }
    /// The sites that the server does not serve, in the order in which they were given: for plain_delta.
    std::span<const adapter_site> in_the_clear() const noexcept { return clear_; }

  private:
    template <hidden_state State, class F>
    bool with_scaled(std::size_t group, const State& h, F&& f) {
        if (factors_[group].empty()) {
            return f(h);
        }
        detail::scale_columns(detail::view_of_state(h), factors_[group], scaled_);
        return f(scaled_.span());
    }

    void take(adapter held, const base_norms& norms) {
        std::map<std::string_view, adapter_site*> given;
        for (adapter_site& site : held.sites) {
            require<parameter_error>(given.try_emplace(site.name, &site).second,
                                     {"model_client: site ", in_quotes(site.name), " was given twice"});
        }
        std::string_view missing;
        for (const auto& group : layout_.groups) {
            auto& b = b_.emplace_back();
            const double largest = largest_factor(group) * group.row_norm;
            for (const auto& wanted : group.sites) {
                const auto found = given.find(wanted.name);
                if (layout_.mode == lora::mode::blind) {
                    take_gain(wanted, norms, std::sqrt(static_cast<double>(wanted.d_out)) * largest);
                }
                if (found != given.end()) {
                    check_held(*found->second, wanted);
                    take_gain(wanted, norms,
                              std::sqrt(encoding::sum_of_squares<float>(found->second->b.values)) * largest);
                    b.push_back(std::move(found->second->b));
                    take_normal(b.back());
                    given.erase(found);
                } else if (missing.empty() && layout_.mode != lora::mode::blind) {
                    missing = wanted.name;
                }
            }
        }
        for (adapter_site& site : held.sites) {
            if (given.erase(site.name) != 0) {
                check_clear(site);
                take_normal(site.a);
                take_normal(site.b);
                clear_.push_back(std::move(site));
            }
        }
        require<parameter_error>(
            missing.empty(),
            {"model_client: site ", in_quotes(missing),
             " of the layout was not given; take what client_part makes with the server's options"});
    }

    /// Makes entries 0 whose products with what is decrypted could be subnormal.
    static void take_normal(matrix& m) noexcept {
        for (float& x : m.values) {
            x = std::fabs(x) < static_cast<float>(detail::least_entry) ? 0 : x;
        }
    }

    static void check_clear(const adapter_site& site) {
        site.a.check("model_client: A of site " + quote(site.name));
        site.b.check("model_client: B of site " + quote(site.name));
        require<shape_error>(
            !site.a.values.empty() && site.b.columns == site.rank(),
            {"model_client: site ", in_quotes(site.name),
             " is not in the layout, so it is applied in the clear: got a B of ", site.b.columns,
             " columns for ", site.rank(), " rows of A, expected both matrices"});
        require<parameter_error>(detail::is_scale(site.scale),
                                 {"model_client: site ", in_quotes(site.name), " has the scale ", site.scale,
                                  ", expected 0 or a magnitude from 2^-64 to 2^64"});
    }

    void check_held(const adapter_site& site, const model_layout::site& wanted) const {
        require<parameter_error>(layout_.mode != lora::mode::blind,
                                 {"model_client: site ", in_quotes(site.name),
                                  " was given, but in mode blind the server applies all of it; take what "
                                  "client_part makes with the server's options"});
        require<parameter_error>(site.a.values.empty(),
                                 {"model_client: site ", in_quotes(site.name),
                                  " has an A, which the server keeps to itself; take what client_part makes: "
                                  "its B goes with the rows that the server has normalized"});
        site.b.check("model_client: B of site " + quote(site.name));
        require<shape_error>(
            site.b.rows == wanted.d_out && site.b.columns == wanted.rank,
            {"model_client: B of site ", in_quotes(site.name), " is ", site.b.rows, " x ", site.b.columns,
             ", expected ", wanted.d_out, " x ", wanted.rank, " as the server's layout says"});
        require<parameter_error>(site.scale == wanted.scale,
                                 {"model_client: site ", in_quotes(site.name), " has the scale ", site.scale,
                                  ", expected ", wanted.scale, " as the server's layout says"});
    }

    /// How much longer than a hidden state the state that is encrypted in its place can be.
    static double largest_factor(const model_layout::group& group) {
        const auto& e = group.column_exponents;
        return e.empty() ? 1 : std::ldexp(1.0, -*std::min_element(e.begin(), e.end()));
    }

    void take_gain(const model_layout::site& site, const base_norms& norms, double unscaled) {
        const double gain = unscaled * std::fabs(site.scale);
        const auto norm = norms.find(site.name);
        const double most = norm == norms.end() ? largest_gain : norm->second;
        require<parameter_error>(gain <= most, {"model_client: site ", in_quotes(site.name),
                                                ": got a gain of ", gain, ", expected at most ", most,
                                                norm == norms.end() ? "" : ", the base layer's norm"});
        gains_.push_back(gain);
    }

    std::shared_ptr<client<P>> keys_;
    model_layout layout_;
    std::vector<decode_plan> decode_;
    std::vector<block_plan> blocks_;
    std::vector<std::vector<double>> factors_;  ///< of the entries of each group's hidden states, or none
    memory::secret_buffer<double> scaled_;
    std::vector<std::vector<matrix>> b_;  ///< the matrices of each site of each group
    std::vector<double> gains_;
    std::vector<adapter_site> clear_;
};

}  // namespace tensafe::lora
