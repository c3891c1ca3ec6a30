// expect: memory::buffer: elements must be trivially copyable
#include <tensafe/memory/buffer.hpp>

#include <string>

template class tensafe::memory::buffer<int>;

#ifdef TENSAFE_COMPILE_FAIL
template class tensafe::memory::buffer<std::string>;
#endif
