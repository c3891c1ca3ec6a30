#pragma once

#include <tensafe/ckks/keys.hpp>
#include <tensafe/device/lora/decrypt.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>

#include "reply_data.hpp"

namespace tests::reply_checks {

/// As lora::toeplitz_row describes it: entry N + j - p meets coefficient j in coefficient p of the product.
inline void append_window(const std::vector<std::int8_t>& s, std::vector<std::int8_t>& windows) {
    const std::size_t n = s.size();
    const std::size_t first = windows.size();
    windows.resize(first + 2 * n);
    for (std::size_t i = 0; i < n; ++i) {
        windows[first + n - i] = s[i];
        if (i > 0) {
            windows[first + 2 * n - i] = static_cast<std::int8_t>(-s[i]);
        }
    }
}

inline std::vector<std::uint8_t> random_bytes(random_numbers& random, std::size_t count, int bits,
                                              bool extreme) {
    std::vector<std::uint32_t> values(count);
    for (std::uint32_t& x : values) {
        x = extreme ? ~std::uint32_t{0} : static_cast<std::uint32_t>(random());
    }
    std::vector<std::uint8_t> bytes(memory::packed_bytes(count, bits));
    memory::pack_bits(std::span<const std::uint32_t>(values), bits, bytes);
    return bytes;
}

/// Random replies for the keys of two clients, opened on the host and by blocks.
template <class P, class Where>
void check_replies(const Where& where, int subring_log_n, std::vector<device::output_place> widths,
                   bool extreme = false) {
    constexpr std::size_t tokens = 3;
    const std::size_t n = std::size_t{1} << subring_log_n;
    std::size_t stride = 0;
    const std::vector<device::output_place> places = place(P::degree, std::move(widths), stride);
    INFO("trace to 2^", subring_log_n);
    random_numbers random(static_cast<std::uint64_t>(subring_log_n) + 5);

    std::vector<ckks::secret_key<P>> keys;
    std::vector<std::int8_t> windows;
    for (int client = 0; client < 2; ++client) {
        std::vector<std::int8_t> s(P::degree);
        for (std::int8_t& x : s) {
            x = extreme ? std::int8_t{-1} : static_cast<std::int8_t>(static_cast<int>(random() % 3) - 1);
        }
        keys.emplace_back(std::span<const std::int8_t>(s));
        append_window(s, windows);
    }
    const std::vector<std::uint32_t> client_of{1, 0, 1};

    std::vector<std::uint8_t> replies(tokens * stride, 0xA5);
    std::vector<double> expected;
    lora::decryption_workspace<P> work;
    std::vector<double> values(n);
    for (std::size_t t = 0; t < tokens; ++t) {
        for (const device::output_place& o : places) {
            const auto bits = static_cast<int>(o.bits);
            const output bytes{random_bytes(random, o.wanted, bits, extreme),
                               random_bytes(random, P::degree, bits, extreme)};
            const auto reply = replies.begin() + static_cast<std::ptrdiff_t>(t * stride);
            std::copy(bytes.c0.begin(), bytes.c0.end(), reply + static_cast<std::ptrdiff_t>(o.c0_offset));
            std::copy(bytes.c1.begin(), bytes.c1.end(), reply + static_cast<std::ptrdiff_t>(o.c1_offset));
            lora::decrypt_output<P>(keys[client_of[t]], lora::toeplitz_row(keys[client_of[t]].coefficients()),
                                    bytes, subring_log_n, o.wanted, bits, static_cast<int>(o.noise_bits),
                                    work, values);
            expected.insert(expected.end(), values.begin(), values.end());
        }
    }

    const auto outputs = static_cast<std::uint32_t>(places.size());
    auto device_replies = tests::to_device(where, replies);
    const auto device_places = tests::to_device(where, places);
    const auto device_windows = tests::to_device(where, windows);
    const auto device_clients = tests::to_device(where, client_of);
    auto status = tests::to_device(where, std::vector<std::uint32_t>(tokens));
    auto got = tests::poisoned<double>(where, expected.size());
    device::decrypt_replies<P>(where, device_replies.data(), stride, device_places.data(), outputs, tokens,
                               device_windows.data(), device_clients.data(), subring_log_n, got.data(),
                               status.data());
    CHECK(tests::to_host<double>(where, got) == expected);
    CHECK(tests::to_host<std::uint32_t>(where, status) == std::vector<std::uint32_t>(tokens));

    // An unused bit of the last reply's first output.
    const device::output_place& first = places.front();
    if (first.wanted * first.bits % 8 != 0) {
        replies[2 * stride + first.c0_offset + first.wanted * first.bits / 8] |= 0x80;
        device_replies = tests::to_device(where, replies);
        device::decrypt_replies<P>(where, device_replies.data(), stride, device_places.data(), outputs,
                                   tokens, device_windows.data(), device_clients.data(), subring_log_n,
                                   got.data(), status.data());
        CHECK(tests::to_host<double>(where, got) == expected);
        CHECK(tests::to_host<std::uint32_t>(where, status) == std::vector<std::uint32_t>{0, 0, 1});
    }
}

void check_shapes(const auto& where) {
    check_replies<ckks::private_n4096>(where, 2, {{20, 4, 5, 0, 0}, {13, 2, 0, 0, 0}});
    check_replies<ckks::private_n4096>(where, 2, {{32, 3, 6, 0, 0}}, true);
    check_replies<ckks::minimal_n2048>(where, 5, {{17, 31, 4, 0, 0}, {20, 32, 0, 0, 0}});
    using two_limbs = ckks::parameters<10, ckks::limb_bits<45, 35>, 20, ckks::insecure_for_tests>;
    check_replies<two_limbs>(where, 6, {{27, 61, 26, 0, 0}, {1, 64, 0, 0, 0}});
    check_replies<two_limbs>(where, 0, {{31, 1, 1, 0, 0}});
    check_replies<two_limbs>(where, 4, {{9, 9, 3, 0, 0}}, true);
}

void check_refusals(const auto& where) {
    using P = ckks::minimal_n2048;
    for (const int log_n : {-1, 7}) {
        CHECK_THROWS_AS(
            device::decrypt_replies<P>(where, nullptr, 16, nullptr, 1, 1, nullptr, nullptr, log_n, nullptr),
            parameter_error);
    }
    CHECK_THROWS_AS(
        device::decrypt_replies<P>(where, nullptr, 20, nullptr, 1, 1, nullptr, nullptr, 2, nullptr),
        shape_error);
}

}  // namespace tests::reply_checks
