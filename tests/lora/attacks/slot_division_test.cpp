// The attack that gave `replicated_slots` their name as a packing that reveals: whoever holds the key
// decrypts every slot of a product, h_j * A_ij, and divides by h_j.

#include "attack.hpp"

namespace {

using namespace attacks;
using packing = lora::replicated_slots<>;
using protected_server = lora::server<P, packing, lora::protects_adapter_rows<>>;

constexpr std::size_t rank = 8;
constexpr std::size_t d = 60;  // stride 4: one product of eight rows, eight target coefficients

/// The state, without entries so small that dividing by them only shows noise.
std::vector<float> state() {
    std::vector<float> h = random_state(d, 2);
    for (float& x : h) {
        x += x < 0 ? -0.25F : 0.25F;
    }
    return h;
}

/// All slots of a product over h, at the places of A's entries.
std::vector<double> divided(const std::vector<std::complex<double>>& slots, const std::vector<float>& h) {
    const lora::detail::slot_geometry<P, packing> layout(rank, d);
    std::vector<double> a(rank * d);
    for (std::size_t r = 0; r < layout.stride; ++r) {
        for (std::size_t t = 0; t < d; ++t) {
            const std::complex<double> entry = slots[r + layout.stride * t] / static_cast<double>(h[t]);
            a[layout.row(0, r, 0) * d + t] = entry.real();
            a[layout.row(0, r, 1) * d + t] = entry.imag();
        }
    }
    return a;
}

/// c1*s at every coefficient, as fractions of Q: all that the client can make of a protected reply where no
/// c0 is sent.
std::vector<std::uint64_t> decrypted_c1(const ckks::secret_key<P>& key, const std::vector<std::uint8_t>& c1,
                                        int bits) {
    output_bytes whole{std::vector<std::uint8_t>(tensafe::memory::packed_bytes(P::degree, bits)), c1};
    std::vector<double> values(P::degree);
    lora::decryption_workspace<P> work;
    lora::decrypt_output<P>(key, lora::toeplitz_row(key.coefficients()), whole, P::log_n, P::degree, bits, 0,
                            work, values);
    std::vector<std::uint64_t> result;
    const double unit = std::exp2(bits) / static_cast<double>(modulus<basis_of<P>>());
    for (const double x : values) {
        result.push_back(static_cast<std::uint64_t>(std::llround(x * unit)) << (64 - bits));
    }
    return result;
}

std::vector<double> reals(const matrix& a) {
    return {a.values.begin(), a.values.end()};
}

std::vector<double> reals(const std::vector<std::uint64_t>& x) {
    std::vector<double> result;
    for (const std::uint64_t fraction : x) {
        result.push_back(centred(fraction));
    }
    return result;
}

}  // namespace

TEST_CASE("the key owner divides the slots of a bare reply by h and has A, to six decimals") {
    const matrix a = random_matrix(rank, d, 1);
    const std::vector<float> h = state();
    const lora::server<P, packing, lora::reveals_adapter_rows> server(a);
    const ckks::secret_key<P> key(numbered_seed(1));
    lora::client<P> client(ckks::secret_key<P>(numbered_seed(1)), numbered_generator(2));
    const auto reply = server.apply(client.encrypt(server.plan(), h).request);
    REQUIRE(reply.outputs.size() == 1);
    const std::vector<double> found =
        divided(ckks::decode_slots(ckks::inverse(ckks::decrypt(key, reply.outputs[0]))), h);
    double worst = 0;
    for (std::size_t k = 0; k < found.size(); ++k) {
        worst = worse(worst, std::fabs(found[k] - static_cast<double>(a.values[k])));
    }
    MESSAGE("largest error of a recovered weight: ", worst);
    CHECK(worst < 1e-6);
    CHECK(correlation(found, reals(a)) > 0.999999);
}

TEST_CASE("the same division of a protected reply gives numbers that A has no part in") {
    const matrix a = random_matrix(rank, d, 1);
    const std::vector<float> h = state();
    const protected_server server(a);
    const auto& layout = server.layout();
    const lora::reply_budget budget = layout.budget();
    sides<P> s(1, layout.subring_log_n());
    const auto query = s.client.encrypt(server.plan(), h);
    REQUIRE(layout.outputs() == 1);
    const lora::traced_product<P> bare = bare_products(server, query.request)[0];
    protected_server::reply_type reply;
    server.apply(query.request, s.pool, s.work, reply);

    // The reply is a good one: it carries the answers.
    const std::vector<double> answers = s.client.decrypt(server.plan(), reply, query);
    CHECK(correlation(answers, product(a, h)) > 0.9999);

    const auto division = [&](const std::vector<std::uint8_t>& c0, const std::vector<std::uint8_t>& c1) {
        // c0 where it was sent, zero elsewhere.
        std::vector<word> sent(layout.targets(0));
        tensafe::memory::unpack_bits(std::span<const std::uint8_t>(c0), budget.reply_bits, std::span(sent));
        std::vector<std::uint64_t> message = decrypted_c1(s.key, c1, budget.reply_bits);
        const std::size_t step = P::degree / sent.size();
        for (std::size_t k = 0; k < sent.size(); ++k) {
            message[k * step] += sent[k] << (64 - budget.reply_bits);
        }
        std::vector<std::int64_t> integers;
        for (const std::uint64_t x : message) {
            integers.push_back(std::llround(centred(x) * 0x1p40));
        }
        ckks::plaintext<P, rns::coefficient_form> whole{{}, 0x1p40};
        rns::for_each_limb<P::basis>([&]<int I>() {
            const auto values = lifted<P::basis>(integers);
            std::copy_n(values.template limb<I>().begin(), P::degree, whole.value.template limb<I>().begin());
        });
        return divided(ckks::decode_slots(whole), h);
    };
    const double found = correlation(division(reply.outputs[0].c0, reply.outputs[0].c1), reals(a));
    MESSAGE("correlation of the recovered weights with A: ", found);
    CHECK(std::fabs(found) < null_correlation(rank * d));

    // A stronger attacker has a guess of A, checks what that would give at the coefficients that are not
    // sent, and guesses right: c1*W*s. With the encryption of zero removed and nothing else, it knows.
    evaluation_poly<P> expected = bare.c1;
    rns::multiply(expected, expected, s.key.value());
    const auto expected_fractions = fractions(rns::inverse(std::move(expected)));
    output_bytes unprotected;
    pack_alone(without_zero<P>(bare, layout.subring_log_n()), layout.targets(0), budget.reply_bits,
               unprotected);
    const auto without = decrypted_c1(s.key, unprotected.c1, budget.reply_bits);
    const auto with = decrypted_c1(s.key, reply.outputs[0].c1, budget.reply_bits);
    MESSAGE(
        "confirmation of the true A without a zero: ", concentration(difference(without, expected_fractions)),
        ", with one: ", concentration(difference(with, expected_fractions)));
    CHECK(concentration(difference(without, expected_fractions)) > 0.999);
    CHECK(correlation(reals(without), reals(expected_fractions)) > 0.999);
    CHECK(std::fabs(concentration(difference(with, expected_fractions))) < null_concentration(P::degree));
    CHECK(std::fabs(correlation(reals(with), reals(expected_fractions))) < null_correlation(P::degree));
    CHECK(uniformity_p(with) > 1e-6);
}
