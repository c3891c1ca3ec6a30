// Thrust at the library's borders: views without a copy, and batches by adapter against the host's order.

#include <tensafe/interop/thrust.cuh>

#include <thrust/transform.h>

#include "device_checks.hpp"
#include "device_data.hpp"
#include "refusal.hpp"

namespace {

using namespace tensafe;

template <class T>
std::vector<T> to_host(const device::cuda& where, const thrust::device_vector<T>& values) {
    std::vector<T> result(values.size());
    where.download(thrust::raw_pointer_cast(values.data()), std::span<T>(result));
    where.wait();
    return result;
}

/// A batch, and what the standard library makes of it.
struct batch {
    std::vector<int> adapter_of;
    std::vector<int> order;

    batch(std::size_t requests, int adapters, std::uint64_t seed) : adapter_of(requests), order(requests) {
        std::mt19937_64 generator(seed);
        for (int& number : adapter_of) {
            // Of some adapters nobody asks.
            number = static_cast<int>(generator() % static_cast<std::uint64_t>(adapters)) / 2 * 2;
        }
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int i, int k) { return number(i) < number(k); });
    }
    thrust::device_vector<int> on_device() const { return {adapter_of.begin(), adapter_of.end()}; }
    int number(int i) const { return adapter_of[static_cast<std::size_t>(i)]; }
    std::size_t count(std::size_t adapter) const {
        return static_cast<std::size_t>(
            std::count(adapter_of.begin(), adapter_of.end(), static_cast<int>(adapter)));
    }
};

std::vector<int> order_of(const device::cuda& where, const interop::adapter_batches& batches) {
    std::vector<int> order(batches.requests());
    where.download(batches.order().get(), std::span<int>(order));
    where.wait();
    return order;
}

/// Random entries, no two alike as long as there are fewer than 2^24.
std::vector<float> random_entries(std::size_t count, std::uint64_t seed) {
    std::vector<float> entries(count);
    std::iota(entries.begin(), entries.end(), 1.0F);
    std::shuffle(entries.begin(), entries.end(), std::mt19937_64(seed));
    return entries;
}

/// Segments lie one behind the other, empty ones too, and requests keep their order within each.
void check_groups(const device::cuda& where, const batch& requests, int adapters) {
    CAPTURE(requests.adapter_of.size());
    CAPTURE(adapters);
    const thrust::device_vector<int> adapter_of = requests.on_device();
    interop::adapter_batches batches(requests.adapter_of.size() + 3, static_cast<std::size_t>(adapters));
    CHECK_THROWS_AS(batches.segment(0), error);
    batches.group(where, adapter_of);
    where.wait();
    std::size_t first = 0;
    for (std::size_t a = 0; a < batches.adapters(); ++a) {
        const auto segment = batches.segment(a);
        CHECK(segment.first == first);
        CHECK(segment.count == requests.count(a));
        first += segment.count;
    }
    CHECK(first == requests.adapter_of.size());
    CHECK(order_of(where, batches) == requests.order);
}
void check_groups_of_any_size(const device::cuda& where) {
    for (const std::size_t count : {0, 1, 2, 3, 31, 64, 257, 600}) {
        for (const int adapters : {1, 2, 5, 40}) {
            check_groups(where, batch(count, adapters, 100 * count + static_cast<std::size_t>(adapters)),
                         adapters);
        }
    }
}

/// Rows go where the order says, all entries of them, and come back.
void check_rows_return(const device::cuda& where, std::size_t count, std::size_t columns) {
    CAPTURE(count);
    CAPTURE(columns);
    const batch requests(count, 7, count + columns);
    const thrust::device_vector<int> adapter_of = requests.on_device();
    interop::adapter_batches batches(count, 7);
    batches.group(where, adapter_of);
    where.wait();
    const std::vector<float> entries = random_entries(count * columns, 7);
    const thrust::device_vector<float> states(entries.begin(), entries.end());
    thrust::device_vector<float> grouped(states.size(), -1.0F);
    batches.gather(where, interop::as_rows(states, columns), interop::as_rows(grouped, columns));
    const std::vector<float> got = to_host(where, grouped);
    for (std::size_t k = 0; k < count; ++k) {
        const auto row = static_cast<std::ptrdiff_t>(k * columns);
        const auto from =
            static_cast<std::ptrdiff_t>(requests.order[k]) * static_cast<std::ptrdiff_t>(columns);
        CHECK(std::equal(got.begin() + row, got.begin() + row + static_cast<std::ptrdiff_t>(columns),
                         entries.begin() + from));
    }
    thrust::device_vector<float> back(states.size(), -1.0F);
    batches.scatter(where, interop::as_rows(std::as_const(grouped), columns),
                    interop::as_rows(back, columns));
    CHECK(to_host(where, back) == entries);
}

/// Segment after segment, from memory of its own and in double precision, is as good as all at once; the rest
/// of the target stays as it is.
void check_segments_return_alone(const device::cuda& where) {
    constexpr std::size_t count = 60;
    constexpr std::size_t columns = 5;
    const batch requests(count, 6, 3);
    const thrust::device_vector<int> adapter_of = requests.on_device();
    interop::adapter_batches batches(count, 6);
    batches.group(where, adapter_of);
    where.wait();
    thrust::device_vector<float> result(count * columns, -1.0F);
    std::vector<float> expected(count * columns, -1.0F);
    for (const std::size_t a : {4, 0, 1, 2}) {
        const auto segment = batches.segment(a);
        const thrust::device_vector<double> deltas(segment.count * columns, 0.5 + static_cast<double>(a));
        batches.scatter(where, interop::as_rows(deltas, columns), interop::as_rows(result, columns),
                        segment.first);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            if (requests.adapter_of[i / columns] == static_cast<int>(a)) {
                expected[i] = 0.5F + static_cast<float>(a);
            }
        }
        CHECK(to_host(where, result) == expected);
    }
}

void check_shapes_are_refused(const device::cuda& where) {
    using tests::refusal;
    interop::adapter_batches batches(4, 3);
    const thrust::device_vector<int> five(5, 0);
    CHECK(refusal<shape_error>([&] { batches.group(where, five); }) ==
          "interop::adapter_batches::group: got 5 requests, expected at most 4");
    CHECK_THROWS_AS(interop::adapter_batches(interop::adapter_batches::most_requests + 1, 3), shape_error);
    const std::vector<int> numbers{0, 3, 1, -1};
    const thrust::device_vector<int> wrong(numbers.begin(), numbers.end());
    batches.group(where, wrong);
    where.wait();
    CHECK(refusal<parameter_error>([&] { static_cast<void>(batches.segment(0)); }) ==
          "interop::adapter_batches: got 2 of 4 requests for an adapter that does not exist, expected "
          "numbers from 0 to 2");
    const thrust::device_vector<int> right(4, 2);
    batches.group(where, right);
    where.wait();
    CHECK_NOTHROW(static_cast<void>(batches.segment(2)));
    CHECK_THROWS_AS(static_cast<void>(batches.segment(3)), parameter_error);

    thrust::device_vector<float> a(12);
    thrust::device_vector<float> b(12);
    const auto rows = [](auto& values, std::size_t columns) { return interop::as_rows(values, columns); };
    CHECK_NOTHROW(batches.gather(where, rows(a, 3), rows(b, 3)));
    CHECK(
        refusal<shape_error>([&] { batches.gather(where, rows(a, 3), rows(b, 4)); }) ==
        "interop::adapter_batches::gather: got 4 rows of 3 entries and room for 3 of 4, expected equal rows, "
        "of the 4 requests");
    CHECK_THROWS_AS(batches.gather(where, rows(a, 4), rows(b, 4)), shape_error);
    CHECK_THROWS_AS(batches.gather(where, rows(a, 3), rows(a, 3)), parameter_error);
    CHECK_THROWS_AS(batches.gather(where, rows(a, 3).slice(0, 3), rows(b, 3)), shape_error);
    CHECK_THROWS_AS(batches.scatter(where, rows(a, 3), rows(b, 3), 1), shape_error);
    CHECK_THROWS_AS(batches.scatter(where, rows(a, 3), rows(b, 3).slice(0, 3)), shape_error);
    CHECK_THROWS_AS(batches.scatter(where, rows(a, 3).slice(0, 0), rows(b, 3), 5), shape_error);
    CHECK_NOTHROW(batches.scatter(where, rows(a, 3).slice(0, 0), rows(b, 3), 4));

    CHECK(refusal<shape_error>([&] { static_cast<void>(rows(a, 5)); }) ==
          "interop::as_rows: got 12 entries, expected whole rows of 5");
    CHECK_THROWS_AS(static_cast<void>(rows(a, 0)), shape_error);
    CHECK_THROWS_AS(static_cast<void>(interop::as_rows(a.data(), std::size_t{1} << 62, 8)), shape_error);
    CHECK_THROWS_AS(static_cast<void>(interop::as_rows(thrust::device_ptr<float>(), 1, 8)), parameter_error);
    CHECK_THROWS_AS(static_cast<void>(rows(a, 3).slice(2, 3)), shape_error);
    CHECK_THROWS_AS(static_cast<void>(rows(a, 3).slice(5, 0)), shape_error);
}

/// Where a device::client would read and write.
struct noting_client {
    struct layout_type {
        std::size_t d = 4;
        std::size_t rank = 2;
    };
    struct workspace {
        const float* staged = nullptr;
        std::size_t count = 0;
        double margin = 0;
        const double* results = nullptr;

        const double* answers() const { return results; }
        std::size_t tokens() const { return count; }
    };
    layout_type layout() const { return {}; }
    void stage_on_device(workspace& work, const float* states, std::size_t tokens,
                         std::span<const std::uint32_t> = {}, double margin = 1) {
        work = {states, tokens, margin, work.results};
    }
};

void check_views_copy_nothing(const device::cuda&) {
    thrust::device_vector<float> states(12);
    const thrust::device_vector<double> products(6, 2.5);
    noting_client client;
    noting_client::workspace work;
    work.results = thrust::raw_pointer_cast(products.data());
    interop::stage(client, work, interop::as_rows(states, 4).slice(1, 2), std::span<const std::uint32_t>(),
                   2.0);
    CHECK(work.staged == thrust::raw_pointer_cast(states.data()) + 4);
    CHECK(work.count == 2);
    CHECK(work.margin == 2.0);
    CHECK(tests::refusal<shape_error>([&] { interop::stage(client, work, interop::as_rows(states, 3)); }) ==
          "interop::stage: got hidden states of 3 entries, expected 4");
    interop::stage(client, work, interop::as_rows(std::as_const(states), 4));
    const auto answers = interop::answers(client, work);
    CHECK(answers.begin() == products.data());
    CHECK(answers.rows == 3);
    CHECK(answers.columns == 2);
    CHECK(answers.end() == products.data() + 6);
}

struct doubled {
    TENSAFE_HOST_DEVICE std::uint32_t operator()(std::uint32_t x) const { return 2 * x; }
};
struct count_up {
    std::uint32_t* to;
    TENSAFE_HOST_DEVICE void operator()(std::uint32_t k) const { to[k] = k + 1; }
};

/// Kernels of ours, Thrust's and copies take turns in one stream.
void check_thrust_keeps_the_order_of_the_stream(const device::cuda& where) {
    auto values = tests::poisoned<std::uint32_t>(where, 100);
    tests::for_each_number(where, 100, count_up{values.data()});
    thrust::transform(interop::execution_policy(where), values.data(), values.data() + 100, values.data(),
                      doubled{});
    const std::vector<std::uint32_t> got = tests::to_host<std::uint32_t>(where, values);
    for (std::uint32_t k = 0; k < 100; ++k) {
        CHECK(got[k] == 2 * (k + 1));
    }
}

/// Nothing allocates or waits: what was recorded groups what is there when it runs.
void check_batches_are_recorded(const device::cuda& where) {
    constexpr std::size_t count = 20;
    const std::vector<float> entries = random_entries(count * 3, 1);
    const thrust::device_vector<float> states(entries.begin(), entries.end());
    thrust::device_vector<float> grouped(states.size());
    thrust::device_vector<float> back(states.size());
    thrust::device_vector<int> adapter_of(count);
    interop::adapter_batches batches(count, 4);
    const auto enqueue = [&](const device::cuda& w) {
        batches.group(w, adapter_of);
        batches.gather(w, interop::as_rows(states, 3), interop::as_rows(grouped, 3));
        batches.scatter(w, interop::as_rows(grouped, 3), interop::as_rows(back, 3));
    };
    enqueue(where);
    where.wait();
    const device::graph recorded = device::capture(where, enqueue);
    CHECK(recorded.kernels() == 4);
    for (const std::uint64_t seed : {1, 2}) {
        const batch requests(count, 4, seed);
        where.upload(std::span<const int>(requests.adapter_of), thrust::raw_pointer_cast(adapter_of.data()));
        recorded.launch(where);
        where.wait();
        CHECK(order_of(where, batches) == requests.order);
        CHECK(batches.segment(2).first == requests.count(0));
        CHECK(to_host(where, back) == entries);
    }
}

}  // namespace

DEVICE_CHECK_SMALL(check_groups_of_any_size(where))
DEVICE_CHECK_SMALL(check_rows_return(where, 1, 1))
DEVICE_CHECK_SMALL(check_rows_return(where, 50, 33))
DEVICE_CHECK(check_rows_return(where, 7, 4096))
DEVICE_CHECK_SMALL(check_segments_return_alone(where))
DEVICE_CHECK_SMALL(check_shapes_are_refused(where))
DEVICE_CHECK_SMALL(check_views_copy_nothing(where))
DEVICE_CHECK_SMALL(check_thrust_keeps_the_order_of_the_stream(where))
DEVICE_CHECK_SMALL(check_batches_are_recorded(where))
