# For this project's own tests, examples and benchmarks; nothing here reaches a consumer.

# Warnings of other compilers nobody here could mend: they do not stop whoever builds our tests with one.
set(tensafe_seen "GNU 12" "GNU 13" "GNU 14" "Clang 14" "Clang 19")
string(REGEX MATCH "^[0-9]+" tensafe_compiler "${CMAKE_CXX_COMPILER_VERSION}")
set(tensafe_compiler "${CMAKE_CXX_COMPILER_ID} ${tensafe_compiler}")
add_library(tensafe_warnings INTERFACE)
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    target_compile_options(tensafe_warnings INTERFACE
        -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow
        $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # wrong about std::optional from 13 on, and at -O0
    if(TENSAFE_WARNINGS_AS_ERRORS AND tensafe_compiler IN_LIST tensafe_seen)
        target_compile_options(tensafe_warnings INTERFACE -Werror)
    elseif(TENSAFE_WARNINGS_AS_ERRORS)
        message(STATUS "tensafe: warnings are no errors: this project has not seen ${tensafe_compiler}")
    endif()
endif()

# g++ collects its garbage from 128 MB on. Later it takes a tenth to a fifth less time, and a third more memory.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1500000>")

find_package(CLI11 QUIET)
find_package(Boost 1.74 QUIET CONFIG)
find_package(Threads QUIET)

# What no component is made of. Without Boost there is no split inference, without valgrind constant time is not tested.
set(TENSAFE_REQUIRED_TOOLS "" CACHE STRING "Of Boost and valgrind, what must be found (their tests are skipped otherwise)")
if("Boost" IN_LIST TENSAFE_REQUIRED_TOOLS AND NOT TARGET Boost::headers)
    message(FATAL_ERROR "tensafe: TENSAFE_REQUIRED_TOOLS: no Boost 1.74 or later (on Debian and Ubuntu: apt-get install libboost-dev)")
endif()

# Sets `result` to those of the targets `ARGN` that are not here.
function(tensafe_missing result)
    set(absent "")
    foreach(need IN LISTS ARGN)
        if(NOT TARGET ${need})
            list(APPEND absent ${need})
        endif()
    endforeach()
    set(${result} "${absent}" PARENT_SCOPE)
endfunction()

# What tests and split inference link: kernels are compiled once there, optimised, whatever else is.
set(tensafe_of_programs tensafe::tensafe)
if(TARGET tensafe::compiled)
    set(tensafe_of_programs tensafe::compiled)
endif()

# An executable from one source, linked to the library and to `ARGN`. Skipped, with a line that says so, where one of
# those is not here.
function(tensafe_add_program target source)
    tensafe_missing(missing ${ARGN})
    if(missing)
        message(STATUS "tensafe: ${target} is skipped: not found here: ${missing}")
        return()
    endif()
    add_executable(${target} "${source}")
    target_link_libraries(${target} PRIVATE tensafe::tensafe tensafe_warnings ${ARGN})
endfunction()
