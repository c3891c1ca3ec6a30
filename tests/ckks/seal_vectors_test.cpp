#include <tensafe/arith/prime.hpp>
#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/precision.hpp>

#include <nlohmann/json.hpp>

#include "fixture.hpp"

using namespace tests;

// Known answers of another CKKS library. It shares the conventions of the NTT, so residues are compared bit
// for bit; its slots follow the powers of 3, ours those of 5. Fields of the file: an _evaluation array is
// limb after limb in bit-reversed order; moduli is the chain, the last prime dropped first, psi the smallest
// primitive 2N-th root modulo each; plain_ is the encoded slots modulo the first prime, before and after the
// NTT; ct_ the slots encrypted under the ternary secret_key at `scale`; multiplier_evaluation the weights
// encoded at plain_scale, the last prime; rescaled_ the product, rescaled once; slots_, weights_ and
// product_ are the real and imaginary parts of what they encode. docs/testing.md says where the file comes
// from.

namespace {

using namespace fixture;
using tensafe::arith::word;

using P = ckks::parameters<10, ckks::limb_primes<1152921504606791681, 1099511590913, 1099511592961>, 40,
                           ckks::insecure_for_tests>;

const nlohmann::json& vectors() {
    static const nlohmann::json parsed = [] {
        std::ifstream file(TENSAFE_TEST_DATA "/seal_n1024.json");
        REQUIRE(file.good());
        return nlohmann::json::parse(file);
    }();
    return parsed;
}

template <class T>
std::vector<T> array(const char* name) {
    return vectors().at(name).get<std::vector<T>>();
}

template <int Level>
rns::poly<P::basis_at<Level>, rns::evaluation_form> polynomial(const char* name) {
    const auto words = array<word>(name);
    tensafe::memory::buffer<word> storage(words.size());
    REQUIRE(words.size() == (Level + 1) * P::degree);
    std::copy(words.begin(), words.end(), storage.begin());
    return rns::poly<P::basis_at<Level>, rns::evaluation_form>(std::move(storage));
}

ckks::ciphertext<P> ciphertext() {
    return {polynomial<2>("ct_c0_evaluation"), polynomial<2>("ct_c1_evaluation"),
            vectors().at("scale").get<double>()};
}

ckks::plaintext<P, rns::evaluation_form> multiplier() {
    const auto words = polynomial<2>("multiplier_evaluation");
    rns::secret_poly<P::basis, rns::evaluation_form>::storage storage(words.words().size());
    std::copy(words.words().begin(), words.words().end(), storage.begin());
    return {rns::secret_poly<P::basis, rns::evaluation_form>(std::move(storage)),
            vectors().at("plain_scale").get<double>()};
}

ckks::secret_key<P> key() {
    return ckks::secret_key<P>(std::span<const std::int8_t>(array<std::int8_t>("secret_key")));
}

/// Values in the order of the powers of 5. Each power of 3 is one of 5, or the negative of one, and there the
/// value is the conjugate.
slot_vector slots(const std::string& name) {
    const auto re = array<double>((name + "_re").c_str());
    const auto im = array<double>((name + "_im").c_str());
    constexpr std::size_t order = 2 * P::degree;
    std::vector<std::size_t> place(order);
    for (std::size_t j = 0, power = 1; j < P::slots; ++j, power = power * 5 % order) {
        place[power] = j;
    }
    slot_vector result(P::slots);
    for (std::size_t i = 0, power = 1; i < P::slots; ++i, power = power * 3 % order) {
        const std::complex<double> value(re[i], im[i]);
        if (power % 4 == 1) {
            result[place[power]] = value;
        } else {
            result[place[order - power]] = std::conj(value);
        }
    }
    return result;
}

template <int Level>
slot_vector decrypted(const ckks::ciphertext<P, Level>& c) {
    return ckks::decrypt_slots(key(), c);
}

/// The largest distance of two polynomials in coefficient form, modulo each prime.
template <class Basis>
word distance(const rns::poly<Basis, rns::evaluation_form>& a,
              const rns::poly<Basis, rns::evaluation_form>& b) {
    auto difference = a;
    rns::subtract(difference, b);
    const auto coefficients = rns::inverse(std::move(difference));
    word largest = 0;
    rns::for_each_limb<Basis>([&]<int I>() {
        for (const word x : coefficients.template limb<I>()) {
            largest = std::max(largest, std::min(x, Basis::template prime<I> - x));
        }
    });
    return largest;
}

}  // namespace

TEST_CASE("The parameters are those of the vectors, and so are the roots of unity") {
    CHECK(vectors().at("degree").get<std::size_t>() == P::degree);
    CHECK(array<word>("moduli") == std::vector<word>(P::basis::primes.begin(), P::basis::primes.end()));
    const auto psi = array<word>("psi");
    REQUIRE(psi.size() == 3);
    for (std::size_t i = 0; i < psi.size(); ++i) {
        CHECK(tensafe::arith::smallest_primitive_root(P::basis::primes[i], P::log_n) == psi[i]);
    }
    CHECK(rns::shared_plan<P::log_n, P::basis::prime<0>>().psi() == psi[0]);
}

TEST_CASE("Both directions of the NTT give the same bits") {
    const auto coefficients = array<word>("plain_coefficient");
    const auto values = array<word>("plain_evaluation");
    REQUIRE(coefficients.size() == P::degree);
    tensafe::memory::buffer<word> limb(P::degree);
    const auto& plan = rns::shared_plan<P::log_n, P::basis::prime<0>>();
    std::copy(coefficients.begin(), coefficients.end(), limb.begin());
    tensafe::ntt::forward(plan, limb.span());
    CHECK(std::equal(values.begin(), values.end(), limb.begin(), limb.end()));
    tensafe::ntt::inverse(plan, limb.span());
    CHECK(std::equal(coefficients.begin(), coefficients.end(), limb.begin(), limb.end()));
}

TEST_CASE("Slots encode to the same coefficients, within one unit") {
    const auto expected = array<word>("plain_coefficient");
    const auto p = ckks::encode_slots<P>(slots("slots"), vectors().at("scale").get<double>());
    constexpr word q = P::basis::prime<0>;
    const auto got = p.value.limb<0>();
    std::size_t different = 0;
    for (std::size_t k = 0; k < P::degree; ++k) {
        const word apart = (got[k] + q - expected[k]) % q;
        CHECK(std::min(apart, q - apart) <= 1);
        different += apart != 0 ? 1U : 0U;
    }
    // Two transforms in double precision round differently only close to a half.
    CHECK(different <= 10);
}

TEST_CASE("A ciphertext made elsewhere decrypts and decodes to its slots") {
    CHECK(ckks::measure_precision(slots("slots"), decrypted(ciphertext())).worst_bits() > 30);
}

TEST_CASE("The multiplier is the weights at the scale of the last prime, within one unit") {
    const double scale = vectors().at("plain_scale").get<double>();
    CHECK(scale == P::rescale_factor<2>);
    const auto p = ckks::forward(ckks::encode_slots<P>(slots("weights"), scale));
    rns::poly<P::basis, rns::evaluation_form> ours;
    rns::add(ours, p.value);
    CHECK(distance(ours, polynomial<2>("multiplier_evaluation")) <= 1);
    const slot_vector decoded = ckks::decode_slots(ckks::inverse(multiplier()));
    CHECK(ckks::measure_precision(slots("weights"), decoded).worst_bits() > 34);
}

TEST_CASE("Product and rescale give the same bits, and the slots of the product") {
    auto c = ciphertext();
    ckks::multiply_plain(c, multiplier());
    const auto ours = ckks::rescale(c);
    CHECK(ours.scale == vectors().at("rescaled_scale").get<double>());
    const ckks::ciphertext<P, 1> theirs{polynomial<1>("rescaled_c0_evaluation"),
                                        polynomial<1>("rescaled_c1_evaluation"), ours.scale};
    CHECK(ours.c0 == theirs.c0);
    CHECK(ours.c1 == theirs.c1);
    const slot_vector expected = slots("product");
    CHECK(ckks::measure_precision(expected, decrypted(ours)).worst_bits() > 29);
    CHECK(ckks::measure_precision(expected, decrypted(theirs)).worst_bits() > 29);
}
