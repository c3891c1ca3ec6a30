#include <tensafe/ckks/ciphertext.hpp>

#include "fixture.hpp"

using namespace tests;

namespace {

using namespace fixture;

static_assert(std::is_copy_constructible_v<ckks::ciphertext<four_limbs>>);
static_assert(std::is_nothrow_move_constructible_v<ckks::ciphertext<four_limbs>>);
static_assert(std::is_nothrow_move_assignable_v<ckks::seeded_ciphertext<four_limbs>>);
static_assert(!std::is_same_v<ckks::ciphertext<four_limbs, 2>, ckks::ciphertext<four_limbs, 1>>);

template <class Basis>
using polynomial = rns::poly<Basis, rns::evaluation_form>;

template <class Basis>
polynomial<Basis> uniform(std::uint8_t seed, random::stream_domain domain) {
    polynomial<Basis> p(tensafe::memory::uninitialized);
    ckks::expand_uniform(numbered_seed(seed), domain, p);
    return p;
}

}  // namespace

TEST_CASE("A new ciphertext is an encryption of zero at the set's scale") {
    const ckks::ciphertext<four_limbs, 1> c;
    CHECK(c.scale == four_limbs::scale);
    CHECK(c.c0.words().size() == 2 * four_limbs::degree);
    CHECK(std::all_of(c.c0.words().begin(), c.c0.words().end(), [](auto x) { return x == 0; }));
    CHECK(c.c0 == c.c1);
}

TEST_CASE("The uniform half depends on seed and domain, and limb I on nothing else but lane I") {
    using basis = five_limbs::basis;
    const auto p = uniform<basis>(1, random::stream_domain::uplink);
    CHECK(p == uniform<basis>(1, random::stream_domain::uplink));
    CHECK(!(p == uniform<basis>(2, random::stream_domain::uplink)));
    CHECK(!(p == uniform<basis>(1, random::stream_domain::public_key)));

    // A lower level is a prefix: the stream of a limb does not move when others are dropped.
    const auto shorter = uniform<five_limbs::basis_at<1>>(1, random::stream_domain::uplink);
    CHECK(std::equal(shorter.words().begin(), shorter.words().end(), p.words().begin()));

    rns::for_each_limb<basis>([&]<int I>() {
        constexpr auto q = basis::prime<I>;
        const auto limb = p.template limb<I>();
        double mean = 0;
        bool below = true;
        for (const auto x : limb) {
            below &= x < q;
            mean += static_cast<double>(x) / static_cast<double>(q) / static_cast<double>(limb.size());
        }
        CHECK(below);
        CHECK(std::fabs(mean - 0.5) < 0.05);  // seven standard deviations
        std::array<tensafe::arith::word, basis::degree> lane;
        random::sample_uniform(numbered_seed(1), random::stream_domain::uplink, I, q, lane);
        CHECK(std::equal(lane.begin(), lane.end(), limb.begin()));
    });
}

TEST_CASE("Expanding keeps c0 and the scale, and puts the seed's polynomial into c1") {
    ckks::seeded_ciphertext<four_limbs, 2> seeded;
    seeded.c0 = uniform<four_limbs::basis_at<2>>(3, random::stream_domain::error);
    seeded.seed = numbered_seed(4);
    seeded.scale = 0x1p33;
    const ckks::ciphertext<four_limbs, 2> c = ckks::expand(seeded);
    CHECK(c.scale == 0x1p33);
    CHECK(c.c0 == seeded.c0);
    CHECK(c.c1 == uniform<four_limbs::basis_at<2>>(4, random::stream_domain::uplink));
    polynomial<four_limbs::basis_at<2>> c1;
    ckks::expand_c1(seeded, c1);
    CHECK(c1 == c.c1);
}
