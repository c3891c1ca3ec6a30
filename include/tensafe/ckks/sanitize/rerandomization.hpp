#pragma once

#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/exec/host.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/samplers.hpp>
#include <tensafe/rns/limb.hpp>
#include <tensafe/rns/poly.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tensafe::ckks {

/// The key that a client sends once per session so that the server can add encryptions of zero to its
/// replies: the public key (b, a) with b = e - a*s, without `a`, which both sides expand from the joint seed
/// of their nonces: with an `a` of its own choice a client could take the zeros off again.
template <parameter_set P, int Level>
struct rerandomization_key {
    static_assert(Level >= 0 && Level <= P::max_level,
                  "ckks::rerandomization_key: the parameter set has no such level");

    random::seed client_nonce;
    rns::poly<typename P::template basis_at<Level>, rns::evaluation_form> b;
    random::seed server_nonce;  ///< the session's: lets the server notice a key of another one
};

/// Makes the client's re-randomization key for the nonce that the server sent. Takes two fresh seeds.
template <int Level, parameter_set P>
rerandomization_key<P, Level> make_rerandomization_key(const secret_key<P>& s,
                                                       const random::seed& server_nonce,
                                                       random::generator& generator) {
    const random::seed client_nonce = generator.next_nonce();
    const auto a = detail::expand_public_key<typename P::template basis_at<Level>>(
        random::joint_seed(client_nonce, server_nonce));
    return {client_nonce, detail::hide_with_error<Level>(a, s, generator), server_nonce};
}

/// Throws if a polynomial from outside holds anything but residues.
/// @throws format_error, naming who asks, what it is and the limb
template <class Basis>
void check_residues(const rns::poly<Basis, rns::evaluation_form>& p, const char* who, const char* what) {
    rns::for_each_limb<Basis>([&]<int I>() {
        constexpr arith::word q = Basis::template prime<I>;
        const auto limb = p.template limb<I>();
        if (!std::all_of(limb.begin(), limb.end(), [](arith::word x) { return x < q; })) {
            throw format_error(std::string(who) + ": a residue of limb " + std::to_string(I) + " of " + what +
                               " is not below its prime " + std::to_string(q));
        }
    });
}

template <parameter_set P, int Level>
class rerandomization_pool;

namespace detail {
/// Gives servers that add up products anyway a zero that is a factor unless it was stored.
struct zero_factors {
    template <class Pool>
    static auto acquire(Pool& pool, typename Pool::reservation t) {
        return pool.acquire_any(std::move(t));
    }
};
}  // namespace detail

/// One encryption of zero, (b*v + e0, a*v + e1), as a server adds it to a traced reply: for one use, because
/// the difference of two replies with the same zero shows what both should hide.
///
/// It comes in four parts, each where the server has the form anyway:
/// - c1 = a*v, to be added in evaluation form; e1 goes in after the inverse NTT. Without e1 it is as secret
///   as v.
/// - c0 = the trace of b*v to the subring of degree n = 2^log_n: entry j of limb I adds up the block j of N/n
///   neighbours in evaluation form. That is the subring's evaluation form, bit-reversed; its coefficient i is
///   N/n times the coefficient of X^(i*N/n) of b*v (docs/design/encoding.md).
/// - e0[i] belongs to the coefficient of X^(i*N/n) itself: divide block sums by N/n modulo each prime, then
///   add it, or add it N/n times. With the wrong weight the client reads it off its result modulo N/n.
///
/// As a factor (`is_factor`) it has v itself in the place of c1 and nothing yet in that of c0: who adds up
/// products anyway adds those with a and b to them.
///
/// Made by rerandomization_pool. Move-only and wiped on release. Not for use by two threads at the same time.
template <parameter_set P, int Level>
struct zero {
    using basis = typename P::template basis_at<Level>;

    rns::secret_poly<basis, rns::evaluation_form> c1;
    memory::secret_buffer<std::int8_t> e1;  ///< N errors
    /// Limb I has 2^log_n residues.
    std::array<memory::secret_buffer<arith::word>, static_cast<std::size_t>(Level) + 1> c0;
    memory::secret_buffer<std::int8_t> e0;  ///< 2^log_n errors
    int log_n;
    bool is_factor = false;

    zero(zero&&) noexcept = default;
    zero& operator=(zero&&) noexcept = default;
    zero(const zero&) = delete;  // one zero hides one reply: move it
    zero& operator=(const zero&) = delete;

  private:
    friend class rerandomization_pool<P, Level>;

    /// Makes a zero of which everything is still to be written.
    explicit zero(int subring_log_n)
        : c1(memory::uninitialized),
          e1(P::degree, memory::uninitialized),
          e0(std::size_t{1} << subring_log_n, memory::uninitialized),
          log_n(subring_log_n) {
        for (auto& limb : c0) {
            limb = memory::secret_buffer<arith::word>(e0.size(), memory::uninitialized);
        }
    }
};

/// A server's supply of encryptions of zero under one client's key: fill it while idle, take one per reply.
///
/// Each zero takes one fresh seed (docs/design/random-streams.md) and is handed out once, first made first.
/// It keeps (Level + 1) * (N + 2^subring_log_n) words and N + 2^subring_log_n bytes. The child of a fork has
/// none of the stored ones. A machine that is restored twice from one snapshot would hand out the stored
/// ones twice, not those made on demand for different inputs: take snapshots while the pool is empty.
///
/// Thread-safe: the computing goes on outside the lock. Neither copyable nor movable, and wiped on release.
template <parameter_set P, int Level>
class rerandomization_pool {
  public:
    using basis = typename P::template basis_at<Level>;

    /// Makes an empty pool for one client and session.
    /// @param server_nonce  fresh for each client and session, and drawn by this server, not received
    /// @param key           what the client made of that nonce
    /// @param subring_log_n    replies are traced to the subring of degree 2^subring_log_n
    /// @param generator     to give an explicit one is for tests
    /// @throws parameter_error unless 0 <= subring_log_n <= P::log_n and the key was made for this nonce;
    ///         format_error if b holds anything but residues; entropy_error
    rerandomization_pool(const random::seed& server_nonce, rerandomization_key<P, Level> key,
                         int subring_log_n, random::generator generator = random::generator())
        : log_n_(checked(subring_log_n)),
          a_(detail::expand_public_key<basis>(random::joint_seed(key.client_nonce, server_nonce))),
          b_(std::move(key.b)),
          generator_(std::move(generator)) {
        if (key.server_nonce != server_nonce) {
            throw parameter_error(
                "rerandomization_pool: the client made this re-randomization key for another server nonce");
        }
        check_residues<basis>(b_, "rerandomization_pool", "the re-randomization key");
        of_key_ = random::input_hash::of(a_.template limb<0>(), b_.words());
    }

    rerandomization_pool(const rerandomization_pool&) = delete;  // two copies would hand out the same zeros
    rerandomization_pool& operator=(const rerandomization_pool&) = delete;

    /// Makes zeros until `count` are stored; two calls at the same time may store a few more. Cost of one: an
    /// NTT and two products of N words for each limb, and at most 5 N bytes of key stream.
    /// @throws entropy_error if the system gives no entropy; std::bad_alloc. What was stored stays.
    template <exec::host_execution Where>
    void fill(const Where& where, std::size_t count) {
        const std::size_t at_once = where.threads() == 1 ? 1 : 4 * where.threads();
        memory::secret_buffer<random::seed> seeds(at_once);
        std::vector<zero<P, Level>> made;
        for (;;) {
            made.clear();
            {
                const std::lock_guard lock(mutex_);
                if (stock().size() >= count) {
                    return;
                }
                const auto hedging = generator_.hedge(of_key_.bytes);
                while (made.size() < std::min(at_once, count - stored_.size())) {
                    draw_seed(seeds[made.size()]);
                    made.push_back(blank());
                }
            }
            where.for_each(made.size(), [&](std::size_t i, std::size_t) {
                draw(seeds[i], made[i]);
                multiply(made[i]);
            });
            const std::lock_guard lock(mutex_);
            for (auto& zero : made) {
                stock().push_back(std::move(zero));
            }
            // So that giving them back allocates nothing.
            spare_.reserve(spare_.size() + stored_.size());
        }
    }

    void fill(std::size_t count) { fill<exec::host>({}, count); }

    /// The right to one zero, given out in order: a stored one, or the seed of one still to be made. The zero
    /// does not depend on when and where it is used. Move-only; wiped on release.
    class reservation {
      public:
        reservation(reservation&& other) noexcept
            : stored_(std::exchange(other.stored_, std::nullopt)),
              seed_(other.seed_),
              state_(std::exchange(other.state_, state::empty)) {
            memory::wipe(other.seed_);
        }
        ~reservation() { memory::wipe(seed_); }
        reservation(const reservation&) = delete;  // one zero hides one reply: move it
        reservation& operator=(const reservation&) = delete;

      private:
        friend class rerandomization_pool;
        enum class state { empty, stored, seeded };

        reservation() = default;

        std::optional<zero<P, Level>> stored_;
        random::seed seed_;
        state state_ = state::empty;
    };

    /// Reserves the oldest stored zero, or else a new one.
    /// @throws entropy_error if the system gives no entropy
    reservation reserve() {
        std::vector<reservation> one;
        reserve(1, {}, one);
        return std::move(one.front());
    }
    /// Reserves `count` zeros, stored ones first, and appends them to `to`.
    /// @param input  what the zeros will be added to, in short: see generator::hedge
    /// @throws entropy_error if the system gives no entropy
    void reserve(std::size_t count, std::span<const std::uint8_t> input, std::vector<reservation>& to) {
        to.reserve(to.size() + count);
        const std::lock_guard lock(mutex_);
        for (; count > 0 && !stock().empty(); --count) {
            reservation& stored = to.emplace_back(reservation());
            stored.stored_ = std::move(stored_.front());
            stored_.pop_front();
            stored.state_ = reservation::state::stored;
        }
        if (count == 0) {
            return;
        }
        const auto hedging = generator_.hedge(of_key_.bytes, input);
        for (; count > 0; --count) {
            reservation& seeded = to.emplace_back(reservation());
            draw_seed(seeded.seed_);
            seeded.state_ = reservation::state::seeded;
        }
    }

    /// Returns the zero of a reservation of this pool; never the same twice. Allocates only if the zero is
    /// not stored and no memory was released to the pool.
    /// @throws error for a reservation that was moved from; std::bad_alloc
    zero<P, Level> acquire(reservation t) {
        zero<P, Level> result = acquire_any(std::move(t));
        if (result.is_factor) {
            multiply(result);
        }
        return result;
    }

    /// Returns the oldest stored zero, or else a new one.  @throws as reserve() and acquire(reservation)
    zero<P, Level> acquire() { return acquire(reserve()); }

    /// Takes the memory of a used zero for the next one, in which it is overwritten: until then it keeps what
    /// is no more secret than the matrix beside it.
    /// @throws parameter_error for a zero of another shape, or one that was moved from
    void release(zero<P, Level> used) {
        if (used.log_n != log_n_ || used.e0.size() != std::size_t{1} << log_n_ ||
            used.e1.size() != P::degree || used.c1.words().empty()) {
            throw parameter_error(
                "rerandomization_pool::release: got a zero that was moved from or is not traced to degree "
                "2^" +
                std::to_string(log_n_));
        }
        const std::lock_guard lock(mutex_);
        if (spare_.size() < most_spare_) {
            spare_.push_back(std::move(used));
        }
    }

    /// Keeps the memory of at most `spare` used zeros; of all, unless this is called. As many as threads work
    /// with at once make requests without stored zeros as fast, and only fill() slower.
    void keep_at_most(std::size_t spare) {
        const std::lock_guard lock(mutex_);
        most_spare_ = spare;
    }

    /// The subring's degree, as a power of two, that replies are traced to.
    int subring_log_n() const noexcept { return log_n_; }
    /// The client's public key (b, a), which factors are multiplied by.
    const rns::poly<basis, rns::evaluation_form>& a() const noexcept { return a_; }
    const rns::poly<basis, rns::evaluation_form>& b() const noexcept { return b_; }

    /// The number of stored zeros; 0 in the child of a fork.
    std::size_t size() const {
        const std::lock_guard lock(mutex_);
        return ::getpid() == owner_ ? stored_.size() : 0;
    }

  private:
    friend struct detail::zero_factors;

    static int checked(int subring_log_n) {
        if (subring_log_n < 0 || subring_log_n > P::log_n) {
            throw parameter_error("rerandomization_pool: subring_log_n: got " +
                                  std::to_string(subring_log_n) + ", expected 0 to " +
                                  std::to_string(P::log_n));
        }
        return subring_log_n;
    }

    /// The stored zeros; none in the child of a fork, which has its parent's. The caller holds the lock.
    std::deque<zero<P, Level>>& stock() {
        const pid_t now = ::getpid();
        if (now != owner_) {
            stored_.clear();
            owner_ = now;
        }
        return stored_;
    }

    /// Draws a seed and leaves no copy on the stack. The caller holds the lock.
    void draw_seed(random::seed& to) {
        random::seed drawn = generator_.next_seed();
        const memory::wipe_guard guard(drawn);
        to = drawn;
    }

    /// Memory for one zero, of a used one if there is any. The caller holds the lock.
    zero<P, Level> blank() {
        if (spare_.empty()) {
            return zero<P, Level>(log_n_);
        }
        zero<P, Level> result = std::move(spare_.back());
        spare_.pop_back();
        return result;
    }

    zero<P, Level> acquire_any(reservation t) {
        switch (t.state_) {
            case reservation::state::stored:
                return std::move(*t.stored_);
            case reservation::state::seeded:
                break;
            case reservation::state::empty:
                throw error(
                    "rerandomization_pool::acquire: this reservation was moved from; use the one that took "
                    "it");
        }
        std::unique_lock lock(mutex_);
        zero<P, Level> made = blank();
        lock.unlock();
        draw(t.seed_, made);
        return made;
    }

    /// Draws the zero of a seed as a factor.
    void draw(const random::seed& seed, zero<P, Level>& made) const {
        // e1 holds v at first.
        random::sample_ternary(seed, random::stream_domain::zero, 0, made.e1.span());
        rns::secret_poly<basis, rns::coefficient_form> v(std::move(made.c1).take());
        made.c1 = transform_of_small(made.e1.span(), std::move(v));
        made.is_factor = true;

        // The sampler's values come in groups of 64, and a subring may have fewer coefficients.
        const std::size_t drawn = std::max(made.e0.size(), std::size_t{64});
        random::sample_error(seed, random::stream_domain::error, 0, made.e1.span().first(drawn));
        std::copy_n(made.e1.begin(), made.e0.size(), made.e0.begin());
        random::sample_error(seed, random::stream_domain::error, 1, made.e1.span());
    }
    void multiply(zero<P, Level>& factor) const {
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr auto policy = rns::variable_arithmetic<basis::template prime<I>>;
            const auto values = factor.c1.template limb<I>();
            const std::span<arith::word> c0 = factor.c0[I].span();
            std::fill(c0.begin(), c0.end(), 0);
            rns::limb::add_block_sums(policy, c0, b_.template limb<I>(), values);
            rns::limb::multiply(policy, values, a_.template limb<I>(), values);
        });
        factor.is_factor = false;
    }

    int log_n_;
    rns::poly<basis, rns::evaluation_form> a_;
    rns::poly<basis, rns::evaluation_form> b_;
    random::seed of_key_;       ///< a hash of a and b
    mutable std::mutex mutex_;  // guards the generator and both stores
    random::generator generator_;
    std::deque<zero<P, Level>> stored_;
    pid_t owner_ = ::getpid();           ///< the process in which the stored zeros were made
    std::vector<zero<P, Level>> spare_;  ///< used zeros, for their memory
    std::size_t most_spare_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace tensafe::ckks
