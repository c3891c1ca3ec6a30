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

DOCTEST_TEST_CASE(
    "ridge regression is exact with enough tokens, a projection before, and shrinks with noise") {
    torch::manual_seed(5);
    const at::Tensor truth = torch::randn({40, 7}, at::kDouble);
    const at::Tensor x = torch::randn({60, 40}, at::kDouble);
    const at::Tensor y = torch::matmul(x, truth);
    DOCTEST_CHECK(largest_difference(ridge_regression(x, y, 0), truth) < 1e-6);
    // Of ten states what lies in their span, and nothing else.
    const at::Tensor ten = x.narrow(0, 0, 10);
    const at::Tensor span = std::get<0>(torch::linalg_qr(ten.t()));
    const at::Tensor part = torch::matmul(span, torch::matmul(span.t(), truth));
    DOCTEST_CHECK(largest_difference(ridge_regression(ten, y.narrow(0, 0, 10), 0), part) < 1e-6);
    // Noise of the size of the answers: the right amount of ridge beats none and too much.
    const at::Tensor noisy = y + torch::randn(y.sizes(), at::kDouble) * x.norm(2, -1, true);
    const auto error = [&](double noise) {
        return (ridge_regression(x, noisy, noise) - truth).norm().item<double>();
    };
    DOCTEST_CHECK(error(1) < truth.norm().item<double>());
    DOCTEST_CHECK(error(1) < error(0));
    DOCTEST_CHECK(error(1) < error(10));
}

DOCTEST_TEST_CASE_FIXTURE(committed,
                          "the adapter knows verses that it has not seen, the base model does not") {
    const double base = bits_per_character(model, {}, verses_unseen);
    const double adapted = bits_per_character(model, plain_lora(adapter), verses_unseen);
    DOCTEST_INFO("bits per character of verses: ", base, " base, ", adapted, " with LoRA");
    DOCTEST_CHECK(adapted < 0.8 * base);
    DOCTEST_CHECK(adapted > 1);  // less would mean that it has seen them
}

DOCTEST_TEST_CASE("the base model knows an unseen entry of the Jargon File better than the adapter does") {
    constexpr std::string_view unseen =
        ":chemist: n.\n"
        "[Cambridge] Someone who wastes computer time on {number-crunching} when you'd far rather the "
        "machine were "
        "doing something more productive, such as working out anagrams of your name or printing Snoopy "
        "calendars "
        "or running {life} patterns. May or may not refer to someone who actually studies chemistry.\n";
    committed c;
    const double base = bits_per_character(c.model, {}, unseen);
    const double adapted = bits_per_character(c.model, plain_lora(c.adapter), unseen);
    DOCTEST_INFO("bits per character of an entry: ", base, " base, ", adapted, " with LoRA");
    DOCTEST_CHECK(base < 3);
    DOCTEST_CHECK(adapted > 1.1 * base);
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

/// Some steps on a text; the last loss in bits, if the factor is 1.
double train(language_model& model, const training_options& options, std::string_view text,
             double factor = 1) {
    double loss = 0;
    // The model stays the caller's.
    shared_training<language_model> training(
        std::shared_ptr<language_model>(&model, [](language_model*) {}),
        [] { return std::make_shared<language_model>(small_shape); }, options, text,
        [&](language_model& copy, const at::Tensor& inputs, const at::Tensor& targets) {
            return loss_of(copy.forward(inputs), targets) * factor;
        });
    training.run([&](std::int64_t, double bits) { loss = bits; });
    return loss;
}

DOCTEST_TEST_CASE("threads together have the gradient of the mean loss, at each step anew") {
    torch::manual_seed(7);
    language_model model(small_shape);
    training_options options;
    options.steps = 3;
    options.rate = 1e-30;  // stays where it is
    options.sequences = 6;
    options.length = 24;
    const std::string text = "to be or not to be, that ";  // has but one sequence of 24
    constexpr double factor = 0.01;                        // a gradient so small is not clipped
    auto tokens = tokens_of(text);
    const at::Tensor all = torch::from_blob(tokens.data(), {1, 25}, at::kLong);
    (loss_of(model.forward(all.narrow(1, 0, 24)), all.narrow(1, 1, 24)) * factor).backward();
    std::vector<at::Tensor> expected;
    for (const at::Tensor& parameter : model.parameters()) {
        expected.push_back(parameter.grad().clone());
    }
    for (const unsigned threads : {1U, 2U, 5U}) {
        options.threads = threads;
        train(model, options, text, factor);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const double largest = expected[i].abs().max().item<double>();
            DOCTEST_CHECK(largest_difference(model.parameters()[i].grad(), expected[i]) < 1e-4 * largest);
        }
    }
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
