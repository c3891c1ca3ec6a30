#pragma once

#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/device/ckks/encrypt.hpp>
#include <tensafe/device/encoding/reals.hpp>

#include "ckks_data.hpp"

namespace tests {

inline constexpr double message_scale = 0x1.8p30;

struct zero_message {
    template <int I>
    TENSAFE_HD_INLINE device::word_pair pair(std::size_t, std::size_t) const {
        return {0, 0};
    }
};

/// Messages of N real coefficients, each message with its scale.
template <class P, class Basis>
device::load_rounded<Basis> reals_of(const double* reals, const double* scales) {
    return {reals, P::degree, P::degree, scales, nullptr};
}

/// Four messages under two keys, from real values, two of them with one seed for c1, against
/// ckks::encrypt_c0.
template <class P, int Level, class Where>
void check_secret_key_encryption(const Where& where) {
    using basis = typename P::template basis_at<Level>;
    constexpr std::size_t messages = 4;
    constexpr auto limbs = static_cast<std::uint32_t>(basis::limbs);
    auto source = repeating_generator(1);
    const ckks::secret_key<P> first(source);
    const ckks::secret_key<P> second(source);
    const std::array<const ckks::secret_key<P>*, 2> pointers{&first, &second};
    const device::secret_keys<P, typename Where::space> keys(where, std::span(pointers));
    const auto reals = random_reals<P>(messages, 2);
    const std::vector<double> scales{message_scale, 0x1p20, 12345.678, 0x1p35};
    const auto error_seeds = seeds_of(3, messages);
    const auto c1_seeds = seeds_of(4, 2);

    const auto device_reals = to_device(where, reals);
    const auto device_scales = to_device(where, scales);
    const auto device_errors = to_device(where, error_seeds);
    const auto device_c1 = to_device(where, c1_seeds);
    const device::plan<basis, typename Where::space> plan(where);
    device::encryption_workspace<P, typename Where::space> work(messages + 1);
    auto c0 = poisoned<word>(where, messages * device::words_of_poly<basis>);
    auto c1 = poisoned<word>(where, messages * device::words_of_poly<basis>);
    device::encrypt<P, Level>(where, plan, keys,
                              reals_of<P, basis>(device_reals.data(), device_scales.data()), messages,
                              {device_errors.data(), device_c1.data(), 2}, c0.data(), c1.data(), work);
    const auto words_c0 = to_host<word>(where, c0);
    const auto words_c1 = to_host<word>(where, c1);

    auto errors = repeating_generator(3);
    ckks::encryption_workspace<P> host_work;
    for (std::size_t m = 0; m < messages; ++m) {
        CAPTURE(m);
        const auto first_lane = static_cast<std::uint32_t>(m % 2) * limbs;
        const auto expected = ckks::encrypt_c0(*pointers[m / 2], encoded<P, Level>(reals, m, scales[m]),
                                               errors, c1_seeds[m / 2], first_lane, host_work);
        CHECK(equal_words<basis>(words_c0, m, expected.words()));
        rns::poly<basis, rns::evaluation_form> uniform;
        ckks::expand_uniform(c1_seeds[m / 2], random::stream_domain::uplink, uniform, first_lane);
        CHECK(equal_words<basis>(words_c1, m, uniform.words()));
    }
    work.clear(where);
    where.wait();
}

/// Three messages with seeds of their own, given as residues, against ckks::encrypt and expand.
template <class P, int Level, class Where>
void check_seeded_encryption(const Where& where) {
    using basis = typename P::template basis_at<Level>;
    constexpr std::size_t messages = 3;
    auto source = repeating_generator(5);
    const ckks::secret_key<P> key(source);
    const device::secret_keys<P, typename Where::space> device_key(where, key);
    const auto reals = random_reals<P>(messages, 6);
    const auto seeds = seeds_of(7, 2 * messages);  // of c1 and the error in turn
    std::vector<random::seed> error_seeds;
    std::vector<random::seed> c1_seeds;
    std::vector<word> residues;
    for (std::size_t m = 0; m < messages; ++m) {
        c1_seeds.push_back(seeds[2 * m]);
        error_seeds.push_back(seeds[2 * m + 1]);
        const auto message = encoded<P, Level>(reals, m, message_scale);
        residues.insert(residues.end(), message.words().begin(), message.words().end());
    }
    const auto device_residues = to_device(where, residues);
    const auto device_errors = to_device(where, error_seeds);
    const auto device_c1 = to_device(where, c1_seeds);
    const device::plan<basis, typename Where::space> plan(where);
    device::encryption_workspace<P, typename Where::space> work(messages);
    auto c = poisoned<word>(where, 2 * messages * device::words_of_poly<basis>);
    device::encrypt<P, Level>(where, plan, device_key, device::load_words<basis>{device_residues.data()},
                              messages, {device_errors.data(), device_c1.data()}, c.data(),
                              c.data() + messages * device::words_of_poly<basis>, work);
    const auto words = to_host<word>(where, c);
    auto generator = repeating_generator(7);
    for (std::size_t m = 0; m < messages; ++m) {
        CAPTURE(m);
        ckks::plaintext<P, rns::coefficient_form, Level> message;
        message.value = encoded<P, Level>(reals, m, message_scale);
        const auto expected = ckks::expand(ckks::encrypt(key, message, generator));
        CHECK(equal_words<basis>(words, m, expected.c0.words()));
        CHECK(equal_words<basis>(words, messages + m, expected.c1.words()));
    }
}

/// Three messages against ckks::encrypt with a public key; then zeros.
template <class P, int Level, class Where>
void check_public_key_encryption(const Where& where) {
    using basis = typename P::template basis_at<Level>;
    constexpr std::size_t messages = 3;
    auto source = repeating_generator(8);
    const ckks::secret_key<P> secret(source);
    const ckks::public_key<P> key(secret, source);
    const device::public_key<P, typename Where::space> device_key(where, key);
    const auto reals = random_reals<P>(messages, 9);
    const std::vector<double> scales(messages, message_scale);
    const auto device_reals = to_device(where, reals);
    const auto device_scales = to_device(where, scales);
    const auto device_seeds = to_device(where, seeds_of(10, messages));
    const device::plan<basis, typename Where::space> plan(where);
    device::public_encryption_workspace<P, typename Where::space, Level> work(messages);
    auto c = poisoned<word>(where, 2 * messages * device::words_of_poly<basis>);
    const auto check = [&](auto message_of) {
        const auto words = to_host<word>(where, c);
        auto generator = repeating_generator(10);
        for (std::size_t m = 0; m < messages; ++m) {
            CAPTURE(m);
            const auto expected = ckks::encrypt(key, message_of(m), generator);
            CHECK(equal_words<basis>(words, m, expected.c0.words()));
            CHECK(equal_words<basis>(words, messages + m, expected.c1.words()));
        }
    };
    device::encrypt<P, Level>(where, plan, device_key,
                              reals_of<P, basis>(device_reals.data(), device_scales.data()), messages,
                              device_seeds.data(), c.data(), work);
    check([&](std::size_t m) {
        ckks::plaintext<P, rns::coefficient_form, Level> message;
        message.value = encoded<P, Level>(reals, m, message_scale);
        return message;
    });
    device::encrypt<P, Level>(where, plan, device_key, zero_message{}, messages, device_seeds.data(),
                              c.data(), work);
    check([](std::size_t) { return ckks::plaintext<P, rns::coefficient_form, Level>{}; });
    work.clear(where);
    where.wait();
}

/// Counts that do not fit are refused before anything is written.
template <class Where>
void check_encryption_shapes(const Where& where) {
    using P = ckks::minimal_n2048;
    auto source = repeating_generator(11);
    const ckks::secret_key<P> first(source);
    const ckks::secret_key<P> second(source);
    const std::array<const ckks::secret_key<P>*, 2> pointers{&first, &second};
    const device::secret_keys<P, typename Where::space> keys(where, std::span(pointers));
    const device::plan<P::basis, typename Where::space> plan(where);
    device::encryption_workspace<P, typename Where::space> work(4);
    const auto encrypt = [&](std::size_t messages, std::uint32_t of_seed) {
        device::encrypt<P>(where, plan, keys, zero_message{}, messages, {nullptr, nullptr, of_seed}, nullptr,
                           nullptr, work);
    };
    CHECK_THROWS_WITH_AS(encrypt(6, 1), "device::encrypt: got 6 messages, expected at most the workspace's 4",
                         shape_error);
    CHECK_THROWS_WITH_AS(encrypt(3, 1),
                         "device::secret_keys: got 3 messages for 2 keys, expected as many for each",
                         shape_error);
    CHECK_THROWS_AS(encrypt(4, 3), shape_error);
    CHECK_THROWS_AS(encrypt(4, 0), shape_error);
    CHECK_NOTHROW(encrypt(0, 1));
    using no_keys = device::secret_keys<P, typename Where::space>;
    CHECK_THROWS_AS(no_keys(where, std::span<const ckks::secret_key<P>* const>()), parameter_error);
}

}  // namespace tests
