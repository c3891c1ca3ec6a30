# cmake -DCOMPILER=... -DINCLUDES=... -DSOURCE=... [-DPRECOMPILED=<header>] [-DMUST_COMPILE=ON] -P check.cmake
# With MUST_COMPILE the source has to compile; without it, it has to fail with the text of its first line.

set(flags -std=c++20 -fsyntax-only -fmessage-length=0)
foreach(folder IN LISTS INCLUDES)
    list(APPEND flags -isystem "${folder}")
endforeach()
if(PRECOMPILED)  # so a test that includes too little goes unnoticed; headers are compiled alone elsewhere
    list(APPEND flags -include "${PRECOMPILED}")
endif()
set(ENV{LC_ALL} C)  # plain quotes and English words in the messages

if(MUST_COMPILE)
    execute_process(COMMAND "${COMPILER}" ${flags} "${SOURCE}" RESULT_VARIABLE status ERROR_VARIABLE output)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "${SOURCE} must compile without TENSAFE_COMPILE_FAIL, but:\n${output}")
    endif()
    return()
endif()

file(STRINGS "${SOURCE}" first_line LIMIT_COUNT 1)
if(NOT first_line MATCHES "^// expect: (.+)$")
    message(FATAL_ERROR "${SOURCE}: the first line must read `// expect: <text of the message>`")
endif()
string(REPLACE "\\;" ";" expected "${CMAKE_MATCH_1}")

execute_process(COMMAND "${COMPILER}" ${flags} -DTENSAFE_COMPILE_FAIL "${SOURCE}"
    RESULT_VARIABLE status ERROR_VARIABLE output)
if(status EQUAL 0)
    message(FATAL_ERROR "${SOURCE} compiles with TENSAFE_COMPILE_FAIL and must not")
endif()
string(FIND "${output}" "${expected}" position)
if(position EQUAL -1)
    message(FATAL_ERROR "${SOURCE}: the message lacks the text\n  ${expected}\nThe compiler said:\n${output}")
endif()
