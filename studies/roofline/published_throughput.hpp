#pragma once

#include <tensafe/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "roofline.hpp"

// The tables of the published throughput analyses (February 2026) and their performance notes, as they are
// printed. They are claims to compare with, mostly derived on paper; nothing of them was measured by this
// project. published_figures.hpp holds each figure against the formulas of its authors.
namespace roofline::published {

/// A number as it is printed: its value, and how many of its decimals were printed.
struct printed_number {
    double value = 0;
    int decimals = 0;
    bool present = false;

    constexpr printed_number() = default;
    /// "12.3", "1,266", or "" for a blank cell.  @throws parameter_error for anything else
    constexpr printed_number(const char* text) {  // implicit: tables below read as the printed ones
        double divisor = 0;
        for (; *text != '\0'; ++text) {
            if (*text >= '0' && *text <= '9') {
                value = value * 10 + (*text - '0');
                divisor *= 10;
                decimals += divisor > 0 ? 1 : 0;
                present = true;
            } else if (*text == '.' && divisor == 0) {
                divisor = 1;
            } else if (*text != ',') {
                throw tensafe::parameter_error(std::string("published: not a number: ") + text);
            }
        }
        value /= std::max(divisor, 1.0);
    }

    /// One unit of the last digit.
    constexpr double unit() const noexcept {
        double result = 1;
        for (int d = 0; d < decimals; ++d) {
            result /= 10;
        }
        return result;
    }
};

inline constexpr language_model qwen35_35b_a3b{"Qwen3.5-35B-A3B", 35e9, 3.0e9, 2048, 40, 248320, 256, 9};

/// Decoding of Qwen3.5-35B-A3B on one GPU. "Practical" figures have no formula.
struct decode_row {
    gpu device;
    printed_number bf16_milliseconds;
    printed_number q4_milliseconds;
    printed_number bf16_rate;  ///< tokens a second
    printed_number q4_rate;
    printed_number practical_bf16_rate;
    printed_number practical_q4_rate;
};

inline constexpr std::array<decode_row, 7> decode_table{{
    {{"RTX 4090", 1.01}, "5.9", "1.5", "169", "667", "105", "400"},
    {{"RTX 5090", 1.79}, "3.4", "0.84", "294", "1190", "190", "720"},
    {{"L40S", 0.86}, "7.0", "1.7", "143", "588", "90", "350"},
    {{"A100 80GB", 2.04}, "2.9", "0.74", "345", "1351", "215", "810"},
    {{"H100 SXM", 3.35}, "1.8", "0.45", "556", "2222", "350", "1350"},
    {{"H200", 4.80}, "1.25", "0.31", "800", "3226", "500", "1950"},
    {{"B200", 8.00}, "0.75", "0.19", "1333", "5263", "830", "3200"},
}};

/// Of an adapter of rank 32 in four batches and a token, on an H100.
inline constexpr encrypted_phases h100_phases{6.5, 4.8, 4.5, 28, 0.1, 4};
inline constexpr printed_number h100_total = "71.7";
inline constexpr double transform_milliseconds = 0.140;  ///< of a limb

/// A pair of T_HE in milliseconds and the printed rate; both blank where nothing is printed.
struct rate_entry {
    printed_number encrypted_milliseconds;
    printed_number rate;
};

/// "tok/s = 1000 / (T_model + T_HE)"
struct rate_row {
    std::string_view device;
    printed_number model_milliseconds;
    rate_entry improved;
    rate_entry chained;  ///< two adapters in one chain of five limbs
    rate_entry rank16;
    rate_entry all_software;
};

inline constexpr std::array<rate_row, 7> rate_table{{
    {"RTX 4090", "9.5", {"71.7", "12.3"}, {"50.0", "16.8"}, {}, {"22.0", "45.5"}},
    {"RTX 5090", "5.3", {"71.7", "13.0"}, {"50.0", "18.1"}, {}, {"15.0", "66.7"}},
    {"L40S", "11.1", {"71.7", "12.1"}, {}, {}, {"25.0", "40.0"}},
    {"A100 80GB", "4.7", {"71.7", "13.1"}, {"50.0", "18.3"}, {}, {"12.5", "80.0"}},
    {"H100 SXM", "2.9", {"52.0", "18.2"}, {"36.0", "25.7"}, {"20.0", "43.7"}, {"9.3", "107.5"}},
    {"H200", "2.0", {"45.0", "21.3"}, {"31.0", "30.3"}, {"17.0", "52.6"}, {"7.5", "133.3"}},
    {"B200", "1.2", {"38.0", "25.5"}, {"26.0", "36.8"}, {"14.5", "63.7"}, {"5.8", "172.4"}},
}};

/// A step or a machine with its own T_model and T_HE.
struct step_row {
    std::string_view name;
    printed_number model_milliseconds;
    printed_number encrypted_milliseconds;
    printed_number rate;
    int note = 0;  ///< the contradiction that the rate is part of
};

/// "H100 stack": each step keeps those before it.
inline constexpr std::array<step_row, 8> h100_steps{{
    {"baseline", "2.9", "98", "9.9"},
    {"phases 1 to 6", "2.9", "71.7", "13.4"},
    {"client keys", "2.9", "25.7", "35.0"},
    {"multi-stream", "2.9", "14.5", "57.5"},
    {"async, model hidden", "2.9", "14.5", "68.9", 8},
    {"L2 twiddles", "2.9", "10.2", "98.0", 10},
    {"CUDA graph", "2.9", "9.3", "107.5", 10},
    {"SVD 32 to 16", "2.9", "5.2", "192.3", 10},
}};

/// "Future hardware". T_model of rows that print none is that of the H100 (GH200, CIM, HBM-PIM) or of the
/// B200.
inline constexpr std::array<step_row, 12> future_hardware{{
    {"GH200", "2.9", "42.7", "21.9"},
    {"GB200", "1.2", "18.7", "50.3"},
    {"GB200, all software", "1.2", "3.8", "200"},
    {"GB200, all software, at best", "1.2", "3.8", "263", 10},
    {"CIM + UMA", "2.9", "0.63", "283"},
    {"CIM + UMA, B200", "1.2", "0.63", "546"},
    {"HBM-PIM + UMA", "2.9", "1.7", "217"},
    {"HBM4", "1.2", "38.9", "24.9"},
    {"Rubin R100", "0.44", "3.63", "245.7"},
    {"Rubin R100, all software", "0.44", "1.51", "513"},
    {"Rubin Ultra", "0.22", "0.57", "1,266"},
    {"SRAM-CIM, 2028", "0.22", "0.15", "2,703"},
}};

/// "2029 3D-CIM": T_HE and T_model are printed as less than these, the rate as this or more.
inline constexpr step_row cim_3d_2029{"3D-CIM, 2029", "0.15", "0.1", "5,000", 11};

/// Where the published figures contradict each other or their formulas. 1 to 10 are this project's list; the
/// rest was found when it was made executable. Each has a figure that shows it.
struct contradiction {
    int number;
    std::string_view text;
};

inline constexpr std::array<contradiction, 12> contradictions{{
    {1,
     "decode = 2 x active x bytes / bandwidth, as written, is 12 GB and 3.6 ms on an H100; the table reads "
     "6 GB"},
    {2,
     "bytes and launches are those of N = 16384, but 4 batches at d = 2048 need 16384 slots: N = 32768, or "
     "pairs of rows as real and imaginary parts"},
    {3,
     "a product as described (2 transforms, 2 back, 1 pointwise a limb) is 116 launches, not 60; in "
     "evaluation form with A transformed before it is one"},
    {4,
     "the transfer of 28 ms moves 256 KB, 8 us at 32 GB/s: it is the wait for queued kernels, and adding it "
     "to their times counts them twice"},
    {5,
     "4.4 MB at 3.35 TB/s take 1.3 us, not 140: these transforms wait for launches, so scaling them by "
     "bandwidth predicts nothing; 12 operations on 40 bytes are 0.3 a byte, not 5.4"},
    {6,
     "client keys give 35.0 tokens/s in one table and 56.0 in another; an H100 needs 71.7 or 52.0 ms; two "
     "latency breakdowns print 135 and 207 ms and add up to 121 and 152"},
    {7, "chaining two adapters saves 21.7 ms, but an encryption and a decryption are 11.0"},
    {8,
     "the model is hidden behind encryption, but one sequence cannot overlap token t + 1 with the decryption "
     "of token t: that needs several sequences"},
    {9, "more than 95 % of the variance allows 22 % relative error in the Frobenius norm"},
    {10,
     "printed is 1000 / T_HE without T_model; the stated formula adds T_model (why it was left out: see 8)"},
    {11, "below 0.1 and below 0.15 ms are more than 4,000 tokens/s, which is not 5,000 or more"},
    {12, "42.7 ms are less than the published phases with no transfer at all, 43.7 ms"},
}};

}  // namespace roofline::published
