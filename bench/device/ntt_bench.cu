// The negacyclic NTT of many limbs at N = 16384, by direction, width of the prime and schedule, and of the 12
// limbs of one call: three polynomials of four limbs. Smaller degrees with the schedule that is the default.

#include <tensafe/arith/prime.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/cuda/stream.cuh>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/rns/basis.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comparison_schedules.hpp"
#include "harness.cuh"

namespace {

namespace arith = tensafe::arith;
namespace ckks = tensafe::ckks;
namespace device = tensafe::device;
namespace memory = tensafe::memory;
namespace ntt = tensafe::ntt;
namespace rns = tensafe::rns;

template <int LogN, int Bits>
using one_limb = rns::basis<LogN, arith::ntt_prime_below(arith::word{1} << Bits, LogN)>;

/// Words below every prime of a basis.
template <class Basis>
device::device_buffer<arith::word> residues(const device::cuda& where, std::size_t polynomials) {
    std::vector<arith::word> words(polynomials * static_cast<std::size_t>(Basis::limbs) * Basis::degree);
    std::uint64_t state = 1;
    for (arith::word& w : words) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        w = state >> 30;  // 34 bits
    }
    device::device_buffer<arith::word> result(words.size(), memory::uninitialized);
    where.upload(std::span<const arith::word>(words), result.data());
    where.wait();
    return result;
}

/// Operations of a butterfly, as docs/gpu.md counts them: 32-bit multiply-adds of a wide prime;
/// products and sums of doubles of a narrow one.
constexpr double int_ops_of_wide_butterfly = 7;
constexpr double fp64_ops_of_narrow_butterfly = 8;

template <class Basis, class Schedule>
void measure(const device::cuda& where, bench::table& results, const std::string& name,
             std::size_t polynomials, double goal_of_limb = 0, bool keep_in_l2 = false) {
    const std::string shape = "/n" + std::to_string(Basis::degree) + "/" +
                              std::to_string(polynomials * static_cast<std::size_t>(Basis::limbs)) + "_limbs";
    if (!results.wants("ntt/forward/" + name + shape) && !results.wants("ntt/inverse/" + name + shape)) {
        return;
    }
    const device::plan<Basis, device::cuda::space> plan(where);
    // Belongs to what is recorded below.
    const device::l2_window window(where, plan.words().data(), plan.words().size() * sizeof(arith::word),
                                   keep_in_l2);
    const auto from = residues<Basis>(where, polynomials);
    device::device_buffer<arith::word> to(from.size());
    const device::load_words<Basis> load{from.data()};
    const device::store_words<Basis> store{to.data()};

    const double words = static_cast<double>(from.size());
    double wide = 0;
    double narrow = 0;
    [&]<int... I>(std::integer_sequence<int, I...>) {
        ((Basis::template prime<I> >> 50 != 0 ? wide += 1.0 / Basis::limbs : narrow += 1.0 / Basis::limbs),
         ...);
    }
    (std::make_integer_sequence<int, Basis::limbs>{});
    const double butterflies = words / 2 * Basis::log_n;
    const double int_ops = wide * butterflies * int_ops_of_wide_butterfly;
    const double fp64_ops = narrow * butterflies * fp64_ops_of_narrow_butterfly;
    const double goal = goal_of_limb * words / static_cast<double>(Basis::degree);

    // In a graph: one call of a dozen limbs is shorter than its launches take on the host.
    if (results.wants("ntt/forward/" + name + shape)) {
        results.report("ntt/forward/" + name + shape,
                       bench::median_microseconds_in_graph(
                           where,
                           [&](const device::cuda& w) {
                               device::forward<Basis, Schedule>(w, plan, load, store, polynomials, to.data());
                           }),
                       16 * words, int_ops, goal, fp64_ops);
    }
    if (results.wants("ntt/inverse/" + name + shape)) {
        results.report("ntt/inverse/" + name + shape,
                       bench::median_microseconds_in_graph(
                           where,
                           [&](const device::cuda& w) {
                               device::inverse<Basis, Schedule>(w, plan, load, store, polynomials, to.data());
                           }),
                       16 * words, int_ops, goal, fp64_ops);
    }
}

template <class Basis>
void measure_schedules(const device::cuda& where, bench::table& results, const std::string& width,
                       std::size_t polynomials, double goal_of_limb) {
    measure<Basis, comparison::unfused>(where, results, width + "/unfused", polynomials);
    measure<Basis, comparison::staged>(where, results, width + "/staged", polynomials);
    measure<Basis, device::schedule::two_pass>(where, results, width + "/two_pass", polynomials,
                                               goal_of_limb);
    measure<Basis, device::schedule::single_block>(where, results, width + "/single_block", polynomials,
                                                   goal_of_limb);
}

}  // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const device::cuda& where, bench::table& results) {
        // 128 MiB read and 128 MiB written: more than the cache holds.
        constexpr std::size_t many = 1024;
        measure_schedules<one_limb<14, 60>>(where, results, "q60", many, 0.20);
        measure_schedules<one_limb<14, 40>>(where, results, "q40", many, 0.12);
        // One call of 12 limbs: 6 us.
        measure_schedules<ckks::n16384_l4::basis>(where, results, "n16384_l4", 3, 0.5);
        for (const bool keep : {false, true}) {
            measure<ckks::n16384_l4::basis, device::schedule::two_pass>(
                where, results, keep ? "l2_window_on" : "l2_window_off", 3, 0, keep);
        }
        using n8192 = ckks::n8192_l4::basis;
        measure<n8192, device::schedule::two_pass>(where, results, "n8192_l4/two_pass", 512);
        measure<n8192, device::schedule::single_block>(where, results, "n8192_l4/single_block", 512);
        measure<ckks::private_n4096::basis, device::schedule::tuned>(where, results, "private_n4096/tuned",
                                                                     1024);
        measure<ckks::minimal_n2048::basis, device::schedule::tuned>(where, results, "minimal_n2048/tuned",
                                                                     2048);
        measure<one_limb<15, 60>, device::schedule::tuned>(where, results, "q60/tuned", 512);
    });
}
