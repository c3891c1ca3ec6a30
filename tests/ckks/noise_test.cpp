#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/evaluate.hpp>

#include "fixture.hpp"
#include "noise_bounds.hpp"

using namespace tests;

namespace {

using namespace fixture;
using P = four_limbs;

/// How often each measurement is repeated; with N coefficients each, deviations are known to a few percent.
constexpr std::uint64_t rounds = 8;

/// Collects measured noise.
class measured {
  public:
    void take(std::span<const double> noise) {
        for (const double x : noise) {
            largest_ = std::max(largest_, std::fabs(x));
            squares_ += x * x;
            ++count_;
        }
    }
    /// Never above the worst case; standard deviation within a factor of 1.15.
    void check(noise_bound predicted) const {
        const double deviation = std::sqrt(squares_ / static_cast<double>(count_));
        INFO("largest_ := ", largest_, ", predicted.worst := ", predicted.worst, ", deviation := ", deviation,
             ", predicted.deviation := ", predicted.deviation);
        CHECK(largest_ <= predicted.worst);
        CHECK(deviation < 1.15 * predicted.deviation);
        CHECK(deviation * 1.15 > predicted.deviation);
    }

  private:
    double largest_ = 0;
    double squares_ = 0;
    std::size_t count_ = 0;
};

template <int Level>
using plain = ckks::plaintext<P, rns::coefficient_form, Level>;

/// The integer coefficients of a plaintext, as doubles.
template <int Level>
std::vector<double> integers(plain<Level> p) {
    p.scale = 1;
    return ckks::decode_coefficients(p);
}

/// What the ciphertext decrypts to, minus the integer polynomial that it should.
template <int Level>
std::vector<double> noise_of(const ckks::secret_key<P>& key, const ckks::ciphertext<P, Level>& c,
                             const plain<Level>& expected) {
    auto decrypted = ckks::inverse(ckks::decrypt(key, c));
    rns::subtract(decrypted.value, expected.value);
    return integers(std::move(decrypted));
}

/// The coefficients before rounding.
std::vector<double> real_coefficients(const slot_vector& slots, double scale) {
    std::vector<double> m(P::degree);
    tensafe::encoding::shared_slot_transform(P::log_n).to_coefficients(slots, m);
    for (double& x : m) {
        x *= scale;
    }
    return m;
}

coefficient_norms norms(const std::vector<double>& coefficients) {
    coefficient_norms result;
    for (const double x : coefficients) {
        result.one += std::fabs(x);
        result.two = std::hypot(result.two, x);
    }
    return result;
}

/// A new key for each round, since noise depends on the key's weight.
struct client {
    explicit client(std::uint64_t number)
        : source(generator(static_cast<std::uint8_t>(number))), key(source) {}

    ckks::ciphertext<P> encrypt(const plain<P::max_level>& m) {
        return ckks::expand(ckks::encrypt(key, m, source));
    }

    tensafe::random::generator source;
    ckks::secret_key<P> key;
};

/// Products and rescales to the last level, each checked: the ciphertext, what its slots should be, and what
/// is predicted of its noise.
template <int Level, class Check>
void run_cycles(const client& c, ckks::ciphertext<P, Level> x, slot_vector slots, noise_bound noise,
                Check check) {
    check(c, x, slots, noise);
    if constexpr (Level > 0) {
        constexpr double q = P::rescale_factor<Level>;
        const slot_vector w = random_slots(P::slots, 200 + Level);
        const auto p = ckks::encode_slots<P, Level>(w, q);
        const noise_bound product =
            multiply_plain<P>(noise, norms(real_coefficients(slots, x.scale)), encoding_noise<P>(1, q),
                              norms(real_coefficients(w, q)));
        ckks::multiply_plain(x, ckks::forward(p));
        run_cycles<Level - 1>(c, ckks::rescale(x), combine(slots, w, [](auto a, auto b) { return a * b; }),
                              rescale<P, Level>(product), check);
    }
}

}  // namespace

TEST_CASE("Norms of slots bound the norms of their coefficients") {
    for (std::uint64_t round = 0; round < rounds; ++round) {
        const slot_vector z = random_slots(P::slots, round, 2.5);
        const coefficient_norms actual = norms(real_coefficients(z, 0x1p40));
        const coefficient_norms bound = norms_of_slots<P>(2.5, 0x1p40);
        CHECK(actual.two <= bound.two);
        CHECK(actual.two >= bound.two / 2);
        CHECK(actual.one <= bound.one);
    }
    // A constant has all its slots on one circle, and reaches the bound of the 2-norm.
    const slot_vector constant(P::slots, 1.0);
    CHECK(norms(real_coefficients(constant, 1)).two == doctest::Approx(norms_of_slots<P>(1, 1).two));
}

TEST_CASE("Fresh noise of both encryptions, and of their sum") {
    measured secret;
    measured open;
    measured sum;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        client c(round);
        const ckks::public_key<P> key(c.key, c.source);
        const auto m = ckks::encode_slots<P>(random_slots(P::slots, round));
        auto a = c.encrypt(m);
        secret.take(noise_of(c.key, a, m));
        const auto b = ckks::encrypt(key, m, c.source);
        open.take(noise_of(c.key, b, m));
        ckks::subtract(a, b);
        sum.take(noise_of(c.key, a, plain<P::max_level>{}));
    }
    secret.check(secret_key_noise());
    open.check(public_key_noise<P>());
    sum.check(secret_key_noise() + public_key_noise<P>());
}

TEST_CASE("The noise of a product with a known plaintext") {
    measured noise;
    noise_bound predicted;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        client c(round);
        const auto m = ckks::encode_slots<P>(random_slots(P::slots, round));
        const auto p = ckks::encode_slots<P>(random_slots(P::slots, round + rounds));
        auto product = ckks::forward(m);
        const auto factor = ckks::forward(p);
        rns::multiply(product.value, product.value, factor.value);
        auto x = c.encrypt(m);
        ckks::multiply_plain(x, factor);
        noise.take(noise_of(c.key, x, ckks::inverse(product)));
        // Integer polynomials on both sides: no encoding noise.
        const noise_bound one =
            multiply_plain<P>(secret_key_noise(), norms(integers(m)), {}, norms(integers(p)));
        predicted.worst = std::max(predicted.worst, one.worst);
        predicted.deviation = std::hypot(predicted.deviation, one.deviation / std::sqrt(double{rounds}));
    }
    noise.check(predicted);
}

TEST_CASE("The noise of a product with a rounded plaintext: the message times the rounding") {
    // A small scale of the plaintext makes its rounding the larger part.
    constexpr double scale = 0x1p10;
    const slot_vector z = random_slots(P::slots, 1);
    const slot_vector w = random_slots(P::slots, 2);
    client c(1);
    auto x = c.encrypt(ckks::encode_slots<P>(z));
    ckks::multiply_plain(x, ckks::forward(ckks::encode_slots<P>(w, scale)));
    const auto exact =
        ckks::encode_slots<P>(combine(z, w, [](auto a, auto b) { return a * b; }), P::scale * scale);
    measured noise;
    noise.take(noise_of(c.key, x, exact));
    noise.check(multiply_plain<P>(secret_key_noise() + encoding_noise<P>(1, P::scale),
                                  norms(real_coefficients(z, P::scale)), encoding_noise<P>(1, scale),
                                  norms(real_coefficients(w, scale))));
    // The bounds from the largest slot are weaker, and bounds all the same.
    const noise_bound weaker =
        multiply_plain<P>(secret_key_noise() + encoding_noise<P>(1, P::scale), norms_of_slots<P>(1, P::scale),
                          encoding_noise<P>(1, scale), norms_of_slots<P>(1, scale));
    for (const double e : noise_of(c.key, x, exact)) {
        REQUIRE(std::fabs(e) <= weaker.worst);
    }
}

TEST_CASE("The noise of a rescale is that of rounding both components") {
    measured noise;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        client c(round);
        const auto x = ckks::rescale(c.encrypt({}), 0x1p-21);  // of zero: no message is lost
        noise.take(noise_of(c.key, x, plain<2>{}));
    }
    noise.check(rescale<P, 3>(secret_key_noise()));
}

TEST_CASE("Predictions hold through every cycle of product and rescale, in coefficients and in slots") {
    for (std::uint64_t round = 0; round < rounds; ++round) {
        client c(round);
        const slot_vector z = random_slots(P::slots, 100 + round);
        const auto m = ckks::encode_slots<P>(z);
        const noise_bound fresh = secret_key_noise() + encoding_noise<P>(1, P::scale);
        run_cycles<P::max_level>(c, c.encrypt(m), z, fresh,
                                 []<int Level>(const client& owner, const ckks::ciphertext<P, Level>& x,
                                               const slot_vector& expected, noise_bound predicted) {
                                     CAPTURE(Level);
                                     const auto got = ckks::decrypt_slots(owner.key, x);
                                     const noise_bound slot = slot_error<P>(predicted, x.scale);
                                     double squares = 0;
                                     for (std::size_t j = 0; j < got.size(); ++j) {
                                         REQUIRE(std::abs(got[j] - expected[j]) <= slot.worst);
                                         squares += std::norm(got[j] - expected[j]) /
                                                    static_cast<double>(got.size());
                                     }
                                     CHECK(std::sqrt(squares) < 1.3 * slot.deviation);
                                     CHECK(std::sqrt(squares) * 1.3 > slot.deviation);
                                 });
    }
}
