#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/montgomery.hpp>
#include <tensafe/ntt/transform.hpp>

#include "../test.hpp"
#include "reference.hpp"

// What the transforms must do with every policy, whatever the schedule.

namespace transform_checks {

using tensafe::arith::barrett;
using tensafe::arith::fp64;
using tensafe::arith::montgomery;
using tensafe::arith::shoup;
using tensafe::arith::word;
using words = std::vector<word>;

/// The largest prime of this width that serves every degree up to 2^17.
template <int Bits>
inline constexpr word prime = tensafe::arith::ntt_prime_below(word{1} << Bits, 17);

template <template <class> class Policy, int Bits>
Policy<tensafe::arith::runtime_modulus<Bits>> policy() {
    using modulus = tensafe::arith::runtime_modulus<Bits>;
    return Policy<modulus>(modulus(prime<Bits>));
}

inline words random_residues(std::size_t count, word q, word seed) {
    return tests::random_numbers(seed).residues(count, q);
}

/// One schedule of one policy.
template <class Policy>
struct schedule_under_test {
    using plan = tensafe::ntt::plan<Policy>;
    std::string name;
    void (*forward)(const plan&, std::span<word>) noexcept;
    void (*inverse)(const plan&, std::span<word>) noexcept;
};

template <class Schedule>
struct named {
    const char* name;
};
/// The two that have least in common.
inline constexpr std::tuple two_schedules{named<tensafe::ntt::split_stages<0>>{"all fused"},
                                          named<tensafe::ntt::stage_by_stage>{"stage by stage"}};
inline constexpr std::tuple all_schedules{named<tensafe::ntt::split_stages<0>>{"all fused"},
                                          named<tensafe::ntt::split_stages<1>>{"1 global stage"},
                                          named<tensafe::ntt::split_stages<3>>{"3 global stages"},
                                          named<tensafe::ntt::split_stages<4>>{"4 global stages"},
                                          named<tensafe::ntt::stage_by_stage>{"stage by stage"}};

template <class Policy, class... Schedule>
std::vector<schedule_under_test<Policy>> for_policy(const std::tuple<named<Schedule>...>& schedules) {
    using namespace tensafe::ntt;
    return {
        {std::get<named<Schedule>>(schedules).name, forward<Schedule, Policy>, inverse<Schedule, Policy>}...};
}

/// A policy and the widths of its primes.
template <template <class> class Policy, int... Bits>
struct on {
    template <class F>
    static void for_each(F f) {
        (f(policy<Policy, Bits>()), ...);
    }
};

/// Every schedule gives `values` for `coefficients` and the other way round.
template <class Policy, class Schedules>
void check_pair(const tensafe::ntt::plan<Policy>& plan, const Schedules& schedules, const words& coefficients,
                const words& values) {
    for (const auto& schedule : for_policy<Policy>(schedules)) {
        CAPTURE(schedule.name);
        words limb = coefficients;
        schedule.forward(plan, limb);
        CHECK(limb == values);
        limb = values;
        schedule.inverse(plan, limb);
        CHECK(limb == coefficients);
    }
}

template <class Policy, class Schedules>
void check_against_reference(const Policy& policy, const Schedules& schedules, int log_n,
                             const words& input) {
    const tensafe::ntt::plan<Policy> plan(policy, log_n);
    const word q = policy.modulus().value();
    check_pair(plan, schedules, input, tests::reference_forward(input, log_n, q, plan.psi()));
    // The same numbers as values: what the inverse gives must transform back to them.
    words limb = input;
    tensafe::ntt::inverse(plan, std::span(limb));
    CHECK(tests::reference_forward(limb, log_n, q, plan.psi()) == input);
}

template <class Policies, class Schedules>
void check_small_degrees(const Schedules& schedules) {
    Policies::for_each([&](const auto& policy) {
        const word q = policy.modulus().value();
        CAPTURE(q);
        for (int log_n = 1; log_n <= 9; ++log_n) {
            CAPTURE(log_n);
            const std::size_t degree = std::size_t{1} << log_n;
            check_against_reference(policy, schedules, log_n, random_residues(degree, q, 1));
            check_against_reference(policy, schedules, log_n, words(degree, q - 1));
        }
    });
}

/// Random residues and the extremes that drive lazy sums furthest, at degrees too large for the reference:
/// schedules agree, results are residues, the round trip is the identity in both directions.
template <class Policy, class Schedules>
void check_large_degree(const Policy& policy, const Schedules& schedules, int log_n) {
    const tensafe::ntt::plan<Policy> plan(policy, log_n);
    const word q = policy.modulus().value();
    const std::size_t degree = plan.degree();
    CAPTURE(q);
    CAPTURE(log_n);
    std::vector<words> inputs{random_residues(degree, q, 3), words(degree, q - 1)};
    // Zeros beside the largest residues: the inverse subtracts the largest lazy sum from the smallest.
    for (const std::size_t half_period : {std::size_t{1}, degree / 4, degree / 2}) {
        words& steps = inputs.emplace_back(degree, 0);
        for (std::size_t i = 0; i < degree; ++i) {
            steps[i] = i / half_period % 2 == 0 ? 0 : q - 1;
        }
    }
    for (const words& input : inputs) {
        words values = input;
        tensafe::ntt::forward(plan, std::span(values));
        CHECK(std::all_of(values.begin(), values.end(), [&](word x) { return x < q; }));
        check_pair(plan, schedules, input, values);
        words coefficients = input;
        tensafe::ntt::inverse(plan, std::span(coefficients));
        CHECK(std::all_of(coefficients.begin(), coefficients.end(), [&](word x) { return x < q; }));
        check_pair(plan, schedules, coefficients, input);
    }
}

/// (3 X^k - X^l) * a, for k and l near the ends, against shifts with the sign of X^N = -1.
template <class Policy>
void check_shifts(const Policy& policy, int log_n) {
    const tensafe::ntt::plan<Policy> plan(policy, log_n);
    const word q = policy.modulus().value();
    const std::size_t degree = plan.degree();
    const std::size_t k = degree - 1;
    const std::size_t l = degree / 3;
    const words a = random_residues(degree, q, 4);
    words expected(degree);
    for (std::size_t i = 0; i < degree; ++i) {
        const word three = tensafe::arith::multiply_mod(3, a[i], q);
        const word first = i + k < degree ? three : (q - three) % q;
        const word second = i + l < degree ? (q - a[i]) % q : a[i];
        expected[(i + k) % degree] = (expected[(i + k) % degree] + first) % q;
        expected[(i + l) % degree] = (expected[(i + l) % degree] + second) % q;
    }
    words sparse(degree);
    sparse[k] = 3;
    sparse[l] = q - 1;
    words product = a;
    tensafe::ntt::forward(plan, std::span(product));
    tensafe::ntt::forward(plan, std::span(sparse));
    for (std::size_t i = 0; i < degree; ++i) {
        product[i] = tensafe::arith::multiply_mod(product[i], sparse[i], q);
    }
    tensafe::ntt::inverse(plan, std::span(product));
    CAPTURE(q);
    CAPTURE(log_n);
    CHECK(product == expected);
}

}  // namespace transform_checks
