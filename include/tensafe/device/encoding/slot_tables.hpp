#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/device/encoding/complex.hpp>
#include <tensafe/encoding/slot_tables.hpp>
#include <tensafe/encoding/slot_transform.hpp>
#include <tensafe/memory/buffer.hpp>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tensafe::encoding {

/// What block kernels read of the tables: copied into each launch.
struct block_slot_view {
    /// For each radix-4 stage, smallest first, the roots, then their squares, then their third powers; of a
    /// direct size, all powers of zeta.
    const complex_value* roots;
    /// Of the stage that merges single coefficients.
    detail::powers start;
    /// Of the radix-2 stage.
    complex_value pair[4];
};

/// The roots of the slot transform of one degree, in the memory of a machine: those of slot_tables, in the
/// order in which blocks read them. N/2 complex numbers, 8N bytes. Immutable; shared by any number of
/// launches while it exists.
template <class Space>
class block_slot_tables {
  public:
    /// Builds the tables for N = 2^log_n and waits until they are uploaded.
    /// @throws parameter_error unless 1 <= log_n <= 17
    template <class Where>
    block_slot_tables(const Where& where, int log_n) : log_n_(checked(log_n)) {
        const detail::slot_tables host(log_n - 1);
        std::vector<complex_value> roots;
        if (host.is_direct()) {
            for (const std::complex<double>& root : host.direct_roots().span()) {
                roots.push_back(of(root));
            }
        } else {
            for (std::size_t quarter = host.first_quarter(); quarter < host.slots(); quarter *= 4) {
                append_stage(host, quarter, roots);
            }
            const auto& start = host.start_roots();
            view_.start = {of(start[0]), of(start[1]), of(start[2])};
            for (std::size_t j = 0; j < 4; ++j) {
                view_.pair[j] = {host.pair_roots()[j], host.pair_roots()[4 + j]};
            }
        }
        roots_ = memory::buffer<complex_value, Space>(roots.size(), memory::uninitialized);
        where.upload(std::span<const complex_value>(roots), roots_.data());
        where.wait();
    }

    int log_n() const noexcept { return log_n_; }
    block_slot_view view() const noexcept {
        block_slot_view view = view_;
        view.roots = roots_.data();
        return view;
    }

  private:
    static int checked(int log_n) {
        if (log_n < slot_transform::min_log_n || log_n > slot_transform::max_log_n) {
            throw parameter_error("block_slot_tables: log_n: got " + std::to_string(log_n) + ", expected " +
                                  std::to_string(slot_transform::min_log_n) + " to " +
                                  std::to_string(slot_transform::max_log_n));
        }
        return log_n;
    }

    static complex_value of(std::complex<double> z) noexcept { return {z.real(), z.imag()}; }

    static void append_stage(const detail::slot_tables& host, std::size_t quarter,
                             std::vector<complex_value>& roots) {
        const double* const from = host.stage_roots(quarter);
        const std::size_t width = detail::slot_tables::group(quarter);
        for (std::size_t power = 0; power < 3; ++power) {
            for (std::size_t j = 0; j < quarter; ++j) {
                const std::size_t at = j / width * 6 * width + 2 * power * width + j % width;
                roots.push_back({from[at], from[at + width]});
            }
        }
    }

    int log_n_;
    memory::buffer<complex_value, Space> roots_;
    block_slot_view view_{};
};

}  // namespace tensafe::encoding
