#include <tensafe/memory/buffer.hpp>

#include "../test.hpp"

using namespace tensafe::memory;

namespace {

struct counting_space : host_space {
    static inline int living = 0;
    static inline int wiped = 0;
    static void* allocate(std::size_t bytes) { return ++living, host_space::allocate(bytes); }
    static void release(void* data, std::size_t bytes) noexcept {
        --living, host_space::release(data, bytes);
    }
    static void wipe(void* data, std::size_t bytes) noexcept { ++wiped, host_space::wipe(data, bytes); }
};
template <class Release>
using counted = buffer<int, counting_space, Release>;

template <class>  // where clang 14 destroys no parameter of `= {}`
void forget(counted<wipe_on_release>& secret) {
    secret = {};
}

}  // namespace

TEST_CASE("every buffer is released once, and a secret one wiped, however it is overwritten") {
    counted<wipe_on_release> secret(3);
    forget<void>(secret);
    CHECK((counting_space::wiped == 1 && counting_space::living == 0));
    counted<wipe_on_release> a(3), b(5);
    a[2] = 7;
    b = a;
    CHECK(counting_space::wiped == 2);
    CHECK((b.size() == 3 && b[2] == 7 && b.data() != a.data()));
    auto& same = b;
    b = same;
    b = std::move(same);
    CHECK((b.size() == 3 && b[2] == 7));
    a = std::move(b);
    CHECK((a[2] == 7 && b.empty()));
    const int before = counting_space::wiped;
    { const counted<keep_on_release> ciphertext = std::move(a).declassify(); }
    CHECK(counting_space::wiped == before);
    CHECK(counting_space::living == 0);
}
