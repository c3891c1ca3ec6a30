#pragma once

#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/pack_progress.hpp>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace tensafe::serving {

/// What an adapter is packed into: immutable, thread-safe, and it knows the bytes of memory that it takes.
template <class Model>
concept packed_model = requires(const Model& model) {
    { model.bytes() } -> std::convertible_to<std::size_t>;
};

/// How a registry packs adapters. Both members are called from several threads at once, for different
/// adapters.
template <packed_model Model>
struct packer {
    /// The packed form; not null. May take seconds. Whatever it throws reaches who asked for the packing.
    std::function<std::shared_ptr<const Model>(const lora::adapter&, const lora::pack_progress&)> pack;
    /// The bytes that `pack` will need, known before packing.
    std::function<std::size_t(const lora::adapter&)> bytes_for;
};

/// Packs with Model's constructor, Model(adapter, options, progress), and asks Model::bytes_for(adapter,
/// options): pack_with<lora::model_server<params>>(lora::model_options{...}).
template <packed_model Model, class Options>
packer<Model> pack_with(Options options) {
    return {[options](const lora::adapter& matrices, const lora::pack_progress& progress) {
                return std::make_shared<const Model>(matrices, options, progress);
            },
            [options](const lora::adapter& matrices) -> std::size_t {
                return Model::bytes_for(matrices, options);
            }};
}

/// The same with Model's default options.
template <packed_model Model>
packer<Model> pack_with() {
    return {[](const lora::adapter& matrices, const lora::pack_progress& progress) {
                return std::shared_ptr<const Model>(new Model(matrices, {}, progress));
            },
            [](const lora::adapter& matrices) -> std::size_t { return Model::bytes_for(matrices, {}); }};
}

}  // namespace tensafe::serving
