#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/scalar_lanes.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/x86/fp64_avx2.hpp>
#include <tensafe/arith/x86/residues_avx512.hpp>
#include <tensafe/ntt/plan.hpp>
#include <tensafe/ntt/x86/transform_avx512.hpp>
#include <tensafe/simd/dispatch.hpp>
#include <tensafe/simd/transpose.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

/// Eight polynomials at once: an entry is a row of eight words, one of each, so that lanes hold different
/// polynomials and none is ever shuffled. Entry k stands `stride` words after entry k - 1, at least eight.
namespace tensafe::ntt {

using arith::word;

inline constexpr std::size_t interleaved = 8;

namespace detail {

using arith::arithmetic_for;
using arith::lanes_of;
using arith::load;
using arith::load_operand;

/// The operands of a pass: `blocks` blocks of `length` entries, block i below node + i of the factors.
struct interleaved_pass {
    const word* from;
    std::size_t from_stride;
    word* to;
    std::size_t to_stride;
    std::size_t blocks;
    std::size_t length;
    std::size_t node;
    bool last;
};

/// Transforms stage by stage with the arithmetic of a target.
template <class Target, arith::modulus M>
class interleaved_passes {
    using arithmetic = typename lanes_of<Target>::template factors<M>;

  public:
    static constexpr int stages_of(int) noexcept { return 1; }

    explicit interleaved_passes(arith::shoup<M> p) noexcept : mod_(arithmetic_for<arithmetic>(p)) {}

    template <bool forward>
    TENSAFE_INLINE void run(int, const interleaved_pass& p,
                            const typename arith::shoup<M>::factor* factors) const noexcept {
        const auto mod = mod_;
        const std::size_t distance = p.length / 2;
        for (std::size_t block = 0; block < p.blocks; ++block) {
            const auto w = mod.prepare(factors[p.node + block]);
            for (std::size_t k = 0; k < distance; ++k) {
                for (std::size_t lane = 0; lane < interleaved; lane += arithmetic::words::width) {
                    const word* const x = p.from + (block * p.length + k) * p.from_stride + lane;
                    word* const y = p.to + (block * p.length + k) * p.to_stride + lane;
                    const auto a = load(mod, x);
                    const auto b = load(mod, x + distance * p.from_stride);
                    const auto c = forward ? mod.scale(b, w) : b;
                    mod.add(a, c).store(y);
                    (forward ? mod.subtract(a, c) : mod.scale_difference(a, c, w))
                        .store(y + distance * p.to_stride);
                }
            }
        }
    }

  private:
    arithmetic mod_;
};

#if TENSAFE_X86_64
/// Transforms in passes of up to three stages, with the butterflies of ntt::avx512, which reduce at the end.
template <arith::modulus M>
requires(M::bits <= avx512::shoup52_exact::max_bits) class interleaved_passes<simd::avx512, M> {
    using arithmetic = avx512::detail::lanes_for<M::bits>;
    using factor = typename arith::shoup<M>::factor;

  public:
    static constexpr int stages_of(int left) noexcept { return left == 4 ? 2 : std::min(left, 3); }

    explicit interleaved_passes(arith::shoup<M> p) noexcept : q_(p.modulus().value()) {}

    template <bool forward>
    void run(int stages, const interleaved_pass& p, const factor* factors) const noexcept {
        if (stages == 3) {
            run_rows<forward, 8>(p, factors);
        } else if (stages == 2) {
            run_rows<forward, 4>(p, factors);
        } else {
            run_rows<forward, 2>(p, factors);
        }
    }

  private:
    static constexpr std::size_t side_by_side = avx512::detail::side_by_side;
    /// The factors of a block below each node, `step` nodes apart for each set.
    struct node_factors {
        const factor* factors;
        std::size_t node;
        std::size_t step;

        TENSAFE_AVX512 TENSAFE_INLINE typename arithmetic::factor operator()(std::size_t set,
                                                                             std::size_t i) const noexcept {
            const std::size_t first = std::bit_floor(i + 1);
            const factor& w = factors[(node + set * step) * first + i + 1 - first];
            return {arith::avx512::broadcast(w.value),
                    arith::avx512::shift_right<12>(arith::avx512::broadcast(w.quotient))};
        }
    };

    /// Runs sets of n blocks; one starts `apart` entries after the other.
    template <bool forward, std::size_t n, std::size_t sets, class Factors>
    TENSAFE_AVX512 TENSAFE_INLINE static void run_sets(const arithmetic& a, const interleaved_pass& pass,
                                                       std::size_t first, std::size_t apart,
                                                       const Factors& w) noexcept {
        using rows = avx512::detail::block_rows<arithmetic, n, sets>;
        const std::size_t distance = pass.length / n;
        auto x = rows::load(pass.from + first * pass.from_stride, distance * pass.from_stride,
                            apart * pass.from_stride, rows::each);
        if constexpr (forward) {
            x.forward(a, w);
            if (pass.last) {
                x.make_canonical(a, rows::each);
            }
        } else {
            x.template inverse<arithmetic::inverse_bound, arithmetic::inverse_bound>(a, w);
            if (pass.last) {
                x.template make_canonical<arithmetic::inverse_bound>(a, rows::each);
            }
        }
        x.store(pass.to + first * pass.to_stride, distance * pass.to_stride, apart * pass.to_stride,
                rows::each);
    }

    template <bool forward, std::size_t n>
    TENSAFE_AVX512 void run_rows(const interleaved_pass& p, const factor* factors) const noexcept {
        const arithmetic a(q_);
        const interleaved_pass pass = p;
        if (pass.length > n) {
            for (std::size_t block = 0; block < pass.blocks; ++block) {
                const node_factors w{factors, pass.node + block, 0};
                for (std::size_t k = 0; k < pass.length / n; k += side_by_side) {
                    run_sets<forward, n, side_by_side>(a, pass, block * pass.length + k, 1, w);
                }
            }
        } else if (pass.blocks > 1) {
            for (std::size_t block = 0; block < pass.blocks; block += side_by_side) {
                run_sets<forward, n, side_by_side>(a, pass, block * n, n,
                                                   node_factors{factors, pass.node + block, 1});
            }
        } else {
            run_sets<forward, n, 1>(a, pass, 0, 0, node_factors{factors, pass.node, 0});
        }
    }

    word q_;
};
#endif

/// The part of a transform that lies below node `root`: 2^log_n entries.
template <bool forward, class Target, arith::modulus M>
TENSAFE_INLINE void transform_interleaved(arith::shoup<M> p, const typename arith::shoup<M>::factor* factors,
                                          std::size_t root, int log_n, const word* from,
                                          std::size_t from_stride, word* scratch, word* to,
                                          std::size_t to_stride) noexcept {
    using passes = interleaved_passes<Target, M>;
    const passes run(p);
    if (log_n == 0) {
        std::copy_n(from, interleaved, to);
    }
    for (int done = 0; done < log_n;) {
        const int stages = passes::stages_of(log_n - done);
        const int stage = forward ? done : log_n - done - stages;
        done += stages;
        const bool last = done == log_n;
        const interleaved_pass pass{from,
                                    from_stride,
                                    last ? to : scratch,
                                    last ? to_stride : interleaved,
                                    std::size_t{1} << stage,
                                    std::size_t{1} << (log_n - stage),
                                    root << stage,
                                    last};
        run.template run<forward>(stages, pass, factors);
        from = scratch;
        from_stride = interleaved;
    }
}

/// Computes some rows of a product: `vectors` vectors of each, one for each i.
template <std::size_t vectors, class Arithmetic, std::size_t... i>
TENSAFE_INLINE void multiply_rows(const Arithmetic& mod, const word* a, std::size_t stride, const word* b,
                                  word* out, std::size_t terms, std::index_sequence<i...>) noexcept {
    constexpr std::size_t width = Arithmetic::words::width;
    typename Arithmetic::sum s[] = {(static_cast<void>(i), mod.zero())...};
    for (std::size_t t = 0; t < terms;) {
        const std::size_t end = std::min(terms, t + mod.terms);
        for (; t < end; ++t) {
            (mod.add_product(s[i], load_operand(mod, b + t * interleaved + i % vectors * width),
                             Arithmetic::as_operand(Arithmetic::spread(a[i / vectors * stride + t]))),
             ...);
        }
        if (t < terms) {
            (mod.normalize(s[i]), ...);
        }
    }
    (mod.reduce(s[i]).store(out + i / vectors * interleaved + i % vectors * width), ...);
}

template <class Target, arith::modulus M>
TENSAFE_INLINE void multiply_interleaved(arith::barrett<M> p, const word* a, std::size_t stride,
                                         const word* b, word* out, std::size_t count, std::size_t rows,
                                         std::size_t terms) noexcept {
    using arithmetic = typename lanes_of<Target>::template products<M>;
    constexpr std::size_t vectors = interleaved / arithmetic::words::width;
    constexpr std::size_t at_once = vectors == 1 ? 6 : vectors == 2 ? 2 : 1;
    const auto mod = arithmetic_for<arithmetic>(p);
    for (std::size_t matrix = 0; matrix < count; ++matrix) {
        std::size_t row = 0;
        // The last ones a second time rather than one by one.
        for (; rows >= at_once && row < rows; row += at_once) {
            const std::size_t first = std::min(row, rows - at_once);
            multiply_rows<vectors>(mod, a + first * stride, stride, b, out + first * interleaved, terms,
                                   std::make_index_sequence<at_once * vectors>());
        }
        for (; row < rows; ++row) {
            multiply_rows<vectors>(mod, a + row * stride, stride, b, out + row * interleaved, terms,
                                   std::make_index_sequence<vectors>());
        }
        a += rows * stride;
        b += terms * interleaved;
        out += rows * interleaved;
    }
}

/// Sets out[c * out_stride + r] = in[r * in_stride + c].
template <class Target>
TENSAFE_INLINE void transpose(const word* in, std::size_t in_stride, std::size_t rows, std::size_t columns,
                              word* out, std::size_t out_stride) noexcept {
    using vector = typename Target::template vector<word>;
    constexpr std::size_t width = vector::width;
    std::size_t r = 0;
    for (; r + width <= rows; r += width) {
        for (std::size_t c = 0; c < columns; c += width) {
            vector x[width];
            for (std::size_t k = 0; k < width; ++k) {
                x[k] = vector::load(in + (r + k) * in_stride + c);
            }
            simd::transpose(x);
            for (std::size_t k = 0; k < width; ++k) {
                x[k].store(out + (c + k) * out_stride + r);
            }
        }
    }
    for (; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
            out[c * out_stride + r] = in[r * in_stride + c];
        }
    }
}

}  // namespace detail

/// Sets out[c * out_stride + r] = in[r * in_stride + c].  @pre  columns is a multiple of eight
inline void transpose(const word* in, std::size_t in_stride, std::size_t rows, std::size_t columns, word* out,
                      std::size_t out_stride) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::transpose<decltype(target)>>(in, in_stride, rows, columns, out,
                                                                     out_stride);
    });
}

/// Transforms each polynomial as ntt::forward does: natural order in, bit-reversed order out. With another
/// root than 1 it does only the part below that node of the transform, of as many stages less as the root has
/// bits after its first.
/// @param scratch  room for the entries; may be where they come from or go to
/// @pre  all words are below q
template <arith::modulus M>
void forward_interleaved(const plan<arith::shoup<M>>& p, std::size_t root, const word* from,
                         std::size_t from_stride, word* scratch, word* to, std::size_t to_stride) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::transform_interleaved<true, decltype(target), M>>(
            p.policy(), p.forward_factors(), root, p.log_n() + 1 - static_cast<int>(std::bit_width(root)),
            from, from_stride, scratch, to, to_stride);
    });
}

/// Transforms each polynomial as ntt::inverse does, but **times the degree**: who multiplied by its inverse
/// before need not divide. Writes entries without gaps; `from` may be `to`.
/// @pre  all words are below q
template <arith::modulus M>
void inverse_interleaved(const plan<arith::shoup<M>>& p, const word* from, std::size_t from_stride,
                         word* to) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::transform_interleaved<false, decltype(target), M>>(
            p.policy(), p.inverse_factors(), 1, p.log_n(), from, from_stride, to, to, interleaved);
    });
}

/// Multiplies `count` matrices of `rows` x `terms`, row after row with `stride` words for each, by matrices
/// of `terms` x eight. Sums of products are reduced once.
/// @pre  all words are below q
template <arith::modulus M>
void multiply_interleaved(arith::barrett<M> p, const word* a, std::size_t stride, const word* b, word* out,
                          std::size_t count, std::size_t rows, std::size_t terms) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::multiply_interleaved<decltype(target), M>>(p, a, stride, b, out,
                                                                                   count, rows, terms);
    });
}

}  // namespace tensafe::ntt
