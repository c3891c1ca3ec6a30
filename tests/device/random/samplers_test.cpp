#include "../../test.hpp"
#include "samplers_checks.hpp"

using namespace tests;

namespace {

/// Calls f(where, launches) for each order of threads.
void in_each_order(auto f) {
    for (const thread_order order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        CAPTURE(static_cast<int>(order));
        std::size_t launches = 0;
        f(host_blocks(order, &launches), launches);
    }
}

/// Runs blocks, and keeps what each left in shared memory.
struct looking_blocks {
    using space = memory::host_space;

    std::vector<unsigned char>* left;

    template <class Kernel>
    void launch(const Kernel& kernel, device::grid_shape grid) const {
        using shared_type = typename Kernel::shared_type;
        device::detail::turns turns(static_cast<std::size_t>(Kernel::threads), thread_order::forward);
        const auto shared = std::make_unique<shared_type>();
        for (std::uint32_t x = 0; x < grid.x; ++x) {
            std::memset(static_cast<void*>(shared.get()), 0xA5, sizeof(shared_type));
            device::host_thread_block<Kernel> context({x, 0, 0}, *shared, turns);
            kernel(context);
            const auto keep = [&](const auto& member) {
                const auto* bytes = reinterpret_cast<const unsigned char*>(&member);
                left->insert(left->end(), bytes, bytes + sizeof member);
            };
            keep(shared->stream);
            keep(shared->small_values);
            keep(shared->key);
        }
    }
};

}  // namespace

TEST_CASE("kernels draw the values of the page") {
    in_each_order([](const auto& where, auto&) { check_vectors_of_the_page(where); });
}

TEST_CASE("kernels draw uniform values of every width as the host does") {
    in_each_order([](const auto& where, auto&) { check_uniform_widths(where); });
}

TEST_CASE("kernels draw limbs of different widths as the host does") {
    in_each_order([](const auto& where, auto&) { check_uniform_moduli(where); });
}

TEST_CASE("kernels draw ternary values and errors of any number as the host does") {
    in_each_order([](const auto& where, auto&) { check_small_values(where); });
}

TEST_CASE("kernels draw floods as the host does") {
    in_each_order([](const auto& where, auto&) { check_floods(where); });
}

TEST_CASE("eight groups of draws are one launch and do not depend on each other") {
    in_each_order([](const auto& where, auto& launches) { check_groups(where, launches); });
}

TEST_CASE("draws that cannot be are refused before a launch") {
    in_each_order([](const auto& where, auto& launches) { check_refusals(where, launches); });
}

TEST_CASE("kernels leave no secret stream in shared memory") {
    const std::vector<seed> seeds = some_seeds(2);
    std::vector<arith::uint128> out(20000);
    for (const device::distribution kind :
         {device::distribution::ternary, device::distribution::error, device::distribution::flood}) {
        for (const std::uint32_t size : {5U, 10000U}) {
            device::draw_group draws = of_kind(kind, stream_domain::flood, 2, size);
            draws.seeds = seeds.data();
            draws.out = out.data();
            std::vector<unsigned char> left;
            device::draw(looking_blocks{&left}, std::vector{draws});
            REQUIRE(!left.empty());
            // The four words behind the stream were never written.
            const auto unknown = [](unsigned char byte) { return byte != 0 && byte != 0xA5; };
            CHECK(std::none_of(left.begin(), left.end(), unknown));
            CHECK(std::count(left.begin(), left.end(), 0xA5) * 100 < static_cast<long>(left.size()));
        }
    }
}
