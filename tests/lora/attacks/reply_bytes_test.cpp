// Protected replies look like random bytes, whatever A is. Every generator has a fixed seed, so that the
// p-values below are the same in every run: a test that passes has no false alarms, though 1e-3 alone would
// give some.

#include "attack.hpp"

namespace {

using namespace attacks;

constexpr std::size_t rank = 16;
constexpr std::size_t d = 300;
constexpr std::size_t least_bytes = 1'000'000;

using histogram = std::array<double, 256>;

double total(const histogram& h) {
    double sum = 0;
    for (const double x : h) {
        sum += x;
    }
    return sum;
}

/// Bytes of c1, whole ones since there are 1024 values, of as many replies as it takes.
histogram count_bytes(const matrix& a, std::uint64_t session_number, bool with_zeros) {
    const tile_server server(a);
    const auto& layout = server.layout();
    sides<P> s(session_number, layout.subring_log_n());
    histogram counts{};
    tile_server::reply_type reply;
    for (std::uint64_t t = 0; total(counts) < least_bytes; ++t) {
        const auto query = s.client.encrypt(server.plan(), random_state(d, 100 * session_number + t));
        if (with_zeros) {
            server.apply(query.request, s.pool, s.work, reply);
        } else {
            auto products = bare_products(server, query.request);
            reply.outputs.resize(products.size());
            for (std::size_t o = 0; o < products.size(); ++o) {
                output_bytes bytes;
                pack_alone(without_zero<P>(std::move(products[o]), layout.subring_log_n()), layout.targets(o),
                           server.plan().reply_bits(o), bytes);
                reply.outputs[o] = {bytes.c0, bytes.c1};
            }
        }
        for (const auto& output : reply.outputs) {
            for (const std::uint8_t byte : output.c1) {
                counts[byte] += 1;
            }
        }
    }
    return counts;
}

double uniform_p(const histogram& h) {
    const double expected = total(h) / 256;
    double chi_square = 0;
    for (const double x : h) {
        chi_square += (x - expected) * (x - expected) / expected;
    }
    return chi_square_p(chi_square, 255);
}

/// Whether two samples are of one distribution, whatever it is.
double same_p(const histogram& a, const histogram& b) {
    const double ratio = std::sqrt(total(b) / total(a));
    double chi_square = 0;
    for (std::size_t k = 0; k < a.size(); ++k) {
        const double difference = a[k] * ratio - b[k] / ratio;
        chi_square += a[k] + b[k] > 0 ? difference * difference / (a[k] + b[k]) : 0;
    }
    return chi_square_p(chi_square, 255);
}

/// Rows of one block of equal weights each: as far from random as A can be.
matrix structured() {
    matrix a(rank, d);
    for (std::size_t r = 0; r < rank; ++r) {
        for (std::size_t k = 0; k < d; ++k) {
            a.row(r)[k] = k / 19 == r ? 1.0F : 0.0F;
        }
    }
    return a;
}

}  // namespace

TEST_CASE("a megabyte of protected replies is uniform, and the same for a zero and for a structured A") {
    const histogram zeros = count_bytes(matrix(rank, d), 12, true);
    const histogram ones = count_bytes(structured(), 13, true);
    REQUIRE(total(zeros) >= least_bytes);
    REQUIRE(total(ones) >= least_bytes);
    MESSAGE("p for A = 0: ", uniform_p(zeros), ", structured: ", uniform_p(ones),
            ", both: ", same_p(zeros, ones));
    CHECK(uniform_p(zeros) > 1e-3);
    CHECK(uniform_p(ones) > 1e-3);
    CHECK(same_p(zeros, ones) > 1e-3);
}

TEST_CASE("without the encryption of zero the same test sees A = 0 at once") {
    const histogram zeros = count_bytes(matrix(rank, d), 12, false);
    CHECK(uniform_p(zeros) < 1e-9);
    CHECK(zeros[0] == total(zeros));
    CHECK(same_p(zeros, count_bytes(structured(), 13, true)) < 1e-9);
}
