# Tests for another machine, run by an emulator. Of this machine's packages they need headers only; those are linked into
# a folder of the build, since /usr/include has another machine's C library.
set(port_headers "${PROJECT_BINARY_DIR}/headers")
file(MAKE_DIRECTORY "${port_headers}")
function(tensafe_port_headers folder target)
    if(EXISTS "/usr/include/${folder}")
        file(CREATE_LINK "/usr/include/${folder}" "${port_headers}/${folder}" SYMBOLIC)
        add_library(${target} INTERFACE IMPORTED GLOBAL)
        target_include_directories(${target} INTERFACE "${port_headers}")
    endif()
endfunction()
tensafe_port_headers(doctest doctest::doctest)
tensafe_port_headers(nlohmann nlohmann_json::nlohmann_json)

if(EMSCRIPTEN)
    add_compile_options(-fwasm-exceptions)
    # Linked with -O1: above it Emscripten calls for a JavaScript parser that Debian does not have.
    add_link_options(-fwasm-exceptions -O1 -sALLOW_MEMORY_GROWTH -sNODERAWFS -sEXIT_RUNTIME)
endif()
