include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Without the compiled library nothing that is installed depends on the architecture.
set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/tensafe")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/tensafe")

install(TARGETS tensafe_tensafe EXPORT tensafe INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT tensafe NAMESPACE tensafe:: FILE tensafeTargets.cmake DESTINATION "${package_dir}")

configure_package_config_file(cmake/tensafeConfig.cmake.in tensafeConfig.cmake
    INSTALL_DESTINATION "${package_dir}"
    NO_SET_AND_CHECK_MACRO)
set(architecture ARCH_INDEPENDENT)
if(TENSAFE_COMPILED)
    set(architecture "")
endif()
write_basic_package_version_file(tensafeConfigVersion.cmake
    COMPATIBILITY SameMinorVersion
    ${architecture})
install(FILES
    "${CMAKE_CURRENT_BINARY_DIR}/tensafeConfig.cmake"
    "${CMAKE_CURRENT_BINARY_DIR}/tensafeConfigVersion.cmake"
    "${CMAKE_CURRENT_LIST_DIR}/tensafe_components.cmake"
    DESTINATION "${package_dir}")

# Relative to the file, so that a prefix may be chosen or moved after configuring. No -std: it would lower a later one.
file(RELATIVE_PATH includedir "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/tensafe.pc" "Name: tensafe
Description: ${PROJECT_DESCRIPTION} (the headers; compile with -std=c++20 or later)
Version: ${PROJECT_VERSION}
Cflags: -I\${pcfiledir}/${includedir}
")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/tensafe.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
