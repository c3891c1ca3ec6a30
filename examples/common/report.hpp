#pragma once

#include <tensafe/lora/adapter/adapter.hpp>

#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "prediction.hpp"
#include "stopwatch.hpp"

namespace examples {

/// A line that fills up on standard error, if that is a terminal.
class progress_bar {
  public:
    explicit progress_bar(std::size_t steps);
    ~progress_bar();
    progress_bar(const progress_bar&) = delete;
    progress_bar& operator=(const progress_bar&) = delete;

    void advance();

  private:
    std::size_t steps_;
    std::size_t done_ = 0;
    bool visible_;
};

/// Euclidean.
template <class Values>
double norm_of(const Values& x) {
    return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

/// The results of a run: times, sizes, errors.
struct report {
    report(const tensafe::lora::adapter_site& of, const arguments& with)
        : args(with), site(of.name), rank(of.rank()) {}

    arguments args;
    std::string site;
    std::size_t rank = 0;
    prediction predicted;
    stopwatch watch;
    std::size_t bytes_up = 0;  ///< of all messages of the run
    std::size_t bytes_down = 0;
    std::size_t online_up = 0;  ///< of a token whose block is prepared
    std::size_t online_down = 0;
    std::size_t retries = 0;
    double relative_error = 0;                               ///< of the worst token, in the Euclidean norm
    double predicted_relative_error = 0;                     ///< typical for that token
    bool within_tolerance = true;                            ///< whether every delta came out right
    std::vector<std::pair<std::string, double>> truncation;  ///< what a truncation did, for the JSON object

    /// Books the messages of a token whose block is prepared.
    void book_token(std::size_t up, std::size_t down) {
        bytes_up += online_up = up;
        bytes_down += online_down = down;
    }
    /// Books the error of one token.
    /// @param error_norm  typical for it: the Euclidean norm of delta - expected; a delta may be off by
    ///                    `tolerance` times that
    void compare(std::span<const double> delta, std::span<const double> expected, double error_norm);
    static constexpr double tolerance = 5;
    /// A token's share of a phase, of all phases, and of encrypting, answering and decrypting once its block
    /// is prepared: from medians over blocks and tokens, unused positions included.
    double ms_of_phase(std::size_t p) const;
    double ms_per_token() const;
    double ms_online() const { return median_of_tokens(static_cast<std::size_t>(phase::b)); }
    /// A table and, if asked for, one JSON object on the last line.
    void print() const;

  private:
    /// The median over tokens of the time in the phases before `end`.
    double median_of_tokens(std::size_t end) const;
    /// A token's share of so many bytes of the run.
    std::size_t of_token(std::size_t bytes) const { return (bytes + args.tokens - 1) / args.tokens; }
    void print_table() const;
    void print_json() const;
};

/// Errors of replies that reveal A are about 1e-9 of a delta, 1e-7 if rescaled: no flood. This much would be
/// wrong.
inline constexpr double bare_error = 1e-5 / report::tolerance;

}  // namespace examples
