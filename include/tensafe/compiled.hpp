#pragma once

// What the component `compiled` holds of templates: with TENSAFE_COMPILED, tensafe.hpp includes this and
// programs leave them to the library. Other widths and parameter sets are compiled where they are used.

#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include <cstdint>
#include <span>
#include <vector>

/// Instantiates the loops over limbs, panels and transforms for a class of widths (arith::modulus_class).
/// `How` is `template` in the library and `extern template` elsewhere.
#define TENSAFE_KERNELS(How, Bits)                                                                           \
    namespace tensafe::rns::limb {                                                                           \
    using class_##Bits = arith::modulus_class<Bits>;                                                         \
    How void add(class_##Bits, std::span<word>, std::span<const word>, std::span<const word>) noexcept;      \
    How void subtract(class_##Bits, std::span<word>, std::span<const word>, std::span<const word>) noexcept; \
    How void multiply(arith::barrett<class_##Bits>, std::span<word>, std::span<const word>,                  \
                      std::span<const word>) noexcept;                                                       \
    How void multiply_add(arith::barrett<class_##Bits>, std::span<word>, std::span<const word>,              \
                          std::span<const word>, std::span<const word>) noexcept;                            \
    How void subtract_product(arith::barrett<class_##Bits>, std::span<word>, std::span<const word>,          \
                              std::span<const word>, std::span<const word>) noexcept;                        \
    How void block_sums(arith::barrett<class_##Bits>, std::span<word>, std::span<const word>,                \
                        std::span<const word>, std::span<const word>) noexcept;                              \
    How void add_block_sums(arith::barrett<class_##Bits>, std::span<word>, std::span<const word>,            \
                            std::span<const word>) noexcept;                                                 \
    How void add_small(class_##Bits, std::span<word>, std::span<const std::int8_t>) noexcept;                \
    How void set_small(class_##Bits, std::span<word>, std::span<const std::int8_t>) noexcept;                \
    How void round_reals(arith::shoup<class_##Bits>, std::span<word>, std::span<const double>) noexcept;     \
    How void reduce_shifted(arith::shoup<class_##Bits>, std::span<word>, std::span<const word>,              \
                            word) noexcept;                                                                  \
    How void scale_difference(arith::shoup<class_##Bits>, std::span<word>, std::span<const word>,            \
                              std::span<const word>, arith::shoup<class_##Bits>::factor) noexcept;           \
    How void add_constant(class_##Bits, std::span<word>, std::span<const word>, word) noexcept;              \
    How void scale(arith::shoup<class_##Bits>, std::span<word>, std::span<const word>,                       \
                   arith::shoup<class_##Bits>::factor) noexcept;                                             \
    }                                                                                                        \
    namespace tensafe::rns {                                                                                 \
    How void multiply_panel(arith::barrett<limb::class_##Bits>, const panel_view&, const ciphertext_views&,  \
                            const panel_results&, block_range) noexcept;                                     \
    }                                                                                                        \
    namespace tensafe::ntt {                                                                                 \
    How class plan<arith::shoup<rns::limb::class_##Bits>>;                                                   \
    How void forward(const plan<arith::shoup<rns::limb::class_##Bits>>&, std::span<arith::word>) noexcept;   \
    How void inverse(const plan<arith::shoup<rns::limb::class_##Bits>>&, std::span<arith::word>) noexcept;   \
    }

/// Instantiates the norm of rows and hidden states.
#define TENSAFE_NORM(How)                                       \
    namespace tensafe::encoding {                               \
    How double sum_of_squares(std::span<const float>) noexcept; \
    }

/// Instantiates client and server of a parameter set, with the default packing and protection.
#define TENSAFE_CLIENT_AND_SERVER(How, Set)                                                              \
    namespace tensafe::lora {                                                                            \
    using Set##_plan = packing_plan<ckks::Set>;                                                          \
    How client<ckks::Set>::client();                                                                     \
    How ckks::rerandomization_key<ckks::Set, request_level<ckks::Set>>                                   \
    client<ckks::Set>::rerandomization_key(const random::seed&);                                         \
    TENSAFE_ENCRYPT(How, Set, std::vector<float>)                                                        \
    TENSAFE_ENCRYPT(How, Set, std::vector<double>)                                                       \
    TENSAFE_ENCRYPT(How, Set, std::span<float>)                                                          \
    TENSAFE_ENCRYPT(How, Set, std::span<double>)                                                         \
    TENSAFE_ENCRYPT(How, Set, std::span<const float>)                                                    \
    TENSAFE_ENCRYPT(How, Set, std::span<const double>)                                                   \
    How std::vector<double> client<ckks::Set>::decrypt(const Set##_plan&, const Set##_plan::reply_type&, \
                                                       const Set##_plan::query_type&) const;             \
    How void client<ckks::Set>::decrypt(const Set##_plan&, const Set##_plan::reply_type&,                \
                                        const Set##_plan::query_type&, decryption_workspace<ckks::Set>&, \
                                        std::span<double>) const;                                        \
    How server<ckks::Set>::server(const matrix&);                                                        \
    How rerandomization_pool<ckks::Set> server<ckks::Set>::pool(                                         \
        const random::seed&, ckks::rerandomization_key<ckks::Set, request_level<ckks::Set>>,             \
        random::generator) const;                                                                        \
    How Set##_plan::reply_type server<ckks::Set>::apply(const Set##_plan::request_type&,                 \
                                                        rerandomization_pool<ckks::Set>&) const;         \
    How void server<ckks::Set>::apply(const exec::host&, std::span<const server<ckks::Set>::task>,       \
                                      server<ckks::Set>::workspace&, no_observer&) const;                \
    }
#define TENSAFE_ENCRYPT(How, Set, State)                                                                   \
    How Set##_plan::query_type client<ckks::Set>::encrypt(const Set##_plan&, const State&, double);        \
    How void client<ckks::Set>::encrypt(const Set##_plan&, const State&, Set##_plan::query_type&, double); \
    How bool client<ckks::Set>::encrypt_or_zeros(const Set##_plan&, const State&, Set##_plan::query_type&, \
                                                 double);

#if defined(TENSAFE_COMPILED)
TENSAFE_NORM(extern template)
TENSAFE_KERNELS(extern template, 35)
TENSAFE_KERNELS(extern template, 45)
TENSAFE_KERNELS(extern template, 50)
TENSAFE_KERNELS(extern template, 60)
TENSAFE_CLIENT_AND_SERVER(extern template, private_n4096)
TENSAFE_CLIENT_AND_SERVER(extern template, quantum_n4096)
TENSAFE_CLIENT_AND_SERVER(extern template, compact_n4096)
TENSAFE_CLIENT_AND_SERVER(extern template, minimal_n2048)
#endif
