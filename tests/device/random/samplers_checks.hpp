#pragma once

// What device::draw must do wherever it runs: the host's samplers say which values are right.

#include <tensafe/ckks/sanitize/flooding.hpp>
#include <tensafe/device/random/samplers.hpp>
#include <tensafe/random/samplers.hpp>

#include "../../random/stream_reference.hpp"
#include "../device_data.hpp"

namespace tests {

using arith::uint128;
using random::seed;
using random::stream_domain;

inline std::vector<seed> some_seeds(std::size_t count) {
    std::vector<seed> seeds(count);
    for (std::size_t i = 0; i < count; ++i) {
        seeds[i] = testing::counting_seed(static_cast<std::uint8_t>(37 * i));
    }
    return seeds;
}

inline device::draw_group of_kind(device::distribution kind, stream_domain domain, std::uint32_t polynomials,
                                  std::uint32_t size) {
    device::draw_group draws;
    draws.kind = kind;
    draws.domain = domain;
    draws.polynomials = polynomials;
    draws.size = size;
    draws.terms = 4;
    draws.bits = 100;
    return draws;
}

inline device::draw_group uniform_below(std::vector<word> moduli, std::uint32_t polynomials,
                                        std::uint32_t size) {
    device::draw_group draws =
        of_kind(device::distribution::uniform, stream_domain::uplink, polynomials, size);
    draws.moduli_count = static_cast<std::uint32_t>(moduli.size());
    std::copy(moduli.begin(), moduli.end(), draws.moduli);
    return draws;
}

inline device::draw_group floods(int terms, int bits, std::uint32_t polynomials, std::uint32_t size) {
    device::draw_group draws = of_kind(device::distribution::flood, stream_domain::flood, polynomials, size);
    draws.terms = terms;
    draws.bits = bits;
    return draws;
}

/// One polynomial of the host's samplers. They draw whole words and groups: of these, the first `size`.
template <class T>
std::vector<T> host_polynomial(const device::draw_group& draws, const seed& key, std::uint32_t lane) {
    std::vector<T> out((draws.size + std::size_t{63}) / 64 * 64);
    if constexpr (std::is_same_v<T, word>) {
        random::sample_uniform(key, draws.domain, lane, draws.moduli[lane % draws.moduli_count], out);
    } else if constexpr (std::is_same_v<T, uint128>) {
        if (draws.terms == 1) {
            ckks::flood<1>{draws.bits}.sample({key, tensafe::random::stream_domain::flood, lane}, 0, out);
        } else {
            ckks::flood<4>{draws.bits}.sample({key, tensafe::random::stream_domain::flood, lane}, 0, out);
        }
    } else if (draws.kind == device::distribution::ternary) {
        random::sample_ternary(key, draws.domain, lane, out);
    } else {
        random::sample_error(key, draws.domain, lane, out);
    }
    out.resize(draws.size);
    return out;
}

/// Groups of draws and their places in a space. Each place has some values more in front and behind, which
/// must stay as they are.
template <class Where, class T>
class drawn_group {
  public:
    /// @param before  values in front: another alignment
    drawn_group(const Where& where, device::draw_group draws, std::size_t before = 0)
        : draws_(draws),
          before_(before),
          keys_(some_seeds(draws.polynomials / draws.lanes + 1)),
          seeds_(to_device(where, bytes_of(keys_))),
          out_(poisoned<T>(where, before + std::size_t{draws.polynomials} * draws.size + behind)) {
        // One byte on: seeds need no alignment.
        draws_.seeds = reinterpret_cast<const seed*>(seeds_.data() + 1);
        draws_.out = out_.data() + before;
    }

    const device::draw_group& draws() const { return draws_; }

    std::vector<T> values(const Where& where) const {
        const std::vector<T> all = to_host(where, out_);
        return {all.begin() + static_cast<std::ptrdiff_t>(before_), all.end() - behind};
    }

    void check(const Where& where) const {
        CAPTURE(static_cast<int>(draws_.kind));
        CAPTURE(draws_.size);
        CAPTURE(draws_.moduli[0]);
        const std::vector<T> all = to_host(where, out_);
        std::vector<T> expected(all.size());
        std::memset(static_cast<void*>(expected.data()), 0xA5, expected.size() * sizeof(T));
        for (std::uint32_t p = 0; p < draws_.polynomials; ++p) {
            const std::vector<T> polynomial =
                host_polynomial<T>(draws_, keys_[p / draws_.lanes], draws_.first_lane + p % draws_.lanes);
            std::copy(polynomial.begin(), polynomial.end(),
                      expected.begin() + static_cast<std::ptrdiff_t>(before_ + std::size_t{p} * draws_.size));
        }
        const auto different = std::mismatch(all.begin(), all.end(), expected.begin()).first - all.begin();
        CAPTURE(different);
        CHECK(static_cast<std::size_t>(different) == all.size());
    }

  private:
    static constexpr std::ptrdiff_t behind = 20;

    static std::vector<std::uint8_t> bytes_of(const std::vector<seed>& seeds) {
        std::vector<std::uint8_t> bytes(1 + 32 * seeds.size());
        std::memcpy(bytes.data() + 1, seeds.data(), 32 * seeds.size());
        return bytes;
    }

    device::draw_group draws_;
    std::size_t before_;
    std::vector<seed> keys_;
    device_buffer<std::uint8_t, Where> seeds_;
    device_buffer<T, Where> out_;
};

void draw(const auto& where, const std::vector<device::draw_group>& groups) {
    device::draw(where, std::span<const device::draw_group>(groups));
    where.wait();
}

/// Draws one group and compares it with the host's.
template <class T, class Where>
void check_group(const Where& where, const device::draw_group& draws, std::size_t before = 0) {
    const drawn_group<Where, T> group(where, draws, before);
    tests::draw(where, {group.draws()});
    group.check(where);
}

template <class T, class Where>
void check_vector(const Where& where, device::draw_group draws, std::uint32_t lane,
                  const std::vector<T>& first, T last, std::uint64_t digest) {
    draws.first_lane = lane;
    const drawn_group<Where, T> group(where, draws);
    tests::draw(where, {group.draws()});
    std::vector<T> values = group.values(where);
    CHECK(digest == testing::digest(values));
    CHECK(last == values.back());
    values.resize(first.size());
    CHECK(first == values);
}

/// The vectors of docs/design/random-streams.md.
template <class Where>
void check_vectors_of_the_page(const Where& where) {
    constexpr std::uint32_t n = 4096;
    const auto uniform = [&](word q, std::uint32_t lane, const std::vector<word>& first, word last,
                             std::uint64_t digest, stream_domain domain = stream_domain::uplink) {
        device::draw_group draws = uniform_below({q}, 1, n);
        draws.domain = domain;
        check_vector(where, draws, lane, first, last, digest);
    };
    uniform((word{1} << 40) - 1572863, 0, {215286878248, 932981524467, 59453700730, 1080417714532},
            427265870878, 0x056fc4bf135ece64);
    uniform((word{1} << 60) - 98303, 1,
            {170747362038606699, 852474899769038267, 831833715577128503, 1022832700170854978},
            11831958394646507, 0x76e6fb7c6a97dc86);
    uniform((word{1} << 39) + 23, 2, {264309167260, 236802767418, 330340355591, 474467630443}, 301132566445,
            0x52598a5910135a1f);
    uniform(12289, 3, {1262, 6374, 8924, 10591}, 3891, 0xeca145a1405e075d, stream_domain::public_key);
    uniform(~word{0} - 58, 4,
            {5889288020324685746U, 7088882865257478177U, 10051960471748029221U, 16863261218850516813U},
            17490436649534306478U, 0x46b6ebe9b63012df, stream_domain::public_key);
    check_vector<std::int8_t>(where, of_kind(device::distribution::error, stream_domain::error, 1, n), 0,
                              {-3, 0, 0, 1, 8, 2, 2, -3, 4, 2, -1, 4, -5, 2, 9, 6}, 3, 0xa4f8047b3349c431U);
    check_vector<std::int8_t>(where, of_kind(device::distribution::ternary, stream_domain::secret_key, 1, n),
                              0, {1, 1, 1, 1, 0, 1, 1, 0, -1, 0, 0, 1, 1, -1, 1, -1}, 0, 0x52abef90ee5723abU);

    const drawn_group<Where, uint128> one(where, floods(1, 70, 1, n));
    device::draw_group lane_1 = floods(4, 100, 1, n);
    lane_1.first_lane = 1;
    const drawn_group<Where, uint128> four(where, lane_1);
    tests::draw(where, {one.draws(), four.draws()});
    const auto words_of = [&](const drawn_group<Where, uint128>& group) {
        std::vector<word> words;
        for (const uint128 value : group.values(where)) {
            words.push_back(arith::low_word(value));
            words.push_back(arith::high_word(value));
        }
        return words;
    };
    const std::vector<word> ones = words_of(one);
    CHECK(ones[0] == 0x3daafb235219a8abU);
    CHECK(ones[1] == 0x3eU);
    CHECK(testing::digest(ones) == 0xa873c682e80da8b0U);
    const std::vector<word> fours = words_of(four);
    CHECK(fours[0] == 0xc4c939ed5d300b54U);
    CHECK(fours[1] == 0xcb800df4fU);
    CHECK(testing::digest(fours) == 0x87b97f6bf428a0a8U);
}

/// Uniform values of every width, rarely and often rejected, for sizes around chunks and blocks.
void check_uniform_widths(const auto& where) {
    for (int width = 1; width <= 8; ++width) {
        const word half = word{1} << (8 * width - 1);
        check_group<word>(where, uniform_below({half + 1}, 2, 517), 1);
        check_group<word>(where, uniform_below({half + (half - 1)}, 1, 8193));
        check_group<word>(where, uniform_below({half}, 3, 1));
    }
    check_group<word>(where, uniform_below({1}, 1, 65));
    const word q_40 = (word{1} << 40) - 1572863;
    for (const std::uint32_t size : {2U, 13U, 1599U, 1600U, 1601U, 3200U}) {
        check_group<word>(where, uniform_below({q_40}, 2, size), size % 4);
    }
}

/// Limbs of different widths: in turn for each seed, as ciphertexts have them, and out of step with the
/// seeds.
void check_uniform_moduli(const auto& where) {
    const word q_60 = (word{1} << 60) - 98303;
    const word q_40 = (word{1} << 40) - 1572863;
    const word q_44 = (word{1} << 43) + 9;
    device::draw_group inputs = uniform_below({q_60, q_40, q_44, q_60}, 19, 2048);
    inputs.lanes = 8;
    inputs.first_lane = 3;
    check_group<word>(where, inputs);

    device::draw_group out_of_step = uniform_below({q_40, 12289, q_44}, 11, 1700);
    out_of_step.lanes = 4;
    out_of_step.first_lane = 5;
    check_group<word>(where, out_of_step);

    device::draw_group single = uniform_below({q_60, q_40, q_44, q_60}, 3, 1700);
    single.first_lane = 2;
    check_group<word>(where, single);

    device::draw_group last_lanes = uniform_below({q_40, q_60}, 2, 100);
    last_lanes.lanes = 2;
    last_lanes.first_lane = ~std::uint32_t{0} - 1;
    check_group<word>(where, last_lanes);
}

void check_small_values(const auto& where) {
    for (const device::distribution kind : {device::distribution::ternary, device::distribution::error}) {
        for (const std::uint32_t size :
             {1U, 3U, 4U, 31U, 63U, 64U, 65U, 250U, 1535U, 1536U, 1537U, 4096U, 4097U, 9216U}) {
            device::draw_group draws = of_kind(kind, stream_domain::zero, 3, size);
            draws.lanes = 2;
            draws.first_lane = 7;
            check_group<std::int8_t>(where, draws, size % 16 == 0 ? 0 : size % 3);
            check_group<std::int8_t>(where, draws, 16 - size % 16);
        }
    }
}

void check_floods(const auto& where) {
    for (const int terms : {1, 4}) {
        for (const int bits : {1, 63, 64, 65, 120}) {
            check_group<uint128>(where, floods(terms, bits, 2, 130));
        }
        for (const std::uint32_t size : {1U, 4U, 5U, 127U, 128U, 511U, 512U, 513U, 2051U}) {
            device::draw_group draws = floods(terms, 101, 3, size);
            draws.lanes = 3;
            check_group<uint128>(where, draws, 1);
        }
    }
}

/// All kinds at once: what one group draws does not depend on the others, and it is one launch for eight
/// groups.
template <class Where>
void check_groups(const Where& where, const std::size_t& launches) {
    const word q_60 = (word{1} << 60) - 98303;
    const word q_40 = (word{1} << 40) - 1572863;
    device::draw_group uplink = uniform_below({q_60, q_40, q_60}, 6, 3000);
    uplink.lanes = 6;
    device::draw_group errors = of_kind(device::distribution::error, stream_domain::error, 5, 3000);
    errors.lanes = 2;
    const drawn_group<Where, word> a(where, uplink);
    const drawn_group<Where, std::int8_t> b(where, errors);
    const drawn_group<Where, std::int8_t> c(
        where, of_kind(device::distribution::ternary, stream_domain::zero, 3, 5000));
    const drawn_group<Where, uint128> d(where, floods(4, 90, 3, 300));
    const drawn_group<Where, uint128> e(where, floods(1, 80, 1, 4));
    const drawn_group<Where, word> f(where, uniform_below({12289}, 1, 9000));
    const drawn_group<Where, std::int8_t> g(where,
                                            of_kind(device::distribution::error, stream_domain::error, 4, 4));
    const drawn_group<Where, std::int8_t> h(
        where, of_kind(device::distribution::ternary, stream_domain::zero, 2, 1));
    const drawn_group<Where, word> i(where, uniform_below({q_40}, 1, 2));
    const auto check_all = [&] {
        a.check(where), b.check(where), c.check(where), d.check(where);
        e.check(where), f.check(where), g.check(where), h.check(where);
    };

    const device::draw_group empty = uniform_below({q_40}, 0, 10);
    const device::draw_group of_nothing = of_kind(device::distribution::ternary, stream_domain::zero, 10, 0);
    std::size_t before = launches;
    tests::draw(where, {a.draws(), b.draws(), empty, c.draws(), d.draws(), e.draws(), f.draws(), g.draws(),
                        of_nothing, h.draws()});
    CHECK(launches == before + 1);
    check_all();

    before = launches;
    draw(where,
         {h.draws(), g.draws(), f.draws(), e.draws(), d.draws(), c.draws(), b.draws(), a.draws(), i.draws()});
    CHECK(launches == before + 2);
    check_all();
    i.check(where);

    before = launches;
    tests::draw(where, {empty, of_nothing});
    tests::draw(where, {});
    CHECK(launches == before);
}

/// Impossible draws are refused before anything runs.
template <class Where>
void check_refusals(const Where& where, const std::size_t& launches) {
    const drawn_group<Where, word> good(where, uniform_below({12289, 97}, 1, 9));
    const drawn_group<Where, uint128> good_flood(where, floods(4, 100, 1, 9));
    const std::size_t before = launches;
    const auto with = [&](device::draw_group draws, auto change) {
        change(draws);
        CHECK_THROWS_AS(tests::draw(where, {good.draws(), draws}), parameter_error);
    };
    with(good.draws(), [](device::draw_group& d) { d.lanes = 0; });
    with(good.draws(), [](device::draw_group& d) { d.lanes = 2, d.first_lane = ~std::uint32_t{0}; });
    with(good.draws(), [](device::draw_group& d) { d.seeds = nullptr; });
    with(good.draws(), [](device::draw_group& d) { d.out = nullptr; });
    with(good.draws(), [](device::draw_group& d) { d.out = static_cast<std::uint8_t*>(d.out) + 4; });
    with(good.draws(), [](device::draw_group& d) { d.moduli_count = 0; });
    with(good.draws(), [](device::draw_group& d) { d.moduli_count = 9; });
    with(good.draws(), [](device::draw_group& d) { d.moduli[1] = 0; });
    with(good.draws(), [](device::draw_group& d) { d.kind = static_cast<device::distribution>(4); });
    with(good.draws(), [](device::draw_group& d) { d.polynomials = d.size = ~std::uint32_t{0}; });
    with(good_flood.draws(), [](device::draw_group& d) { d.out = static_cast<std::uint8_t*>(d.out) + 8; });
    with(good_flood.draws(), [](device::draw_group& d) { d.bits = 0; });
    with(good_flood.draws(), [](device::draw_group& d) { d.bits = 121; });
    with(good_flood.draws(), [](device::draw_group& d) { d.terms = 2; });
    CHECK(launches == before);
}

}  // namespace tests
