#pragma once

// Requests and replies of the right shapes that no key has made.

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/lora/packing/protection.hpp>
#include <tensafe/lora/packing/token_blocks.hpp>
#include <tensafe/memory/packed_bits.hpp>
#include <tensafe/rns/basis.hpp>

#include "../test.hpp"

namespace wire_messages {

namespace lora = tensafe::lora;
namespace ckks = tensafe::ckks;
using tensafe::arith::word;

using small = ckks::parameters<10, ckks::limb_bits<45, 44>, 30, ckks::insecure_for_tests>;
using tiles = lora::coefficient_tiles<4>;
using blocks = lora::token_blocks;
using protects = lora::protects_adapter_rows<>;
using narrow = lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>;
using bare = lora::reveals_adapter_rows;

template <class Word>
std::vector<std::uint8_t> packed(std::mt19937_64& generator, std::size_t count, int bits, word below) {
    std::vector<Word> values(count);
    std::generate(values.begin(), values.end(), [&] { return static_cast<Word>(generator() % below); });
    std::vector<std::uint8_t> result(tensafe::memory::packed_bytes(count, bits));
    tensafe::memory::pack_bits(std::span<const Word>(values), bits, std::span(result));
    return result;
}

/// For blocks of so many tokens.
inline lora::packing_plan<small, blocks, protects> block_plan(std::size_t rank, std::size_t d,
                                                              std::size_t tokens) {
    return lora::packing_plan<small, blocks, protects>(
        lora::layout<small, blocks, protects>::of(rank, d, 1, tokens));
}

template <class Plan>
lora::request<small> some_request(const Plan& l, std::size_t tokens, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    lora::request<small> r{l.d(), l.entries_per_input(), tokens, {}, {}};
    for (auto& byte : r.seed.bytes) {
        byte = static_cast<std::uint8_t>(generator());
    }
    constexpr bool in_blocks = std::is_same_v<typename Plan::layout_type, lora::layout<small, blocks, protects>>;
    for (std::size_t i = 0; i < (in_blocks ? tokens : l.inputs()); ++i) {
        std::vector<std::uint8_t> c0;
        for (const word q : small::basis::primes) {
            const auto limb = packed<word>(generator, in_blocks ? l.d() : small::degree, static_cast<int>(std::bit_width(q)), q);
            c0.insert(c0.end(), limb.begin(), limb.end());
        }
        r.inputs.push_back(std::move(c0));
    }
    return r;
}

template <class Packing, class Protection>
lora::reply<small, Packing, Protection> some_reply(const lora::packing_plan<small, Packing, Protection>& l,
                                                   std::size_t tokens, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    lora::reply<small, Packing, Protection> r;
    r.rank = l.rank();
    r.d = l.d();
    r.tokens = tokens;
    r.outputs.resize(l.outputs());
    for (std::size_t o = 0; o < l.outputs(); ++o) {
        if constexpr (Protection::protects) {
            const int bits = l.reply_bits(o);
            r.outputs[o].c0 = packed<std::uint32_t>(generator, l.targets(o, tokens), bits, word{1} << bits);
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

inline bool same(const lora::request<small>& a, const lora::request<small>& b) {
    return a.d == b.d && a.block == b.block && a.tokens == b.tokens && a.seed == b.seed &&
           a.inputs == b.inputs;
}

template <class Packing, class Protection>
bool same(const lora::reply<small, Packing, Protection>& a,
          const lora::reply<small, Packing, Protection>& b) {
    return a.rank == b.rank && a.d == b.d && a.tokens == b.tokens &&
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
