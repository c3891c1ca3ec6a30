#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "phases_file.hpp"
#include "roofline.hpp"

namespace studies {

/// What is to be predicted.
struct roofline_question {
    phase_times times;
    std::size_t sites_per_layer = 4;  ///< q, k, v and o, say
    std::size_t layers = 40;
    std::size_t sequences = 8;
    std::size_t cores = 1;  ///< for client and server together
    double round_trip = 0;  ///< milliseconds of network for each site
    bool predicted_gpu = false;

    std::size_t sites() const { return sites_per_layer * layers; }
};

/// Tokens a second on one GPU.
struct roofline_row {
    std::string device;
    double model_milliseconds = 0;              ///< the published T_model
    double plain = 0;                           ///< without encryption
    double published_serial = 0;                ///< "improved", by the formula
    double published_printed = 0;               ///< "all software", as printed
    double published_formula = 0;               ///< "all software", by the formula
    roofline::deployment_forecast site_serial;  ///< one site, one sequence
    roofline::deployment_forecast site_overlapped;
    roofline::deployment_forecast model_serial;  ///< all sites, one sequence
    roofline::deployment_forecast model_overlapped;
    double gpu_serial = 0;  ///< one site, encryption on the GPU too: predicted, not measured; 0 unless asked
    double gpu_overlapped = 0;
};

/// @throws tensafe::parameter_error for a time or count that cannot be
std::vector<roofline_row> predict(const roofline_question& question);

/// The published tables, each figure beside its formula, with footnotes; to standard output.
void print_published();
void print_predictions(const roofline_question& question, const std::vector<roofline_row>& rows);
/// Both as one JSON object on one line.
void print_json(const roofline_question& question, const std::vector<roofline_row>& rows);

}  // namespace studies
