// Forms and levels are part of a type: what does not fit is refused, and the message says the way out.
#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/trace.hpp>

#include <utility>
#include <vector>

using namespace tensafe;
using P = ckks::n8192_l4;
using encoded = ckks::plaintext<P, rns::coefficient_form>;
template <int Level>
using transformed = ckks::plaintext<P, rns::evaluation_form, Level>;
using slots = std::vector<double>;

ckks::secret_key<P> moved(ckks::secret_key<P>& key) {
    return std::move(key);
}
#ifdef COPY_SECRET_KEY
// expect: one owner: move it
ckks::secret_key<P> copied(const ckks::secret_key<P>& key) {
    return key;
}
#endif

ckks::ciphertext<P, 3> highest;
#ifdef NO_SUCH_LEVEL
// expect: ckks::ciphertext: the parameter set has no such level
ckks::ciphertext<P, 4> higher;
#endif

auto encrypt(const ckks::public_key<P>& key, transformed<3> p, random::generator& generator) {
    return ckks::encrypt(key, ckks::inverse(std::move(p)), generator);
}
#ifdef ENCRYPT_EVALUATION_FORM
// expect: inverse() it first
void encrypt(const ckks::secret_key<P>& key, transformed<3> p, random::generator& generator) {
    ckks::encrypt(key, std::move(p), generator);
}
#endif

auto decrypt_all_limbs(const ckks::secret_key<P>& key, const ckks::ciphertext<P, 1>& c) {
    return ckks::decrypt_trace<2>(key, c, 5);
}
#ifdef TRACE_MISSING_LIMB
// expect: ckks::decrypt_trace: the ciphertext has fewer limbs
auto decrypt_more(const ckks::secret_key<P>& key, const ckks::ciphertext<P, 1>& c) {
    return ckks::decrypt_trace<3>(key, c, 5);
}
#endif

void add(ckks::ciphertext<P, 1>& a, const ckks::ciphertext<P, 2>& b) {
    ckks::add(a, ckks::level_reduce<1>(b));
}
void subtract(ckks::ciphertext<P, 1>& a, const ckks::ciphertext<P, 1>& b) {
    ckks::subtract(a, b);
}
#ifdef ADD_DIFFERENT_LEVELS
// expect: adjust_level() one first
void add_levels(ckks::ciphertext<P, 1>& a, const ckks::ciphertext<P, 2>& b) {
    ckks::add(a, b);
}
#endif
#ifdef SUBTRACT_DIFFERENT_LEVELS
// expect: adjust_level() one first
void subtract_levels(ckks::ciphertext<P, 2>& a, const ckks::ciphertext<P, 1>& b) {
    ckks::subtract(a, b);
}
#endif

void add_plain(ckks::ciphertext<P>& c, encoded p) {
    ckks::add_plain(c, ckks::forward(std::move(p)));
}
void add_plain(ckks::ciphertext<P, 2>& c, const transformed<2>& p) {
    ckks::add_plain(c, p);
}
#ifdef ADD_COEFFICIENT_FORM
// expect: forward() it first
void add_plain(ckks::ciphertext<P>& c, const encoded& p) {
    ckks::add_plain(c, p);
}
#endif
#ifdef ADD_PLAIN_OTHER_LEVEL
// expect: encode_like(c, slots)
void add_plain(ckks::ciphertext<P, 2>& c, const transformed<3>& p) {
    ckks::add_plain(c, p);
}
#endif

#ifdef ADD_SLOTS
// expect: encode_like(c, slots) first
void add_plain(ckks::ciphertext<P, 2>& c, const slots& values) {
    ckks::add_plain(c, values);
}
#endif

void multiply_plain(ckks::ciphertext<P>& c, encoded p) {
    ckks::multiply_plain(c, ckks::forward(std::move(p)));
}
void multiply_plain(ckks::ciphertext<P, 2>& c, const transformed<2>& p) {
    ckks::multiply_plain(c, p);
}
#ifdef MULTIPLY_COEFFICIENT_FORM
// expect: encode_factor(c, slots)
void multiply_plain(ckks::ciphertext<P>& c, const encoded& p) {
    ckks::multiply_plain(c, p);
}
#endif
#ifdef MULTIPLY_OTHER_LEVEL
// expect: encode_factor(c, slots)
void multiply_plain(ckks::ciphertext<P, 2>& c, const transformed<3>& p) {
    ckks::multiply_plain(c, p);
}
#endif
#ifdef MULTIPLY_SLOTS
// expect: encode_factor(c, slots) first
void multiply_plain(ckks::ciphertext<P, 2>& c, const slots& values) {
    ckks::multiply_plain(c, values);
}
#endif

auto encode_factor(const ckks::ciphertext<P, 1>& c, const slots& values) {
    return ckks::encode_factor(c, values);
}
#ifdef ENCODE_FACTOR_AT_LEVEL_0
// expect: no level left
auto encode_factor(const ckks::ciphertext<P, 0>& c, const slots& values) {
    return ckks::encode_factor(c, values);
}
#endif

ckks::ciphertext<P, 0> rescale(const ckks::ciphertext<P, 1>& c) {
    return ckks::rescale(c);
}
#ifdef RESCALE_AT_LEVEL_0
// expect: no level left
void rescale(const ckks::ciphertext<P, 0>& c) {
    ckks::rescale(c);
}
#endif

ckks::ciphertext<P, 0> level_down(const ckks::ciphertext<P, 1>& c) {
    return ckks::level_reduce<0>(c);
}
#ifdef LEVEL_REDUCE_UPWARD
// expect: ckks::level_reduce: a ciphertext can only lose levels
ckks::ciphertext<P, 2> level_up(const ckks::ciphertext<P, 1>& c) {
    return ckks::level_reduce<2>(c);
}
#endif
