# One way to consume the library (CASE): build and run the program in consumer/. With EXPECT, configuring must fail
# with that text instead.

function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    set(status "${status}" PARENT_SCOPE)
    set(output "${output}" PARENT_SCOPE)
endfunction()
function(run_or_fail)
    run(${ARGN})
    if(NOT status EQUAL 0)
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "${CASE}: ${command}\n${output}")
    endif()
    set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
if(NOT CASE MATCHES "^(add_subdirectory|fetch_content)$")
    run_or_fail("${CMAKE_COMMAND}" --install "${TENSAFE_BUILD}" --prefix "${WORK}/prefix")
endif()

if(CASE STREQUAL "pkg_config")
    set(ENV{PKG_CONFIG_PATH} "${WORK}/prefix/share/pkgconfig")
    run_or_fail("${PKG_CONFIG}" --cflags tensafe)
    separate_arguments(flags UNIX_COMMAND "${output}")
    run_or_fail("${COMPILER}" -std=c++20 ${flags} "${CMAKE_CURRENT_LIST_DIR}/consumer/main.cpp" -o "${WORK}/consumer")
    run_or_fail("${PKG_CONFIG}" --modversion tensafe)
    set(said "tensafe ${output}")
    run_or_fail("${WORK}/consumer")
    if(NOT output STREQUAL said)
        message(FATAL_ERROR "${CASE}: the program says '${output}', expected '${said}'")
    endif()
    return()
endif()

string(REPLACE ";" "\\;" components "${COMPONENTS}")
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/consumer" -B "${WORK}/build" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCASE=${CASE}"
    "-DVERSION=${VERSION}"
    "-DCOMPONENTS=${components}"
    "-DTENSAFE_SOURCE=${TENSAFE_SOURCE}"
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
if(DEFINED EXPECT)
    string(REGEX REPLACE "[ \n]+" " " output "${output}")  # CMake wraps long messages
    string(FIND "${output}" "${EXPECT}" position)
    if(status EQUAL 0 OR position EQUAL -1)
        message(FATAL_ERROR "${CASE}: configuring must fail and say\n  ${EXPECT}\nIt said:\n${output}")
    endif()
    return()
elseif(NOT status EQUAL 0)
    message(FATAL_ERROR "${CASE}: configuring the consumer failed:\n${output}")
endif()
run_or_fail("${CMAKE_COMMAND}" --build "${WORK}/build")
run_or_fail("${WORK}/build/consumer")
