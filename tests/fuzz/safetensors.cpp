// io/safetensors.hpp: a whole file.

#include <tensafe/io/safetensors.hpp>

#include "target.hpp"

namespace {

using tensafe::io::safetensors_file;
using tensafe::io::safetensors_writer;
using tensafe::io::tensor_info;

bool same_rows(const tensor_info& a, const tensor_info& b) {
    return a.name == b.name && a.type == b.type && a.shape == b.shape && a.begin == b.begin && a.end == b.end;
}

/// The tensors lie side by side, and each is found under its name.
void checksum_rows(const safetensors_file& file, std::size_t input_bytes) {
    std::size_t covered = 0;
    for (const tensor_info& tensor : file.tensors()) {
        fuzz::holds(tensor.begin == covered && tensor.end >= tensor.begin, "tensors tile the data");
        covered = tensor.end;
        std::size_t size = 1;
        for (const std::size_t dimension : tensor.shape) {
            size *= dimension;  // wraps only if a later dimension is zero
        }
        fuzz::holds(tensor.size() == size, "a shape has as many elements as its bytes");
        fuzz::holds(file.find(tensor.name) == &tensor, "a tensor is found under its name");
    }
    fuzz::holds(covered <= input_bytes, "tensors lie within the file");
}

}  // namespace

TENSAFE_FUZZ_TARGET(safetensors) {
    const fuzz::memory_limit limit(200 * input.size() + 100'000);
    const std::span<const std::byte> bytes = std::as_bytes(input);
    const auto file = fuzz::read_or_refuse([&] { return safetensors_file::parse(bytes, "file"); });
    const auto adopted = fuzz::read_or_refuse(
        [&] { return safetensors_file::adopt(std::vector<std::byte>(bytes.begin(), bytes.end()), "file"); });
    fuzz::holds(file.has_value() == adopted.has_value(), "parse and adopt agree");
    if (!file) {
        return;
    }
    fuzz::took();
    checksum_rows(*file, input.size());
    fuzz::holds(std::equal(file->tensors().begin(), file->tensors().end(), adopted->tensors().begin(),
                           adopted->tensors().end(), same_rows),
                "parse and adopt read the same tensors");

    safetensors_writer writer;
    bool all_written = true;
    for (const tensor_info& tensor : file->tensors()) {
        const auto values = fuzz::read_or_refuse([&] { return file->read_doubles(tensor.name); });
        const auto matrix = fuzz::read_or_refuse([&] { return adopted->read_matrix(tensor.name); });
        if (!values) {
            fuzz::holds(!matrix, "a tensor without numbers is no matrix");
            all_written = false;
            continue;
        }
        fuzz::holds(std::all_of(values->begin(), values->end(), [](double x) { return std::isfinite(x); }),
                    "numbers are finite");
        if (matrix) {
            fuzz::holds(matrix->values.size() == values->size() &&
                            std::equal(values->begin(), values->end(), matrix->values.begin(),
                                       [](double x, float y) { return static_cast<float>(x) == y; }),
                        "a matrix has the tensor's numbers");
        }
        writer.add(tensor.name, tensor.type, tensor.shape, *values);
    }
    if (!all_written) {
        return;
    }
    // Numbers of a type are written in that type as they were: the same data, though not the same header.
    const std::vector<std::byte> written = writer.bytes();
    const safetensors_file again = safetensors_file::parse(written, "written");
    fuzz::holds(std::equal(file->tensors().begin(), file->tensors().end(), again.tensors().begin(),
                           again.tensors().end(), same_rows),
                "what is written again has the same tensors");
    const std::size_t data = file->tensors().empty() ? 0 : file->tensors().back().end;
    fuzz::holds(std::equal(bytes.end() - static_cast<std::ptrdiff_t>(data), bytes.end(),
                           written.end() - static_cast<std::ptrdiff_t>(data), written.end()),
                "what is written again has the same data");
}
