#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/interop/torch.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/io/safetensors_header.hpp>

#include <ATen/MemoryOverlap.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Safetensors files from and to tensors and modules. Values of F64, F32, F16 and BF16; each function copies.
namespace tensafe::interop {

namespace detail {

inline at::ScalarType scalar_type_of(io::dtype type, const std::string& where) {
    switch (type) {
        case io::dtype::f64:
            return at::kDouble;
        case io::dtype::f32:
            return at::kFloat;
        case io::dtype::f16:
            return at::kHalf;
        case io::dtype::bf16:
            return at::kBFloat16;
        default:
            throw unsupported_error(
                {where, ": got values of type ", io::dtype_name(type), ", expected F64, F32, F16 or BF16"});
    }
}

/// Whether all values of `from` are values of `to`.
inline bool holds_exactly(at::ScalarType from, at::ScalarType to) noexcept {
    return from == to || to == at::kDouble || (to == at::kFloat && is_readable(from));
}

inline std::vector<std::int64_t> sizes_of(const io::tensor_info& stored, const std::string& where) {
    std::vector<std::int64_t> sizes;
    for (const std::size_t n : stored.shape) {
        if (!std::in_range<std::int64_t>(n)) {  // legal in a tensor without values
            throw shape_error({where, ": got a dimension of ", n, ", expected less than 2^63"});
        }
        sizes.push_back(static_cast<std::int64_t>(n));
    }
    return sizes;
}

/// The type and shape of a file's tensor for libtorch, by the header: decodes nothing.
struct stored_form {
    at::ScalarType type;
    std::vector<std::int64_t> sizes;
};

/// @throws format_error, unsupported_error or shape_error, as to_tensor
inline stored_form form_of(const io::safetensors_file& file, std::string_view name,
                           const std::string& where) {
    const io::tensor_info* stored = file.find(name);
    require<format_error>(stored != nullptr, {where, ": is none of its ", file.tensors().size()});
    return {scalar_type_of(stored->type, where), sizes_of(*stored, where)};
}

/// The parameters and buffers by name, in libtorch's order.
inline std::vector<std::pair<std::string, at::Tensor>> named_values(const torch::nn::Module& module) {
    std::vector<std::pair<std::string, at::Tensor>> result;
    for (const auto& list : {module.named_parameters(), module.named_buffers()}) {
        for (const auto& item : list) {
            result.emplace_back(item.key(), item.value());
        }
    }
    return result;
}

}  // namespace detail

/// Reads a tensor of a file, in the shape and the type that it is stored in.
/// @throws format_error if there is none of this name, or a value is not finite; unsupported_error for other
///         types; shape_error for a dimension beyond 2^63; std::bad_alloc or c10::Error without memory
inline at::Tensor to_tensor(const io::safetensors_file& file, std::string_view name) {
    const detail::stored_form form =
        detail::form_of(file, name, file.quoted_name() + ": tensor " + quote(name));
    return to_tensor(file.read_doubles(name), form.type).reshape(form.sizes);
}

/// Adds a tensor to a file that is being written: Double, Float, Half or BFloat16 on the CPU, any strides,
/// each value rounded to `type`, to nearest, ties to even. A requirement of gradients is not written.
/// @throws unsupported_error or parameter_error for a tensor that cannot be read as it is; as
///         safetensors_writer::add, which refuses what is not finite; the writer is then as it was
inline void add_tensor(io::safetensors_writer& writer, std::string_view name, const at::Tensor& t,
                       io::dtype type) {
    if (t.scalar_type() == at::kDouble) {
        detail::check_memory("interop::add_tensor", t);
    } else {
        detail::check_values("interop::add_tensor", t);
    }
    const at::Tensor doubles = t.detach().to(at::kDouble).contiguous();  // exact
    std::vector<std::size_t> shape;
    for (const std::int64_t n : t.sizes()) {
        shape.push_back(static_cast<std::size_t>(n));
    }
    writer.add(name, type, std::move(shape),
               {doubles.data_ptr<double>(), static_cast<std::size_t>(doubles.numel())});
}

/// Adds all parameters and buffers of a module under their names, as add_tensor does.
/// @throws as add_tensor; the writer may hold some of them then
inline void add_parameters(io::safetensors_writer& writer, const torch::nn::Module& module, io::dtype type) {
    for (const auto& [name, value] : detail::named_values(module)) {
        add_tensor(writer, name, value, type);
    }
}

/// Sets all parameters and buffers of a module to the tensors of their names. Exact: a parameter's type must
/// hold all values of the stored one, as Float does of F32, F16 and BF16. Needs no torch::NoGradGuard. Names,
/// shapes and types are compared before any value is decoded. One tensor under two names gets the values of
/// the last.
/// @throws format_error if the file does not hold exactly these names, with these shapes and finite values;
///         unsupported_error if a type does not hold the stored one, or a parameter is not on the CPU or
///         cannot be written (an expanded one, one of inference mode); std::bad_alloc or c10::Error without
///         memory; shape_error for a dimension beyond 2^63. The module is then as it was
inline void load_parameters(torch::nn::Module& module, const io::safetensors_file& file) {
    const auto values = detail::named_values(module);
    for (const auto& [name, value] : values) {
        const std::string where = file.quoted_name() + ": tensor " + quote(name);
        detail::check_memory(where.c_str(), value);
        require<unsupported_error>(at::has_internal_overlap(value) != at::MemOverlap::Yes &&
                                       (!value.is_inference() || c10::InferenceMode::is_enabled()),
                                   {where,
                                    ": the module's tensor is expanded or of inference mode, expected one "
                                    "that can be written; put its clone() into the module"});
        const detail::stored_form form = detail::form_of(file, name, where);
        require<format_error>(form.sizes == value.sizes(),
                              {where, ": got shape ", shape_text(form.sizes), ", expected ",
                               shape_text(value.sizes()), " as the module has it"});
        require<unsupported_error>(
            detail::holds_exactly(form.type, value.scalar_type()),
            {where, ": got values of ", at::toString(form.type), ", which the module's ",
             at::toString(value.scalar_type()), " do not hold exactly; call module.to(torch::kFloat) first"});
    }
    if (file.tensors().size() != values.size()) {  // names are unique on both sides
        for (const io::tensor_info& stored : file.tensors()) {
            require<format_error>(std::any_of(values.begin(), values.end(),
                                              [&](const auto& v) { return v.first == stored.name; }),
                                  {file.quoted_name(), ": tensor ", in_quotes(stored.name),
                                   " is no parameter or buffer of the module"});
        }
    }
    std::vector<at::Tensor> loaded;
    for (const auto& [name, value] : values) {
        loaded.push_back(to_tensor(file, name));
    }
    const at::NoGradGuard no_gradient;
    for (std::size_t i = 0; i < values.size(); ++i) {
        at::Tensor value = values[i].second;
        value.copy_(loaded[i]);
    }
}

}  // namespace tensafe::interop
