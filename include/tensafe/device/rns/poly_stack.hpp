#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/rns/poly.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace tensafe::rns {

/// Words of one polynomial.
template <class Basis>
inline constexpr std::size_t words_of_poly = Basis::degree* static_cast<std::size_t>(Basis::limbs);

/// `count()` polynomials in the memory of a space, one after the other, each as in rns::poly: word
/// [polynomial][limb][N], every word in [0, q). Chain, form and space are part of the type, as they are of
/// rns::poly's: the same mistakes do not compile.
///
/// Owns its memory (64-byte aligned); with `Release = memory::wipe_on_release` it is overwritten when
/// released. Value semantics; thread and exception safety of a standard container.
template <class Basis, class Form, class Space, class Release = memory::keep_on_release>
class poly_stack {
    static_assert(std::is_same_v<Form, coefficient_form> || std::is_same_v<Form, evaluation_form>,
                  "rns::poly_stack: the form is coefficient_form or evaluation_form");

  public:
    using basis_type = Basis;
    using form_type = Form;
    using release_type = Release;
    using storage = memory::buffer<arith::word, Space, Release>;

    static constexpr std::size_t stride = words_of_poly<Basis>;  ///< words from one polynomial to the next

    poly_stack() noexcept = default;
    /// Zero polynomials.
    explicit poly_stack(std::size_t count) : words_(count * stride) {}
    /// With words that will be written before they are read.
    poly_stack(std::size_t count, memory::uninitialized_t) : words_(count * stride, memory::uninitialized) {}

    std::size_t count() const noexcept { return words_.size() / stride; }
    arith::word* data() noexcept { return words_.data(); }
    const arith::word* data() const noexcept { return words_.data(); }
    /// Where polynomial p starts.  @pre p <= count()
    arith::word* at(std::size_t p) noexcept { return words_.data() + p * stride; }
    const arith::word* at(std::size_t p) const noexcept { return words_.data() + p * stride; }

  private:
    storage words_;
};

/// A stack whose words are secret: wiped on release.
template <class Basis, class Form, class Space>
using secret_poly_stack = poly_stack<Basis, Form, Space, memory::wipe_on_release>;

namespace detail {
inline void check_place(const char* operation, std::size_t place, std::size_t count) {
    if (place >= count) {
        throw shape_error(std::string(operation) + ": got place " + std::to_string(place) +
                          ", expected one below the stack's count " + std::to_string(count));
    }
}
}  // namespace detail

/// Copies a host's polynomial to a place of the stack. A secret one goes into a secret stack only. Takes
/// effect in the order of `where`; `from` stays untouched until then.
/// @throws shape_error if the stack has no such place
template <class Where, class Basis, class Form, class R, class S>
void upload(const Where& where, const poly<Basis, Form, memory::host_space, R>& from,
            poly_stack<Basis, Form, typename Where::space, S>& to, std::size_t place) {
    static_assert(std::is_same_v<R, memory::keep_on_release> || std::is_same_v<S, memory::wipe_on_release>,
                  "rns::upload: a secret polynomial needs a secret_poly_stack, which is wiped on release");
    detail::check_place("rns::upload", place, to.count());
    where.upload(from.words(), to.at(place));
}

/// Copies a place of the stack to the host, secret if the stack is. Waits until it is there.
/// @throws shape_error if the stack has no such place
template <class Where, class Basis, class Form, class R>
poly<Basis, Form, memory::host_space, R> download(
    const Where& where, const poly_stack<Basis, Form, typename Where::space, R>& from, std::size_t place) {
    detail::check_place("rns::download", place, from.count());
    memory::buffer<arith::word, memory::host_space, R> words(words_of_poly<Basis>, memory::uninitialized);
    where.download(from.at(place), words.span());
    where.wait();
    return poly<Basis, Form, memory::host_space, R>(std::move(words));
}

/// Polynomials that a launch reads, as a kernel sees them. Polynomial p of the launch is number
/// (p / repeat) % cycle of them, so that several can share one; they may have more limbs than the launch,
/// which takes the first. A plain value; does not own the words.
struct stack_view {
    const arith::word* words = nullptr;  ///< 16-byte aligned
    std::size_t stride = 0;              ///< words from one polynomial to the next, an even number
    std::uint32_t repeat = 1;            ///< so many polynomials of the launch in a row share one
    std::uint32_t cycle = 0xffffffffU;   ///< after so many of them, the first one comes again

    TENSAFE_HOST_DEVICE TENSAFE_INLINE const arith::word* polynomial(std::uint32_t p) const noexcept {
        // The same branches for a whole block, which spare most launches the divisions.
        std::uint32_t number = p;
        if (repeat != 1) {
            number /= repeat;
        }
        if (number >= cycle) {
            number %= cycle;
        }
        return words + static_cast<std::size_t>(number) * stride;
    }
};

/// Polynomials of this chain, one after the other.
template <class Basis>
constexpr stack_view view_of(const arith::word* words, std::uint32_t repeat = 1,
                             std::uint32_t cycle = 0xffffffffU) noexcept {
    return {words, words_of_poly<Basis>, repeat, cycle};
}
template <class Basis, class Form, class Space, class R>
stack_view view_of(const poly_stack<Basis, Form, Space, R>& stack, std::uint32_t repeat = 1) noexcept {
    return view_of<Basis>(stack.data(), repeat,
                          stack.count() == 0 ? 1U : static_cast<std::uint32_t>(stack.count()));
}

}  // namespace tensafe::rns
