// Client, server and sessions of the parameter set TENSAFE_PYTHON_SET: one object file for each set.
#include <tensafe/core/error.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/model/server_zeros.hpp>
#include <tensafe/tensafe.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/wire.hpp>

#include <deque>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "engine.hpp"

namespace tensafe_python {

namespace {

namespace ckks = tensafe::ckks;
namespace wire = tensafe::wire;
using P = ckks::TENSAFE_PYTHON_SET;

/// The range and precision that docs/guide.md gives this set.
using protection = std::conditional_t<
    std::is_same_v<P, ckks::compact_n4096>,
    lora::protects_adapter_rows<lora::average_case<6>, lora::standard_precision>,
    std::conditional_t<std::is_same_v<P, ckks::minimal_n2048>,
                       lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>,
                       lora::protects_adapter_rows<>>>;

template <int Rows>
using tiles = lora::coefficient_tiles<Rows>;
template <int Rows>
using packed_model = lora::model_server<P, tiles<Rows>, protection>;
template <int Rows>
using client_of_model = lora::model_client<P, tiles<Rows>, protection>;
using of_blocks = lora::block_protection<protection>;
using rerandomization_key = ckks::rerandomization_key<P, lora::request_level<P>>;

/// The server's side of one client, in the server's process.
template <int Rows>
class model_at_server {
  public:
    using model_type = packed_model<Rows>;
    using reply_type = lora::reply<P, tiles<Rows>, protection>;

    model_at_server(std::shared_ptr<const model_type> model, const tensafe::random::seed& nonce,
                    rerandomization_key key)
        : model_(std::move(model)), session_(nonce, std::move(key)) {}

    const model_type& model() const noexcept { return *model_; }

    void apply(std::size_t group, const lora::request<P>& from, reply_type& to) {
        process_.check("session");
        session_.apply(*model_, group, from, to);
    }
    void prepare(std::size_t group, std::uint64_t number, const lora::block_request& from,
                 lora::block_reply& to) {
        process_.check("session");
        lora::server_block<P> made;
        session_.prepare(tensafe::exec::host{}, *model_, group, from, block_work_, made, to);
        auto& blocks = blocks_[group];
        if (blocks.size() == most_blocks) {
            blocks.pop_front();
        }
        blocks.emplace_back(number, std::move(made));
    }
    void answer(std::size_t group, const lora::token_request& from, lora::token_reply& to) {
        process_.check("session");
        for (auto& [number, block] : blocks_[group]) {
            if (number == from.block) {
                return model_->blocks(group).answer(block, from, block_work_, to);
            }
        }
        throw tensafe::parameter_error({"session: got a token of block ", from.block,
                                        ", expected one of the last ", most_blocks,
                                        " blocks that were prepared for this input"});
    }

  private:
    static constexpr std::size_t most_blocks = 2;

    std::shared_ptr<const model_type> model_;
    lora::server_zeros<P> session_;
    lora::block_workspace<P> block_work_;
    std::map<std::size_t, std::deque<std::pair<std::uint64_t, lora::server_block<P>>>> blocks_;
    one_process process_;
};

/// The same by messages, to wherever they go.
template <int Rows>
class model_elsewhere {
  public:
    using client_type = client_of_model<Rows>;
    using reply_type = lora::reply<P, tiles<Rows>, protection>;

    model_elsewhere(const client_type& client, std::function<bytes(message)> carry)
        : client_(client), carry_(std::move(carry)) {}

    void apply(std::size_t group, const lora::request<P>& from, reply_type& to) {
        wire::write_request<tiles<Rows>, protection>(from, next(group), request_);
        wire::read_reply(exchanged(), client_.plan(group), to);
    }
    void prepare(std::size_t group, std::uint64_t& number, const lora::block_request& from,
                 lora::block_reply& to) {
        wire::write_block_request<P, of_blocks>(from, next(group), request_);
        number = of_.number;
        wire::read_block_reply(exchanged(), client_.plan_of_blocks(group), to);
    }
    void answer(std::size_t group, const lora::token_request& from, lora::token_reply& to) {
        wire::write_token_request<P, of_blocks>(from, next(group), request_);
        wire::read_token_reply(exchanged(), client_.plan_of_blocks(group), from.position, to);
    }

  private:
    const wire::envelope& next(std::size_t group) {
        of_ = {of_.number + 1, static_cast<std::uint32_t>(group)};
        return of_;
    }
    message exchanged() {
        reply_ = carry_(request_);
        const wire::envelope got = wire::read_header(reply_).envelope();
        tensafe::require<tensafe::format_error>(
            got == of_, {"session: got a reply to request ", got.number, " of group ", got.group,
                         ", expected one to request ", of_.number, " of group ", of_.group});
        return reply_;
    }

    const client_type& client_;
    std::function<bytes(message)> carry_;
    wire::envelope of_{0, 0};
    bytes request_;
    bytes reply_;
};

/// Asks a Server, which is one of the two above: hidden states alone, or where the model has blocks in those.
template <int Rows, class Server>
class asking final : public session {
  public:
    template <class... Args>
    explicit asking(std::shared_ptr<client_of_model<Rows>> client, Args&&... args)
        : client_(std::move(client)), server_(std::forward<Args>(args)...) {}

    const lora::model_layout& layout() const override { return client_->layout(); }
    bool ask(std::size_t group, std::span<const float> h, double overflow_margin,
             std::vector<double>& product) override {
        process_.check("session");
        if (layout().tokens_ahead > 1) {
            return ask_in_block(group, h, overflow_margin, product);
        }
        auto& query = queries_[client_->plan(group).d()];
        const bool good = client_->encrypt_or_zeros(group, h, query, overflow_margin);
        server_.apply(group, query.request, reply_);
        client_->decrypt(group, reply_, query, reading_, product);
        return good;
    }
    void deltas(std::size_t group, std::span<const double> product,
                std::vector<std::vector<double>>& to) const override {
        client_->deltas(group, product, to);
    }

  private:
    struct block {
        typename client_of_model<Rows>::block_type positions;
        std::uint64_t number;
    };

    bool ask_in_block(std::size_t group, std::span<const float> h, double overflow_margin,
                      std::vector<double>& product) {
        auto at = blocks_.find(group);
        if (at == blocks_.end() || at->second.positions.left() == 0) {
            block made{client_->prepare(group), ++blocks_made_};
            lora::block_reply reply;
            server_.prepare(group, made.number, made.positions.request(), reply);
            client_->accept(made.positions, reply);
            at = blocks_.insert_or_assign(group, std::move(made)).first;
        }
        auto& positions = at->second.positions;
        const bool good = positions.encrypt_or_zeros(h, token_, overflow_margin);
        token_.request.block = at->second.number;
        server_.answer(group, token_.request, token_reply_);
        product.resize(positions.plan().rank());
        positions.decrypt(token_reply_, token_, product);
        return good;
    }

    std::shared_ptr<client_of_model<Rows>> client_;
    Server server_;
    std::map<std::size_t, typename client_of_model<Rows>::query_type> queries_;  // by length of a state
    typename client_of_model<Rows>::reply_type reply_;
    typename client_of_model<Rows>::workspace reading_;
    std::map<std::size_t, block> blocks_;
    std::uint64_t blocks_made_ = 0;
    lora::token_query token_;
    lora::token_reply token_reply_;
    one_process process_;
};

/// Answers messages.
template <int Rows>
class answering final : public server_session {
  public:
    template <class... Args>
    explicit answering(Args&&... args) : server_(std::forward<Args>(args)...) {}

    bytes answer(message request) override {
        const wire::header header = wire::read_header(request);
        const wire::envelope of = header.envelope();
        const auto& model = server_.model();
        static_cast<void>(model.layout().at(of.group));
        bytes to;
        switch (header.what) {
            case wire::kind::block_request: {
                lora::block_reply reply;
                server_.prepare(of.group, of.number,
                                wire::read_block_request(request, model.blocks(of.group).plan()), reply);
                wire::write_block_reply<P, of_blocks>(reply, of, to);
                break;
            }
            case wire::kind::token_request: {
                lora::token_request from;
                lora::token_reply reply;
                wire::read_token_request(request, model.blocks(of.group).plan(), from);
                server_.answer(of.group, from, reply);
                wire::write_token_reply<P, of_blocks>(reply, of, to);
                break;
            }
            default:  // which refuses other kinds
                wire::read_request(request, model.decode(of.group).plan(), request_);
                server_.apply(of.group, request_, reply_);
                wire::write_reply(reply_, of, to);
        }
        return to;
    }

  private:
    model_at_server<Rows> server_;
    lora::request<P> request_;
    typename model_at_server<Rows>::reply_type reply_;
};

template <int Rows>
class served final : public server {
  public:
    served(const lora::adapter& from, const lora::model_options& options)
        : model_(std::make_shared<packed_model<Rows>>(from, options)),
          held_(lora::client_part(from, options)) {}

    const lora::model_layout& layout() const override { return model_->layout(); }
    std::size_t memory() const override { return model_->bytes(); }
    bytes layout_message() const override {
        return wire::write_model_layout<P, tiles<Rows>, protection>(layout());
    }
    bytes held_message() const override { return wire::write_held_adapter(held_, layout()); }
    std::unique_ptr<server_session> open(const tensafe::random::seed& nonce, message key) const override {
        return std::make_unique<answering<Rows>>(
            model_, nonce, wire::read_rerandomization_key<P, lora::request_level<P>>(key));
    }
    const std::shared_ptr<const packed_model<Rows>>& model() const noexcept { return model_; }

  private:
    std::shared_ptr<const packed_model<Rows>> model_;
    lora::adapter held_;
};

template <int Rows>
struct query_of_model final : query {
    std::size_t of_group = 0;
    typename client_of_model<Rows>::query_type state;

    bytes request() const override {
        return wire::write_request<tiles<Rows>, protection>(
            state.request, {.number = 0, .group = static_cast<std::uint32_t>(of_group)});
    }
};

template <int Rows>
class key_holder final : public client {
  public:
    key_holder(lora::model_layout layout, lora::adapter held)
        : model_(std::make_shared<client_of_model<Rows>>(std::move(layout), std::move(held))) {}

    const lora::model_layout& layout() const override { return model_->layout(); }
    bytes rerandomization_key(const tensafe::random::seed& nonce) override {
        return wire::write_rerandomization_key<P>(model_->rerandomization_key(nonce));
    }
    std::unique_ptr<query> encrypt(std::size_t group, std::span<const float> h,
                                   double overflow_margin) override {
        auto result = std::make_unique<query_of_model<Rows>>();
        result->of_group = group;
        model_->encrypt(group, h, result->state, overflow_margin);
        return result;
    }
    std::vector<std::vector<double>> decrypt(const query& of, message reply) const override {
        const auto* const own = dynamic_cast<const query_of_model<Rows>*>(&of);
        tensafe::require<tensafe::parameter_error>(
            own != nullptr, {"client: got a query of another parameter set or packing"});
        typename client_of_model<Rows>::reply_type read;
        wire::read_reply(reply, model_->plan(own->of_group), read);
        return model_->deltas(own->of_group, read, own->state);
    }
    std::unique_ptr<session> connect(std::shared_ptr<const server> to) override {
        const auto* const own = dynamic_cast<const served<Rows>*>(to.get());
        tensafe::require<tensafe::parameter_error>(own != nullptr && own->layout() == layout(),
                                                   {"client: got a server of another parameter set, packing "
                                                    "or adapter, expected the one whose layout "
                                                    "this client has"});
        const auto nonce = tensafe::random::fresh_seed();
        return std::make_unique<asking<Rows, model_at_server<Rows>>>(model_, own->model(), nonce,
                                                                     model_->rerandomization_key(nonce));
    }
    std::unique_ptr<session> connect(std::function<bytes(message)> carry) override {
        return std::make_unique<asking<Rows, model_elsewhere<Rows>>>(model_, *model_, std::move(carry));
    }

  private:
    std::shared_ptr<client_of_model<Rows>> model_;
};

int rows_of(const server_options& options) {
    const int rows = options.rows != 0 ? options.rows : options.mode == lora::mode::blind ? 32 : 4;
    tensafe::require<tensafe::parameter_error>(rows == 4 || rows == 32,
                                               {"server: got ", rows, " rows a tile, expected 4 or 32"});
    return rows;
}

std::shared_ptr<const server> make_server(const lora::adapter& from, const server_options& options) {
    if (rows_of(options) == 32) {
        return std::make_shared<served<32>>(from, options);
    }
    return std::make_shared<served<4>>(from, options);
}

std::unique_ptr<client> make_client(message layout, message held) {
    lora::adapter part = held.empty() ? lora::adapter() : wire::read_held_adapter(held);
    if (wire::read_header(layout).scheme == wire::scheme_id<tiles<32>, protection>) {
        return std::make_unique<key_holder<32>>(wire::read_model_layout<P, tiles<32>, protection>(layout),
                                                std::move(part));
    }
    return std::make_unique<key_holder<4>>(wire::read_model_layout<P, tiles<4>, protection>(layout),
                                           std::move(part));
}

lora::token_cost cost_of(const lora::site_shape& shape, const server_options& options) {
    lora::detail::check_tokens_ahead<P, protection>(options.tokens_ahead, options.trusts_clients);
    const lora::token_cost alone = rows_of(options) == 32
                                       ? lora::cost_of<P, tiles<32>, protection>(shape, options.mode)
                                       : lora::cost_of<P, tiles<4>, protection>(shape, options.mode);
    return options.tokens_ahead < 2
               ? alone
               : lora::cost_of<P, lora::token_blocks, of_blocks>(shape, options.mode, options.tokens_ahead);
}

#define TENSAFE_PYTHON_TEXT(x) #x
#define TENSAFE_PYTHON_NAME(x) TENSAFE_PYTHON_TEXT(x)

}  // namespace

const parameter_set TENSAFE_PYTHON_SET{TENSAFE_PYTHON_NAME(TENSAFE_PYTHON_SET), wire::set_id<P>, make_server,
                                       make_client, cost_of};

}  // namespace tensafe_python
