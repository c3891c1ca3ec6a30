// Moduli and residues: the bound of a value is part of its type.
#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/below.hpp>
#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/modulus.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/ntt/transform.hpp>

#include <string>

using namespace tensafe;

template struct arith::fixed_modulus<3>;
#ifdef MODULUS_EVEN
// expect: fixed_modulus: the modulus must be odd and at least 3
template struct arith::fixed_modulus<4>;
#endif

template class arith::runtime_modulus<61>;
#ifdef MODULUS_TOO_WIDE
// expect: runtime_modulus: the width must be in [2, 61] bits
template class arith::runtime_modulus<62>;
#endif

template class arith::fp64<arith::runtime_modulus<50>>;
#ifdef FP64_WITH_WIDE_MODULUS
// expect: fp64: the modulus must be below 2^50; use shoup for wider primes
template class arith::fp64<arith::runtime_modulus<51>>;
#endif

constexpr arith::below<2, arith::fixed_modulus<17>> x{20};
constexpr arith::below<3, arith::fixed_modulus<17>> wider = x;
#ifdef BELOW_NEVER_NARROWS
// expect: conversion from
constexpr arith::below<1, arith::fixed_modulus<17>> narrower = x;
#endif

constexpr arith::below<8, arith::runtime_modulus<60>> y{1};
constexpr auto sum = y + y;
#ifdef BELOW_SUM_PAST_THE_WORD
// expect: below<K>: K*q may pass the word
constexpr auto sum_past_the_word = sum + y;
#endif

using modulus = arith::fixed_modulus<1152921504606846975>;
constexpr arith::barrett<modulus> policy;
constexpr auto product = policy.multiply(arith::below<8, modulus>{1}, 1);
#ifdef BARRETT_OPERAND_TOO_WIDE
// expect: barrett::multiply: call reduce<To>() on the operand first
constexpr auto product_of_too_wide = policy.multiply(arith::below<9, modulus>{1}, 1);
#endif

template struct ntt::split_stages<0>;
#ifdef SCHEDULE_NEGATIVE
// expect: split_stages: the number of global stages cannot be negative
template struct ntt::split_stages<-1>;
#endif

template class memory::buffer<int>;
#ifdef BUFFER_OF_STRINGS
// expect: memory::buffer: elements must be trivially copyable
template class memory::buffer<std::string>;
#endif
