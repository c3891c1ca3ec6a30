#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "published_throughput.hpp"

namespace roofline::published {

/// The groups in which figures are shown.
enum class table { decode, decode_rates, rates, steps, future, geometry, claims };
inline constexpr std::array<std::string_view, 7> table_titles{
    "Decode time of Qwen3.5-35B-A3B, ms",
    "Tokens/s without encryption, and T_model = 1000 / practical BF16 rate",
    "Tokens/s = 1000 / (T_model + T_HE)",
    "H100, step by step, tokens/s",
    "Hardware to come, tokens/s",
    "Slots, launches and bytes",
    "Claims beside the tables"};

/// A printed number beside what its formula gives from the other printed numbers.
struct figure {
    table in = table::decode;
    std::string_view row;
    std::string_view column;
    printed_number printed;
    double formula = 0;
    int note = 0;        ///< number of the contradiction that explains a difference; 0: there should be none
    double units = 0.5;  ///< how far it may be off, in units of the last printed digit
    double model_milliseconds = 0;      ///< where the figure is a rate: T_model
    double encrypted_milliseconds = 0;  ///< and T_HE

    /// Whether the printed number is the formula's, as far as its digits tell. The thousandth of a unit is
    /// for halves, which decimal fractions do not meet exactly.
    constexpr bool agrees() const noexcept {
        return roofline::detail::within(printed.value, formula, (units + 1e-3) * printed.unit());
    }
};

namespace detail {

/// Figures, while they are collected.
struct figure_list {
    std::array<figure, 128> figures{};
    std::size_t count = 0;

    constexpr void add(const figure& one) {
        if (one.printed.present) {
            figures[count++] = one;
        }
    }
    constexpr void add_rate(table in, std::string_view row, std::string_view column,
                            const printed_number& model, const rate_entry& entry, int note) {
        if (entry.rate.present) {
            add({in, row, column, entry.rate,
                 serial_tokens_per_second(model.value, entry.encrypted_milliseconds.value), note, 0.5,
                 model.value, entry.encrypted_milliseconds.value});
        }
    }
};

constexpr void add_decoding(figure_list& list) {
    const auto& model = qwen35_35b_a3b;
    for (const decode_row& row : decode_table) {
        const double bf16 = decode_milliseconds(model, precision::bf16, row.device);
        const double q4 = decode_milliseconds(model, precision::q4, row.device);
        const std::string_view name = row.device.name;
        list.add({table::decode, name, "BF16", row.bf16_milliseconds, bf16});
        list.add({table::decode, name, "Q4", row.q4_milliseconds, q4});
        list.add({table::decode, name, "BF16 as written", row.bf16_milliseconds, 2 * bf16, 1});
        list.add({table::decode, name, "Q4 as written", row.q4_milliseconds, 2 * q4, 1});
    }
    for (std::size_t i = 0; i < decode_table.size(); ++i) {
        const decode_row& row = decode_table[i];
        const std::string_view name = row.device.name;
        list.add({table::decode_rates, name, "BF16", row.bf16_rate, 1000 / row.bf16_milliseconds.value});
        list.add({table::decode_rates, name, "Q4", row.q4_rate, 1000 / row.q4_milliseconds.value});
        list.add({table::decode_rates, name, "T_model, ms", rate_table[i].model_milliseconds,
                  1000 / row.practical_bf16_rate.value});
    }
}

constexpr void add_rates(figure_list& list) {
    for (const rate_row& row : rate_table) {
        const auto& model = row.model_milliseconds;
        list.add_rate(table::rates, row.device, "improved", model, row.improved, 0);
        list.add_rate(table::rates, row.device, "chained", model, row.chained, 0);
        list.add_rate(table::rates, row.device, "rank 16", model, row.rank16, 0);
        list.add_rate(table::rates, row.device, "all software", model, row.all_software, 10);
    }
    for (const step_row& row : h100_steps) {
        list.add_rate(table::steps, row.name, "tokens/s", row.model_milliseconds,
                      {row.encrypted_milliseconds, row.rate}, row.note);
    }
    for (const step_row& row : future_hardware) {
        list.add_rate(table::future, row.name, "tokens/s", row.model_milliseconds,
                      {row.encrypted_milliseconds, row.rate}, row.note);
    }
    list.add_rate(table::future, cim_3d_2029.name, "tokens/s", cim_3d_2029.model_milliseconds,
                  {cim_3d_2029.encrypted_milliseconds, cim_3d_2029.rate}, cim_3d_2029.note);
}

constexpr void add_geometry(figure_list& list) {
    constexpr auto in = table::geometry;
    constexpr double kibibytes_of_limb = 16384 * 8 / 1024.0;
    const auto batches_of = [](std::size_t rank, std::size_t slots) {
        return static_cast<double>(batches(rank, slots, 2048));
    };
    list.add({in, "rows in a ciphertext, d 2048", "", "8",
              static_cast<double>(columns_per_ciphertext(16384, 2048))});
    list.add({in, "batches, rank 32", "", "4", batches_of(32, 16384)});
    list.add({in, "batches, rank 16", "", "2", batches_of(16, 16384)});
    list.add({in, "batches, rank 32, slots of N 16384", "", "4", batches_of(32, 16384 / 2), 2});
    list.add({in, "KiB of a limb", "", "128", kibibytes_of_limb});
    list.add({in, "KiB of a limb, N of 16384 slots", "", "128", 2 * kibibytes_of_limb, 2});
    list.add({in, "KiB of a ciphertext", "", "1,024", 2 * 4 * kibibytes_of_limb});
    list.add({in, "KiB of a ciphertext, N of 16384 slots", "", "1,024", 2 * 4 * 2 * kibibytes_of_limb, 2});
    list.add({in, "launches, forward, fused", "", "7", double(transform_launches(14, 8))});
    list.add({in, "launches, inverse, fused", "", "7", double(transform_launches(14, 9, 1))});
    list.add({in, "launches, forward, unfused", "", "14", double(transform_launches(14, 0))});
    list.add({in, "launches, inverse, unfused", "", "15", double(transform_launches(14, 0, 1))});
    list.add({in, "launches, forward, N of 16384 slots", "", "7", double(transform_launches(15, 8)), 2});
    list.add({in, "launches of a product", "", "60", double(product_launches(4, 7, 7, 1)), 3});
}

constexpr void add_claims(figure_list& list) {
    constexpr auto in = table::claims;
    constexpr auto& phases = h100_phases;
    // The total leaves B out, which is one unit of its last digit.
    list.add({in, "T_HE of an H100, sum of phases, ms", "", h100_total, phases.total(), 0, 1});
    list.add({in, "T_HE of an H100, in the rate table, ms", "", rate_table[4].improved.encrypted_milliseconds,
              phases.total(), 6});
    list.add({in, "client keys, H100, tokens/s", "", "56.0", serial_tokens_per_second(2.9, 25.7), 6});
    list.add({in, "first latency breakdown, ms", "", "135", 121, 6});
    list.add({in, "second latency breakdown, ms", "", "207", 152, 6});
    list.add({in, "256 KB by PCIe 4 (32 GB/s), ms", "", "28", transfer_milliseconds(256 * 1024, 32), 4});
    list.add({in, "256 KB by PCIe 5 (64 GB/s), ms", "", "14", transfer_milliseconds(256 * 1024, 64), 4});
    list.add({in, "4.4 MB through an H100's memory, ms", "", "0.140",
              transfer_milliseconds(4.4e6, 1000 * decode_table[4].device.terabytes_per_second), 5});
    list.add({in, "operations a byte, 12 on 40", "", "5.4", 12 / 40.0, 5});
    list.add({in, "operations a byte, 1.38 M on 3.5 MB", "", "5.4", 1.38 / 3.5, 5});
    list.add({in, "saved by chaining two adapters, ms", "", "21.7", phases.encrypt + phases.decrypt, 7});
    list.add({in, "% lost where 95 % of the variance is kept", "", "5",
              100 * relative_error_of_variance(0.95), 9});
    list.add(
        {in, "T_HE of a GH200, ms", "", future_hardware[0].encrypted_milliseconds,
         phases.total() - phases.b - phases.transfer + published_transfer_milliseconds(interconnect::gh200),
         12});
}

constexpr figure_list collect() {
    figure_list list;
    add_decoding(list);
    add_rates(list);
    add_geometry(list);
    add_claims(list);
    return list;
}

template <std::size_t Count>
constexpr std::array<figure, Count> first(const figure_list& list) {
    std::array<figure, Count> result{};
    for (std::size_t i = 0; i < Count; ++i) {
        result[i] = list.figures[i];
    }
    return result;
}

}  // namespace detail

/// Every printed figure that a formula or another printed figure gives as well, in the order of `table`.
inline constexpr auto figures = detail::first<detail::collect().count>(detail::collect());

}  // namespace roofline::published
