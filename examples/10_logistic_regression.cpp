// A model in the clear on encrypted rows: 143 patients in one ciphertext, and the probabilities that
// scikit-learn gives them. Client and server exchange messages as bytes.

#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/linear_transform.hpp>
#include <tensafe/ckks/polynomial.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/wire/ciphertext.hpp>
#include <tensafe/wire/evaluation_key.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace ckks = tensafe::ckks;
namespace wire = tensafe::wire;
using params = ckks::n16384_depth5;  // N = 16384: 8192 slots, five products one after the other

namespace {

constexpr std::size_t features = 30;
constexpr std::size_t slots_of_a_patient = 32;
constexpr double largest_logit = 10;
constexpr int top = params::max_level;

using bytes = std::vector<std::uint8_t>;
using layer = ckks::linear_transform<params, ckks::matrix<1, slots_of_a_patient>>;  // a matrix of one row

/// The numbers of each line.
std::vector<std::vector<double>> read_csv(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::vector<double>> rows;
    for (std::string line; std::getline(file, line);) {
        std::ranges::replace(line, ',', ' ');
        std::istringstream numbers(line);
        rows.emplace_back();
        for (double x = 0; numbers >> x;) {
            rows.back().push_back(x);
        }
        if (rows.back().size() != (rows.size() == 1 ? features + 1 : features + 2)) {
            throw tensafe::format_error(path + ": line " + std::to_string(rows.size()) + " is not whole");
        }
    }
    if (rows.size() < 2 || rows.size() > 1 + params::slots / slots_of_a_patient) {
        throw tensafe::format_error(path + ": got " + std::to_string(rows.size()) +
                                    " lines, expected a model and up to 256 patients");
    }
    return rows;
}

/// What the server sends back, by its model: the weight of each feature, and the intercept.
bytes answer(std::vector<double> weights, const bytes& patients, const bytes& relinearization,
             const bytes& galois) {
    // The logistic function of ten times its argument, so that what it is given lies between -1 and 1.
    for (double& weight : weights) {
        weight /= largest_logit;
    }
    const double intercept = weights.back();
    weights.pop_back();
    const layer model(weights, features);
    const auto logistic =
        ckks::chebyshev<15>([](double t) { return 1 / (1 + std::exp(-largest_logit * t)); });

    // The first slot of a patient holds its sum; the others hold parts of two patients', which show the
    // weights and could leave the interval where values grow beyond all bounds: who cannot exclude either
    // multiplies them by 0, for a level.
    auto logits =
        ckks::multiply_rescale(model, ckks::expand(wire::read_seeded_ciphertext<params, top>(patients)),
                               wire::read_galois_keys<params, top, layer::rotations>(galois));
    ckks::add_scalar(logits, intercept);
    return wire::write_ciphertext(
        ckks::evaluate(logistic, logits, wire::read_relinearization_key<params>(relinearization)));
}

}  // namespace

int main(int argc, char** argv) {
    try {
        auto rows = read_csv(argc > 1 ? argv[1] : TENSAFE_EXAMPLE_DATA "/breast_cancer/test_rows.csv");
        const std::vector<double> weights = rows.front();
        rows.erase(rows.begin());

        // The client encrypts all patients, one beside the other, and sends that and its keys. A seed stands
        // for half of each.
        tensafe::random::generator generator;
        const ckks::secret_key<params> secret(generator);
        std::vector<double> slots(params::slots);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            std::copy_n(rows[i].begin(), features,
                        slots.begin() + static_cast<std::ptrdiff_t>(i * slots_of_a_patient));
        }
        const bytes patients = wire::write_seeded_ciphertext(
            ckks::encrypt(secret, ckks::encode_slots<params>(slots), generator));
        const bytes relinearization =
            wire::write_relinearization_key(ckks::relinearization_key<params>(secret, generator));
        const bytes galois =
            wire::write_galois_keys(ckks::galois_keys<params, layer::rotations>(secret, generator));

        const bytes reply = answer(weights, patients, relinearization, galois);

        const auto probabilities = wire::read_ciphertext<params, 0>(reply);
        const auto answers = ckks::decrypt_slots(secret, probabilities);
        std::size_t right = 0;
        std::size_t alike = 0;
        double largest_difference = 0;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const double probability = answers[i * slots_of_a_patient].real();
            const double diagnosis = rows[i][features];
            const double of_scikit_learn = rows[i][features + 1];
            right += (probability > 0.5) == (diagnosis > 0.5) ? 1 : 0;
            alike += (probability > 0.5) == (of_scikit_learn > 0.5) ? 1 : 0;
            largest_difference = std::max(largest_difference, std::fabs(probability - of_scikit_learn));
        }
        std::cout << rows.size() << " patients: " << alike << " as scikit-learn predicts, " << right
                  << " right; probabilities differ by at most " << largest_difference << '\n';
        return alike == rows.size() && largest_difference < 0.005 ? 0 : 1;
    } catch (const tensafe::error& e) {
        std::cerr << "logistic_regression: " << e.what() << '\n';
        return 1;
    }
}
