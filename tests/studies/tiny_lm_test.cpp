// What is measured of the tiny language model, and its training; libtorch's CHECK replaces doctest's, so that
// names here are the long ones.
#include "../examples/tiny_lm.hpp"

#include <tensafe/io/peft.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <torch/torch.h>

#include "../../examples/tiny_lm/characters.hpp"
#include "../../examples/tiny_lm/plain_lora.hpp"
#include "../../studies/tiny_lm/bits_per_character.hpp"
#include "../../studies/tiny_lm/texts.hpp"
#include "../../studies/tiny_lm/thief.hpp"
#include "../../studies/tiny_lm/trainable_lora.hpp"
#include "../../studies/tiny_lm/training.hpp"
#include "../io/file_builder.hpp"

using namespace tests;

namespace {

using namespace studies;

// 64 characters are a fourth of d, 25 % of the squared norm of A.
DOCTEST_TEST_CASE_FIXTURE(committed,
                          "a thief who watched 64 characters has more than half of the adapter's gain, and "
                          "one who watched none has nothing") {
    const torch::NoGradGuard no_gradients;
    thief watching;
    const std::string_view watched = verses_unseen.substr(0, 64);
    auto tokens = tokens_of(watched);
    const at::Tensor logits =
        model.forward(torch::from_blob(tokens.data(), {1, std::ssize(tokens)}, at::kLong),
                      watching.watching(plain_lora(adapter)));
    DOCTEST_CHECK(largest_difference(
                      logits.squeeze(0)[0],
                      model.forward(torch::from_blob(tokens.data(), {1, 1}, at::kLong), plain_lora(adapter))
                          .squeeze(0)[0]) < 1e-3);
    const std::string_view fresh = verses_unseen.substr(64);
    const double base = bits_per_character(model, {}, fresh);
    const double whole = bits_per_character(model, plain_lora(adapter), fresh);
    const auto share = [&](std::int64_t count) {
        return (base - bits_per_character(model, watching.stolen(count, 0), fresh)) / (base - whole);
    };
    DOCTEST_CHECK(share(64) > 0.5);
    DOCTEST_CHECK(share(64) < 0.9);
    DOCTEST_CHECK(share(8) < share(64));
    DOCTEST_CHECK(std::fabs(share(0)) < 1e-9);
}

DOCTEST_TEST_CASE_FIXTURE(committed,
                          "the adapter knows verses that it has not seen, the base model does not") {
    const double base = bits_per_character(model, {}, verses_unseen);
    const double adapted = bits_per_character(model, plain_lora(adapter), verses_unseen);
    DOCTEST_INFO("bits per character of verses: ", base, " base, ", adapted, " with LoRA");
    DOCTEST_CHECK(adapted < 0.8 * base);
    DOCTEST_CHECK(adapted > 1);  // less would mean that it has seen them
}

DOCTEST_TEST_CASE("a page of the Jargon File becomes a paragraph a line, in ASCII, without tables") {
    const std::string raw =
        "   Glossary\n\n contents\n\nGlossary\n\n   :bar: /bar/, n.\n\n   1. [very common] The second\n"
        "   \u201cvariable\u201d\u00a0\u2014 after {foo}.\n\n"
        "   \u250c\u2500\u2500\u2510\n   \u2502no\u2502\n\n   Caf\u00e9\u2603.\n";
    DOCTEST_CHECK(jargon_text(raw) ==
                  ":bar: /bar/, n.\n1. [very common] The second \"variable\" -- after {foo}.\nCafe.\n");
    DOCTEST_CHECK_THROWS_AS(jargon_text("no lexicon"), tensafe::format_error);
}

DOCTEST_TEST_CASE("a page of the Bible becomes a verse a line, without titles and numbers") {
    const std::string raw =
        "\nGenesis 1\n\n  1 In the beginning.\n  2 And 12 men.\n\n1 Kings 2\n\n 10 So David slept.\n   no "
        "number\n";
    DOCTEST_CHECK(verses(raw) == "In the beginning.\nAnd 12 men.\nSo David slept.\n");
    DOCTEST_CHECK_THROWS_AS(verses("Genesis 1\n"), tensafe::format_error);
}

DOCTEST_TEST_CASE("a twentieth of a text is held out, and nothing is in both parts") {
    std::string text;
    for (int i = 0; text.size() < 8192 * 45; ++i) {
        text += std::to_string(i) + " ";
    }
    text.resize(8192 * 45);
    const parts_of_text parts(text);
    DOCTEST_CHECK(parts.held_out == text.substr(8192 * 10, 8192) + text.substr(8192 * 30, 8192));
    DOCTEST_CHECK(parts.learned.size() == 8192 * 43);
    DOCTEST_CHECK(parts.learned.find(text.substr(8192 * 10 + 100, 50)) == std::string::npos);
}

DOCTEST_TEST_CASE("a model that knows nothing takes log2 of 96 bits for a character") {
    language_model model(small_shape);
    const torch::NoGradGuard no_gradients;
    model.named_parameters()["lm_head.weight"].zero_();
    DOCTEST_CHECK(bits_per_character(model, {}, "any text", 3) == doctest::Approx(std::log2(96)));
}

DOCTEST_TEST_CASE("an adapter in training is zero at first, and what it saves gives what it gave") {
    torch::manual_seed(6);
    const torch::NoGradGuard no_gradients;
    trainable_lora trained(small_shape, 4, 2.5);
    const at::Tensor x = torch::randn({2, 3, small_shape.d_model});
    const std::vector<std::string> sites{"model.layers.1.self_attn.q_proj",
                                         "model.layers.1.self_attn.v_proj"};
    for (const at::Tensor& delta : trained.deltas()(sites, x)) {
        DOCTEST_CHECK(delta.abs().max().item<double>() == 0);
    }
    for (auto& parameter : trained.parameters()) {
        parameter.copy_(torch::randn(parameter.sizes()).to(at::kHalf));
    }
    const temporary_directory directory;
    trained.save_adapter(directory.path());
    const lora::adapter loaded = tensafe::io::load_peft(directory.path());
    DOCTEST_CHECK(loaded.sites.size() == 12);
    DOCTEST_CHECK(loaded.sites[0].scale == 2.5 / 4);
    const auto before = trained.deltas()(sites, x);
    const auto after = plain_lora(loaded)(sites, x);
    for (std::size_t i = 0; i < sites.size(); ++i) {
        DOCTEST_CHECK(before[i].abs().max().item<double>() > 1);
        DOCTEST_CHECK(largest_difference(before[i], after[i]) < 1e-4);
    }
}

/// Some steps on a text; the last loss in bits.
double train(language_model& model, const training_options& options, std::string_view text) {
    double loss = 0;
    // The model stays the caller's.
    shared_training<language_model> training(
        std::shared_ptr<language_model>(&model, [](language_model*) {}),
        [] { return std::make_shared<language_model>(small_shape); }, options, text,
        [](language_model& copy, const at::Tensor& inputs, const at::Tensor& targets) {
            return loss_of(copy.forward(inputs), targets);
        });
    training.run([&](std::int64_t, double bits) { loss = bits; });
    return loss;
}

DOCTEST_TEST_CASE("training lowers the loss") {
    torch::manual_seed(8);
    language_model model(small_shape);
    training_options options;
    options.steps = 150;
    options.rate = 1e-2;
    options.sequences = 4;
    options.length = 24;
    options.report_every = 10;
    std::string text;
    while (text.size() < 500) {
        text += "to be or not to be, ";
    }
    const double before = bits_per_character(model, {}, text);
    DOCTEST_CHECK(train(model, options, text) < 1);
    DOCTEST_CHECK(bits_per_character(model, {}, text) < before / 4);
}

DOCTEST_TEST_CASE("texts that are too short to learn or to measure are refused") {
    language_model model(small_shape);
    DOCTEST_CHECK_THROWS_AS(bits_per_character(model, {}, "a"), tensafe::parameter_error);
    training_options options;
    DOCTEST_CHECK_THROWS_AS(
        shared_training<language_model>(
            std::make_shared<language_model>(small_shape), {}, options, std::string(384, 'a'),
            [](language_model&, const at::Tensor& x, const at::Tensor&) { return x; }),
        tensafe::parameter_error);
}

}  // namespace
