#pragma once

#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/model/stack.hpp>

#include "../ntt/reference.hpp"
#include "../random_values.hpp"
#include "../sides.hpp"
#include "../test.hpp"
#include "../worst.hpp"

// What tests of packings share: servers of small sets, and the error that is allowed.

namespace tiles_fixture {

namespace random_source = tensafe::random;
using namespace tensafe::lora;

using tests::sides;
using tests::small;

template <int Rows, class Protection = protects_adapter_rows<>>
using tiles = server<small, coefficient_tiles<Rows>, Protection>;
using bare = tiles<4, reveals_adapter_rows>;
using narrow = tiles<4, protects_adapter_rows<average_case<6>>>;

template <class Real>
std::span<const Real> view(const std::vector<Real>& h) {
    return h;
}

template <class Server>
sides<small> sides_for() {
    return sides<small>(Server::layout_type::subring_log_n());
}

/// A*h through encryption.
template <class Server, class Real>
std::vector<double> encrypted_product(sides<small>& with, const Server& s, const std::vector<Real>& h,
                                      double overflow_margin = 1) {
    const auto q = with.client.encrypt(s.plan(), h, overflow_margin);
    if constexpr (std::is_same_v<Server, bare>) {
        return with.client.decrypt(s.plan(), s.apply(q.request), q);
    } else {
        return with.client.decrypt(s.plan(), s.apply(q.request, with.pool), q);
    }
}
/// The same of slots, with zeros for it alone.
template <class P, class Server, class Real>
std::vector<double> encrypted_product(client<P>& c, const Server& s, const std::vector<Real>& h) {
    const auto q = c.encrypt(s.plan(), h);
    if constexpr (requires { s.apply(q.request); }) {
        return c.decrypt(s.plan(), s.apply(q.request), q);
    } else {
        auto zeros = s.pool(tests::numbered_seed(1), c.rerandomization_key(tests::numbered_seed(1)));
        return c.decrypt(s.plan(), s.apply(q.request, zeros), q);
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

/// That of classic replies: encryption noise times the rows, rounding of the weights
/// times h, and the rounding of a rescale times the secret. Slots of a polynomial with independent
/// coefficients of variance v have variance N v, half of it in the real part.
template <class P, class Packing>
requires requires {
    Packing::rescales;
}
double deviation(const layout<P, Packing, reveals_adapter_rows>& layout, double state_norm) {
    const auto n = static_cast<double>(P::degree);
    const double encryption = layout.row_norm * std::sqrt(n * (10.5 + 1.0 / 12)) / P::scale;
    const double rounding = state_norm * std::sqrt(n / 24) / Packing::template weight_scale<P>();
    double rescale = 0;
    if (Packing::rescales) {
        const double slots_of_a_sum = n / 2 / static_cast<double>(layout.slots().stride);
        rescale = std::sqrt(slots_of_a_sum * n / 2 * (1 + 2 * n / 3) / 12) / P::scale;
    }
    return std::sqrt(encryption * encryption + rounding * rounding + rescale * rescale);
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
double error_in_deviations(sides<small>& with, const Server& s, const matrix& a, const std::vector<Real>& h) {
    return error_in_deviations(encrypted_product(with, s, h), s, a, h);
}

template <class P = tests::small_slots, class Packing = replicated_slots<>>
using slot_server = server<P, Packing, reveals_adapter_rows>;
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
