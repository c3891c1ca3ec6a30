# Two units that include both umbrellas link into one program: a function that lacks `inline` is a link error. The
# program says what the two see, and that there is no GPU where there is none.

cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY "${WORK}")
execute_process(
    COMMAND "${NVCC}" -std=c++20 -O1 -gencode arch=compute_90,code=sm_90 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Wno-unknown-pragmas
        "-I${INCLUDE}" -o "${WORK}/links" "${CMAKE_CURRENT_LIST_DIR}/first.cu" "${CMAKE_CURRENT_LIST_DIR}/second.cu"
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "two units with everything do not link:\n${output}")
endif()
execute_process(COMMAND "${WORK}/links" RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "the program of two units failed (${status}):\n${output}")
endif()
message(STATUS "${output}")
