// What servers store, and servers made from it: the same words, layouts and answers; and words that lie.

#include <tensafe/core/error.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/packing/stored_form.hpp>
#include <tensafe/lora/stored_identity.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../backends.hpp"
#include "../tiles_fixture.hpp"

using namespace tiles_fixture;

namespace {

using words = std::vector<std::uint64_t>;
using protected_tiles = tiles<4>;
using columns = server<small, column_batched, protects_adapter_rows<>>;
using model = model_server<small>;

template <class Stored>
words words_of(const Stored& from) {
    words result;
    from.store(
        [&](std::span<const std::uint64_t> next) { result.insert(result.end(), next.begin(), next.end()); });
    return result;
}

/// Gives words one after the other, and counts them.
struct word_reader {
    void operator()(std::span<std::uint64_t> to) {
        REQUIRE(to.size() <= from->size() - position);
        std::copy_n(from->begin() + static_cast<std::ptrdiff_t>(position), to.size(), to.begin());
        position += to.size();
    }
    const words* from;
    std::size_t position = 0;
};

/// FNV-1a over the bytes of the words, the lowest first.
std::uint64_t digest_of(const words& from) {
    std::uint64_t digest = 0xcbf29ce484222325U;
    for (const std::uint64_t word : from) {
        for (int shift = 0; shift < 64; shift += 8) {
            digest = (digest ^ ((word >> shift) & 0xff)) * 0x100000001b3U;
        }
    }
    return digest;
}

/// Multiples of 1/64 whose squares add up exactly in any order, so that every machine packs the same
/// integers.
matrix exact_matrix(std::size_t rank, std::size_t d) {
    matrix a(rank, d);
    std::uint64_t x = 1;
    for (float& entry : a.values) {
        x = x * 6364136223846793005U + 1442695040888963407U;
        entry = static_cast<float>(static_cast<int>(x >> 57) - 64) / 64;
    }
    return a;
}

template <class Server>
Server restored(std::size_t rank, std::size_t d, const words& stored) {
    word_reader source{&stored};
    Server result(from_stored, rank, d, Server::layout_type::largest_batch, source);
    CHECK(source.position == stored.size());
    return result;
}

template <class Server>
std::string refusal(std::size_t rank, std::size_t d, const words& stored) {
    return message_of<tensafe::error>([&] { restored<Server>(rank, d, stored); });
}

adapter two_inputs() {
    adapter result;
    for (const std::string name : {"q_proj", "k_proj", "o_proj"}) {
        result.sites.push_back(random_site(6, 3, name == "o_proj" ? 40 : 600, result.sites.size() + 20));
        result.sites.back().name = "layers.0.self_attn." + name;
        result.sites.back().scale = 2;
    }
    return result;
}

std::string model_refusal(const adapter& from, const model_options& options, const words& stored) {
    return message_of<tensafe::error>([&] {
        word_reader source{&stored};
        const model m(from_stored, from, options, source);
    });
}

}  // namespace

TEST_CASE("a server made from stored words stores the same ones and answers as the server that was packed") {
    constexpr std::size_t rank = 9;  // the third output holds one row
    constexpr std::size_t d = 700;   // the last block is cut
    const matrix a = random_matrix(rank, d, 1);
    const protected_tiles packed(a);
    const words stored = words_of(packed);
    CHECK(stored.size() == protected_tiles::stored_words(rank, d));
    const protected_tiles again = restored<protected_tiles>(rank, d, stored);
    CHECK(again.layout() == packed.layout());
    CHECK(words_of(again) == stored);

    session with = session_for<protected_tiles>();
    CHECK(error_in_deviations(with, again, a, random_state(d, 2)) < most_deviations);
}

TEST_CASE("stored words are those of one panel after the other, in their number and order") {
    // The packed form of two matrices that agree in their first four outputs begins alike.
    using one_row = tiles<1>;
    matrix a = random_matrix(6, 100, 3);
    const words first = words_of(one_row(a));
    CHECK(first.size() == 4 + 6 * 1024 * 2);
    for (float& x : a.row(5)) {
        x = -x;  // the row's norm, and with it the scale, stays
    }
    const words second = words_of(one_row(a));
    CHECK(std::equal(first.begin(), first.begin() + 4 + 4 * 1024 * 2, second.begin()));
    CHECK(first != second);
    CHECK(first[0] == 6);
    CHECK(first[1] == 100);
    CHECK(std::bit_cast<double>(first[2]) == one_row(a).layout().row_norm);
    CHECK(std::bit_cast<double>(first[3]) == one_row(a).layout().budget().weight_norm);
}

TEST_CASE("residues that are not below their prime are refused, in every limb and at both ends") {
    constexpr std::size_t rank = 17;  // five outputs: a panel of four and one of one
    constexpr std::size_t d = 300;
    const words good = words_of(protected_tiles(random_matrix(rank, d, 4)));
    const std::size_t inputs = 2;
    REQUIRE(good.size() == 4 + 5 * inputs * 2 * 1024);
    const std::size_t limb_words = 4 * inputs * 1024;
    for (std::size_t limb = 0; limb < 2; ++limb) {
        const std::uint64_t q = small::basis::primes[limb];
        const std::size_t first = 4 + limb * limb_words;
        const std::size_t last_panel = 4 + 2 * limb_words + limb * (limb_words / 4);
        for (const std::size_t place :
             {first, first + limb_words - 1, last_panel, last_panel + limb_words / 4 - 1}) {
            CAPTURE(place);
            words bad = good;
            bad[place] = q - 1;
            CHECK_NOTHROW(restored<protected_tiles>(rank, d, bad));
            for (const std::uint64_t word : {q, q + 1, std::uint64_t{1} << 62, std::uint64_t{1} << 63,
                                             (std::uint64_t{1} << 63) + q, ~std::uint64_t{0}}) {
                bad[place] = word;
                CHECK(contains(refusal<protected_tiles>(rank, d, bad),
                               "a stored residue of limb " + std::to_string(limb) +
                                   " is not below its prime " + std::to_string(q)));
            }
        }
    }
}

TEST_CASE("the integers of column batches come back, and larger ones than any matrix has are refused") {
    constexpr std::size_t rank = 3;
    constexpr std::size_t d = 20;
    matrix a = random_matrix(rank, d, 5);
    for (float& x : a.row(1)) {
        x = 0;
    }
    a.row(1)[7] = -4;  // the whole norm of a row in one entry: the largest integer there is
    const columns packed(a);
    const words good = words_of(packed);
    CHECK(good.size() == 4 + rank * d);
    CHECK(good.size() == columns::stored_words(rank, d));
    CHECK(words_of(restored<columns>(rank, d, good)) == good);
    const double largest = packed.layout().budget().weight_norm;
    CHECK(std::fabs(static_cast<double>(static_cast<std::int64_t>(good[4 + d + 7]))) > 0.99 * largest);

    for (const std::int64_t x :
         {static_cast<std::int64_t>(largest * 1.001), -static_cast<std::int64_t>(largest * 1.001),
          std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
        words bad = good;
        bad.back() = static_cast<std::uint64_t>(x);
        CHECK(contains(refusal<columns>(rank, d, bad), "a stored integer is not between"));
    }
}

TEST_CASE("a matrix of zeros comes back in every packing") {
    const matrix zeros(3, 50);
    CHECK(restored<protected_tiles>(3, 50, words_of(protected_tiles(zeros))).layout().row_norm == 0);
    CHECK(restored<columns>(3, 50, words_of(columns(zeros))).layout().row_norm == 0);
}

TEST_CASE("check rows of calibrated ranges are stored too") {
    const matrix a = random_matrix(5, 300, 6);
    const words stored = words_of(narrow(a));
    CHECK(stored.size() == narrow::stored_words(5, 300));
    CHECK(narrow::stored_words(5, 300) > protected_tiles::stored_words(5, 300));
    CHECK(words_of(restored<narrow>(5, 300, stored)) == stored);
}

TEST_CASE("a stored layout that is not that of the matrix is refused before anything is read for it") {
    const words good = words_of(protected_tiles(random_matrix(8, 100, 7)));
    const auto refused = [&](std::size_t rank, std::size_t d, std::size_t place, std::uint64_t word,
                             const std::string& piece) {
        words bad(good.begin(), good.begin() + 4);  // no more is there to read
        bad[place] = word;
        CHECK(contains(refusal<protected_tiles>(rank, d, bad), piece));
    };
    const auto bits = [](double x) { return std::bit_cast<std::uint64_t>(x); };
    refused(8, 100, 0, 9, "got the stored form of a 9 x 100 matrix, wanted 8 x 100");
    refused(8, 100, 1, 99, "got the stored form of a 8 x 99 matrix, wanted 8 x 100");
    refused(8, 100, 0, ~std::uint64_t{0}, "wanted 8 x 100");
    refused(0, 100, 0, 0, "wanted from 1 to 2^24 rows");
    refused(std::size_t{1} << 25, 100, 0, std::size_t{1} << 25, "wanted from 1 to 2^24 rows");
    refused(8, 100, 2, bits(-1), "largest norm of a row");
    refused(8, 100, 2, bits(std::nan("")), "largest norm of a row");
    refused(8, 100, 2, bits(0x1p101), "largest norm of a row");
    refused(8, 100, 3, bits(std::bit_cast<double>(good[3]) * 2), "with integers of norm");
    refused(8, 100, 3, bits(std::nan("")), "with integers of norm");
    CHECK(contains(message_of<shape_error>([] { protected_tiles::stored_words(1, std::size_t{1} << 25); }),
                   "2^24"));
}

TEST_CASE("what a source throws leaves the constructor") {
    const words good = words_of(protected_tiles(random_matrix(8, 600, 8)));
    for (const std::size_t calls : {0U, 1U, 2U}) {
        std::size_t left = calls;
        word_reader source{&good};
        const auto failing = [&](std::span<std::uint64_t> to) {
            if (left == 0) {
                throw tensafe::io_error("the disk is gone");
            }
            --left;
            source(to);
        };
        CHECK_THROWS_AS(protected_tiles(from_stored, 8, 600, 1, failing), tensafe::io_error);
    }
}

TEST_CASE("a model made from stored words stores the same ones, in both modes, with and without prefill") {
    const adapter from = two_inputs();
    for (const auto m : {tensafe::lora::mode::client_held_b, tensafe::lora::mode::blind}) {
        for (const bool prefill : {true, false}) {
            model_options options;
            options.mode = m;
            options.largest_prefill = prefill ? 128 : 0;
            const model packed(from, options);
            const words stored = words_of(packed);
            CHECK(stored.size() == model::stored_words(from, options));
            word_reader source{&stored};
            const model again(from_stored, from, options, source);
            CHECK(source.position == stored.size());
            CHECK(again.layout() == packed.layout());
            CHECK(words_of(again) == stored);
            CHECK(again.bytes() == packed.bytes());
            CHECK(again.zeros_per_token() == packed.zeros_per_token());
            CHECK(again.zeros_per_prefill() == packed.zeros_per_prefill());
        }
    }
}

TEST_CASE("stored scales and norms of a model that cannot be are refused, and the message names the input") {
    const adapter from = two_inputs();
    const auto bits = [](double x) { return std::bit_cast<std::uint64_t>(x); };
    model_options batches;
    batches.largest_prefill = 128;
    const words good = words_of(model(from, batches));
    words bad = good;
    REQUIRE(bad[1] == bits(2));
    bad[1] = bits(4);
    std::string message = model_refusal(from, batches, bad);
    CHECK(contains(message, "layers.0.self_attn.input"));
    CHECK(contains(message, "site layers.0.self_attn.k_proj has a stored scale of 4"));

    // The prefill server's head follows the words of the decode server.
    const std::size_t prefill_norm = 2 + protected_tiles::stored_words(6, 600) + 2;
    REQUIRE(good[prefill_norm] == good[2 + 2]);
    bad = good;
    bad[prefill_norm] = bits(std::bit_cast<double>(good[prefill_norm]) * 2);
    CHECK(contains(model_refusal(from, batches, bad), "different row norms"));

    model_options blind;
    blind.mode = tensafe::lora::mode::blind;
    const words blind_words = words_of(model(from, blind));
    for (const double scale : {0.0, -1.0, 3.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
        bad = blind_words;
        bad[0] = bits(scale);
        CHECK(contains(model_refusal(from, blind, bad), "wanted a power of two"));
    }
}

TEST_CASE("whatever decides the words of a matrix but for its entries is in their identity") {
    using wider = ckks::parameters<10, ckks::limb_bits<46, 44>, 30, ckks::insecure_for_tests>;
    using longer = ckks::parameters<11, ckks::limb_bits<45, 44>, 30, ckks::insecure_for_tests>;
    using tiles4 = coefficient_tiles<4>;
    const std::vector<std::string> texts{
        stored_identity<small, tiles4, protects_adapter_rows<>>(),
        stored_identity<wider, tiles4, protects_adapter_rows<>>(),
        stored_identity<longer, tiles4, protects_adapter_rows<>>(),
        stored_identity<small, coefficient_tiles<8>, protects_adapter_rows<>>(),
        stored_identity<small, column_batched, protects_adapter_rows<>>(),
        stored_identity<small, replicated_slots<>, protects_adapter_rows<>>(),
        stored_identity<small, replicated_slots<single_rows>, protects_adapter_rows<>>(),
        stored_identity<small, tiles4, reveals_adapter_rows>(),
        stored_identity<small, tiles4, protects_adapter_rows<calibrated<6>>>(),
        stored_identity<small, tiles4, protects_adapter_rows<calibrated<5>>>(),
        stored_identity<small, tiles4, protects_adapter_rows<rigorous, reduced_precision>>(),
    };
    CHECK(std::set<std::string>(texts.begin(), texts.end()).size() == texts.size());
    CHECK(contains(texts[0], "tensafe " + std::to_string(TENSAFE_VERSION_MAJOR) + "."));
    CHECK(contains(texts[0], std::to_string(small::basis::primes[0])));
    CHECK(contains(texts[0], std::to_string(small::basis::primes[1])));
}

TEST_CASE("on every back-end matrices are packed into the words of stored form 1") {
    // Files of other words would be loaded under the same identity until the next release.
    const std::string advice = "packing changed: raise 'stored form' in stored_identity.hpp";
    const matrix a = exact_matrix(9, 700);
    tests::for_each_backend([&](tensafe::exec::backend) {
        CHECK_MESSAGE(digest_of(words_of(protected_tiles(a))) == 17206550382132018411U, advice);
        CHECK_MESSAGE(digest_of(words_of(tiles<8>(a))) == 12785311665130785794U, advice);
        CHECK_MESSAGE(digest_of(words_of(narrow(a))) == 10921144904004346541U, advice);
        CHECK_MESSAGE(digest_of(words_of(columns(a))) == 5485219557336036097U, advice);
    });
    CHECK(contains(stored_identity<small, coefficient_tiles<4>, protects_adapter_rows<>>(),
                   ", stored form 1\n"));
}

TEST_CASE("whatever decides how a model is packed is in its identity") {
    const adapter from = two_inputs();
    std::set<std::string> texts;
    std::size_t count = 0;
    const auto add = [&](const adapter& a, const model_options& options) {
        texts.insert(model::stored_identity(a, options));
        ++count;
    };
    add(from, {});
    model_options options;
    options.mode = tensafe::lora::mode::blind;
    add(from, options);
    options = {};
    options.largest_prefill = 64;
    add(from, options);
    options = {};
    options.protect = [](const adapter_site& s) { return s.name != "layers.0.self_attn.o_proj"; };
    add(from, options);
    options = {};
    options.input_of = [](std::string_view name) { return std::string(name); };  // nothing is shared
    add(from, options);
    adapter renamed = from;
    renamed.sites[0].name = "layers.0.self_attn.v_proj";
    add(renamed, {});
    CHECK(texts.size() == count);
    // This set has 1024 places for hidden states.
    options = {};
    options.largest_prefill = 1024;
    add(from, options);
    CHECK(texts.size() == count);
    options.largest_prefill = 5000;
    CHECK(contains(message_of<tensafe::parameter_error>(
                       [&] { static_cast<void>(model::stored_identity(from, options)); }),
                   "wanted at most 1024"));
}
