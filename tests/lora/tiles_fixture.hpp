#pragma once

#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/model/stack.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>
#include <tensafe/random/entropy.hpp>

#include "../ntt/reference.hpp"
#include "../random_values.hpp"
#include "../test.hpp"
#include "../worst.hpp"

// What tests of coefficient_tiles share: a small set, a client with its zeros, and the error that is allowed.

namespace tiles_fixture {

namespace ckks = tensafe::ckks;
namespace random_source = tensafe::random;
using namespace tensafe::lora;

using small = ckks::parameters<10, ckks::limb_bits<45, 44>, 30, ckks::insecure_for_tests>;
using zeros_of_small = tensafe::lora::rerandomization_pool<small>;

template <int Rows, class Protection = protects_adapter_rows<>>
using tiles = server<small, coefficient_tiles<Rows>, Protection>;
using bare = tiles<4, reveals_adapter_rows>;
using narrow = tiles<4, protects_adapter_rows<average_case<6>>>;

template <class Real>
std::span<const Real> view(const std::vector<Real>& h) {
    return h;
}

/// A client, and one server's zeros for it.
struct session {
    explicit session(int subring_log_n) : session(subring_log_n, random_source::fresh_seed()) {}
    session(int subring_log_n, const random_source::seed& nonce)
        : zeros(nonce, key_holder.rerandomization_key(nonce), subring_log_n) {}

    client<small> key_holder;
    zeros_of_small zeros;
};

template <class Server>
session session_for() {
    return session(Server::layout_type::subring_log_n());
}

/// A*h through encryption.
template <class Server, class Real>
std::vector<double> encrypted_product(session& with, const Server& s, const std::vector<Real>& h,
                                      double overflow_margin = 1) {
    const auto q = with.key_holder.encrypt(s.plan(), h, overflow_margin);
    if constexpr (std::is_same_v<Server, bare>) {
        return with.key_holder.decrypt(s.plan(), s.apply(q.request), q);
    } else {
        return with.key_holder.decrypt(s.plan(), s.apply(q.request, with.zeros), q);
    }
}

inline double largest_difference(std::span<const double> a, std::span<const double> b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (std::size_t k = 0; k < a.size(); ++k) {
        largest = tests::worse(largest, std::fabs(a[k] - b[k]));
    }
    return largest;
}

/// The budget's standard deviation of an answer's error.
template <class Layout>
double deviation(const Layout& layout, double state_norm) {
    return layout.budget().relative_error * layout.row_norm * state_norm /
           std::sqrt(static_cast<double>(layout.d));
}

/// The rounding of A, errors and floods are sums of many independent bounded terms, or of four uniform ones,
/// whose tails are thinner than a Gaussian's: one error in 4 * 10^11 passes seven deviations, and a test
/// looks at fewer than 10^5. The weights are generic in every test, so this holds for any direction of h.
inline constexpr double most_deviations = 7;

/// How many deviations the worst of these answers is off A*h.
template <class Server, class Real>
double error_in_deviations(std::span<const double> answers, const Server& s, const matrix& a,
                           const std::vector<Real>& h) {
    return largest_difference(answers, product(a, h)) / deviation(s.layout(), norm(h));
}

/// The same through encryption.
template <class Server, class Real>
double error_in_deviations(session& with, const Server& s, const matrix& a, const std::vector<Real>& h) {
    return error_in_deviations(encrypted_product(with, s, h), s, a, h);
}

/// Ranks and widths of every kind for packings of 1024 slots.
struct shape {
    std::size_t rank, d;
};
inline constexpr shape slot_shapes[] = {{1, 1},    {2, 1},    {1, 2},    {3, 5},   {32, 64},  {32, 100},
                                        {31, 300}, {33, 128}, {5, 512},  {6, 513}, {8, 1000}, {7, 1024},
                                        {4, 1025}, {3, 1536}, {5, 2048}, {2, 2500}};

inline matrix balanced(matrix a) {
    return normalize_rows({"", std::move(a), matrix(1, a.rows), 1}).a;
}

inline std::vector<float> row_of(const matrix& a, std::size_t r) {
    return {a.row(r).begin(), a.row(r).end()};
}

}  // namespace tiles_fixture
