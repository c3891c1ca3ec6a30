# Installs the headers of the sources that this folder is in. Not run here.
set(VCPKG_BUILD_TYPE release)  # nothing is compiled
set(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../..")
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS
    -DTENSAFE_BUILD_TESTS=OFF -DTENSAFE_BUILD_EXAMPLES=OFF -DTENSAFE_BUILD_SERVICE=OFF -DTENSAFE_BUILD_BENCHMARKS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/tensafe)
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
