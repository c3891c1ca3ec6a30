#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/linear_transform.hpp>
#include <tensafe/ckks/precision.hpp>

#include "../backends.hpp"
#include "fixture.hpp"
#include "key_switching_sets.hpp"
#include "noise_bounds.hpp"

using namespace tests;

namespace {

using namespace fixture;

template <class P, class... Lists>
struct client {
    explicit client(std::uint8_t number = 1) : source(generator(number)) {}

    tensafe::random::generator source;
    ckks::secret_key<P> key{source};
    ckks::galois_keys<P, Lists...> galois{key, source};

    template <int Level = P::max_level>
    ckks::ciphertext<P, Level> encrypt(const slot_vector& z, double scale = P::template scale_at<Level>) {
        return ckks::expand(ckks::encrypt(key, ckks::encode_slots<P, Level>(z, scale), source));
    }
};

template <class C, class Ciphertext>
double bits(const C& c, const slot_vector& expected, const Ciphertext& got) {
    return ckks::measure_precision(expected, ckks::decrypt_slots(c.key, got)).worst_bits();
}

std::vector<slot_vector> random_diagonals(std::size_t count, std::size_t slots, double radius) {
    std::vector<slot_vector> result;
    for (std::size_t i = 0; i < count; ++i) {
        result.push_back(random_slots(slots, 100 + i, radius));
    }
    return result;
}

/// The definition, entry by entry.
slot_vector transformed(const std::vector<slot_vector>& diagonals, long long first, long long stride,
                        const slot_vector& z) {
    const auto n = static_cast<long long>(z.size());
    slot_vector result(z.size());
    for (long long j = 0; j < n; ++j) {
        for (std::size_t i = 0; i < diagonals.size(); ++i) {
            const long long from = j + first + static_cast<long long>(i) * stride;
            const auto place = static_cast<std::size_t>(j);
            if (place < diagonals[i].size()) {
                result[place] += diagonals[i][place] * z[static_cast<std::size_t>((from % n + n) % n)];
            }
        }
    }
    return result;
}

template <class P, class Shape>
void check_diagonals(long long first, std::size_t count, long long stride) {
    using transform = ckks::linear_transform<P, Shape>;
    client<P, typename transform::rotations> c;
    const auto diagonals = random_diagonals(count, P::slots, 1 / static_cast<double>(count));
    const transform a(diagonals);
    const slot_vector z = random_slots(P::slots, 2);
    const auto expected = transformed(diagonals, first, stride, z);
    const auto once = ckks::multiply_rescale(a, c.encrypt(z), c.galois);
    CHECK(once.scale == P::template scale_at<P::max_level - 1>);  // bit by bit
    CHECK(bits(c, expected, once) > 18);
    const auto twice = ckks::rescale(ckks::multiply(a, c.encrypt(z), c.galois));
    CHECK(once.scale == twice.scale);
    CHECK(bits(c, expected, twice) > 18);
}

std::vector<double> random_entries(std::size_t count, double largest, std::uint64_t seed) {
    random_numbers generator(seed);
    std::vector<double> result(count);
    for (double& entry : result) {
        entry = generator.uniform(-largest, largest);
    }
    return result;
}

/// The product with a vector, as a result that repeats in all slots.
slot_vector product(const std::vector<double>& entries, std::size_t columns, std::size_t repeats_after,
                    const std::vector<double>& x, std::size_t slots) {
    slot_vector result(slots);
    for (std::size_t j = 0; j < slots; ++j) {
        const std::size_t row = j % repeats_after;
        for (std::size_t k = 0; (row + 1) * columns <= entries.size() && k < columns; ++k) {
            result[j] += entries[row * columns + k] * x[k];
        }
    }
    return result;
}
slot_vector repeated(const std::vector<double>& x, std::size_t after, std::size_t slots) {
    slot_vector result(slots);
    for (std::size_t j = 0; j < slots; ++j) {
        result[j] = j % after < x.size() ? x[j % after] : 0;
    }
    return result;
}

}  // namespace

TEST_CASE_TEMPLATE("a linear transform is the sum of its diagonals times rotated slots", P,
                   KEY_SWITCHING_SETS) {
    check_diagonals<P, ckks::diagonals<0, 1>>(0, 1, 1);
    check_diagonals<P, ckks::diagonals<3, 1>>(3, 1, 1);
    check_diagonals<P, ckks::diagonals<0, 8>>(0, 8, 1);
    check_diagonals<P, ckks::diagonals<-7, 15, 16>>(-7, 15, 16);  // as those of a radix-8 pass
    check_diagonals<P, ckks::diagonals<1, 11>>(1, 11, 1);
}

TEST_CASE("a linear transform of a lower level, with keys for the top one, and missing entries") {
    using P = three_a_digit;
    using transform = ckks::linear_transform<P, ckks::diagonals<0, 6, 2>, 1>;
    client<P, transform::rotations> c;
    auto diagonals = random_diagonals(6, P::slots, 0.2);
    diagonals[3].resize(100);
    diagonals[5].clear();
    const slot_vector z = random_slots(P::slots, 3);
    const auto got = ckks::multiply_rescale(transform(diagonals), c.encrypt<1>(z), c.galois);
    CHECK(bits(c, transformed(diagonals, 0, 2, z), got) > 18);
    const ckks::galois_keys_at<P, 1, transform::rotations> lower(c.key, c.source);
    CHECK(bits(c, transformed(diagonals, 0, 2, z),
               ckks::multiply_rescale(transform(diagonals), c.encrypt<1>(z), lower)) > 18);
}

TEST_CASE("every diagonal of a full matrix counts") {
    using P = ckks::parameters<10, ckks::scaled_limbs<50, 1, 40>, 40, ckks::insecure_for_tests,
                               ckks::key_switching<1, ckks::special_bits<54>>>;
    using transform = ckks::linear_transform<P, ckks::matrix<512, 512>>;
    client<P, transform::rotations> c;
    const auto entries = random_entries(512 * 512, 1.0 / 32, 7);
    const auto x = random_entries(512, 1, 8);
    const auto got =
        ckks::multiply_rescale(transform(entries, 512), c.encrypt(repeated(x, 512, P::slots)), c.galois);
    CHECK(bits(c, product(entries, 512, 512, x, P::slots), got) > 16);
    CHECK(transform::steps::baby_steps == 32);
    CHECK(transform::steps::giant_steps == 16);
}

TEST_CASE_TEMPLATE("matrices of all shapes are applied one after the other", P, one_a_digit, three_a_digit) {
    using wide = ckks::linear_transform<P, ckks::matrix<8, 64>>;
    using tall = ckks::linear_transform<P, ckks::matrix<32, 8>, P::max_level - 1>;
    client<P, typename wide::rotations, typename tall::rotations> c;
    CHECK(std::is_same_v<typename wide::rotations, ckks::rotations<0, 1, 2, 3, 4, 8, 16, 32>>);
    CHECK(std::is_same_v<typename tall::rotations, ckks::rotations<0, 1, 2, 3, 4>>);
    // Fewer rows and columns than the shapes have.
    const auto a = random_entries(5 * 60, 0.1, 9);
    const auto b = random_entries(31 * 5, 0.1, 10);
    const auto x = random_entries(60, 1, 11);
    const auto y = ckks::multiply_rescale(wide(a, 60), c.encrypt(repeated(x, 64, P::slots)), c.galois);
    const auto expected = product(a, 60, 8, x, P::slots);
    CHECK(bits(c, expected, y) > 17);
    std::vector<double> between;
    for (std::size_t j = 0; j < 5; ++j) {
        between.push_back(expected[j].real());
    }
    const auto z = ckks::multiply_rescale(tall(b, 5), y, c.galois);
    CHECK(bits(c, product(b, 5, 32, between, P::slots), z) > 17);
}

TEST_CASE("matrices of one row or column use all slots, and rotate nothing that is not folded") {
    using P = one_a_digit;
    using row = ckks::linear_transform<P, ckks::matrix<1, 512>>;
    using column = ckks::linear_transform<P, ckks::matrix<512, 1>>;
    client<P, row::rotations, column::rotations> c;
    CHECK(std::is_same_v<column::rotations, ckks::rotations<0>>);
    const auto entries = random_entries(512, 0.1, 19);
    const auto x = random_entries(512, 1, 20);
    CHECK(bits(c, product(entries, 512, 1, x, P::slots),
               ckks::multiply_rescale(row(entries, 512), c.encrypt(slot_vector(x.begin(), x.end())),
                                      c.galois)) > 15);
    CHECK(bits(c, product(entries, 1, 512, {0.5}, P::slots),
               ckks::multiply_rescale(column(entries, 1), c.encrypt(slot_vector(P::slots, 0.5)), c.galois)) >
          18);
}

TEST_CASE("diagonals may be real, and vectors are repeated") {
    using P = one_a_digit;
    using transform = ckks::linear_transform<P, ckks::diagonals<-1, 3>>;  // tridiagonal
    client<P, transform::rotations> c;
    const std::vector<std::vector<double>> real = {
        std::vector<double>(P::slots, 0.5), {1, 2}, std::vector<double>(P::slots, -0.25)};
    const std::vector<double> x = ckks::repeated<P>(random_entries(5, 1, 18), 8);
    CHECK(x.size() == P::slots);
    CHECK(x[4] != 0);
    CHECK(std::vector<double>(x.begin() + 4, x.begin() + 9) == std::vector<double>{x[4], 0, 0, 0, x[0]});
    const slot_vector z(x.begin(), x.end());
    std::vector<slot_vector> complex;
    for (const auto& diagonal : real) {
        complex.emplace_back(diagonal.begin(), diagonal.end());
    }
    CHECK(bits(c, transformed(complex, -1, 1, z),
               ckks::multiply_rescale(transform(real), c.encrypt(z), c.galois)) > 18);
    CHECK(refusal<shape_error>([] { static_cast<void>(ckks::repeated<P>(std::vector<double>(9), 8)); }) ==
          "repeated: got 9 values and a period of 8, expected at most as many, and a divisor of 512");
    CHECK_THROWS_AS(static_cast<void>(ckks::repeated<P>(std::vector<double>(3), 48)), shape_error);
    CHECK_THROWS_AS(static_cast<void>(ckks::repeated<P>(std::vector<double>(), 0)), shape_error);
}

TEST_CASE("a set of one prime applies a matrix at the scales that it is given") {
    using P = ckks::parameters<10, ckks::scaled_limbs<47, 0, 40>, 40, ckks::insecure_for_tests,
                               ckks::key_switching<1, ckks::special_bits<50>>>;
    using transform = ckks::linear_transform<P, ckks::matrix<16, 512>>;
    client<P, transform::rotations> c;
    const auto entries = random_entries(16 * 512, 1.0 / 32, 12);
    const auto x = random_entries(512, 1, 13);
    const transform a(entries, 512, 0x1p20);
    const auto got = ckks::multiply(a, c.encrypt(repeated(x, 512, P::slots), 0x1p24), c.galois);
    CHECK(got.scale == 0x1p44);
    CHECK(bits(c, product(entries, 512, 16, x, P::slots), got) > 8);
    CHECK_THROWS_WITH_AS(
        static_cast<void>(ckks::multiply(a, c.encrypt(repeated(x, 512, P::slots), 0x1p30), c.galois)),
        Contains("multiply: got a scale of 2^50.0, expected less than Q = 2^47.0"), parameter_error);
}

TEST_CASE_TEMPLATE("the noise of a linear transform keeps to its bound and to its deviation over many keys",
                   P, KEY_SWITCHING_SETS) {
    constexpr int level = P::max_level;
    constexpr double scale = 0x1p8;
    using transform = ckks::linear_transform<P, ckks::diagonals<0, 7>>;  // four baby steps, two giant ones
    const auto diagonals = random_diagonals(7, P::slots, 1);
    std::vector<coefficient_norms> norms(7);
    for (std::size_t i = 0; i < diagonals.size(); ++i) {
        for (const std::int64_t x : small_coefficients(ckks::encode_slots<P>(diagonals[i], scale).value)) {
            norms[i].one += std::fabs(static_cast<double>(x));
            norms[i].two = std::hypot(norms[i].two, static_cast<double>(x));
        }
    }
    // Diagonals 0 and 4 are of the ciphertext itself; all norms are alike.
    const noise_bound bound = linear_transform_noise<P, level, level>(secret_key_noise(), norms, 5, 2);
    const transform a(diagonals, scale);
    double squares = 0;
    double largest = 0;
    std::size_t count = 0;
    for (std::size_t key = 0; key < trials(std::size_t{50}); ++key) {
        client<P, typename transform::rotations> c(static_cast<std::uint8_t>(key));
        const auto noise = ckks::decrypt(c.key, ckks::multiply(a, c.encrypt({}), c.galois));
        for (const std::int64_t e : small_coefficients(ckks::inverse(noise).value)) {
            largest = std::max(largest, std::fabs(static_cast<double>(e)));
            squares += static_cast<double>(e) * static_cast<double>(e);
            ++count;
        }
    }
    CHECK(largest <= bound.worst);
    CHECK(largest <= 6 * bound.deviation);
    const double deviation = std::sqrt(squares / static_cast<double>(count));
    CHECK(deviation < 1.05 * bound.deviation);
    CHECK(deviation > 0.9 * bound.deviation);
}

TEST_CASE_TEMPLATE("the noise of a linear transform that rescales is mostly that of one division", P,
                   KEY_SWITCHING_SETS) {
    using transform = ckks::linear_transform<P, ckks::diagonals<0, 2>>;
    const auto diagonals = random_diagonals(2, P::slots, 1);
    const transform a(diagonals);
    // All before the division is divided by the prime: diagonals of that size leave about the noise of each
    // term.
    const double size = P::template factor_scale<P::max_level> / P::template rescale_factor<P::max_level>;
    const noise_bound digits = digits_noise<P, P::max_level, P::max_level>();
    const double before =
        size * std::hypot(secret_key_noise().deviation, secret_key_noise().deviation, digits.deviation);
    const double division =
        division_noise<P, P::max_level>().deviation *
        std::sqrt((P::template special_limbs<P::max_level> + 1.0) / P::template special_limbs<P::max_level>);
    double squares = 0;
    std::size_t count = 0;
    for (std::size_t key = 0; key < trials(std::size_t{20}); ++key) {
        client<P, typename transform::rotations> c(static_cast<std::uint8_t>(key));
        const auto noise = ckks::decrypt(c.key, ckks::multiply_rescale(a, c.encrypt({}), c.galois));
        for (const std::int64_t e : small_coefficients(ckks::inverse(noise).value)) {
            squares += static_cast<double>(e) * static_cast<double>(e);
            ++count;
        }
    }
    const double deviation = std::sqrt(squares / static_cast<double>(count));
    CHECK(deviation > 0.95 * division);
    CHECK(deviation < 1.05 * std::hypot(before, division));
}

TEST_CASE("all back-ends apply linear transforms bit for bit alike") {
    using P = three_a_digit;
    using transform = ckks::linear_transform<P, ckks::matrix<16, 64>>;
    std::vector<tensafe::arith::word> first;
    for_each_backend([&](auto) {
        client<P, transform::rotations> c;
        const transform a(random_entries(16 * 64, 0.1, 14), 64);
        const auto got = ckks::multiply_rescale(a, c.encrypt(random_slots(P::slots, 15)), c.galois);
        std::vector<tensafe::arith::word> words(got.c0.words().begin(), got.c0.words().end());
        words.insert(words.end(), got.c1.words().begin(), got.c1.words().end());
        if (first.empty()) {
            first = words;
        }
        CHECK(words == first);
    });
}

TEST_CASE("an inner product is that of all slots, in each") {
    using P = three_a_digit;
    client<P, ckks::inner_sum_rotations<P>> c;
    const ckks::relinearization_key<P> relinearization(c.key, c.source);
    const slot_vector x = random_slots(P::slots, 16, 0.05);
    const slot_vector y = random_slots(P::slots, 17);
    const auto expected = std::inner_product(x.begin(), x.end(), y.begin(), std::complex<double>());
    CHECK(bits(c, slot_vector(P::slots, expected),
               ckks::inner_product(c.encrypt(x), c.encrypt(y), relinearization, c.galois)) > 12);
}

TEST_CASE("the bound of a ciphertext follows through a linear transform") {
    using P = one_a_digit;
    using transform = ckks::linear_transform<P, ckks::matrix<2, 8>>;
    client<P, transform::rotations> c;
    const transform a(std::vector<double>(16, 3), 8);
    auto x = c.encrypt(slot_vector(P::slots, 2));
    CHECK(std::isnan(ckks::multiply_rescale(a, x, c.galois).largest));
    x.largest = 2;
    // Two diagonals of 3, folded from 8 columns to 2 rows.
    CHECK(ckks::multiply_rescale(a, x, c.galois).largest == doctest::Approx(48).epsilon(1e-6));
    x.largest = 0x1p90;
    CHECK_THROWS_AS(static_cast<void>(ckks::multiply_rescale(a, x, c.galois)), encoding_error);
}

TEST_CASE("transforms of a wrong size or with entries that are none are refused") {
    using P = one_a_digit;
    using of_diagonals = ckks::linear_transform<P, ckks::diagonals<0, 3>>;
    using of_matrix = ckks::linear_transform<P, ckks::matrix<4, 8>>;
    const auto refused = [](auto make) { return refusal<shape_error>([&] { static_cast<void>(make()); }); };
    CHECK(refused([] { return of_diagonals(std::vector<slot_vector>(2)); }) ==
          "linear_transform: got 2 diagonals, expected 3");
    CHECK(refused([] { return of_diagonals(std::vector<slot_vector>(3, slot_vector(P::slots + 1))); }) ==
          "linear_transform: got 513 entries of a diagonal, expected at most 512");
    CHECK(refused([] { return of_matrix(std::vector<double>(40), 8); }) ==
          "linear_transform: got 5 rows, expected at most 4");
    CHECK(refused([] { return of_matrix(std::vector<double>(36), 9); }) ==
          "linear_transform: got 9 columns, expected at most 8");
    CHECK(refused([] { return of_matrix(std::vector<double>(10), 8); }) ==
          "linear_transform: got 10 entries in rows of 8, expected whole rows");
    CHECK(refused([] { return of_matrix(std::vector<double>(10), 0); }) ==
          "linear_transform: got 10 entries in rows of 0, expected whole rows");
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
        const auto message = [](auto make) {
            return refusal<encoding_error>([&] { static_cast<void>(make()); });
        };
        CHECK(message([&] {
                  return of_matrix(std::vector<double>{1, 2, 3, bad, 5, 6, 7, 8}, 8);
              }) == "linear_transform: entry 3 is not finite");
        CHECK(message([&] {
                  return of_diagonals(std::vector<slot_vector>{{}, {0, {0, bad}}, {}});
              }) == "linear_transform: entry 1 is not finite");
    }
    CHECK_THROWS_AS(static_cast<void>(of_matrix(std::vector<double>(8, 1e60), 8)), encoding_error);
    CHECK_THROWS_WITH_AS(
        static_cast<void>(
            ckks::linear_transform<P, ckks::matrix<4, 8>, 3>(std::vector<double>(8, 0x1p75), 8)),
        "linear_transform: diagonal 0 is too large: its entries must be below 2^111 over the scale",
        encoding_error);
    CHECK_THROWS_AS(static_cast<void>(of_matrix(std::vector<double>(8), 8, 0)), parameter_error);
}
