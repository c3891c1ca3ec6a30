// Files that lie, and what is said about them. Names and messages are part of the contract: each row gives
// the error's type and a piece of its text.

#include <tensafe/core/text.hpp>
#include <tensafe/io/peft.hpp>

#include "file_builder.hpp"

using namespace tests;
using tensafe::io::safetensors_file;

namespace {

enum class kind { format, unsupported };
using enum kind;

struct outcome {
    kind type;
    std::string message;
};

/// What running `action` throws; nothing if it succeeds. Any other exception leaves and fails the test.
template <class Action>
std::optional<outcome> outcome_of(Action action) {
    try {
        action();
    } catch (const format_error& error) {
        return outcome{format, error.what()};
    } catch (const unsupported_error& error) {
        return outcome{unsupported, error.what()};
    }
    return std::nullopt;
}

template <class Action>
void check_refused(Action action, kind type, const std::string& piece) {
    const std::optional<outcome> got = outcome_of(action);
    REQUIRE_MESSAGE(got.has_value(), "was accepted, expected: " << piece);
    CAPTURE(got->message);
    CHECK(got->type == type);
    CHECK(contains(got->message, piece));
    CHECK(got->message.size() < 1000);
    CHECK(std::all_of(got->message.begin(), got->message.end(), [](char c) { return c >= ' ' && c <= '~'; }));
}

/// Opens a file from memory and reads all its values.
void read_everything(std::string_view bytes) {
    const auto file = safetensors_file::parse(to_bytes(bytes));
    for (const auto& tensor : file.tensors()) {
        static_cast<void>(file.read_doubles(tensor.name));
    }
}

struct raw_row {
    std::string title;
    std::string bytes;
    std::string piece;
};

const std::string good_header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
const std::string good_data(8, '\0');

std::string with_length(std::uint64_t length, const std::string& rest) {
    std::string bytes = safetensors_text("", rest);
    std::memcpy(bytes.data(), &length, sizeof(length));
    return bytes;
}

std::vector<raw_row> raw_rows() {
    return {
        {"nothing at all", "", "got 0 bytes, expected at least the 8"},
        {"seven bytes", "1234567", "got 7 bytes"},
        {"only a length", safetensors_text("", ""), "header: begins with \"\", expected"},
        {"length one beyond the file", with_length(good_header.size() + 1, good_header),
         "but only 54 bytes follow"},
        {"length at the cap of a short file", with_length(100'000'000, good_header),
         "but only 54 bytes follow"},
        {"length beyond the cap", with_length(100'000'001, good_header),
         "got 100000001, expected at most 100000000"},
        {"length 2^64 - 1", with_length(~std::uint64_t{0}, good_header), "got 18446744073709551615"},
        {"length 2^64 - 8 that wraps", with_length(~std::uint64_t{7}, good_header),
         "expected at most 100000000"},
        {"space before the header", safetensors_text(" " + good_header, good_data), "begins with \" \""},
        {"byte order mark", safetensors_text("\xef\xbb\xbf" + good_header, good_data), "begins with"},
        {"zero byte that hides the rest",
         safetensors_text(good_header + std::string(1, '\0') + "}}}garbage", good_data), "zero byte at 54"},
        {"one byte of data too many", safetensors_text(good_header, good_data + "x"),
         "1 bytes at the end belong to no tensor"},
        {"one byte of data too few", safetensors_text(good_header, good_data.substr(1)),
         "tensor \"w\": data_offsets end at 8, but the file holds 7 bytes of data"},
        {"data without tensors", safetensors_text("{}", "x"), "1 bytes at the end"},
        {"archive of torch.save", "PK\x03\x04 this is a zip archive of tensors",
         "\"memory\": is a zip archive"},
        {"pickle", "\x80\x02}q\x01(X\x05model", "is a pickle, which is not read"},
        {"newer pickle", "\x80\x05}q\x01(X\x05model", "is a pickle, which is not read"},
        {"pointer of Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
         "run git lfs pull"},
        {"GGUF", std::string("GGUF\x03\0\0\0\x02", 9), "is a GGUF file"},
        {"page of an error", "<!DOCTYPE html>", "is a web page"},
        {"something else", "ABCDEFGHIJKL", "header length: got"},
    };
}

struct header_row {
    std::string title;
    std::string header;
    std::string piece;
};

/// Headers before eight bytes of zeros.
std::vector<header_row> header_rows() {
    const auto tensor = [](const std::string& body) { return "{\"w\":{" + body + "}}"; };
    const std::string type = R"("dtype":"F32")";
    const std::string shape = R"("shape":[2])";
    const std::string offsets = R"("data_offsets":[0,8])";
    const std::string long_name(5000, 'n');
    return {
        {"a list", "[]", "begins with \"[\""},
        {"not closed", "{", "not valid JSON at byte 2"},
        {"text after the object", good_header + "{}", "not valid JSON at byte 55"},
        {"comment", "{/* */}", "not valid JSON"},
        {"trailing comma", "{\"w\":{" + type + ",}}", "not valid JSON"},
        {"single quotes", "{'w':{}}", "not valid JSON"},
        {"bytes that are not UTF-8", "{\"\xff\xfe\":{}}", "not valid JSON"},
        {"lone surrogate", R"({"\ud800":{}})", "not valid JSON"},
        {"control characters in the name", "{\"a\x1b[31m\":{}}", "not valid JSON"},
        {"number beyond all ranges", tensor(type + R"(,"shape":[1e999],)" + offsets), "not valid JSON"},
        {"tensor that is null", R"({"w":null})", "tensor \"w\": got null, expected an object"},
        {"tensor that is a number", R"({"w":8})", "tensor \"w\": got 8, expected an object"},
        {"tensor that is a list", R"({"w":[]})", "tensor \"w\": got an array, expected an object"},
        {"escaped control characters in the name", R"({"a\u001b[31m\u0000":1})",
         "tensor \"a\\u001b[31m\\u0000\""},
        {"right-to-left override in the name", "{\"\xe2\x80\xae\":1}", "tensor \"\\u202e\""},
        {"name of 5000 characters", "{\"" + long_name + "\":1}", "nnn...\": got 1"},
        {"name of 5000 quotation marks",
         "{\"" +
             [] {
                 std::string escapes;
                 for (int i = 0; i < 5000; ++i) {
                     escapes += "\\\"";
                 }
                 return escapes;
             }() +
             "\":1}",
         "...\": got 1"},
        {"deep nesting of lists", "{\"w\":" + std::string(1'000'000, '['), "got an array"},
        {"deep nesting of objects", "{\"w\":{\"shape\":{\"shape\":{", "shape: got an object"},
        {"deep nesting inside a shape", tensor(type + ",\"shape\":[[[[[2]]]]]," + offsets),
         "shape: got an array"},
        {"two tensors of one name",
         R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
         "tensor \"w\": duplicate name"},
        {"two tensors whose escaped names are one",
         R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"\u0077":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
         "tensor \"w\": duplicate name"},
        {"dtype twice", tensor(type + "," + type + "," + shape + "," + offsets), "duplicate key \"dtype\""},
        {"shape twice", tensor(type + "," + shape + "," + shape + "," + offsets), "duplicate key \"shape\""},
        {"data_offsets twice", tensor(type + "," + shape + "," + offsets + "," + offsets),
         "duplicate key \"data_offsets\""},
        {"empty tensor object", tensor(""), "missing key \"dtype\""},
        {"no shape", tensor(type + "," + offsets), "missing key \"shape\""},
        {"no data_offsets", tensor(type + "," + shape), "missing key \"data_offsets\""},
        {"unknown key", tensor(type + "," + shape + "," + offsets + ",\"stride\":[1]"),
         "unknown key \"stride\""},
        {"unknown dtype", tensor("\"dtype\":\"F33\"," + shape + "," + offsets), "dtype: got \"F33\""},
        {"dtype in lower case", tensor("\"dtype\":\"f32\"," + shape + "," + offsets), "dtype: got \"f32\""},
        {"dtype that is a number", tensor("\"dtype\":32," + shape + "," + offsets),
         "dtype: got 32, expected a string"},
        {"shape that is a number", tensor(type + ",\"shape\":2," + offsets),
         "shape: got 2, expected an array"},
        {"shape that is a string", tensor(type + ",\"shape\":\"2\"," + offsets),
         "shape: got the string \"2\""},
        {"negative dimension", tensor(type + ",\"shape\":[-2]," + offsets),
         "shape: got -2, expected non-negative"},
        {"two negative dimensions whose product fits", tensor(type + ",\"shape\":[-1,-2]," + offsets),
         "got -1"},
        {"fractional dimension", tensor(type + ",\"shape\":[2.0]," + offsets),
         "shape: got the number \"2.0\""},
        {"dimension of 2^64", tensor(type + ",\"shape\":[18446744073709551616]," + offsets),
         "shape: got the number"},
        {"dimension that is true", tensor(type + ",\"shape\":[true]," + offsets), "shape: got true"},
        {"dimension that is null", tensor(type + ",\"shape\":[null]," + offsets), "shape: got null"},
        {"product that wraps to the right size",
         tensor(type + ",\"shape\":[4611686018427387904,4,2]," + offsets), "does not fit 64 bits"},
        {"elements that fit but bytes that wrap",
         tensor(type + ",\"shape\":[4611686018427387906]," + offsets), "does not fit 64 bits"},
        {"65 dimensions",
         tensor(type + ",\"shape\":[2" +
                [] {
                    std::string ones;
                    for (int i = 0; i < 64; ++i) {
                        ones += ",1";
                    }
                    return ones;
                }() +
                "]," + offsets),
         "expected at most 64"},
        {"shape larger than the bytes", tensor(type + ",\"shape\":[3]," + offsets),
         "got 8 bytes, expected 12 for shape [3] of F32"},
        {"shape smaller than the bytes", tensor(type + ",\"shape\":[]," + offsets),
         "got 8 bytes, expected 4"},
        {"one offset", tensor(type + "," + shape + ",\"data_offsets\":[8]"), "data_offsets: got 1 numbers"},
        {"no offsets", tensor(type + "," + shape + ",\"data_offsets\":[]"), "data_offsets: got 0 numbers"},
        {"three offsets", tensor(type + "," + shape + ",\"data_offsets\":[0,8,8]"), "data_offsets: got 8"},
        {"negative offset", tensor(type + "," + shape + ",\"data_offsets\":[-8,0]"), "data_offsets: got -8"},
        {"offsets in an object", tensor(type + "," + shape + ",\"data_offsets\":{\"begin\":0}"),
         "data_offsets: got an object"},
        {"offsets the wrong way round", tensor(type + "," + shape + ",\"data_offsets\":[8,0]"),
         "begin 8 is after end 0"},
        {"offsets beyond the file", tensor(type + "," + shape + ",\"data_offsets\":[1,9]"),
         "end at 9, but the file holds 8 bytes"},
        {"offsets near 2^64",
         tensor(type + "," + shape + ",\"data_offsets\":[18446744073709551600,18446744073709551608]"),
         "end at 18446744073709551608, but the file holds 8 bytes"},
        {"overlap",
         R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
         "tensor \"b\": overlaps the tensor before it"},
        {"the same bytes twice",
         R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
         "tensor \"b\": overlaps"},
        {"empty tensor inside another",
         R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
         "tensor \"b\": overlaps"},
        {"hole at the beginning", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
         "tensor \"a\": leaves a hole before it: begins at 4, expected 0"},
        {"hole in the middle",
         R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
         "tensor \"b\": leaves a hole"},
        {"half a byte", tensor("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"), "or is not whole"},
        {"F6 whose bytes are those of F8", tensor("\"dtype\":\"F6_E2M3\",\"shape\":[8]," + offsets),
         "got 8 bytes, expected 6 for shape [8] of F6_E2M3"},
        {"metadata that is a list", R"({"__metadata__":[]})", "got an array, expected an object"},
        {"metadata with a number", R"({"__metadata__":{"k":1}})",
         "__metadata__: \"k\": got 1, expected a string"},
        {"metadata with an object", R"({"__metadata__":{"k":{}}})", "__metadata__: \"k\": got an object"},
        {"metadata with one key twice", R"({"__metadata__":{"k":"a","k":"b"}})",
         "__metadata__: duplicate key \"k\""},
        {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", "duplicate key \"__metadata__\""},
    };
}

struct peft_row {
    std::string title;
    std::string config;
    kind type;
    std::string piece;
};

const std::string good_config = R"({"peft_type":"LORA","r":1,"lora_alpha":2})";

/// Configurations for one site "m.q" of rank 1.
std::vector<peft_row> config_rows() {
    const auto with = [](const std::string& more) {
        return good_config.substr(0, good_config.size() - 1) + "," + more + "}";
    };
    return {
        {"empty text", "", format, "not valid JSON at byte 1"},
        {"a list", "[1]", format, "got an array, expected an object"},
        {"cut off", good_config.substr(0, 20), format, "not valid JSON"},
        {"zero byte", good_config + std::string(1, '\0'), format, "zero byte at 41"},
        {"byte order mark", "\xef\xbb\xbf" + good_config, format, "got a byte order mark, expected JSON"},
        {"key twice", with("\"r\":1"), format, "duplicate key \"r\""},
        {"key of a pattern twice", with(R"("alpha_pattern":{"q":1,"q":2})"), format, "duplicate key \"q\""},
        {"deep nesting", with("\"x\":" + std::string(100'000, '[')), format, "nested deeper than 16"},
        {"no peft_type", R"({"r":1,"lora_alpha":2})", format, "missing key \"peft_type\""},
        {"peft_type that is a number", R"({"peft_type":1})", format,
         "peft_type: got \"1\", expected a string"},
        {"another method", R"({"peft_type":"IA3"})", unsupported, "not supported: peft_type \"IA3\""},
        {"no r, which then is 8", R"({"peft_type":"LORA","lora_alpha":2})", format,
         "site \"m.q\": the matrices have rank 1, but the configuration says 8"},
        {"rank that is null", R"({"peft_type":"LORA","r":null,"lora_alpha":2})", format, "r: got \"null\""},
        {"rank 0", R"({"peft_type":"LORA","r":0,"lora_alpha":2})", format, "r: got \"0\""},
        {"negative rank", R"({"peft_type":"LORA","r":-1,"lora_alpha":2})", format, "r: got \"-1\""},
        {"fractional rank", R"({"peft_type":"LORA","r":1.0,"lora_alpha":2})", format, "r: got \"1.0\""},
        {"rank of the matrices differs", R"({"peft_type":"LORA","r":2,"lora_alpha":2})", format,
         "site \"m.q\": the matrices have rank 1, but the configuration says 2"},
        {"rank of a pattern differs", with(R"("rank_pattern":{"q":3})"), format, "the configuration says 3"},
        {"rank 0 in a pattern", with(R"("rank_pattern":{"q":0})"), format, "rank_pattern \"q\": got \"0\""},
        {"lora_alpha that is a string", R"({"peft_type":"LORA","r":1,"lora_alpha":"NaN"})", format,
         "expected a finite number"},
        {"lora_alpha that is null", R"({"peft_type":"LORA","r":1,"lora_alpha":null})", format,
         "lora_alpha: got \"null\""},
        {"lora_alpha NaN as Python writes it", R"({"peft_type":"LORA","r":1,"lora_alpha":NaN})", format,
         "not valid JSON"},
        {"lora_alpha beyond double", R"({"peft_type":"LORA","r":1,"lora_alpha":1e999})", format,
         "not valid JSON"},
        {"alpha that is a list", with(R"("alpha_pattern":{"q":[1]})"), format,
         "alpha_pattern \"q\": got an array"},
        {"pattern that is a list", with(R"("alpha_pattern":["q"])"), format, "alpha_pattern: got an array"},
        {"pattern beyond what is read", with(R"("alpha_pattern":{"(?=m).*q":1})"), unsupported,
         "alpha_pattern \"(?=m).*q\": not supported in a pattern"},
        {"pattern that fits no site", with(R"("rank_pattern":{"^m.q":1,"v":1})"), format,
         "rank_pattern \"v\": fits no site"},
        {"pattern that fits half a name", with(R"("alpha_pattern":{"q":3,"m":1})"), format,
         "alpha_pattern \"m\": fits no site"},
        {"use_rslora that is a string", with(R"("use_rslora":"yes")"), format, "use_rslora: got"},
        {"DoRA", with(R"("use_dora":true)"), unsupported,
         "\"use_dora\" set: DoRA divides each row of W + scale B A by its norm, which depends on A: if that "
         "may "
         "become public, convert the adapter with Python's tensafe.dora.convert, else train without it"},
        {"a variant of the future", with(R"("use_xlora":true)"), unsupported, "not supported: \"use_xlora\""},
        {"a variant that is a number", with(R"("use_dora":1)"), unsupported, "not supported: \"use_dora\""},
        {"a router", with(R"("arrow_config":{})"), unsupported, "not supported: \"arrow_config\""},
        {"a diagonal", with(R"("kasa_config":{"beta":1})"), unsupported, "not supported: \"kasa_config\""},
        {"blocks", with(R"("use_bdlora":{})"), unsupported, "not supported: \"use_bdlora\""},
        {"VeLoRA", with(R"("velora_config":{})"), unsupported, "not supported: \"velora_config\""},
        {"samples", with(R"("monteclora_config":{})"), unsupported, "not supported: \"monteclora_config\""},
        {"shards of Megatron", with(R"("megatron_config":{"x":1})"), unsupported, "\"megatron_config\""},
        {"invocation that is text", with(R"("alora_invocation_tokens":"go")"), format, "expected an array"},
        {"invocation that is an object", with(R"("alora_invocation_tokens":{"a":1})"), format,
         "got an object"},
        {"negative token", with(R"("alora_invocation_tokens":[5,-1])"), format, "tokens: got \"-1\""},
        {"half a token", with(R"("alora_invocation_tokens":[5.5])"), format, "tokens: got \"5.5\""},
        {"token beyond 31 bits", with(R"("alora_invocation_tokens":[2147483648])"), format,
         "expected whole numbers from 0 to 2^31 - 1"},
        {"1025 tokens", with([] {
             std::string list = R"("alora_invocation_tokens":[1)";
             for (int i = 0; i < 1024; ++i) {
                 list += ",1";
             }
             return list + "]";
         }()),
         format, "expected 1 to 1024 tokens"},
        {"no tokens", with(R"("alora_invocation_tokens":[])"), format, "1 to 1024 tokens"},
        {"an unknown option", with(R"("rotation":"left")"), unsupported,
         "\"rotation\" set: an unknown option"},
        {"an unknown number", with(R"("gain":0.5)"), unsupported, "\"gain\" set: an unknown option"},
        {"MLX", R"({"fine_tune_type":"lora","lora_parameters":{"rank":8}})", unsupported,
         "configuration of MLX"},
        {"pointer of Git LFS", "version https://git-lfs.github.com/spec/v1\n", format, "run git lfs pull"},
        {"fully trained modules", with(R"("modules_to_save":["lm_head"])"), unsupported,
         "\"modules_to_save\" set: layers that were trained whole"},
        {"adapted parameters that are text", with(R"("target_parameters":"w")"), format,
         "target_parameters: got"},
        {"an adapted bias", with(R"("target_parameters":["m.q.gate_up_proj_bias"])"), unsupported,
         "no weight"},
        {"17 parameters of a module", with([] {
             std::string list = R"("target_parameters":["m.q.w")";
             for (int i = 0; i < 16; ++i) {
                 list += ",\"m.q.w" + std::to_string(i) + "\"";
             }
             return list + "]";
         }()),
         unsupported, "more than 16 of one module"},
        {"two parameters and one pair", with(R"("target_parameters":["q.w1","q.w2"])"), unsupported,
         "site \"m.q\": not supported: \"target_parameters\" names several"},
        {"replicated layers", with(R"("layer_replication":[[0,4]])"), unsupported, "\"layer_replication\""},
        {"trained tokens", with(R"("trainable_token_indices":[1])"), unsupported, "trainable_token_indices"},
        {"changed base weights", with(R"("init_lora_weights":"pissa")"), unsupported,
         "\"init_lora_weights\" \"pissa\": the base weights were changed as well; convert"},
        {"PiSSA by iterations", with(R"("init_lora_weights":"pissa_niter_4")"), unsupported, "convert"},
        {"CorDA", with(R"("init_lora_weights":"corda")"), unsupported, "convert the adapter"},
        {"OLoRA", with(R"("init_lora_weights":"OLoRA")"), unsupported, "convert the adapter"},
        {"LoRA-GA", with(R"("init_lora_weights":"lora_ga")"), unsupported, "convert the adapter"},
        {"LoftQ", with(R"("init_lora_weights":"loftq")"), unsupported, "PEFT converts it not"},
        {"an unknown initialization", with(R"("init_lora_weights":"zeta")"), unsupported,
         "\"init_lora_weights\" \"zeta\": an unknown initialization"},
        {"an initialization that PEFT spells otherwise", with(R"("init_lora_weights":"Eva")"), unsupported,
         "\"Eva\": an unknown initialization"},
        {"bias that is a number", with(R"("bias":1)"), format, "bias: got \"1\", expected a string"},
        {"an initialization by number", with(R"("init_lora_weights":2)"), format,
         "init_lora_weights: got \"2\""},
    };
}

struct weight {
    std::string name;
    std::string shape;
    std::size_t bytes;
};

/// A file of F32 zeros.
std::string weights_text(const std::vector<weight>& weights) {
    std::string header = "{";
    std::size_t begin = 0;
    for (const weight& added : weights) {
        header += (begin == 0 && header.size() == 1 ? "\"" : ",\"") + added.name +
                  R"(":{"dtype":"F32","shape":)" + added.shape + ",\"data_offsets\":[" +
                  std::to_string(begin) + "," + std::to_string(begin + added.bytes) + "]}";
        begin += added.bytes;
    }
    return safetensors_text(header + "}", std::string(begin, '\0'));
}

struct weights_row {
    std::string title;
    std::vector<weight> weights;
    kind type;
    std::string piece;
};

std::vector<weights_row> weights_rows() {
    const std::string m = "base_model.model.m.q.";
    const weight a{m + "lora_A.weight", "[1,3]", 12};
    const weight b{m + "lora_B.weight", "[2,1]", 8};
    return {
        {"no tensors", {}, format, "holds no LoRA matrices"},
        {"A alone", {a}, format, "site \"m.q\": lora_B is missing"},
        {"B alone", {b}, format, "site \"m.q\": lora_A is missing"},
        {"ranks differ", {a, {b.name, "[1,2]", 8}}, format, "lora_A has rank 1 but lora_B has rank 2"},
        {"rank 0", {{a.name, "[0,3]", 0}, {b.name, "[2,0]", 0}}, format, "lora_A: got shape [0, 3]"},
        {"no inputs", {{a.name, "[1,0]", 0}, b}, format, "lora_A: got shape [1, 0]"},
        {"no outputs", {a, {b.name, "[0,1]", 0}}, format, "lora_B: got shape [0, 1]"},
        {"vector", {{a.name, "[3]", 12}, b}, format, "lora_A: got shape [3], expected two dimensions"},
        {"convolution", {{a.name, "[1,3,1,1]", 12}, b}, unsupported, "not supported: lora_A with shape"},
        {"two adapters",
         {a, b, {m + "lora_A.other.weight", "[1,3]", 12}},
         unsupported,
         "not supported: several adapters in one file, here \"\" and \"other\""},
        {"halves of two adapters",
         {{m + "lora_A.one.weight", "[1,3]", 12}, {m + "lora_B.two.weight", "[2,1]", 8}},
         unsupported,
         "several adapters"},
        {"DoRA",
         {a, b, {m + "lora_magnitude_vector", "[2]", 8}},
         unsupported,
         "not supported: DoRA, though \"use_dora\" is not set"},
        {"DoRA with an adapter name",
         {a, b, {m + "lora_magnitude_vector.default.weight", "[2]", 8}},
         unsupported,
         "not supported: DoRA"},
        {"bias", {a, b, {m + "lora_B.bias", "[2]", 8}}, unsupported, "not supported: LoRA with a bias"},
        {"bias with an adapter name",
         {a, b, {m + "lora_B.default.bias", "[2]", 8}},
         unsupported,
         "not supported: LoRA with a bias"},
        {"embedding", {{m + "lora_embedding_A", "[1,3]", 12}}, unsupported, "adapters of embedding layers"},
        {"a full layer",
         {a, b, {"base_model.model.score.weight", "[1]", 4}},
         format,
         "tensor \"base_model.model.score.weight\": unknown"},
        {"a layer trained whole",
         {a, b, {"base_model.model.lm_head.modules_to_save.weight", "[1]", 4}},
         unsupported,
         "save the adapter with modules_to_save=None"},
        {"a trained bias", {a, b, {m + "bias", "[1]", 4}}, unsupported, "a trained bias"},
        {"a module within a wrapper that is not there",
         {{m + "base_layer.lora_A.weight", "[1,3]", 12}, {m + "base_layer.lora_B.weight", "[2,1]", 8}},
         format,
         "lies within 1 wrappers"},
        {"a wrapper around a module",
         {a, b, {m + "base_layer.lora_A.weight", "[1,3]", 12}, {m + "base_layer.lora_B.weight", "[2,1]", 8}},
         format,
         "names 0 parameters of this module"},
        {"copies of the base model alone",
         {{"base_model.model.lm_head.weight", "[1]", 4}},
         format,
         "holds no LoRA matrices"},
        {"no prefix", {{"m.q.lora_A.weight", "[1,3]", 12}}, format, "tensor \"m.q.lora_A.weight\": unknown"},
        {"no module", {{"base_model.model.lora_A.weight", "[1,3]", 12}}, format, "unknown, expected"},
        {"an empty module", {{"base_model.model..lora_A.weight", "[1,3]", 12}}, format, "unknown, expected"},
        {"an empty adapter name", {{m + "lora_A..weight", "[1,3]", 12}}, format, "unknown, expected"},
        {"too many components", {{m + "lora_A.x.y.weight", "[1,3]", 12}}, format, "unknown, expected"},
        {"a third matrix", {a, b, {m + "lora_C.weight", "[1,1]", 4}}, format, "unknown, expected"},
        {"lower case", {{m + "lora_a.weight", "[1,3]", 12}}, format, "unknown, expected"},
    };
}

std::string good_weights() {
    return weights_text({{"base_model.model.m.q.lora_A.weight", "[1,3]", 12},
                         {"base_model.model.m.q.lora_B.weight", "[2,1]", 8}});
}

void load(const std::string& config, const std::string& weights) {
    static_cast<void>(tensafe::io::parse_peft(config, safetensors_file::parse(to_bytes(weights))));
}

/// Changes one to four bytes.
void corrupt(std::string& bytes, random_numbers& random) {
    const std::uint64_t count = 1 + random() % 4;
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t draw = random();
        char& byte = bytes[draw % bytes.size()];
        // Half of the changes hit a single bit: those keep the header text plausible.
        byte =
            static_cast<char>((draw & (std::uint64_t{1} << 40)) != 0 ? byte ^ (1 << ((draw >> 41) % 8))
                                                                     : static_cast<int>((draw >> 44) & 0xff));
    }
}

}  // namespace

TEST_CASE("the files that the rows below spoil are good") {
    CHECK_NOTHROW(read_everything(safetensors_text(good_header, good_data)));
    CHECK_NOTHROW(load(good_config, good_weights()));
}

TEST_CASE("a safetensors file with a bad frame is refused") {
    for (const raw_row& row : raw_rows()) {
        CAPTURE(row.title);
        check_refused([&] { read_everything(row.bytes); }, format, row.piece);
    }
}

TEST_CASE("a safetensors file with a bad header is refused") {
    for (const header_row& row : header_rows()) {
        CAPTURE(row.title);
        check_refused([&] { read_everything(safetensors_text(row.header, good_data)); }, format, row.piece);
    }
}

TEST_CASE("a bad PEFT configuration is refused") {
    const std::string weights = good_weights();
    for (const peft_row& row : config_rows()) {
        CAPTURE(row.title);
        check_refused([&] { load(row.config, weights); }, row.type, row.piece);
    }
}

TEST_CASE("PEFT weights that are not those of one plain LoRA adapter are refused") {
    for (const weights_row& row : weights_rows()) {
        CAPTURE(row.title);
        check_refused([&] { load(good_config, weights_text(row.weights)); }, row.type, row.piece);
    }
}

TEST_CASE("PEFT weights that are not finite are refused with the tensor and the index") {
    std::string weights = good_weights();
    weights.replace(weights.size() - 4, 4, std::string("\x00\x00\xc0\x7f", 4));
    check_refused([&] { load(good_config, weights); }, format,
                  "tensor \"base_model.model.m.q.lora_B.weight\": value 1 is nan");
}

TEST_CASE("a safetensors file cut at any byte is refused") {
    const std::string whole = good_weights();
    for (std::size_t length = 0; length < whole.size(); ++length) {
        CAPTURE(length);
        CHECK_THROWS_AS(read_everything(std::string_view(whole).substr(0, length)), format_error);
    }
}

TEST_CASE("a PEFT configuration cut at any byte is refused") {
    const std::string weights = good_weights();
    for (std::size_t length = 0; length < good_config.size(); ++length) {
        CAPTURE(length);
        CHECK_THROWS_AS(load(good_config.substr(0, length), weights), format_error);
    }
}

TEST_CASE("random changes of a safetensors file end in a result or one of our errors") {
    const std::string good = good_weights();
    random_numbers random(20240607);
    int refused = 0;
    for (int i = 0; i < 6000; ++i) {
        std::string bytes = good;
        corrupt(bytes, random);
        CAPTURE(i);
        refused += outcome_of([&] { read_everything(bytes); }).has_value();
        refused += outcome_of([&] { load(good_config, bytes); }).has_value();
    }
    // Changes of values stay undetected, of course; most others must be.
    CHECK(refused > 6000);
    CHECK(refused < 12000);
}

TEST_CASE("random changes of a PEFT configuration end in a result or one of our errors") {
    const std::string weights = good_weights();
    const std::string good = R"({"peft_type":"LORA","r":1,"lora_alpha":2.5,"use_rslora":true,"bias":"none",)"
                             R"("rank_pattern":{"q":1},"alpha_pattern":{"m.q":3},"modules_to_save":null})";
    random_numbers random(20240608);
    int refused = 0;
    for (int i = 0; i < 6000; ++i) {
        std::string config = good;
        corrupt(config, random);
        CAPTURE(i);
        refused += outcome_of([&] { load(config, weights); }).has_value();
    }
    CHECK(refused > 3000);
    CHECK(refused < 6000);
}
