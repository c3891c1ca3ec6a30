#include <tensafe/io/safetensors.hpp>

#include <sys/stat.h>

#include "file_builder.hpp"

using namespace tests;
using namespace tensafe::io;

namespace {

safetensors_file reread(const safetensors_writer& writer) {
    return safetensors_file::parse(writer.bytes());
}

std::vector<std::string> names(const safetensors_file& file) {
    std::vector<std::string> result;
    for (const auto& tensor : file.tensors()) {
        result.push_back(tensor.name);
    }
    return result;
}

}  // namespace

TEST_CASE("a file written by hand reads as its bytes say") {
    // 1.0 and -2.0 as F32; 1.5 as F16; 3.0 as BF16; 0.1 as F64. The header names them in another order.
    const std::string data("\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x3e\x40\x40\x9a\x99\x99\x99\x99\x99\xb9\x3f",
                           20);
    const auto file = safetensors_file::parse(to_bytes(safetensors_text(
        R"({"d":{"dtype":"F64","shape":[],"data_offsets":[12,20]},
            "__metadata__":{"format":"pt","":"x"},
            "b":{"data_offsets":[8,10],"shape":[1],"dtype":"F16"},
            "a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},
            "c":{"dtype":"BF16","shape":[1,1,1],"data_offsets":[10,12]}}   )",
        data)));
    CHECK(names(file) == std::vector<std::string>{"a", "b", "c", "d"});
    CHECK(file.metadata().at("format") == "pt");
    CHECK(file.metadata().size() == 2);
    CHECK(file.read_doubles("a") == std::vector<double>{1.0, -2.0});
    CHECK(file.read_doubles("b") == std::vector<double>{1.5});
    CHECK(file.read_doubles("c") == std::vector<double>{3.0});
    CHECK(file.read_doubles("d") == std::vector<double>{0.1});
    const auto matrix = file.read_matrix("a");
    CHECK(matrix.rows == 2);
    CHECK(matrix.columns == 1);
    CHECK(matrix.values == std::vector<float>{1.0f, -2.0f});
    REQUIRE(file.find("c") != nullptr);
    CHECK(file.find("c")->shape == std::vector<std::size_t>{1, 1, 1});
    CHECK(file.find("c")->size() == 1);
    CHECK(file.find("nothing") == nullptr);
}

TEST_CASE("values come back as they were written, rounded only to their type") {
    const std::vector<double> values{0.0, -0.0, 1.0, -1.0 / 3.0, 1e-6, 65504.0};
    for (const dtype type : {dtype::f64, dtype::f32, dtype::f16, dtype::bf16}) {
        const auto read = reread(safetensors_writer{}.add("v", type, {2, 3}, values)).read_doubles("v");
        REQUIRE(read.size() == values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double expected =
                type == dtype::f64   ? values[i]
                : type == dtype::f32 ? static_cast<float>(values[i])
                : type == dtype::f16
                    ? tensafe::io::float_from_half(tensafe::io::half_from_double(values[i]))
                    : tensafe::io::float_from_bfloat16(tensafe::io::bfloat16_from_double(values[i]));
            CHECK(std::bit_cast<std::uint64_t>(read[i]) == std::bit_cast<std::uint64_t>(expected));
        }
    }
}

TEST_CASE("all shapes are written and read: a number, a vector, empty tensors, none at all") {
    const std::vector<double> one{7.0};
    const auto file = reread(safetensors_writer{}
                                 .add("empty first", dtype::f64, {0, 5}, {})
                                 .add("number", dtype::f32, {}, one)
                                 .add("empty between", dtype::f64, {3, 0}, {})
                                 .add("deep", dtype::f16, {1, 1, 1, 1, 1}, one)
                                 .add("empty last", dtype::bf16, {0}, {}));
    CHECK(file.tensors().size() == 5);
    CHECK(file.read_doubles("number") == one);
    CHECK(file.read_doubles("deep") == one);
    CHECK(file.read_matrix("empty between").rows == 3);
    CHECK(file.read_doubles("empty last").empty());
    CHECK(reread(safetensors_writer{}).tensors().empty());
}

TEST_CASE("names of any kind survive the header") {
    const std::vector<double> one{1.0};
    const std::string awkward = "quote\" back\\slash tab\t gr\xc3\xbc\xc3\x9f" + std::string(1, '\0') + "end";
    const auto file =
        reread(safetensors_writer{}.add(awkward, dtype::f32, {1}, one).add("", dtype::f32, {1}, one));
    CHECK(file.find(awkward) != nullptr);
    CHECK(file.find("") != nullptr);
}

TEST_CASE("the header is padded so that data begins at a multiple of eight bytes") {
    for (const std::string name : {"a", "ab", "abc", "abcd", "abcde"}) {
        const auto bytes = safetensors_writer{}.add(name, dtype::f64, {1}, std::vector<double>{1.0}).bytes();
        CHECK(bytes.size() % 8 == 0);
    }
}

TEST_CASE("other types are listed but their values are not read") {
    const auto file = safetensors_file::parse(
        to_bytes(safetensors_text(R"({"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},
                                      "u":{"dtype":"U8","shape":[1,2],"data_offsets":[8,10]}})",
                                  "0123456789")),
        "the file");
    CHECK(file.find("i")->type == dtype::i64);
    CHECK(file.find("u")->size() == 2);
    CHECK_THROWS_WITH_AS(
        file.read_doubles("i"),
        R"("the file": tensor "i": reading values of type I64 is not supported, only F64, F32, F16, )"
        "BF16, F8_E4M3 and F8_E5M2",
        unsupported_error);
    CHECK_THROWS_AS(file.read_matrix("u"), unsupported_error);
}

TEST_CASE("every type of the format is listed, and values of eight bits are exact") {
    struct row {
        std::string name;
        std::size_t bytes;  // of eight elements
    };
    std::vector<row> rows = {
        {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
        {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
        {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
        {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
    for (const row& each : rows) {
        CAPTURE(each.name);
        const auto file = safetensors_file::parse(to_bytes(safetensors_text(
            "{\"__metadata__\":null,\"t\":{\"dtype\":\"" + each.name +
                "\",\"shape\":[2,4],\"data_offsets\":[0," + std::to_string(each.bytes) + "]}}",
            std::string(each.bytes, '\0'))));
        CHECK(tensafe::io::dtype_name(file.tensors()[0].type) == each.name);
        CHECK(file.tensors()[0].size() == 8);
        const bool is_read = each.name[0] == 'F' || each.name == "BF16";
        if (is_read && each.name.find("F6_") == each.name.npos && each.name != "F4" &&
            each.name != "F8_E8M0" && each.name.find("FNUZ") == each.name.npos) {
            CHECK(file.read_matrix("t").values == std::vector<float>(8));
        } else {
            CHECK_THROWS_WITH_AS(file.read_matrix("t"), Contains((each.name + " is not supported").c_str()),
                                 unsupported_error);
        }
    }
    const auto value = [](const char* type, unsigned char bits) {
        return safetensors_file::parse(
                   to_bytes(safetensors_text("{\"t\":{\"dtype\":\"" + std::string(type) +
                                                 "\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                                             std::string(1, static_cast<char>(bits)))))
            .read_doubles("t")[0];
    };
    CHECK(value("F8_E4M3", 0x38) == 1);
    CHECK(value("F8_E4M3", 0xc5) == -3.25);
    CHECK(value("F8_E4M3", 0x7e) == 448);
    CHECK(value("F8_E4M3", 0x01) == 0x1p-9);
    CHECK_THROWS_AS(value("F8_E4M3", 0xff), format_error);
    CHECK(value("F8_E5M2", 0x3c) == 1);
    CHECK(value("F8_E5M2", 0xfb) == -57344);
    CHECK(value("F8_E5M2", 0x01) == 0x1p-16);
    CHECK_THROWS_AS(value("F8_E5M2", 0x7c), format_error);
}

TEST_CASE("reading what is not there or not a matrix says so") {
    const auto file = reread(safetensors_writer{}.add("v", dtype::f32, {1}, std::vector<double>{1.0}));
    CHECK_THROWS_WITH_AS(file.read_doubles("w"), R"("memory": no tensor "w" among its 1)", format_error);
    CHECK_THROWS_WITH_AS(file.read_matrix("v"),
                         R"("memory": tensor "v": got shape [1], expected two dimensions)", format_error);
}

TEST_CASE("values that are not finite are refused when they are read, with their index") {
    const std::string header = R"({"v":{"dtype":"BF16","shape":[1,3],"data_offsets":[0,6]}})";
    const auto nan =
        safetensors_file::parse(to_bytes(safetensors_text(header, std::string("\0\0\0\0\xc0\x7f", 6))));
    CHECK_THROWS_WITH_AS(nan.read_doubles("v"),
                         R"("memory": tensor "v": value 2 is nan, expected a finite double)", format_error);
    const auto infinite =
        safetensors_file::parse(to_bytes(safetensors_text(header, std::string("\0\0\x80\xff\0\0", 6))));
    CHECK_THROWS_WITH_AS(infinite.read_matrix("v"),
                         R"("memory": tensor "v": value 1 is -inf, expected a finite float)", format_error);
    const auto large = reread(safetensors_writer{}.add("v", dtype::f64, {1, 1}, std::vector<double>{1e300}));
    CHECK(large.read_doubles("v") == std::vector<double>{1e300});
    CHECK_THROWS_WITH_AS(large.read_matrix("v"),
                         R"("memory": tensor "v": value 0 is 1e+300, expected a finite float)", format_error);
}

TEST_CASE("the writer refuses what it cannot represent and stays as it was") {
    const std::vector<double> one{1.0};
    const std::vector<double> too_large{0.0, 65520.0};
    const std::vector<double> nan{not_a_number};
    safetensors_writer writer;
    writer.add("w", dtype::f32, {1}, one);
    const auto before = writer.bytes();
    CHECK_THROWS_WITH_AS(
        writer.add("v", dtype::f16, {2}, too_large),
        R"(safetensors_writer: tensor "v": value 1 is 65520, expected one within the range of F16)",
        encoding_error);
    CHECK_THROWS_AS(writer.add("v", dtype::f64, {1}, nan), encoding_error);
    CHECK_THROWS_AS(writer.add("v", dtype::f32, {1}, std::vector<double>{1e39}), encoding_error);
    CHECK_THROWS_AS(writer.add("v", dtype::bf16, {1}, std::vector<double>{-3.4e38}), encoding_error);
    CHECK_THROWS_AS(writer.add("v", dtype::u8, {1}, one), unsupported_error);
    CHECK_THROWS_AS(writer.add("v", dtype::f32, {2, 3}, one), shape_error);
    CHECK_THROWS_AS(writer.add("v", dtype::f32, {std::size_t{1} << 62, 4}, {}), shape_error);
    CHECK_THROWS_AS(writer.add("w", dtype::f32, {1}, one), parameter_error);
    CHECK_THROWS_AS(writer.add("__metadata__", dtype::f32, {1}, one), parameter_error);
    CHECK_THROWS_AS(writer.add("\xff", dtype::f32, {1}, one), parameter_error);
    CHECK(writer.bytes() == before);
}

TEST_CASE("writing replaces a file whole and leaves nothing else behind") {
    const temporary_directory directory;
    const auto path = directory.put("w.safetensors", "the old contents");
    safetensors_writer{}.add("w", dtype::f32, {2}, std::vector<double>{1.0, 2.0}).write(path);
    CHECK(safetensors_file::open(path).read_doubles("w") == std::vector<double>{1.0, 2.0});
    CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("a failed write names the path and leaves nothing behind") {
    const temporary_directory directory;
    const auto taken = directory.path() / "a directory";
    std::filesystem::create_directory(taken);
    directory.put("a directory/inside", "");
    const safetensors_writer writer;
    CHECK_THROWS_AS(writer.write(taken), io_error);
    CHECK_THROWS_WITH_AS(writer.write(directory.path() / "missing" / "w.safetensors"),
                         Contains("cannot create: No such file or directory"), io_error);
    CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("opening something that is not a readable file is an io_error") {
    const temporary_directory directory;
    CHECK_THROWS_WITH_AS(safetensors_file::open(directory.path() / "missing"),
                         Contains("missing\": cannot open: No such file or directory"), io_error);
    CHECK_THROWS_WITH_AS(safetensors_file::open(directory.path()), Contains("is not a regular file"),
                         io_error);
    CHECK_THROWS_AS(safetensors_file::open("/dev/zero"), io_error);
    const std::filesystem::path pipe = directory.path() / "pipe";  // without a writer: must not be waited for
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK_THROWS_WITH_AS(safetensors_file::open(pipe), Contains("is not a regular file"), io_error);
}

TEST_CASE("a copy of a file answers for itself") {
    const auto copy = [] {
        const auto original =
            reread(safetensors_writer{}.add("short", dtype::f32, {1}, std::vector<double>{4.0}));
        return safetensors_file(original);
    }();
    CHECK(copy.read_doubles("short") == std::vector<double>{4.0});
}

TEST_CASE("a file that adopts its bytes holds what one that copies them does") {
    const std::vector<double> first = {1.5, -2, 0.25, 4, 5, 6};
    const std::vector<double> second = {7, 8};
    const auto bytes = safetensors_writer{}
                           .add("first", dtype::f32, {2, 3}, first)
                           .add("second", dtype::f64, {2}, second)
                           .bytes();
    const safetensors_file parsed = safetensors_file::parse(bytes, "name");
    safetensors_file adopted = safetensors_file::adopt(bytes, "name");
    const safetensors_file copy = adopted;
    adopted = safetensors_file::adopt(std::vector<std::byte>(bytes), "another");
    CHECK(adopted.quoted_name() == "\"another\"");
    CHECK(copy.quoted_name() == parsed.quoted_name());
    for (const safetensors_file& file : {adopted, copy}) {
        CHECK(file.read_matrix("first").values == parsed.read_matrix("first").values);
        CHECK(file.read_doubles("first") == first);
        CHECK(file.read_doubles("second") == second);
    }
    auto longer = bytes;
    longer.push_back(std::byte{0});
    CHECK_THROWS_AS(safetensors_file::adopt(longer), format_error);
    CHECK_THROWS_AS(safetensors_file::adopt({bytes.begin(), bytes.end() - 1}), format_error);
    CHECK_THROWS_AS(safetensors_file::adopt({}), format_error);
}

TEST_CASE("files of another program read in full") {
    const std::filesystem::path directory = std::filesystem::path(TENSAFE_TEST_DATA) / "qwen_rank32";
    const auto weights = safetensors_file::open(directory / "adapter_model.safetensors");
    CHECK(weights.tensors().size() == 14);
    CHECK(weights.metadata().at("format") == "pt");
    const auto states = safetensors_file::open(directory / "hidden_states.safetensors");
    CHECK(states.find("self_attn.o_proj")->type == dtype::f32);
    CHECK(states.read_matrix("self_attn.o_proj").columns == 4096);
}
