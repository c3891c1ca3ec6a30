#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/device/rns/rescale.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tensafe::device {

/// Secret keys in the memory of a device: the evaluation words of all limbs, of one client or of several, in
/// one stack. Move-only, as secret_key is; wiped on release. Immutable; safe to share between threads.
///
/// Transfers from memory that is not pinned go through a buffer of the driver, which nobody here can wipe.
template <ckks::parameter_set P, class Space>
class secret_keys {
  public:
    using stack = secret_poly_stack<typename P::basis, rns::evaluation_form, Space>;

    template <class Where>
    secret_keys(const Where& where, const ckks::secret_key<P>& key) : secret_keys(where, std::array{&key}) {}
    /// Uploads keys: key c is that of client c.
    /// @throws parameter_error if there is none, or one is null
    template <class Where>
    secret_keys(const Where& where, std::span<const ckks::secret_key<P>* const> keys)
        : values_(keys.size(), memory::uninitialized) {
        require<parameter_error>(!keys.empty(), {"device::secret_keys: got no key, expected at least one"});
        for (std::size_t c = 0; c < keys.size(); ++c) {
            require<parameter_error>(keys[c] != nullptr,
                                     {"device::secret_keys: key ", c, " is a null pointer"});
            upload(where, keys[c]->value(), values_, c);
        }
        where.wait();
    }
    secret_keys(secret_keys&&) noexcept = default;
    secret_keys& operator=(secret_keys&&) noexcept = default;
    secret_keys(const secret_keys&) = delete;  // one owner: move it, or lend it by const reference
    secret_keys& operator=(const secret_keys&) = delete;

    std::size_t count() const noexcept { return values_.count(); }
    const stack& values() const noexcept { return values_; }

    /// The keys as a launch over `messages` polynomials sees them: client after client, each with as many.
    /// @throws shape_error unless `messages` is a multiple of count()
    stack_view shared_by(std::size_t messages) const {
        require<shape_error>(messages % count() == 0,
                             {"device::secret_keys: got ", messages, " messages for ", count(),
                              " keys, expected as many for each"});
        const std::size_t each = messages / count();
        return view_of(values_, each == 0 ? 1U : static_cast<std::uint32_t>(each));
    }

  private:
    stack values_;
};

/// A public key (b, a) in the memory of a device. Immutable; safe to share between threads.
template <ckks::parameter_set P, class Space>
class public_key {
  public:
    using stack = poly_stack<typename P::basis, rns::evaluation_form, Space>;

    template <class Where>
    public_key(const Where& where, const ckks::public_key<P>& key) : halves_(2, memory::uninitialized) {
        upload(where, key.b(), halves_, 0);
        upload(where, key.a(), halves_, 1);
        where.wait();
    }

    /// The halves b, then a.
    const stack& halves() const noexcept { return halves_; }

  private:
    stack halves_;
};

/// Ciphertexts of one level and scale in the memory of a space: c0 of all, then c1: one launch takes both.
///
/// Value semantics; thread and exception safety of a standard container.
template <ckks::parameter_set P, class Space, int Level = P::max_level>
struct ciphertexts {
    static_assert(Level >= 0 && Level <= P::max_level,
                  "device::ciphertexts: the parameter set has no such level");
    using basis = typename P::template basis_at<Level>;
    using stack = poly_stack<basis, rns::evaluation_form, Space>;

    stack halves;
    double scale = P::scale;

    /// Makes room for `count` ciphertexts, to be written before they are read.
    explicit ciphertexts(std::size_t count, double scale_of_all = P::scale)
        : halves(2 * count, memory::uninitialized), scale(scale_of_all) {}
    ciphertexts(stack both_halves, double scale_of_all)
        : halves(std::move(both_halves)), scale(scale_of_all) {}

    std::size_t count() const noexcept { return halves.count() / 2; }
    word* c0() noexcept { return halves.at(0); }
    word* c1() noexcept { return halves.at(count()); }
    stack_view c0() const noexcept { return view_of<basis>(halves.at(0)); }
    stack_view c1() const noexcept { return view_of<basis>(halves.at(count())); }
};

/// Encoded messages of one level and scale in the memory of a space. Wiped on release.
template <ckks::parameter_set P, class Form, class Space, int Level = P::max_level>
struct plaintexts {
    using basis = typename P::template basis_at<Level>;

    secret_poly_stack<basis, Form, Space> values;
    double scale = P::scale;
};

namespace detail {
inline void check_equal_counts(const char* operation, std::size_t a, std::size_t b) {
    require<shape_error>(a == b, {operation, ": got ", a, " and ", b, " ciphertexts, expected equal counts"});
}
}  // namespace detail

/// Copies a host's ciphertext to a place. Takes effect in the order of `where`.
/// @throws shape_error if there is no such place; parameter_error if the scales differ
template <class Where, ckks::parameter_set P, int Level>
void upload(const Where& where, const ckks::ciphertext<P, Level>& from,
            ciphertexts<P, typename Where::space, Level>& to, std::size_t place) {
    detail::check_place("ckks::upload", place, to.count());
    ckks::detail::check_scales("upload", to.scale, from.scale);
    upload(where, from.c0, to.halves, place);
    upload(where, from.c1, to.halves, to.count() + place);
}

/// Copies the ciphertext of a place to the host. Waits until it is there.
/// @throws shape_error if there is no such place
template <class Where, ckks::parameter_set P, int Level>
ckks::ciphertext<P, Level> download(const Where& where,
                                    const ciphertexts<P, typename Where::space, Level>& from,
                                    std::size_t place) {
    detail::check_place("ckks::download", place, from.count());
    return {download(where, from.halves, place), download(where, from.halves, from.count() + place),
            from.scale};
}

// What a server computes, each of these one launch for both halves of all ciphertexts. Operations without a
// result work in place and do not allocate.

/// Adds ciphertexts: a += b.  @throws parameter_error if the scales differ; shape_error unless there are as
/// many
template <class Where, ckks::parameter_set P, int Level>
void add(const Where& where, ciphertexts<P, typename Where::space, Level>& a,
         const ciphertexts<P, typename Where::space, Level>& b) {
    ckks::detail::check_scales("add", a.scale, b.scale);
    detail::check_equal_counts("add", a.count(), b.count());
    device::add(where, a.halves, b.halves);
}
/// Subtracts: a -= b.  @throws parameter_error if the scales differ; shape_error unless there are as many
template <class Where, ckks::parameter_set P, int Level>
void subtract(const Where& where, ciphertexts<P, typename Where::space, Level>& a,
              const ciphertexts<P, typename Where::space, Level>& b) {
    ckks::detail::check_scales("subtract", a.scale, b.scale);
    detail::check_equal_counts("subtract", a.count(), b.count());
    device::subtract(where, a.halves, b.halves);
}

/// Multiplies a *= p, entry by entry in the slots; the scales multiply. Plaintext p.values[i % count] goes
/// with ciphertext i: one for all, or one for each.
/// @throws shape_error unless a.count() is a multiple of the plaintexts' count
template <class Where, ckks::parameter_set P, int Level>
void multiply_plain(const Where& where, ciphertexts<P, typename Where::space, Level>& a,
                    const plaintexts<P, rns::evaluation_form, typename Where::space, Level>& p) {
    if (a.count() != 0) {
        detail::check_counts("multiply_plain", a.count(), p.values.count());
        device::multiply(where, a.halves, p.values);
    }
    a.scale *= p.scale;
}
template <class Where, ckks::parameter_set P, class F, int L>
void multiply_plain(const Where&, ciphertexts<P, typename Where::space, L>&,
                    const plaintexts<P, F, typename Where::space, L>&) = delete;  // transform it first

/// Drops the last prime and divides by it, rounding exactly, as ckks::rescale does. Allocates the result and
/// N words of work for each half, and waits.
template <class Schedule = schedule::tuned, class Where, ckks::parameter_set P, int Level>
requires(Level >= 1) ciphertexts<P, typename Where::space, Level - 1> rescale(
    const Where& where,
    const rescale_plans<typename P::template basis_at<Level>, typename Where::space>& plans,
    const ciphertexts<P, typename Where::space, Level>& c) {
    return {device::rescale<Schedule>(where, plans, c.halves), c.scale / P::template rescale_factor<Level>};
}

/// Drops primes until `Target` rescales are left; value and scale stay.
template <int Target, class Where, ckks::parameter_set P, int Level>
ciphertexts<P, typename Where::space, Target> level_reduce(
    const Where& where, const ciphertexts<P, typename Where::space, Level>& c) {
    static_assert(Target >= 0 && Target <= Level, "ckks::level_reduce: a ciphertext can only lose levels");
    return {device::level_reduce<Target + 1>(where, c.halves), c.scale};
}

}  // namespace tensafe::device
