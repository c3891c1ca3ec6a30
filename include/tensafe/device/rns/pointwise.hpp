#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/device/core/with_index.hpp>
#include <tensafe/device/exec/context.hpp>
#include <tensafe/device/ntt/words.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/rns/basis.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tensafe::rns {

// Operations entry by entry on stacks of polynomials, each one launch for all limbs and polynomials. They
// give the words that rns/pointwise.hpp gives. No branch and no index depends on a word.

/// What becomes of one word of each operand, all in [0, q). `operands` says how many of them are read.
namespace pointwise {

struct copy {
    static constexpr int operands = 1;
    template <arith::word Q>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static arith::word apply(arith::word a, arith::word,
                                                                arith::word) noexcept {
        return a;
    }
};
struct negate {
    static constexpr int operands = 1;
    template <arith::word Q>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static arith::word apply(arith::word a, arith::word,
                                                                arith::word) noexcept {
        return arith::subtract_if_not_below(Q - a, Q);
    }
};
/// a + b.
struct add {
    static constexpr int operands = 2;
    template <arith::word Q>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static arith::word apply(arith::word a, arith::word b,
                                                                arith::word) noexcept {
        return arith::subtract_if_not_below(a + b, Q);
    }
};
/// a - b.
struct subtract {
    static constexpr int operands = 2;
    template <arith::word Q>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static arith::word apply(arith::word a, arith::word b,
                                                                arith::word) noexcept {
        return arith::subtract_if_not_below(a + Q - b, Q);
    }
};
/// a * b.
struct multiply {
    static constexpr int operands = 2;
    template <arith::word Q>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static arith::word apply(arith::word a, arith::word b,
                                                                arith::word) noexcept {
        constexpr arith::barrett<arith::fixed_modulus<Q>> policy{};
        return policy.reduce_fully(arith::mul_wide(a, b));
    }
};
/// a * b + c.
struct multiply_add {
    static constexpr int operands = 3;
    template <arith::word Q>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static arith::word apply(arith::word a, arith::word b,
                                                                arith::word c) noexcept {
        constexpr arith::barrett<arith::fixed_modulus<Q>> policy{};
        return policy.reduce_fully(arith::mul_wide(a, b) + c);
    }
};
/// c - a * b.
struct subtract_product {
    static constexpr int operands = 3;
    template <arith::word Q>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static arith::word apply(arith::word a, arith::word b,
                                                                arith::word c) noexcept {
        return subtract::apply<Q>(c, multiply::apply<Q>(a, b, 0), 0);
    }
};

}  // namespace pointwise

namespace detail {

/// Two words at once.  @pre `words` is 16-byte aligned
TENSAFE_HOST_DEVICE TENSAFE_INLINE ntt::word_pair load_pair(const arith::word* words) noexcept {
    return *reinterpret_cast<const ntt::word_pair*>(words);
}
TENSAFE_HOST_DEVICE TENSAFE_INLINE void store_pair(arith::word* words, ntt::word_pair values) noexcept {
    *reinterpret_cast<ntt::word_pair*>(words) = values;
}

template <arith::word Q, class Operation>
TENSAFE_HOST_DEVICE TENSAFE_INLINE ntt::word_pair apply_to_pairs(ntt::word_pair a, ntt::word_pair b,
                                                                 ntt::word_pair c) noexcept {
    return {Operation::template apply<Q>(a.first, b.first, c.first),
            Operation::template apply<Q>(a.second, b.second, c.second)};
}

/// One block: 1024 neighbouring words of one limb of one polynomial, two pairs a thread.
template <class Basis, class Operation>
struct pointwise_kernel {
    static constexpr int threads = 256;
    static constexpr std::size_t words_per_block = 4 * static_cast<std::size_t>(threads);
    static constexpr std::uint32_t blocks_per_polynomial = exec::blocks_for(Basis::degree, words_per_block);
    using shared_type = exec::no_shared;

    arith::word* out;
    std::size_t out_stride;
    stack_view a;
    stack_view b;
    stack_view c;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::uint32_t polynomial = ctx.block().x / blocks_per_polynomial;
        const std::size_t first = ctx.block().x % blocks_per_polynomial * words_per_block;
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            const std::size_t start = static_cast<std::size_t>(I) * Basis::degree + first;
            arith::word* const to = out + polynomial * out_stride + start;
            const arith::word* const from_a = operand<0>(a, polynomial, start);
            const arith::word* const from_b = operand<1>(b, polynomial, start);
            const arith::word* const from_c = operand<2>(c, polynomial, start);
            ctx.last([&](int t) {
                ntt::word_pair values[2];
                for (int j = 0; j < 2; ++j) {
                    const std::size_t k =
                        2 * (static_cast<std::size_t>(t) + static_cast<std::size_t>(j) * threads);
                    if (!inside(first + k)) {
                        continue;
                    }
                    values[j] = apply_to_pairs<Basis::template prime<I>, Operation>(
                        read<0>(from_a, k), read<1>(from_b, k), read<2>(from_c, k));
                }
                // After both loads, which the compiler could not move past a store.
                for (int j = 0; j < 2; ++j) {
                    const std::size_t k =
                        2 * (static_cast<std::size_t>(t) + static_cast<std::size_t>(j) * threads);
                    if (inside(first + k)) {
                        store_pair(to + k, values[j]);
                    }
                }
            });
        });
    }

    template <int Number>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static const arith::word* operand(const stack_view& view,
                                                                         std::uint32_t polynomial,
                                                                         std::size_t start) noexcept {
        if constexpr (Number < Operation::operands) {
            return view.polynomial(polynomial) + start;
        } else {
            return nullptr;
        }
    }
    template <int Number>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static ntt::word_pair read(const arith::word* words,
                                                                  std::size_t k) noexcept {
        if constexpr (Number < Operation::operands) {
            return load_pair(words + k);
        } else {
            return {0, 0};
        }
    }
    TENSAFE_HOST_DEVICE TENSAFE_INLINE static bool inside(std::size_t k) noexcept {
        return Basis::degree % words_per_block == 0 || k < Basis::degree;
    }
};

/// @throws shape_error if a grid has no room for so many polynomials of so many blocks each
inline std::uint32_t checked_grid(const char* operation, std::size_t polynomials,
                                  std::size_t blocks_of_each) {
    if (polynomials > 0x7fffffffU / blocks_of_each) {
        throw shape_error(std::string(operation) + ": got " + std::to_string(polynomials) +
                          " polynomials, expected at most " + std::to_string(0x7fffffffU / blocks_of_each));
    }
    return static_cast<std::uint32_t>(polynomials * blocks_of_each);
}

}  // namespace detail

/// out = Operation(a, b, c) for every entry of every limb of `polynomials` polynomials: polynomial p of the
/// result starts at out + p * out_stride, and the operands are as stack_view says. `out` may be one of the
/// operands if polynomial p of it is polynomial p of that one.
///
/// One launch; each word is read once for each operand and written once, 16 bytes at a time. Forms are the
/// caller's to keep: the functions for poly_stack below check them.
/// @pre  pointers are 16-byte aligned, strides even and at least limbs * N; words in [0, q)
/// @throws shape_error if there are more polynomials than a grid has room for
template <class Basis, class Operation, class Where>
void pointwise_blocks(const Where& where, Operation, std::size_t polynomials, arith::word* out,
                      std::size_t out_stride, const stack_view& a, const stack_view& b = {},
                      const stack_view& c = {}) {
    using kernel = detail::pointwise_kernel<Basis, Operation>;
    static_assert(Basis::degree >= 2, "rns::pointwise_blocks: words are read in pairs");
    const std::uint32_t blocks =
        detail::checked_grid("rns::pointwise_blocks", polynomials, kernel::blocks_per_polynomial);
    if (blocks != 0) {
        where.launch(kernel{out, out_stride, a, b, c},
                     exec::grid_shape{blocks, static_cast<std::uint32_t>(Basis::limbs), 1});
    }
}

namespace detail {

/// `b` is as long as `a`, or shorter by a whole factor: then it is used again and again.
/// @throws shape_error otherwise
inline void check_counts(const char* operation, std::size_t a, std::size_t b) {
    if (b == 0 || a % b != 0) {
        throw shape_error(std::string(operation) + ": got stacks of " + std::to_string(a) + " and " +
                          std::to_string(b) +
                          " polynomials, expected the first to be a multiple of the second");
    }
}

template <class Operation, class Where, class Basis, class Form, class R, class S>
void update_stack(const char* name, const Where& where, poly_stack<Basis, Form, typename Where::space, R>& a,
                  const poly_stack<Basis, Form, typename Where::space, S>& b) {
    if (a.count() != 0) {
        check_counts(name, a.count(), b.count());
        pointwise_blocks<Basis>(where, Operation{}, a.count(), a.data(), a.stride, view_of(a), view_of(b));
    }
}

}  // namespace detail

// For whole stacks. Where `b` has fewer polynomials than `a`, they come again and again: one plaintext for
// all polynomials, or one for c0 and c1 of each of many ciphertexts, whose c0 stand before their c1.

/// a += b.  @throws shape_error unless a.count() is a multiple of b.count()
template <class Where, class Basis, class Form, class R, class S>
void add(const Where& where, poly_stack<Basis, Form, typename Where::space, R>& a,
         const poly_stack<Basis, Form, typename Where::space, S>& b) {
    detail::update_stack<pointwise::add>("rns::add", where, a, b);
}
/// a -= b.  @throws shape_error unless a.count() is a multiple of b.count()
template <class Where, class Basis, class Form, class R, class S>
void subtract(const Where& where, poly_stack<Basis, Form, typename Where::space, R>& a,
              const poly_stack<Basis, Form, typename Where::space, S>& b) {
    detail::update_stack<pointwise::subtract>("rns::subtract", where, a, b);
}
/// a = -a.
template <class Where, class Basis, class Form, class R>
void negate(const Where& where, poly_stack<Basis, Form, typename Where::space, R>& a) {
    if (a.count() != 0) {
        pointwise_blocks<Basis>(where, pointwise::negate{}, a.count(), a.data(), a.stride, view_of(a));
    }
}
/// a *= b.  @throws shape_error unless a.count() is a multiple of b.count()
template <class Where, class Basis, class R, class S>
void multiply(const Where& where, poly_stack<Basis, evaluation_form, typename Where::space, R>& a,
              const poly_stack<Basis, evaluation_form, typename Where::space, S>& b) {
    detail::update_stack<pointwise::multiply>("rns::multiply", where, a, b);
}
/// accumulator += a * b.
/// @throws shape_error unless the accumulator has as many polynomials as `a`, a multiple of those of `b`
template <class Where, class Basis, class R, class S, class T>
void multiply_accumulate(const Where& where,
                         poly_stack<Basis, evaluation_form, typename Where::space, R>& accumulator,
                         const poly_stack<Basis, evaluation_form, typename Where::space, S>& a,
                         const poly_stack<Basis, evaluation_form, typename Where::space, T>& b) {
    if (accumulator.count() != a.count()) {
        throw shape_error("rns::multiply_accumulate: got stacks of " + std::to_string(accumulator.count()) +
                          " and " + std::to_string(a.count()) + " polynomials, expected equal counts");
    }
    if (a.count() != 0) {
        detail::check_counts("rns::multiply_accumulate", a.count(), b.count());
        pointwise_blocks<Basis>(where, pointwise::multiply_add{}, a.count(), accumulator.data(),
                                accumulator.stride, view_of(a), view_of(b), view_of(accumulator));
    }
}
template <class Where, class Basis, class E, class F, class Space, class R, class S>
void multiply(const Where&, poly_stack<Basis, E, Space, R>&, const poly_stack<Basis, F, Space, S>&) =
    delete;  // products need evaluation form: transform the factors first

/// The first `Limbs` limbs: the same polynomials modulo a divisor of Q. Launches can do without the copy: a
/// stack_view of longer polynomials serves a launch of a shorter chain.
template <int Limbs, class Where, class Basis, class Form, class R>
poly_stack<prefix<Basis, Limbs>, Form, typename Where::space, R> level_reduce(
    const Where& where, const poly_stack<Basis, Form, typename Where::space, R>& p) {
    static_assert(Limbs >= 1, "rns::level_reduce: at least one limb must stay");
    using shorter = prefix<Basis, Limbs>;
    poly_stack<shorter, Form, typename Where::space, R> result(p.count(), memory::uninitialized);
    if (p.count() != 0) {
        pointwise_blocks<shorter>(where, pointwise::copy{}, p.count(), result.data(), result.stride,
                                  view_of(p));
    }
    return result;
}

}  // namespace tensafe::rns
