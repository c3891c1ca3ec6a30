#include <tensafe/lora/tracing/marked_models.hpp>

#include "../model/model_fixture.hpp"

using namespace model_fixture;

namespace {

using models = lora::marked_models<small>;

lora::marks tenant(std::uint8_t number) {
    tensafe::random::seed seed;
    seed.bytes.fill(number);
    return lora::marks(seed);
}

/// A tenant's model and its client; B has no marks here.
struct served_tenant {
    using client_type = model_client;
    using block_workspace = lora::block_workspace<small>;
    using server_block = lora::server_block<small>;

    served_tenant(const lora::adapter& from, std::shared_ptr<const model_server> of_tenant)
        : model(std::move(of_tenant)),
          server(*model),
          client(server.layout(), lora::client_part(from, with_blocks())),
          nonce(tensafe::random::fresh_nonce()),
          session(nonce, client.rerandomization_key(nonce)) {}

    std::shared_ptr<const model_server> model;
    const model_server& server;
    model_client client;
    tensafe::random::seed nonce;
    server_zeros session;
};

/// What a tenant is served by: rows of A with marks, which have the norms of A's rows.
lora::adapter expected_of(const lora::adapter& from, const lora::marks& marks) {
    lora::adapter result = marks.added_to(lora::marked_matrix::a, from);
    for (std::size_t s = 0; s < from.sites.size(); ++s) {
        for (std::size_t r = 0; r < from.sites[s].rank(); ++r) {
            const auto row = result.sites[s].a.row(r);
            const double ratio = norm(from.sites[s].a.row(r)) / norm(row);
            for (float& x : row) {
                x = static_cast<float>(x * ratio);
            }
        }
    }
    return result;
}

std::shared_ptr<lora::marked_memory> memory_of(std::size_t bytes) {
    return std::make_shared<lora::marked_memory>(bytes);
}

}  // namespace

TEST_CASE("each tenant's deltas are those of its own A, and all have the adapter's layout") {
    const auto from = random_adapter(1);
    const models all(from, with_blocks(), memory_of(std::size_t{1} << 30));
    const model_server without(from, with_blocks());
    CHECK(all.plans().layout() == without.layout());
    CHECK_THROWS_WITH_AS(all.plans().decode(0), Contains("plans alone"), parameter_error);
    CHECK_THROWS_WITH_AS(all.plans().blocks(0), Contains("plans alone"), parameter_error);
    CHECK(all.plans().zeros_per_token() == without.zeros_per_token());
    CHECK(all.plans().zeros_per_block() == without.zeros_per_block());
    std::vector<lora::adapter> expected;
    for (std::uint8_t number = 1; number <= 2; ++number) {
        served_tenant s(from, all.of(tenant(number)));
        CHECK(s.server.layout() == without.layout());
        for (std::size_t g = 0; g < without.layout().groups.size(); ++g) {
            CHECK(s.server.decode(g)->plan() == without.plan(g));
            CHECK(s.server.blocks(g)->plan() == without.plan_of_blocks(g));
        }
        expected.push_back(expected_of(from, tenant(number)));
        check_tokens_and_blocks(s, expected.back());
    }
    // Of another A they would be far off.
    const auto h = random_state(70, 1);
    const auto of_first = lora::plain_delta(expected[0].sites[0], h);
    const auto of_second = lora::plain_delta(expected[1].sites[0], h);
    const auto plain = lora::plain_delta(from.sites[0], h);
    double between = 0;
    double from_plain = 0;
    for (std::size_t k = 0; k < plain.size(); ++k) {
        between += std::pow(of_first[k] - of_second[k], 2);
        from_plain += std::pow(of_first[k] - plain[k], 2);
    }
    CHECK(std::sqrt(between) > 0.01 * norm(plain));
    CHECK(std::sqrt(from_plain) > 0.01 * norm(plain));
}

TEST_CASE("layouts say nothing of marks where columns are scaled") {
    auto options = with_blocks();
    options.column_scales = true;
    const auto from = random_adapter(1);
    const models all(from, options, memory_of(0));
    const model_server without(from, options);
    CHECK(all.plans().layout() == without.layout());
    for (std::uint8_t number = 1; number <= 10; ++number) {
        const auto of_tenant = all.of(tenant(number));
        CHECK(of_tenant->layout() == without.layout());
        for (std::size_t g = 0; g < without.layout().groups.size(); ++g) {
            // Of the rows themselves: a norm that is another one shows here.
            CHECK(of_tenant->decode(g)->layout() == without.decode(g)->layout());
        }
    }
}

TEST_CASE("a tenant's rows have the norms of the adapter's, whatever the marks") {
    auto from = random_adapter(1);
    auto& zeros = from.sites[0].a;
    std::fill(zeros.values.begin(), zeros.values.begin() + 70, 0.0F);
    const auto groups = lora::group_sites(from, with_blocks());
    auto group = groups.layout.groups[0];
    const auto plain = lora::detail::stacked(from, groups.sites[0], with_blocks(), group);
    for (std::uint8_t number = 1; number <= 50; ++number) {
        std::vector<lora::matrix> marked;
        for (const std::size_t site : groups.sites[0]) {
            auto own = from.sites[site];
            tenant(number).add_to(own, lora::marked_matrix::a);
            CHECK((own.a.values != from.sites[site].a.values));
            marked.push_back(std::move(own.a));
        }
        const auto rows = lora::detail::stacked_alike(marked, group);
        REQUIRE(rows.rows == plain.rows.rows);
        CHECK(norm(rows.row(0)) == 0);
        for (std::size_t r = 1; r < rows.rows; ++r) {
            CHECK(std::fabs(norm(rows.row(r)) - norm(plain.rows.row(r))) < 1e-6);
        }
    }
}

TEST_CASE("a block outlives the packed rows that it was prepared with") {
    const auto from = random_adapter(1);
    for (const std::size_t most_bytes : {std::size_t{0}, std::size_t{1} << 30}) {
        CAPTURE(most_bytes);
        const auto memory = memory_of(most_bytes);
        const models all(from, with_blocks(), memory);
        served_tenant one(from, all.of(tenant(1)));
        served_tenant again(from, all.of(tenant(1)));
        served_tenant other(from, all.of(tenant(2)));
        const auto expected = expected_of(from, tenant(1));
        prepared_block block(one, 0);
        CHECK(memory->packed() == 1);
        for (std::size_t position = 0; position < 3; ++position) {
            const auto h = random_state(70, position);
            std::vector<double> product;
            block.product(position == 2 ? again : one, 0, h, product);
            check_deltas(one, expected, 0, one.server.plan_of_blocks(0).layout(),
                         one.client.deltas(0, product), h);
        }
        CHECK(memory->packed() == (most_bytes == 0 ? 4 : 1));
        std::vector<double> product;
        CHECK_THROWS_WITH_AS(block.product(other, 0, random_state(70, 5), product),
                             Contains("did not prepare"), parameter_error);
        CHECK(memory->bytes() <= most_bytes);
        CHECK((memory->bytes() > 0) == (most_bytes > 0));
    }
}

TEST_CASE("a block is not answered by another adapter of the same tenant, in another memory either") {
    const auto from = random_adapter(1);
    auto changed = from;
    changed.sites[0].a.values[0] += 1;
    const models first(from, with_blocks(), memory_of(std::size_t{1} << 30));
    const models second(changed, with_blocks(), memory_of(std::size_t{1} << 30));
    served_tenant of_first(from, first.of(tenant(1)));
    served_tenant of_second(changed, second.of(tenant(1)));
    prepared_block block(of_first, 0);
    std::vector<double> product;
    CHECK_THROWS_WITH_AS(block.product(of_second, 0, random_state(70, 5), product),
                         Contains("did not prepare"), parameter_error);
}

TEST_CASE("what is larger than the memory leaves what is kept") {
    lora::marked_memory memory(100);
    const auto get = [&](std::size_t part, std::size_t bytes) {
        return *memory.get<std::size_t>({1, 5, part}, bytes,
                                        [&] { return std::make_shared<std::size_t>(part); });
    };
    CHECK(get(7, 60) == 7);
    CHECK(get(8, 101) == 8);
    CHECK(memory.bytes() == 60);
    CHECK(get(7, 60) == 7);
    CHECK(memory.packed() == 2);
}

TEST_CASE("the groups that were used least recently leave, and an adapter's with it") {
    lora::marked_memory memory(100);
    const auto get = [&](std::uint64_t adapter, std::size_t part) {
        return *memory.get<std::size_t>({adapter, 5, part}, 40,
                                        [&] { return std::make_shared<std::size_t>(part); });
    };
    CHECK(get(1, 7) == 7);
    CHECK(get(2, 8) == 8);
    CHECK(get(1, 7) == 7);
    CHECK(memory.packed() == 2);
    CHECK(get(1, 9) == 9);  // in the place of 8
    CHECK(memory.packed() == 3);
    CHECK(memory.bytes() == 80);
    CHECK(get(1, 7) == 7);
    CHECK(memory.packed() == 3);
    CHECK(get(2, 8) == 8);
    CHECK(memory.packed() == 4);
    memory.forget(1);
    CHECK(memory.bytes() == 40);
    CHECK(get(2, 8) == 8);
    CHECK(memory.packed() == 4);
    const auto fails = []() -> std::shared_ptr<std::size_t> { throw parameter_error("no"); };
    CHECK_THROWS_AS(memory.get<std::size_t>({3, 5, 1}, 40, fails), parameter_error);
    CHECK(memory.bytes() == 40);
}

TEST_CASE("marks in A are refused where rows are those of B A, and where a grid removes them") {
    auto from = random_adapter(1);
    const auto memory = memory_of(1);
    auto options = with_blocks();
    options.mode = lora::mode::blind;
    CHECK_THROWS_WITH_AS(models(from, options, memory), Contains("mode blind"), parameter_error);
    options = with_blocks();
    options.column_scales = true;
    auto uneven = from;
    for (auto& site : uneven.sites) {
        for (std::size_t r = 0; r < site.rank(); ++r) {
            site.a.row(r)[2] *= 0x1p-8F;
        }
    }
    CHECK_THROWS_WITH_AS(models(uneven, options, memory), Contains("has a column with the exponent 8"),
                         parameter_error);
    for (float& x : from.sites[3].a.values) {
        x = std::round(4 * x) / 4;
    }
    CHECK_THROWS_WITH_AS(models(from, with_blocks(), memory), Contains("bits an entry"), parameter_error);
}
