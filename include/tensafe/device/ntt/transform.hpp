#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/device/exec/context.hpp>
#include <tensafe/device/ntt/plan.hpp>
#include <tensafe/device/ntt/schedule.hpp>
#include <tensafe/device/ntt/words.hpp>

#include <cstddef>
#include <string>

namespace tensafe::ntt {

namespace detail {

/// x of a grid has at most 2^31 - 1 blocks, and a limb at most 2^9 of them.
inline void check_polynomials(const char* what, std::size_t polynomials, int log_n) {
    const std::size_t most = (std::size_t{1} << 31 >> (log_n - 8)) - 1;
    if (polynomials > most) {
        throw parameter_error(std::string(what) + ": got " + std::to_string(polynomials) +
                              " polynomials, expected at most " + std::to_string(most));
    }
}

/// A kernel that writes to null takes the GPU away from the whole process.
template <class Basis, class Schedule>
void check_work(const char* what, std::size_t polynomials, const arith::word* work) {
    if (work == nullptr && polynomials != 0 && Schedule::template needs_work<Basis>(polynomials)) {
        throw parameter_error(
            std::string(what) +
            ": got no work memory, expected polynomials * limbs * N words for a schedule of "
            "several launches");
    }
}

}  // namespace detail

/// The forward negacyclic NTT of all limbs of some polynomials by block kernels. Gives the same residues as
/// ntt::forward, whatever the schedule. Harvey, "Faster arithmetic for number-theoretic transforms" (2014),
/// with the arithmetic of block_arithmetic.
///
/// Returns at once, takes effect in order. All pointers are to where the kernels run. 8 N bytes read and
/// written for each limb by each launch. Secrets steer neither branches nor addresses.
/// @tparam Schedule  tuned, single_block, two_pass, staged or unfused
/// @param load   gives pairs of entries in [0, q), natural order: load_words, or one that makes them on the
///               way. Asked once for each.
/// @param store  gets pairs of values in [0, q), bit-reversed order
/// @param work   polynomials * limbs * N words, 16-byte aligned, for schedules of several launches; may be
///               what load reads and store writes in the order of load_words. Null is allowed for
///               single_block.
/// @throws parameter_error if there are too many polynomials for a launch, or `work` is missing; device_error
template <class Basis, class Schedule = tuned, exec::block_execution Where, class Load, class Store>
void forward_blocks(const Where& where, const block_plan<Basis, typename Where::space>& plan,
                    const Load& load, const Store& store, std::size_t polynomials, arith::word* work) {
    detail::check_polynomials("ntt::forward_blocks", polynomials, Basis::log_n);
    detail::check_work<Basis, Schedule>("ntt::forward_blocks", polynomials, work);
    if (polynomials != 0) {
        Schedule::template forward<Basis>(where, plan.view(), load, store, polynomials, work);
    }
}

/// The inverse, 1/N included: bit-reversed order in, natural order out. As forward_blocks.
/// @throws parameter_error if there are too many polynomials for a launch, or `work` is missing; device_error
template <class Basis, class Schedule = tuned, exec::block_execution Where, class Load, class Store>
void inverse_blocks(const Where& where, const block_plan<Basis, typename Where::space>& plan,
                    const Load& load, const Store& store, std::size_t polynomials, arith::word* work) {
    detail::check_polynomials("ntt::inverse_blocks", polynomials, Basis::log_n);
    detail::check_work<Basis, Schedule>("ntt::inverse_blocks", polynomials, work);
    if (polynomials != 0) {
        Schedule::template inverse<Basis>(where, plan.view(), load, store, polynomials, work);
    }
}

}  // namespace tensafe::ntt
