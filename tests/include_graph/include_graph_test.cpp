#include "include_graph.hpp"

using include_graph::tree;
using include_graph::violations;

namespace {

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += line + "\n";
    }
    return text;
}

/// A small tree that keeps every rule, with `extra` put over it.
tree with(const tree& extra) {
    tree headers = {
        {"tensafe/tensafe.hpp",
         "#include <tensafe/ntt/plan.hpp>\n#include <tensafe/ntt/x86/plan_avx2.hpp>\n#include <vector>\n"},
        {"tensafe/arith/word.hpp", "#ifdef __CUDA_ARCH__\n#endif\n"},
        {"tensafe/ntt/plan.hpp", "#include <tensafe/arith/word.hpp>\n#include <sys/random.h>\n"},
        {"tensafe/ntt/x86/plan_avx2.hpp",
         "#include <tensafe/ntt/plan.hpp>\n\n#include <immintrin.h>\n\n"
         "namespace tensafe::ntt::detail {\n}\n"},
        {"tensafe/io/safetensors.hpp", "#include <tensafe/ntt/plan.hpp>\n\n#include <nlohmann/json.hpp>\n"},
    };
    for (const auto& [path, text] : extra) {
        headers[path] = text;
    }
    return headers;
}

}  // namespace

TEST_CASE("a tree that keeps the rules has no violation") {
    CHECK(joined(violations(with({}))) == "");
}

TEST_CASE("each broken rule is reported") {
    struct planted {
        tree extra;
        std::string report;
    };
    const std::vector<planted> cases = {
        {{{"tensafe/arith/word.hpp", "#include <tensafe/rns/basis.hpp>\n"}, {"tensafe/rns/basis.hpp", ""}},
         "tensafe/arith/word.hpp: includes <tensafe/rns/basis.hpp>, a later layer\n"},
        {{{"tensafe/arith/word.hpp", "  #  include <tensafe/rns/basis.hpp>  // for the basis\n"},
          {"tensafe/rns/basis.hpp", ""}},
         "tensafe/arith/word.hpp: includes <tensafe/rns/basis.hpp>, a later layer\n"},
        {{{"tensafe/io/safetensors.hpp", "#include <tensafe/tensafe.hpp>\n"}},
         "tensafe/io/safetensors.hpp: includes the umbrella <tensafe/tensafe.hpp>\n"},
        {{{"tensafe/ntt/plan.hpp", "#include <tensafe/arith/word.hpp>\n#include \"plan_avx2.hpp\"\n"}},
         "tensafe/ntt/plan.hpp: \"plan_avx2.hpp\" is quoted; write <tensafe/...>\n"
         "tensafe/tensafe.hpp: reaches the third-party header <plan_avx2.hpp> through "
         "tensafe/ntt/plan.hpp\n"},
        {{{"tensafe/io/safetensors.hpp", "#include <tensafe/io/gone.hpp>\n"}},
         "tensafe/io/safetensors.hpp: <tensafe/io/gone.hpp> does not exist\n"},
        {{{"tensafe/ntt/plan.hpp", "#include <tensafe/arith/word.hpp>\n#include <immintrin.h>\n"}},
         "tensafe/ntt/plan.hpp: <immintrin.h> belongs below x86/ and simd/ only\n"},
        {{{"tensafe/ntt/plan.hpp",
           "#include <tensafe/arith/word.hpp>\n#if defined(__CUDA_ARCH__)\n#endif\n"}},
         "tensafe/ntt/plan.hpp: __CUDA_ARCH__ belongs in arith/word.hpp only\n"},
        {{{"tensafe/rns/basis.hpp", ""}}, "tensafe/tensafe.hpp: does not include <tensafe/rns/basis.hpp>\n"},
        {{{"tensafe/ntt/plan.hpp", "#include <tensafe/arith/word.hpp>\n#include <Eigen/Dense>\n"}},
         "tensafe/tensafe.hpp: reaches the third-party header <Eigen/Dense> through tensafe/ntt/plan.hpp\n"},
        {{{"tensafe/exec/host_parallel.hpp", ""},
          {"tensafe/ntt/plan.hpp",
           "#include <tensafe/arith/word.hpp>\n#include <tensafe/exec/host_parallel.hpp>\n"}},
         "tensafe/tensafe.hpp: reaches the opt-in header <tensafe/exec/host_parallel.hpp> through "
         "tensafe/ntt/plan.hpp\n"},
        {{{"tensafe/io/safetensors.hpp", ""}, {"tensafe/helpers/bits.cuh", ""}},
         "tensafe/helpers/bits.cuh: its folder is not a layer\n"},
        {{{"tensafe/tensafe.cuh", "#include <tensafe/device/cuda/cuda.cuh>\n"},
          {"tensafe/device/cuda/cuda.cuh", ""},
          {"tensafe/device/cuda/graph.cuh", ""}},
         "tensafe/tensafe.cuh: does not include <tensafe/device/cuda/graph.cuh>\n"},
        {{{"tensafe/tensafe.cuh", "#include <tensafe/device/ntt/plan.hpp>\n"},
          {"tensafe/device/ntt/plan.hpp", "#include <tensafe/device/ntt/words.hpp>\n"},
          {"tensafe/device/ntt/words.hpp", ""},
          {"tensafe/ntt/new_order.hpp", ""}},
         "tensafe/tensafe.hpp: does not include <tensafe/ntt/new_order.hpp>\n"},
        {{{"tensafe/serving.hpp", "#include <tensafe/serving/registry.hpp>\n"},
          {"tensafe/serving/registry.hpp", "#include <tensafe/io/safetensors.hpp>\n"},
          {"tensafe/serving/router.hpp", ""}},
         "tensafe/serving.hpp: reaches the third-party header <nlohmann/json.hpp> through "
         "tensafe/io/safetensors.hpp\n"
         "tensafe/serving.hpp: reaches the opt-in header <tensafe/io/safetensors.hpp> through "
         "tensafe/serving/registry.hpp\n"
         "tensafe/tensafe.hpp: does not include <tensafe/serving/router.hpp>\n"},
        {{{"tensafe/ntt/plan_avx2.hpp", "#include <immintrin.h>\n"},
          {"tensafe/tensafe.hpp",
           "#include <tensafe/ntt/plan.hpp>\n#include <tensafe/ntt/plan_avx2.hpp>\n"
           "#include <tensafe/ntt/x86/plan_avx2.hpp>\n"}},
         "tensafe/ntt/plan_avx2.hpp: <immintrin.h> belongs below x86/ and simd/ only\n"},
        {{{"tensafe/ntt/plan.hpp", "#include <tensafe/arith/word.hpp>\n#include <tensafe/ntt/order.hpp>\n"},
          {"tensafe/ntt/order.hpp", "#include <tensafe/ntt/tables.hpp>\n"},
          {"tensafe/ntt/tables.hpp", "#include <tensafe/ntt/order.hpp>\n"}},
         "tensafe/ntt/order.hpp: includes itself through <tensafe/ntt/tables.hpp>\n"},
        {{{"tensafe/ntt/plan.hpp", "#include <tensafe/ntt/plan.hpp>\n#include <tensafe/arith/word.hpp>\n"}},
         "tensafe/ntt/plan.hpp: includes itself\n"},
        {{{"tensafe/ntt/plan.hpp",
           "#include <tensafe/arith/word.hpp>\n\nnamespace tensafe::rns {\n}  // namespace tensafe::rns\n"}},
         "tensafe/ntt/plan.hpp: opens namespace tensafe::rns, expected tensafe::ntt\n"},
        {{{"tensafe/ntt/plan.hpp",
           "#include <tensafe/arith/word.hpp>\nnamespace tensafe {\nnamespace ntt {\n}\n}\n"}},
         "tensafe/ntt/plan.hpp: opens namespace tensafe, expected tensafe::ntt\n"},
        {{{"tensafe/ntt/plan.hpp",
           "#include <tensafe/arith/word.hpp>\nnamespace tensafe::ntt {\n}\nnamespace tensafe::ntt2 {\n}\n"}},
         "tensafe/ntt/plan.hpp: opens namespace tensafe::ntt2, expected tensafe::ntt\n"},
        {{{"tensafe/tensafe.cuh", "#include <tensafe/device/ntt/plan.hpp>\n"},
          {"tensafe/device/ntt/plan.hpp", ""},
          {"tensafe/ntt/plan.hpp",
           "#include <tensafe/arith/word.hpp>\n#include <tensafe/device/ntt/plan.hpp>\n"}},
         "tensafe/ntt/plan.hpp: includes <tensafe/device/ntt/plan.hpp>, which is for device code\n"},
        {{{"tensafe/serving.hpp", "#include <tensafe/device/ntt/plan.hpp>\n"},
          {"tensafe/device/ntt/plan.hpp", ""}},
         "tensafe/serving.hpp: includes <tensafe/device/ntt/plan.hpp>, which is for device code\n"},
        {{{"tensafe/tensafe.cuh", "#include <tensafe/interop/vectors.cuh>\n"},
          {"tensafe/interop/vectors.cuh", "#include <tensafe/device/cuda/cuda.cuh>\n"},
          {"tensafe/device/cuda/cuda.cuh", ""}},
         "tensafe/tensafe.cuh: reaches the opt-in header <tensafe/interop/vectors.cuh> through "
         "tensafe/tensafe.cuh\n"},
        {{{"tensafe/interop/vectors.cuh", "#include <tensafe/dp/ledger.hpp>\n"},
          {"tensafe/dp.hpp", "#include <tensafe/dp/ledger.hpp>\n"},
          {"tensafe/dp/ledger.hpp", ""}},
         "tensafe/interop/vectors.cuh: includes <tensafe/dp/ledger.hpp>, a later layer\n"},
    };
    for (const planted& one : cases) {
        CHECK(joined(violations(with(one.extra))) == one.report);
    }
}

TEST_CASE("an adapter for .cu files includes the device, and no umbrella needs it") {
    CHECK(joined(violations(
              with({{"tensafe/tensafe.cuh", "#include <tensafe/device/cuda/cuda.cuh>\n"},
                    {"tensafe/device/cuda/cuda.cuh", ""},
                    {"tensafe/interop/vectors.cuh", "#include <tensafe/device/cuda/cuda.cuh>\n"}}))) == "");
}

TEST_CASE("a layer opens namespaces below its own, and core that of the library") {
    const tree good = {
        {"tensafe/arith/word.hpp", "namespace tensafe::arith::uint128 {\n\nnamespace detail {\n}\n}\n"},
        {"tensafe/core/error.hpp", "namespace tensafe {\n}\nnamespace tensafe::detail {\n}\n"},
        {"tensafe/ntt/plan.hpp",
         "#include <tensafe/arith/word.hpp>\n#include <tensafe/core/error.hpp>\n"
         "namespace tensafe::ntt {\n}\n"}};
    CHECK(joined(violations(with(good))) == "");
}

TEST_CASE("comments do not count") {
    const tree commented = {
        {"tensafe/arith/word.hpp",
         "// #include <tensafe/ntt/plan.hpp>\n/*\n#include <tensafe/ntt/plan.hpp>\n*/\n"},
        {"tensafe/ntt/plan.hpp", "#include <tensafe/arith/word.hpp>  // no __CUDA_ARCH__\n"}};
    CHECK(joined(violations(with(commented))) == "");
}

TEST_CASE("the headers of this library keep the rules") {
    const auto source_folder = std::filesystem::path(TENSAFE_TEST_DATA).parent_path().parent_path();
    const tree headers = include_graph::read_tree(source_folder / "include");
    REQUIRE(headers.contains("tensafe/tensafe.hpp"));
    CHECK(joined(violations(headers)) == "");
}
