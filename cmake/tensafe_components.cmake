# The components, each with: package, its target, the Debian package to suggest, and if it matters the oldest version.
# The build tree, the installed package and the tests all read this table; a new component is one more entry.
set(TENSAFE_COMPONENTS io openssl eigen parallel torch cuda)
set(TENSAFE_COMPONENT_io nlohmann_json nlohmann_json::nlohmann_json nlohmann-json3-dev)
set(TENSAFE_COMPONENT_openssl OpenSSL OpenSSL::Crypto libssl-dev 3.0)
set(TENSAFE_COMPONENT_eigen Eigen3 Eigen3::Eigen libeigen3-dev)
set(TENSAFE_COMPONENT_parallel TBB TBB::tbb libtbb-dev)
set(TENSAFE_COMPONENT_torch Torch torch libtorch-dev)
set(TENSAFE_COMPONENT_cuda CUDAToolkit CUDA::cudart cuda-toolkit 12.4)  # Debian's own is older
# CMake before 3.26 does not know that nvcc has C++20, and takes CUDA_STANDARD 20 without a word.
set(TENSAFE_COMPONENT_OPTIONS_cuda "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>")

# Sets `result` to the target that `component` depends on, or to nothing where it cannot be used; `problem` then says
# why.
function(tensafe_find_component_dependency component result problem)
    list(GET TENSAFE_COMPONENT_${component} 0 package)
    list(GET TENSAFE_COMPONENT_${component} 1 target)
    list(GET TENSAFE_COMPONENT_${component} 2 debian)
    set(oldest "")
    list(LENGTH TENSAFE_COMPONENT_${component} count)
    if(count GREATER 3)
        list(GET TENSAFE_COMPONENT_${component} 3 oldest)
    endif()
    if(component STREQUAL "torch")
        # Its expressions name its targets where the program is linked, which may be another folder.
        set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
    endif()
    # What a project around this one has found already may be too old.
    if(NOT TARGET ${target} OR oldest OR NOT DEFINED ${package}_VERSION)
        find_package(${package} ${oldest} QUIET)
    endif()
    set(${result} "" PARENT_SCOPE)
    if(NOT TARGET ${target} OR (oldest AND NOT ${package}_FOUND))
        set(${problem} "needs the package ${package}, which was not found (on Debian and Ubuntu: apt-get install ${debian})"
            PARENT_SCOPE)
    elseif(component STREQUAL "torch" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND Torch_VERSION
           AND Torch_VERSION VERSION_LESS 2)
        set(${problem} "needs g++, or libtorch 2.0: the headers of libtorch ${Torch_VERSION} are no C++20 to clang"
            PARENT_SCOPE)
    else()
        set(${result} ${target} PARENT_SCOPE)
        set(${problem} "" PARENT_SCOPE)
    endif()
endfunction()
