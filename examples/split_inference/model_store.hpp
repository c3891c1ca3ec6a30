#pragma once

#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/pack_progress.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/serving/meter.hpp>
#include <tensafe/wire/message.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// All computing of the server, behind an interface without templates: what includes this compiles in a
// second.

namespace split {

using shared_message = std::shared_ptr<const std::vector<std::uint8_t>>;

/// One version of an adapter, packed, with the messages that open a session. As long as somebody holds it,
/// it stays whole, whatever is loaded or removed. Immutable and thread-safe.
class served_model {
  public:
    virtual ~served_model() = default;
    virtual const std::string& name() const noexcept = 0;
    virtual std::uint64_t version() const noexcept = 0;
    virtual std::size_t groups() const noexcept = 0;
    virtual std::size_t shortest_state() const noexcept = 0;  ///< entries of its shortest hidden state
    /// Of the longest request, in bytes.
    virtual std::size_t largest_request() const noexcept = 0;
    virtual shared_message layout_message() const = 0;
    /// What a client holds, B and scales: as large as the B of the adapter.
    virtual shared_message held_message() const = 0;
    /// The same two as frames of JSON: encoded once, when the first client asks for them.
    virtual shared_message layout_text() const = 0;
    virtual shared_message held_text() const = 0;
};

/// Answers the requests of one session: holds its version of the adapter, its re-randomization key and the
/// encryptions of zero made ahead. Thread-safe.
class session_evaluator {
  public:
    virtual ~session_evaluator() = default;

    /// Answers a request in the working memory of the calling thread.
    /// @param message  its bytes
    /// @param to       the reply's message; keeps its memory
    /// @throws tensafe::parameter_error for another parameter set; format_error, shape_error for what is
    ///         malformed
    virtual tensafe::serving::usage answer(std::span<const std::uint8_t> message,
                                           const tensafe::wire::header& header,
                                           std::vector<std::uint8_t>& to) = 0;
    /// Makes one encryption of zero for the group that probably comes next, if it has fewer than it needs
    /// and fewer than `most` are stored. Whether one was made.
    virtual bool fill_pool(std::size_t most) = 0;
    virtual std::size_t pool_size() const = 0;
    virtual const served_model& model() const noexcept = 0;
};

struct store_entry {
    std::string name;
    std::uint64_t version = 0;
    std::string state;
    std::size_t bytes = 0;
    std::size_t handles = 0;
};

/// The adapters that are served. Thread-safe.
class model_store {
  public:
    model_store();
    ~model_store();
    model_store(const model_store&) = delete;
    model_store& operator=(const model_store&) = delete;

    /// Loads and packs on the calling thread, and makes the messages; later find gives the new version. Until
    /// then, and if this throws, the old one.
    /// @return the version
    /// @throws as serving::registry::load
    std::uint64_t load(const std::string& name, const std::function<tensafe::lora::adapter()>& from,
                       const tensafe::lora::pack_progress& progress = {});
    /// Whether there was one of this name.
    bool unload(std::string_view name);
    /// Null if there is none.
    std::shared_ptr<const served_model> find(std::string_view name) const;
    std::vector<store_entry> entries() const;

  private:
    struct state;
    std::unique_ptr<state> state_;
};

/// @param nonce     drawn by this server for the connection
/// @param rerandomization_key  the client's message, checked already as far as tensafe::wire::header goes
/// @throws tensafe::parameter_error for another parameter set or nonce; format_error if it is malformed
std::unique_ptr<session_evaluator> make_evaluator(std::shared_ptr<const served_model> model,
                                                  const tensafe::random::seed& nonce,
                                                  std::span<const std::uint8_t> rerandomization_key);

/// Of the parameter set that this server computes with, for messages to people and for checks.
std::uint64_t parameter_set_id() noexcept;
std::string parameter_set_name();
/// Bytes of the message of a re-randomization key.
std::size_t rerandomization_key_bytes() noexcept;

}  // namespace split
