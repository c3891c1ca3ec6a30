#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/memory/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <thrust/binary_search.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/for_each.h>
#include <thrust/gather.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/permutation_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/scatter.h>
#include <thrust/system_error.h>
#include <type_traits>
#include <utility>

#if THRUST_DEVICE_SYSTEM != THRUST_DEVICE_SYSTEM_CUDA
#error "tensafe/interop/thrust.cuh: thrust::device_vector must be the GPU's; leave THRUST_DEVICE_SYSTEM alone"
#endif

/// Thrust at the library's borders, for .cu files: hidden states and deltas in a thrust::device_vector, no
/// copy; batches by adapter. The hidden states h (tokens x d) and deltas of several adapters:
///
///     interop::adapter_batches batches(tokens, adapters);
///     batches.group(where, adapter_of);
///     batches.gather(where, interop::as_rows(h, d), interop::as_rows(grouped, d));
///     where.wait();
///     const auto [first, count] = batches.segment(a);
///     interop::stage(client, work, interop::as_rows(grouped, d).slice(first, count));
///     ...
///     batches.scatter(where, interop::as_rows(deltas, d_out), interop::as_rows(result, d_out));
///
/// What takes a `where` enqueues, allocates nothing and does not wait: once a kernel has run, it can be
/// recorded. Thrust does not wipe its vectors. A whole program: examples/device/thrust_lora.cu.
namespace tensafe::interop {

/// The policy for Thrust's algorithms: in the order of the stream, without waiting. Those that need temporary
/// memory, as sorts and scans do, allocate, which waits for the GPU.
inline auto execution_policy(const device::cuda& where) {
    return thrust::cuda::par_nosync.on(where.stream);
}

/// Rows on the device, one after the other: hidden states (tokens x d), answers, deltas. A view, valid while
/// the memory is. `begin` and `end` are for Thrust's algorithms.
template <class T>
struct device_rows {
    T* values = nullptr;  ///< the first row, in the GPU's memory
    std::size_t rows = 0;
    std::size_t columns = 0;

    std::size_t size() const noexcept { return rows * columns; }
    thrust::device_ptr<T> begin() const { return thrust::device_pointer_cast(values); }
    thrust::device_ptr<T> end() const { return thrust::device_pointer_cast(values + size()); }

    /// The `count` rows from `first` on.  @throws shape_error unless there are such rows
    device_rows slice(std::size_t first, std::size_t count) const {
        require<shape_error>(first <= rows && count <= rows - first,
                             {"interop::device_rows::slice: got ", count, " rows from row ", first,
                              " on, expected some of ", rows});
        return {values + first * columns, count, columns};
    }
};

/// Rows at a pointer.
/// @throws parameter_error for a null pointer; shape_error if rows * columns passes what fits memory
template <class T>
device_rows<T> as_rows(thrust::device_ptr<T> values, std::size_t rows, std::size_t columns) {
    static_assert(
        std::is_same_v<std::remove_const_t<T>, float> || std::is_same_v<std::remove_const_t<T>, double>,
        "interop::as_rows: the entries must be float or double");
    require<shape_error>(columns == 0 || rows <= static_cast<std::size_t>(-1) / sizeof(T) / columns,
                         {"interop::as_rows: got ", rows, " x ", columns, ", more entries than fit memory"});
    require<parameter_error>(values.get() != nullptr || rows * columns == 0,
                             {"interop::as_rows: got a null pointer for ", rows, " x ", columns, " entries"});
    return {values.get(), rows, columns};
}

/// A vector's entries as whole rows.  @throws shape_error unless they are
template <class T, class Allocator>
device_rows<T> as_rows(thrust::device_vector<T, Allocator>& values, std::size_t columns) {
    require<shape_error>(
        columns != 0 && values.size() % columns == 0,
        {"interop::as_rows: got ", values.size(), " entries, expected whole rows of ", columns});
    return as_rows(values.data(), values.size() / columns, columns);
}
template <class T, class Allocator>
device_rows<const T> as_rows(const thrust::device_vector<T, Allocator>& values, std::size_t columns) {
    const device_rows<T> rows = as_rows(const_cast<thrust::device_vector<T, Allocator>&>(values), columns);
    return {rows.values, rows.rows, rows.columns};
}
template <class T, class Allocator>
void as_rows(const thrust::device_vector<T, Allocator>&&,
             std::size_t) = delete;  // keep the vector in a variable

/// Hands hidden states to a device::client: its stage_on_device, with their shape checked. They are read
/// where they are, until `encrypt` is done.
/// @param more  as for stage_on_device: whose key encrypts each token, overflow margin
/// @throws shape_error unless each has d entries; what stage_on_device throws
template <class Client, class T, class... More>
void stage(Client& client, typename Client::workspace& work, device_rows<T> states, More&&... more) {
    static_assert(
        std::is_same_v<std::remove_const_t<T>, float>,
        "interop::stage: device::client takes hidden states of float; round them into such a vector first");
    require<shape_error>(
        states.columns == client.layout().d,
        {"interop::stage: got hidden states of ", states.columns, " entries, expected ", client.layout().d});
    client.stage_on_device(work, states.values, states.rows, std::forward<More>(more)...);
}

/// The answers where a device::client wrote them, tokens x rank: after `decrypt`, until the next one.
template <class Client>
device_rows<const double> answers(const Client& client, const typename Client::workspace& work) {
    return {work.answers(), work.tokens(), client.layout().rank};
}

namespace detail {

/// Puts request i in its place when all are in the order of their adapters: after those of earlier
/// adapters, and after those of its own that came before it.
struct put_in_order {
    const int* adapter_of;
    int requests;
    int* order;

    TENSAFE_HOST_DEVICE void operator()(int i) const {
        const int own = adapter_of[i];
        int place = 0;
        for (int k = 0; k < i; ++k) {
            place += adapter_of[k] <= own ? 1 : 0;
        }
        for (int k = i + 1; k < requests; ++k) {
            place += adapter_of[k] < own ? 1 : 0;
        }
        order[place] = i;
    }
};

/// The entry of rows in the order of requests that entry k of grouped rows is.
struct entry_of_request {
    const int* order;
    std::size_t columns;

    TENSAFE_HOST_DEVICE std::size_t operator()(std::size_t k) const {
        return static_cast<std::size_t>(order[k / columns]) * columns + k % columns;
    }
};

/// The places of all entries of grouped rows among those of the requests.
inline auto entries(const int* order, std::size_t columns) {
    return thrust::make_transform_iterator(thrust::counting_iterator<std::size_t>(0),
                                           entry_of_request{order, columns});
}

}  // namespace detail

/// Groups the requests of a batch by adapter, in the order in which they came within each. Memory of one
/// stream of batches. Between `group` and the end of the work leave it alone. Grouping compares all pairs of
/// requests, without the temporary memory of a sort: for batches of some thousands.
class adapter_batches {
  public:
    static constexpr std::size_t most_requests = 65536;

    /// The places of an adapter's requests when they are grouped.
    struct range {
        std::size_t first = 0;
        std::size_t count = 0;
    };

    /// Makes room for batches.
    /// @param largest  requests of a batch
    /// @throws shape_error beyond most_requests, or for more adapters than an int counts; device_error
    adapter_batches(std::size_t largest, std::size_t adapters) {
        require<shape_error>(largest <= most_requests && adapters < 0x7fffffff,
                             {"interop::adapter_batches: got ", largest, " requests of ", adapters,
                              " adapters, expected at most ", most_requests, " of 2^31 - 2"});
        order_ = device::device_buffer<int>(largest, memory::uninitialized);
        offsets_ = device::device_buffer<int>(adapters + 1, memory::uninitialized);
        host_offsets_ = device::pinned_buffer<int>(adapters + 1);
        std::fill_n(host_offsets_.data(), adapters + 1, -1);
    }

    std::size_t adapters() const noexcept { return offsets_.size() - 1; }
    std::size_t requests() const noexcept { return requests_; }

    /// Enqueues the grouping: two launches and a download.
    /// @param adapter_of  each request's adapter, unchanged until that is done; a number that is none shows
    ///                    at `segment`
    /// @throws shape_error for more requests than there is room for; device_error
    template <class Allocator>
    void group(const device::cuda& where, const thrust::device_vector<int, Allocator>& adapter_of) {
        require<shape_error>(adapter_of.size() <= order_.size(),
                             {"interop::adapter_batches::group: got ", adapter_of.size(),
                              " requests, expected at most ", order_.size()});
        requests_ = adapter_of.size();
        std::fill_n(host_offsets_.data(), host_offsets_.size(), -1);
        const auto count = static_cast<int>(requests_);
        const int* const numbers = thrust::raw_pointer_cast(adapter_of.data());
        const thrust::counting_iterator<int> from_zero(0);
        const auto grouped = thrust::make_permutation_iterator(numbers, std::as_const(order_).data());
        enqueue(where, [&](const auto& policy) {
            thrust::for_each_n(policy, from_zero, count, detail::put_in_order{numbers, count, order_.data()});
        });
        enqueue(where, [&](const auto& policy) {
            thrust::lower_bound(policy, grouped, grouped + count, from_zero,
                                from_zero + static_cast<int>(offsets_.size()), offsets_.data());
        });
        where.download(std::as_const(offsets_).data(), host_offsets_.span());
    }
    template <class Allocator>
    void group(const device::cuda&,
               const thrust::device_vector<int, Allocator>&&) = delete;  // keep it in a variable

    /// The adapter's requests, after `group` and `where.wait()`.
    /// @throws parameter_error if there is no such adapter, or a number of the batch is none; before: error
    range segment(std::size_t adapter) const {
        require<parameter_error>(adapter < adapters(), {"interop::adapter_batches: got adapter ", adapter,
                                                        ", expected less than ", adapters()});
        const int all = host_offsets_[adapters()];
        require<error>(
            all >= 0,
            {"interop::adapter_batches: the batch is not grouped yet; call group() and where.wait()"});
        const std::size_t strangers = requests_ - static_cast<std::size_t>(all - host_offsets_[0]);
        require<parameter_error>(
            strangers == 0,
            {"interop::adapter_batches: got ", strangers, " of ", requests_,
             " requests for an adapter that does not exist, expected numbers from 0 to ", adapters() - 1});
        const auto first = static_cast<std::size_t>(host_offsets_[adapter]);
        return {first, static_cast<std::size_t>(host_offsets_[adapter + 1]) - first};
    }

    /// The request that stands at each place, on the device, after `group`.
    thrust::device_ptr<const int> order() const { return thrust::device_pointer_cast(order_.data()); }

    /// Enqueues one launch that gathers: row k of `to` is that of the request at place k.
    /// @throws shape_error unless both have a row for each request, of equal length; parameter_error if they
    ///         are the same memory; device_error
    template <class From, class To>
    void gather(const device::cuda& where, device_rows<From> from, device_rows<To> to) const {
        check("gather", from, to, to.rows == requests_ && from.rows == requests_);
        enqueue(where, [&](const auto& policy) {
            const auto map = detail::entries(order_.data(), to.columns);
            thrust::gather(policy, map, map + static_cast<std::ptrdiff_t>(to.size()), from.begin(),
                           to.begin());
        });
    }

    /// Enqueues one launch that scatters: row k of `from`, at place first + k, goes to its request: rows of a
    /// whole batch, or of a segment alone.
    /// @throws shape_error unless `to` has a row for each request and `from` for some, of equal length;
    ///         parameter_error if they are the same memory; device_error
    template <class From, class To>
    void scatter(const device::cuda& where, device_rows<From> from, device_rows<To> to,
                 std::size_t first = 0) const {
        check("scatter", from, to,
              to.rows == requests_ && first <= requests_ && from.rows <= requests_ - first);
        enqueue(where, [&](const auto& policy) {
            thrust::scatter(policy, from.begin(), from.end(),
                            detail::entries(order_.data() + first, to.columns), to.begin());
        });
    }

  private:
    template <class From, class To>
    void check(const char* what, const device_rows<From>& from, const device_rows<To>& to, bool fits) const {
        require<shape_error>(fits && from.columns == to.columns,
                             {"interop::adapter_batches::", what, ": got ", from.rows, " rows of ",
                              from.columns, " entries and room for ", to.rows, " of ", to.columns,
                              ", expected equal rows, of the ", requests_, " requests"});
        require<parameter_error>(
            static_cast<const void*>(from.values) != to.values || from.size() == 0,
            {"interop::adapter_batches::", what, ": got one memory for both, expected two"});
    }
    template <class F>
    static void enqueue(const device::cuda& where, F&& f) {
        if (where.launches != nullptr) {
            ++*where.launches;
        }
        try {
            f(execution_policy(where));
        } catch (const thrust::system_error& e) {
            static_cast<void>(cudaGetLastError());
            throw device_error({"interop::adapter_batches: ", e.what()});
        }
    }

    device::pinned_buffer<int> host_offsets_;  // released last: the release of the others waits for downloads
    device::device_buffer<int> order_;
    device::device_buffer<int> offsets_;
    std::size_t requests_ = 0;
};

}  // namespace tensafe::interop
