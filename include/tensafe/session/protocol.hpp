#pragma once

#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/exec/host.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/model/server_zeros.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/request.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace tensafe::session {

/// Tells client_session and server_session of a model, its arithmetic and its messages: both are state
/// machines over any type with these members, so that their rules are tested without ciphertexts. The server
/// computes where `Where` says, which a workspace refers to.
template <ckks::parameter_set P, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>, exec::host_execution Where = exec::host>
struct lora_protocol {
    using client_model = lora::model_client<P, Packing, Protection>;
    using server_model = lora::model_server<P, Packing, Protection>;
    using zeros = lora::server_zeros<P>;
    using key = ckks::rerandomization_key<P, lora::request_level<P>>;

    using request = lora::request<P>;
    using reply = lora::reply<P, Packing, Protection>;
    using query = typename client_model::query_type;
    using client_block = typename client_model::block_type;
    using server_block = lora::server_block<P>;
    using of_blocks = lora::block_protection<Protection>;

    /// Memory to decrypt in.
    using reading = typename client_model::workspace;
    /// Memory to answer in, of one thread: holds nothing of a client but sizes and requests, which are
    /// encrypted, and products, which are as secret as the adapter.
    struct workspace {
        workspace() requires(std::is_same_v<Where, exec::host>) = default;
        explicit workspace(const Where& at) : where(&at) {}

        const Where* where = default_place();
        lora::server_workspace<P> alone;
        lora::block_workspace<P> blocks;
        lora::request<P> request;
        lora_protocol::reply reply;
        lora::block_reply block_reply;
        lora::token_request token_request;
        lora::token_reply token_reply;
    };

    static const Where* default_place() noexcept {
        if constexpr (std::is_same_v<Where, exec::host>) {
            static constexpr exec::host here;
            return &here;
        } else {
            return nullptr;
        }
    }

    // Sizes: of a hidden state alone, and of a whole block.
    static lora::token_cost cost(const client_model& model, std::size_t group) {
        return lora::cost_of(model.plan(group));
    }
    static lora::token_cost cost_of_block(const client_model& model, std::size_t group) {
        return lora::cost_of(model.plan_of_blocks(group));
    }
    static std::size_t outputs(const server_model& model, std::size_t group) {
        return model.plan_of_blocks(group).outputs();
    }
    /// The bytes of memory of a block on the server.
    static std::size_t bytes_of_block(const server_model& model, std::size_t group) {
        const auto& plan = model.plan_of_blocks(group);
        constexpr std::size_t limbs = lora::request_level<P> + 1;
        return plan.layout().tokens * plan.outputs() * limbs * sizeof(arith::word);
    }

    // Messages.
    using message = std::vector<std::uint8_t>;
    using bytes = std::span<const std::uint8_t>;
    static void write(const request& r, const wire::envelope& of, message& to) {
        wire::write_request<Packing, Protection>(r, of, to);
    }
    static void write(const lora::block_request& r, const wire::envelope& of, message& to) {
        wire::write_block_request<P, of_blocks>(r, of, to);
    }
    static void write(const lora::token_request& r, const wire::envelope& of, message& to) {
        wire::write_token_request<P, of_blocks>(r, of, to);
    }
    static void write(const reply& r, const wire::envelope& of, message& to) { wire::write_reply(r, of, to); }
    static void write(const lora::block_reply& r, const wire::envelope& of, message& to) {
        wire::write_block_reply<P, of_blocks>(r, of, to);
    }
    static void write(const lora::token_reply& r, const wire::envelope& of, message& to) {
        wire::write_token_reply<P, of_blocks>(r, of, to);
    }
    static void read(bytes from, const client_model& model, std::size_t group, reply& to) {
        wire::read_reply(from, model.plan(group), to);
    }
    static void read(bytes from, const client_model& model, std::size_t group, const lora::block_request& of,
                     lora::block_reply& to) {
        const auto& plan = model.plan_of_blocks(group);
        wire::read_block_reply(from, plan, of.first, of.outputs == 0 ? plan.outputs() : of.outputs, to);
    }
    static void read(bytes from, const client_model& model, std::size_t group, std::size_t position,
                     lora::token_reply& to) {
        wire::read_token_reply(from, model.plan_of_blocks(group), position, to);
    }
    static void read(bytes from, const server_model& model, std::size_t group, request& to) {
        wire::read_request(from, model.plan(group), to);
    }
    static lora::block_request read_block_request(bytes from, const server_model& model, std::size_t group) {
        return wire::read_block_request(from, model.plan_of_blocks(group));
    }
    static void read(bytes from, const server_model& model, std::size_t group, lora::token_request& to) {
        wire::read_token_request(from, model.plan_of_blocks(group), to);
    }

    // The server's arithmetic.
    static void apply(zeros& of, const server_model& model, std::size_t group, const request& from,
                      workspace& work, reply& to) {
        of.apply(*work.where, model, group, from, work.alone, to);
    }
    static void prepare(zeros& of, const server_model& model, std::size_t group,
                        const lora::block_request& from, workspace& work, server_block& block,
                        lora::block_reply& to) {
        of.prepare(*work.where, model, group, from, work.blocks, block, to);
    }
    static void answer(const server_model& model, std::size_t group, server_block& block,
                       const lora::token_request& from, workspace& work, lora::token_reply& to) {
        model.blocks(group)->answer(block, from, work.blocks, to);
    }
    /// Makes an encryption of zero if there are too few for the next block of each group, or, in a model
    /// without blocks, for `alone` hidden states of each.  @return  whether it made one
    static bool make_zero(zeros& of, const server_model& model, std::size_t alone) {
        const bool has_blocks = model.layout().tokens_ahead > 1;
        return of.fill_by_one(model, has_blocks ? 0 : alone, has_blocks ? 1 : 0);
    }
};

}  // namespace tensafe::session
