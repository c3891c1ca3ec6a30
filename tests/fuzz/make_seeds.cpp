// Writes those seeds that are not text, into a folder such as this one's corpus/:
//
//     make_seeds <folder>
//
// Run it again when a format changes; docs/testing.md.

#include <tensafe/io/safetensors.hpp>
#include <tensafe/keystore/adapter_pin.hpp>
#include <tensafe/keystore/key_file_format.hpp>
#include <tensafe/wire/wire.hpp>

#include <exception>
#include <fstream>

#include "target.hpp"
#include "wire_layouts.hpp"

namespace {

using namespace tensafe;

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

class seed_folder {
  public:
    explicit seed_folder(std::filesystem::path path) : path_(std::move(path)) {
        std::filesystem::create_directories(path_);
    }
    void put(const std::string& name, std::span<const std::byte> bytes) const {
        std::ofstream file(path_ / name, std::ios::binary);
        file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        if (!file.flush()) {
            throw std::runtime_error((path_ / name).string() + ": cannot be written");
        }
    }

  private:
    std::filesystem::path path_;
};

void make_safetensors(const seed_folder& folder) {
    const auto put = [&](const std::string& name, std::string_view header, std::string_view data) {
        const auto length = std::bit_cast<std::array<char, 8>>(std::uint64_t{header.size()});
        folder.put(name, bytes_of(std::string(length.data(), 8) + std::string(header) + std::string(data)));
    };
    const std::array<double, 6> values = {1, -0.0, 0x1p-20, 65504, -2.5, 3};
    io::safetensors_writer writer;
    writer.add("half", io::dtype::f16, {2, 3}, values);
    writer.add("brain", io::dtype::bf16, {6}, values);
    writer.add("single", io::dtype::f32, {3, 2}, values);
    writer.add("double", io::dtype::f64, {1, 6, 1}, values);
    writer.add("none", io::dtype::f32, {0, 7}, {});
    writer.add("number", io::dtype::f64, {}, std::span(values).first(1));
    folder.put("all_real_types", writer.bytes());
    put("empty", "{}", "");
    put("metadata",
        R"({"__metadata__":{"format":"pt","a":"b"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
        "\x01\x02\x03\x04");
    put("integers",
        R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"b":{"dtype":"BOOL","shape":[2],"data_offsets":[8,10]}})",
        "0123456789");
    put("not_a_number", R"({"w":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})",
        std::string_view("\x00\x7e", 2));
    put("hole",
        R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
        "abc");
    put("overlap",
        R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
        "a");
    put("product_passes_64_bits",
        R"({"a":{"dtype":"F64","shape":[4294967296,4294967296,2],"data_offsets":[0,0]}})", "");
    put("unknown_key", R"({"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"more":[]}})", "");
    put("trailing", R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "ab");
    const auto long_length = std::bit_cast<std::array<char, 8>>(std::uint64_t{1} << 62);
    folder.put("long_length", bytes_of(std::string(long_length.data(), 8) + "{}"));
}

/// A configuration, a zero byte, and weights.
void make_peft(const seed_folder& folder) {
    const std::array<double, 4> values = {1, 2, -3, 0.5};
    io::safetensors_writer writer;
    writer.add("base_model.model.a.k_proj.lora_A.weight", io::dtype::f32, {1, 4}, values);
    writer.add("base_model.model.a.k_proj.lora_B.weight", io::dtype::f16, {4, 1}, values);
    writer.add("base_model.model.b.lora_A.weight", io::dtype::bf16, {2, 2}, values);
    writer.add("base_model.model.b.lora_B.weight", io::dtype::f32, {2, 2}, values);
    const std::vector<std::byte> weights = writer.bytes();
    for (const bool named : {false, true}) {
        std::string text = R"({"peft_type":"LORA","r":2,"lora_alpha":3,"rank_pattern":{"k_proj":1}})";
        text += '\0';
        text.append(reinterpret_cast<const char*>(weights.data()), weights.size());
        if (named) {
            text[text.find("lora_B")] = 'L';  // a tensor that is no part of an adapter
        }
        folder.put(named ? "with_unknown_tensor" : "with_weights", bytes_of(text));
    }
    io::safetensors_writer experts;
    experts.add("base_model.model.e.base_layer.lora_A.weight", io::dtype::f32, {4, 1}, values);
    experts.add("base_model.model.e.base_layer.lora_B.weight", io::dtype::f16, {1, 4}, values);
    experts.add("base_model.model.e.lora_A.weight", io::dtype::bf16, {2, 2}, values);
    experts.add("base_model.model.e.lora_B.weight", io::dtype::f32, {2, 2}, values);
    experts.add("base_model.model.lm_head.weight", io::dtype::f32, {2, 2}, values);
    const std::vector<std::byte> bytes = experts.bytes();
    std::string text = R"({"peft_type":"LORA","r":2,"lora_alpha":3,"rank_pattern":{"e.down_proj":1},)"
                       R"("target_parameters":["e.gate_up_proj","down_proj"]})";
    text += '\0';
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    folder.put("experts", bytes_of(text));
}

void make_signatures(const seed_folder& folder) {
    const std::array<std::byte, 32> secret{};  // signs nothing but seeds
    const keystore::signing_key key = keystore::signing_key::from_secret(secret);
    const auto package = keystore::package_digest::of(bytes_of("config"), bytes_of("weights"));
    const std::string text = keystore::adapter_signature::make(package, key, "legal", 7).text();
    const auto changed = [&](std::string_view from, std::string_view to) {
        std::string result = text;
        result.replace(result.find(from), from.size(), to);
        return result;
    };
    folder.put("signed", bytes_of(text));
    folder.put("without_name", bytes_of(keystore::adapter_signature::make(package, key).text()));
    folder.put("upper_case", bytes_of(changed("signature\": \"", "signature\": \"A")));
    folder.put("version_two", bytes_of(changed("\"version\": 1", "\"version\": 2")));
    folder.put("unknown_key", bytes_of(changed("\"name\"", "\"owner\"")));
    folder.put("control_character", bytes_of(changed("legal", "le\\u0007gal")));
    folder.put("largest_revision",
               bytes_of(changed("\"revision\": 7", "\"revision\": 18446744073709551615")));
}

void make_pins(const seed_folder& folder) {
    const std::array<std::byte, 32> secret{};
    const auto pin = keystore::adapter_pin::make(keystore::signing_key::from_secret(secret), "legal", {}, 7);
    std::string text = pin.text();
    folder.put("signed", bytes_of(text));
    std::string old = text;
    folder.put("version_one", bytes_of(old.replace(old.find(": 2"), 3, ": 1")));
    folder.put("unknown_key", bytes_of(text.replace(text.find("held"), 4, "hold")));
}

/// What is mended, and then the file.
void make_key_files(const seed_folder& folder) {
    constexpr std::size_t file = 1;  // where it begins
    keystore::key_info info;
    info.set = 0x1234;
    info.id.fill(std::byte{0x5a});
    info.created = std::chrono::sys_seconds(std::chrono::seconds(1'800'000'000));
    random::seed seed;
    seed.bytes.fill(0xa5);  // of nobody
    std::vector<std::byte> bytes(file + keystore::detail::key_file_bytes);
    const auto as_written = std::span(bytes).subspan(file).first<keystore::detail::key_file_bytes>();
    keystore::detail::write_key_file_bytes(info, seed, {}, {}, as_written);
    const std::vector<std::byte> good = bytes;
    const auto put = [&](const std::string& name, std::size_t at, unsigned value) {
        bytes = good;
        bytes[0] = std::byte{1};
        bytes[file + at] = static_cast<std::byte>(value);
        folder.put(name, bytes);
    };
    folder.put("as_it_is", good);
    put("mended", 8, 0x35);
    put("version_two", 4, 2);
    put("generation_0", 32, 0);
    put("after_the_year_9999", 47, 0x7f);
    put("not_wrapped_but_with_salt", 64, 1);
    bytes = good;
    bytes[0] = std::byte{1};
    bytes[file + 5] = std::byte{1};    // wrapped
    bytes[file + 48] = std::byte{15};  // N = 2^15, r = 8, p = 1
    bytes[file + 52] = std::byte{8};
    bytes[file + 56] = std::byte{1};
    folder.put("wrapped", bytes);
    bytes[file + 48] = std::byte{63};
    folder.put("wrapped_beyond_all_cost", bytes);
    bytes = good;
    bytes.resize(100);
    folder.put("torn", bytes);
}

/// Residues that nobody encrypted.
template <class Basis>
rns::poly<Basis, rns::evaluation_form> some_residues() {
    rns::poly<Basis, rns::evaluation_form> poly;
    rns::for_each_limb<Basis>([&]<int I>() {
        for (arith::word& word : poly.template limb<I>()) {
            word = 0x0123'4567'89ab;  // below every prime of the set
        }
    });
    return poly;
}

/// What is mended, the header, the beginning of the body and four bytes of checksum: the target lengthens it.
void put_message(const seed_folder& folder, const std::string& name, std::vector<std::uint8_t> message,
                 unsigned char mended = 15) {
    constexpr std::size_t longest = 300;
    if (message.size() > longest) {
        message.resize(longest);
    }
    message.insert(message.begin(), mended);
    folder.put(name, std::as_bytes(std::span(message)));
}

void make_wire(const seed_folder& folder) {
    using namespace fuzz;
    using basis = small::basis;
    using lowest = small::basis_at<0>;
    const wire::envelope from{7, 3};

    const ckks::rerandomization_key<small, key_level> key{
        {}, some_residues<small::basis_at<key_level>>(), {}};
    put_message(folder, "zero_key", wire::write_rerandomization_key(key, from));
    put_message(folder, "zero_key_with_wrong_checksum", wire::write_rerandomization_key(key, from), 3);
    auto beyond = wire::write_ciphertext(
        ckks::ciphertext<small, 0>{some_residues<lowest>(), some_residues<lowest>(), small::scale}, from);
    std::fill(beyond.begin() + 200, beyond.end(), std::uint8_t{0xff});
    put_message(folder, "ciphertext_beyond_its_prime", beyond);
    put_message(folder, "public_key",
                wire::write_public_key(ckks::public_key<small>({}, some_residues<basis>()), from));
    const ckks::ciphertext<small, small::max_level> full{some_residues<basis>(), some_residues<basis>(),
                                                         small::scale};
    put_message(folder, "ciphertext", wire::write_ciphertext(full, from));
    const ckks::ciphertext<small, 0> last{some_residues<lowest>(), some_residues<lowest>(), 0x1p-1074};
    put_message(folder, "ciphertext_of_level_0", wire::write_ciphertext(last));
    const ckks::seeded_ciphertext<small> seeded{some_residues<basis>(), {}, small::scale};
    put_message(folder, "seeded_ciphertext", wire::write_seeded_ciphertext(seeded, from));

    put_message(folder, "request", wire::write_request<tiles, hidden>(some_request(of_tiles), from));
    put_message(folder, "reply", wire::write_reply(some_reply(of_tiles), from));
    std::vector<std::uint8_t> of_block;
    wire::write_block_request<small, hidden>({of_blocks.d(), of_blocks.layout().tokens, {}}, from, of_block);
    put_message(folder, "block_request", of_block);
    wire::write_block_reply<small, hidden>(some_block_reply(), from, of_block);
    put_message(folder, "block_reply", of_block);
    wire::write_token_request<small, hidden>(some_token_request(), from, of_block);
    put_message(folder, "token_request", of_block);
    wire::write_token_reply<small, hidden>(some_token_reply(), from, of_block);
    put_message(folder, "token_reply", of_block);

    lora::reply<small, tiles, bare> products;
    products.rank = of_bare_tiles.rank();
    products.d = of_bare_tiles.d();
    products.outputs.resize(1);
    products.outputs[0].c1 = some_residues<lora::traced_product<small>::basis>();
    for (auto& limb : products.outputs[0].c0) {
        limb = memory::buffer<arith::word>(of_bare_tiles.subring_degree());
    }
    auto bare_reply = wire::write_reply(products, from);
    bare_reply[16] = 4;  // the target's way to choose the reader
    put_message(folder, "bare_reply", bare_reply);

    lora::model_layout layout;
    layout.groups.push_back(
        {"layers.0.attention", 200, 1, {{"layers.0.q", 4, 8, 2}, {"layers.0.v", 4, 8, 0.5}}});
    layout.groups.push_back({"layers.0.mlp", 100, 0.5, {{"layers.0.up", 2, 16, 1}}});
    put_message(folder, "model_layout", wire::write_model_layout<small, tiles, hidden>(layout, from));
    lora::adapter held;
    held.sites.resize(2);
    held.sites[0].name = "q";
    held.sites[0].b = lora::matrix(3, 2);
    held.sites[0].scale = -0.5;
    held.sites[1].name = "embed";
    held.sites[1].a = lora::matrix(1, 2);
    held.sites[1].b = lora::matrix(2, 1);
    put_message(folder, "held_adapter", wire::write_whole_adapter(held, from));
    put_message(folder, "held_adapter_as_it_is", wire::write_whole_adapter(held, from), 0);
    put_message(folder, "header_alone", wire::write_whole_adapter({}), 0);
    auto another_version = wire::write_whole_adapter({});
    another_version[4] = 2;
    put_message(folder, "version_two", another_version);
}

}  // namespace

int main(int count, char** values) {
    if (count != 2) {
        std::fprintf(stderr, "make_seeds: expected a folder\n");
        return 2;
    }
    try {
        const std::filesystem::path corpus = values[1];
        make_safetensors(seed_folder(corpus / "safetensors"));
        make_peft(seed_folder(corpus / "peft_json"));
        make_signatures(seed_folder(corpus / "adapter_signature"));
        make_pins(seed_folder(corpus / "adapter_pin"));
        make_key_files(seed_folder(corpus / "key_file"));
        make_wire(seed_folder(corpus / "wire"));
    } catch (const std::exception& e) {
        std::fprintf(stderr, "make_seeds: %s\n", e.what());
        return 1;
    }
    return 0;
}
