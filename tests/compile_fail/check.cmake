# cmake -DCOMPILER=... -DINCLUDES=... -DSOURCE=... [-DPRECOMPILED=<header>] [-DMISTAKE=<macro>] -P check.cmake
# Without a mistake the source has to compile; with it, it has to fail with the text that follows its #ifdef.

set(flags -std=c++20 -fsyntax-only -fmessage-length=0)
foreach(folder IN LISTS INCLUDES)
    list(APPEND flags -isystem "${folder}")
endforeach()
if(PRECOMPILED)  # so a test that includes too little goes unnoticed; headers are compiled alone elsewhere
    list(APPEND flags -include "${PRECOMPILED}")
endif()
if(MISTAKE)
    list(APPEND flags "-D${MISTAKE}")
endif()
set(ENV{LC_ALL} C)  # plain quotes and English words in the messages
execute_process(COMMAND "${COMPILER}" ${flags} "${SOURCE}" RESULT_VARIABLE status ERROR_VARIABLE output)

if(NOT MISTAKE)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "${SOURCE} must compile, but:\n${output}")
    endif()
    return()
endif()
file(READ "${SOURCE}" text)
if(NOT text MATCHES "#ifdef ${MISTAKE}\n *// expect: ([^\n]+)\n")
    message(FATAL_ERROR "${SOURCE}: after #ifdef ${MISTAKE} must follow `// expect: <text of the message>`")
endif()
set(expected "${CMAKE_MATCH_1}")
if(status EQUAL 0)
    message(FATAL_ERROR "${SOURCE} compiles with ${MISTAKE} and must not")
endif()
string(FIND "${output}" "${expected}" position)
if(position EQUAL -1)
    message(FATAL_ERROR "${SOURCE}: the message lacks the text\n  ${expected}\nThe compiler said:\n${output}")
endif()
