#pragma once

#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/ntt/transform.hpp>
#include <tensafe/rns/basis.hpp>

#include "../device_data.hpp"

// What the transforms by kernels must do with every schedule, wherever they run.

namespace tests::transform_checks {
using words = std::vector<word>;

template <class Basis>
std::size_t at(std::size_t polynomial, int limb, std::size_t k) {
    return ((polynomial * static_cast<std::size_t>(Basis::limbs) + static_cast<std::size_t>(limb))
            << Basis::log_n) +
           k;
}

/// Random residues first; then the extremes: all q - 1; zeros beside q - 1 in blocks of neighbours, which
/// drive the sums of the inverse furthest; zeros.
template <class Basis>
words some_stack(std::size_t polynomials, word seed) {
    random_numbers random(seed);
    words stack(polynomials * static_cast<std::size_t>(Basis::limbs) * Basis::degree);
    for (std::size_t p = 0; p < polynomials; ++p) {
        rns::for_each_limb<Basis>([&]<int I>() {
            constexpr word q = Basis::template prime<I>;
            for (std::size_t k = 0; k < Basis::degree; ++k) {
                word& value = stack[at<Basis>(p, I, k)];
                switch (p % 4) {
                    case 0:
                        value = random() % q;
                        break;
                    case 1:
                        value = q - 1;
                        break;
                    case 2:
                        value = (k >> (k / 64 % 4)) % 2 == 0 ? 0 : q - 1;
                        break;
                    default:
                        value = 0;
                }
            }
        });
    }
    return stack;
}

/// By the host's transform.
template <class Basis>
words transformed(words stack, bool forward) {
    const std::size_t polynomials = stack.size() / at<Basis>(1, 0, 0);
    for (std::size_t p = 0; p < polynomials; ++p) {
        rns::for_each_limb<Basis>([&]<int I>() {
            const auto& plan = rns::shared_plan<Basis::log_n, Basis::template prime<I>>();
            const std::span<word> limb(stack.data() + at<Basis>(p, I, 0), Basis::degree);
            if (forward) {
                ntt::forward(plan, limb);
            } else {
                ntt::inverse(plan, limb);
            }
        });
    }
    return stack;
}

/// The sum of two stacks.
template <class Basis>
struct load_sum {
    const word* a;
    const word* b;

    template <int I>
    TENSAFE_HOST_DEVICE device::word_pair pair(std::size_t polynomial, std::size_t k) const {
        constexpr word q = Basis::template prime<I>;
        const device::word_pair x = device::load_words<Basis>{a}.template pair<I>(polynomial, k);
        const device::word_pair y = device::load_words<Basis>{b}.template pair<I>(polynomial, k);
        return {arith::subtract_if_not_below(x.first + y.first, q),
                arith::subtract_if_not_below(x.second + y.second, q)};
    }
};

/// Adds a number that depends on the polynomial, the limb and the place; last polynomial first.
template <class Basis>
struct store_shifted {
    word* to;
    std::size_t polynomials;

    TENSAFE_HOST_DEVICE static word shift(std::size_t polynomial, int limb, std::size_t k) {
        return 5 * polynomial + 3 * static_cast<word>(limb) + k;
    }
    template <int I>
    TENSAFE_HOST_DEVICE void pair(std::size_t polynomial, std::size_t k, device::word_pair values) const {
        constexpr word q = Basis::template prime<I>;
        device::store_words<Basis>{to}.template pair<I>(
            polynomials - 1 - polynomial, k,
            {arith::subtract_if_not_below(values.first + shift(polynomial, I, k), q),
             arith::subtract_if_not_below(values.second + shift(polynomial, I, k + 1), q)});
    }
};

/// What load_sum and store_shifted make around the host's transform.
template <class Basis>
words expected_with_functors(const words& a, const words& b, bool forward) {
    words sum = a;
    const std::size_t polynomials = a.size() / at<Basis>(1, 0, 0);
    for (std::size_t p = 0; p < polynomials; ++p) {
        rns::for_each_limb<Basis>([&]<int I>() {
            for (std::size_t k = 0; k < Basis::degree; ++k) {
                const std::size_t i = at<Basis>(p, I, k);
                sum[i] = (a[i] + b[i]) % Basis::template prime<I>;
            }
        });
    }
    const words values = transformed<Basis>(sum, forward);
    words shifted(values.size());
    for (std::size_t p = 0; p < polynomials; ++p) {
        rns::for_each_limb<Basis>([&]<int I>() {
            for (std::size_t k = 0; k < Basis::degree; ++k) {
                shifted[at<Basis>(polynomials - 1 - p, I, k)] =
                    (values[at<Basis>(p, I, k)] + store_shifted<Basis>::shift(p, I, k)) %
                    Basis::template prime<I>;
            }
        });
    }
    return shifted;
}

/// Both directions: in place; and from one stack to another through functors and a stack of unfinished
/// entries.
template <class Basis, class Schedule, class Where>
void check_schedule(const Where& where, std::size_t polynomials) {
    const device::plan<Basis, typename Where::space> plan(where);
    const words a = some_stack<Basis>(polynomials, 1);
    const words b = some_stack<Basis>(polynomials, 2);
    constexpr bool needs_work = !std::is_same_v<Schedule, device::schedule::single_block>;

    auto stack = tests::to_device(where, a);
    const device::load_words<Basis> load{stack.data()};
    const device::store_words<Basis> store{stack.data()};
    device::forward<Basis, Schedule>(where, plan, load, store, polynomials, stack.data());
    CHECK(tests::to_host(where, stack) == transformed<Basis>(a, true));
    where.upload(std::span<const word>(a), stack.data());
    device::inverse<Basis, Schedule>(where, plan, load, store, polynomials, stack.data());
    CHECK(tests::to_host(where, stack) == transformed<Basis>(a, false));
    device::forward<Basis, Schedule>(where, plan, load, store, polynomials, stack.data());
    CHECK(tests::to_host(where, stack) == a);

    const auto device_a = tests::to_device(where, a);
    const auto device_b = tests::to_device(where, b);
    auto results = tests::poisoned<word>(where, a.size());
    auto work = tests::poisoned<word>(where, needs_work ? a.size() : 1);
    word* const unfinished = needs_work ? work.data() : nullptr;
    const load_sum<Basis> sum{device_a.data(), device_b.data()};
    const store_shifted<Basis> shifted{results.data(), polynomials};
    device::forward<Basis, Schedule>(where, plan, sum, shifted, polynomials, unfinished);
    CHECK(tests::to_host(where, results) == expected_with_functors<Basis>(a, b, true));
    device::inverse<Basis, Schedule>(where, plan, sum, shifted, polynomials, unfinished);
    CHECK(tests::to_host(where, results) == expected_with_functors<Basis>(a, b, false));
}

/// `where` adds the launches to `count`.
template <class Basis, class Schedule, class Where>
void check_launches(const Where& where, const std::size_t& count, std::size_t forward, std::size_t inverse) {
    const device::plan<Basis, typename Where::space> plan(where);
    auto stack = tests::to_device(where, some_stack<Basis>(1, 3));
    const device::load_words<Basis> load{stack.data()};
    const device::store_words<Basis> store{stack.data()};
    const std::size_t before = count;
    device::forward<Basis, Schedule>(where, plan, load, store, 1, stack.data());
    CHECK(count - before == forward);
    device::inverse<Basis, Schedule>(where, plan, load, store, 1, stack.data());
    CHECK(count - before == forward + inverse);
    device::forward<Basis, Schedule>(where, plan, load, store, 0, stack.data());
    CHECK(count - before == forward + inverse);
}

template <class Basis, class Schedule>
void check_in_every_order(std::size_t polynomials) {
    in_every_order([&](const auto& where) { check_schedule<Basis, Schedule>(where, polynomials); });
}

}  // namespace tests::transform_checks
