// libtorch's CHECK replaces doctest's, so that names here are the long ones.
#include <tensafe/interop/torch.hpp>

#include <torch/types.h>
#include <torch/utils.h>

#include "../test.hpp"

using namespace tests;

namespace {

using interop::hidden_states;

/// Of all functions that read a tensor.
template <class E>
void check_refused(const at::Tensor& t, const char* part) {
    const std::string messages[] = {
        refusal<E>([&] { return interop::as_span(t); }),
        refusal<E>([&] { return interop::to_vector(t); }),
        refusal<E>([&] { return interop::to_matrix(t); }),
        refusal<E>([&] { return hidden_states(t); }),
    };
    for (const std::string& message : messages) {
        DOCTEST_CAPTURE(message);
        DOCTEST_CHECK(contains(message, part));
        DOCTEST_CHECK(contains(message, "interop::"));
    }
}

/// Row i by libtorch: widened, and copied to where it is contiguous.
std::vector<float> row_by_libtorch(const at::Tensor& x, std::int64_t i) {
    const at::Tensor row = x.detach().to(at::kFloat).reshape({-1, x.size(-1)})[i].contiguous();
    const float* const values = row.data_ptr<float>();
    return {values, values + row.numel()};
}

/// Compares bits, so that the sign of a zero counts.
bool same(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// All rows of x, against libtorch's own.
bool rows_are_right(const at::Tensor& x) {
    const hidden_states states(x);
    std::vector<float> space;
    bool right = states.d() == static_cast<std::size_t>(x.size(-1)) &&
                 states.count() * states.d() == static_cast<std::size_t>(x.numel());
    for (std::size_t i = 0; i < states.count(); ++i) {
        right = right && same(states.row(i, space), row_by_libtorch(x, static_cast<std::int64_t>(i)));
    }
    return right;
}

/// The bits of a tensor of 16-bit numbers.
std::vector<std::uint16_t> bits_of(const at::Tensor& t) {
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(t.numel()));
    std::memcpy(bits.data(), t.data_ptr(), bits.size() * sizeof(std::uint16_t));
    return bits;
}

// A view of a temporary does not compile.
template <class T>
concept can_show_rows = requires(T&& t, std::vector<float>& space) {
    std::forward<T>(t).row(0, space);
};
static_assert(can_show_rows<const hidden_states&> && can_show_rows<hidden_states&>);
static_assert(!can_show_rows<hidden_states> && !can_show_rows<const hidden_states>);
template <class T>
concept can_span = requires(T&& t) {
    interop::as_span(std::forward<T>(t));
};
static_assert(can_span<const at::Tensor&> && can_span<at::Tensor&>);
static_assert(!can_span<at::Tensor> && !can_span<const at::Tensor>);
template <class T>
concept can_tensor = requires(T&& t) {
    interop::as_tensor(std::forward<T>(t));
};
static_assert(can_tensor<const lora::matrix&> && can_tensor<lora::matrix&> &&
              can_tensor<std::vector<float>&> && can_tensor<std::span<const float>>);
static_assert(!can_tensor<lora::matrix> && !can_tensor<const lora::matrix> &&
              !can_tensor<std::vector<float>> && !can_tensor<const std::vector<float>>);

}  // namespace

DOCTEST_TEST_CASE("as_span shows a vector's own memory, also that of a row of a batch and of a part") {
    const at::Tensor h = torch::arange(1, 6, at::kFloat);
    DOCTEST_CHECK(interop::as_span(h).data() == h.data_ptr<float>());
    DOCTEST_CHECK(interop::as_span(h).size() == 5);
    DOCTEST_CHECK(interop::as_span(h)[4] == 5);
    const at::Tensor batch = torch::randn({4, 7});
    const at::Tensor row = batch[2];
    DOCTEST_CHECK(interop::as_span(row).data() == batch.data_ptr<float>() + 14);
    DOCTEST_CHECK(interop::as_span(row).size() == 7);
    const at::Tensor part = row.slice(0, 3, 5);
    DOCTEST_CHECK(interop::as_span(part).data() == batch.data_ptr<float>() + 17);
    DOCTEST_CHECK(interop::as_span(part).size() == 2);
    const at::Tensor column_of_one = batch.slice(0, 1, 2).select(1, 3);  // stride 7, but nothing to step to
    DOCTEST_CHECK(interop::as_span(column_of_one).data() == batch.data_ptr<float>() + 10);
    const at::Tensor nothing = torch::empty({0});
    DOCTEST_CHECK(interop::as_span(nothing).empty());
}

DOCTEST_TEST_CASE("as_span reads a tensor that requires a gradient") {
    const at::Tensor h = torch::randn({5}, at::requires_grad());
    DOCTEST_CHECK(interop::as_span(h).data() == h.data_ptr<float>());
}

DOCTEST_TEST_CASE("as_span refuses entries that are not next to each other, and says what to call") {
    const at::Tensor batch = torch::randn({4, 7});
    const at::Tensor column = batch.select(1, 3);
    const std::string message = refusal<shape_error>([&] { return interop::as_span(column); });
    DOCTEST_CHECK(
        message ==
        "interop::as_span: got a tensor of Float, shape [4], expected entries next to each other, not 7 "
        "apart; keep x.contiguous() in a variable, or use to_vector(x)");
    const at::Tensor repeated = torch::randn({1}).expand({6});
    DOCTEST_CHECK(contains(refusal<shape_error>([&] { return interop::as_span(repeated); }), "0 apart"));
}

DOCTEST_TEST_CASE("as_span refuses a batch and a single number, and names hidden_states") {
    for (const at::Tensor& t : {torch::randn({1, 5}), torch::randn({2, 3, 5}), torch::scalar_tensor(1.5)}) {
        DOCTEST_CHECK(contains(refusal<shape_error>([&] { return interop::as_span(t); }), "hidden_states"));
    }
}

DOCTEST_TEST_CASE("as_span refuses 16-bit numbers instead of copying them, and names what widens them") {
    for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
        const at::Tensor h = torch::randn({5}).to(type);
        const std::string message = refusal<unsupported_error>([&] { return interop::as_span(h); });
        DOCTEST_CAPTURE(message);
        DOCTEST_CHECK(contains(message, at::toString(type)));
        DOCTEST_CHECK(contains(message, "hidden_states"));
        DOCTEST_CHECK(contains(message, "to_vector"));
    }
}

DOCTEST_TEST_CASE("types that would have to be rounded or converted are refused, with advice") {
    for (const at::ScalarType type : {at::kDouble, at::kLong, at::kInt, at::kByte, at::kBool}) {
        check_refused<unsupported_error>(torch::ones({2, 3}, type), "x.to(torch::kFloat)");
        check_refused<unsupported_error>(torch::ones({2, 3}, type), at::toString(type));
    }
}

DOCTEST_TEST_CASE("tensors without plain memory of real numbers on the CPU are refused, with advice") {
    check_refused<parameter_error>(at::Tensor(), "undefined tensor");
    check_refused<unsupported_error>(torch::empty({2, 3}, at::device(at::kMeta)), "x.to(torch::kCPU)");
    check_refused<unsupported_error>(torch::ones({2, 3}).to_sparse(), "x.to_dense()");
    check_refused<unsupported_error>(torch::ones({2, 3}).to_sparse_csr(), "x.to_dense()");
    check_refused<unsupported_error>(at::quantize_per_tensor(torch::ones({2, 3}), 0.1, 0, at::kQInt8),
                                     "x.dequantize()");
    check_refused<unsupported_error>(torch::ones({2, 3}, at::kComplexFloat), "torch::real(x)");
    const at::Tensor negated = torch::imag(torch::ones({2, 3}, at::kComplexFloat).conj());
    DOCTEST_REQUIRE(negated.is_neg());
    check_refused<unsupported_error>(negated, "x.resolve_neg()");
    check_refused<unsupported_error>(at::_efficientzerotensor({2, 3}, at::kFloat), "x.clone()");
    check_refused<unsupported_error>(
        at::_nested_tensor_from_tensor_list({torch::ones({2, 3}), torch::ones({1, 3})}), "x.unbind()");
}

DOCTEST_TEST_CASE("a tensor whose memory was taken away is refused") {
    at::Tensor h = torch::ones({2, 3});
    h.storage().set_data_ptr(at::DataPtr(nullptr, at::kCPU));
    check_refused<unsupported_error>(h, "without memory");
}

DOCTEST_TEST_CASE("a tensor that reaches beyond its storage is refused, whichever stride reaches there") {
    const auto with = [](std::size_t entries, at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::int64_t first) {
        const at::Tensor whole = torch::zeros({40}, at::kHalf);
        at::Tensor view = whole.as_strided(sizes, strides, first);
        view.storage().set_nbytes(entries * sizeof(at::Half));
        return view;
    };
    // The last entry is that of index 3 + 1 * 7 + 2 * 5 = 20, the 21st.
    check_refused<unsupported_error>(with(20, {2, 3}, {7, 5}, 3), "made smaller");
    DOCTEST_CHECK(hidden_states(with(21, {2, 3}, {7, 5}, 3)).count() == 2);
    check_refused<unsupported_error>(with(12, {2, 3}, {7, 0}, 5), "made smaller");
    DOCTEST_CHECK(hidden_states(with(13, {2, 3}, {7, 0}, 5)).count() == 2);
    check_refused<unsupported_error>(with(0, {1, 1}, {1, 1}, 0), "made smaller");
    check_refused<unsupported_error>(with(9, {1, 1}, {1, 1}, 9), "made smaller");
    DOCTEST_CHECK(hidden_states(with(10, {1, 1}, {1, 1}, 9)).count() == 1);
    DOCTEST_CHECK(hidden_states(with(0, {0, 3}, {3, 1}, 9)).count() == 0);  // needs none
}

DOCTEST_TEST_CASE(
    "hidden_states has a row for each place in front of the last dimension, in row-major order") {
    const at::Tensor x = torch::randn({2, 3, 5});
    const hidden_states states(x);
    DOCTEST_CHECK(states.count() == 6);
    DOCTEST_CHECK(states.d() == 5);
    std::vector<float> space;
    for (std::size_t b = 0; b < 2; ++b) {
        for (std::size_t t = 0; t < 3; ++t) {
            const auto row = states.row(b * 3 + t, space);
            DOCTEST_CHECK(row.data() == x.data_ptr<float>() + (b * 3 + t) * 5);  // no copy
            DOCTEST_CHECK(row.size() == 5);
        }
    }
    DOCTEST_CHECK(space.empty());
    DOCTEST_CHECK(hidden_states(torch::randn({7})).count() == 1);
    DOCTEST_CHECK(rows_are_right(torch::randn({7})));
    DOCTEST_CHECK(rows_are_right(torch::randn({2, 1, 3, 4, 5})));
}

DOCTEST_TEST_CASE("floats next to each other are shown without a copy whatever the outer strides") {
    const at::Tensor x = torch::randn({4, 3, 6});
    std::vector<float> space;
    const at::Tensor swapped = x.transpose(0, 1);        // [3, 4, 6]
    const at::Tensor part = x.slice(2, 1, 5);            // rows with more behind them
    const at::Tensor every_other = x.slice(0, 0, 4, 2);  // [2, 3, 6]
    const at::Tensor repeated = x.slice(0, 1, 2).expand({9, 3, 6});
    const at::Tensor columns_of_one = x.slice(2, 2, 3);  // d = 1: nothing to step to
    for (const at::Tensor& view : {swapped, part, every_other, repeated, columns_of_one}) {
        DOCTEST_CHECK(rows_are_right(view));
        const hidden_states states(view);
        static_cast<void>(states.row(0, space));
        DOCTEST_CHECK(space.empty());
    }
    const auto place = [&](const at::Tensor& view, std::size_t i) {
        const hidden_states states(view);
        return states.row(i, space).data() - x.data_ptr<float>();
    };
    DOCTEST_CHECK(place(swapped, 1 * 4 + 2) == (2 * 3 + 1) * 6);
    DOCTEST_CHECK(place(part, 4) == 4 * 6 + 1);
    DOCTEST_CHECK(place(repeated, 8 * 3 + 2) == (3 + 2) * 6);
}

DOCTEST_TEST_CASE("views of views with random shapes and strides give libtorch's own rows") {
    torch::manual_seed(7);
    for (int round = 0; round < 200; ++round) {
        const auto pick = [](std::int64_t n) { return torch::randint(n, {1}).item<std::int64_t>(); };
        at::Tensor x = torch::randn({1 + pick(4), 1 + pick(4), 1 + pick(5)});
        x = x.to(pick(3) == 0 ? at::kHalf : pick(2) == 0 ? at::kBFloat16 : at::kFloat);
        for (int step = 0; step < 3; ++step) {
            const std::int64_t dimension = pick(3);
            if (pick(2) == 0) {
                x = x.transpose(dimension, pick(3));
            } else {
                x = x.slice(dimension, pick(x.size(dimension)), x.size(dimension), 1 + pick(2));
            }
        }
        DOCTEST_CAPTURE(round);
        DOCTEST_REQUIRE(rows_are_right(x));
    }
}

DOCTEST_TEST_CASE("every half and every bfloat16 is widened to the value that libtorch gives it") {
    for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
        at::Tensor all = torch::arange(65536, at::kInt).to(at::kShort);  // wraps to all patterns
        all = all.view(type);
        const at::Tensor expected = all.to(at::kFloat);
        const std::vector<float> widened = interop::to_vector(all);
        std::vector<float> space;
        const hidden_states states(all);
        DOCTEST_CHECK(same(widened, states.row(0, space)));
        const float* const values = expected.data_ptr<float>();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < widened.size(); ++i) {
            const bool both_nan = widened[i] != widened[i] && values[i] != values[i];
            wrong += both_nan || std::memcmp(&widened[i], values + i, sizeof(float)) == 0 ? 0u : 1u;
        }
        DOCTEST_CHECK(wrong == 0);
    }
}

DOCTEST_TEST_CASE("hidden_states takes batches without rows, and refuses rows without entries") {
    DOCTEST_CHECK(hidden_states(torch::empty({0, 5})).count() == 0);
    DOCTEST_CHECK(hidden_states(torch::empty({0, 5})).d() == 5);
    DOCTEST_CHECK(hidden_states(torch::empty({3, 0, 5}, at::kHalf)).count() == 0);
    for (const at::Tensor& t : {torch::empty({0}), torch::empty({4, 0}), torch::scalar_tensor(1.5)}) {
        DOCTEST_CHECK(contains(refusal<shape_error>([&] { return hidden_states(t); }), "[..., d]"));
    }
}

DOCTEST_TEST_CASE("hidden_states refuses a row that is not there") {
    std::vector<float> space;
    const hidden_states states(torch::randn({2, 3, 5}));
    DOCTEST_CHECK(
        refusal<shape_error>([&] { return states.row(6, space); }) ==
        "interop::hidden_states::row: got row 6, expected one of the 6 of a tensor of shape [2, 3, 5]");
    DOCTEST_CHECK_THROWS_AS(states.row(std::numeric_limits<std::size_t>::max(), space), shape_error);
    const hidden_states none(torch::empty({0, 5}));
    DOCTEST_CHECK_THROWS_AS(none.row(0, space), shape_error);
}

DOCTEST_TEST_CASE("hidden_states keeps the memory, and the shape that the tensor had") {
    at::Tensor x = torch::arange(0, 30, at::kFloat).reshape({6, 5});
    const hidden_states states(x);
    std::vector<float> space;
    x.resize_({2});
    DOCTEST_CHECK(states.row(5, space)[4] == 29);
    x = at::Tensor();
    DOCTEST_CHECK(states.row(5, space)[0] == 25);
    DOCTEST_CHECK(states.count() == 6);
}

DOCTEST_TEST_CASE("values that change after hidden_states was made show") {
    const at::Tensor x = torch::zeros({2, 3});
    const hidden_states states(x);
    x[1][2] = 4;
    std::vector<float> space;
    DOCTEST_CHECK(states.row(1, space)[2] == 4);
}

DOCTEST_TEST_CASE("to_vector copies, whatever the stride") {
    const at::Tensor x = torch::randn({4, 6});
    const at::Tensor column = x.select(1, 3);
    const std::vector<float> copy = interop::to_vector(column);
    DOCTEST_REQUIRE(copy.size() == 4);
    DOCTEST_CHECK(copy[2] == x[2][3].item<float>());
    DOCTEST_CHECK(same(interop::to_vector(x[1]), row_by_libtorch(x, 1)));
    DOCTEST_CHECK(interop::to_vector(torch::empty({0})).empty());
    DOCTEST_CHECK_THROWS_AS(interop::to_vector(x), shape_error);
}

DOCTEST_TEST_CASE("as_tensor shows the memory of values and of a lora matrix, and writes to the matrix") {
    const std::vector<float> values = {1, 2, 3};
    const at::Tensor view = interop::as_tensor(values);
    DOCTEST_CHECK(view.data_ptr<float>() == values.data());
    DOCTEST_CHECK(view.sizes() == at::IntArrayRef({3}));
    DOCTEST_CHECK(interop::as_tensor(std::span<const float>()).numel() == 0);
    lora::matrix m(2, 3);
    m.values = {1, 2, 3, 4, 5, 6};
    const lora::matrix& constant = m;
    const at::Tensor shown = interop::as_tensor(constant);
    DOCTEST_CHECK(shown.data_ptr<float>() == m.values.data());
    DOCTEST_CHECK(shown.sizes() == at::IntArrayRef({2, 3}));
    DOCTEST_CHECK(shown[1][0].item<float>() == 4);
    DOCTEST_CHECK(!shown.requires_grad());
    const at::Tensor columns = torch::randn({3, 2}).t();  // by place, not by memory
    interop::as_tensor(m).copy_(columns);
    DOCTEST_CHECK(m.row(1)[2] == columns[1][2].item<float>());
    DOCTEST_CHECK(m.row(0)[1] == columns[0][1].item<float>());
    m.values.pop_back();
    DOCTEST_CHECK_THROWS_AS(interop::as_tensor(constant), shape_error);
    DOCTEST_CHECK_THROWS_AS(interop::as_tensor(m), shape_error);
}

DOCTEST_TEST_CASE("to_matrix copies two dimensions by place, of all types that widen exactly") {
    const at::Tensor x = torch::randn({3, 4}, at::requires_grad());
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
        for (const at::Tensor& t :
             {x.detach().to(type), x.detach().to(type).t(), x.detach().to(type).slice(1, 1, 3)}) {
            const lora::matrix m = interop::to_matrix(t);
            DOCTEST_CHECK(m.rows == static_cast<std::size_t>(t.size(0)));
            DOCTEST_CHECK(m.columns == static_cast<std::size_t>(t.size(1)));
            DOCTEST_CHECK(torch::equal(interop::as_tensor(m), t.to(at::kFloat)));
        }
    }
    DOCTEST_CHECK(interop::to_matrix(x).values[2 * 4 + 3] == x[2][3].item<float>());
    DOCTEST_CHECK(interop::to_matrix(torch::empty({0, 4})).columns == 4);
    DOCTEST_CHECK_THROWS_AS(interop::to_matrix(x[0]), shape_error);
    DOCTEST_CHECK_THROWS_AS(interop::to_matrix(x.unsqueeze(0)), shape_error);
}

DOCTEST_TEST_CASE("to_tensor rounds a double once, to nearest, ties to even") {
    // Halfway between two halves, and beside it by what a float does not see: rounding to float first would
    // make ties of all three.
    const std::vector<double> halves = {1 + 0x1p-11, 1 + 0x1p-11 + 0x1p-40, 1 + 3 * 0x1p-11,
                                        1 + 3 * 0x1p-11 - 0x1p-40, -65519.99};
    DOCTEST_CHECK(bits_of(interop::to_tensor(halves, at::kHalf)) ==
                  std::vector<std::uint16_t>{0x3c00, 0x3c01, 0x3c02, 0x3c01, 0xfbff});
    const std::vector<double> bfloats = {1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-40, 1 + 3 * 0x1p-8, -0x1p-133};
    DOCTEST_CHECK(bits_of(interop::to_tensor(bfloats, at::kBFloat16)) ==
                  std::vector<std::uint16_t>{0x3f80, 0x3f81, 0x3f82, 0x8001});
    const std::vector<double> floats = {1 + 0x1p-24, 1 + 0x1p-24 + 0x1p-50, 0.1};
    const at::Tensor rounded = interop::to_tensor(floats);
    DOCTEST_CHECK((rounded.scalar_type() == at::kFloat));  // doctest cannot print it
    DOCTEST_CHECK(rounded.sizes() == at::IntArrayRef({3}));
    DOCTEST_CHECK(rounded[0].item<float>() == 1.0F);
    DOCTEST_CHECK(rounded[1].item<float>() == 1.0F + 0x1p-23F);
    DOCTEST_CHECK(rounded[2].item<float>() == 0.1F);
    DOCTEST_CHECK(!rounded.requires_grad());
    DOCTEST_CHECK(interop::to_tensor(floats, at::kDouble)[2].item<double>() == 0.1);
    DOCTEST_CHECK(interop::to_tensor(std::vector<double>(), at::kHalf).numel() == 0);
}

DOCTEST_TEST_CASE("to_tensor refuses what a type cannot hold, and names the entry but not its value") {
    const auto refused = [](double x, at::ScalarType type) {
        return refusal<encoding_error>([&] {
            return interop::to_tensor(std::vector<double>{1, 2, x, 4}, type);
        });
    };
    DOCTEST_CHECK(refused(65520, at::kHalf) == "interop::to_tensor: entry 2 is too large for Half");
    DOCTEST_CHECK(refused(65519, at::kHalf) == "nothing was thrown");
    DOCTEST_CHECK(contains(refused(-1e300, at::kFloat), "entry 2"));
    DOCTEST_CHECK(contains(refused(3.4e38, at::kBFloat16), "BFloat16"));
    DOCTEST_CHECK(refused(3.3e38, at::kBFloat16) == "nothing was thrown");
    for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
        for (const double x :
             {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
            DOCTEST_CHECK(refused(x, type) == "interop::to_tensor: entry 2 is not finite");
        }
    }
    DOCTEST_CHECK(contains(
        refusal<unsupported_error>([&] { return interop::to_tensor(std::vector<double>{1}, at::kInt); }),
        "got the type Int"));
}

DOCTEST_TEST_CASE("several threads read one hidden_states, each with a space of its own") {
    const at::Tensor x = torch::randn({16, 40}).to(at::kHalf);
    const hidden_states states(x);
    std::vector<at::Tensor> sums(4);
    tests::on_threads(sums.size(), [&](std::size_t t) {
        std::vector<float> space;
        sums[t] = torch::zeros({40});
        for (std::size_t i = 0; i < states.count(); ++i) {
            sums[t] += interop::as_tensor(states.row(i, space));
        }
    });
    for (const at::Tensor& sum : sums) {
        DOCTEST_CHECK(torch::allclose(sum, x.to(at::kFloat).sum(0), 1e-5, 1e-5));
    }
}
