// Packages that are what their signer made, and everything that somebody else could make of them.

#include <tensafe/io/safetensors.hpp>
#include <tensafe/keystore/signed_adapter.hpp>

#include "../io/file_builder.hpp"

using namespace tests;
using namespace tensafe::keystore;

namespace {

const std::string config_file = "adapter_config.json";
const std::string weights_file = "adapter_model.safetensors";
const std::string signature_file = "adapter_signature.json";
const std::string config_text = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4})";

signing_key key_number(int i) {
    return signing_key::from_secret(from_hex<32>(std::string(62, '0') + "0" + std::to_string(i)));
}

/// A small adapter, unsigned; `first` is the first value of A.
void put_adapter(const temporary_directory& folder, double first) {
    const std::vector<double> a = {first, 2, 3, 4, 5, 6};
    const std::vector<double> b = {1, 0, 0, 1};
    folder.put(config_file, config_text);
    io::safetensors_writer{}
        .add("base_model.model.q.lora_A.weight", io::dtype::f32, {2, 3}, a)
        .add("base_model.model.q.lora_B.weight", io::dtype::f32, {2, 2}, b)
        .write(folder.path() / weights_file);
}

float first_value(const tensafe::lora::adapter& adapter) {
    return adapter.site("q").a.values[0];
}

signature_policy trusting(int i) {
    return {.trusted = {key_number(i).verifying()}};
}

/// A folder with an adapter whose first value of A is 1.
struct adapter_folder {
    adapter_folder() { put_adapter(folder, 1); }
    loaded_adapter load(const signature_policy& policy) const { return load_adapter(folder.path(), policy); }

    const temporary_directory folder;
};

/// The same, signed by key 1 as revision 7 of "legal".
struct signed_adapter : adapter_folder {
    signed_adapter() { sign_adapter(folder.path(), key_number(1), "legal", 7); }
};

}  // namespace

TEST_CASE_FIXTURE(signed_adapter, "a package that a trusted key signed is loaded, with who answers for it") {
    const loaded_adapter loaded = load(trusting(1));
    CHECK(first_value(loaded.adapter) == 1);
    CHECK(loaded.adapter.site("q").scale == 2);
    CHECK(loaded.provenance.signer == key_number(1).verifying());
    CHECK(loaded.provenance.trusted);
    CHECK(loaded.provenance.name == "legal");
    CHECK(loaded.provenance.revision == 7);
    CHECK(loaded.provenance.content ==
          package_digest::of(to_bytes(config_text), to_bytes(text_of(folder.path() / weights_file))));
    // One of several trusted keys is enough.
    CHECK(load_adapter(folder.path(), {.trusted = {key_number(2).verifying(), key_number(1).verifying()}})
              .provenance.trusted);
}

TEST_CASE_FIXTURE(adapter_folder, "a policy that trusts nobody loads nothing and says what to do") {
    CHECK_THROWS_WITH_AS(load({}), Contains("is not signed"), signature_error);
    CHECK_THROWS_WITH_AS(load({}), Contains("sign_adapter"), signature_error);
    CHECK_THROWS_WITH_AS(load({}), Contains("allow_unsigned"), signature_error);
    sign_adapter(folder.path(), key_number(1));
    const std::string message = refusal<signature_error>([&] { load({}); });
    CHECK(contains(message, "the policy trusts no key"));
    CHECK(contains(message, key_number(1).verifying().hex()));
}

TEST_CASE_FIXTURE(adapter_folder, "a package that another key signed is refused by the key's name") {
    sign_adapter(folder.path(), key_number(1));
    const std::string message = refusal<signature_error>([&] { load(trusting(2)); });
    CHECK(contains(message, key_number(1).verifying().hex()));
    CHECK(contains(message, "not among the 1 that the policy trusts"));
    // Naming a trusted key in the file is not signing with it.
    const std::string text = text_of(folder.path() / signature_file);
    std::string forged = text;
    forged.replace(text.find(key_number(1).verifying().hex()), 64, key_number(2).verifying().hex());
    folder.put(signature_file, forged);
    CHECK_THROWS_WITH_AS(load(trusting(2)), Contains("does not fit"), signature_error);
}

TEST_CASE_FIXTURE(signed_adapter, "no bit of a signed package can change") {
    random_numbers generator(1);
    for (const std::string& name : {config_file, weights_file}) {
        const std::string good = text_of(folder.path() / name);
        for (int round = 0; round < 30; ++round) {
            std::string bad = good;
            const std::size_t at = generator() % bad.size();
            bad[at] = static_cast<char>(bad[at] ^ (1 << generator() % 8));
            folder.put(name, bad);
            CHECK_THROWS_WITH_AS(load(trusting(1)), Contains("which of them cannot be told"),
                                 signature_error);
        }
        for (const std::string& bad :
             {good + " ", good.substr(0, good.size() - 1), good.substr(1), std::string()}) {
            folder.put(name, bad);
            CHECK_THROWS_WITH_AS(load(trusting(1)), Contains("does not fit"), signature_error);
        }
        folder.put(name, good);
    }
    CHECK(load(trusting(1)).provenance.trusted);

    // The signature's own file.
    const std::string good = text_of(folder.path() / signature_file);
    for (std::size_t at = 0; at < good.size(); ++at) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 1);
        folder.put(signature_file, bad);
        CAPTURE(bad);
        try {
            static_cast<void>(load(trusting(1)));
            FAIL_CHECK("was loaded");
        } catch (const tensafe::error& error) {
            CHECK(std::string(error.what()).size() < 1000);
        }
    }
}

TEST_CASE("the signature of one package does not carry another") {
    const temporary_directory one;
    const temporary_directory two;
    put_adapter(one, 1);
    put_adapter(two, 1.5);
    sign_adapter(one.path(), key_number(1), "legal", 7);
    sign_adapter(two.path(), key_number(1), "legal", 8);
    const std::string of_one = text_of(one.path() / signature_file);
    two.put(signature_file, of_one);
    CHECK_THROWS_WITH_AS(load_adapter(two.path(), trusting(1)), Contains("does not fit"), signature_error);
    // Its weights alone, and its weights and signature with a configuration that was not signed with them.
    std::filesystem::copy_file(one.path() / weights_file, two.path() / weights_file,
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(first_value(load_adapter(two.path(), trusting(1)).adapter) == 1);
    two.put(config_file, R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8})");
    CHECK_THROWS_WITH_AS(load_adapter(two.path(), trusting(1)), Contains("does not fit"), signature_error);
    // The two files of a package in each other's place.
    const std::string config = text_of(one.path() / config_file);
    one.put(config_file, text_of(one.path() / weights_file));
    one.put(weights_file, config);
    CHECK_THROWS_WITH_AS(load_adapter(one.path(), trusting(1)), Contains("does not fit"), signature_error);
}

TEST_CASE_FIXTURE(adapter_folder, "what the files become after they were read changes nothing") {
    keystore::detail::package_bytes bytes(folder.path(), 1'000'000);
    const package_digest before = bytes.digest();
    put_adapter(folder, 1.5);
    folder.put(config_file, "{}");
    CHECK(bytes.digest() == before);
    const tensafe::lora::adapter adapter = std::move(bytes).parse();
    CHECK(first_value(adapter) == 1);
    CHECK(adapter.site("q").scale == 2);
}

TEST_CASE_FIXTURE(signed_adapter, "a package without a folder is judged as one in a folder") {
    std::map<std::string, std::string> files;
    for (const std::string& name : {config_file, weights_file, signature_file}) {
        files[name] = text_of(folder.path() / name);
    }
    const auto load_files = [&](const signature_policy& policy) {
        const auto read = [&](const std::string& name, std::size_t largest) {
            std::optional<std::vector<std::byte>> bytes;
            if (const auto found = files.find(name); found != files.end()) {
                CHECK(found->second.size() <= largest);
                bytes = to_bytes(found->second);
            }
            return bytes;
        };
        return load_adapter("there", read, policy);
    };
    const loaded_adapter loaded = load_files(trusting(1));
    CHECK(first_value(loaded.adapter) == 1);
    CHECK(loaded.provenance.trusted);
    CHECK(loaded.provenance.revision == 7);
    CHECK_THROWS_WITH_AS(load_files(trusting(2)), Contains("\"there\": is signed by the key"),
                         signature_error);
    files[weights_file].back() ^= 1;
    CHECK_THROWS_WITH_AS(load_files(trusting(1)), Contains("does not fit"), signature_error);
    files.erase(weights_file);
    CHECK_THROWS_WITH_AS(load_files(trusting(1)),
                         Contains("\"there/adapter_model.safetensors\": is not there"), tensafe::io_error);
    files.erase(signature_file);
    CHECK_THROWS_WITH_AS(load_files(trusting(1)), Contains("\"there\": is not signed"), signature_error);
}

TEST_CASE_FIXTURE(adapter_folder, "unsigned packages are loaded when that is spelled out, and only then") {
    const signature_policy anything = {.allow_unsigned = true};
    const loaded_adapter loaded = load(anything);
    CHECK(first_value(loaded.adapter) == 1);
    CHECK(loaded.provenance.signer == std::nullopt);
    CHECK_FALSE(loaded.provenance.trusted);
    CHECK(loaded.provenance.content.config == sha256::of(to_bytes(config_text)));
    CHECK_THROWS_WITH_AS(load(trusting(1)), Contains("is not signed"), signature_error);

    // What the policy asks for cannot be known without a signature.
    CHECK_THROWS_WITH_AS(load({.allow_unsigned = true, .name = "legal"}),
                         Contains("neither the name nor the revision"), signature_error);
    CHECK_THROWS_WITH_AS(load({.allow_unsigned = true, .oldest_revision = 1}),
                         Contains("neither the name nor the revision"), signature_error);
}

TEST_CASE_FIXTURE(signed_adapter,
                  "a signature that is there and wrong is an error also where none is needed") {
    const signature_policy anything = {.allow_unsigned = true};
    const adapter_provenance signed_by_somebody = load(anything).provenance;
    CHECK(signed_by_somebody.signer == key_number(1).verifying());
    CHECK_FALSE(signed_by_somebody.trusted);
    CHECK(signed_by_somebody.revision == 7);
    const signature_policy both = {.trusted = {key_number(2).verifying()}, .allow_unsigned = true};
    CHECK_THROWS_WITH_AS(load(both), Contains("not among"), signature_error);

    put_adapter(folder, 1.5);
    CHECK_THROWS_WITH_AS(load(anything), Contains("does not fit"), signature_error);
    folder.put(signature_file, "{}");
    CHECK_THROWS_WITH_AS(load(anything), Contains("missing key"), format_error);
    folder.put(signature_file, "");
    CHECK_THROWS_WITH_AS(load(anything), Contains("not valid JSON"), format_error);
    std::filesystem::remove(folder.path() / signature_file);
    std::filesystem::create_symlink(folder.path() / "nowhere", folder.path() / signature_file);
    CHECK_THROWS_WITH_AS(load(anything), Contains("cannot open"), io_error);
    std::filesystem::remove(folder.path() / signature_file);
    std::filesystem::create_directory(folder.path() / signature_file);
    CHECK_THROWS_WITH_AS(load(anything), Contains("not a regular file"), io_error);
}

TEST_CASE_FIXTURE(signed_adapter, "an old revision and another name are refused") {
    signature_policy policy = trusting(1);
    policy.oldest_revision = 7;
    policy.name = "legal";
    CHECK(load(policy).provenance.revision == 7);
    policy.oldest_revision = 8;
    CHECK_THROWS_WITH_AS(load(policy), Contains("is revision 7, expected at least 8"), signature_error);
    policy.oldest_revision = 0;
    policy.name = "medical";
    CHECK_THROWS_WITH_AS(load(policy), Contains("is signed under the name \"legal\", expected \"medical\""),
                         signature_error);
    // A signature that does not fit is told as such: nothing in it is believed.
    put_adapter(folder, 1.5);
    CHECK_THROWS_WITH_AS(load(policy), Contains("does not fit"), signature_error);
}

TEST_CASE("files that are missing or too long are refused before they are read") {
    const temporary_directory folder;
    const std::filesystem::path missing = folder.path() / "missing";
    CHECK_THROWS_WITH_AS(load_adapter(missing, {.allow_unsigned = true}), Contains("is not a directory"),
                         io_error);
    put_adapter(folder, 1);
    sign_adapter(folder.path(), key_number(1));
    signature_policy policy = trusting(1);
    policy.largest_weights = std::filesystem::file_size(folder.path() / weights_file);
    CHECK(load_adapter(folder.path(), policy).provenance.trusted);
    --policy.largest_weights;
    CHECK_THROWS_WITH_AS(load_adapter(folder.path(), policy), Contains("expected at most"), format_error);
    folder.put(config_file, std::string(1'000'001, ' '));
    CHECK_THROWS_WITH_AS(load_adapter(folder.path(), trusting(1)), Contains("expected at most 1000000"),
                         format_error);
    std::filesystem::remove(folder.path() / config_file);
    CHECK_THROWS_WITH_AS(load_adapter(folder.path(), trusting(1)), Contains(config_file.c_str()), io_error);
    put_adapter(folder, 1);
    const std::string good = text_of(folder.path() / signature_file);
    folder.put(signature_file, good + std::string(10'001 - good.size(), ' '));
    CHECK_THROWS_WITH_AS(load_adapter(folder.path(), trusting(1)), Contains("expected at most 10000"),
                         format_error);
    folder.put(signature_file, good + std::string(10'000 - good.size(), ' '));
    CHECK(load_adapter(folder.path(), trusting(1)).provenance.trusted);
    std::filesystem::remove(folder.path() / weights_file);
    CHECK_THROWS_WITH_AS(load_adapter(folder.path(), trusting(1)), Contains(weights_file.c_str()), io_error);
}

TEST_CASE("links count by what they lead to") {
    const temporary_directory folder;
    const temporary_directory elsewhere;
    put_adapter(elsewhere, 1);
    sign_adapter(elsewhere.path(), key_number(1));
    for (const std::string& name : {config_file, weights_file, signature_file}) {
        std::filesystem::create_symlink(elsewhere.path() / name, folder.path() / name);
    }
    CHECK(load_adapter(folder.path(), trusting(1)).provenance.trusted);
    put_adapter(elsewhere, 1.5);
    CHECK_THROWS_WITH_AS(load_adapter(folder.path(), trusting(1)), Contains("does not fit"), signature_error);
    // Signing replaces a link and leaves alone what it led to.
    const std::string old = text_of(elsewhere.path() / signature_file);
    sign_adapter(folder.path(), key_number(1));
    CHECK(load_adapter(folder.path(), trusting(1)).provenance.trusted);
    CHECK(text_of(elsewhere.path() / signature_file) == old);
}

TEST_CASE("only what can be loaded is signed, and a failure leaves the old signature") {
    const temporary_directory folder;
    CHECK_THROWS_AS(sign_adapter(folder.path(), key_number(1)), io_error);
    put_adapter(folder, 1);
    sign_adapter(folder.path(), key_number(1), "legal", 7);
    CHECK_THROWS_AS(sign_adapter(folder.path(), key_number(1), "le\ngal"), parameter_error);
    CHECK(load_adapter(folder.path(), trusting(1)).provenance.revision == 7);
    const std::string old = text_of(folder.path() / signature_file);
    folder.put(weights_file, "no weights");
    CHECK_THROWS_AS(sign_adapter(folder.path(), key_number(1)), format_error);
    put_adapter(folder, 1);
    folder.put(config_file, R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "use_dora": true})");
    CHECK_THROWS_AS(sign_adapter(folder.path(), key_number(1)), unsupported_error);
    CHECK(text_of(folder.path() / signature_file) == old);
    // A package of a hostile signer is verified first and parsed with all checks after that.
    const package_digest content = keystore::detail::package_bytes(folder.path(), 1'000'000).digest();
    folder.put(signature_file, adapter_signature::make(content, key_number(1)).text());
    CHECK_THROWS_WITH_AS(load_adapter(folder.path(), trusting(1)), Contains("use_dora"), unsupported_error);
}

TEST_CASE_FIXTURE(adapter_folder, "weights of any length can be signed if that is asked for") {
    const std::size_t bytes = std::filesystem::file_size(folder.path() / weights_file);
    CHECK_THROWS_AS(sign_adapter(folder.path(), key_number(1), "legal", 7, bytes - 1), format_error);
    CHECK_FALSE(std::filesystem::exists(folder.path() / signature_file));
    sign_adapter(folder.path(), key_number(1), "legal", 7, bytes);
    CHECK(first_value(load(trusting(1)).adapter) == 1);
}

TEST_CASE_FIXTURE(adapter_folder,
                  "a source loads anew each time, reports where from, and may be refused by the report") {
    sign_adapter(folder.path(), key_number(1), "legal", 1);
    std::vector<adapter_provenance> reported;
    const auto source = adapter_source(folder.path(), trusting(1), [&](const adapter_provenance& from) {
        reported.push_back(from);
        if (from.revision < reported.front().revision) {
            throw std::runtime_error("older than what runs");
        }
    });
    CHECK(reported.empty());
    CHECK(first_value(source()) == 1);
    put_adapter(folder, 1.5);
    CHECK_THROWS_AS(source(), signature_error);
    CHECK(reported.size() == 1);
    sign_adapter(folder.path(), key_number(1), "legal", 2);
    CHECK(first_value(source()) == 1.5f);
    REQUIRE(reported.size() == 2);
    CHECK(reported[1].revision == 2);
    sign_adapter(folder.path(), key_number(1), "legal", 0);
    CHECK_THROWS_WITH(source(), "older than what runs");
    CHECK(first_value(adapter_source(folder.path(), trusting(1))()) == 1.5f);
}
