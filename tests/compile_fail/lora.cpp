// Encrypted LoRA: packings, protections and sets that do not go together, and keys where they do not belong.
#include <tensafe/ckks/keys.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>
#include <tensafe/lora/packing/token_blocks.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/lora/protocol/server.hpp>
#include <tensafe/wire/scheme.hpp>

using namespace tensafe;
using P = ckks::private_n4096;
using small = ckks::minimal_n2048;
using worst = lora::protects_adapter_rows<lora::worst_case>;
using average = lora::protects_adapter_rows<lora::average_case<6>>;

static_assert(sizeof(lora::layout<P, lora::token_blocks, worst>) > 0);
static_assert(sizeof(lora::layout<P, lora::replicated_slots<>, worst>) > 0);
#ifdef BARE_BLOCKS
// expect: lora::token_blocks: replies of blocks are protected
static_assert(sizeof(lora::layout<P, lora::token_blocks, lora::reveals_adapter_rows>) > 0);
#endif
#ifdef AVERAGE_CASE_OF_SLOTS
// expect: lora::replicated_slots: average-case ranges are for coefficient_tiles; use lora::worst_case
static_assert(sizeof(lora::layout<P, lora::replicated_slots<>, average>) > 0);
#endif

static_assert(lora::best_tiling<lora::site_shape{32, 2048, 0}, P> > 0);
#ifdef NO_TILING_FITS
// expect: this set cannot hold replies of this shape at this protection
static_assert(lora::best_tiling<lora::site_shape{32, 2048, 0}, small> > 0);
#endif

// Through a user of the packing: naming the tag does not complete it.
static_assert(lora::cost_of<P, lora::coefficient_tiles<4>>({32, 2048}).bytes() > 0);
#ifdef TILES_OF_THREE_ROWS
// expect: lora::coefficient_tiles: the number of rows must be a power of two
static_assert(lora::cost_of<P, lora::coefficient_tiles<3>>({32, 2048}).bytes() > 0);
#endif
#ifdef SET_TOO_SMALL_FOR_THE_FLOOD
// expect: budget_for
static_assert(lora::cost_of<small, lora::coefficient_tiles<4>>({32, 2048}).bytes() > 0);
#endif

static_assert(sizeof(lora::server<ckks::compact_n4096, lora::coefficient_tiles<4>, average>) > 0);
#ifdef RANGE_FOR_PROTECTION
// expect: the third argument is the protection of replies
static_assert(sizeof(lora::server<ckks::compact_n4096, lora::coefficient_tiles<4>, lora::average_case<6>>) >
              0);
#endif

static_assert(lora::answer_bits<2>::relative_error == 0.25);
#ifdef ANSWERS_OF_ONE_BIT
// expect: lora::answer_bits: the bits of an answer must be in [2, 12]
static_assert(lora::answer_bits<1>::relative_error == 0.5);
#endif

template <int Factor>
struct overflowing {
    static constexpr bool can_overflow = true;
    static constexpr int factor = Factor;
};
static_assert(wire::scheme_id<lora::token_blocks, lora::protects_adapter_rows<overflowing<3>>> != 0);
#ifdef SCHEME_OF_UNKNOWN_RANGE_FACTOR
// expect: scheme_id: the range factor must be in [3, 64]
// 1 is the number of `worst_case`.
static_assert(wire::scheme_id<lora::token_blocks, lora::protects_adapter_rows<overflowing<1>>> != 0);
#endif

using server = lora::server<P>;
auto reply_with_zeros(const server& s, const lora::request<P>& r, lora::rerandomization_pool<P>& zeros) {
    return s.apply(r, zeros);
}
#ifdef PROTECTED_REPLY_WITHOUT_ZEROS
// expect: protected replies need the client's rerandomization_pool
auto reply_without_zeros(const server& s, const lora::request<P>& r) {
    return s.apply(r);
}
#endif

using blocks = lora::packing_plan<P, lora::token_blocks>;
auto prepared(lora::client<P>& c, const blocks& plan) {
    return c.prepare(plan);
}
#ifdef BLOCK_ENCRYPTED_WITHOUT_PREPARATION
// expect: client::encrypt: for token_blocks prepare a client_block, and encrypt with it
auto encrypted(lora::client<P>& c, const blocks& plan, const std::vector<float>& h) {
    return c.encrypt(plan, h);
}
#endif
#ifdef COPIED_BLOCK
// expect: two copies would hide two states under one mask
auto copied(const lora::client_block<P, worst>& block) {
    return lora::client_block<P, worst>(block);
}
#endif

static_assert(sizeof(lora::server<P, lora::token_blocks>) > 0);

lora::server<ckks::n8192_l4> without_key(const lora::matrix& a) {
    return lora::server<ckks::n8192_l4>(a);
}
#ifdef SERVER_WITH_SECRET_KEY
// expect: a server never holds a secret key
auto with_key(const lora::matrix& a, const ckks::secret_key<ckks::n8192_l4>& key) {
    return lora::server<ckks::n8192_l4>(a, key);
}
#endif

lora::matrix read();
float first_of_row() {
    const auto m = read();
    return m.row(0)[0];
}
#ifdef ROW_OF_TEMPORARY_MATRIX
// expect: deleted
float first_of_temporary_row() {
    return read().row(0)[0];
}
#endif
