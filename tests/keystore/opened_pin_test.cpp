// A pin with the salt that opens it: its two files, and which adapter it is of.

#include <tensafe/keystore/opened_pin.hpp>

#include "../io/file_builder.hpp"
#include "../random_values.hpp"

using namespace tests;
using namespace tensafe::keystore;
namespace ckks = tensafe::ckks;

namespace {

using P = ckks::parameters<10, ckks::limb_bits<45, 44>, 40, ckks::insecure_for_tests>;
using tiles = lora::coefficient_tiles<4>;
using protection = lora::protects_adapter_rows<>;

lora::adapter fixed_adapter() {
    lora::adapter result;
    result.sites = {random_site(8, 4, 64, 1), random_site(8, 4, 64, 3)};
    result.sites[1].name = "layers.0.down_proj";
    return result;
}
pinned_parts parts_of(const lora::adapter& adapter) {
    return pinned_parts_of<P, tiles, protection>(adapter);
}

struct pinned {
    temporary_directory scratch;
    std::filesystem::path file = scratch.path() / "legal.pin";
    std::filesystem::path opening = scratch.path() / "legal.pin.opening";
    signing_key key = signing_key::generate();
    opened_pin made = opened_pin::make(key, "legal", parts_of(fixed_adapter()), 7);

    void refuses(std::string_view part, const lora::adapter& adapter, std::string_view name = "legal") const {
        const auto said = refusal<signature_error>([&] { made.check(name, parts_of(adapter), "\"file\""); });
        CHECK(contains(said, part));
    }
};

}  // namespace

TEST_CASE("what is pinned of an adapter are the messages and integers of the model that serves it") {
    const lora::adapter adapter = fixed_adapter();
    const lora::model_server<P, tiles, protection> model(adapter);
    const auto layout = wire::write_model_layout<P, tiles, protection>(model.layout());
    const auto held = wire::write_held_adapter(lora::client_part(adapter), model.layout());
    const pinned_parts parts = parts_of(adapter);
    CHECK(parts.layout == sha256::of(std::as_bytes(std::span(layout))));
    CHECK(parts.held == sha256::of(std::as_bytes(std::span(held))));
    lora::model_options options;
    options.tokens_ahead = 8;
    const auto in_blocks = pinned_parts_of<P, tiles, protection>(adapter, options);
    CHECK(in_blocks.layout == parts.layout);
    CHECK(in_blocks.weights == parts.weights);
}

TEST_CASE_FIXTURE(pinned,
                  "a pin opens for its adapter and name, and for no other A, B, scale, layout or name") {
    made.check("legal", parts_of(fixed_adapter()), "\"file\"");
    refuses("got a pin of \"legal\", expected \"other\"", fixed_adapter(), "other");
    const auto changed = [](auto change) {
        lora::adapter result = fixed_adapter();
        change(result.sites[1]);
        return result;
    };
    // Rows keep their norms, so that B is the same.
    refuses("commits to another A", changed([](auto& site) { site.a.values[5] = -site.a.values[5]; }));
    refuses("another B", changed([](auto& site) { site.b.values[0] = 0; }));
    refuses("another layout", changed([](auto& site) { site.scale = 3; }));
    refuses("another layout", changed([](auto& site) { site.name = "layers.1.down_proj"; }));
    made.salt[0] ^= std::byte{1};
    refuses("another salt", fixed_adapter());
    made.salt[0] ^= std::byte{1};
    made.pin.marks[0] = std::byte{1};
    refuses("the signature does not fit", fixed_adapter());
    made.pin.signature = key.sign(made.pin.signed_bytes());
    refuses("commits to other marks, expected none", fixed_adapter());
}

TEST_CASE("a pin of a tenant is of the B and A with its marks, and opens for no other tenant or key") {
    const lora::adapter adapter = fixed_adapter();
    const auto parts = [&](std::uint8_t key, std::string_view tenant, std::string_view name = "legal") {
        std::array<std::byte, 32> bytes;
        bytes.fill(std::byte{key});
        lora::model_options options;
        options.tokens_ahead = 8;  // of which it says nothing
        return pinned_parts_of<P, tiles, protection>(adapter, options, mark_key(bytes), name, tenant);
    };
    const mark_key key(std::array<std::byte, 32>{});
    const lora::marks own(key.seed_of("legal", "acme"));
    const pinned_parts of_acme = parts(0, "acme");
    // In the clear: rows with marks, which a server normalizes as it does all others.
    const pinned_parts of_a = parts_of(own.added_to(lora::marked_matrix::a, adapter));
    const auto held =
        wire::write_held_adapter(own.added_to(lora::marked_matrix::b, lora::client_part(adapter)),
                                 lora::model_server<P, tiles, protection>(adapter).layout());
    CHECK(of_acme.weights == of_a.weights);
    CHECK(of_acme.held == sha256::of(std::as_bytes(std::span(held))));
    CHECK(of_acme.layout == parts_of(adapter).layout);
    const auto seed = key.seed_of("legal", "acme");
    CHECK(of_acme.marks == sha256::of(tensafe::keystore::detail::plain_message("tensafe marks 1\n")
                                          .add(std::as_bytes(std::span(seed.bytes)))
                                          .bytes));

    const auto made = opened_pin::make(signing_key::generate(), "legal", of_acme);
    made.check("legal", parts(0, "acme"), "\"file\"");
    const auto refuses = [&](const pinned_parts& other, std::string_view why) {
        CHECK(contains(refusal<signature_error>([&] { made.check("legal", other, "\"file\""); }), why));
    };
    const std::string_view of_another = "commits to other marks, expected those of this tenant and mark key";
    refuses(parts(0, "emca"), of_another);
    refuses(parts(1, "acme"), of_another);
    refuses(parts(0, "acme", "other"), of_another);
    refuses(parts_of(adapter), "commits to other marks, expected none");
    auto other = of_acme;
    other.held = parts(0, "emca").held;
    refuses(other, "another B");
    other = of_acme;
    other.weights = parts_of(adapter).weights;
    refuses(other, "commits to another A");
}

TEST_CASE_FIXTURE(pinned, "a pin and its opening come back from their files, which are never written over") {
    made.write(file);
    const opened_pin read = opened_pin::read(file);
    CHECK(read.pin == made.pin);
    CHECK(read.salt == made.salt);
    CHECK(adapter_pin::read(file) == made.pin);
    CHECK(contains(refusal<io_error>([&] { made.write(file); }), "legal.pin.opening"));
    std::filesystem::remove(opening);
    CHECK(contains(refusal<io_error>([&] { opened_pin::read(file); }), "legal.pin.opening"));
    CHECK_THROWS_AS(made.write(file), io_error);
    CHECK(adapter_pin::read(file) == made.pin);
    std::filesystem::remove(file);
    CHECK(contains(refusal<io_error>([&] { opened_pin::read(file); }), "legal.pin\""));
}

TEST_CASE_FIXTURE(pinned, "an opening that others may read, or that is none, is refused") {
    made.write(file);
    std::filesystem::permissions(opening, std::filesystem::perms::group_read,
                                 std::filesystem::perm_options::add);
    CHECK_THROWS_AS(opened_pin::read(file), io_error);
    for (const std::string text : {"", "00", "opening\n"}) {
        std::filesystem::remove(opening);
        io::create_private_file(opening, to_bytes(text));
        CHECK(contains(refusal<format_error>([&] { opened_pin::read(file); }), ".opening\": salt: got "));
    }
}
