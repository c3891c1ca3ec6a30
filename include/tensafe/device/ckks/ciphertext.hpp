#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/rns/pointwise.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/device/rns/rescale.hpp>
#include <tensafe/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tensafe::ckks {

/// Ciphertexts of one level and scale in the memory of a space: c0 of all, then c1 of all, so that one launch
/// takes both halves.
///
/// Value semantics; thread and exception safety of a standard container.
template <parameter_set P, class Space, int Level = P::max_level>
struct block_ciphertexts {
    static_assert(Level >= 0 && Level <= P::max_level,
                  "ckks::block_ciphertexts: the parameter set has no such level");
    using basis = typename P::template basis_at<Level>;
    using stack = rns::poly_stack<basis, rns::evaluation_form, Space>;

    stack halves;
    double scale = P::scale;

    /// Room for `count` ciphertexts, to be written before they are read.
    explicit block_ciphertexts(std::size_t count, double scale_of_all = P::scale)
        : halves(2 * count, memory::uninitialized), scale(scale_of_all) {}
    block_ciphertexts(stack both_halves, double scale_of_all)
        : halves(std::move(both_halves)), scale(scale_of_all) {}

    std::size_t count() const noexcept { return halves.count() / 2; }
    arith::word* c0() noexcept { return halves.at(0); }
    arith::word* c1() noexcept { return halves.at(count()); }
    rns::stack_view c0() const noexcept { return rns::view_of<basis>(halves.at(0)); }
    rns::stack_view c1() const noexcept { return rns::view_of<basis>(halves.at(count())); }
};

/// Encoded messages of one level and scale in the memory of a space. Wiped on release.
template <parameter_set P, class Form, class Space, int Level = P::max_level>
struct block_plaintexts {
    using basis = typename P::template basis_at<Level>;

    rns::secret_poly_stack<basis, Form, Space> values;
    double scale = P::scale;
};

namespace detail {
inline void check_equal_counts(const char* operation, std::size_t a, std::size_t b) {
    if (a != b) {
        throw shape_error(std::string(operation) + ": got " + std::to_string(a) + " and " +
                          std::to_string(b) + " ciphertexts, expected equal counts");
    }
}
}  // namespace detail

/// Copies a host's ciphertext to a place. Takes effect in the order of `where`.
/// @throws shape_error if there is no such place; parameter_error if the scales differ
template <class Where, parameter_set P, int Level>
void upload(const Where& where, const ciphertext<P, Level>& from,
            block_ciphertexts<P, typename Where::space, Level>& to, std::size_t place) {
    rns::detail::check_place("ckks::upload", place, to.count());
    detail::check_scales("upload", to.scale, from.scale);
    rns::upload(where, from.c0, to.halves, place);
    rns::upload(where, from.c1, to.halves, to.count() + place);
}

/// Copies the ciphertext of a place to the host. Waits until it is there.
/// @throws shape_error if there is no such place
template <class Where, parameter_set P, int Level>
ciphertext<P, Level> download(const Where& where,
                              const block_ciphertexts<P, typename Where::space, Level>& from,
                              std::size_t place) {
    rns::detail::check_place("ckks::download", place, from.count());
    return {rns::download(where, from.halves, place), rns::download(where, from.halves, from.count() + place),
            from.scale};
}

// What a server computes, each of these one launch for both halves of all ciphertexts. Operations without a
// result work in place and do not allocate.

/// a += b.  @throws parameter_error if the scales differ; shape_error unless there are as many
template <class Where, parameter_set P, int Level>
void add(const Where& where, block_ciphertexts<P, typename Where::space, Level>& a,
         const block_ciphertexts<P, typename Where::space, Level>& b) {
    detail::check_scales("add", a.scale, b.scale);
    detail::check_equal_counts("add", a.count(), b.count());
    rns::add(where, a.halves, b.halves);
}
/// a -= b.  @throws parameter_error if the scales differ; shape_error unless there are as many
template <class Where, parameter_set P, int Level>
void subtract(const Where& where, block_ciphertexts<P, typename Where::space, Level>& a,
              const block_ciphertexts<P, typename Where::space, Level>& b) {
    detail::check_scales("subtract", a.scale, b.scale);
    detail::check_equal_counts("subtract", a.count(), b.count());
    rns::subtract(where, a.halves, b.halves);
}

/// a *= p, entry by entry in the slots; the scales multiply. Plaintext p.values[i % count] goes with
/// ciphertext i: one for all, or one for each.
/// @throws shape_error unless a.count() is a multiple of the plaintexts' count
template <class Where, parameter_set P, int Level>
void multiply_plain(const Where& where, block_ciphertexts<P, typename Where::space, Level>& a,
                    const block_plaintexts<P, rns::evaluation_form, typename Where::space, Level>& p) {
    if (a.count() != 0) {
        rns::detail::check_counts("multiply_plain", a.count(), p.values.count());
        rns::multiply(where, a.halves, p.values);
    }
    a.scale *= p.scale;
}
template <class Where, parameter_set P, class F, int L>
void multiply_plain(const Where&, block_ciphertexts<P, typename Where::space, L>&,
                    const block_plaintexts<P, F, typename Where::space, L>&) = delete;  // transform it first

/// Drops the last prime and divides by it, rounding exactly, as ckks::rescale does. Allocates the result and
/// N words of work for each half, and waits.
template <class Schedule = ntt::tuned, class Where, parameter_set P, int Level>
requires(Level >= 1) block_ciphertexts<P, typename Where::space, Level - 1> rescale(
    const Where& where,
    const rns::rescale_plans<typename P::template basis_at<Level>, typename Where::space>& plans,
    const block_ciphertexts<P, typename Where::space, Level>& c) {
    return {rns::rescale<Schedule>(where, plans, c.halves), c.scale / P::template rescale_factor<Level>};
}

/// Drops primes until `Target` rescales are left; value and scale stay.
template <int Target, class Where, parameter_set P, int Level>
block_ciphertexts<P, typename Where::space, Target> level_reduce(
    const Where& where, const block_ciphertexts<P, typename Where::space, Level>& c) {
    static_assert(Target >= 0 && Target <= Level, "ckks::level_reduce: a ciphertext can only lose levels");
    return {rns::level_reduce<Target + 1>(where, c.halves), c.scale};
}

}  // namespace tensafe::ckks
