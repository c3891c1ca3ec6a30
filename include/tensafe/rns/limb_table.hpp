#pragma once

#include <tensafe/ntt/transform.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/limb.hpp>
#include <tensafe/rns/limb_sums.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensafe::rns {

/// What is done with one limb, for code that learns its chain at run time, so that there is one body of it
/// for all levels of all sets. Spans have N words; residues are in [0, q). Immutable; thread-safe.
class limb_operations {
  public:
    using word = arith::word;

    limb_operations(const limb_operations&) = delete;
    limb_operations& operator=(const limb_operations&) = delete;
    virtual ~limb_operations() = default;

    word prime() const noexcept { return prime_; }
    std::size_t degree() const noexcept { return degree_; }

    virtual void forward(std::span<word> x) const noexcept = 0;
    virtual void inverse(std::span<word> x) const noexcept = 0;
    // As those of rns::limb.
    virtual void add(std::span<word> out, const word* a, const word* b) const noexcept = 0;
    virtual void add_constant(std::span<word> out, const word* a, word c) const noexcept = 0;
    virtual void multiply(std::span<word> out, const word* a, const word* b) const noexcept = 0;
    virtual void multiply_add(std::span<word> out, const word* a, const word* b,
                              const word* c) const noexcept = 0;
    virtual void subtract_product(std::span<word> out, const word* a, const word* b,
                                  const word* c) const noexcept = 0;
    virtual void scale(std::span<word> out, const word* a, word w) const noexcept = 0;
    virtual void scale_shifted(std::span<word> out, const word* a, word shift, word w) const noexcept = 0;
    virtual void scale_difference(std::span<word> out, const word* a, const word* b,
                                  word w) const noexcept = 0;
    virtual void reduce(std::span<word> out, const word* words) const noexcept = 0;
    virtual void set_small(std::span<word> out, std::span<const std::int8_t> small) const noexcept = 0;
    virtual void round_reals(std::span<word> out, std::span<const double> reals) const noexcept = 0;
    virtual void sum_multiples(std::span<word> out, const word* const* from, std::span<const word> factors,
                               word offset) const noexcept = 0;
    virtual void sum_pairs(const limb::pair_sums& sums) const noexcept = 0;

  protected:
    limb_operations(word prime, std::size_t degree) noexcept : prime_(prime), degree_(degree) {}

  private:
    word prime_;
    std::size_t degree_;
};

namespace detail {

/// One implementation for each class of widths.
template <arith::modulus M>
class operations_of final : public limb_operations {
  public:
    explicit operations_of(const ntt::plan<arith::shoup<M>>& plan) noexcept
        : limb_operations(plan.policy().modulus().value(), plan.degree()),
          plan_(plan),
          variable_(plan.policy().modulus()) {}

    void forward(std::span<word> x) const noexcept override { ntt::forward(plan_, x); }
    void inverse(std::span<word> x) const noexcept override { ntt::inverse(plan_, x); }
    void add(std::span<word> out, const word* a, const word* b) const noexcept override {
        limb::add(modulus(), out, of(a, out), of(b, out));
    }
    void add_constant(std::span<word> out, const word* a, word c) const noexcept override {
        limb::add_constant(modulus(), out, of(a, out), c);
    }
    void multiply(std::span<word> out, const word* a, const word* b) const noexcept override {
        limb::multiply(variable_, out, of(a, out), of(b, out));
    }
    void multiply_add(std::span<word> out, const word* a, const word* b,
                      const word* c) const noexcept override {
        limb::multiply_add(variable_, out, of(a, out), of(b, out), of(c, out));
    }
    void subtract_product(std::span<word> out, const word* a, const word* b,
                          const word* c) const noexcept override {
        limb::subtract_product(variable_, out, of(a, out), of(b, out), of(c, out));
    }
    void scale(std::span<word> out, const word* a, word w) const noexcept override {
        limb::scale(plan_.policy(), out, of(a, out), plan_.policy().prepare(w));
    }
    void scale_shifted(std::span<word> out, const word* a, word shift, word w) const noexcept override {
        limb::scale_shifted(plan_.policy(), out, of(a, out), shift, plan_.policy().prepare(w));
    }
    void scale_difference(std::span<word> out, const word* a, const word* b, word w) const noexcept override {
        limb::scale_difference(plan_.policy(), out, of(a, out), of(b, out), plan_.policy().prepare(w));
    }
    void reduce(std::span<word> out, const word* words) const noexcept override {
        limb::reduce_shifted(plan_.policy(), out, of(words, out), 0);
    }
    void set_small(std::span<word> out, std::span<const std::int8_t> small) const noexcept override {
        limb::set_small(modulus(), out, small);
    }
    void round_reals(std::span<word> out, std::span<const double> reals) const noexcept override {
        limb::round_reals(plan_.policy(), out, reals);
    }
    void sum_multiples(std::span<word> out, const word* const* from, std::span<const word> factors,
                       word offset) const noexcept override {
        limb::sum_multiples(variable_, out, from, factors, offset);
    }
    void sum_pairs(const limb::pair_sums& sums) const noexcept override { limb::sum_pairs(variable_, sums); }

  private:
    M modulus() const noexcept { return plan_.policy().modulus(); }
    static std::span<const word> of(const word* x, std::span<word> like) noexcept { return {x, like.size()}; }

    const ntt::plan<arith::shoup<M>>& plan_;
    arith::barrett<M> variable_;
};

}  // namespace detail

/// The operations modulo Q, with the plan that everything in the process shares. Thread-safe.
/// @throws std::bad_alloc on first use
template <int LogN, arith::word Q>
const limb_operations& shared_operations() {
    static const detail::operations_of<modulus_of<Q>> operations(shared_plan<LogN, Q>());
    return operations;
}

/// The operations of limbs, in the order of a chain.
using limb_table = std::span<const limb_operations* const>;

}  // namespace tensafe::rns
