#pragma once

// What tests use of the standard library and that of an Emscripten may lack, included before each of them
// there. One thread is all that there is: one that is begun runs to its end at once.

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <thread>
#include <utility>
#include <version>

namespace std {

#if !defined(__cpp_lib_bit_cast)
template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
    return __builtin_bit_cast(To, from);
}
#endif

#if !defined(__cpp_lib_jthread)
class jthread {
  public:
    jthread() = default;
    template <class F, class... Args>
    explicit jthread(F&& f, Args&&... args) {
        std::invoke(std::forward<F>(f), std::forward<Args>(args)...);
    }
    void join() {}
};
#endif

#if !defined(__cpp_lib_ranges)
namespace ranges {

template <class R, class T>
void fill(R&& r, const T& value) {
    std::fill(std::begin(r), std::end(r), value);
}
template <class R, class T>
auto count(const R& r, const T& value) {
    return std::count(std::begin(r), std::end(r), value);
}
template <class R, class F>
auto count_if(const R& r, F f) {
    return std::count_if(std::begin(r), std::end(r), f);
}
template <class R, class F>
bool all_of(const R& r, F f) {
    return std::all_of(std::begin(r), std::end(r), f);
}
template <class A, class B>
bool equal(const A& a, const B& b) {
    return std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b));
}
template <class R>
void sort(R&& r) {
    std::sort(std::begin(r), std::end(r));
}
template <class R, class Less, class Of>
void sort(R&& r, Less less, Of of) {
    std::sort(std::begin(r), std::end(r), [&](const auto& a, const auto& b) { return less(of(a), of(b)); });
}
template <class R, class T>
bool binary_search(const R& r, const T& value) {
    return std::binary_search(std::begin(r), std::end(r), value);
}
template <class R, class Out>
void copy(const R& r, Out out) {
    std::copy(std::begin(r), std::end(r), out);
}
template <class R, class Out>
void move(R&& r, Out out) {
    std::move(std::begin(r), std::end(r), out);
}
template <class R, class Less, class Of>
auto max_element(const R& r, Less, Of of) {
    return std::max_element(std::begin(r), std::end(r),
                            [&](const auto& a, const auto& b) { return of(a) < of(b); });
}

}  // namespace ranges
#endif

}  // namespace std
