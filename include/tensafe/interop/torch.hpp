#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/real.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/half.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <torch/types.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <vector>

/// Shows libtorch's tensors to the library. `as_...` are views: no copy, valid while the memory they show is;
/// `to_...` copy. A whole encrypted token with `at::Tensor h` of shape [d]:
///
///     const auto query = client.encrypt(here, place.group, interop::as_span(h));
///     ...
///     const at::Tensor delta = interop::to_tensor(deltas[place.site], h.scalar_type());
///
/// Batches, and tensors of 16 bits: hidden_states. Tensors lie in the CPU's memory; nothing is converted or
/// copied to there unasked. Reading a tensor that requires a gradient is fine; results carry none.
///
/// The namespace is not called torch, which would hide libtorch's from whoever writes `using namespace
/// tensafe`. All functions are thread-safe for reading, as libtorch is, and cost O(1) unless they copy. A new
/// tensor for which libtorch finds no memory is a c10::Error.
namespace tensafe::interop {

namespace detail {

/// Throws "who: got a tensor of Half, shape [2, 3], expected ..." unless `holds`.
template <class Error>
void require_tensor(bool holds, const char* who, const at::Tensor& t,
                    std::initializer_list<text_part> expected) {
    if (!holds) {
        throw Error({who, ": got a tensor of ", at::toString(t.scalar_type()), ", shape ",
                     shape_text(t.sizes()), ", expected ", text_of(expected)});
    }
}

/// Whether the storage holds every entry. libtorch lets it be made smaller under a tensor.
/// @pre a tensor with strides and a storage
inline bool is_within_storage(const at::Tensor& t) {
    if (t.numel() == 0) {
        return true;
    }
    if (t.storage().data() == nullptr) {
        return false;
    }
    // By subtraction, so that nothing can overflow.
    auto left = static_cast<std::int64_t>(t.storage().nbytes() / t.itemsize()) - t.storage_offset() - 1;
    for (std::int64_t k = 0; k < t.dim() && left >= 0; ++k) {
        const std::int64_t steps = t.size(k) - 1;
        const std::int64_t stride = t.stride(k);
        left = steps == 0 || stride == 0 ? left : steps > left / stride ? -1 : left - steps * stride;
    }
    return left >= 0;
}

/// Refuses all but a dense tensor of real numbers in the CPU's memory. O(dimensions).
inline void check_memory(const char* who, const at::Tensor& t) {
    const auto expect = [who](bool holds, text_part what) {
        require<unsupported_error>(holds, {who, ": ", what});
    };
    require<parameter_error>(t.defined(), {who, ": got an undefined tensor, expected one with values"});
    require<unsupported_error>(t.device().is_cpu(),
                               {who, ": got a tensor on the device ", t.device().str(),
                                ", expected one on the CPU; copy it to the CPU first: x.to(torch::kCPU)"});
    expect(!t.is_nested(),
           "got a nested tensor, expected a dense one; take its tensors one by one: x.unbind()");
    expect(t.layout() == at::kStrided,
           "got a tensor without strides (sparse or mkldnn), expected a dense one; call x.to_dense()");
    expect(!t.is_quantized(), "got a quantised tensor, expected real numbers; call x.dequantize()");
    expect(!t.is_complex(), "got a complex tensor, expected real numbers; call torch::real(x)");
    expect(!t.is_neg(),
           "got a tensor that is to be negated when read, expected plain memory; call x.resolve_neg()");
    expect(t.has_storage() && is_within_storage(t),
           "got a tensor without memory for all its entries (zeros that are none, inside of vmap, or a "
           "storage that was made smaller), expected one that has it; call x.clone() while it is whole");
}

inline bool is_readable(at::ScalarType type) noexcept {
    return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

/// Checks the values.  @throws as check_memory; unsupported_error unless each is a float
inline void check_values(const char* who, const at::Tensor& t) {
    check_memory(who, t);
    require_tensor<unsupported_error>(is_readable(t.scalar_type()), who, t,
                                      {"Float, Half or BFloat16; round or convert it: x.to(torch::kFloat)"});
}

/// Widens `count` values, `stride` apart. Exact.  @pre check_values
inline void widen(const at::Tensor& t, std::int64_t first, std::int64_t stride, std::size_t count,
                  float* out) {
    const auto copy = [&](const auto* from, auto&& value_of) {
        for (std::size_t k = 0; k < count; ++k) {
            out[k] = value_of(from[first + static_cast<std::int64_t>(k) * stride]);
        }
    };
    if (t.scalar_type() == at::kFloat) {
        copy(t.data_ptr<float>(), [](float x) { return x; });
    } else if (t.scalar_type() == at::kHalf) {
        copy(t.data_ptr<at::Half>(), [](at::Half x) { return io::float_from_half(x.x); });
    } else {
        copy(t.data_ptr<at::BFloat16>(), [](at::BFloat16 x) { return io::float_from_bfloat16(x.x); });
    }
}

/// Rounds values to those of the tensor's type, once, to nearest, ties to even, and writes them at its place
/// `first`.  @pre contiguous, of a type that to_tensor takes, with room
/// @throws encoding_error, naming the entry but not its value, unless the rounded value is finite
inline void write_rounded(const char* who, std::span<const double> values, const at::Tensor& t,
                          std::size_t first) {
    const auto write = [&]<class T>(T* out, T (*rounded)(double)) {
        for (std::size_t k = 0; k < values.size(); ++k) {
            out[first + k] = rounded(values[k]);
            if (!std::isfinite(static_cast<double>(out[first + k]))) {
                // Without the value: messages end up in logs, and this was decrypted.
                const bool is_no_number = !std::isfinite(values[k]);
                throw encoding_error({who, ": entry ", k,
                                      is_no_number ? " is not finite" : " is too large for ",
                                      is_no_number ? "" : at::toString(t.scalar_type())});
            }
        }
    };
    switch (t.scalar_type()) {
        case at::kDouble:
            return write.operator()<double>(t.data_ptr<double>(), [](double x) { return x; });
        case at::kFloat:
            return write.operator()<float>(t.data_ptr<float>(),
                                           [](double x) { return static_cast<float>(x); });
        case at::kHalf:
            return write.operator()<at::Half>(t.data_ptr<at::Half>(), [](double x) {
                return at::Half(io::half_from_double(x), at::Half::from_bits());
            });
        default:
            return write.operator()<at::BFloat16>(t.data_ptr<at::BFloat16>(), [](double x) {
                return at::BFloat16(io::bfloat16_from_double(x), at::BFloat16::from_bits());
            });
    }
}

/// Replaces values beyond the type's largest number by it, those below its negative by that, and NaN too.
inline std::size_t clamp_to_type(std::span<double> values, at::ScalarType type) {
    const double largest = type == at::kHalf       ? 65504
                           : type == at::kBFloat16 ? 0x1.fep127
                           : type == at::kFloat    ? static_cast<double>(std::numeric_limits<float>::max())
                                                   : std::numeric_limits<double>::max();
    std::size_t clamped = 0;
    for (double& x : values) {
        const double inside = std::fmin(std::fmax(x, -largest), largest);
        clamped += static_cast<std::size_t>(!(inside == x));
        x = type == at::kDouble ? inside : flushed(inside);
    }
    return clamped;
}

/// Makes a tensor without values and without a gradient.
/// @throws unsupported_error for a type that write_rounded does not know
inline at::Tensor make_tensor(const char* who, at::IntArrayRef sizes, at::ScalarType type) {
    require<unsupported_error>(
        is_readable(type) || type == at::kDouble,
        {who, ": got the type ", at::toString(type), ", expected Double, Float, Half or BFloat16"});
    return at::empty(sizes, at::TensorOptions(type).device(at::kCPU));
}

inline at::Tensor view_of(const float* values, at::IntArrayRef sizes) {
    // libtorch has no tensors of constants.
    return at::from_blob(const_cast<float*>(values), sizes, at::kFloat);
}

}  // namespace detail

/// The entries of a vector: a Float tensor of one dimension, the entries next to each other. Valid as long as
/// the tensor's memory is, and until it is resized.
/// @throws shape_error, unsupported_error or parameter_error, saying what to call, for any other
inline std::span<const float> as_span(const at::Tensor& vector) {
    constexpr const char* who = "interop::as_span";
    detail::check_memory(who, vector);
    detail::require_tensor<unsupported_error>(
        vector.scalar_type() == at::kFloat, who, vector,
        {"Float; ",
         (detail::is_readable(vector.scalar_type()) ? "to widen it, which is exact, use to_vector(x), or "
                                                      "hidden_states states(x); states.row(0, space)"
                                                    : "round or convert it: x.to(torch::kFloat)")});
    detail::require_tensor<shape_error>(
        vector.dim() == 1, who, vector,
        {"one dimension; use hidden_states states(x); states.row(i, space), or x.flatten() in a variable"});
    detail::require_tensor<shape_error>(vector.size(0) <= 1 || vector.stride(0) == 1, who, vector,
                                        {"entries next to each other, not ", vector.stride(0),
                                         " apart; keep x.contiguous() in a variable, or use to_vector(x)"});
    return {vector.data_ptr<float>(), static_cast<std::size_t>(vector.size(0))};
}
void as_span(const at::Tensor&&) = delete;  // keep the tensor in a variable: the view does not own it

/// Copies the entries of a vector, whatever their stride: Float, Half or BFloat16, widened exactly. O(size).
/// @throws shape_error, unsupported_error or parameter_error for any other tensor; std::bad_alloc
inline std::vector<float> to_vector(const at::Tensor& vector) {
    constexpr const char* who = "interop::to_vector";
    detail::check_values(who, vector);
    detail::require_tensor<shape_error>(vector.dim() == 1, who, vector,
                                        {"one dimension; use hidden_states, or x.flatten()"});
    std::vector<float> result(static_cast<std::size_t>(vector.size(0)));
    detail::widen(vector, 0, vector.stride(0), result.size(), result.data());
    return result;
}

/// The rows of a tensor of shape [..., d], one for each place in front of the last dimension, in row-major
/// order: of [batch, tokens, d], row b * tokens + t. Float, Half or BFloat16; any strides, also those of 0
/// that expand() makes; no rows at all, too.
///
/// Holds the tensor, so that the memory stays, and the shape that it had. Later changes of its values show.
class hidden_states {
  public:
    /// Shows the rows of a tensor.
    /// @throws shape_error for a tensor without dimensions or with a last one of 0, unsupported_error or
    ///         parameter_error for one that cannot be read as it is; the message says what to call
    explicit hidden_states(const at::Tensor& x) {
        constexpr const char* who = "interop::hidden_states";
        detail::check_values(who, x);
        detail::require_tensor<shape_error>(x.dim() != 0 && x.size(-1) != 0, who, x,
                                            {"[..., d] with at least one entry in the last dimension"});
        x_ = x.detach();  // the same memory under a shape that the caller cannot change
        d_ = static_cast<std::size_t>(x.size(-1));
        count_ = static_cast<std::size_t>(x.numel()) / d_;
    }

    std::size_t count() const noexcept { return count_; }  ///< rows; 1 for a tensor of one dimension
    std::size_t d() const noexcept { return d_; }          ///< entries of a row

    /// Row i. Where its entries are floats next to each other it is the tensor's own memory, and `space` is
    /// not touched; else they are widened into `space`. Valid as long as this object and `space` are, and the
    /// tensor's memory is not resized. Threads need a `space` each.
    /// @throws shape_error if there is no such row; std::bad_alloc
    std::span<const float> row(std::size_t i, std::vector<float>& space) const& {
        if (i >= count_) {
            throw shape_error({"interop::hidden_states::row: got row ", i, ", expected one of the ", count_,
                               " of a tensor of shape ", shape_text(x_.sizes())});
        }
        std::int64_t first = 0;
        auto rest = static_cast<std::int64_t>(i);
        for (std::int64_t k = x_.dim() - 2; k >= 0; --k) {
            first += rest % x_.size(k) * x_.stride(k);
            rest /= x_.size(k);
        }
        const std::int64_t stride = x_.stride(-1);
        if (x_.scalar_type() == at::kFloat && (stride == 1 || d_ == 1)) {
            return {x_.data_ptr<float>() + first, d_};
        }
        space.resize(d_);
        detail::widen(x_, first, stride, d_, space.data());
        return space;
    }
    void row(std::size_t i, std::vector<float>& space) const&& = delete;  // keep the object in a variable
    void row(std::size_t i, std::vector<float>&& space) const = delete;   // the row lies there

  private:
    at::Tensor x_;
    std::size_t count_ = 0;
    std::size_t d_ = 0;
};

/// A Float tensor of shape [size] that shows these values. For reading: libtorch cannot refuse to write.
inline at::Tensor as_tensor(std::span<const float> values) {
    return detail::view_of(values.data(), {static_cast<std::int64_t>(values.size())});
}
void as_tensor(const std::vector<float>&&) = delete;  // keep the values in a variable, or copy them

/// A lora::matrix as a Float tensor of shape [rows, columns], to read or, if it is not const, to write:
/// `as_tensor(site.a).copy_(a);`
/// @throws shape_error if the number of values is not rows * columns
inline at::Tensor as_tensor(const lora::matrix& m) {
    m.check("interop::as_tensor");
    return detail::view_of(m.values.data(),
                           {static_cast<std::int64_t>(m.rows), static_cast<std::int64_t>(m.columns)});
}
inline at::Tensor as_tensor(lora::matrix& m) {
    return as_tensor(static_cast<const lora::matrix&>(m));
}
void as_tensor(const lora::matrix&&) = delete;  // keep the matrix in a variable: the view does not own it

/// Copies a tensor of two dimensions to a lora::matrix: Float, Half or BFloat16, any strides, exactly.
/// O(size).
/// @throws shape_error, unsupported_error or parameter_error for any other tensor; std::bad_alloc
inline lora::matrix to_matrix(const at::Tensor& t) {
    constexpr const char* who = "interop::to_matrix";
    detail::check_values(who, t);
    detail::require_tensor<shape_error>(t.dim() == 2, who, t, {"two dimensions"});
    lora::matrix result(static_cast<std::size_t>(t.size(0)), static_cast<std::size_t>(t.size(1)));
    for (std::size_t r = 0; r < result.rows; ++r) {
        detail::widen(t, static_cast<std::int64_t>(r) * t.stride(0), t.stride(1), result.columns,
                      result.values.data() + r * result.columns);
    }
    return result;
}

/// Decrypted products and deltas as a tensor of shape [size], Float, Half, BFloat16 or Double: each rounded
/// once, to nearest, ties to even. O(size).
/// @throws encoding_error, naming the entry, for one that would be infinite or is no number;
///         unsupported_error for another type; c10::Error if libtorch finds no memory
inline at::Tensor to_tensor(std::span<const double> values, at::ScalarType type = at::kFloat) {
    constexpr const char* who = "interop::to_tensor";
    at::Tensor result = detail::make_tensor(who, {static_cast<std::int64_t>(values.size())}, type);
    detail::write_rounded(who, values, result, 0);
    return result;
}

}  // namespace tensafe::interop
