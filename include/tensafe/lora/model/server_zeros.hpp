#pragma once

#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/exec/host.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/protocol/server.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/seed.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// A server's supply for one client: encryptions of zero for all models of one parameter set, from the one
/// re-randomization key that the client sent, and memory to work in.
///
/// Thread-safe, except that `apply` without a workspace is for one thread at a time. Not movable: hold it by
/// std::unique_ptr. Wiped on release; copies of the process or the machine are for empty pools only
/// (ckks::rerandomization_pool).
template <ckks::parameter_set P>
class server_zeros {
  public:
    using rerandomization_pool = lora::rerandomization_pool<P>;
    using workspace = server_workspace<P>;

    /// Makes the supply for one session; `fill` makes zeros beforehand.
    /// @param nonce, key  as for server::pool; the client answers by model_client::rerandomization_key
    /// @param most_spare  the used encryptions of zero that each pool keeps for their memory, at most
    /// @throws as server::pool
    server_zeros(const random::seed& nonce, ckks::rerandomization_key<P, request_level<P>> key,
                 std::size_t most_spare = std::numeric_limits<std::size_t>::max())
        : nonce_(nonce), key_(std::move(key)), most_spare_(most_spare) {
        require<parameter_error>(
            key_.server_nonce == nonce,
            {"server_zeros: the client made this re-randomization key for another server nonce"});
        ckks::check_residues(key_.b, "server_zeros", "the re-randomization key");
    }

    server_zeros(const server_zeros&) = delete;  // two copies would hand out the same zeros
    server_zeros& operator=(const server_zeros&) = delete;

    /// The pool for replies that are traced to degree 2^subring_log_n, made when it is first asked for.
    /// @throws parameter_error unless 0 <= subring_log_n <= P::log_n
    rerandomization_pool& zeros(int subring_log_n) {
        require<parameter_error>(
            subring_log_n >= 0 && subring_log_n <= P::log_n,
            {"server_zeros::zeros: got a subring_log_n of ", subring_log_n, ", expected 0 to ", P::log_n});
        const std::lock_guard lock(mutex_);
        auto& pool = pools_[static_cast<std::size_t>(subring_log_n)];
        if (!pool) {
            pool = std::make_unique<rerandomization_pool>(nonce_, key_, subring_log_n);
            pool->keep_at_most(most_spare_);
        }
        return *pool;
    }

    /// The number of encryptions of zero stored in all pools.
    std::size_t zeros_stored() const {
        const std::lock_guard lock(mutex_);
        std::size_t sum = 0;
        for (const auto& pool : pools_) {
            sum += pool ? pool->size() : 0;
        }
        return sum;
    }

    /// Answers one hidden state of a group. From the second token of each group on nothing is allocated.
    /// @throws as server::apply, the message naming the group's input; parameter_error for no such group
    template <exec::host_execution Where, class Packing, class Protection>
    void apply(const Where& where, const model_server<P, Packing, Protection>& model, std::size_t group,
               const request<P>& from, reply<P, Packing, Protection>& to) {
        apply(where, model, group, from, work_, to);
    }

    /// Answers in the memory of the calling thread: a server with many sessions needs one for each thread.
    /// @throws as server::apply, the message naming the group's input; parameter_error for no such group
    template <exec::host_execution Where, class Packing, class Protection>
    void apply(const Where& where, const model_server<P, Packing, Protection>& model, std::size_t group,
               const request<P>& from, workspace& work, reply<P, Packing, Protection>& to) {
        detail::naming_input("server_zeros::apply", model.layout().at(group), [&] {
            const auto s = model.decode(group);
            if constexpr (Protection::protects) {
                s->apply(where, from, zeros(s->plan().subring_log_n()), work, to);
            } else {
                s->apply(where, from, work, to);
            }
        });
    }

    /// Prepares a block of a group's tokens.
    /// @throws as server::prepare; parameter_error for no such group, and for a model without blocks
    template <exec::host_execution Where, class Packing, class Protection>
    void prepare(const Where& where, const model_server<P, Packing, Protection>& model, std::size_t group,
                 const block_request& from, block_workspace<P>& work, server_block<P>& block,
                 block_reply& to) {
        detail::naming_input("server_zeros::prepare", model.layout().at(group), [&] {
            const auto s = model.blocks(group);
            s->prepare(where, from, zeros(s->plan().subring_log_n()), work, block, to);
        });
    }

    /// One hidden state of one client, in a batch over several.
    template <class Packing, class Protection>
    struct task {
        server_zeros* of = nullptr;
        const request<P>* from = nullptr;
        reply<P, Packing, Protection>* to = nullptr;
    };

    /// Answers hidden states of several clients for one group at once: each packed row is read once for all.
    /// @throws as server::apply; parameter_error for no such group or session. Nothing is used up then
    template <exec::host_execution Where, class Packing, class Protection>
    static void apply(const Where& where, const model_server<P, Packing, Protection>& model,
                      std::size_t group, std::span<const task<Packing, Protection>> tasks, workspace& work) {
        using server_type = server<P, Packing, Protection>;
        const std::shared_ptr<const server_type> s = model.decode(group);
        std::vector<typename server_type::task> of_server;
        of_server.reserve(tasks.size());
        for (std::size_t t = 0; t < tasks.size(); ++t) {
            require<parameter_error>(!Protection::protects || tasks[t].of != nullptr,
                                     {"server_zeros::apply: task ", t, " has no session (of)"});
            of_server.push_back(
                {tasks[t].from,
                 Protection::protects ? &tasks[t].of->zeros(s->plan().subring_log_n()) : nullptr,
                 tasks[t].to});
        }
        detail::naming_input("server_zeros::apply", model.layout().at(group),
                             [&] { s->apply(where, of_server, work); });
    }

    /// Makes encryptions of zero until those for `tokens` generated tokens, and `blocks` blocks, of this
    /// model are stored: for while the server is idle. model.zeros_per_token() and zeros_per_block() each, of
    /// 70 KB at N = 4096. Models of one session share the pools: with several, fill for the sum.
    /// @throws parameter_error for blocks of a model without, or more than 2^32 zeros of a degree; as
    ///         rerandomization_pool::fill
    template <exec::host_execution Where, class Packing, class Protection>
    void fill(const Where& where, const model_server<P, Packing, Protection>& model, std::size_t tokens,
              std::size_t blocks = 0) {
        const wanted_zeros wanted = wanted_for(model, tokens, blocks);
        for (int subring_log_n = 0; subring_log_n <= P::log_n; ++subring_log_n) {
            if (const std::size_t count = wanted[static_cast<std::size_t>(subring_log_n)]; count > 0) {
                zeros(subring_log_n).fill(where, count);
            }
        }
    }

    /// Makes one encryption of zero, in a fraction of a millisecond, if `fill` would make any.
    /// @return  whether it made one; false if enough are stored
    /// @throws as fill
    template <class Packing, class Protection>
    bool fill_by_one(const model_server<P, Packing, Protection>& model, std::size_t tokens,
                     std::size_t blocks = 0) {
        const wanted_zeros wanted = wanted_for(model, tokens, blocks);
        for (int subring_log_n = 0; subring_log_n <= P::log_n; ++subring_log_n) {
            const std::size_t count = wanted[static_cast<std::size_t>(subring_log_n)];
            if (count > 0 && zeros(subring_log_n).size() < count) {
                zeros(subring_log_n).fill(zeros(subring_log_n).size() + 1);
                return true;
            }
        }
        return false;
    }

    /// Answers on the calling thread, like the apply that takes `where`.
    template <class Packing, class Protection, class... Rest>
    void apply(const model_server<P, Packing, Protection>& model, std::size_t group, const request<P>& from,
               Rest&... work_and_reply) {
        apply(exec::host{}, model, group, from, work_and_reply...);
    }
    template <class Packing, class Protection>
    void fill(const model_server<P, Packing, Protection>& model, std::size_t tokens, std::size_t blocks = 0) {
        fill(exec::host{}, model, tokens, blocks);
    }

  private:
    static constexpr std::size_t most_zeros = std::numeric_limits<std::uint32_t>::max();
    /// The number of encryptions of zero by the degree that replies are traced to.
    using wanted_zeros = std::array<std::size_t, static_cast<std::size_t>(P::log_n) + 1>;

    template <class Packing, class Protection>
    static wanted_zeros wanted_for(const model_server<P, Packing, Protection>& model, std::size_t tokens,
                                   std::size_t blocks) {
        wanted_zeros wanted{};
        if constexpr (Protection::protects) {
            const auto add = [&](const auto& plan, std::size_t times) {
                std::size_t& sum = wanted[static_cast<std::size_t>(plan.subring_log_n())];
                require<parameter_error>(times <= (most_zeros - sum) / plan.outputs(),
                                         {"server_zeros::fill: got ", tokens, " tokens and ", blocks,
                                          " blocks, expected at most 2^32 encryptions of zero of a degree"});
                sum += times * plan.outputs();
            };
            for (std::size_t g = 0; g < model.layout().groups.size(); ++g) {
                add(model.plan(g), tokens);
                if (blocks > 0) {
                    add(model.plan_of_blocks(g), blocks);
                }
            }
        }
        return wanted;
    }

    random::seed nonce_;
    ckks::rerandomization_key<P, request_level<P>> key_;
    std::size_t most_spare_;
    mutable std::mutex mutex_;  // guards the array, not the pools
    std::array<std::unique_ptr<rerandomization_pool>, static_cast<std::size_t>(P::log_n) + 1> pools_;
    workspace work_;
};

}  // namespace tensafe::lora
