#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/exec/host.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/protection.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>
#include <tensafe/serving/request.hpp>

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace tensafe::serving {

/// Requests answered by a lora::client and lora::servers in this process: the engine of a token_pipeline.
/// Group g is servers[g], whose rows may be several stacked sites. A batch is encrypted one hidden state
/// after the other, because a client's randomness is a sequence; the server's part runs where `Where` says,
/// with all requests of a group at once, and so does decryption.
///
/// A hidden state that cannot be encrypted, or an answer that passes an average-case range, is the error of
/// its own request. Such an answer can be tried again with overflow margin doubled each time, up to `tries`
/// tries; the default is one, because a second try tells the server that this hidden state had an answer that
/// large.
///
/// Uses the client's randomness and the zeros of a protected server, so nobody else may encrypt with this
/// client meanwhile; filling the pool of zeros from another thread is what idle time is for. One thread at a
/// time. Allocates nothing once it has seen its largest batch, if all groups have one shape.
template <ckks::parameter_set P, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>, exec::host_execution Where = exec::host>
class host_engine {
    static_assert(!std::is_same_v<Packing, lora::token_blocks>,
                  "serving::host_engine: a request is one hidden state; token_blocks are for many");

  public:
    using server_type = lora::server<P, Packing, Protection>;
    using rerandomization_pool = lora::rerandomization_pool<P>;

    /// @param where    a host_parallel is kept by reference, and outlives the engine; left out for one thread
    /// @param with     the key holder; outlives the engine, as do servers and zeros
    /// @param servers  of each group, number 0 on
    /// @param zeros    of this client, for all servers; left out for bare replies
    /// @throws parameter_error without servers, for a null pointer, a pool that traces to another degree, or
    ///         tries outside of [1, 21]
    host_engine(const Where& where, lora::client<P>& with, std::span<const server_type* const> servers,
                rerandomization_pool& zeros, std::size_t tries = 1) requires(Protection::protects)
        : host_engine(where, with, servers, &zeros, tries) {}
    host_engine(lora::client<P>& with, std::span<const server_type* const> servers,
                rerandomization_pool& zeros, std::size_t tries = 1) requires(Protection::protects)
        : host_engine(exec::host{}, with, servers, &zeros, tries) {}
    host_engine(const Where& where, lora::client<P>& with, std::span<const server_type* const> servers,
                std::size_t tries = 1) requires(!Protection::protects)
        : host_engine(where, with, servers, nullptr, tries) {}
    host_engine(lora::client<P>& with, std::span<const server_type* const> servers,
                std::size_t tries = 1) requires(!Protection::protects)
        : host_engine(exec::host{}, with, servers, nullptr, tries) {}

    std::size_t groups() const noexcept { return servers_.size(); }
    /// @pre group < groups()
    std::size_t d(std::size_t group) const noexcept { return servers_[group]->layout().d; }
    std::size_t rows(std::size_t group) const noexcept { return servers_[group]->layout().rank; }

    /// Answers each request of the batch or sets its error: shape_error or parameter_error for a wrong
    /// size or group, encoding_error, range_exceeded_error, entropy_error.
    void run(std::span<request> batch) {
        if (queries_.size() < batch.size()) {
            queries_.resize(batch.size());
            replies_.resize(batch.size());
        }
        dispatcher_.run(*this, batch,
                        [&](std::size_t group, std::span<const std::size_t> members, double overflow_margin,
                            std::vector<std::size_t>& again) {
                            run_group(batch, *servers_[group], members, overflow_margin, again);
                        });
    }

  private:
    using task = typename server_type::task;

    host_engine(const Where& where, lora::client<P>& with, std::span<const server_type* const> servers,
                rerandomization_pool* zeros, std::size_t tries)
        : where_(where),
          client_(&with),
          servers_(servers.begin(), servers.end()),
          zeros_(zeros),
          dispatcher_("host_engine", tries),
          reading_(where.threads()) {
        if (servers_.empty()) {
            throw parameter_error("host_engine: got no servers, expected one for each group");
        }
        for (std::size_t g = 0; g < servers_.size(); ++g) {
            if (servers_[g] == nullptr) {
                throw parameter_error("host_engine: got a null pointer for the server of group " +
                                      std::to_string(g));
            }
            if (zeros_ != nullptr && zeros_->subring_log_n() != servers_[g]->plan().subring_log_n()) {
                throw parameter_error("host_engine: group " + std::to_string(g) +
                                      ": got zeros traced to degree 2^" +
                                      std::to_string(zeros_->subring_log_n()) + ", expected 2^" +
                                      std::to_string(servers_[g]->plan().subring_log_n()));
            }
        }
    }

    void run_group(std::span<request> batch, const server_type& s, std::span<const std::size_t> members,
                   double overflow_margin, std::vector<std::size_t>& again) {
        tasks_.clear();
        encrypted_.clear();
        for (const std::size_t i : members) {
            try {
                client_->encrypt(s.plan(), batch[i].hidden, queries_[i], overflow_margin);
                tasks_.push_back({&queries_[i].request, zeros_, &replies_[i]});
                encrypted_.push_back(i);
            } catch (const error&) {
                batch[i].error = std::current_exception();
            }
        }
        s.apply(where_, std::span<const task>(tasks_), work_);
        where_.for_each(encrypted_.size(), [&](std::size_t k, std::size_t slot) {
            const std::size_t i = encrypted_[k];
            try {
                client_->decrypt(s.plan(), replies_[i], queries_[i], reading_[slot], batch[i].answers);
            } catch (const error&) {
                batch[i].error = std::current_exception();
            }
        });
        for (const std::size_t i : encrypted_) {
            if (is_range_exceeded(batch[i].error)) {
                again.push_back(i);
            }
        }
    }

    static bool is_range_exceeded(const std::exception_ptr& wrong) {
        if (server_type::layout_type::can_overflow && wrong != nullptr) {
            try {
                std::rethrow_exception(wrong);
            } catch (const range_exceeded_error&) {
                return true;
            } catch (...) {
            }
        }
        return false;
    }

    // What cannot be copied is kept by reference.
    std::conditional_t<std::is_copy_constructible_v<Where>, const Where, const Where&> where_;
    lora::client<P>* client_;
    std::vector<const server_type*> servers_;
    rerandomization_pool* zeros_;
    detail::batch_dispatcher dispatcher_;

    std::vector<typename server_type::plan_type::query_type> queries_;
    std::vector<typename server_type::reply_type> replies_;
    std::vector<task> tasks_;
    std::vector<std::size_t> encrypted_;
    typename server_type::workspace work_;
    std::vector<lora::decryption_workspace<P>> reading_;
};

}  // namespace tensafe::serving
