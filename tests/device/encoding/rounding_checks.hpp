#pragma once

#include <tensafe/device/encoding/reals.hpp>
#include <tensafe/device/encoding/slot_transform.hpp>
#include <tensafe/encoding/slots.hpp>

#include "../device_data.hpp"

namespace tests {

/// Modulo one prime.
template <word Q, int Bits>
struct round_number {
    const double* reals;
    word* out;

    TENSAFE_HOST_DEVICE void operator()(std::uint32_t k) const {
        out[k] = device::residue_of_real<Q, Bits>(reals[k]);
    }
};

/// Whatever the number, the word is a residue: one beyond Q would drown the error that hides the message.
template <word Q, int Bits, class Where>
void check_any_double(const Where& where) {
    std::vector<double> reals = {0x1p89, -0x1p89, 0x1p90, 0x1p102, 0x1p112, -0x1p112, 1e22,    1e24,
                                 1e32,   1e38,    1e300,  -1e300,  0x1p52,  0x1p63,   0x1p1023};
    // NaNs of both signs with several payloads, and both infinities.
    for (const std::uint64_t bits :
         {0x7ff0000000000000U, 0xfff0000000000000U, 0x7ff8000000000000U, 0xfff8000000000000U,
          0x7fffffffe0000000U, 0xffffffffffffffffU, 0x7fffffffffffffffU, 0x7ff0000000000001U}) {
        reals.push_back(__builtin_bit_cast(double, bits));
    }
    random_numbers generator(1);
    while (reals.size() < 4096) {
        reals.push_back(__builtin_bit_cast(double, generator()));
    }
    const auto there = to_device(where, reals);
    auto out = poisoned<word>(where, reals.size());
    for_each_number(where, reals.size(), round_number<Q, Bits>{there.data(), out.data()});
    const auto words = to_host(where, out);
    CHECK(std::all_of(words.begin(), words.end(), [](word w) { return w < Q; }));
}

/// What a transform's first step does with its load functor: neighbours of all limbs, to words in the order
/// of a stack.
template <class Basis, class Load>
struct store_kernel {
    static constexpr int threads = 128;
    using shared_type = device::no_shared;
    static constexpr auto blocks = static_cast<std::uint32_t>(Basis::degree / (2 * threads));

    Load load;
    word* out;

    TENSAFE_HOST_DEVICE void operator()(auto& ctx) const {
        device::with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            ctx.last([&](int t) {
                const std::size_t polynomial = ctx.block().x / blocks;
                const std::size_t k = 2 * (ctx.block().x % blocks * threads + static_cast<std::uint32_t>(t));
                const device::word_pair pair = load.template pair<I>(polynomial, k);
                word* const to = out + (polynomial * Basis::limbs + std::size_t{I}) * Basis::degree + k;
                device::store_pair(to, pair);
            });
        });
    }
};

template <class Basis, class Where, class Load>
std::vector<word> loaded(const Where& where, const Load& load, std::size_t polynomials) {
    using kernel = store_kernel<Basis, Load>;
    auto out = poisoned<word>(where, polynomials * Basis::limbs * Basis::degree);
    where.launch(kernel{load, out.data()}, {static_cast<std::uint32_t>(polynomials) * kernel::blocks,
                                            static_cast<std::uint32_t>(Basis::limbs)});
    return to_host(where, out);
}

/// Halves and their neighbours, both zeros, powers of two and their neighbours, and random numbers of every
/// size below 2^bits.
inline std::vector<double> reals_below(int bits) {
    std::vector<double> magnitudes{0.0, 0x1p-1074, 0x1p-1022, 1e-30, 0.25};
    for (int e = -2; e <= bits; ++e) {
        for (const double x : {std::ldexp(1.0, e), std::ldexp(1.0, e) + 0.5, std::ldexp(1.0, e) - 0.5,
                               std::ldexp(3.0, e - 2), std::ldexp(3.0, e - 2) + 0.5}) {
            magnitudes.insert(magnitudes.end(), {x, std::nextafter(x, 0.0), std::nextafter(x, HUGE_VAL)});
        }
    }
    random_numbers generator(static_cast<std::uint64_t>(bits));
    for (int i = 0; i < 4000; ++i) {
        const double fraction = 1 + static_cast<double>(generator() >> 11) * 0x1p-53;
        double x = std::ldexp(fraction, static_cast<int>(generator() % static_cast<word>(bits + 2)) - 2);
        if (i % 4 == 0) {
            x = std::floor(x) + 0.5;
        }
        magnitudes.push_back(x);
    }
    std::erase_if(magnitudes, [&](double x) { return x >= std::ldexp(1.0, bits); });
    std::vector<double> reals;
    for (const double x : magnitudes) {
        reals.push_back(x);
        reals.push_back(-x);
    }
    return reals;
}

template <word Q, int Bits, class Where>
void check_residues(const Where& where) {
    CAPTURE(Q);
    CAPTURE(Bits);
    const auto reals = reals_below(Bits);
    const auto count = static_cast<std::uint32_t>(reals.size());
    const auto device_reals = to_device(where, reals);
    auto out = poisoned<word>(where, count);
    for_each_number(where, count, round_number<Q, Bits>{device_reals.data(), out.data()});
    std::vector<word> expected(count);
    rns::limb::round_reals(rns::fixed_arithmetic<Q>, expected, reals);
    CHECK(to_host(where, out) == expected);
}

template <word Q, class Where>
void check_residues(const Where& where) {
    check_residues<Q, 112>(where);
    check_residues<Q, 102>(where);
    check_residues<Q, 89>(where);
    check_residues<Q, 53>(where);
    check_residues<Q, 51>(where);
    check_residues<Q, 40>(where);
    check_residues<Q, 3>(where);
}

/// Rows of floats that become several polynomials each, the last one shorter, with errors: what
/// encode_coefficients and add_small give.
template <class Basis, class Where>
void check_load_of_rows(const Where& where) {
    constexpr std::size_t rows = 2;
    constexpr std::uint32_t inputs = 3;
    constexpr std::size_t block = Basis::degree / 2 + 3;
    constexpr std::size_t count = 2 * block + 5;
    constexpr std::size_t stride = count + 2;
    random_numbers generator(5);
    const std::vector<float> values = generator.normals<float>(rows * stride);
    const std::vector<double> scales{0x1p30 / 3, 12345.678};
    const std::vector<std::int8_t> errors = generator.many(rows * inputs * Basis::degree, [&] {
        return static_cast<std::int8_t>(static_cast<int>(generator() % 43) - 21);
    });
    const auto device_values = to_device(where, values);
    const auto device_scales = to_device(where, scales);
    const auto device_errors = to_device(where, errors);
    const device::load_rounded<Basis, float> with_errors{
        device_values.data(), stride, count, device_scales.data(), device_errors.data(), inputs, block};
    auto without_errors = with_errors;
    without_errors.errors = nullptr;
    const auto got = loaded<Basis>(where, with_errors, rows * inputs);
    const auto got_without = loaded<Basis>(where, without_errors, rows * inputs);
    for (std::size_t p = 0; p < rows * inputs; ++p) {
        const std::size_t first = p % inputs * block;
        const std::size_t size = std::min(block, count - first);
        std::vector<double> reals(size);
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(p / inputs * stride + first), size,
                    reals.begin());
        rns::poly<Basis, rns::coefficient_form> expected;
        encoding::encode_coefficients(reals, scales[p / inputs], expected);
        rns::for_each_limb<Basis>([&]<int I>() {
            const std::span<word> limb = expected.template limb<I>();
            const std::size_t at = (p * Basis::limbs + std::size_t{I}) * Basis::degree;
            CHECK(
                std::equal(limb.begin(), limb.end(), got_without.begin() + static_cast<std::ptrdiff_t>(at)));
            rns::limb::add_small(
                rns::modulus_of<Basis::template prime<I>>(Basis::template prime<I>), limb,
                std::span<const std::int8_t>(errors).subspan(p * Basis::degree, Basis::degree));
            CHECK(std::equal(limb.begin(), limb.end(), got.begin() + static_cast<std::ptrdiff_t>(at)));
        });
    }
}

/// Replicated states, transformed and rounded: what slot_geometry::replicate and encode_slots give.
template <class Basis, class Real, class Where>
void check_replicated(const Where& where, std::size_t d, int log_stride) {
    constexpr std::size_t states = 2;
    constexpr std::size_t slots = Basis::degree / 2;
    const std::size_t entries = slots >> log_stride;
    const std::size_t inputs = (d + entries - 1) / entries;
    std::vector<Real> values = random_numbers(d).normals<Real>(states * d);
    values[d / 2] = Real(-0.0);
    const std::vector<double> scales{0x1p40, 0x1p33 / 7};
    const auto device_values = to_device(where, values);
    const auto device_scales = to_device(where, scales);
    const device::slot_tables<typename Where::space> tables(where, Basis::log_n);
    const std::size_t polynomials = states * inputs;
    auto coefficients = poisoned<double>(where, polynomials * Basis::degree);
    device::to_coefficients<Basis::log_n>(
        where, tables,
        device::load_replicated<Real>{device_values.data(), d, device_scales.data(),
                                      static_cast<std::uint32_t>(inputs), static_cast<std::uint32_t>(entries),
                                      log_stride},
        coefficients.data(), polynomials);
    const auto got = loaded<Basis>(
        where,
        device::load_rounded<Basis>{coefficients.data(), Basis::degree, Basis::degree, nullptr, nullptr},
        polynomials);
    std::size_t at = 0;
    for (std::size_t p = 0; p < polynomials; ++p) {
        std::vector<std::complex<double>> replicated(slots);
        for (std::size_t j = 0; j < slots; ++j) {
            const std::size_t entry = p % inputs * entries + j / (std::size_t{1} << log_stride);
            replicated[j] = entry < d ? static_cast<double>(values[p / inputs * d + entry]) : 0.0;
        }
        rns::poly<Basis, rns::coefficient_form> expected;
        encoding::encode_slots(std::span<const std::complex<double>>(replicated), scales[p / inputs],
                               expected);
        CHECK(std::equal(expected.words().begin(), expected.words().end(),
                         got.begin() + static_cast<std::ptrdiff_t>(at)));
        at += expected.words().size();
    }
}

}  // namespace tests
