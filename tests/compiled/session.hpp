#pragma once

#include <tensafe/io/peft.hpp>
#include <tensafe/tensafe.hpp>

#include <vector>

/// One token of a made-up site, by keys and randomness of its own; the relative error. `File` makes it a
/// function of each translation unit.
template <class File>
double relative_error_of_a_token() {
    namespace lora = tensafe::lora;
    using params = tensafe::ckks::private_n4096;
    lora::adapter_site site;
    site.a = lora::matrix(8, 64);
    site.b = lora::matrix(16, 8);
    for (std::size_t i = 0; i < site.a.values.size(); ++i) {
        site.a.values[i] = static_cast<float>(i % 17) * 0.01F - 0.08F;
    }
    for (std::size_t i = 0; i < site.b.values.size(); ++i) {
        site.b.values[i] = static_cast<float>(i % 13) * 0.01F - 0.06F;
    }
    site = lora::normalize_rows(site);
    const std::vector<float> h(64, 0.5F);
    const lora::server<params> server(site.a);
    lora::client<params> client;
    const auto nonce = tensafe::random::fresh_nonce();
    auto zeros = server.pool(nonce, client.rerandomization_key(nonce));
    const auto query = client.encrypt(server.plan(), h);
    const auto reply = server.apply(query.request, zeros);
    const auto delta = lora::apply_b(site, client.decrypt(server.plan(), reply, query));
    return tensafe::ckks::measure_precision(lora::plain_delta(site, h), delta).relative_error;
}

/// What the reader of PEFT files says of one that is not there.
template <class File>
std::string refusal_of_a_missing_file() {
    try {
        tensafe::io::load_peft("/nonexistent");
    } catch (const tensafe::error& e) {
        return e.what();
    }
    return "";
}
