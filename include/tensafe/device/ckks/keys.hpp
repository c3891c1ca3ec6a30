#pragma once

#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tensafe::ckks {

/// Secret keys in the memory of a device: the evaluation words of all limbs, of one client or of several, in
/// one stack. Move-only, as secret_key is; wiped on release. Immutable; safe to share between threads.
///
/// A transfer from memory that is not pinned goes through a buffer of the driver, which this library cannot
/// wipe.
template <parameter_set P, class Space>
class block_secret_key {
  public:
    using stack = rns::secret_poly_stack<typename P::basis, rns::evaluation_form, Space>;

    template <class Where>
    block_secret_key(const Where& where, const secret_key<P>& key) : values_(1, memory::uninitialized) {
        rns::upload(where, key.value(), values_, 0);
        where.wait();
    }
    /// Key c is that of client c.
    /// @throws parameter_error if there is none, or one is null
    template <class Where>
    block_secret_key(const Where& where, std::span<const secret_key<P>* const> keys)
        : values_(keys.size(), memory::uninitialized) {
        if (keys.empty()) {
            throw parameter_error("block_secret_key: got no key, expected at least one");
        }
        for (std::size_t c = 0; c < keys.size(); ++c) {
            if (keys[c] == nullptr) {
                throw parameter_error("block_secret_key: key " + std::to_string(c) + " is a null pointer");
            }
            rns::upload(where, keys[c]->value(), values_, c);
        }
        where.wait();
    }
    block_secret_key(block_secret_key&&) noexcept = default;
    block_secret_key& operator=(block_secret_key&&) noexcept = default;
    block_secret_key(const block_secret_key&) = delete;  // one owner: move it, or lend it by const reference
    block_secret_key& operator=(const block_secret_key&) = delete;

    std::size_t count() const noexcept { return values_.count(); }
    const stack& values() const noexcept { return values_; }

    /// The keys as a launch over `messages` polynomials sees them: client after client, each with as many.
    /// @throws shape_error unless `messages` is a multiple of count()
    rns::stack_view shared_by(std::size_t messages) const {
        if (messages % count() != 0) {
            throw shape_error("block_secret_key: got " + std::to_string(messages) + " messages for " +
                              std::to_string(count()) + " keys, expected as many for each");
        }
        const std::size_t each = messages / count();
        return rns::view_of(values_, each == 0 ? 1U : static_cast<std::uint32_t>(each));
    }

  private:
    stack values_;
};

/// A public key (b, a) in the memory of a device. Immutable; safe to share between threads.
template <parameter_set P, class Space>
class block_public_key {
  public:
    using stack = rns::poly_stack<typename P::basis, rns::evaluation_form, Space>;

    template <class Where>
    block_public_key(const Where& where, const public_key<P>& key) : halves_(2, memory::uninitialized) {
        rns::upload(where, key.b(), halves_, 0);
        rns::upload(where, key.a(), halves_, 1);
        where.wait();
    }

    /// b, then a.
    const stack& halves() const noexcept { return halves_; }

  private:
    stack halves_;
};

}  // namespace tensafe::ckks
