// A malicious client encrypts polynomials that encode no hidden state. It gets one linear equation about A
// for each coefficient that is sent, as precise as the modulus allows: some more than an honest one, so that
// query limits have to be counted in coefficients.

#include <tensafe/encoding/slot_transform.hpp>
#include <tensafe/interop/svd.hpp>

#include <Eigen/Dense>

#include "../../../studies/few_bits.hpp"
#include "attack.hpp"

namespace {

using namespace attacks;
using message = rns::secret_poly<basis_of<P>, rns::coefficient_form>;

/// A request of one ciphertext that encrypts any polynomial.
template <class Layout>
lora::request<P> request_of(const Layout& layout, const ckks::secret_key<P>& key, message m,
                            random::generator& generator) {
    REQUIRE(layout.inputs() == 1);
    lora::request<P> request{layout.d, layout.entries_per_input(), generator.next_seed(), {{}}};
    ckks::encryption_workspace<P> work;
    const auto c0 = ckks::encrypt_c0(key, std::move(m), generator, request.seed, 0, work);
    rns::for_each_limb<basis_of<P>>([&]<int I>() {
        constexpr int bits = std::bit_width(basis_of<P>::prime<I>);
        std::vector<std::uint8_t> limb(tensafe::memory::packed_bytes(P::degree, bits));
        tensafe::memory::pack_bits(std::span<const word>(c0.template limb<I>()), bits, std::span(limb));
        request.inputs[0].insert(request.inputs[0].end(), limb.begin(), limb.end());
    });
    return request;
}

/// The target coefficients of all outputs, as integers modulo Q.
template <class Server>
std::vector<double> target_coefficients(const Server& server, sides<P>& s, const lora::request<P>& request) {
    const auto& layout = server.layout();
    const lora::reply_budget budget = layout.budget();
    typename Server::reply_type reply;
    server.apply(request, s.pool, s.work, reply);
    std::vector<double> result;
    lora::decryption_workspace<P> reading;
    for (std::size_t o = 0; o < layout.outputs(); ++o) {
        std::vector<double> values(std::size_t{1} << layout.subring_log_n());
        lora::decrypt_output<P>(s.key, lora::toeplitz_row(s.key.coefficients()), reply.outputs[o],
                                layout.subring_log_n(), layout.targets(o), layout.reply_bits(budget, o), 0,
                                reading, values);
        result.insert(result.end(), values.begin(), values.end());
    }
    return result;
}

}  // namespace

TEST_CASE("states of one entry, larger than the range is made for, show the very integers of A in d tokens") {
    // The range is for an answer as long as its row; an entry is about 1/sqrt(d) of that. A client that
    // encodes a state of one entry larger than `encrypt` does uses the room: floods are then below half an
    // integer.
    constexpr std::size_t d = 256;
    constexpr double excess = 3.5;
    const matrix a = random_matrix(4, d, 1);
    const lora::server<P> server(a);
    const auto& layout = server.layout();
    const lora::reply_budget budget = layout.budget();
    sides<P> s(15, layout.subring_log_n());
    random::generator generator = numbered_generator(15);
    std::size_t exact = 0;
    for (std::size_t k = 0; k < d; ++k) {
        std::vector<float> h(d);
        h[k] = 1;
        const double scale = excess * layout.message_scale(budget, 1);
        lora::message_workspace<P> work;
        layout.encode_message(view(h), 0, scale, ~std::uint64_t{0}, work);
        const auto request = request_of(layout, s.key, std::move(work.message), generator);
        const std::vector<double> answers = target_coefficients(server, s, request);
        for (std::size_t r = 0; r < 4; ++r) {
            const double integer =
                std::round(static_cast<double>(a.row(r)[k]) * budget.weight_norm / layout.row_norm);
            exact += static_cast<std::size_t>(std::round(answers[r] / scale) == integer);
        }
    }
    MESSAGE(exact, " of ", 4 * d, " integers of A are found exactly");
    CHECK(exact > 4 * d * 99 / 100);
}

TEST_CASE_TEMPLATE("d/4 chosen requests read an A of 4 bits exactly, and with answers of 6 bits they do not",
                   Precision, lora::standard_precision, lora::answer_bits<6>) {
    const studies::few_bit_matrix wanted(4, 256, 7, 18);
    const lora::server<P, lora::coefficient_tiles<4>,
                       lora::protects_adapter_rows<lora::worst_case, Precision>>
        server(wanted.a);
    sides<P> s(18, server.layout().subring_log_n());
    const studies::few_bit_reading four = read_few_bits(server, s.client, s.pool, wanted, 4);
    const studies::few_bit_reading one = read_few_bits(server, s.client, s.pool, wanted, 1);
    CHECK(four.requests == 256 / 4);
    CHECK(one.exact == wanted.q.size());
    MESSAGE(four.exact, " of ", wanted.q.size(), " entries, four in an answer of ",
            server.plan().budget().channel_bits(), " bits");
    if (std::is_same_v<Precision, lora::standard_precision>) {
        CHECK(four.exact > wanted.q.size() * 97 / 100);
    } else {
        // Of sixteen values one is guessed with a chance of 1/15; the highest digits are still read.
        CHECK(four.exact < wanted.q.size() * 7 / 10);
    }
}

TEST_CASE("slots that serve one row each answer two hidden states at once: as real and as imaginary part") {
    using packing = lora::replicated_slots<lora::single_rows>;
    constexpr std::size_t rank = 4;
    constexpr std::size_t d = 100;
    const matrix a = random_matrix(rank, d, 1);
    const lora::server<P, packing, lora::protects_adapter_rows<>> server(a);
    const auto& layout = server.layout();
    const lora::reply_budget budget = layout.budget();
    REQUIRE(layout.outputs() == 1);
    REQUIRE(layout.targets(0) == 2 * rank);
    sides<P> s(16, layout.subring_log_n());
    random::generator generator = numbered_generator(16);

    const std::vector<float> states[2] = {random_state(d, 1), random_state(d, 2)};
    const auto shape = layout.slots();
    std::vector<std::complex<double>> slots(P::slots);
    std::vector<std::complex<double>> imaginary(P::slots);
    shape.replicate(view(states[0]), 0, ~std::uint64_t{0}, std::span(slots));
    shape.replicate(view(states[1]), 0, ~std::uint64_t{0}, std::span(imaginary));
    for (std::size_t k = 0; k < slots.size(); ++k) {
        slots[k] += std::complex<double>(0, 1) * imaginary[k];
    }
    // As long as both states together, which is what the range allows.
    const double scale = layout.message_scale(budget, std::hypot(norm(states[0]), norm(states[1]))) / 2;
    const auto coefficients = target_coefficients(
        server, s,
        request_of(layout, s.key,
                   ckks::encode_slots<P>(std::span<const std::complex<double>>(slots), scale).value,
                   generator));
    std::vector<std::complex<double>> sums(shape.stride);
    tensafe::encoding::shared_slot_transform(layout.subring_log_n())
        .to_slots(std::span<const double>(coefficients), std::span(sums));
    std::vector<double> answers[2];
    for (std::size_t r = 0; r < rank; ++r) {
        answers[0].push_back(sums[r].real());
        answers[1].push_back(sums[r].imag());
    }
    CHECK(correlation(answers[0], product(a, states[0])) > 0.9999);
    CHECK(correlation(answers[1], product(a, states[1])) > 0.9999);
}

TEST_CASE("checksum rows give a malicious client further equations about A, but coarse ones") {
    // x fills all blocks, where a hidden state fills the first. Row r then counts in every target coefficient
    // of its tile with another block, and in every one of the checksum rows' tile with a sum of blocks.
    using tiles = lora::coefficient_tiles<4>;
    constexpr std::size_t rows = 4;
    constexpr std::size_t d = 64;
    constexpr std::size_t block = P::degree / rows;
    constexpr std::size_t tokens = d / 2 + 4;
    const matrix a = random_matrix(rows, d, 1);
    const lora::server<P, tiles, lora::protects_adapter_rows<lora::average_case<>>> server(a);
    const auto& layout = server.layout();
    const lora::reply_budget budget = layout.budget();
    REQUIRE(layout.outputs() == 2);
    REQUIRE(layout.targets(1) == rows);
    sides<P> s(17, layout.subring_log_n());
    random::generator generator = numbered_generator(17);
    tests::random_numbers dice(17);
    std::normal_distribution<double> normal;

    const auto unknowns = static_cast<Eigen::Index>(rows * d);
    Eigen::MatrixXd equations = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(2 * rows * tokens), unknowns);
    Eigen::VectorXd answers(equations.rows());
    Eigen::Index next = 0;
    double deviation = 0;
    double check_deviation = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
        std::vector<double> x(P::degree);
        for (std::size_t k = 0; k < P::degree; ++k) {
            x[k] = k % block < d ? normal(dice) : 0;
        }
        const double scale = layout.message_scale(budget, norm(x)) / 2;
        const auto coefficients = target_coefficients(
            server, s,
            request_of(layout, s.key, ckks::encode_coefficients<P>(std::span<const double>(x), scale).value,
                       generator));
        // x_block of the row that stands in block `row` of a plaintext, as coefficient k of the product meets
        // it.
        const auto met = [&](std::size_t k, std::size_t row, std::size_t j) {
            return k >= row ? x[(k - row) * block + j] : -x[P::degree - (row - k) * block + j];
        };
        for (std::size_t k = 0; k < rows; ++k) {
            for (std::size_t r = 0; r < rows; ++r) {
                for (std::size_t j = 0; j < d; ++j) {
                    const auto column = static_cast<Eigen::Index>(r * d + j);
                    equations(next, column) = met(k, r, j);
                    for (std::size_t m = 0; m < rows; ++m) {
                        equations(next + 1, column) += lora::detail::checksum_weight(r, m) * met(k, m, j);
                    }
                }
            }
            const double unit = layout.row_norm / (budget.weight_norm * scale);
            deviation = std::hypot(budget.flood.deviation(), budget.rounding_deviation) * unit;
            check_deviation =
                std::exp2(budget.reply_bits - budget.checksum_bits) * budget.rounding_deviation * unit;
            answers(next) = coefficients[k] * unit;
            answers(next + 1) = coefficients[rows + k] * unit;
            next += 2;
        }
    }
    // The most likely A, for weights of one size: checksum rows are sent with so few bits that theirs are
    // worth less.
    const auto error_with = [&](bool checks) {
        const double weight = norm(a.values) / std::sqrt(static_cast<double>(rows * d));
        Eigen::MatrixXd system = equations * weight;
        Eigen::VectorXd right = answers;
        for (Eigen::Index e = 0; e < system.rows(); ++e) {
            const double precision = e % 2 == 0 ? 1 / deviation : checks ? 1 / check_deviation : 0;
            system.row(e) *= precision;
            right(e) *= precision;
        }
        const Eigen::MatrixXd normal_equations =
            system.transpose() * system + Eigen::MatrixXd::Identity(unknowns, unknowns);
        const Eigen::VectorXd found = normal_equations.ldlt().solve(system.transpose() * right) * weight;
        double squares = 0;
        for (std::size_t k = 0; k < rows * d; ++k) {
            const double error = found(static_cast<Eigen::Index>(k)) - static_cast<double>(a.values[k]);
            squares += error * error;
        }
        return std::sqrt(squares) / norm(a.values);
    };
    MESSAGE("relative error of A, d = ", d, ", from ", tokens, " tokens: ", error_with(true),
            ", without the checksum rows ", error_with(false));
    CHECK(error_with(false) > 0.5);
    CHECK(error_with(true) < error_with(false) - 0.03);
    CHECK(error_with(true) > 0.2);  // as precise as the others they would leave less than 0.2
}
