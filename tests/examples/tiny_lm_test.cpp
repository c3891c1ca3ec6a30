// The tiny language model from text to encrypted generation, in one unit: libtorch's headers take a minute.
// Its CHECK replaces doctest's, so that names here are the long ones.
#include "tiny_lm.hpp"

#include <tensafe/interop/torch_safetensors.hpp>
#include <tensafe/io/peft.hpp>

#include <torch/torch.h>

#include "../../examples/tiny_lm/characters.hpp"
#include "../../examples/tiny_lm/check_sites.hpp"
#include "../../examples/tiny_lm/generation.hpp"
#include "../../examples/tiny_lm/plain_lora.hpp"
#include "../../examples/tiny_lm/transformer.hpp"
#include "../../examples/tiny_lm/two_sides.hpp"
#include "../../studies/tiny_lm/texts.hpp"
#include "../../studies/tiny_lm/trainable_lora.hpp"
#include "../io/file_builder.hpp"

using namespace tests;

namespace {

using namespace studies;

/// An adapter of the small model with large random values.
adapter_deltas large_deltas() {
    const torch::NoGradGuard no_gradients;
    torch::manual_seed(11);
    const auto random = std::make_shared<trainable_lora>(small_shape, 2, 4);
    for (auto& parameter : random->parameters()) {
        parameter.copy_(torch::randn(parameter.sizes()) * 0.3);
    }
    return [random](const auto& sites, const at::Tensor& x) { return random->deltas()(sites, x); };
}

/// Of a logit, by encryption; measured up to about 1e-3.
constexpr double largest_error = 2e-3;

/// Characters before a text goes round in circles to its end, at least twice.
std::size_t before_loop(std::string_view text) {
    std::size_t first = text.size();
    for (std::size_t period = 1; period <= text.size() / 2; ++period) {
        std::size_t i = text.size() - period;
        while (i > 0 && text[i - 1] == text[i - 1 + period]) {
            --i;
        }
        if (text.size() - i >= 2 * period) {
            first = std::min(first, i);
        }
    }
    return first;
}

// The committed model.

DOCTEST_TEST_CASE("the committed files take at most 8 MB together") {
    std::uintmax_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(tiny_lm_data)) {
        bytes += entry.is_regular_file() ? entry.file_size() : 0;
    }
    DOCTEST_CHECK(bytes > 1'000'000);
    DOCTEST_CHECK(bytes <= 8'000'000);
}

DOCTEST_TEST_CASE_FIXTURE(committed, "the committed adapter fits the committed model") {
    DOCTEST_CHECK_NOTHROW(check_sites(model, adapter));
}

// Encryption adds up to about 1e-3 to a logit, so that a prompt whose likeliest character leads by less
// somewhere would make this a matter of luck. Along this one it leads by 0.022 at least, which is also far
// more than the floats of processors differ. The text goes round in circles of 165 characters from
// character 220 on, which other prompts' texts do sooner.
DOCTEST_TEST_CASE_FIXTURE(committed,
                          "greedy text of encrypted LoRA is that of plaintext LoRA for 500 characters") {
    generation_options options;
    options.prompt = "Job hath spoken";
    options.characters = 500;
    adapter_side server(adapter);
    const lora::adapter held = lora::client_part(adapter);
    for (const auto& site : held.sites) {
        DOCTEST_CHECK(site.a.values.empty());
    }
    text_side client(server, held);
    const generated_text plain = generate(model, options, plain_lora(adapter));
    const generated_text encrypted = generate(model, options, client.deltas());

    DOCTEST_CHECK(plain.text == read_text(TENSAFE_EXAMPLE_DATA "/tiny_lm/job_hath_spoken.txt"));
    DOCTEST_CHECK(encrypted.text == plain.text);
    const comparison compared(plain, encrypted);
    DOCTEST_INFO("largest logit difference ", compared.largest_logit_difference, ", smallest margin ",
                 compared.smallest_margin);
    DOCTEST_CHECK(compared.equal == 500);
    DOCTEST_CHECK(compared.largest_logit_difference > 0);  // it was not the same computation
    DOCTEST_CHECK(compared.largest_logit_difference < largest_error);
    DOCTEST_CHECK(compared.smallest_margin >= 10 * largest_error);
    options.characters = 1000;
    DOCTEST_CHECK(before_loop(generate(model, options, plain_lora(adapter)).text) > 200);
    // q, k and v of a layer share a request: four for each layer and character.
    DOCTEST_CHECK(server.layout().groups.size() == 12);
    const std::size_t characters = options.prompt.size() + 500 - 1;
    DOCTEST_CHECK(server.bytes_up() > characters * 12 * 10'000);
}

// Text that nobody chose for its margins, and that does not go round in circles.
DOCTEST_TEST_CASE_FIXTURE(
    committed, "along given verses, logits of encrypted LoRA are within 2e-3 of those of plaintext LoRA") {
    adapter_side server(adapter);
    text_side client(server, lora::client_part(adapter));
    const adapter_deltas plain = plain_lora(adapter);
    const adapter_deltas encrypted = client.deltas();
    const torch::NoGradGuard no_gradients;
    auto plain_memory = model.empty_memory();
    auto encrypted_memory = model.empty_memory();
    auto base_memory = model.empty_memory();
    double error = 0;
    double without = 0;
    std::size_t clear = 0;
    for (const std::int64_t token : tokens_of(verses_unseen.substr(0, 320))) {
        const at::Tensor expected = model.step(token, plain_memory, plain);
        const at::Tensor got = model.step(token, encrypted_memory, encrypted);
        error = std::max(error, largest_difference(got, expected));
        const at::Tensor best = std::get<0>(expected.topk(2));
        if ((best[0] - best[1]).item<double>() > 2 * largest_error) {
            DOCTEST_CHECK(got.argmax().item<std::int64_t>() == expected.argmax().item<std::int64_t>());
            ++clear;
        }
        if (base_memory.position < 20) {  // what the adapter adds is not small
            without = std::max(without, largest_difference(model.step(token, base_memory), expected));
        }
    }
    DOCTEST_INFO("error ", error, ", clear at ", clear, ", base model differs by ", without);
    DOCTEST_CHECK(error > 0);
    DOCTEST_CHECK(error < largest_error);
    DOCTEST_CHECK(clear > 300);
    DOCTEST_CHECK(without > 1);
}

DOCTEST_TEST_CASE_FIXTURE(committed, "with chance, encrypted and plaintext LoRA draw the same characters") {
    generation_options options;
    options.characters = 60;
    options.temperature = 0.7;
    options.seed = 4205;
    const generated_text plain = generate(model, options, plain_lora(adapter));
    // A draw near the end of a character's interval could fall to either side of it. This seed has none.
    std::mt19937_64 generator(options.seed);
    for (std::size_t i = 0; i < options.characters; ++i) {
        const double draw = std::ldexp(static_cast<double>(generator() >> 11), -53);
        const at::Tensor sums = torch::softmax(plain.logits[i].to(at::kDouble) / 0.7, 0).cumsum(0);
        const std::int64_t token = tokens_of(plain.text)[i];
        DOCTEST_CHECK(draw - (token == 0 ? 0 : sums[token - 1].item<double>()) > 1e-2);
        DOCTEST_CHECK(sums[token].item<double>() - draw > 1e-2);
    }
    adapter_side server(adapter);
    text_side client(server, lora::client_part(adapter));
    DOCTEST_CHECK(generate(model, options, client.deltas()).text == plain.text);
    DOCTEST_CHECK(generate(model, options, plain_lora(adapter)).text == plain.text);
    options.seed += 1;
    DOCTEST_CHECK(generate(model, options, plain_lora(adapter)).text != plain.text);
}

DOCTEST_TEST_CASE_FIXTURE(committed, "the committed adapter has all six linears of each layer, of rank 16") {
    DOCTEST_CHECK(adapter.sites.size() == 18);
    for (const auto& site : adapter.sites) {
        DOCTEST_CHECK(site.rank() == 16);
        DOCTEST_CHECK(site.scale == 2);
    }
    std::set<std::string> asked;
    model.forward(torch::zeros({1, 1}, at::kLong), [&](const auto& sites, const at::Tensor& x) {
        asked.insert(sites.begin(), sites.end());
        return plain_lora(adapter)(sites, x);
    });
    std::set<std::string> held;
    for (const auto& site : adapter.sites) {
        held.insert(site.name);
    }
    DOCTEST_CHECK(asked == held);
}

// The model.

DOCTEST_TEST_CASE("logits of a text that grows are those of the whole text, beyond the window as well") {
    torch::manual_seed(1);
    language_model model(small_shape);
    const torch::NoGradGuard no_gradients;
    const at::Tensor tokens = torch::randint(vocabulary, {1, 30}, at::kLong);
    for (const adapter_deltas& deltas : {adapter_deltas(), large_deltas()}) {
        const at::Tensor whole = model.forward(tokens, deltas)[0];
        auto memory = model.empty_memory();
        for (std::int64_t i = 0; i < tokens.size(1); ++i) {
            const at::Tensor grown = model.step(tokens[0][i].item<std::int64_t>(), memory, deltas);
            DOCTEST_CHECK(largest_difference(grown, whole[i]) < 1e-4);
        }
    }
    DOCTEST_CHECK(largest_difference(model.forward(tokens), model.forward(tokens, large_deltas())) > 1e-2);
}

// Characters and texts.

DOCTEST_TEST_CASE("tokens are newline and printable ASCII, and nothing else is one") {
    std::string all = "\n";
    for (char c = ' '; c <= '~'; ++c) {
        all += c;
    }
    const auto tokens = tokens_of(all);
    DOCTEST_REQUIRE(std::ssize(tokens) == vocabulary);
    for (std::int64_t i = 0; i < vocabulary; ++i) {
        DOCTEST_CHECK(tokens[static_cast<std::size_t>(i)] == i);
        DOCTEST_CHECK(character_of(i) == all[static_cast<std::size_t>(i)]);
    }
    for (const char* text : {"a\tb", "a\x7f", "na\xc3\xafve", "a\r\n"}) {
        DOCTEST_CHECK_THROWS_AS(tokens_of(text), tensafe::parameter_error);
    }
}

// Generation.

DOCTEST_TEST_CASE("generation refuses prompts without characters or with unknown ones, and no temperature") {
    language_model model(small_shape);
    generation_options options;
    const auto refuses = [&] {
        DOCTEST_CHECK_THROWS_AS(generate(model, options, {}), tensafe::parameter_error);
    };
    options.prompt = "";
    refuses();
    options.prompt = "\xc3\xa9";
    refuses();
    options.prompt = "a";
    for (const double temperature : {-0.1, std::nan(""), HUGE_VAL}) {
        options.temperature = temperature;
        refuses();
    }
}

DOCTEST_TEST_CASE("characters come one by one, and a comparison tells where texts part") {
    torch::manual_seed(5);
    language_model model(small_shape);
    generation_options options;
    options.characters = 20;
    std::string streamed;
    const generated_text text = generate(model, options, {}, [&](char c) { streamed += c; });
    DOCTEST_CHECK(streamed == text.text);
    DOCTEST_CHECK(text.logits.size() == 20);

    generated_text other = text;
    other.text[7] = text.text[7] == 'x' ? 'y' : 'x';
    other.logits[7] = text.logits[7] + 0.5;
    other.logits[9] = text.logits[9] + 100.0;
    const comparison compared(text, other);
    DOCTEST_CHECK(compared.equal == 7);
    DOCTEST_CHECK(compared.largest_logit_difference == doctest::Approx(0.5));
    DOCTEST_CHECK(comparison(text, text).equal == 20);
    DOCTEST_CHECK(comparison(text, text).largest_logit_difference == 0);
}

DOCTEST_TEST_CASE("draws follow the probabilities at the temperature") {
    at::Tensor logits = torch::full({vocabulary}, -1e4);
    logits[3] = std::log(0.25);
    logits[8] = std::log(0.75);
    namespace d = examples::tiny_lm::detail;
    DOCTEST_CHECK(d::sampled(logits, 1, 0) == 3);
    DOCTEST_CHECK(d::sampled(logits, 1, 0.2499) == 3);
    DOCTEST_CHECK(d::sampled(logits, 1, 0.2501) == 8);
    DOCTEST_CHECK(d::sampled(logits, 1, 0.999999) == 8);
    DOCTEST_CHECK(d::sampled(logits, 0.5, 0.0999) == 3);  // 1 : 9
    DOCTEST_CHECK(d::sampled(logits, 0.5, 0.1001) == 8);
    for (const double draw : {0.0, 0.5, 0.999999}) {
        DOCTEST_CHECK(d::sampled(logits, 1e-310, draw) == 8);
        DOCTEST_CHECK(d::sampled(logits + 10, 1e-310, draw) == 8);
    }
}

DOCTEST_TEST_CASE_FIXTURE(committed, "a site that the adapter does not have is an error on both ways") {
    adapter.sites.erase(adapter.sites.begin() + 2);  // v_proj of layer 0
    adapter_side server(adapter);
    text_side client(server, lora::client_part(adapter));
    generation_options options;
    DOCTEST_CHECK_THROWS_AS(generate(model, options, plain_lora(adapter)), tensafe::parameter_error);
    DOCTEST_CHECK_THROWS_AS(generate(model, options, client.deltas()), tensafe::parameter_error);
}

DOCTEST_TEST_CASE("an adapter is refused unless its sites are the model's linears, of their sizes") {
    const language_model model(small_shape);
    const temporary_directory directory;
    trainable_lora(small_shape, 2, 4).save_adapter(directory.path());
    const lora::adapter fitting = tensafe::io::load_peft(directory.path());
    check_sites(model, fitting);
    lora::adapter changed = fitting;
    changed.sites.pop_back();
    DOCTEST_CHECK_THROWS_AS(check_sites(model, changed), tensafe::parameter_error);
    changed = fitting;
    changed.sites.push_back(fitting.sites[0]);
    DOCTEST_CHECK_THROWS_AS(check_sites(model, changed), tensafe::parameter_error);
    changed.sites.back().name = "model.layers.2.self_attn.q_proj";  // there are layers 0 and 1
    DOCTEST_CHECK_THROWS_AS(check_sites(model, changed), tensafe::parameter_error);
    for (std::size_t i = 0; i < fitting.sites.size(); ++i) {
        changed = fitting;
        changed.sites[i].b = lora::matrix(1, 2);  // torch would add its delta to all entries
        DOCTEST_CHECK_THROWS_AS(check_sites(model, changed), tensafe::shape_error);
        changed = fitting;
        changed.sites[i].a = lora::matrix(2, fitting.sites[i].d_in() + 1);
        DOCTEST_CHECK_THROWS_AS(check_sites(model, changed), tensafe::shape_error);
    }
}

}  // namespace
