#pragma once

#include <tensafe/core/text.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::serving {

/// Counters of what was served, of 64 bits each; sums stay at the largest value instead of wrapping around.
struct usage {
    std::uint64_t requests = 0;  ///< requests that were answered
    std::uint64_t refused = 0;   ///< requests that were not: malformed, not allowed, no such adapter
    /// The hidden states answered: for a generated token one for each input of the model, 160 of the default
    /// one.
    std::uint64_t tokens = 0;
    std::uint64_t products = 0;    ///< products of a plaintext, or a number, with a ciphertext
    std::uint64_t bytes_up = 0;    ///< bytes of requests, refused ones included
    std::uint64_t bytes_down = 0;  ///< bytes of replies

    friend bool operator==(const usage&, const usage&) = default;

    usage& operator+=(const usage& other) noexcept {
        for (const auto counter : {&usage::requests, &usage::refused, &usage::tokens, &usage::products,
                                   &usage::bytes_up, &usage::bytes_down}) {
            const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - this->*counter;
            this->*counter += other.*counter < room ? other.*counter : room;
        }
        return *this;
    }
    friend usage operator+(usage a, const usage& b) noexcept { return a += b; }
};

/// The usage of an answered request, from the messages and the layout of its server. Of a block of tokens the
/// preparation has the products, and each answer a token.
template <class Request, class Reply, class Layout>
requires requires(const Request& request, const Reply& reply, const Layout& layout) {
    request.bytes();
    reply.bytes();
    layout.inputs();
    layout.outputs();
}
usage usage_of(const Request& request, const Reply& reply, const Layout& layout) noexcept {
    usage result;
    result.requests = 1;
    result.tokens = requires {
        request.tokens;
    }
    ? 0 : 1;
    result.products = requires {
        request.position;
    }
    ? 0 : std::uint64_t{layout.inputs()} * layout.outputs();
    if constexpr (requires { reply.c1.size(); }) {  // of a block or a part of one
        result.products = std::uint64_t{layout.inputs()} * reply.c1.size();
    }
    result.bytes_up = request.bytes();
    result.bytes_down = reply.bytes();
    return result;
}

/// The usage of a refused request: its bytes. Nothing that it says of itself is believed.
template <class Request>
requires requires(const Request& request) {
    request.bytes();
}
usage refused_usage_of(const Request& request) noexcept {
    usage result;
    result.refused = 1;
    result.bytes_up = request.bytes();
    return result;
}

/// The counters of one adapter and one client.
struct meter_series {
    std::string adapter;
    std::string client;
    usage used;

    friend bool operator==(const meter_series&, const meter_series&) = default;
};

/// All counters at one moment, by adapter and then by client, as bytes compare.
struct meter_snapshot {
    std::vector<meter_series> series;

    friend bool operator==(const meter_snapshot&, const meter_snapshot&) = default;

    usage total() const noexcept {
        return sum_of([](const meter_series&) { return true; });
    }
    usage of_adapter(std::string_view name) const noexcept {
        return sum_of([name](const meter_series& each) { return each.adapter == name; });
    }
    usage of_client(std::string_view name) const noexcept {
        return sum_of([name](const meter_series& each) { return each.client == name; });
    }

    /// The sums of each adapter, without the clients' names: `client` is empty.
    meter_snapshot by_adapter() const {
        std::map<std::string, usage> sums;
        for (const meter_series& each : series) {
            sums[each.adapter] += each.used;
        }
        meter_snapshot result;
        for (const auto& [adapter, used] : sums) {
            result.series.push_back({adapter, {}, used});
        }
        return result;
    }

  private:
    template <class Counts>
    usage sum_of(Counts counts) const noexcept {
        usage sum;
        for (const meter_series& each : series) {
            sum += counts(each) ? each.used : usage{};
        }
        return sum;
    }
};

/// The limits of what a meter remembers, whoever sends it names.
struct meter_limits {
    std::size_t longest_name = 128;  ///< bytes
    std::size_t most_adapters = 1'000;
    std::size_t most_clients = 10'000;
    /// The most pairs of adapter and client that have counters of their own.
    std::size_t most_series = 100'000;
};

/// Counts what each client used of each adapter: on the server, to bill, to limit and to watch.
///
/// Names from outside cannot fill memory or break an export: a name that is empty, too long, not UTF-8 or has
/// control characters, and any beyond the limits, counts under the name `other`. Nothing is lost in the sums.
/// At most most_series + most_adapters + 1 series are kept.
///
/// Thread-safe by one lock. A record compares a few names under it, and from a pair's second one on allocates
/// nothing. Other calls hold it longer: snapshot, reset and merge for a copy of all series, forget_client for
/// a walk through all of them, which allocates nothing. Strong exception safety.
class meter {
  public:
    /// The name for all without counters of their own. A client that calls itself so counts here too.
    static constexpr std::string_view other = "other";

    explicit meter(meter_limits limits = {}) : limits_(limits) {}

    /// Adds to the counters of this adapter and this client.
    void record(std::string_view adapter, std::string_view client, const usage& used) {
        const std::lock_guard lock(mutex_);
        counters_.add({adapter, client}, used, limits_);
    }

    /// All counters at one moment: a record is in it as a whole or not at all.
    meter_snapshot snapshot() const {
        const std::lock_guard lock(mutex_);
        return listed();
    }

    /// Adds the counters of an earlier process, or of another server.
    void merge(const meter_snapshot& earlier) {
        const std::lock_guard lock(mutex_);
        state merged = counters_;
        for (const meter_series& each : earlier.series) {
            merged.add({each.adapter, each.client}, each.used, limits_);
        }
        std::swap(counters_, merged);
    }

    /// Forgets the name of a client; its counts go on under `other`, so that sums and exported totals do not
    /// fall. A copy or an export made before still has the name.
    /// @returns what the client had used; all 0 if it is not known
    usage forget_client(std::string_view client) {
        usage sum;
        const std::lock_guard lock(mutex_);
        const auto entry = counters_.clients.find(client);
        if (entry == counters_.clients.end()) {
            return sum;
        }
        usage_map& series = counters_.series;
        for (auto each = series.begin(); each != series.end();) {
            const auto at = each++;
            if (at->first.client == client) {
                sum += at->second;
                auto node = series.extract(at);
                node.key().client = other;  // short enough for a string without memory of its own
                const auto result = series.insert(std::move(node));
                if (!result.inserted) {
                    result.position->second += result.node.mapped();
                }
            }
        }
        counters_.clients.erase(entry);
        return sum;
    }

    /// Forgets everything and returns what was there, no record missing or double.
    meter_snapshot reset() {
        state before;
        const std::lock_guard lock(mutex_);
        meter_snapshot result = listed();
        std::swap(counters_, before);
        return result;
    }

    const meter_limits& limits() const noexcept { return limits_; }

  private:
    struct name_view {
        std::string_view adapter;
        std::string_view client;
    };
    struct name_pair {
        std::string adapter;
        std::string client;
    };
    struct by_names {
        using is_transparent = void;
        template <class A, class B>
        bool operator()(const A& a, const B& b) const noexcept {
            const int order = std::string_view(a.adapter).compare(b.adapter);
            return order != 0 ? order < 0 : std::string_view(a.client) < std::string_view(b.client);
        }
    };
    // Ordered maps: nobody can choose names that collide.
    using usage_map = std::map<name_pair, usage, by_names>;
    using name_set = std::set<std::string, std::less<>>;

    struct state {
        usage_map series;
        // Names that series have; `other` is not among them.
        name_set adapters;
        name_set clients;

        void add(name_view names, const usage& used, const meter_limits& limits) {
            if (const auto known = series.find(names); known != series.end()) {
                known->second += used;
                return;
            }
            names.adapter = allowed(names.adapter, adapters, limits.most_adapters, limits);
            names.client = allowed(names.client, clients, limits.most_clients, limits);
            if (names.client != other && series.size() >= limits.most_series && !series.contains(names)) {
                names.client = other;
            }
            const auto known = series.find(names);
            if (known != series.end()) {
                known->second += used;
            } else {
                insert(names, used);
            }
        }

        static std::string_view allowed(std::string_view name, const name_set& known, std::size_t most,
                                        const meter_limits& limits) {
            const bool fits =
                known.contains(name) || (known.size() < most && !name.empty() &&
                                         name.size() <= limits.longest_name && is_printable_utf8(name));
            return fits ? name : other;
        }

        /// Inserts a series that is not there yet. Takes memory first, then does what cannot fail.
        void insert(name_view names, const usage& used) {
            usage_map one;
            one.emplace(name_pair{std::string(names.adapter), std::string(names.client)}, used);
            name_set adapter = named(names.adapter);
            name_set client = named(names.client);
            series.merge(one);
            adapters.merge(adapter);
            clients.merge(client);
        }
        static name_set named(std::string_view name) {
            name_set result;
            if (name != other) {
                result.emplace(name);
            }
            return result;
        }
    };

    meter_snapshot listed() const {
        meter_snapshot result;
        result.series.reserve(counters_.series.size());
        for (const auto& [names, used] : counters_.series) {
            result.series.push_back({names.adapter, names.client, used});
        }
        return result;
    }

    const meter_limits limits_;
    mutable std::mutex mutex_;
    state counters_;
};

}  // namespace tensafe::serving
