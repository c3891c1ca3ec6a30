#pragma once

#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/lora/client.hpp>
#include <tensafe/device/lora/server.hpp>
#include <tensafe/device/lora/staging.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/layout.hpp>
#include <tensafe/lora/packing/protection.hpp>
#include <tensafe/serving/request.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::device {

/// Puts the work of a batch into the stream at once. Whatever records it instead, as a device::graph_cache
/// does, is called in the same way: f(where) enqueues the same for an equal key.
struct enqueue_directly {
    template <class Where, class F>
    void operator()(const Where& where, std::size_t, F&& f) const {
        f(where);
    }
};

/// Round trips by device::clients and device::servers on a device, a GPU, or device::host_blocks in tests:
/// serving::engine_answers has it answer for session::sequences. A batch takes, for each group in it, one
/// staging, one stream of launches for all its round trips, and one wait, during which the processor is free.
///
/// Groups of one shape share a workspace. A hidden state that cannot be encrypted, or an answer that passes
/// an average-case range, is the error of its own round trip. The latter can be tried again with the overflow
/// margin doubled, up to `tries` tries; each tells the server that an answer was that large.
///
/// Nobody else may stage with the clients and servers meanwhile. One thread at a time. Hidden states and
/// answers are wiped with the engine.
template <ckks::parameter_set P, execution Where, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>, class Enqueue = enqueue_directly>
class engine {
  public:
    using client_type = client<P, Where, Packing, Protection>;
    using server_type = server<P, Where, Packing, Protection>;

    /// Both sides of one group of sites, on the same device; they outlive the engine.
    struct group_type {
        client_type* client = nullptr;
        server_type* server = nullptr;
        std::uint32_t key = 0;     ///< the place of the key among those of the client
        std::uint32_t number = 0;  ///< the client's number at the server, as add_client gave it
    };

    /// Makes an engine for these groups.
    /// @param largest_batch  round trips of a group that are enqueued at once; longer batches are cut
    /// @param enqueue        called with a key that belongs to group and number of round trips
    /// @throws parameter_error without groups, for a null pointer, a client or key that does not exist, or
    ///         tries outside of [1, 21]; shape_error for two sides of different layouts, or room for none
    engine(const Where& where, std::span<const group_type> groups, std::size_t largest_batch,
           std::size_t tries = 1, Enqueue enqueue = {})
        : where_(where),
          groups_(groups.begin(), groups.end()),
          largest_(largest_batch),
          sorter_("device::engine", tries, largest_batch),
          enqueue_(std::move(enqueue)) {
        require<parameter_error>(!groups_.empty(), {"device::engine: got no groups, expected one or more"});
        require<shape_error>(largest_ != 0,
                             {"device::engine: got room for 0 round trips, expected 1 or more"});
        std::size_t most_d = 0;
        std::size_t most_rows = 0;
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            check(g);
            most_d = std::max(most_d, d(g));
            most_rows = std::max(most_rows, rows(g));
            place_of_.push_back(find_workspace(g));
        }
        states_ = memory::secret_buffer<float>(largest_ * most_d);
        answers_ = memory::secret_buffer<double>(largest_ * most_rows);
        keys_.resize(largest_);
        numbers_.resize(largest_);
    }

    std::size_t groups() const noexcept { return groups_.size(); }
    /// The entries of a hidden state of a group.  @pre group < groups()
    std::size_t d(std::size_t group) const noexcept { return groups_[group].server->layout().d; }
    std::size_t rows(std::size_t group) const noexcept { return groups_[group].server->layout().rank; }

    /// Answers each round trip of the batch or sets its error: shape_error or parameter_error for a wrong
    /// size or group, encoding_error, range_exceeded_error, entropy_error, device_error.
    void run(std::span<serving::request> batch) {
        sorter_.run(*this, batch,
                    [&](std::size_t group, std::span<const std::size_t> members, double overflow_margin,
                        std::vector<std::size_t>& again) {
                        run_group(batch, group, members, overflow_margin, again);
                    });
    }

  private:
    struct workspace {
        workspace(const group_type& g, std::size_t largest)
            : of_client(*g.client, largest),
              of_server(*g.server, largest),
              requests(g.server->layout(), largest),
              replies(g.server->layout(), largest) {}

        typename client_type::workspace of_client;
        typename server_type::workspace of_server;
        typename client_type::requests requests;
        typename client_type::replies replies;
    };

    void check(std::size_t g) const {
        const group_type& group = groups_[g];
        const std::string where = "device::engine: group " + std::to_string(g);
        require<parameter_error>(group.client != nullptr && group.server != nullptr,
                                 {where, " has no ", (group.client == nullptr ? "client" : "server")});
        require<shape_error>(group.client->layout() == group.server->layout(),
                             {where, ": client and server have different layouts"});
        require<parameter_error>(
            group.key < group.client->clients() && group.number < group.server->clients(),
            {where, ": got key ", group.key, " and client number ", group.number, ", expected less than ",
             group.client->clients(), " and ", group.server->clients()});
    }

    std::size_t find_workspace(std::size_t g) {
        for (std::size_t earlier = 0; earlier < g; ++earlier) {
            if (groups_[earlier].server->layout() == groups_[g].server->layout()) {
                return place_of_[earlier];
            }
        }
        workspaces_.push_back(std::make_unique<workspace>(groups_[g], largest_));
        return workspaces_.size() - 1;
    }

    void run_group(std::span<serving::request> batch, std::size_t g, std::span<const std::size_t> members,
                   double overflow_margin, std::vector<std::size_t>& again) {
        const group_type& group = groups_[g];
        workspace& work = *workspaces_[place_of_[g]];
        const std::size_t entries = d(g);
        const std::size_t count = rows(g);
        staged_.clear();
        for (const std::size_t i : members) {
            try {
                static_cast<void>(lora::detail::norm_of_state(batch[i].hidden, entries));
                std::copy(batch[i].hidden.begin(), batch[i].hidden.end(),
                          states_.data() + staged_.size() * entries);
                staged_.push_back(i);
            } catch (const error&) {
                batch[i].error = std::current_exception();
            }
        }
        const std::size_t tokens = staged_.size();
        if (tokens == 0) {
            return;
        }
        std::fill_n(keys_.begin(), tokens, group.key);
        std::fill_n(numbers_.begin(), tokens, group.number);
        group.client->stage(work.of_client, states_.span().first(tokens * entries),
                            std::span<const std::uint32_t>(keys_).first(tokens), overflow_margin);
        group.server->stage(work.of_server, std::span<const std::uint32_t>(numbers_).first(tokens));
        try {
            enqueue_(where_, g * (largest_ + 1) + tokens, [&](const Where& where) {
                group.client->encrypt(where, work.of_client, work.requests);
                group.server->apply(where, work.requests, work.of_server, work.replies);
                group.client->decrypt(where, work.replies, work.of_client);
            });
        } catch (...) {
            where_.wait();  // what was launched still uses the workspace, which the next batch stages anew
            throw;
        }
        where_.wait();
        const std::span<double> answers = answers_.span().first(tokens * count);
        try {
            group.client->collect(work.of_client, answers);
        } catch (const error&) {
            // Of the first that went wrong. All answers are there, and each has its own status.
        }
        for (std::size_t t = 0; t < tokens; ++t) {
            serving::request& item = batch[staged_[t]];
            const std::uint32_t flags = group.client->status(work.of_client)[t];
            if (flags == 0) {
                const auto of_token = answers.subspan(t * count, count);
                std::copy(of_token.begin(), of_token.end(), item.answers.begin());
                continue;
            }
            item.error = error_of(flags, group.server->status(work.of_server)[t]);
            if (flags == status_range_exceeded) {
                again.push_back(staged_[t]);
            }
        }
    }

    static std::exception_ptr error_of(std::uint32_t client, std::uint32_t server) {
        if (client == status_range_exceeded) {
            return std::make_exception_ptr(
                range_exceeded_error("device::engine: an answer passed the average-case range and wrapped "
                                     "around; allow more tries, or use the range policy lora::worst_case"));
        }
        return std::make_exception_ptr(
            error({"device::engine: a round trip failed on the device: status ", client, " of the client, ",
                   server, " of the server (device/lora/staging.hpp)"}));
    }

    Where where_;
    std::vector<group_type> groups_;
    std::size_t largest_;
    serving::detail::batch_dispatcher sorter_;
    Enqueue enqueue_;
    std::vector<std::unique_ptr<workspace>> workspaces_;
    std::vector<std::size_t> place_of_;  ///< the workspace of each group
    std::vector<std::size_t> staged_;
    std::vector<std::uint32_t> keys_;
    std::vector<std::uint32_t> numbers_;
    memory::secret_buffer<float> states_;
    memory::secret_buffer<double> answers_;
};

}  // namespace tensafe::device
