// Client, server and sessions of the parameter set TENSAFE_PYTHON_SET: one object file for each set.
#include <tensafe/core/error.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/tracing/marked_models.hpp>
#include <tensafe/lora/tracing/marks.hpp>
#include <tensafe/session/client_session.hpp>
#include <tensafe/session/server_session.hpp>
#include <tensafe/tensafe.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/wire.hpp>

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <unistd.h>
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
template <int Rows>
using protocol = tensafe::session::lora_protocol<P, tiles<Rows>, protection>;
using of_blocks = lora::block_protection<protection>;
using rerandomization_key = ckks::rerandomization_key<P, lora::request_level<P>>;

/// A session that asks by calls of tensafe::session.
template <int Rows>
class asking : public session {
  public:
    const lora::model_layout& layout() const override { return client_.model()->layout(); }
    std::span<const double> gains() const override { return client_.model()->gains(); }
    std::span<const lora::adapter_site> clear() const override { return client_.model()->in_the_clear(); }
    void deltas(std::size_t group, std::span<const double> product,
                std::vector<std::vector<double>>& to) const override {
        client_.model()->deltas(group, product, to);
    }
    std::optional<std::uint64_t> queries_left() const override { return client_.queries_left(); }

  protected:
    /// Uses blocks of as many tokens as the model has: whoever made the model chose their memory.
    explicit asking(std::shared_ptr<client_of_model<Rows>> client)
        : client_(std::move(client), {.most_tokens = std::numeric_limits<std::size_t>::max()}) {}

    tensafe::session::basic_client_session<protocol<Rows>> client_;
};

/// A session with a server in this process: no message is written.
template <int Rows>
class asking_here final : public asking<Rows> {
  public:
    asking_here(std::shared_ptr<client_of_model<Rows>> client,
                std::shared_ptr<const packed_model<Rows>> model, const tensafe::random::seed& nonce,
                rerandomization_key key)
        : asking<Rows>(std::move(client)), server_(std::move(model), nonce, std::move(key)) {}

    void ask(tensafe::session::call& asked, const std::function<void()>& between) override {
        tensafe::session::answer_in_process(this->client_, server_, work_, asked, between);
    }

  private:
    tensafe::session::basic_server_session<protocol<Rows>> server_;
    typename protocol<Rows>::workspace work_;
};

/// A session with a server that is elsewhere: each message is a connection of its own.
template <int Rows>
class asking_elsewhere final : public asking<Rows> {
  public:
    /// @param next_number  of all sessions of this client: those that have one server_session never share a
    ///                     number, which would get the reply of another session's request
    asking_elsewhere(std::shared_ptr<client_of_model<Rows>> client, std::function<bytes(message)> carry,
                     std::shared_ptr<std::uint64_t> next_number)
        : asking<Rows>(std::move(client)), carry_(std::move(carry)), next_number_(std::move(next_number)) {}

    void ask(tensafe::session::call& asked, const std::function<void()>& between) override {
        auto& client = this->client_;
        client.begin(asked);
        const struct at_end {
            decltype(client) of;
            tensafe::session::call& asked;
            ~at_end() { of.end(asked); }
        } ended{client, asked};
        while (!asked.is_over()) {
            client.resumed(*next_number_, {});
            const auto* const m = client.next();
            if (m == nullptr) {
                break;  // the row cannot be encrypted
            }
            const std::uint64_t number = m->of().number;
            *next_number_ = std::max(*next_number_, number + 1);
            m->write(request_);
            try {
                reply_ = carry_(request_);
            } catch (const tensafe::session::refused_error& e) {
                client.refused(number, e.why(), std::current_exception(), e.retry_after());
                between();
                continue;
            }
            client.take(reply_);
            between();
        }
        asked.rethrow();
    }

  private:
    std::function<bytes(message)> carry_;
    std::shared_ptr<std::uint64_t> next_number_;
    bytes request_;
    bytes reply_;
};

/// Answers messages.
template <int Rows>
class answering final : public server_session {
  public:
    answering(std::shared_ptr<const packed_model<Rows>> model, const tensafe::random::seed& nonce,
              rerandomization_key key)
        : session_(std::move(model), nonce, std::move(key)) {}

    bytes answer(message request) override {
        tensafe::require<tensafe::unsupported_error>(
            ::getpid() == owner_,
            {"session: this object was made in process ", owner_, ", and this is its child ", ::getpid(),
             "; make another one after the fork"});
        const wire::header head = wire::read_header(request);
        if (head.number == 0 && head.what == wire::kind::request) {  // of query_of_model, in no session
            protocol<Rows>::read(request, *session_.model(), head.group, work_.request);
            session_.answer(head.envelope(), work_.request, work_, work_.reply);
            bytes to;
            protocol<Rows>::write(work_.reply, head.envelope(), to);
            return to;
        }
        session_.on_resumed();  // whoever carries messages may have lost the reply
        std::shared_ptr<const bytes> to;
        session_.on_message(request, head, work_, to);
        return *to;
    }

  private:
    tensafe::session::basic_server_session<protocol<Rows>> session_;
    typename protocol<Rows>::workspace work_;
    pid_t owner_ = ::getpid();
};

template <int Rows>
class served final : public server {
  public:
    served(const lora::adapter& from, const server_options& options)
        : held_(std::make_shared<lora::adapter>(lora::client_part(from, options))),
          has_tenants_(options.marks) {
        if (options.marks) {
            lora::check_markable(from, lora::marked_matrix::b);
        }
        if (options.mark_bytes > 0) {
            memory_ = std::make_shared<lora::marked_memory>(options.mark_bytes);
            tenants_.emplace(from, options, memory_);
            model_ = std::make_shared<packed_model<Rows>>(tenants_->plans().layout(), nullptr);
        } else {
            model_ = std::make_shared<packed_model<Rows>>(from, options);
        }
    }

    const lora::model_layout& layout() const override { return model_->layout(); }
    std::size_t memory() const override {
        return memory_ ? tenants_->bytes() + memory_->bytes() : model_->bytes();
    }
    std::shared_ptr<const server> of(const tensafe::random::seed& tenant) const override {
        auto made = std::make_shared<served>(*this);
        made->marks_.emplace(tenant);
        if (tenants_) {
            made->model_ = tenants_->of(*made->marks_);
        }
        return made;
    }
    bytes layout_message() const override {
        return wire::write_model_layout<P, tiles<Rows>, protection>(layout());
    }
    bytes held_message() const override { return wire::write_held_adapter(held(), layout()); }
    std::unique_ptr<server_session> open(const tensafe::random::seed& nonce, message key) const override {
        return std::make_unique<answering<Rows>>(
            model(), nonce, wire::read_rerandomization_key<P, lora::request_level<P>>(key));
    }
    std::unique_ptr<client> make_client() const override;
    const std::shared_ptr<const packed_model<Rows>>& model() const {
        check_tenant();
        return model_;
    }

  private:
    void check_tenant() const {
        tensafe::require<tensafe::parameter_error>(
            marks_ || !has_tenants_,
            {"server: got no tenant, expected Server.of(tenant): it has a mark key"});
    }
    lora::adapter held() const {
        check_tenant();
        return marks_ ? marks_->added_to(lora::marked_matrix::b, *held_) : *held_;
    }

    std::shared_ptr<const lora::adapter> held_;  ///< without marks
    bool has_tenants_;
    std::shared_ptr<lora::marked_memory> memory_;  ///< null, as tenants_: all have one A
    std::optional<lora::marked_models<P, tiles<Rows>, protection>> tenants_;
    std::shared_ptr<const packed_model<Rows>> model_;
    std::optional<lora::marks> marks_;  ///< of the tenant that this serves
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
    std::span<const double> gains() const override { return model_->gains(); }
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
        const auto nonce = tensafe::random::fresh_nonce();
        return std::make_unique<asking_here<Rows>>(model_, own->model(), nonce,
                                                   model_->rerandomization_key(nonce));
    }
    std::unique_ptr<session> connect(std::function<bytes(message)> carry) override {
        return std::make_unique<asking_elsewhere<Rows>>(model_, std::move(carry), next_number_);
    }

  private:
    std::shared_ptr<client_of_model<Rows>> model_;
    std::shared_ptr<std::uint64_t> next_number_ = std::make_shared<std::uint64_t>(1);
};

template <int Rows>
std::unique_ptr<client> served<Rows>::make_client() const {
    return std::make_unique<key_holder<Rows>>(layout(), held());
}

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
    lora::check_tokens_ahead<P, protection>(options.tokens_ahead, options.trusts_clients);
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
