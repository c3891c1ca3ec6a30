// Linear transforms and polynomials: keys, levels and shapes that do not fit are refused by name.
#include <tensafe/ckks/linear_transform.hpp>
#include <tensafe/ckks/polynomial.hpp>

using namespace tensafe;
using P = ckks::n8192_depth2;
template <int Level>
using encrypted = ckks::ciphertext<P, Level>;
using transform = ckks::linear_transform<P, ckks::matrix<4, 16>>;
using its_keys = ckks::galois_keys<P, transform::rotations>;
using other_keys = ckks::galois_keys<P, ckks::rotations<1>>;

auto apply(const transform& a, const encrypted<2>& c, const its_keys& k) {
    return ckks::multiply_rescale(a, c, k);
}
#ifdef KEYS_OF_A_TRANSFORM_ARE_MISSING
// expect: ckks::multiply: keys of the linear transform are missing; add its `rotations` to the keys' lists
auto apply_without_keys(const transform& a, const encrypted<2>& c, const other_keys& k) {
    return ckks::multiply_rescale(a, c, k);
}
#endif
#ifdef TRANSFORM_OF_ANOTHER_LEVEL
// expect: make the linear_transform<P, Shape, Level> of its level
auto apply_lower(const transform& a, const encrypted<1>& c, const its_keys& k) {
    return ckks::multiply_rescale(a, c, k);
}
#endif
#ifdef TRANSFORM_WITHOUT_A_LEVEL_LEFT
// expect: no level left; take a deeper set, or multiply()
auto apply_lowest(const ckks::linear_transform<P, ckks::matrix<4, 16>, 0>& a, const encrypted<0>& c,
                  const its_keys& k) {
    return ckks::multiply_rescale(a, c, k);
}
#endif
#ifdef MATRIX_OF_OTHER_SIZES
// expect: ckks::matrix: rows and columns must be powers of two
using odd = ckks::linear_transform<P, ckks::matrix<30, 16>>;
auto scale_of_odd(const odd& a) {
    return a.scale();
}
#endif
#ifdef DIAGONALS_WITHOUT_A_STRIDE
// expect: ckks::diagonals: Count and Stride must be positive
auto scale_of_still(const ckks::linear_transform<P, ckks::diagonals<1, 8, 0>>& a) {
    return a.scale();
}
#endif
#ifdef TRANSFORM_THAT_IS_TOO_LARGE
// expect: ckks::linear_transform: the shape is larger than N/2 slots
using large = ckks::linear_transform<P, ckks::matrix<4, 8192>>;
auto scale_of_large(const large& a) {
    return a.scale();
}
#endif
#ifdef SHAPE_THAT_IS_NONE
// expect: ckks::linear_transform: the shape is diagonals<...> or matrix<...>
auto scale_of_none(const ckks::linear_transform<P, int>& a) {
    return a.scale();
}
#endif

auto sum(const encrypted<2>& c, const ckks::galois_keys<P, ckks::inner_sum_rotations<P>>& k) {
    return ckks::inner_sum(c, k);
}
#ifdef INNER_SUM_WITHOUT_KEYS
// expect: ckks::inner_sum: keys are missing; add inner_sum_rotations<P> to their lists
auto sum_without_keys(const encrypted<2>& c, const other_keys& k) {
    return ckks::inner_sum(c, k);
}
#endif
#ifdef INNER_SUM_OF_THREE
// expect: ckks::inner_sum: End must be Stride times a power of two
auto sum_of_three(const encrypted<2>& c, const its_keys& k) {
    return ckks::inner_sum<4, 12>(c, k);
}
#endif
#ifdef HOISTED_FOR_OTHER_KEYS
// expect: hoist() it with these keys
auto rotate(const encrypted<1>& c, const other_keys& k,
            const ckks::galois_keys_at<P, 1, ckks::rotations<1>>& l) {
    return ckks::rotate<1>(ckks::hoist(c, k), l);
}
#endif

auto evaluate(const ckks::chebyshev_polynomial<3>& p, const encrypted<2>& c,
              const ckks::relinearization_key<P>& k) {
    return ckks::evaluate(p, c, k);
}
#ifdef POLYNOMIAL_THAT_IS_TOO_DEEP
// expect: ckks::evaluate: the polynomial needs more levels than are left
auto evaluate_on_an_interval(const ckks::chebyshev_polynomial<3, true>& p, const encrypted<2>& c,
                             const ckks::relinearization_key<P>& k) {
    return ckks::evaluate(p, c, k);
}
#endif
#ifdef POLYNOMIAL_OF_DEGREE_ZERO
// expect: ckks::chebyshev: the degree must be in [1, 4095]
auto of_degree_zero = ckks::chebyshev<0>([](double x) { return x; });
#endif
