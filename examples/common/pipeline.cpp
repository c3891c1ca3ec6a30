#include "pipeline.hpp"

#include <tensafe/tensafe.hpp>

#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace examples {

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;

#define TENSAFE_EXAMPLE_TEXT(name) #name
#define TENSAFE_EXAMPLE_NAME(name) TENSAFE_EXAMPLE_TEXT(name)
const char* const set_name = TENSAFE_EXAMPLE_NAME(TENSAFE_EXAMPLE_SET);

namespace {

using params = ckks::TENSAFE_EXAMPLE_SET;

/// What goes with a set: the protection, and whether it has tiles and blocks, or bare replies.
template <class P>
struct offer {
    using protection = lora::protects_adapter_rows<>;
    static constexpr bool tiles = false;
};
/// Room for a worst-case range and a wide flood.
template <>
struct offer<ckks::private_n4096> {
    using protection = lora::protects_adapter_rows<>;
    static constexpr bool tiles = true;
};
template <>
struct offer<ckks::quantum_n4096> : offer<ckks::private_n4096> {};
/// A shorter modulus, paid for with an average-case range: an answer beyond six times the usual size wraps
/// around, which the client notices.
template <>
struct offer<ckks::compact_n4096> {
    using protection = lora::protects_adapter_rows<lora::average_case<6>>;
    static constexpr bool tiles = true;
};
/// The shortest messages: half the precision, and a flood that hides little.
template <>
struct offer<ckks::minimal_n2048> {
    using protection = lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>;
    static constexpr bool tiles = true;
};

/// Client and server, and what they have once per session.
template <class Server>
struct session {
    template <class... Of>
    explicit session(const arguments& args, const Of&... of_server)
        : server(of_server..., lora::trusts_clients{}), pooled(args.pooled) {}  // the client is one's own

    const auto& plan() const { return server.plan(); }
    /// As an idle server does, off the clock.
    void fill() {
        if (pooled) {
            pool.fill(plan().outputs());
        }
    }

    Server server;
    bool pooled;
    lora::client<params> client;  // a fresh secret key
    // The server's nonce, the client's re-randomization key: from then on the server can make encryptions of
    // zero, and hides each product under a fresh one.
    tensafe::random::seed nonce = tensafe::random::fresh_nonce();
    lora::rerandomization_pool<params> pool = server.pool(nonce, client.rerandomization_key(nonce));
    // Workspace and messages keep their memory from token to token.
    typename Server::workspace work;
};

/// Tokens one by one.
template <class Packing, class Protection>
class exchange : public session<lora::server<params, Packing, Protection>> {
  public:
    exchange(const lora::matrix& a, const arguments& args) : exchange::session(args, a) {}

    /// A*h: the client encrypts, the server multiplies, the client decrypts.
    void send(std::span<const float> h, double overflow_margin, std::span<double> answers, report& to) {
        const auto& plan = this->plan();
        this->fill();
        to.watch.time(phase::encrypt, [&] { this->client.encrypt(plan, h, query_, overflow_margin); });
        bench::phase_clock clock;
        if constexpr (Protection::protects) {
            this->server.apply(query_.request, this->pool, this->work, reply_, clock);
        } else {
            this->server.apply(query_.request, this->work, reply_, clock);
        }
        clock.stop();
        to.watch.add(clock);
        to.book_token(query_.request.bytes(), reply_.bytes());
        to.watch.time(phase::decrypt, [&] { this->client.decrypt(plan, reply_, query_, reading_, answers); });
    }

  private:
    using plan_type = lora::packing_plan<params, Packing, Protection>;

    typename plan_type::query_type query_;
    typename plan_type::reply_type reply_;
    lora::decryption_workspace<params> reading_;
};

/// Blocks of tokens: what does not depend on hidden states comes before them.
template <class Protection>
class exchange<lora::token_blocks, Protection>
    : public session<lora::server<params, lora::token_blocks, Protection>> {
  public:
    exchange(const lora::matrix& a, const arguments& args) : exchange::session(args, a, args.tokens_ahead) {}

    void send(std::span<const float> h, double overflow_margin, std::span<double> answers, report& to) {
        if (!block_ || block_->left() == 0) {
            prepare(to);
        }
        to.watch.time(phase::encrypt, [&] { block_->encrypt(h, query_, overflow_margin); });
        to.watch.time(phase::answer, [&] { this->server.answer(kept_, query_.request, this->work, reply_); });
        to.book_token(query_.request.bytes(), reply_.bytes());
        to.watch.time(phase::decrypt, [&] { block_->decrypt(reply_, query_, answers); });
    }

  private:
    void prepare(report& to) {
        this->fill();
        to.watch.next_block();
        to.watch.time(phase::client_prepare, [&] { block_ = this->client.prepare(this->plan()); });
        to.watch.time(phase::server_prepare, [&] {
            this->server.prepare(block_->request(), this->pool, this->work, kept_, ahead_);
        });
        to.watch.time(phase::accept, [&] { this->client.accept(*block_, ahead_); });
        to.bytes_up += block_->request().bytes();
        to.bytes_down += ahead_.bytes();
    }

    std::optional<lora::client_block<params, Protection>> block_;
    lora::server_block<params> kept_;  // what the server keeps of it
    lora::block_reply ahead_;
    lora::token_query query_;
    lora::token_reply reply_;
};

/// Sends tokens through the encrypted adapter and compares each result with plaintext LoRA.
template <class Packing, class Protection>
report run_with(const lora::adapter_site& site, const lora::matrix& hidden, const arguments& args) {
    // In mode client_held_b the server holds A and the client B; in mode blind the server holds both, as one
    // matrix. With rows of A at norm 1 no norm of A travels.
    const lora::adapter_site normalized = Protection::protects ? lora::normalize_rows(site) : site;
    exchange<Packing, Protection> both(args.blind() ? lora::merge(site) : normalized.a, args);
    const auto& plan = both.plan();
    report result(site, args);
    if constexpr (Protection::protects) {
        result.predicted = prediction_of(lora::cost_of(plan), plan.d(), plan.layout().can_overflow);
        result.predicted.trusts_client = plan.targets(0) > lora::most_targets<params, Protection>;
    }
    std::vector<double> answers(plan.rank());

    progress_bar bar(args.tokens);
    for (std::size_t t = 0; t < args.tokens; ++t) {
        const auto h = hidden.row(t % hidden.rows);
        double overflow_margin = 1;
        result.watch.next_token();
        for (;; overflow_margin *= 2) {
            try {
                both.send(h, overflow_margin, answers, result);
                break;
            } catch (const tensafe::range_exceeded_error&) {
                // Of average-case ranges only, and seldom: an answer wrapped around and the client noticed.
                // It asks again with more room, and the server sees that it did.
                ++result.retries;
            }
        }
        // B in the clear; from a blind server comes the delta itself.
        const std::vector<double> delta =
            args.blind() ? answers
                         : result.watch.time(phase::b, [&] { return lora::apply_b(normalized, answers); });
        const std::vector<double> plain = lora::plain_delta(site, h);
        double typical = bare_error * norm_of(plain);
        if constexpr (Protection::protects) {
            // Errors of answers are relative to their usual size, and independent of each other.
            typical = overflow_margin * plan.budget().relative_error * plan.layout().row_norm * norm_of(h) /
                      std::sqrt(static_cast<double>(plan.d())) *
                      (args.blind() ? std::sqrt(static_cast<double>(site.d_out()))
                                    : site.scale * norm_of(std::span(normalized.b.values)));
        }
        result.compare(delta, plain, typical);
        bar.advance();
    }
    return result;
}

/// Tiles with the number of rows that was asked for, or with the one that sends the fewest bytes.
template <class Protection>
report run_tiles(const lora::adapter_site& site, const lora::matrix& hidden, const arguments& args) {
    const lora::site_shape shape = site.shape();
    const auto mode = args.blind() ? lora::mode::blind : lora::mode::client_held_b;
    try {
        const int rows = args.rows == "auto"
                             ? lora::best_tiling_of<params, Protection>(std::span(&shape, 1), mode)
                             : std::stoi(args.rows);
        return lora::with_tiling(rows, [&]<int Rows>(lora::coefficient_tiles<Rows>) {
            using packing = lora::coefficient_tiles<Rows>;
            static_cast<void>(lora::cost_of<params, packing, Protection>(shape, mode));  // whether it can
            report result = run_with<packing, Protection>(site, hidden, args);
            result.predicted.rows = Rows;
            return result;
        });
    } catch (const tensafe::parameter_error& e) {
        throw usage_error(args.params + " cannot serve this site with --rows " + args.rows + ": " + e.what());
    }
}

}  // namespace

report run(const lora::adapter_site& site, const lora::matrix& hidden, const arguments& args) {
    using offered = offer<params>;
    using protection = typename offered::protection;
    if constexpr (offered::tiles) {
        if (args.packing == "token_blocks") {
            return run_with<lora::token_blocks, protection>(site, hidden, args);
        }
        if (args.packing == "coefficient_tiles") {
            return run_tiles<protection>(site, hidden, args);
        }
    }
    if constexpr (!protection::range::can_overflow) {
        using slots = lora::replicated_slots<>;
        if (args.protection == "protected") {
            return run_with<slots, protection>(site, hidden, args);
        }
    }
    if constexpr (!offered::tiles) {
        // Whoever sees a reply can compute A from it.
        using rescaled = lora::replicated_slots<lora::paired_rows, lora::rescaled_replies>;
        using bare = lora::reveals_adapter_rows;
        return args.rescale ? run_with<rescaled, bare>(site, hidden, args)
                            : run_with<lora::replicated_slots<>, bare>(site, hidden, args);
    }
    throw usage_error("this program has no --packing " + args.packing + " with these options");
}

}  // namespace examples
