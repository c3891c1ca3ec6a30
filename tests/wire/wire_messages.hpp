#pragma once

// Requests and replies of the right shapes that no key has made.

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/lora/packing/token_blocks.hpp>

#include "../small_sets.hpp"
#include "../test.hpp"

namespace wire_messages {

namespace lora = tensafe::lora;
namespace ckks = tensafe::ckks;
using tensafe::arith::word;
using tests::random_numbers;
using tests::small;

using tiles = lora::coefficient_tiles<4>;
using blocks = lora::token_blocks;
using protects = lora::protects_adapter_rows<>;
using narrow = lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>;
using bare = lora::reveals_adapter_rows;

template <class Word>
std::vector<std::uint8_t> packed(random_numbers& generator, std::size_t count, int bits, word below) {
    const auto values = generator.many(count, [&] { return static_cast<Word>(generator() % below); });
    std::vector<std::uint8_t> result(tensafe::memory::packed_bytes(count, bits));
    tensafe::memory::pack_bits(std::span<const Word>(values), bits, std::span(result));
    return result;
}

inline tensafe::random::seed some_seed(random_numbers& generator) {
    tensafe::random::seed seed;
    for (auto& byte : seed.bytes) {
        byte = static_cast<std::uint8_t>(generator());
    }
    return seed;
}

/// So many residues of each limb.
inline std::vector<std::uint8_t> some_residues(random_numbers& generator, std::size_t count) {
    std::vector<std::uint8_t> result;
    for (const word q : small::basis::primes) {
        const auto limb = packed<word>(generator, count, static_cast<int>(std::bit_width(q)), q);
        result.insert(result.end(), limb.begin(), limb.end());
    }
    return result;
}

/// For blocks of so many tokens.
template <class Protection = protects>
lora::packing_plan<small, blocks, Protection> block_plan(std::size_t rank, std::size_t d,
                                                         std::size_t tokens) {
    return lora::packing_plan<small, blocks, Protection>(
        lora::layout<small, blocks, Protection>::of(rank, d, 1, tokens));
}

template <class Plan>
lora::request<small> some_request(const Plan& l, std::uint64_t seed) {
    random_numbers generator(seed);
    lora::request<small> r{l.d(), l.entries_per_input(), some_seed(generator), {}};
    for (std::size_t i = 0; i < l.inputs(); ++i) {
        r.inputs.push_back(some_residues(generator, small::degree));
    }
    return r;
}

template <class Packing, class Protection>
lora::reply<small, Packing, Protection> some_reply(const lora::packing_plan<small, Packing, Protection>& l,
                                                   std::uint64_t seed) {
    random_numbers generator(seed);
    lora::reply<small, Packing, Protection> r;
    r.rank = l.rank();
    r.d = l.d();
    r.outputs.resize(l.outputs());
    for (std::size_t o = 0; o < l.outputs(); ++o) {
        if constexpr (Protection::protects) {
            const int bits = l.reply_bits(o);
            r.outputs[o].c0 = packed<std::uint32_t>(generator, l.targets(o), bits, word{1} << bits);
            r.outputs[o].c1 = packed<std::uint32_t>(generator, small::degree, bits, word{1} << bits);
        } else {
            auto& product = r.outputs[o];
            tensafe::rns::for_each_limb<small::basis>([&]<int I>() {
                constexpr word q = small::basis::prime<I>;
                product.c0[I] = tensafe::memory::buffer<word>(l.subring_degree());
                std::generate(product.c0[I].begin(), product.c0[I].end(), [&] { return generator() % q; });
                const auto c1 = product.c1.template limb<I>();
                std::generate(c1.begin(), c1.end(), [&] { return generator() % q; });
            });
        }
    }
    return r;
}

template <class Plan>
lora::block_request some_block_request(const Plan& l, std::uint64_t seed) {
    random_numbers generator(seed);
    return {l.d(), l.layout().tokens, some_seed(generator)};
}

template <class Plan>
lora::block_reply some_block_reply(const Plan& l, std::uint64_t seed) {
    random_numbers generator(seed);
    lora::block_reply r{l.rank(), l.d(), l.layout().tokens, {}};
    for (std::size_t o = 0; o < l.outputs(); ++o) {
        const int bits = l.reply_bits(o);
        r.c1.push_back(packed<std::uint32_t>(generator, small::degree, bits, word{1} << bits));
    }
    return r;
}

template <class Plan>
lora::token_request some_token_request(const Plan& l, std::size_t position, std::uint64_t seed) {
    random_numbers generator(seed);
    return {l.d(), position, 0x1122334455667788, some_residues(generator, l.d())};
}

template <class Plan>
lora::token_reply some_token_reply(const Plan& l, std::size_t position, std::uint64_t seed) {
    random_numbers generator(seed);
    lora::token_reply r{l.rank(), l.d(), position, {}};
    l.for_each_width([&](std::size_t, std::size_t count, int bits) {
        const auto part = packed<std::uint32_t>(generator, count, bits, word{1} << bits);
        r.c0.insert(r.c0.end(), part.begin(), part.end());
    });
    return r;
}

inline bool same(const lora::request<small>& a, const lora::request<small>& b) {
    return a.d == b.d && a.block == b.block && a.seed == b.seed && a.inputs == b.inputs;
}

template <class Packing, class Protection>
bool same(const lora::reply<small, Packing, Protection>& a,
          const lora::reply<small, Packing, Protection>& b) {
    return a.rank == b.rank && a.d == b.d &&
           std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(),
                      [](const auto& x, const auto& y) {
                          if constexpr (Protection::protects) {
                              return x.c0 == y.c0 && x.c1 == y.c1;
                          } else {
                              return x.c1 == y.c1 &&
                                     std::equal(x.c0.begin(), x.c0.end(), y.c0.begin(), y.c0.end(),
                                                [](const auto& u, const auto& v) {
                                                    return std::equal(u.begin(), u.end(), v.begin(), v.end());
                                                });
                          }
                      });
}

}  // namespace wire_messages
