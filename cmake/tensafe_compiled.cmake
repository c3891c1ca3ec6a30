# tensafe::compiled: the kernels, the client and server of the short parameter sets and the file readers, compiled
# once. Programs that link it compile in a third of the time; the library that is header-only stays the default.
add_library(tensafe_compiled STATIC
    src/functions.cpp
    src/kernels_narrow.cpp
    src/kernels_wide.cpp
    src/short_sets.cpp)
add_library(tensafe::compiled ALIAS tensafe_compiled)
set_target_properties(tensafe_compiled PROPERTIES
    EXPORT_NAME compiled
    OUTPUT_NAME tensafe
    CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON)
target_link_libraries(tensafe_compiled PUBLIC tensafe_tensafe)
target_compile_definitions(tensafe_compiled PUBLIC TENSAFE_COMPILED)
# Optimised where no build type is chosen, and in this project's tests as users have it; and it is built with
# nlohmann/json, but who links it needs none.
target_compile_options(tensafe_compiled PRIVATE $<$<OR:$<CONFIG:>,$<CONFIG:RelWithDebInfo>>:-O2>)
target_include_directories(tensafe_compiled SYSTEM PRIVATE
    "$<TARGET_PROPERTY:nlohmann_json::nlohmann_json,INTERFACE_INCLUDE_DIRECTORIES>")

if(TENSAFE_INSTALL)
    include(GNUInstallDirs)
    install(TARGETS tensafe_compiled EXPORT tensafe_compiled ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(EXPORT tensafe_compiled NAMESPACE tensafe:: FILE tensafeCompiledTargets.cmake
        DESTINATION "${CMAKE_INSTALL_DATADIR}/cmake/tensafe")
endif()
