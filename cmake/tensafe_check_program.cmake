# As tensafe_add_program, for one that nobody is going to run: the compiler reads it, with all its templates, and writes
# no code, which takes less than half the time. There is nothing to link then.
function(tensafe_check_program target source)
    tensafe_missing(missing ${ARGN})
    if(missing)
        message(STATUS "tensafe: ${target} is skipped: not found here: ${missing}")
        return()
    endif()
    add_library(${target} OBJECT "${source}")
    target_link_libraries(${target} PRIVATE tensafe::tensafe tensafe_warnings ${ARGN})
    target_compile_options(${target} PRIVATE -fsyntax-only)
    # Ninja wants a file to see that it is done.
    set_target_properties(${target} PROPERTIES RULE_LAUNCH_COMPILE "\"${CMAKE_COMMAND}\" -E touch <OBJECT> && ")
endfunction()
