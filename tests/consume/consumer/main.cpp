#include <tensafe/tensafe.hpp>

#ifdef CONSUMER_USES_io
#include <nlohmann/json.hpp>
#endif
#ifdef CONSUMER_USES_openssl
#include <tensafe/keystore/sha256.hpp>
#endif
#ifdef CONSUMER_USES_eigen
#include <Eigen/Core>
#endif
#ifdef CONSUMER_USES_parallel
#include <tensafe/exec/host_parallel.hpp>
#endif
#ifdef CONSUMER_USES_cuda
#include <cuda_runtime_api.h>
#endif

#include <cstddef>
#include <cstdio>

// The library's own warnings would reject this conversion, so it shows that they do not come along.
unsigned narrowed(double value, int unused) {
    int value_in_units = value;
    return value_in_units;
}

int main() {
    tensafe::memory::buffer<int> numbers(3);
    std::printf("tensafe %s\n", tensafe::version().text().c_str());
#ifdef CONSUMER_USES_parallel
    tensafe::exec::host_parallel(2).for_each(numbers.size(),
                                             [&](std::size_t i, std::size_t) { numbers[i] = 1; });
#endif
#ifdef CONSUMER_USES_openssl
    std::printf("SHA-256 of nothing: %s\n",
                tensafe::keystore::hex(tensafe::keystore::sha256().finish()).c_str());
#endif
#ifdef CONSUMER_USES_cuda
    int devices = 0;
    std::printf("CUDA says %s\n", cudaGetErrorName(cudaGetDeviceCount(&devices)));
#endif
    return numbers.size() == narrowed(3.5, 0) ? 0 : 1;
}
