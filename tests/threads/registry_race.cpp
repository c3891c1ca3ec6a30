// What registry promises while everything happens at once; to be compiled with -fsanitize=thread.

#include <tensafe/serving/registry.hpp>

#include "../lora/tiles_fixture.hpp"
#include "../serving/registry_fixture.hpp"

using namespace tests;

namespace {

using server = tiles_fixture::tiles<4>;

constexpr std::size_t rank = 4;
constexpr std::size_t width = 32;
constexpr std::size_t contents = 64;

/// A real server, packed anew for every version.
struct packed_site {
    packed_site(const lora::adapter& a, int /*options*/, const lora::pack_progress& progress)
        : answers(a.sites.front().a) {
        if (progress) {
            progress(1, 1);
        }
    }
    static std::size_t bytes_for(const lora::adapter&, int /*options*/) { return 1 << 14; }
    std::size_t bytes() const noexcept { return 1 << 14; }

    server answers;
};

/// Rows of random signs: all norms are equal, so that versions have one layout, and the rows of two versions
/// differ.
lora::adapter content_number(std::size_t number) {
    random_numbers signs(static_cast<std::uint32_t>(number));
    lora::adapter_site site;
    site.name = "q_proj";
    site.a = lora::matrix(rank, width);
    for (float& x : site.a.values) {
        x = signs() % 2 == 0 ? 0.125F : -0.125F;
    }
    site.b = lora::matrix(1, rank);
    return {{site}};
}

/// Sends tokens until told to stop, and notes which versions answered.
class reader {
  public:
    explicit reader(std::uint32_t seed) : session_(server::layout_type::subring_log_n()) {
        // Whoever mixes two versions, or names the wrong one, must show: their answers differ in every row.
        random_numbers random(seed);
        tolerance_ = 0.01;
        double closest = 0;
        while (closest < 2 * tolerance_) {
            h_ = random.normals<float>(width);
            expected_.clear();
            for (std::size_t c = 0; c < contents; ++c) {
                expected_.push_back(product(content_number(c).sites.front().a, h_));
            }
            closest = 1e9;
            for (std::size_t c = 0; c < contents; ++c) {
                for (std::size_t r = 0; r < rank; ++r) {
                    const double next = expected_[(c + 1) % contents][r];
                    closest = std::fmin(closest, std::fabs(expected_[c][r] - next));
                }
            }
        }
    }

    void serve(serving::registry<packed_site>& adapters, const std::atomic<bool>& stop) {
        while (!stop) {
            const auto adapter = adapters.find("legal");
            if (!adapter) {
                ++wrong;
                continue;
            }
            const auto& expected = expected_[adapter.version() % contents];
            if (adapter.matrices().sites.front().a.values !=
                content_number(adapter.version() % contents).sites.front().a.values) {
                ++wrong;
            }
            const auto got = tiles_fixture::encrypted_product(session_, adapter.model().answers, h_);
            for (std::size_t r = 0; r < rank; ++r) {
                wrong += !(std::fabs(got[r] - expected[r]) < tolerance_);
            }
            ++tokens;
            replaced_meanwhile += adapters.find("legal").version() != adapter.version();
            if (seen_.insert(adapter.version()).second) {
                ++versions;
            }
        }
    }

    std::atomic<int> tokens = 0;
    std::atomic<int> versions = 0;
    std::atomic<int> replaced_meanwhile = 0;
    std::atomic<int> wrong = 0;

  private:
    sides<small> session_;
    std::vector<float> h_;
    std::vector<std::vector<double>> expected_;  // by content
    std::set<std::uint64_t> seen_;
    double tolerance_ = 0;
};

TEST_CASE("registry: of 10,000 swaps under 4 readers every reply belongs wholly to one version") {
    constexpr std::uint64_t swaps = 10'000;
    constexpr int versions_for_each = 100;
    serving::registry<packed_site> adapters(serving::pack_with<packed_site>(0));
    const auto load = [&](std::uint64_t number) {
        return adapters.load("legal", [=] { return content_number(number % contents); });
    };
    REQUIRE(load(1) == 1);
    std::atomic<bool> stop = false;
    std::vector<std::unique_ptr<reader>> readers;
    for (std::uint32_t i = 0; i < 4; ++i) {
        readers.push_back(std::make_unique<reader>(i));
    }
    std::vector<std::thread> threads;
    for (auto& r : readers) {
        threads.emplace_back([&] { r->serve(adapters, stop); });
    }
    std::uint64_t version = 1;
    // Longer if the machine gave some reader too little time for the test to mean anything.
    const auto enough = [&] {
        for (const auto& r : readers) {
            if (r->versions < versions_for_each) {
                return false;
            }
        }
        return true;
    };
    bool in_order = true;
    while (version < 1 + swaps || !enough()) {
        in_order = load(version + 1) == version + 1 && in_order;
        ++version;
    }
    stop = true;
    for (auto& thread : threads) {
        thread.join();
    }
    CHECK(in_order);
    for (const auto& r : readers) {
        CHECK(r->wrong == 0);
        CHECK(r->versions >= versions_for_each);
        CHECK(r->replaced_meanwhile > 0);
        MESSAGE(r->tokens.load() << " tokens, " << r->versions.load() << " versions, "
                                 << r->replaced_meanwhile.load() << " replaced while they served");
    }
    CHECK(adapters.status().entries.front().handles == 0);
}

TEST_CASE("registry: evictions, packings, loads and unloads at once leave every name with its own content") {
    using registry_fixture::workshop;
    workshop shop;
    serving::registry<registry_fixture::packed_number> adapters({.memory_budget = 200}, shop.loader());
    const std::vector<std::string> names{"a", "b", "c", "d"};
    for (std::size_t i = 0; i < names.size(); ++i) {
        adapters.load(names[i], registry_fixture::from(static_cast<float>(i)));
    }
    std::atomic<int> wrong = 0;
    std::atomic<int> served = 0;
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            random_numbers random(t);
            for (int i = 0; i < 1000; ++i) {
                const std::size_t which = random() % names.size();
                const auto found = adapters.find(names[which]);
                ++served;
                // The content of a name is its place, and 4 more with each replacement.
                wrong += static_cast<std::size_t>(found.model().number) % names.size() != which;
                wrong += found.model().number != found.matrices().sites.front().a.values.front();
            }
        });
    }
    threads.emplace_back([&] {
        for (std::size_t i = 0; i < 500; ++i) {
            const std::size_t which = i % names.size();
            adapters.load(names[which], registry_fixture::from(static_cast<float>(which + 4 * i)));
            wrong += adapters.status().bytes_packed > 200;
            adapters.load("passing", registry_fixture::from(0));
            adapters.unload("passing");
        }
    });
    threads.emplace_back([&] {
        for (std::size_t i = 0; i < 500; ++i) {
            wrong += adapters.names().size() < names.size();
            wrong += adapters.at(names[i % names.size()]).version() == 0;
        }
    });
    for (auto& thread : threads) {
        thread.join();
    }
    CHECK(wrong == 0);
    CHECK(served == 4000);
    CHECK(adapters.names() == names);
    CHECK(adapters.status().bytes_retained == 0);
}

}  // namespace
