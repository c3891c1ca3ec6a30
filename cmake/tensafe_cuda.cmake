# The CUDA language, for this project's own programs on a GPU; nothing here reaches a consumer.

if(TENSAFE_NVCC AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(CMAKE_CUDA_COMPILER "${TENSAFE_NVCC}")
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "TENSAFE_CUDA=ON needs nvcc 12.4 or later, and none was found: install the CUDA toolkit, take it from "
        "PyPI with scripts/setup cuda, or name its compiler with CMAKE_CUDA_COMPILER or the environment variable CUDACXX")
endif()
set(architectures_given FALSE)
if(DEFINED CMAKE_CUDA_ARCHITECTURES OR DEFINED ENV{CUDAARCHS})
    set(architectures_given TRUE)
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" OR CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
    message(FATAL_ERROR "TENSAFE_CUDA=ON needs nvcc 12.4 or later, and found "
        "${CMAKE_CUDA_COMPILER_ID} ${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER})")
endif()
if(NOT architectures_given)
    set(architectures 80-real 90)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
        set(architectures 80-real 90-real 100)  # the last with PTX, for what comes later
    endif()
    # enable_language has put the compiler's default into the cache, which the next run would take for the user's wish.
    set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING "CUDA architectures" FORCE)
endif()

# For every target with CUDA sources. Warnings are shown, and are no errors: the sources are checked without a GPU, where
# there is time to mend them. CMake before 3.26 does not know that nvcc has C++20, so the option stands here.
add_library(tensafe_cuda_options INTERFACE)
target_link_libraries(tensafe_cuda_options INTERFACE tensafe::tensafe)
target_compile_options(tensafe_cuda_options INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas>)
