#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/modulus.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/ntt/plan.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/poly.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tensafe::device {

/// The number of words of one polynomial.
template <class Basis>
inline constexpr std::size_t words_of_poly = Basis::degree* static_cast<std::size_t>(Basis::limbs);

/// `count()` polynomials in the memory of a space, [polynomial][limb][N], every word in [0, q). Chain, form
/// and space are part of the type, as they are of rns::poly's. Value semantics; thread and exception safety
/// of a standard container.
template <class Basis, class Form, class Space, class Release = memory::keep_on_release>
class poly_stack {
    static_assert(std::is_same_v<Form, rns::coefficient_form> || std::is_same_v<Form, rns::evaluation_form>,
                  "device::poly_stack: the form is coefficient_form or evaluation_form");

  public:
    using basis_type = Basis;
    using release_type = Release;
    using storage = memory::buffer<word, Space, Release>;

    static constexpr std::size_t stride = words_of_poly<Basis>;  ///< words from one polynomial to the next

    poly_stack() noexcept = default;
    /// Makes polynomials 0.
    explicit poly_stack(std::size_t count) : words_(count * stride) {}
    /// Makes polynomials whose words will be written before they are read.
    poly_stack(std::size_t count, memory::uninitialized_t) : words_(count * stride, memory::uninitialized) {}

    std::size_t count() const noexcept { return words_.size() / stride; }
    word* data() noexcept { return words_.data(); }
    const word* data() const noexcept { return words_.data(); }
    /// The place where polynomial p starts.  @pre p <= count()
    word* at(std::size_t p) noexcept { return words_.data() + p * stride; }
    const word* at(std::size_t p) const noexcept { return words_.data() + p * stride; }

  private:
    storage words_;
};

/// A stack whose words are secret: wiped on release.
template <class Basis, class Form, class Space>
using secret_poly_stack = poly_stack<Basis, Form, Space, memory::wipe_on_release>;

namespace detail {
inline void check_place(const char* operation, std::size_t place, std::size_t count) {
    require<shape_error>(
        place < count, {operation, ": got place ", place, ", expected one below the stack's count ", count});
}
}  // namespace detail

/// Copies a host's polynomial to a place of the stack. A secret one goes into a secret stack only. Takes
/// effect in the order of `where`; `from` stays untouched until then.
/// @throws shape_error if the stack has no such place
template <class Where, class Basis, class Form, class R, class S>
void upload(const Where& where, const rns::poly<Basis, Form, memory::host_space, R>& from,
            poly_stack<Basis, Form, typename Where::space, S>& to, std::size_t place) {
    static_assert(std::is_same_v<R, memory::keep_on_release> || std::is_same_v<S, memory::wipe_on_release>,
                  "device::upload: a secret polynomial needs a secret_poly_stack, which is wiped on release");
    detail::check_place("device::upload", place, to.count());
    where.upload(from.words(), to.at(place));
}

/// Copies a place of the stack to the host, secret if the stack is. Waits until it is there.
/// @throws shape_error if the stack has no such place
template <class Where, class Basis, class Form, class R>
rns::poly<Basis, Form, memory::host_space, R> download(
    const Where& where, const poly_stack<Basis, Form, typename Where::space, R>& from, std::size_t place) {
    detail::check_place("device::download", place, from.count());
    memory::buffer<word, memory::host_space, R> words(words_of_poly<Basis>, memory::uninitialized);
    where.download(from.at(place), words.span());
    where.wait();
    return rns::poly<Basis, Form, memory::host_space, R>(std::move(words));
}

/// Polynomials that a launch reads, as a kernel sees them. Polynomial p of the launch is number
/// (p / repeat) % cycle of them, so that several can share one; they may have more limbs than the launch,
/// which takes the first. A plain value; does not own the words.
struct stack_view {
    const word* words = nullptr;        ///< 16-byte aligned
    std::size_t stride = 0;             ///< words from one polynomial to the next, an even number
    std::uint32_t repeat = 1;           ///< polynomials of the launch in a row that share one
    std::uint32_t cycle = 0xffffffffU;  ///< the number of them after which the first one comes again

    TENSAFE_HD_INLINE const word* polynomial(std::uint32_t p) const noexcept {
        // The same branches for a whole thread block, which spare most launches the divisions.
        std::uint32_t number = p;
        if (repeat != 1) {
            number /= repeat;
        }
        if (number >= cycle) {
            number %= cycle;
        }
        return words + static_cast<std::size_t>(number) * stride;
    }
};

/// A view of polynomials of this chain, one after the other.
template <class Basis>
constexpr stack_view view_of(const word* words, std::uint32_t repeat = 1,
                             std::uint32_t cycle = 0xffffffffU) noexcept {
    return {words, words_of_poly<Basis>, repeat, cycle};
}
template <class Basis, class Form, class Space, class R>
stack_view view_of(const poly_stack<Basis, Form, Space, R>& stack, std::uint32_t repeat = 1) noexcept {
    return view_of<Basis>(stack.data(), repeat,
                          stack.count() == 0 ? 1U : static_cast<std::uint32_t>(stack.count()));
}

// Operations entry by entry on stacks of polynomials, each one launch for all limbs and polynomials. They
// give the words that rns/pointwise.hpp gives. No branch and no index depends on a word.

/// The operations on one word of each operand, all in [0, q). `operands` says how many of them are read.
namespace pointwise {

struct copy {
    static constexpr int operands = 1;
    template <word Q>
    TENSAFE_HD_INLINE static word apply(word a, word, word) noexcept {
        return a;
    }
};
struct negate {
    static constexpr int operands = 1;
    template <word Q>
    TENSAFE_HD_INLINE static word apply(word a, word, word) noexcept {
        return arith::subtract_if_not_below(Q - a, Q);
    }
};
struct add {
    static constexpr int operands = 2;
    template <word Q>
    TENSAFE_HD_INLINE static word apply(word a, word b, word) noexcept {
        return arith::subtract_if_not_below(a + b, Q);
    }
};
struct subtract {
    static constexpr int operands = 2;
    template <word Q>
    TENSAFE_HD_INLINE static word apply(word a, word b, word) noexcept {
        return arith::subtract_if_not_below(a + Q - b, Q);
    }
};
struct multiply {
    static constexpr int operands = 2;
    template <word Q>
    TENSAFE_HD_INLINE static word apply(word a, word b, word) noexcept {
        constexpr arith::barrett<arith::fixed_modulus<Q>> policy{};
        return policy.reduce_fully(arith::mul_wide(a, b));
    }
};
/// The value a * b + c.
struct multiply_add {
    static constexpr int operands = 3;
    template <word Q>
    TENSAFE_HD_INLINE static word apply(word a, word b, word c) noexcept {
        constexpr arith::barrett<arith::fixed_modulus<Q>> policy{};
        return policy.reduce_fully(arith::mul_wide(a, b) + c);
    }
};
/// The value c - a * b.
struct subtract_product {
    static constexpr int operands = 3;
    template <word Q>
    TENSAFE_HD_INLINE static word apply(word a, word b, word c) noexcept {
        return subtract::apply<Q>(c, multiply::apply<Q>(a, b, 0), 0);
    }
};

}  // namespace pointwise

namespace detail {

template <word Q, class Operation>
TENSAFE_HD_INLINE word_pair apply_to_pairs(word_pair a, word_pair b, word_pair c) noexcept {
    return {Operation::template apply<Q>(a.first, b.first, c.first),
            Operation::template apply<Q>(a.second, b.second, c.second)};
}

/// Applies an operation: one thread block to 1024 neighbouring words of one limb, two pairs a thread.
template <class Basis, class Operation>
struct pointwise_kernel {
    static constexpr int threads = 256;
    static constexpr std::size_t words_per_block = 4 * static_cast<std::size_t>(threads);
    static constexpr std::uint32_t blocks_per_polynomial = blocks_for(Basis::degree, words_per_block);
    using shared_type = no_shared;

    word* out;
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
            word* const to = out + polynomial * out_stride + start;
            const word* const from_a = operand<0>(a, polynomial, start);
            const word* const from_b = operand<1>(b, polynomial, start);
            const word* const from_c = operand<2>(c, polynomial, start);
            ctx.last([&](int t) {
                word_pair values[2];
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
    TENSAFE_HD_INLINE static const word* operand(const stack_view& view, std::uint32_t polynomial,
                                                 std::size_t start) noexcept {
        if constexpr (Number < Operation::operands) {
            return view.polynomial(polynomial) + start;
        } else {
            return nullptr;
        }
    }
    template <int Number>
    TENSAFE_HD_INLINE static word_pair read(const word* words, std::size_t k) noexcept {
        if constexpr (Number < Operation::operands) {
            return load_pair(words + k);
        } else {
            return {0, 0};
        }
    }
    TENSAFE_HD_INLINE static bool inside(std::size_t k) noexcept {
        return Basis::degree % words_per_block == 0 || k < Basis::degree;
    }
};

/// Returns the thread blocks.  @throws shape_error if a grid has no room for them
inline std::uint32_t checked_grid(const char* operation, std::size_t polynomials,
                                  std::size_t blocks_of_each) {
    require<shape_error>(
        polynomials <= 0x7fffffffU / blocks_of_each,
        {operation, ": got ", polynomials, " polynomials, expected at most ", 0x7fffffffU / blocks_of_each});
    return static_cast<std::uint32_t>(polynomials * blocks_of_each);
}

}  // namespace detail

/// Applies out = Operation(a, b, c) to every entry of every limb of `polynomials` polynomials: polynomial p
/// of the result starts at out + p * out_stride, and the operands are as stack_view says. `out` may be one of
/// the operands if polynomial p of it is polynomial p of that one.
///
/// One launch. Forms are the caller's to keep: the functions for poly_stack below check them.
/// @pre  pointers are 16-byte aligned, strides even and at least limbs * N; words in [0, q)
/// @throws shape_error if there are more polynomials than a grid has room for
template <class Basis, class Operation, class Where>
void apply_pointwise(const Where& where, Operation, std::size_t polynomials, word* out,
                     std::size_t out_stride, const stack_view& a, const stack_view& b = {},
                     const stack_view& c = {}) {
    using kernel = detail::pointwise_kernel<Basis, Operation>;
    static_assert(Basis::degree >= 2, "device::apply_pointwise: words are read in pairs");
    const std::uint32_t blocks =
        detail::checked_grid("device::apply_pointwise", polynomials, kernel::blocks_per_polynomial);
    if (blocks != 0) {
        where.launch(kernel{out, out_stride, a, b, c},
                     grid_shape{blocks, static_cast<std::uint32_t>(Basis::limbs), 1});
    }
}

namespace detail {

/// Checks that `b` is as long as `a`, or shorter by a whole factor, so that it is used again and again.
inline void check_counts(const char* operation, std::size_t a, std::size_t b) {
    require<shape_error>(b != 0 && a % b == 0,
                         {operation, ": got stacks of ", a, " and ", b,
                          " polynomials, expected the first to be a multiple of the second"});
}

template <class Operation, class Where, class Basis, class Form, class R, class S>
void update_stack(const char* name, const Where& where, poly_stack<Basis, Form, typename Where::space, R>& a,
                  const poly_stack<Basis, Form, typename Where::space, S>& b) {
    if (a.count() != 0) {
        check_counts(name, a.count(), b.count());
        apply_pointwise<Basis>(where, Operation{}, a.count(), a.data(), a.stride, view_of(a), view_of(b));
    }
}

}  // namespace detail

// For whole stacks. Where `b` has fewer polynomials than `a`, they come again and again: one plaintext for
// all polynomials, or one for c0 and c1 of each of many ciphertexts, whose c0 stand before their c1.

/// Adds a += b.  @throws shape_error unless a.count() is a multiple of b.count()
template <class Where, class Basis, class Form, class R, class S>
void add(const Where& where, poly_stack<Basis, Form, typename Where::space, R>& a,
         const poly_stack<Basis, Form, typename Where::space, S>& b) {
    detail::update_stack<pointwise::add>("rns::add", where, a, b);
}
/// Subtracts a -= b.  @throws shape_error unless a.count() is a multiple of b.count()
template <class Where, class Basis, class Form, class R, class S>
void subtract(const Where& where, poly_stack<Basis, Form, typename Where::space, R>& a,
              const poly_stack<Basis, Form, typename Where::space, S>& b) {
    detail::update_stack<pointwise::subtract>("rns::subtract", where, a, b);
}
/// Negates a = -a.
template <class Where, class Basis, class Form, class R>
void negate(const Where& where, poly_stack<Basis, Form, typename Where::space, R>& a) {
    if (a.count() != 0) {
        apply_pointwise<Basis>(where, pointwise::negate{}, a.count(), a.data(), a.stride, view_of(a));
    }
}
/// Multiplies a *= b.  @throws shape_error unless a.count() is a multiple of b.count()
template <class Where, class Basis, class R, class S>
void multiply(const Where& where, poly_stack<Basis, rns::evaluation_form, typename Where::space, R>& a,
              const poly_stack<Basis, rns::evaluation_form, typename Where::space, S>& b) {
    detail::update_stack<pointwise::multiply>("rns::multiply", where, a, b);
}
/// Adds products: accumulator += a * b.
/// @throws shape_error unless the accumulator has as many polynomials as `a`, a multiple of those of `b`
template <class Where, class Basis, class R, class S, class T>
void multiply_accumulate(const Where& where,
                         poly_stack<Basis, rns::evaluation_form, typename Where::space, R>& accumulator,
                         const poly_stack<Basis, rns::evaluation_form, typename Where::space, S>& a,
                         const poly_stack<Basis, rns::evaluation_form, typename Where::space, T>& b) {
    require<shape_error>(accumulator.count() == a.count(),
                         {"rns::multiply_accumulate: got stacks of ", accumulator.count(), " and ", a.count(),
                          " polynomials, expected equal counts"});
    if (a.count() != 0) {
        detail::check_counts("rns::multiply_accumulate", a.count(), b.count());
        apply_pointwise<Basis>(where, pointwise::multiply_add{}, a.count(), accumulator.data(),
                               accumulator.stride, view_of(a), view_of(b), view_of(accumulator));
    }
}
template <class Where, class Basis, class E, class F, class Space, class R, class S>
void multiply(const Where&, poly_stack<Basis, E, Space, R>&, const poly_stack<Basis, F, Space, S>&) =
    delete;  // products need evaluation form: transform the factors first

/// Copies the first `Limbs` limbs: the same polynomials modulo a divisor of Q. Launches can do without the
/// copy: a stack_view of longer polynomials serves a launch of a shorter chain.
template <int Limbs, class Where, class Basis, class Form, class R>
poly_stack<rns::prefix<Basis, Limbs>, Form, typename Where::space, R> level_reduce(
    const Where& where, const poly_stack<Basis, Form, typename Where::space, R>& p) {
    static_assert(Limbs >= 1, "rns::level_reduce: at least one limb must stay");
    using shorter = rns::prefix<Basis, Limbs>;
    poly_stack<shorter, Form, typename Where::space, R> result(p.count(), memory::uninitialized);
    if (p.count() != 0) {
        apply_pointwise<shorter>(where, pointwise::copy{}, p.count(), result.data(), result.stride,
                                 view_of(p));
    }
    return result;
}

}  // namespace tensafe::device
