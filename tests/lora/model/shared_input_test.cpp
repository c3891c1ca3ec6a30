#include <tensafe/lora/model/shared_input.hpp>

#include "../../test.hpp"

using namespace tests;
using tensafe::lora::shared_input;

TEST_CASE("queries, keys and values of one attention have one input") {
    const std::string layer = "model.layers.3.self_attn";
    for (const std::string& name : words("q_proj k_proj v_proj qkv_proj q k v wq wk wv to_q to_k to_v "
                                         "q_a_proj kv_a_proj_with_mqa kv_proj "
                                         "qkv Wqkv query_key_value c_attn")) {
        CAPTURE(name);
        CHECK(shared_input(layer + "." + name) == layer + ".input");
    }
    for (const char* name :
         {"in_proj_qkv", "in_proj_qkvz", "in_proj_z", "in_proj_a", "in_proj_b", "in_proj_ba"}) {
        CAPTURE(name);
        CHECK(shared_input(std::string("model.layers.1.linear_attn.") + name) ==
              "model.layers.1.linear_attn.input");
    }
}

TEST_CASE("another layer, another attention and another model part have other inputs") {
    CHECK(shared_input("model.layers.1.self_attn.q_proj") != shared_input("model.layers.2.self_attn.q_proj"));
    CHECK(shared_input("model.layers.1.self_attn.q_proj") !=
          shared_input("model.layers.11.self_attn.q_proj"));
    CHECK(shared_input("vision.layers.1.self_attn.q_proj") != shared_input("text.layers.1.self_attn.q_proj"));
    CHECK(shared_input("model.layers.1.self_attn.q_proj") != shared_input("model.layers.1.mlp.up_proj"));
}

TEST_CASE("in cross attention keys and values share the context, and queries do not") {
    for (const std::string parent : {"decoder.layers.0.encoder_attn", "h.0.crossattention.self",
                                     "decoder.block.0.layer.1.EncDecAttention", "blocks.0.attn2",
                                     "decoder.layers.0.multihead_attn", "layers.0.CrossAttention"}) {
        CAPTURE(parent);
        CHECK(shared_input(parent + ".q_proj") == parent + ".q_proj");
        CHECK(shared_input(parent + ".to_q") == parent + ".to_q");
        CHECK(shared_input(parent + ".k_proj") == parent + ".input");
        CHECK(shared_input(parent + ".v_proj") == parent + ".input");
    }
    CHECK(shared_input("decoder.layers.0.self_attn.q_proj") == "decoder.layers.0.self_attn.input");
}

TEST_CASE("gates and ups of a layer and of all its experts have one input") {
    const std::string expected = "model.layers.0.mlp.input";
    for (const char* name :
         {"mlp.gate_proj", "mlp.up_proj", "mlp.gate_up_proj", "mlp.w1", "mlp.w3", "mlp.wi_0", "mlp.wi_1",
          "mlp.experts.17.gate_proj", "mlp.experts.0.up_proj", "mlp.shared_expert.gate_proj",
          "mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj", "mlp.shared_experts.1.gate_proj"}) {
        CAPTURE(name);
        CHECK(shared_input(std::string("model.layers.0.") + name) == expected);
    }
    CHECK(shared_input("model.layers.0.block_sparse_moe.experts.3.w1") ==
          "model.layers.0.block_sparse_moe.input");
}

TEST_CASE("experts in one matrix share no input with a shared expert: routers may scale theirs") {
    const std::string of_experts = shared_input("model.layers.0.feed_forward.experts.gate_up_proj");
    CHECK(of_experts == "model.layers.0.feed_forward.experts.input");
    CHECK(of_experts != shared_input("model.layers.0.feed_forward.shared_expert.gate_proj"));
    CHECK(of_experts != shared_input("model.layers.0.feed_forward.up_proj"));
    CHECK(of_experts != shared_input("model.layers.0.feed_forward.experts.3.up_proj"));
}

TEST_CASE("query, key and value share an input in BERT's naming alone") {
    const std::string bert = "bert.encoder.layer.2.attention.self";
    for (const char* name : {"query", "key", "value"}) {
        CHECK(shared_input(bert + "." + name) == bert + ".input");
        // In RWKV each of these gets a mixture of its own; elsewhere nobody knows.
        for (const std::string parent : {"rwkv.blocks.0.attention", "rwkv.blocks.0.feed_forward", "h.0.attn",
                                         "h.0.self", "self", "attention.self_attn", "attention.self.0"}) {
            CHECK(shared_input(parent + "." + name) == parent + "." + name);
        }
    }
    CHECK(shared_input("rwkv.blocks.0.attention.receptance") == "rwkv.blocks.0.attention.receptance");
    const std::string cross = "bert.encoder.layer.2.crossattention.self";
    CHECK(shared_input(cross + ".query") == cross + ".query");
    CHECK(shared_input(cross + ".key") == cross + ".input");
    CHECK(shared_input(cross + ".value") == cross + ".input");
}

TEST_CASE("a number or an expert's name counts only where an expert stands") {
    // The last number is a layer, not an expert.
    CHECK(shared_input("mlp.4.gate_proj") == "mlp.4.input");
    CHECK(shared_input("shared_expert.4.gate_proj") == "shared_expert.4.input");
    CHECK(shared_input("experts.4x.gate_proj") == "experts.4x.input");
    CHECK(shared_input("mlp.my_experts.4.gate_proj") == "mlp.my_experts.4.input");
    // Attention of an expert has its own input.
    CHECK(shared_input("experts.4.q_proj") == "experts.4.input");
}

TEST_CASE("outputs of blocks and unknown modules have inputs of their own") {
    for (const char* name : {"model.layers.0.self_attn.o_proj", "model.layers.0.mlp.down_proj",
                             "model.layers.0.mlp.experts.3.down_proj", "model.layers.0.mlp.w2",
                             "model.layers.0.self_attn.q_b_proj", "model.layers.0.self_attn.kv_b_proj",
                             "lm_head", "model.layers.0.mlp.gate", "model.layers.0.self_attn.Q_PROJ",
                             "model.layers.0.self_attn.q_proj.extra", "model.layers.0.self_attn.xq_proj",
                             "model.layers.0.self_attn.proj", "model.layers.0.self_attn.q_pro",
                             "model.layers.0.self_attn.q_proj q_a_proj", "", ".", "a."}) {
        CAPTURE(name);
        CHECK(shared_input(name) == name);
    }
}

TEST_CASE("a name without a parent, and an expert without one, have the input of the whole") {
    CHECK(shared_input("q_proj") == "input");
    CHECK(shared_input("experts.2.up_proj") == "input");
    CHECK(shared_input(".q_proj") == "input");
}

TEST_CASE("an adapter's name in front does not separate inputs") {
    const std::vector<std::string> names = {"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj",
                                            "model.layers.0.mlp.experts.1.up_proj", "model.lm_head"};
    for (const std::string& name : names) {
        CAPTURE(name);
        CHECK(shared_input("legal/" + name) == shared_input(name));
        CHECK(shared_input("v1.2/" + name) == shared_input(name));  // its dots are no parts of the path
        CHECK(shared_input("/" + name) == shared_input(name));
    }
}

TEST_CASE("a '/' of a site's own name is kept, and separates inputs") {
    CHECK(shared_input("enc/0/attn/q") == "enc/0/attn/q");
    CHECK(shared_input("enc/0/attn.q") == "enc/0/attn.input");
    CHECK(shared_input("dec/0/attn.q") == "dec/0/attn.input");
    CHECK(shared_input("enc.0/attn/layer.q_proj") == "enc.0/attn/layer.input");
    CHECK(shared_input("enc/q_proj") == "enc/q_proj");  // no path with dots behind it
    CHECK(shared_input("model.enc/q") != shared_input("model.dec/q"));
    CHECK(shared_input("legal/") == "legal/");
}
