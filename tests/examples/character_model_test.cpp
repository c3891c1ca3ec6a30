#include "../../examples/tiny_lm/character_model.hpp"

#include <tensafe/io/peft.hpp>
#include <tensafe/lora/adapter/plain.hpp>

#include "../test.hpp"

using namespace tests;
using namespace examples::tiny_lm;
namespace io = tensafe::io;
namespace lora = tensafe::lora;

namespace {

const std::string data = TENSAFE_EXAMPLE_DATA "/tiny_lm";

std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    REQUIRE(in.good());
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Reads characters at once.
void read(character_model& model, std::string_view text, const lora::adapter* adapter) {
    for (model.begin(tokens_of(text)); !model.sites().empty();) {
        std::vector<std::vector<float>> deltas;
        for (const std::string& site : adapter == nullptr ? std::span<const std::string>() : model.sites()) {
            auto& of_all = deltas.emplace_back();
            for (std::size_t i = 0; i < text.size(); ++i) {
                const auto delta = lora::plain_delta(adapter->site(site), model.input(i));
                of_all.insert(of_all.end(), delta.begin(), delta.end());
            }
        }
        model.resume(std::vector<std::span<const float>>(deltas.begin(), deltas.end()));
    }
}

/// Reads a text, character by character, and adds the likeliest ones.
std::string continued(character_model& model, std::string text, std::size_t characters,
                      const lora::adapter* adapter) {
    for (const char c : text) {
        read(model, {&c, 1}, adapter);
    }
    text.clear();
    while (text.size() < characters) {
        text += character_of(model.likeliest());
        read(model, std::string_view(text).substr(text.size() - 1), adapter);
    }
    return text;
}

}  // namespace

TEST_CASE("the model writes what libtorch's writes, beyond its window too") {
    character_model model(io::safetensors_file::open(data + "/base.safetensors"));
    const lora::adapter adapter = io::load_peft(data + "/adapter");
    const std::string expected = bytes_of(data + "/job_hath_spoken.txt");
    REQUIRE(expected.size() == 500);
    CHECK(continued(model, "Job hath spoken", 500, &adapter) == expected);
    model.clear();
    const std::string base = continued(model, "Job hath spoken", 40, nullptr);
    CHECK(base != expected.substr(0, 40));
    model.clear();
    CHECK(continued(model, "Job hath spoken", 40, &adapter) == expected.substr(0, 40));
}

TEST_CASE("characters read at once leave what they leave one by one, beyond the window too") {
    const auto weights = io::safetensors_file::open(data + "/base.safetensors");
    const lora::adapter adapter = io::load_peft(data + "/adapter");
    const std::string text = bytes_of(data + "/job_hath_spoken.txt").substr(0, 300);
    REQUIRE(text.size() > static_cast<std::size_t>(model_shape().window));
    for (const lora::adapter* const with : {&adapter, static_cast<const lora::adapter*>(nullptr)}) {
        character_model at_once(weights);
        character_model one_by_one(weights);
        static_cast<void>(continued(one_by_one, text, 0, with));
        read(at_once, std::string_view(text).substr(0, 20), with);
        read(at_once, std::string_view(text).substr(20), with);
        for (std::size_t i = 0; i < one_by_one.logits().size(); ++i) {
            CHECK(at_once.logits()[i] == doctest::Approx(one_by_one.logits()[i]).epsilon(1e-4));
        }
        read(at_once, "x", with);
        read(one_by_one, "x", with);
        CHECK(at_once.likeliest() == one_by_one.likeliest());
    }
}

TEST_CASE("characters that were taken back leave nothing, beyond the window too") {
    const auto weights = io::safetensors_file::open(data + "/base.safetensors");
    const std::string text = bytes_of(data + "/job_hath_spoken.txt").substr(0, 300);
    for (const std::size_t begun : {1U, 100U, 299U}) {
        character_model before(weights);
        read(before, std::string_view(text).substr(0, begun), nullptr);
        for (std::size_t kept = 0; kept < 3; ++kept) {
            character_model expected = before;
            character_model model = before;
            read(expected, "yz", nullptr);
            read(model, "yz" + text, nullptr);
            CHECK(model.likeliest(1) == expected.likeliest());
            model.keep(static_cast<std::int64_t>(kept));
            read(expected, "!", nullptr);
            read(model, std::string_view("yz!").substr(kept), nullptr);
            for (std::size_t i = 0; i < model.logits().size(); ++i) {
                CHECK(model.logits()[i] == doctest::Approx(expected.logits()[i]).epsilon(1e-4));
            }
        }
    }
}

TEST_CASE("deltas of zero change no logit") {
    const auto weights = io::safetensors_file::open(data + "/base.safetensors");
    character_model with(weights);
    character_model without(weights);
    const std::vector<float> zeros(model_shape().d_hidden);
    for (const std::int64_t token : tokens_of("Job")) {
        without.begin(token);
        for (with.begin(token); !with.sites().empty(); without.resume()) {
            const bool is_wide = with.sites().front().ends_with("up_proj");
            const auto of_one = std::span(zeros).first(is_wide ? zeros.size() : model_shape().d_model);
            with.resume(std::vector<std::span<const float>>(with.sites().size(), of_one));
        }
        CHECK(without.sites().empty());
        CHECK(std::equal(with.logits().begin(), with.logits().end(), without.logits().begin()));
    }
}

TEST_CASE("a weight that is not there or has another shape is refused by its name") {
    const auto weights = io::safetensors_file::open(data + "/base.safetensors");
    // With another shape of one of them; none: without it.
    const auto load = [&](const io::tensor_info& changed, const std::vector<std::size_t>& shape) {
        io::safetensors_writer file;
        for (const io::tensor_info& each : weights.tensors()) {
            if (&each != &changed || !shape.empty()) {
                file.add(each.name, each.type, &each == &changed ? shape : each.shape,
                         weights.read_doubles(each.name));
            }
        }
        character_model(io::safetensors_file::adopt(file.bytes()));
    };
    CHECK(weights.tensors().size() == 27);
    for (const io::tensor_info& each : weights.tensors()) {
        CHECK(contains(refusal<format_error>([&] { load(each, {}); }), each.name));
        CHECK(contains(refusal<shape_error>([&] { load(each, {2, each.size() / 2}); }), each.name));
    }
}

TEST_CASE("deltas of another length are refused") {
    character_model model(io::safetensors_file::open(data + "/base.safetensors"));
    model.begin(1);
    const std::vector<float> one(256);
    const std::vector<std::span<const float>> two(2, one);
    CHECK(contains(refusal<shape_error>([&] { model.resume(two); }),
                   "expected 256 entries for each of 3 sites"));
}
