# Every .cuh compiles alone and may be included twice; nvcc says so.
#   cmake -DNVCC=<nvcc> -DINCLUDE=<folder> -DWORK=<folder> -P cuda.cmake
cmake_minimum_required(VERSION 3.25)
file(GLOB_RECURSE headers RELATIVE "${INCLUDE}" "${INCLUDE}/*.cuh")
if(NOT headers)
    message(FATAL_ERROR "there is no .cuh in ${INCLUDE}")
endif()
list(REMOVE_ITEM headers tensafe/tensafe.cuh)  # two units of tests/odr include it
foreach(header IN LISTS headers)
    string(REGEX REPLACE "\\.cuh$" ".cu" unit "${WORK}/${header}")
    file(WRITE "${unit}" "#include <${header}>\n#include <${header}>\n")
    execute_process(
        COMMAND "${NVCC}" -std=c++20 -O0 -arch=sm_90 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Wno-unknown-pragmas "-I${INCLUDE}"
            -c -o "${unit}.o" "${unit}"
        RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT status EQUAL 0)
        string(APPEND problems "${header}:\n${output}\n")
    endif()
endforeach()
if(DEFINED problems)
    message(FATAL_ERROR "${problems}")
endif()
