#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
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

/// The results of a run: times, sizes, errors.
struct report {
    report(arguments run_arguments, std::string site_name, std::size_t site_rank)
        : args(std::move(run_arguments)), site(std::move(site_name)), rank(site_rank) {}

    arguments args;
    std::string site;
    std::size_t rank;
    stopwatch watch;
    std::size_t bytes_up = 0;
    std::size_t bytes_down = 0;
    double relative_error = 0;                               ///< of the worst token, in the Euclidean norm
    std::vector<std::pair<std::string, double>> truncation;  ///< what a truncation did, for the JSON object

    /// Books the error of one token.
    void compare(std::span<const double> delta, std::span<const double> expected);
    /// The median over tokens of a token's whole time.
    double ms_per_token() const;
    /// Whether every delta came out as plaintext LoRA has it.
    bool within_tolerance() const { return relative_error <= 1e-5; }
    /// A table and, if asked for, one JSON object on the last line.
    void print() const;

  private:
    void print_table() const;
    void print_json() const;
};

}  // namespace examples
