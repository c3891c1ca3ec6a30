#pragma once

#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/trace.hpp>
#include <tensafe/device/ckks/decrypt.hpp>

#include "ckks_data.hpp"

namespace tests {

/// Ciphertexts of nothing in particular: uniform, with 0 and q - 1 among the words.
template <class P, int Level>
std::vector<ckks::ciphertext<P, Level>> random_ciphertexts(std::size_t count, std::uint64_t seed) {
    random_numbers generator(seed);
    std::vector<ckks::ciphertext<P, Level>> result(count);
    for (auto& c : result) {
        c.c0 = generator.poly<decltype(c.c0)>();
        c.c1 = generator.poly<decltype(c.c1)>();
    }
    return result;
}

template <class Where, class P, int Level>
device::ciphertexts<P, typename Where::space, Level> to_device(
    const Where& where, const std::vector<ckks::ciphertext<P, Level>>& ciphertexts) {
    device::ciphertexts<P, typename Where::space, Level> result(ciphertexts.size(),
                                                                ciphertexts.front().scale);
    for (std::size_t i = 0; i < ciphertexts.size(); ++i) {
        device::upload(where, ciphertexts[i], result, i);
    }
    where.wait();
    return result;
}

/// Two keys and six ciphertexts, three for each.
template <class P, int Level, class Where>
struct decryption_case {
    static constexpr std::size_t count = 6;

    explicit decryption_case(const Where& w)
        : where(w), source(repeating_generator(1)), first(source), second(source) {}

    const ckks::secret_key<P>& key_of(std::size_t i) const { return i < count / 2 ? first : second; }

    const Where& where;
    random::generator source;
    ckks::secret_key<P> first;
    ckks::secret_key<P> second;
    std::array<const ckks::secret_key<P>*, 2> pointers{&first, &second};
    device::secret_keys<P, typename Where::space> keys{where, std::span(pointers)};
    std::vector<ckks::ciphertext<P, Level>> ciphertexts = random_ciphertexts<P, Level>(count, 2);
    device::ciphertexts<P, typename Where::space, Level> on_device = to_device(where, ciphertexts);
};

/// c0 + c1*s in both forms, modulo the whole chain of the ciphertexts and modulo its first primes.
template <class P, int Level, int Limbs, class Where>
void check_decryption(const Where& where) {
    using basis = rns::prefix<typename P::basis, Limbs>;
    const decryption_case<P, Level, Where> data(where);
    const auto& device = data.on_device;
    auto values = poisoned<word>(where, data.count * device::words_of_poly<basis>);
    auto coefficients = poisoned<word>(where, data.count * device::words_of_poly<basis>);
    const device::plan<basis, typename Where::space> plan(where);
    device::decrypt<Limbs>(where, data.keys, device.c0(), device.c1(), data.count, values.data());
    device::decrypt_to_coefficients<Limbs>(where, plan, data.keys, device.c0(), device.c1(), data.count,
                                           coefficients.data());
    const auto got_values = to_host<word>(where, values);
    const auto got_coefficients = to_host<word>(where, coefficients);
    for (std::size_t i = 0; i < data.count; ++i) {
        CAPTURE(i);
        auto expected = rns::level_reduce<Limbs>(ckks::decrypt(data.key_of(i), data.ciphertexts[i]).value);
        CHECK(equal_words<basis>(got_values, i, expected.words()));
        CHECK(equal_words<basis>(got_coefficients, i, rns::inverse(std::move(expected)).words()));
    }
}

/// Folds to the degrees 2^first to 2^last: one sum for many threads, many sums for a block, single terms.
template <class P, int Level, int Limbs, class Where>
void check_traces(const Where& where, int first = 1, int last = P::log_n) {
    const decryption_case<P, Level, Where> data(where);
    const auto& device = data.on_device;
    for (int log_n = first; log_n <= last; ++log_n) {
        CAPTURE(log_n);
        const std::size_t n = std::size_t{1} << log_n;
        auto sums = poisoned<word>(where, data.count * Limbs * n);
        device::decrypt_trace<Limbs>(where, data.keys, device.c0(), device.c1(), data.count, log_n,
                                     sums.data());
        const auto got = to_host<word>(where, sums);
        for (std::size_t i = 0; i < data.count; ++i) {
            CAPTURE(i);
            const auto expected = ckks::decrypt_trace<Limbs>(data.key_of(i), data.ciphertexts[i], log_n);
            for (std::size_t limb = 0; limb < Limbs; ++limb) {
                CAPTURE(limb);
                CHECK(std::equal(expected.limbs[limb].begin(), expected.limbs[limb].end(),
                                 got.begin() + static_cast<std::ptrdiff_t>((i * Limbs + limb) * n)));
            }
        }
    }
    for (const int log_n : {-1, 0, P::log_n + 1, 64}) {
        CAPTURE(log_n);
        const std::string message =
            "log_n: got " + std::to_string(log_n) + ", expected 1 to " + std::to_string(P::log_n);
        const auto trace = [&] {
            device::decrypt_trace<Limbs>(where, data.keys, device.c0(), device.c1(), data.count, log_n,
                                         static_cast<word*>(nullptr));
        };
        CHECK_THROWS_WITH_AS(trace(), doctest::Contains(message.c_str()), parameter_error);
    }
}

/// The server's operations on stacks of ciphertexts against those on single ones.
template <class P, int Level, class Where>
void check_ciphertext_operations(const Where& where) {
    using form = rns::evaluation_form;
    constexpr std::size_t count = 3;
    const auto a = random_ciphertexts<P, Level>(count, 3);
    const auto b = random_ciphertexts<P, Level>(count, 4);
    const auto factors = random_ciphertexts<P, Level>(1, 5);  // whose halves are plaintexts
    const auto device_b = to_device(where, b);
    const auto check = [&](const auto& got, auto on_host) {
        REQUIRE(got.count() == count);
        for (std::size_t i = 0; i < count; ++i) {
            CAPTURE(i);
            const auto expected = on_host(i);
            const auto one = device::download(where, got, i);
            CHECK(one.c0 == expected.c0);
            CHECK(one.c1 == expected.c1);
            CHECK(one.scale == expected.scale);
        }
    };
    const auto check_in_place = [&](auto on_device, auto on_host) {
        auto changed = to_device(where, a);
        on_device(changed);
        check(changed, [&](std::size_t i) {
            auto c = a[i];
            on_host(c, i);
            return c;
        });
    };
    check_in_place([&](auto& c) { device::add(where, c, device_b); },
                   [&](auto& c, std::size_t i) { ckks::add(c, b[i]); });
    check_in_place([&](auto& c) { device::subtract(where, c, device_b); },
                   [&](auto& c, std::size_t i) { ckks::subtract(c, b[i]); });

    const auto plaintext_of = [&](const auto& poly) {
        ckks::plaintext<P, form, Level> p;
        std::copy(poly.words().begin(), poly.words().end(), p.value.template limb<0>().data());
        p.scale = 0x1p35;
        return p;
    };
    const auto check_product = [&](const std::vector<ckks::plaintext<P, form, Level>>& plain) {
        device::plaintexts<P, form, typename Where::space, Level> device_plain{
            device::secret_poly_stack<typename P::template basis_at<Level>, form, typename Where::space>(
                plain.size()),
            0x1p35};
        for (std::size_t i = 0; i < plain.size(); ++i) {
            device::upload(where, plain[i].value, device_plain.values, i);
        }
        check_in_place([&](auto& c) { device::multiply_plain(where, c, device_plain); },
                       [&](auto& c, std::size_t i) { ckks::multiply_plain(c, plain[i % plain.size()]); });
    };
    check_product({plaintext_of(factors[0].c0)});
    check_product({plaintext_of(factors[0].c0), plaintext_of(factors[0].c1), plaintext_of(b[0].c0)});

    const device::rescale_plans<typename P::template basis_at<Level>, typename Where::space> plans(where);
    check(device::rescale(where, plans, device_b),
          [&](std::size_t i) { return ckks::rescale(b[i], 0x1p-5); });
    check(device::level_reduce<0>(where, device_b),
          [&](std::size_t i) { return ckks::level_reduce<0>(b[i]); });

    auto sum = to_device(where, a);
    auto other_scale = to_device(where, b);
    other_scale.scale *= 2;
    CHECK_THROWS_AS(device::add(where, sum, other_scale), parameter_error);
    const device::ciphertexts<P, typename Where::space, Level> fewer(1, a[0].scale);
    CHECK_THROWS_AS(device::subtract(where, sum, fewer), shape_error);
    CHECK_THROWS_AS(device::download(where, sum, count), shape_error);
}

}  // namespace tests
