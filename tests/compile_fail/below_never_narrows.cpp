// expect: conversion from
#include <tensafe/arith/below.hpp>

using modulus = tensafe::arith::fixed_modulus<17>;
constexpr tensafe::arith::below<2, modulus> x{20};
constexpr tensafe::arith::below<3, modulus> wider = x;

#ifdef TENSAFE_COMPILE_FAIL
constexpr tensafe::arith::below<1, modulus> narrower = x;
#endif
