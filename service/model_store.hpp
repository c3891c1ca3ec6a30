#pragma once

#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/serving/meter.hpp>
#include <tensafe/session/store.hpp>
#include <tensafe/wire/message.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control_message.hpp"
#include "limits.hpp"

// All computing of the server, behind an interface without templates: what includes this compiles in a
// second.

namespace tensafe::keystore {
class mark_key;
}

namespace split {

using marking_key = std::shared_ptr<const tensafe::keystore::mark_key>;
using shared_message = std::shared_ptr<const std::vector<std::uint8_t>>;

/// A message that opens a session. As a frame of JSON it is encoded once, when the first client asks for it.
/// Thread-safe.
class opening_message {
  public:
    opening_message(carried_message::kind what, std::vector<std::uint8_t> message);
    shared_message in(frame_form form) const;

  private:
    carried_message::kind what_;
    shared_message binary_;
    mutable std::once_flag encoded_;
    mutable shared_message json_;
};

/// What stands before the key of a client that has no tenant, where it is the owner of a copy; no tenant's
/// name has a space.
inline constexpr std::string_view key_owner = "key ";

/// What is known of an adapter beside its matrices.
struct adapter_facts {
    std::string name;
    std::uint64_t version = 0;
    std::string counted_as;  ///< in query counts: the first name that its A was loaded under
    std::vector<tensafe::serving::query_limits> groups;
    std::vector<double> entropies;     ///< bits of the A of each group
    std::string pin;                   ///< text of a keystore::adapter_pin; empty: it has none
    std::filesystem::path pin_folder;  ///< with marks, of each owner's pin; empty: they have none
};

using group_limits = std::shared_ptr<const std::vector<tensafe::serving::query_limits>>;

/// One version of an adapter, packed, with the messages that open a session. As long as somebody holds it,
/// it stays whole, whatever is loaded or removed. Immutable and thread-safe.
class served_model : public adapter_facts {
  public:
    std::size_t bytes = 0;                    ///< of memory; without A's with marks
    std::size_t largest_request = 0;          ///< bytes
    std::vector<std::size_t> bytes_of_block;  ///< in memory, by group; empty: there are none
    opening_message layout;

    /// What a client holds, B and scales: as large as the B of the adapter. Where there is a key of marks it
    /// has those of the owner, made when it is asked for and kept while it is being sent.
    /// @param owner  who answers for a copy: the client's tenant, or the client
    virtual shared_message held_for(const std::string& owner, frame_form form) const = 0;
    /// The text of the pin that it is shown, or nothing. Whether a tenant's own is of its B and A is checked
    /// when it first comes, which costs about half of packing.
    /// @throws tensafe::error if it is not, or is not there
    virtual std::string pin_for(const std::string& owner) const = 0;

  protected:
    served_model(adapter_facts known, std::vector<std::uint8_t> layout_message)
        : adapter_facts(std::move(known)),
          layout(carried_message::kind::model_layout, std::move(layout_message)) {}
    ~served_model() = default;
};

/// The limits by group of a session of this version.
/// @param own  as client_tenant::share
group_limits limits_of(std::shared_ptr<const served_model> model, const std::optional<share_limit>& own);

/// The server's half of one session, a tensafe::session::server_session of the version of the adapter that it
/// opened with. Thread-safe.
class session_evaluator {
  public:
    virtual ~session_evaluator() = default;

    /// Held while a connection answers or takes the session over, since two connections may have it for a
    /// moment.
    std::mutex answering;

    /// Answers a message, or repeats its reply, in the working memory of the calling thread.
    /// @param to  the reply's message
    /// @return what it used. Of a reply that was sent before only bytes count, and no request
    /// @throws as tensafe::session::server_session::on_message
    virtual tensafe::serving::usage on_message(std::span<const std::uint8_t> message,
                                               const tensafe::wire::header& header, shared_message& to) = 0;
    // As those of tensafe::session::server_session.
    virtual std::uint64_t next_number() const = 0;
    virtual void on_resumed() = 0;
    virtual std::size_t held_bytes() const noexcept = 0;
    virtual void drop_replies() noexcept = 0;
    virtual void drop_blocks() noexcept = 0;
    /// Makes one encryption of zero for the group that probably comes next, if it has fewer than it needs
    /// and fewer than `most` are stored. Whether one was made.
    virtual bool fill_pool(std::size_t most) = 0;
    virtual std::size_t pool_size() const = 0;
    virtual const served_model& model() const noexcept = 0;
};

/// Files of keystore::opened_pin, by the adapter's name; with marks folders, which have OWNER.pin for each
/// owner (a tenant, or the client's key).
using pin_files = std::map<std::string, std::filesystem::path, std::less<>>;

/// The adapters that are served. Thread-safe.
class model_store {
  public:
    /// @param pins  read at each load: another adapter than that of its name's pin is not loaded. With marks,
    ///              which must be in A too, none of another layout, and nobody is served another B or A
    /// @param has_peers  other servers count with it: what is read of an A counts under a hash of it, which
    ///                   all of them have alike
    /// @param marks  the key of marks in what clients hold, and in A with limits::mark_bytes; null: there are
    ///               none
    explicit model_store(const limits& allowed, pin_files pins = {}, bool has_peers = false,
                         marking_key marks = {});
    ~model_store();
    model_store(const model_store&) = delete;
    model_store& operator=(const model_store&) = delete;

    /// From now on what is read of this A counts under this name, unless it counts under another one already.
    /// @return the name
    std::string count_under(const std::string& name, const tensafe::lora::adapter& of);
    /// The number of a version that will be loaded: larger than all before.
    std::uint64_t next_version() noexcept;
    /// Reads and packs on the calling thread, and makes the messages; `serve` comes next.
    /// @param version  of next_version; 0: now
    /// @throws what `from` and `progress` throw, and as lora::model_server; before it packs as
    ///         keystore::opened_pin::read and check, and parameter_error if a limit is below one request
    std::shared_ptr<const served_model> pack(const std::string& name,
                                             const std::function<tensafe::lora::adapter()>& from,
                                             const tensafe::lora::pack_progress& progress = {},
                                             std::uint64_t version = 0);
    /// Later find gives this version.
    void serve(std::shared_ptr<const served_model> packed);
    /// Whether there was one of this name.
    bool unload(std::string_view name);
    /// Null if there is none.
    std::shared_ptr<const served_model> find(std::string_view name) const;
    /// All, by name.
    std::vector<std::shared_ptr<const served_model>> served() const;
    /// The bytes of A's with marks that are kept, and how many groups of one were packed since the start.
    std::pair<std::size_t, std::uint64_t> marked() const;

  private:
    struct state;
    std::unique_ptr<state> state_;
};

/// @param owner     as for served_model::held_for: whose marks A has, where it has any
/// @param nonce     drawn by this server for the connection
/// @param rerandomization_key  the client's message, checked already as far as tensafe::wire::header goes
/// @param counts    of what the session answers
/// @throws tensafe::parameter_error for another parameter set or nonce; format_error if it is malformed
std::unique_ptr<session_evaluator> make_evaluator(std::shared_ptr<const served_model> model,
                                                  const std::string& owner,
                                                  const tensafe::random::seed& nonce,
                                                  std::span<const std::uint8_t> rerandomization_key,
                                                  std::unique_ptr<tensafe::session::store> counts);

/// Bytes of the message of a re-randomization key.
std::size_t rerandomization_key_bytes() noexcept;

}  // namespace split
