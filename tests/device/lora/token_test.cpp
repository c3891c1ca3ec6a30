#include "../exec/recording_blocks.hpp"
#include "token_checks.hpp"

using namespace tests;

namespace {

using private_range = lora::protects_adapter_rows<>;
using narrow_range = lora::protects_adapter_rows<lora::average_case<6>>;

}  // namespace

TEST_CASE("a batch of two clients gives the host's requests, replies and answers") {
    for (const thread_order order : {thread_order::forward, thread_order::shuffled}) {
        token_checks::check_tokens<ckks::private_n4096, 4, private_range>(host_blocks(order), 6, 1500);
    }
}

TEST_CASE("an average-case range gives the host's requests, replies and answers") {
    token_checks::check_tokens<ckks::compact_n4096, 4, narrow_range>(host_blocks(thread_order::reverse), 5,
                                                                     1100);
}

TEST_CASE(
    "hidden states on the device are encrypted like those of the host, and refused if they are no numbers") {
    token_checks::check_states_on_device<ckks::private_n4096, 4, private_range>(host_blocks(), 2, 1100);
}

TEST_CASE("work that is enqueued again without staging is erased") {
    token_checks::check_stale_work<ckks::private_n4096, 4, private_range>(host_blocks(), 2, 500);
}

TEST_CASE("a malformed request spoils its own reply only") {
    token_checks::check_malformed_request<ckks::private_n4096, 4, private_range>(host_blocks(), 2, 1100);
}

TEST_CASE("a recording that is replayed answers each batch, and erases what was not staged for it") {
    const recording_blocks where{host_blocks(), nullptr};
    token_checks::check_tokens<ckks::private_n4096, 4, private_range>(where, 2, 1100, run_recorded());
    token_checks::check_stale_work<ckks::private_n4096, 4, private_range>(where, 2, 500, run_recorded());
}

TEST_CASE("workspaces of another matrix, missing steps and answers of an earlier batch are refused") {
    token_checks::check_misuse<ckks::private_n4096, 4, private_range>(host_blocks());
}

TEST_CASE("a token takes the launches that docs/gpu.md counts") {
    std::size_t launches = 0;
    const host_blocks where(thread_order::forward, &launches);
    CHECK(token_checks::launches_of_token<ckks::private_n4096, 4, private_range>(where, launches) ==
          std::array<std::size_t, 3>{5, 9, 2});
}
