#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/multiply.hpp>
#include <tensafe/ckks/precision.hpp>

#include "../backends.hpp"
#include "fixture.hpp"
#include "key_switching_sets.hpp"
#include "noise_bounds.hpp"

using namespace tests;

namespace {

using namespace fixture;

constexpr auto product = [](auto x, auto y) { return x * y; };
constexpr auto sum = [](auto x, auto y) { return x + y; };

/// A client with its keys.
template <class P>
struct client {
    tensafe::random::generator source = generator(1);
    ckks::secret_key<P> key{source};
    ckks::relinearization_key<P> relinearization{key, source};

    template <int Level = P::max_level>
    ckks::ciphertext<P, Level> encrypt(const slot_vector& z) {
        return ckks::expand(ckks::encrypt(key, ckks::encode_slots<P, Level>(z), source));
    }
};

template <class P, int Level>
double bits(const client<P>& c, const slot_vector& expected, const ckks::ciphertext<P, Level>& got) {
    return ckks::measure_precision(expected, ckks::decrypt_slots(c.key, got)).worst_bits();
}

/// Squares at each level down to the last.
template <class P, int Level>
void check_down(const client<P>& c, const ckks::ciphertext<P, Level>& x, const slot_vector& z) {
    CAPTURE(Level);
    CHECK(x.scale == P::template scale_at<Level>);  // bit by bit
    CHECK(bits(c, z, x) > 17);
    if constexpr (Level > 0) {
        check_down(c, ckks::multiply_rescale(x, x, c.relinearization), combine(z, z, product));
    }
}

}  // namespace

TEST_CASE_TEMPLATE("products of ciphertexts are those of the slots, level by level", P, KEY_SWITCHING_SETS) {
    client<P> c;
    const slot_vector z = random_slots(P::slots, 1);
    check_down(c, c.encrypt(z), z);
}

TEST_CASE_TEMPLATE("a relinearized product decrypts to the product before it is rescaled", P,
                   KEY_SWITCHING_SETS) {
    client<P> c;
    const slot_vector x = random_slots(P::slots, 2);
    const slot_vector y = random_slots(P::slots, 3);
    const auto a = c.encrypt(x);
    const auto b = c.encrypt(y);
    auto of_two = ckks::multiply(a, b);
    ckks::add(of_two, ckks::square(a));
    CHECK(of_two.scale == a.scale * b.scale);
    const slot_vector expected = combine(combine(x, y, product), combine(x, x, product), sum);
    const auto whole = ckks::relinearize(of_two, c.relinearization);
    CHECK(bits(c, expected, whole) > 18);
    const auto once = ckks::relinearize_rescale(of_two, c.relinearization);
    const auto twice = ckks::rescale(whole);
    CHECK(once.scale == twice.scale);
    CHECK(bits(c, ckks::decrypt_slots(c.key, twice), once) > 22);
}

TEST_CASE("a key for a level serves all below it, and needs fewer special primes there") {
    using P = three_a_digit;
    client<P> c;
    const ckks::relinearization_key<P, 2> lower(c.key, c.source);
    const slot_vector z = random_slots(P::slots, 4);
    const auto expected = combine(z, z, product);
    CHECK(bits(c, expected, ckks::relinearize(ckks::square(c.encrypt<2>(z)), lower)) > 18);
    CHECK(bits(c, expected, ckks::relinearize(ckks::square(c.encrypt<1>(z)), lower)) > 18);
    CHECK(P::special_limbs<P::max_level> == 3);
    CHECK(P::special_limbs<0> == 2);  // a digit of 50 bits, special primes of 48
    const ckks::relinearization_key<P, 0> lowest(c.key, c.source);
    CHECK_THROWS_WITH_AS(
        static_cast<void>(ckks::square(c.encrypt<0>(z))),
        Contains("multiply: got a scale of 2^80.0, expected less than Q = 2^50.0: rescale first"),
        parameter_error);
    // At a scale whose square the last prime holds.
    const auto coarse = ckks::expand(ckks::encrypt(c.key, ckks::encode_slots<P, 0>(z, 0x1p22), c.source));
    CHECK(bits(c, expected, ckks::relinearize(ckks::square(coarse), lowest)) > 8);
}

TEST_CASE_TEMPLATE("adjusting the level keeps the values and takes the scale to that of the level", P,
                   KEY_SWITCHING_SETS) {
    client<P> c;
    const slot_vector z = random_slots(P::slots, 6);
    const auto fresh = c.encrypt(z);
    CHECK(ckks::adjust_level<P::max_level>(fresh).c0 == fresh.c0);
    const auto below = ckks::adjust_level<0>(fresh);
    CHECK(below.scale == P::template scale_at<0>);
    CHECK(bits(c, z, below) > 18);
    auto one_down = ckks::multiply_rescale(fresh, fresh, c.relinearization);
    ckks::add(one_down, ckks::adjust_level<P::max_level - 1>(fresh));
    CHECK(bits(c, combine(combine(z, z, product), z, sum), one_down) > 17);

    auto strange = fresh;
    strange.scale = 0x1p70;
    CHECK_THROWS_WITH_AS(static_cast<void>(ckks::adjust_level<0>(strange)),
                         Contains("adjust_level: got a scale of"), parameter_error);
    CHECK_THROWS_AS(static_cast<void>(ckks::adjust_level<P::max_level>(strange)), parameter_error);
}

TEST_CASE("a scale of 30 bits is adjusted as well") {
    using P = ckks::parameters<10, ckks::scaled_limbs<40, 2, 30>, 30, ckks::insecure_for_tests,
                               ckks::key_switching<1, ckks::special_bits<45>>>;
    client<P> c;
    const slot_vector z = random_slots(P::slots, 10);
    CHECK(bits(c, z, ckks::adjust_level<0>(c.encrypt(z))) > 12);
}

TEST_CASE("chains of many limbs and of more than 1024 bits multiply and add") {
    using P = ckks::parameters<10, ckks::scaled_limbs<50, 26, 41>, 41, ckks::insecure_for_tests,
                               ckks::key_switching<9, ckks::special_bits<50, 50, 50, 50, 50, 50, 50, 50>>>;
    CHECK(rns::modulus_bits<P::basis> > 1024);
    client<P> c;
    const slot_vector z = random_slots(P::slots, 11);
    // Numbers are encoded where the modulus fits a double.
    auto a = ckks::multiply_rescale(c.template encrypt<19>(z), c.template encrypt<19>(z), c.relinearization);
    ckks::add(a, ckks::adjust_level<18>(c.template encrypt<19>(z)));
    CHECK(bits(c, combine(combine(z, z, product), z, sum), a) > 17);
    ckks::ciphertext<P> widest;
    widest.largest = 0x1p900;
    CHECK_NOTHROW(ckks::add(widest, widest));
    widest.largest = 0x1p1010;
    CHECK_NOTHROW(ckks::add(widest, widest));
    CHECK(widest.largest == 0x1p1011);
    widest.largest = 0x1p1000;
    CHECK_NOTHROW(static_cast<void>(ckks::level_reduce<25>(widest)));
    CHECK_THROWS_AS(static_cast<void>(ckks::level_reduce<22>(widest)), encoding_error);
}

TEST_CASE("factors encoded for a level land on the scale of the next") {
    using P = three_a_digit;
    client<P> c;
    const slot_vector z = random_slots(P::slots, 7);
    auto a = ckks::multiply_rescale(c.encrypt(z), c.encrypt(z), c.relinearization);
    ckks::multiply_plain(a, ckks::encode_factor(a, z));
    auto b = ckks::rescale(a);
    CHECK(b.scale == P::scale_at<P::max_level - 2>);
    ckks::add(b, ckks::adjust_level<P::max_level - 2>(c.encrypt(z)));
    CHECK(bits(c, combine(combine(combine(z, z, product), z, product), z, sum), b) > 16);
}

TEST_CASE("scales that leave too little, and bounds that values could pass, are refused") {
    using P = one_a_digit;
    client<P> c;
    const slot_vector z = random_slots(P::slots, 8);
    auto a = c.encrypt(z);
    auto small = a;
    small.scale = 0x1p20;
    CHECK_THROWS_WITH_AS(static_cast<void>(ckks::multiply_rescale(a, small, c.relinearization)),
                         Contains("relinearize_rescale: got a scale of 2^60.0 and a prime of 2^"),
                         parameter_error);
    a.largest = 0x1p46;
    CHECK_THROWS_WITH_AS(static_cast<void>(ckks::multiply(a, a)), Contains("multiply: values could reach"),
                         encoding_error);
    a.largest = 1;
    CHECK(ckks::relinearize_rescale(ckks::square(a), c.relinearization).largest == 1);
}

TEST_CASE_TEMPLATE("the noise of a key switch keeps to its bound and to its deviation over a thousand keys",
                   P, KEY_SWITCHING_SETS) {
    constexpr int level = P::max_level;
    auto source = generator(9);
    std::vector<double> errors;
    const noise_bound bound = key_switch_noise<P, level, level>();
    for (std::size_t key = 0; key < trials(std::size_t{340}); ++key) {
        const ckks::secret_key<P> secret(source);
        const ckks::relinearization_key<P> relinearization(secret, source);
        // (0, 0, c2): all that there is comes from the switch.
        ckks::ciphertext_product<P, level> third;
        ckks::expand_uniform(source.next_seed(), tensafe::random::stream_domain::uplink, third.c2);
        auto switched = ckks::decrypt(secret, ckks::relinearize(third, relinearization));
        rns::for_each_limb<typename P::template basis_at<level>>([&]<int I>() {
            constexpr auto policy = rns::variable_arithmetic<P::basis::template prime<I>>;
            const auto s = secret.value().template limb<I>();
            std::vector<tensafe::arith::word> squared(P::degree);
            rns::limb::multiply(policy, squared, s, s);
            rns::limb::subtract_product(policy, switched.value.template limb<I>(),
                                        third.c2.template limb<I>(), squared,
                                        switched.value.template limb<I>());
        });
        for (const std::int64_t e : small_coefficients(ckks::inverse(std::move(switched)).value)) {
            errors.push_back(static_cast<double>(e));
        }
    }
    double squares = 0;
    double largest = 0;
    for (const double e : errors) {
        largest = std::max(largest, std::fabs(e));
        squares += e * e;
    }
    CHECK(largest <= bound.worst);
    CHECK(largest <= 6 * bound.deviation);
    const double deviation = std::sqrt(squares / static_cast<double>(errors.size()));
    CHECK(deviation < 1.1 * bound.deviation);
    CHECK(deviation > 0.5 * bound.deviation);
}

TEST_CASE("sets for key switching choose primes that keep the scale") {
    using P = ckks::n32768_depth10;
    CHECK(P::limbs == 11);
    for (const double scale :
         {P::scale_at<10>, P::scale_at<9>, P::scale_at<5>, P::scale_at<1>, P::scale_at<0>}) {
        CHECK(std::fabs(scale / 0x1p44 - 1) < 0x1p-21);
    }
    CHECK(P::special_limbs<10> == 6);
    CHECK(P::special_limbs<0> == 2);
    CHECK(ckks::n16384_depth5::scale_at<5> == 0x1p40);
    CHECK(std::fabs(ckks::n16384_depth5::scale_at<0> / 0x1p40 - 1) < 0x1p-18);
    CHECK(ckks::n8192_l4::scale_at<0> == 0x1p40);  // as it always was
    CHECK(ckks::n8192_l4::factor_scale<1> == ckks::n8192_l4::rescale_factor<1>);
}
