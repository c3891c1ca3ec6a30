#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/device/ckks/encrypt.hpp>
#include <tensafe/device/encoding/reals.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/random/generator.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace tensafe::device {

/// Everything that one operation takes from the host, or gives back to it: pieces on both sides, brought over
/// in one copy. Wiped on release, which waits for the device. Pieces stay valid when it is moved.
template <class Where>
class staging_area {
  public:
    template <class T>
    struct piece {
        std::span<T> host;
        T* device = nullptr;
    };

    /// The bytes that pieces of these types take, each with its count.
    template <class... T, std::convertible_to<std::size_t>... Count>
    static constexpr std::size_t bytes_for(Count... counts) noexcept {
        constexpr std::size_t whole = memory::alignment;
        return (((static_cast<std::size_t>(counts) * sizeof(T) + whole - 1) / whole * whole) + ...);
    }

    staging_area() noexcept = default;
    /// @param bytes  the sum of bytes_for over all pieces
    explicit staging_area(std::size_t bytes) : host_(bytes), device_(bytes) {}
    staging_area(staging_area&&) noexcept = default;
    staging_area& operator=(staging_area&&) noexcept = default;
    staging_area(const staging_area&) = delete;  // pieces would point into the other one
    staging_area& operator=(const staging_area&) = delete;

    /// Takes the next piece.  @pre  there is room for it
    template <class T>
    piece<T> take(std::size_t count) noexcept {
        static_assert(std::is_trivially_copyable_v<T>, "staging_area: pieces are copied as bytes");
        TENSAFE_PRECONDITION(used_ + bytes_for<T>(count) <= host_.size());
        const piece<T> result{{reinterpret_cast<T*>(host_.data() + used_), count},
                              reinterpret_cast<T*>(device_.data() + used_)};
        used_ += bytes_for<T>(count);
        return result;
    }

    /// Brings all pieces over. The host's side must stay as it is until that is done.
    void upload(const Where& where) const { upload_bytes(where, used_); }

    /// Brings pieces over up to the first `count` elements of one, which may be larger than what it holds
    /// now.
    template <class T>
    void upload_until(const Where& where, const piece<T>& last, std::size_t count) const {
        upload_bytes(where, bytes_until(last, count));
    }

    /// Brings pieces back, up to the first `count` elements of one: there when `where.wait()` returns.
    template <class T>
    void download_until(const Where& where, const piece<T>& last, std::size_t count) {
        where.download(std::as_const(device_).data(), host_.span().first(bytes_until(last, count)));
    }

  private:
    template <class T>
    std::size_t bytes_until(const piece<T>& last, std::size_t count) const noexcept {
        return static_cast<std::size_t>(reinterpret_cast<const std::uint8_t*>(last.host.data() + count) -
                                        host_.data());
    }
    void upload_bytes(const Where& where, std::size_t bytes) const {
        where.upload(host_.span().first(bytes), const_cast<std::uint8_t*>(device_.data()));
    }

    /// Released after the other, which waits for copies that are under way.
    memory::buffer<std::uint8_t, typename Where::staging_space, memory::wipe_on_release> host_;
    memory::buffer<std::uint8_t, typename Where::space, memory::wipe_on_release> device_;
    std::size_t used_ = 0;
};

// What may have gone wrong with a token on the device: bits of its status word. Bits 0 to 7 of a server's
// words say which limb of the request held something that is no residue.

/// The client's status bit for a hidden state that is not finite or whose norm passes what can be encoded.
inline constexpr std::uint32_t status_not_finite = 1;
/// The client's status bit for an answer that passed the average-case range.
inline constexpr std::uint32_t status_range_exceeded = 2;
/// The client's status bit for a reply that is no packing of coefficients, or was erased.
inline constexpr std::uint32_t status_malformed_reply = 4;
/// The status bit of what was staged and not answered: work was not enqueued, or is under way.
inline constexpr std::uint32_t status_pending = std::uint32_t{1} << 30;
/// The status bit of work that was replayed without staging: its randomness has been used before.
inline constexpr std::uint32_t status_stale = std::uint32_t{1} << 31;

/// The record of a staging about its batch.
struct batch_record {
    std::uint64_t number = 0;  ///< the number of the staging: no two have the same
    std::uint64_t tokens = 0;
    const void* states = nullptr;  ///< hidden states that are on the device already
    double overflow_margin = 1;
};

/// Starts a batch: sets its status words to 0, or to status_stale if the staging was seen before or is of
/// another batch: erase_kernel then overwrites what would have left the device with used randomness.
struct begin_batch_kernel {
    static constexpr int threads = 256;
    using shared_type = no_shared;

    const batch_record* staged;
    std::uint64_t* seen;  ///< number of the last staging
    std::uint32_t* status;
    const void* states;
    std::uint32_t tokens;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.each([&](int t) {
            const bool fresh =
                staged->number != *seen && staged->tokens == tokens && staged->states == states;
            const std::uint32_t start = fresh ? 0 : status_stale;
            for (auto token = static_cast<std::uint32_t>(t); token < tokens; token += threads) {
                status[token] = start;
            }
        });
        ctx.last([&](int t) {
            if (t == 0) {
                *seen = staged->number;
            }
        });
    }
};

/// Ends a batch: overwrites the messages of tokens whose status has one of these bits with 0.
struct erase_kernel {
    static constexpr int threads = 256;
    static constexpr std::size_t bytes_per_block = 16 * threads;
    using shared_type = no_shared;

    const std::uint32_t* status;
    std::uint8_t* messages;
    std::size_t stride;    ///< bytes of a token's message, a multiple of 4
    std::uint32_t blocks;  ///< thread blocks for one token
    std::uint32_t bits;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::uint32_t token = ctx.block().x / blocks;
        if ((status[token] & bits) == 0) {
            return;
        }
        const std::size_t first = std::size_t{ctx.block().x % blocks} * bytes_per_block;
        ctx.last([&](int t) {
            for (std::size_t i = 0; i < 4; ++i) {
                const std::size_t at = first + (i * threads + static_cast<std::size_t>(t)) * 4;
                if (at < stride) {
                    *reinterpret_cast<std::uint32_t*>(messages + token * stride + at) = 0;
                }
            }
        });
    }
};

/// Checks a workspace.  @throws shape_error unless it was made for this layout: it would be too small
template <class Layout>
void check_workspace(const char* who, const Layout& of_workspace, const Layout& wanted) {
    require<shape_error>(of_workspace == wanted,
                         {who, ": got a workspace made for a ", of_workspace.rank, " x ", of_workspace.d,
                          " matrix, expected one for this ", wanted.rank, " x ", wanted.d, " matrix"});
}

template <class Where>
void erase(const Where& where, const std::uint32_t* status, std::uint8_t* messages, std::size_t stride,
           std::size_t tokens, std::uint32_t bits) {
    const std::uint32_t blocks = blocks_for(stride, erase_kernel::bytes_per_block);
    where.launch(erase_kernel{status, messages, stride, blocks, bits},
                 grid_shape{static_cast<std::uint32_t>(tokens) * blocks});
}

/// The number of tokens that a batch holds, and the number that it has room for.
class batch_size {
  public:
    /// Makes an empty batch.  @throws shape_error unless there is room for a token
    batch_size(const char* who, std::size_t largest) : who_(who), largest_(largest) {
        require<shape_error>(largest != 0, {who, ": got room for 0 tokens, expected 1 or more"});
    }

    /// The number of tokens that were staged, or that encrypt(), apply() or set_tokens() said last. A graph
    /// that is replayed does not change it: set_tokens() before put() or get().
    std::size_t tokens() const noexcept { return tokens_; }
    std::size_t largest() const noexcept { return largest_; }

    /// Sets the number of tokens.  @throws shape_error if there is no room for so many
    void set_tokens(std::size_t tokens) {
        require<shape_error>(
            tokens != 0 && tokens <= largest_,
            {who_, ": got ", tokens, " tokens, expected 1 to the ", largest_, " it was made for"});
        tokens_ = tokens;
    }

  protected:
    void check_token(std::size_t t) const {
        require<shape_error>(t < tokens_, {who_, ": got token ", t, " of ", tokens_});
    }
    void check_staged() const {
        require<error>(tokens_ != 0, {who_, ": nothing is staged; call stage() first"});
    }

    const char* who_;
    std::size_t largest_;
    std::size_t tokens_ = 0;
};

namespace detail {

/// Throws for the first status word of a server's tokens that is not 0.
template <class Basis>
void check_answered(const char* call, std::span<const std::uint32_t> status) {
    for (std::size_t t = 0; t < status.size(); ++t) {
        require<error>((status[t] & status_pending) == 0,
                       {"device::server: the batch is not answered yet; call ", call, "() and where.wait()"});
        require<error>((status[t] & status_stale) == 0,
                       {"device::server::", call,
                        ": this batch was applied before, or recorded for another number of tokens; call "
                        "stage() each time, and keep a graph for each batch size"});
        for (int limb = 0; limb < Basis::limbs; ++limb) {
            require<format_error>(
                (status[t] >> limb & 1) == 0,
                {"device::server::", call, ": token ", t, ": a residue of limb ", limb,
                 " is not below its prime ", Basis::primes[static_cast<std::size_t>(limb)]});
        }
    }
}

/// A batch on its way through a client or a server: what the host stages for it.
template <class Where>
class staged_batch : public batch_size {
  protected:
    using area = staging_area<Where>;
    template <class T>
    using piece = typename area::template piece<T>;
    template <class T>
    using secret = memory::buffer<T, typename Where::space, memory::wipe_on_release>;
    template <class T>
    using open = memory::buffer<T, typename Where::space>;

    /// @param bytes  of all pieces but the record
    staged_batch(const char* who, std::size_t largest, std::size_t bytes)
        : batch_size(who, largest),
          staging_(area::template bytes_for<batch_record>(1) + bytes),
          record_(staging_.template take<batch_record>(1)),
          seen_(1) {}

    /// Ends the batch before a staging: what fails by halves must never be enqueued or replayed.
    void unstage() noexcept {
        tokens_ = 0;
        record_.host[0].tokens = 0;
    }
    void note_staged(std::size_t tokens, std::span<std::uint32_t> status, const void* states = nullptr,
                     double overflow_margin = 1) {
        record_.host[0] = {record_.host[0].number + 1, tokens, states, overflow_margin};
        std::ranges::fill(status, status_pending);
        tokens_ = tokens;
    }
    void begin(const Where& where, std::uint32_t* status, const void* states = nullptr) {
        where.launch(begin_batch_kernel{record_.device, seen_.data(), status, states,
                                        static_cast<std::uint32_t>(tokens_)},
                     grid_shape{});
    }

    area staging_;
    piece<batch_record> record_;
    open<std::uint64_t> seen_;
};

/// A batch on its way through a client: hidden states, errors and answers, wiped on release.
template <ckks::parameter_set P, class Where, class Layout>
class client_batch : public staged_batch<Where> {
    using base = staged_batch<Where>;

  protected:
    using typename base::area;
    template <class T>
    using piece = typename base::template piece<T>;
    using base::staging_;
    using base::tokens_;

    /// @param groups   of messages that share the seed of their c1
    /// @param results  the count of numbers that come back
    client_batch(const Layout& layout, std::size_t largest, std::size_t groups, std::size_t messages,
                 std::size_t results)
        : base("device::client", largest,
               area::template bytes_for<random::seed, random::seed, double, std::uint32_t, float>(
                   groups, messages, largest, largest, largest * layout.d)),
          layout_(layout),
          results_(area::template bytes_for<std::uint32_t, double>(largest, results)),
          status_(results_.template take<std::uint32_t>(largest)),
          answers_(results_.template take<double>(results)),
          c1_seeds_(staging_.template take<random::seed>(groups)),
          error_seeds_(staging_.template take<random::seed>(messages)),
          scales_(staging_.template take<double>(largest)),
          client_of_(staging_.template take<std::uint32_t>(largest)),
          states_(staging_.template take<float>(largest * layout.d)),
          drawn_(groups + messages),
          encryption_(messages),
          norms_(largest) {}

    void check(const Layout& layout) const {
        check_workspace("device::client", layout_, layout);
        this->check_staged();
    }
    std::size_t count_of(std::span<const float> states) const {
        require<shape_error>(states.size() % layout_.d == 0,
                             {"device::client::stage: got ", states.size(),
                              " entries, expected whole hidden states of ", layout_.d});
        return states.size() / layout_.d;
    }
    template <class F>
    void for_each_state(std::span<const float> states, F&& f) const {
        for (std::size_t t = 0; t < states.size() / layout_.d; ++t) {
            try {
                f(t, states.subspan(t * layout_.d, layout_.d));
            } catch (const encoding_error& e) {
                throw encoding_error({"device::client::stage: token ", t, ": ", e.what()});
            }
        }
    }

    /// Draws seeds in the order of lora::client, for each group that of its c1, then those of its errors, and
    /// marks the batch as staged.
    void stage(random::generator& source, std::size_t tokens, std::size_t groups,
               std::size_t messages_of_each, const float* device_states, double overflow_margin = 1) {
        const std::span<random::seed> drawn = drawn_.span().first(groups * (1 + messages_of_each));
        source.next_seeds(drawn);
        for (std::size_t g = 0; g < groups; ++g) {
            const auto of_group = drawn.subspan(g * (1 + messages_of_each), 1 + messages_of_each);
            c1_seeds_.host[g] = source.to_send(of_group[0]);
            std::copy(of_group.begin() + 1, of_group.end(),
                      error_seeds_.host.begin() + static_cast<std::ptrdiff_t>(g * messages_of_each));
        }
        memory::wipe(drawn.data(), drawn.size_bytes());
        device_states_ = device_states;
        this->note_staged(tokens, status_.host, device_states, overflow_margin);
    }
    /// Enqueues the upload, and the check that it is fresh. Returns the hidden states on the device, and
    /// takes their norms if they were not on the host.
    const float* begin(const Where& where) {
        staging_.upload_until(where, states_, device_states_ == nullptr ? tokens_ * layout_.d : 0);
        base::begin(where, status_.device, device_states_);
        if (device_states_ == nullptr) {
            return states_.device;
        }
        squared_norms(where, device_states_, layout_.d, tokens_, norms_.data());
        return device_states_;
    }

    void check_room(std::size_t answers) const {
        require<shape_error>(answers == tokens_ * layout_.rank,
                             {"device::client::collect: got room for ", answers, " answers, expected ",
                              tokens_ * layout_.rank});
    }
    void report() const {
        for (std::size_t t = 0; t < tokens_; ++t) {
            const auto lacks = [&](std::uint32_t bit) { return (status_.host[t] & bit) == 0; };
            require<error>(
                lacks(status_pending),
                {"device::client: token ", t,
                 ": not answered yet; call decrypt() with download, or check(), and where.wait()"});
            require<error>(
                lacks(status_stale),
                {"device::client: token ", t,
                 ": enqueued twice after one staging, or recorded for other tokens or another pointer; call "
                 "stage() each time, and keep a graph for each batch size and pointer"});
            require<encoding_error>(lacks(status_not_finite),
                                    {"device::client: token ", t,
                                     ": an entry of the hidden state is no finite number, or its norm passes "
                                     "what can be encoded"});
            require<format_error>(lacks(status_malformed_reply),
                                  {"device::client: token ", t,
                                   ": the reply has unused bits set, or was erased by the server"});
            require<range_exceeded_error>(
                lacks(status_range_exceeded),
                {"device::client: token ", t,
                 ": an answer passed the average-case range and wrapped around; encrypt this hidden state "
                 "again with more overflow margin, or use the range policy lora::worst_case"});
        }
    }

    Layout layout_;
    const float* device_states_ = nullptr;  ///< instead of states_, if the caller has them there
    area results_;
    piece<std::uint32_t> status_;
    piece<double> answers_;
    piece<random::seed> c1_seeds_;
    piece<random::seed> error_seeds_;
    piece<double> scales_;
    piece<std::uint32_t> client_of_;
    piece<float> states_;  ///< the last, since it is not always used
    memory::secret_buffer<random::seed> drawn_;
    encryption_workspace<P, typename Where::space> encryption_;
    typename base::template secret<double> norms_;
};

}  // namespace detail

}  // namespace tensafe::device
