// libtorch's CHECK replaces doctest's, so that names here are the long ones.
#include <tensafe/interop/torch_safetensors.hpp>

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "../test.hpp"

using namespace tests;

namespace {

io::safetensors_file file_of(const io::safetensors_writer& writer) {
    return io::safetensors_file::adopt(writer.bytes());
}

/// A file with these entries in its header, and `data_bytes` bytes of ones behind it: NaN as F32 and F16.
io::safetensors_file file_of_header(std::string header, std::size_t data_bytes) {
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::vector<std::byte> bytes(8);
    bytes[0] = static_cast<std::byte>(header.size() & 255);
    bytes[1] = static_cast<std::byte>(header.size() >> 8);
    for (const char c : header) {
        bytes.push_back(static_cast<std::byte>(c));
    }
    bytes.resize(bytes.size() + data_bytes, std::byte{0xff});
    return io::safetensors_file::adopt(std::move(bytes));
}

template <class E>
std::string load_refusal(torch::nn::Linear& module, const io::safetensors_file& file) {
    return refusal<E>([&] { interop::load_parameters(*module, file); });
}

}  // namespace

DOCTEST_TEST_CASE("tensors come back from a file as they were: type, shape and every bit") {
    const std::vector<std::pair<at::ScalarType, io::dtype>> types = {{at::kDouble, io::dtype::f64},
                                                                     {at::kFloat, io::dtype::f32},
                                                                     {at::kHalf, io::dtype::f16},
                                                                     {at::kBFloat16, io::dtype::bf16}};
    for (const auto& [type, stored] : types) {
        const at::Tensor t = torch::randn({2, 3, 4}).to(type).transpose(0, 2);
        io::safetensors_writer writer;
        interop::add_tensor(writer, "some", t, stored);
        interop::add_tensor(writer, "one", torch::scalar_tensor(1.5), stored);
        interop::add_tensor(writer, "none", torch::empty({3, 0}), stored);
        const io::safetensors_file file = file_of(writer);
        DOCTEST_CHECK(file.find("some")->type == stored);
        DOCTEST_CHECK((interop::to_tensor(file, "some").scalar_type() == type));
        DOCTEST_CHECK(torch::equal(interop::to_tensor(file, "some"), t));
        DOCTEST_CHECK(interop::to_tensor(file, "one").dim() == 0);
        DOCTEST_CHECK(interop::to_tensor(file, "one").item<double>() == 1.5);
        DOCTEST_CHECK(interop::to_tensor(file, "none").sizes() == at::IntArrayRef({3, 0}));
    }
}

DOCTEST_TEST_CASE("a tensor is rounded to the type of the file, to nearest, ties to even") {
    io::safetensors_writer writer;
    interop::add_tensor(writer, "w", torch::full({1}, 1 + 3 * 0x1p-11, at::kDouble), io::dtype::f16);
    DOCTEST_CHECK(interop::to_tensor(file_of(writer), "w").item<double>() == 1 + 0x1p-9);
}

DOCTEST_TEST_CASE("what cannot be stored or read is refused") {
    io::safetensors_writer writer;
    DOCTEST_CHECK_THROWS_AS(interop::add_tensor(writer, "w", torch::ones({2}, at::kLong), io::dtype::f32),
                            unsupported_error);
    DOCTEST_CHECK_THROWS_AS(interop::add_tensor(writer, "w", torch::full({2}, 1e5), io::dtype::f16),
                            encoding_error);
    interop::add_tensor(writer, "w", torch::ones({2}), io::dtype::f32);  // the name is still free
    DOCTEST_CHECK(contains(refusal<format_error>([&] { return interop::to_tensor(file_of(writer), "v"); }),
                           "\"v\": is none of its 1"));
}

DOCTEST_TEST_CASE("a tensor without values but with a dimension that libtorch cannot have is refused") {
    // {"w":{"dtype":"F32","shape":[0,2^63],"data_offsets":[0,0]}} with its length in front
    const std::string header =
        R"({"w":{"dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0]}})";
    const io::safetensors_file file = file_of_header(header, 0);
    DOCTEST_CHECK_THROWS_AS(interop::to_tensor(file, "w"), shape_error);
}

DOCTEST_TEST_CASE("a type that is listed only is refused by name") {
    const std::string header = R"({"w":{"dtype":"I64","shape":[0],"data_offsets":[0,0]}})";
    const io::safetensors_file file = file_of_header(header, 0);
    DOCTEST_CHECK(contains(refusal<unsupported_error>([&] { return interop::to_tensor(file, "w"); }), "I64"));
}

DOCTEST_TEST_CASE(
    "a module is loaded as it was saved, halves into floats, and keeps its requirement of gradients") {
    const torch::nn::Linear from(5, 3);
    torch::nn::Linear to(5, 3);
    io::safetensors_writer writer;
    interop::add_parameters(writer, *from, io::dtype::f32);
    interop::load_parameters(*to, file_of(writer));
    DOCTEST_CHECK(torch::equal(to->weight, from->weight));
    DOCTEST_CHECK(torch::equal(to->bias, from->bias));
    DOCTEST_CHECK(to->weight.requires_grad());
    io::safetensors_writer halves;
    interop::add_parameters(halves, *from, io::dtype::f16);
    interop::load_parameters(*to, file_of(halves));
    DOCTEST_CHECK(torch::equal(to->weight, from->weight.to(at::kHalf).to(at::kFloat)));
}

DOCTEST_TEST_CASE("a file that is not the module's leaves the module as it was") {
    torch::nn::Linear module(5, 3);
    const at::Tensor weight = module->weight.detach().clone();
    const at::Tensor bias = module->bias.detach().clone();
    const at::Tensor fits = torch::ones({5}).expand({3, 5});
    const auto file = [](const std::vector<std::pair<const char*, at::Tensor>>& tensors) {
        io::safetensors_writer writer;
        for (const auto& [name, t] : tensors) {
            interop::add_tensor(writer, name, t, io::dtype::f32);
        }
        return file_of(writer);
    };
    const at::Tensor three = torch::ones({3});
    DOCTEST_CHECK(contains(load_refusal<format_error>(module, file({{"weight", fits}})), "\"bias\""));
    DOCTEST_CHECK(
        contains(load_refusal<format_error>(module, file({{"weight", fits}, {"bias", torch::ones({4})}})),
                 "got shape [4], expected [3]"));
    DOCTEST_CHECK(contains(
        load_refusal<format_error>(module, file({{"weight", fits}, {"bias", three}, {"more", three}})),
        "\"more\" is no parameter"));
    DOCTEST_CHECK(torch::equal(module->weight, weight));
    DOCTEST_CHECK(torch::equal(module->bias, bias));
    module->to(at::kHalf);
    DOCTEST_CHECK(contains(load_refusal<unsupported_error>(module, file({{"weight", fits}, {"bias", three}})),
                           "module.to(torch::kFloat)"));
}

DOCTEST_TEST_CASE("names, shapes and types are compared before a value is decoded") {
    torch::nn::Linear module(torch::nn::LinearOptions(5, 3).bias(false));  // 15 entries
    // All values are NaN: whoever decodes one says so.
    DOCTEST_CHECK(contains(
        load_refusal<format_error>(
            module, file_of_header(R"({"weight":{"dtype":"F32","shape":[5,3],"data_offsets":[0,60]}})", 60)),
        "got shape [5, 3], expected [3, 5]"));
    DOCTEST_CHECK(contains(
        load_refusal<format_error>(
            module, file_of_header(R"({"weight":{"dtype":"F32","shape":[3,5],"data_offsets":[0,60]},)"
                                   R"("more":{"dtype":"F32","shape":[1],"data_offsets":[60,64]}})",
                                   64)),
        "\"more\" is no parameter"));
    DOCTEST_CHECK(contains(
        load_refusal<unsupported_error>(
            module,
            file_of_header(R"({"weight":{"dtype":"F64","shape":[3,5],"data_offsets":[0,120]}})", 120)),
        "got values of Double"));
    DOCTEST_CHECK(contains(
        load_refusal<format_error>(
            module, file_of_header(R"({"weight":{"dtype":"F32","shape":[3,5],"data_offsets":[0,60]}})", 60)),
        "value 0"));
}

DOCTEST_TEST_CASE("a module with a tensor that cannot be written is refused, and is as it was") {
    struct with_buffer : torch::nn::Module {
        explicit with_buffer(at::Tensor buffer) {
            first = register_parameter("first", torch::zeros({2}));
            register_buffer("second", std::move(buffer));
        }
        at::Tensor first;
    };
    io::safetensors_writer writer;
    interop::add_tensor(writer, "first", torch::ones({2}), io::dtype::f32);
    interop::add_tensor(writer, "second", torch::ones({3, 2}), io::dtype::f32);
    const io::safetensors_file file = file_of(writer);
    at::Tensor of_inference;
    {
        const c10::InferenceMode inference;
        of_inference = torch::zeros({3, 2});
    }
    for (const at::Tensor& buffer : {torch::zeros({2}).expand({3, 2}), of_inference}) {
        with_buffer module(buffer);
        DOCTEST_CHECK(
            contains(refusal<unsupported_error>([&] { interop::load_parameters(module, file); }), "clone()"));
        DOCTEST_CHECK(torch::equal(module.first, torch::zeros({2})));
    }
    with_buffer apart(torch::zeros({2, 6}).t().slice(0, 0, 6, 2));  // strides alone are no reason
    interop::load_parameters(apart, file);
    DOCTEST_CHECK(torch::equal(apart.named_buffers()["second"], torch::ones({3, 2})));
    const c10::InferenceMode inference;
    with_buffer there(of_inference);
    interop::load_parameters(there, file);
    DOCTEST_CHECK(torch::equal(of_inference, torch::ones({3, 2})));
}
