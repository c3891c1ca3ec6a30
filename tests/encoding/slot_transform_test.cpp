#include <tensafe/encoding/slot_transform.hpp>

#include "../backends.hpp"
#include "../test.hpp"

using namespace tests;

namespace {

using tensafe::encoding::shared_slot_transform;
using tensafe::encoding::slot_transform;

using complex_vector = std::vector<std::complex<double>>;
using real_vector = std::vector<double>;

real_vector random_coefficients(std::size_t count, std::uint64_t seed) {
    return random_numbers(seed).normals<double>(count);
}

complex_vector random_slots(std::size_t count, std::uint64_t seed) {
    const real_vector parts = random_coefficients(2 * count, seed);
    complex_vector values(count);
    for (std::size_t j = 0; j < count; ++j) {
        values[j] = {parts[2 * j], parts[2 * j + 1]};
    }
    return values;
}

complex_vector to_slots(const slot_transform& transform, const real_vector& coefficients) {
    complex_vector slots(transform.slots());
    transform.to_slots(coefficients, slots);
    return slots;
}

real_vector to_coefficients(const slot_transform& transform, const complex_vector& slots) {
    real_vector coefficients(transform.degree());
    transform.to_coefficients(slots, coefficients);
    return coefficients;
}

/// The definition, in long double, one slot at a time.
class direct_evaluation {
  public:
    explicit direct_evaluation(std::size_t degree) : roots_(2 * degree) {
        for (std::size_t k = 0; k < roots_.size(); ++k) {
            const long double angle = std::numbers::pi_v<long double> * static_cast<long double>(k) /
                                      static_cast<long double>(degree);
            roots_[k] = {std::cos(angle), std::sin(angle)};
        }
    }

    std::complex<double> slot(const real_vector& coefficients, std::size_t j) const {
        std::size_t power = 1;
        for (std::size_t i = 0; i < j; ++i) {
            power = power * 5 % roots_.size();
        }
        std::complex<long double> sum;
        for (std::size_t k = 0; k < coefficients.size(); ++k) {
            sum += roots_[power * k % roots_.size()] * static_cast<long double>(coefficients[k]);
        }
        return {static_cast<double>(sum.real()), static_cast<double>(sum.imag())};
    }

  private:
    std::vector<std::complex<long double>> roots_;
};

/// The largest deviation, relative to the largest expected value.
template <class T>
double relative_error(const std::vector<T>& got, const std::vector<T>& expected) {
    double largest = 0.0;
    double deviation = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        deviation = std::max(deviation, std::abs(got[i] - expected[i]));
    }
    return deviation / largest;
}

double tolerance(int log_n) {
    return 1e-15 * log_n;
}

real_vector negacyclic_product(const real_vector& a, const real_vector& b) {
    const std::size_t degree = a.size();
    real_vector product(degree);
    for (std::size_t i = 0; i < degree; ++i) {
        for (std::size_t j = 0; j < degree; ++j) {
            if (i + j < degree) {
                product[i + j] += a[i] * b[j];
            } else {
                product[i + j - degree] -= a[i] * b[j];
            }
        }
    }
    return product;
}

}  // namespace

BACKEND_TEST_CASE("to_slots equals the definition at every slot") {
    for (int log_n = 1; log_n <= 10; ++log_n) {
        CAPTURE(log_n);
        const slot_transform transform(log_n);
        const real_vector m = random_coefficients(transform.degree(), 1);
        const direct_evaluation direct(transform.degree());
        complex_vector expected(transform.slots());
        for (std::size_t j = 0; j < expected.size(); ++j) {
            expected[j] = direct.slot(m, j);
        }
        CHECK(relative_error(to_slots(transform, m), expected) <= tolerance(log_n));
    }
}

BACKEND_TEST_CASE("to_slots equals the definition at sampled slots of the large degrees") {
    for (int log_n = 11; log_n <= 17; ++log_n) {
        CAPTURE(log_n);
        const slot_transform& transform = shared_slot_transform(log_n);
        const real_vector m = random_coefficients(transform.degree(), 2);
        const direct_evaluation direct(transform.degree());
        const complex_vector slots = to_slots(transform, m);
        complex_vector sampled;
        complex_vector expected;
        for (std::size_t i = 0; i < 9; ++i) {
            const std::size_t j = i * (transform.slots() - 1) / 8;
            sampled.push_back(slots[j]);
            expected.push_back(direct.slot(m, j));
        }
        CHECK(relative_error(sampled, expected) <= tolerance(log_n));
    }
}

BACKEND_TEST_CASE("Both round trips return what went in, at every degree") {
    for (int log_n = slot_transform::min_log_n; log_n <= slot_transform::max_log_n; ++log_n) {
        CAPTURE(log_n);
        const slot_transform& transform = shared_slot_transform(log_n);
        REQUIRE(transform.degree() == std::size_t{1} << log_n);
        REQUIRE(transform.slots() == transform.degree() / 2);
        const real_vector m = random_coefficients(transform.degree(), 3);
        CHECK(relative_error(to_coefficients(transform, to_slots(transform, m)), m) <= tolerance(log_n));
        const complex_vector z = random_slots(transform.slots(), 4);
        CHECK(relative_error(to_slots(transform, to_coefficients(transform, z)), z) <= tolerance(log_n));
    }
}

BACKEND_TEST_CASE("N = 4 gives the values worked out by hand") {
    const slot_transform transform(2);
    const double root = std::numbers::sqrt2;
    const complex_vector expected{{1 - root, 3 + 3 * root}, {1 + root, 3 - 3 * root}};
    CHECK(relative_error(to_slots(transform, {1, 2, 3, 4}), expected) <= 1e-15);
    CHECK(relative_error(to_coefficients(transform, expected), real_vector{1, 2, 3, 4}) <= 1e-15);
}

BACKEND_TEST_CASE("A product modulo X^N + 1 is the product slot by slot") {
    for (int log_n = 1; log_n <= 10; ++log_n) {
        CAPTURE(log_n);
        const slot_transform transform(log_n);
        const real_vector a = random_coefficients(transform.degree(), 7);
        const real_vector b = random_coefficients(transform.degree(), 8);
        complex_vector product = to_slots(transform, a);
        const complex_vector factor = to_slots(transform, b);
        for (std::size_t j = 0; j < product.size(); ++j) {
            product[j] *= factor[j];
        }
        CHECK(relative_error(to_coefficients(transform, product), negacyclic_product(a, b)) <=
              2 * tolerance(log_n));
    }
}

BACKEND_TEST_CASE("Sums over every g-th slot are the slots of the trace, a polynomial of degree 2g") {
    for (const int log_n : {3, 6, 8, 13}) {
        const slot_transform& transform = shared_slot_transform(log_n);
        const std::size_t degree = transform.degree();
        const real_vector m = random_coefficients(degree, 11);
        const complex_vector z = to_slots(transform, m);
        for (int log_g = 0; log_g < log_n; ++log_g) {
            INFO("log_n := ", log_n, ", log_g := ", log_g);
            const std::size_t g = std::size_t{1} << log_g;
            const std::size_t step = degree / (2 * g);
            complex_vector sums(g);
            for (std::size_t j = 0; j < z.size(); ++j) {
                sums[j % g] += z[j];
            }
            real_vector trace(2 * g);
            for (std::size_t l = 0; l < trace.size(); ++l) {
                trace[l] = static_cast<double>(step) * m[l * step];
            }
            const complex_vector expected = to_slots(shared_slot_transform(log_g + 1), trace);
            // The sums of up to N/2 slots cancel down to 2g coefficients: errors grow as the root of
            // their number.
            CHECK(relative_error(sums, expected) <= tolerance(log_n) * std::sqrt(static_cast<double>(step)));
        }
    }
}

BACKEND_TEST_CASE("Views that are aligned to one double only give the same bits") {
    for (const int log_n : {4, 6, 7, 8, 9, 10, 13}) {
        CAPTURE(log_n);
        const slot_transform transform(log_n);
        const real_vector m = random_coefficients(transform.degree(), 12);
        const complex_vector z = to_slots(transform, m);
        const real_vector back = to_coefficients(transform, z);

        real_vector shifted(transform.degree() + 1);
        std::copy(m.begin(), m.end(), shifted.begin() + 1);
        const std::span<double> view = std::span(shifted).subspan(1);
        complex_vector slots(transform.slots());
        transform.to_slots(view, slots);
        CHECK(slots == z);
        transform.to_coefficients(slots, view);
        CHECK(std::equal(view.begin(), view.end(), back.begin(), back.end()));
    }
}

BACKEND_TEST_CASE("The input is left alone and every output is overwritten") {
    for (const int log_n : {1, 5, 6, 8, 9, 14}) {
        CAPTURE(log_n);
        const slot_transform transform(log_n);
        const double nan = std::numeric_limits<double>::quiet_NaN();
        const real_vector m = random_coefficients(transform.degree(), 13);
        const real_vector m_before = m;
        complex_vector z(transform.slots(), {nan, nan});
        transform.to_slots(m, z);
        CHECK(m == m_before);
        const complex_vector z_before = z;
        real_vector back(transform.degree(), nan);
        transform.to_coefficients(z, back);
        CHECK(z == z_before);
        CHECK(relative_error(back, m) <= tolerance(log_n));
        CHECK(std::none_of(back.begin(), back.end(), [](double value) { return std::isnan(value); }));
    }
}

TEST_CASE("All back-ends give the same bits, both ways, at every degree") {
    for (int log_n = slot_transform::min_log_n; log_n <= slot_transform::max_log_n; ++log_n) {
        CAPTURE(log_n);
        const slot_transform& transform = shared_slot_transform(log_n);
        const real_vector m = random_coefficients(transform.degree(), 15);
        const complex_vector z = random_slots(transform.slots(), 16);
        complex_vector first_slots;
        real_vector first_coefficients;
        tests::for_each_backend([&](tensafe::exec::backend b) {
            const complex_vector slots = to_slots(transform, m);
            const real_vector coefficients = to_coefficients(transform, z);
            if (b == tensafe::exec::backend::portable) {
                first_slots = slots;
                first_coefficients = coefficients;
            }
            CHECK(slots == first_slots);
            CHECK(coefficients == first_coefficients);
        });
    }
}

BACKEND_TEST_CASE("In place, slots become the same coefficients, bit for bit") {
    for (int log_n = slot_transform::min_log_n; log_n <= slot_transform::max_log_n; ++log_n) {
        CAPTURE(log_n);
        const slot_transform& transform = shared_slot_transform(log_n);
        const complex_vector z = random_slots(transform.slots(), 17);
        real_vector values;
        for (const std::complex<double>& slot : z) {
            values.push_back(slot.real());
            values.push_back(slot.imag());
        }
        transform.to_coefficients_in_place(values);
        CHECK(values == to_coefficients(transform, z));
    }
}

TEST_CASE("A degree that is not offered throws, and the message says which are") {
    for (const int log_n : {-1, 0, 18, 64}) {
        CAPTURE(log_n);
        const std::string expected =
            "slot_transform: log_n: got " + std::to_string(log_n) + ", expected 1 to 17";
        CHECK(refusal<tensafe::parameter_error>([&] { slot_transform{log_n}; }) == expected);
        CHECK(refusal<tensafe::parameter_error>([&] { shared_slot_transform(log_n); }) == expected);
    }
}

TEST_CASE("Wrong sizes throw before anything is written, and the message says what was needed") {
    const slot_transform transform(6);
    real_vector coefficients(64, 1.0);
    complex_vector slots(32, 1.0);
    complex_vector too_many(33, 1.0);
    real_vector too_few(63, 1.0);
    CHECK(refusal<tensafe::shape_error>([&] { transform.to_slots(coefficients, too_many); }) ==
          "slot_transform::to_slots: slots: got 33, expected 32");
    CHECK(refusal<tensafe::shape_error>([&] { transform.to_slots(too_few, slots); }) ==
          "slot_transform::to_slots: coefficients: got 63, expected 64");
    CHECK(refusal<tensafe::shape_error>([&] { transform.to_coefficients(too_many, coefficients); }) ==
          "slot_transform::to_coefficients: slots: got 33, expected 32");
    CHECK(refusal<tensafe::shape_error>([&] { transform.to_coefficients(slots, too_few); }) ==
          "slot_transform::to_coefficients: coefficients: got 63, expected 64");
    CHECK(refusal<tensafe::shape_error>([&] { transform.to_coefficients_in_place(too_few); }) ==
          "slot_transform::to_coefficients_in_place: coefficients: got 63, expected 64");
    CHECK(slots == complex_vector(32, 1.0));
    CHECK(too_many == complex_vector(33, 1.0));
    CHECK(coefficients == real_vector(64, 1.0));
    CHECK(too_few == real_vector(63, 1.0));
}

TEST_CASE("Threads that ask for a shared transform at once get the same one, and the same results") {
    constexpr int log_n = 9;
    const slot_transform own(log_n);
    const real_vector m = random_coefficients(own.degree(), 14);
    const complex_vector expected = to_slots(own, m);
    std::vector<const slot_transform*> seen(8);
    std::vector<complex_vector> results(seen.size());
    tests::on_threads(seen.size(), [&](std::size_t i) {
        seen[i] = &shared_slot_transform(log_n);
        results[i] = to_slots(*seen[i], m);
    });
    for (std::size_t i = 0; i < seen.size(); ++i) {
        CHECK(seen[i] == seen[0]);
        CHECK(results[i] == expected);
    }
}
