#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/pack_progress.hpp>
#include <tensafe/lora/packing/stored_form.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <string>

namespace tensafe::io {

namespace detail {

/// Stands for any source of stored words in the concept below.
struct any_word_source {
    void operator()(std::span<arith::word>) const {}
};
struct any_word_sink {
    void operator()(std::span<const arith::word>) const {}
};

}  // namespace detail

/// A packed adapter that can be written as words and made from them again: lora::model_server.
///
/// - `options_type`: what else than the adapter decides how it is packed
/// - constructible from (adapter, options, progress): packs
/// - constructible from (from_stored, adapter, options, word_source): takes what `store` wrote for the same
///   adapter and options, checks it as bytes from outside
/// - `store(word_sink)`; `stored_words(adapter, options)`: how many words that writes, from shapes alone
/// - `stored_identity(adapter, options)`: a text that names everything except the contents of the adapter
///   that the words depend on
/// - `bytes_for(adapter, options)`: its memory
template <class Model>
concept storable_model = requires(const Model& model, const lora::adapter& adapter,
                                  const typename Model::options_type& options, detail::any_word_sink sink) {
    model.store(sink);
    { Model::stored_words(adapter, options) } -> std::same_as<std::size_t>;
    { Model::stored_identity(adapter, options) } -> std::same_as<std::string>;
    { Model::bytes_for(adapter, options) } -> std::same_as<std::size_t>;
}
&&std::constructible_from<Model, const lora::adapter&, const typename Model::options_type&,
                          const lora::pack_progress&>&&
    std::constructible_from<Model, lora::from_stored_t, const lora::adapter&,
                            const typename Model::options_type&, detail::any_word_source&>;

}  // namespace tensafe::io
