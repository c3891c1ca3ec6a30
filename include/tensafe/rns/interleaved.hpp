#pragma once

#include <tensafe/arith/shoup.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/ntt/plan.hpp>
#include <tensafe/rns/limb_loops.hpp>
#include <tensafe/simd/dispatch.hpp>

#include <cstddef>
#include <span>
#include <type_traits>

/// Negacyclic NTTs of many short polynomials at once: entry c of polynomial j stands at c * count + j, so that
/// lanes hold different polynomials and none is ever shuffled.
namespace tensafe::rns::limb {

using arith::word;

namespace detail {

/// Two stages on four rows of `length` words, one after the other.
struct forward_rows {
    static TENSAFE_INLINE void at(const auto& mod, word* x, std::size_t length, const auto* w) noexcept {
        const auto c = mod.scale(load(mod, x + 2 * length), w[0]);
        const auto d = mod.scale(load(mod, x + 3 * length), w[0]);
        const auto a = load(mod, x);
        const auto b = load(mod, x + length);
        const auto sum = mod.add(a, c);
        const auto difference = mod.subtract(a, c);
        const auto product = mod.scale(mod.add(b, d), w[1]);
        const auto other = mod.scale(mod.subtract(b, d), w[2]);
        mod.add(sum, product).store(x);
        mod.subtract(sum, product).store(x + length);
        mod.add(difference, other).store(x + 2 * length);
        mod.subtract(difference, other).store(x + 3 * length);
    }
    static TENSAFE_INLINE void at_two(const auto& mod, word* x, std::size_t length, const auto& w) noexcept {
        const auto a = load(mod, x);
        const auto b = mod.scale(load(mod, x + length), w);
        mod.add(a, b).store(x);
        mod.subtract(a, b).store(x + length);
    }
};
struct inverse_rows {
    static TENSAFE_INLINE void at(const auto& mod, word* x, std::size_t length, const auto* w) noexcept {
        const auto x0 = load(mod, x);
        const auto x1 = load(mod, x + length);
        const auto x2 = load(mod, x + 2 * length);
        const auto x3 = load(mod, x + 3 * length);
        const auto a = mod.add(x0, x1);
        const auto b = mod.scale_difference(x0, x1, w[1]);
        const auto c = mod.add(x2, x3);
        const auto d = mod.scale_difference(x2, x3, w[2]);
        mod.add(a, c).store(x);
        mod.add(b, d).store(x + length);
        mod.scale_difference(a, c, w[0]).store(x + 2 * length);
        mod.scale_difference(b, d, w[0]).store(x + 3 * length);
    }
    static TENSAFE_INLINE void at_two(const auto& mod, word* x, std::size_t length, const auto& w) noexcept {
        const auto a = load(mod, x);
        const auto b = load(mod, x + length);
        mod.add(a, b).store(x);
        mod.scale_difference(a, b, w).store(x + length);
    }
};

/// Stages `stage` and stage + 1, or `stage` alone, of all blocks.
template <class Rows, bool two_stages, class Arithmetic, class Factor>
TENSAFE_INLINE void interleaved_pass(const Arithmetic& mod, std::span<word> data, int stage,
                                     const Factor* factors) noexcept {
    constexpr std::size_t width = Arithmetic::words::width;
    const std::size_t blocks = std::size_t{1} << stage;
    const std::size_t length = (data.size() >> stage) / (two_stages ? 4 : 2);
    for (std::size_t block = 0; block < blocks; ++block) {
        word* const x = data.data() + block * (data.size() >> stage);
        const std::size_t node = blocks + block;
        const auto first = mod.prepare(factors[node]);
        if constexpr (two_stages) {
            const std::remove_cvref_t<decltype(mod.prepare(factors[0]))> w[] = {first, mod.prepare(factors[2 * node]),
                                                           mod.prepare(factors[2 * node + 1])};
            for (std::size_t k = 0; k < length; k += width) {
                Rows::at(mod, x + k, length, w);
            }
        } else {
            for (std::size_t k = 0; k < length; k += width) {
                Rows::at_two(mod, x + k, length, first);
            }
        }
    }
}

template <class Target, arith::modulus M>
TENSAFE_INLINE void forward_interleaved(arith::shoup<M> p, std::span<word> data, int log_n,
                                        const typename arith::shoup<M>::factor* factors) noexcept {
    using arithmetic = typename lanes_of<Target>::template factors<M>;
    const auto mod = make<arithmetic>(p);
    int stage = log_n % 2;
    if (stage == 1) {
        interleaved_pass<forward_rows, false>(mod, data, 0, factors);
    }
    for (; stage < log_n; stage += 2) {
        interleaved_pass<forward_rows, true>(mod, data, stage, factors);
    }
}

template <class Target, arith::modulus M>
TENSAFE_INLINE void inverse_interleaved(arith::shoup<M> p, std::span<word> data, int log_n,
                                        const typename arith::shoup<M>::factor* factors) noexcept {
    using arithmetic = typename lanes_of<Target>::template factors<M>;
    const auto mod = make<arithmetic>(p);
    for (int stage = log_n - 2; stage >= 0; stage -= 2) {
        interleaved_pass<inverse_rows, true>(mod, data, stage, factors);
    }
    if (log_n % 2 == 1) {
        interleaved_pass<inverse_rows, false>(mod, data, 0, factors);
    }
}

/// out[c * out_stride + r] = in[r * in_stride + c].
template <class Target>
TENSAFE_INLINE void transpose(const word* in, std::size_t in_stride, std::size_t rows, std::size_t columns,
                              word* out, std::ptrdiff_t out_stride) noexcept {
    using vector = typename Target::template vector<word>;
    constexpr std::size_t width = vector::width;
    const std::size_t whole_rows = rows / width * width;
    const std::size_t whole_columns = columns / width * width;
    const auto one = [&](std::size_t r, std::size_t c) {
        out[static_cast<std::ptrdiff_t>(c) * out_stride + static_cast<std::ptrdiff_t>(r)] =
            in[r * in_stride + c];
    };
    for (std::size_t c = 0; c < whole_columns; c += width) {
        for (std::size_t r = 0; r < whole_rows; r += width) {
            vector x[width];
            for (std::size_t k = 0; k < width; ++k) {
                x[k] = vector::load(in + (r + k) * in_stride + c);
            }
            simd::transpose(x);
            for (std::size_t k = 0; k < width; ++k) {
                x[k].store(out + static_cast<std::ptrdiff_t>(c + k) * out_stride + r);
            }
        }
        for (std::size_t r = whole_rows; r < rows; ++r) {
            for (std::size_t k = 0; k < width; ++k) {
                one(r, c + k);
            }
        }
    }
    for (std::size_t c = whole_columns; c < columns; ++c) {
        for (std::size_t r = 0; r < rows; ++r) {
            one(r, c);
        }
    }
}

/// Calls f with the target whose vectors divide the rows.
template <class F>
TENSAFE_INLINE void on_target_for_rows(std::size_t row, F f) noexcept {
    simd::on_active_target([&](auto target) {
        if (row % decltype(target)::template vector<word>::width == 0) {
            f(target);
        } else {
            f(simd::scalar{});
        }
    });
}

}  // namespace detail

/// Column c of `in`, whose rows start `in_stride` words apart, to `rows` words from out + c * out_stride on.
inline void transpose(const word* in, std::size_t in_stride, std::size_t rows, std::size_t columns, word* out,
                      std::ptrdiff_t out_stride) noexcept {
    simd::on_active_target([&](auto target) {
        target.template kernel<&detail::transpose<decltype(target)>>(in, in_stride, rows, columns, out,
                                                                     out_stride);
    });
}

/// Of data.size() / p.degree() polynomials, in place: natural order in, bit-reversed order out, each by itself
/// as ntt::forward.
/// @pre  all words are below q; data.size() is a multiple of p.degree()
template <arith::modulus M>
void forward_interleaved(const ntt::plan<arith::shoup<M>>& p, std::span<word> data) noexcept {
    TENSAFE_PRECONDITION(data.size() % p.degree() == 0);
    detail::on_target_for_rows(data.size() / p.degree(), [&](auto target) {
        target.template kernel<&detail::forward_interleaved<decltype(target), M>>(
            p.policy(), data, p.log_n(), p.forward_factors());
    });
}

/// The way back, **times the degree**: who multiplied by its inverse before need not divide.
/// @pre  as above
template <arith::modulus M>
void inverse_interleaved(const ntt::plan<arith::shoup<M>>& p, std::span<word> data) noexcept {
    TENSAFE_PRECONDITION(data.size() % p.degree() == 0);
    detail::on_target_for_rows(data.size() / p.degree(), [&](auto target) {
        target.template kernel<&detail::inverse_interleaved<decltype(target), M>>(
            p.policy(), data, p.log_n(), p.inverse_factors());
    });
}

}  // namespace tensafe::rns::limb
